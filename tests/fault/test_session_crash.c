// SPDX-License-Identifier: Apache-2.0
/* Sessions over the embedded store on a disk that dies, life after life.
 *
 * One seed is one disk with several lives of a server on it. In each, the clients of
 * model/session_model.h send, drop and come back; then the power goes in the middle of some call,
 * or a sync fails, or the process is killed or stopped. After that a new engine reads what is
 * there, and the clients come back with what they had been told. What must hold then, besides all
 * that holds at any time: a chunk that was acknowledged is there, an event that was seen is there
 * and the same, nothing is there twice, and no nonce in any stream has sealed another record.
 *
 * Faults of the store that can be switched on (crash_store.h) show that this can be found. See
 * model/seeds.h for how to repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/units.h"
#include "fault/crash_store.h"
#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/session_model.h"

#include <unistd.h>

#define SEEDS        60
#define SEEDS_BROKEN 100
#define LIVES_MAX    5
#define STEPS_MAX    250
#define CHANGES_MAX  400 /* the power goes after at most so many calls that change something */
#define TURNS_MAX    20000
#define START_WALL   1700000000000

/* ---- crash_store.h's points ---- */

static struct simfs *the_disk; /* they have no context */

static void note_judged(const struct store_write *w)
{
}

static void note_looked_up(struct str name)
{
}

static void note_checked(const struct doc_put *docs)
{
}

static void note_written(struct store_write *w)
{
}

static void note_removed(void)
{
}

static void note_put(const struct doc_put *docs)
{
}

static int may_commit(void)
{
    return simfs_is_off(the_disk) ? ERR_IO : 0;
}

static void note_committed(void)
{
}

/* ---- a machine ---- */

struct machine {
    struct session_model model;
    struct sched sched;
    struct simfs *fs;
    char index[64];
    struct embedded_lanes lanes;
    struct feeds feeds;
    struct sessions_setup setup;
    bool faulty; /* a sync fails, or has failed */
    bool stopped;
    uint64_t n_crashes, n_adopted;
};

static void pass_turn(struct machine *c)
{
    sched_turn(&c->sched, c->sched.now_ms + SCHED_TICK_MS, c->sched.wall_ms + SCHED_TICK_MS);
}

