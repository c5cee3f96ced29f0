// SPDX-License-Identifier: Apache-2.0
/* What is kept of Cascades that are not archived, and for how long, while no language server can be
 * found. */
#include "base/pack.h"
#include "net/process.h"
#include "feature/cascade/cascade.h"
#include "feature/cascade/cascade_core.h"
#include "store/mem/mem_store.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DAY 86400000LL
#define NOW (20000 * DAY)

/* ---- a lane without a thread ---- */

struct slow_lane {
    struct lane lane;
    struct sched *sched;
    struct task task;
    struct job *job;
    int jobs; /* so many were submitted */
};

static void on_done(struct task *t)
{
    struct job *job = container_of(t, struct slow_lane, task)->job;
    job->done(job);
}

static void submit(struct lane *l, struct job *job)
{
    struct slow_lane *slow = container_of(l, struct slow_lane, lane);
    job->run(job);
    slow->job = job;
    slow->jobs++;
    sched_post(slow->sched, &slow->task);
}

/* ---- the bench ---- */

struct bench {
    struct sched sched;
    struct store *store;
    struct slow_lane lane;
    struct trace trace;
    struct cascade *cascade;
    char left[256]; /* the ids that have a document */
    bool stopped;
};

static void on_put(struct store_put *p, int err)
{
    assert_int_equal(err, 0);
}

static void put(struct bench *b, const char *key, struct str value)
{
    struct doc_put doc = {.key = str_of_cstr(key), .value = value};
    struct store_put op = {.docs = &doc, .n_docs = 1, .done = on_put};
    store_put(b->store, &op);
    sched_drain(&b->sched);
}

/* As this process writes it; or a machine of another name. */
static void put_ours(struct bench *b, const char *key, int64_t begun_ms)
{
    struct buf value = {0};
    cascade_doc_put(&value, begun_ms);
    put(b, key, buf_str(&value));
    buf_deinit(&value);
}

/* As a process of this machine left it: that of this number, which began then. */
static void put_of_process(struct bench *b, const char *key, pid_t pid)
{
    struct buf ours = {0}, value = {0};
    struct process p;
    assert_true(process_read(pid, &p));
    cascade_doc_put(&ours, NOW);
    struct unpack u = {.rest = buf_str(&ours)};
    pack_str(&value, unpack_str(&u)); /* the host */
    pack_str(&value, unpack_str(&u)); /* its boot */
    pack_u64(&value, (uint64_t)pid);
    pack_u64(&value, p.start);
    pack_i64(&value, NOW);
    put(b, key, buf_str(&value));
    buf_deinit(&ours);
    buf_deinit(&value);
}

static void put_elsewhere(struct bench *b, const char *key, int64_t begun_ms)
{
    struct buf value = {0};
    pack_str(&value, STR("a machine that is not this one"));
    pack_str(&value, STR("boot"));
    pack_u64(&value, 1);
    pack_u64(&value, 1);
    pack_i64(&value, begun_ms);
    put(b, key, buf_str(&value));
    buf_deinit(&value);
}

static struct bench *current;

static void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    current->left[0] = '\0';
    for (size_t i = 0; i < d->n_rows; i++) {
        struct str id = str_skip(d->rows[i].key, strlen(CASCADE_DOC_PREFIX));
        size_t n = strlen(current->left);
        snprintf(current->left + n, sizeof current->left - n, "%.*s ", (int)id.n, id.p);
    }
}

static const char *left(struct bench *b)
{
    struct store_docs docs = {.prefix = STR(CASCADE_DOC_PREFIX), .limit = 100, .done = on_docs};
    current = b;
    store_docs(b->store, &docs);
    sched_drain(&b->sched);
    return b->left;
}

static void on_stopped(void *ctx)
{
    ((struct bench *)ctx)->stopped = true;
}

static void set_up(struct bench *b)
{
    *b = (struct bench){.trace = {.to = stderr, .level = TRACE_ERROR}};
    sched_init(&b->sched, 1, NOW);
    b->store = mem_store_new(&b->sched);
    b->lane = (struct slow_lane){.lane.submit = submit, .sched = &b->sched};
    task_init(&b->lane.task, on_done);
    b->cascade = cascade_new(&(struct cascade_setup){.sched = &b->sched,
                                                     .store = b->store,
                                                     .lane = &b->lane.lane,
                                                     .trace = &b->trace,
                                                     .proc = "/nowhere",
                                                     .state_file = "/nowhere",
                                                     .timeout_ms = 1000});
}

static void tear_down(struct bench *b)
{
    cascade_stop(b->cascade, on_stopped, b);
    sched_drain(&b->sched);
    assert_true(b->stopped);
    cascade_free(b->cascade);
    store_free(b->store);
}

static void test_what_is_too_old_goes_without_a_server(void **state)
{
    struct bench b;
    set_up(&b);
    put_ours(&b, CASCADE_DOC_PREFIX "a-new", NOW - 6 * DAY);
    put_ours(&b, CASCADE_DOC_PREFIX "b-old", NOW - 8 * DAY);
    put_elsewhere(&b, CASCADE_DOC_PREFIX "c-elsewhere", NOW - 6 * DAY);
    put_elsewhere(&b, CASCADE_DOC_PREFIX "d-elsewhere-old", NOW - 8 * DAY);
    sched_turn(&b.sched, 1000, NOW);
    sched_drain(&b.sched);
    assert_string_equal(left(&b), "a-new c-elsewhere ");
    sched_turn(&b.sched, 2 * 60 * 1000, NOW + 2 * DAY); /* the next sweep */
    sched_drain(&b.sched);
    assert_string_equal(left(&b), "");
    tear_down(&b);
}

/* Whoever finds something to archive looks for a language server. */
static void test_a_zombie_has_left_what_it_began(void **state)
{
    struct bench b;
    siginfo_t ended;
    set_up(&b);
    put_of_process(&b, CASCADE_DOC_PREFIX "of-the-living", getppid());
    sched_turn(&b.sched, 1000, NOW);
    sched_drain(&b.sched);
    assert_int_equal(b.lane.jobs, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    put_of_process(&b, CASCADE_DOC_PREFIX "of-the-zombie", child);
    sched_turn(&b.sched, 2 * 60 * 1000, NOW);
    sched_drain(&b.sched);
    assert_int_equal(b.lane.jobs, 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_too_old_goes_without_a_server),
        cmocka_unit_test(test_a_zombie_has_left_what_it_began),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