static bool is_off(const struct session_model *m)
{
    const struct machine *c = container_of(m, struct machine, model);
    return c->faulty || simfs_is_off(c->fs);
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void await_stop(struct machine *c)
{
    for (int i = 0; i < TURNS_MAX && !c->stopped; i++)
        pass_turn(c);
    if (!c->stopped) {
        fprintf(stderr, "never stopped\n");
        abort(); /* there is no way to free it */
    }
}

static bool power_on(struct machine *c)
{
    struct session_model *m = &c->model;
    unsigned turns = (unsigned)rng_below(&m->rng, 3);
    struct embedded_config config = EMBEDDED_DEFAULTS;
    char why[400];
    config.journal.file_bytes = JOURNAL_FILE_MIN;
    config.checkpoint_bytes = rng_between(&m->rng, 1, 40) * 1024;
    config.checkpoint_age_ms = 1000;
    config.cache_bytes = 16 * 1024;
    config.rest.base_bytes = rng_between(&m->rng, 1, 8) * 1024;
    config.rest.rewrite_bytes = rng_below(&m->rng, 4) * 3000;
    config.rest_slice = (uint32_t)rng_between(&m->rng, 1, 5);
    config.call_slice = (uint32_t)rng_between(&m->rng, 1, 3);
    config.rest_at_stop = rng_one_in(&m->rng, 2);
    config.index_sync = false;
    c->lanes = (struct embedded_lanes){simlane_new(&c->sched, rng_next(&m->rng), turns),
                                       simlane_new(&c->sched, rng_next(&m->rng), turns * 2),
                                       simlane_new(&c->sched, rng_next(&m->rng), turns * 5),
                                       simlane_new(&c->sched, rng_next(&m->rng), turns)};
    struct store *store = embedded_open(&c->sched, crash_disk(simfs_vfs(c->fs)), c->index,
                                        &c->lanes, &config, why, sizeof why);
    if (store == NULL) {
        blame(m, "cannot open: %s", why);
        return false;
    }
    model_listen(m, facade_new(store));
    feeds_init(&c->feeds, &m->front->store);
    c->setup = (struct sessions_setup){.sched = &c->sched,
                                       .store = &m->front->store,
                                       .feeds = &c->feeds,
                                       .backend = &m->backend,
                                       .lifetime_ms = DAY_MS,
                                       .max_open = 100,
                                       .max_bytes = 64 * 1024 * 1024};
    m->all = sessions_new(&c->setup);
    return true;
}

static void hang_up(struct session_model *m)
{
    for (size_t i = 0; i < TALKS; i++) {
        if (m->talks[i] == NULL)
            continue;
        visitor_disconnect(&m->talks[i]->now);
        visitor_disconnect(&m->talks[i]->old);
        visitor_disconnect(&m->talks[i]->thief);
    }
}

static void power_off(struct machine *c)
{
    struct session_model *m = &c->model;
    hang_up(m);
    if (m->front != NULL) {
        c->stopped = false;
        sessions_stop(m->all, note_stopped, &c->stopped);
        await_stop(c);
        sessions_free(m->all);
        c->stopped = false;
        store_stop(&m->front->store, note_stopped, &c->stopped);
        await_stop(c);
        feeds_deinit(&c->feeds);
        store_free(&m->front->store);
        m->front = NULL;
    }
    lane_free(c->lanes.journal);
    lane_free(c->lanes.prepare);
    lane_free(c->lanes.rest);
    lane_free(c->lanes.read);
    c->lanes = (struct embedded_lanes){0};
}

/* ---- after a crash ---- */

struct reading {
    struct store_read read;
    struct talk *talk;
    bool is_in;
    size_t n_chunks; /* so far */
    int err;
};

#define PENDING 1

/* The known ones in their order, and behind them maybe some that nobody was told of. */
static void compare_arrival(struct reading *r, const struct session_record *record)
{
    struct talk *t = r->talk;
    size_t at = r->n_chunks++;
    if (at >= t->n_arrived)
        note_arrival(t, record);
    else if (t->chunks[t->arrived[at]].seqno != record->a)
        blame(t->m, "%s: chunk %" PRIu64 " is where %u was", t->key, record->a,
              t->chunks[t->arrived[at]].seqno);
}

static void on_compared(struct store_read *read, int err)
{
    struct reading *r = container_of(read, struct reading, read);
    r->err = err;
    for (uint32_t i = 0; err == 0 && i < read->n_slices; i++) {
        struct str rest = read->slices[i].bytes;
        struct session_record record;
        while (rest.n > 0 && session_record_cut(&rest, &record) == 0) {
            note_nonce(r->talk->m, read->name, &record);
            if (r->is_in && record.type == SESSION_RECORD_CHUNK)
                compare_arrival(r, &record);
        }
        if (rest.n > 0)
            blame(r->talk->m, "%s: a record that is none", r->talk->key);
    }
    store_read_release(read);
}

static int read_stream_of(struct machine *c, struct talk *t, bool is_in, struct stream_info *info)
{
    char name[64];
    struct reading r = {.talk = t, .is_in = is_in};
    struct offset at = {0};
    snprintf(name, sizeof name, SESSION_PREFIX "%s/%s", t->key, is_in ? "in" : "out");
    do {
        r.err = PENDING;
        r.read = (struct store_read){.name = str_of_cstr(name),
                                     .from = at.life > 0 ? READ_AT : READ_START,
                                     .at = at,
                                     .max_bytes = 50000,
                                     .done = on_compared};
        store_read(&c->model.front->store, &r.read);
        for (int i = 0; i < TURNS_MAX && r.err == PENDING; i++)
            pass_turn(c);
        at = (struct offset){r.read.info.life, r.read.next};
    } while (r.err == 0 && r.read.next < r.read.info.tail);
    if (r.err == 0 && is_in && r.n_chunks < t->n_arrived)
        blame(t->m, "%s: %zu chunks were stored, %zu are there", t->key, t->n_arrived, r.n_chunks);
    *info = r.read.info;
    return r.err;
}

struct finding {
    struct store_docs docs;
    struct session_doc doc;
    bool there;
    int err;
};

static void on_found(struct store_docs *d, int err)
{
    struct finding *f = container_of(d, struct finding, docs);
    f->err = err;
    f->there = err == 0 && d->n_rows == 1 && session_doc_read(d->rows[0].value, &f->doc) == 0;
}

static void compare_doc(struct machine *c, struct talk *t)
{
    char key[64];
    snprintf(key, sizeof key, SESSION_DOC_PREFIX "%s", t->key);
    struct finding f = {
        .docs = {.prefix = str_of_cstr(key), .limit = 1, .exact = true, .done = on_found},
        .err = PENDING};
    store_docs(&c->model.front->store, &f.docs);
    for (int i = 0; i < TURNS_MAX && f.err == PENDING; i++)
        pass_turn(c);
    if (!f.there && t->welcomed_once)
        blame(t->m, "%s: the session is gone", t->key);
    else if (f.there && f.doc.answered < t->answered)
        blame(t->m, "%s: %" PRIu64 " were answered, now %" PRIu64, t->key, t->answered,
              f.doc.answered);
    else if (f.there)
        t->answered = f.doc.answered;
}

static void compare(struct machine *c, struct talk *t)
{
    struct stream_info info;
    size_t before = t->n_arrived;
    int err = read_stream_of(c, t, true, &info);
    if (err != 0 && (t->welcomed_once || err != ERR_NOT_FOUND))
        blame(t->m, "%s: cannot be read: %d", t->key, err);
    c->n_adopted += t->n_arrived - before;
    err = read_stream_of(c, t, false, &info);
    if (err == 0 && info.events < t->seen)
        blame(t->m, "%s: %" PRIu64 " events were seen, %" PRIu64 " are there", t->key, t->seen,
              info.events);
    compare_doc(c, t);
}

/* ---- lives ---- */

static void draw_end(struct machine *c)
{
    struct rng *rng = &c->model.rng;
    if (rng_one_in(rng, 8)) {
        simfs_fail(c->fs, SIMFS_SYNC, rng_between(rng, 1, 60), ERR_IO);
        c->faulty = true;
    } else if (!rng_one_in(rng, 6)) {
        simfs_cut_power_at(c->fs, rng_between(rng, 1, CHANGES_MAX));
    }
}

static void live(struct machine *c)
{
    struct session_model *m = &c->model;
    bool orderly = rng_one_in(&m->rng, 6);
    draw_end(c);
    for (uint64_t n = rng_between(&m->rng, 20, STEPS_MAX);
         n > 0 && !simfs_is_off(c->fs) && !m->failed; n--) {
        model_step(m, true);
        if (rng_one_in(&m->rng, 30))
            embedded_checkpoint(m->front->inner);
        for (uint64_t turns = rng_below(&m->rng, 3); turns > 0; turns--)
            pass_turn(c);
    }
    if (!orderly && !simfs_is_off(c->fs)) {
        simfs_cut_power_at(c->fs, 1);
        vfs_sync_dir(simfs_vfs(c->fs), "");
    }
    power_off(c);
    if (rng_one_in(&m->rng, 4))
        simfs_kill(c->fs);
    else
        simfs_crash(c->fs, rng_next(&m->rng));
    simfs_fail(c->fs, SIMFS_OPS, 0, 0);
    c->faulty = false;
    c->n_crashes++;
}

static void recover(struct machine *c)
{
    struct session_model *m = &c->model;
    if (m->failed || !power_on(c))
        return;
    for (size_t i = 0; i < TALKS && !m->failed; i++)
        if (m->talks[i] != NULL && !m->talks[i]->finished)
            compare(c, m->talks[i]);
}

static void finish(struct machine *c)
{
    struct session_model *m = &c->model;
    bool busy = true;
    for (int i = 0; i < TURNS_MAX && busy && !m->failed; i++) {
        busy = model_step(m, false);
        pass_turn(c);
    }
    if (busy)
        blame(m, "some are never done");
}

static struct machine *machine_new(const struct rng *rng)
{
    struct machine *c = mem_zalloc(sizeof *c);
    sched_init(&c->sched, 0, START_WALL);
    model_init(&c->model, rng->state, &c->sched);
    c->model.harsh = true;
    c->model.is_off = is_off;
    c->fs = the_disk = simfs_new(rng_next(&c->model.rng));
    snprintf(c->index, sizeof c->index, "/tmp/tidemark-session-crash-XXXXXX");
    int fd = mkstemp(c->index);
    assert_true(fd >= 0);
    close(fd);
    unlink(c->index);
    return c;
}

static void machine_free(struct machine *c)
{
    char lock[80];
    power_off(c);
    model_deinit(&c->model);
    simfs_free(c->fs);
    unlink(c->index);
    snprintf(lock, sizeof lock, "%s-lock", c->index);
    unlink(lock);
    buf_deinit(&crash_second);
    free(c);
    the_disk = NULL;
}

static struct machine *run_seed(const struct rng *rng)
{
    struct machine *c = machine_new(rng);
    power_on(c);
    for (uint64_t lives = rng_between(&c->model.rng, 2, LIVES_MAX); lives > 0 && !c->model.failed;
         lives--) {
        live(c);
        recover(c);
    }
    finish(c);
    return c;
}

/* ---- the tests ---- */

static uint64_t total_crashes, total_adopted, total_acks, total_events, total_again, total_finished;

static void sound_body(struct rng *rng)
{
    struct machine *c = run_seed(rng);
    const struct session_model *m = &c->model;
    char verdict[sizeof m->verdict];
    bool failed = m->failed;
    memcpy(verdict, m->verdict, sizeof verdict);
    total_crashes += c->n_crashes;
    total_adopted += c->n_adopted;
    total_acks += m->n_acks;
    total_events += m->n_events;
    total_again += m->n_again;
    total_finished += m->n_finished;
    machine_free(c);
    if (failed)
        fail_msg("%s", verdict);
}

static void test_sessions_survive_crashes(void **state)
{
    seeds_run(SEEDS, sound_body);
    print_message("%llu sessions, %llu crashes; %llu acks, %llu events; %llu chunks were kept that "
                  "nobody was told of, %llu answered again\n",
                  (unsigned long long)total_finished, (unsigned long long)total_crashes,
                  (unsigned long long)total_acks, (unsigned long long)total_events,
                  (unsigned long long)total_adopted, (unsigned long long)total_again);
    if (seeds_env("TIDEMARK_SEED") == 0) /* or the disk was too kind */
        assert_true(total_adopted > 0 && total_again > 0 && total_finished > 0);
}

static void convict(enum crash_fault fault, const char *name)
{
    bool convicted = false;
    crash_fault = fault;
    for (uint64_t seed = 1; seed <= SEEDS_BROKEN && !convicted; seed++) {
        struct rng rng = {seed};
        struct machine *c = run_seed(&rng);
        convicted = c->model.failed;
        if (convicted)
            print_message("%s: seed %llu: %s\n", name, (unsigned long long)seed, c->model.verdict);
        machine_free(c);
    }
    crash_fault = CRASH_SOUND;
    assert_true(convicted);
}

static void test_early_answers_are_found(void **state)
{
    convict(CRASH_ANSWERS_EARLY, "answers before the journal is durable");
}

static void test_early_sights_are_found(void **state)
{
    convict(CRASH_SHOWS_EARLY, "shows what is not durable");
}

static void test_no_sync_is_found(void **state)
{
    convict(CRASH_NEVER_SYNCS, "does not sync");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sessions_survive_crashes, seeds_teardown),
        cmocka_unit_test(test_early_answers_are_found),
        cmocka_unit_test(test_early_sights_are_found),
        cmocka_unit_test(test_no_sync_is_found),
    };
    return cmocka_run_group_tests_name("fault/session_crash", tests, NULL, NULL);
}
