// SPDX-License-Identifier: Apache-2.0
#include "stream/instances.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX_LEN (sizeof INSTANCE_DOCUMENTS - 1)
#define KEY_LEN    (PREFIX_LEN + INSTANCE_ID_TEXT)
#define PAGE       1000 /* more than that many processes nobody has */

/* Another process, or what is left of one. */
struct instance {
    char key[KEY_LEN]; /* of its document */
    uint64_t version;
    unsigned looks; /* that found the same version since the first that did */
    uint64_t seen;  /* by which look */
};

struct removal {
    struct instances *all;
    struct store_put put;
    struct doc_put doc;
    char key[KEY_LEN];
};

struct instances {
    struct sched *sched;
    struct store *store;
    uint64_t beat_ms;
    uint64_t id;
    char key[KEY_LEN + 1];
    uint64_t version;  /* of our document; 0: it is not there */
    bool unsure;       /* the version: look it up before the next beat */
    uint64_t beaten;   /* the number of looks when the store last took a beat of ours */
    struct map others; /* of struct instance, by the id as text */
    uint64_t n_looks;
    struct instance_observer *observer;
    struct timer beat, look;
    struct store_put put;
    struct doc_put doc;
    struct store_docs own, all;
    bool beating, looking;
    unsigned removals;
    bool stopping;
    struct task stop;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

static struct str instances_id_of(const struct instance *p)
{
    return str_of(p->key + PREFIX_LEN, INSTANCE_ID_TEXT);
}

static bool is_dead(const struct instance *p)
{
    return p->looks >= INSTANCE_LOOKS;
}

static void instances_check_stopped(struct instances *in)
{
    if (in->stopped != NULL && !in->beating && !in->looking && in->removals == 0)
        sched_post(in->sched, &in->stop);
}

/* ---- our own sign of life ---- */

static void instances_leave(struct instances *in);

static void beat_over(struct instances *in)
{
    in->beating = false;
    if (in->stopping)
        instances_leave(in);
    else
        sched_start(in->sched, &in->beat, in->beat_ms);
}

/* Whatever went wrong, the document may have been written all the same. */
static void instances_on_beaten(struct store_put *p, int err)
{
    struct instances *in = container_of(p, struct instances, put);
    if (err == 0) {
        in->version = DOC_NEXT(in->version);
        in->beaten = in->n_looks;
    } else {
        in->unsure = true;
    }
    beat_over(in);
}

static void write_beat(struct instances *in)
{
    in->doc = (struct doc_put){
        .key = str_of(in->key, KEY_LEN), .value = STR("alive"), .expect_version = in->version};
    in->put = (struct store_put){.docs = &in->doc, .n_docs = 1, .done = instances_on_beaten};
    store_put(in->store, &in->put);
}

static void instances_on_own(struct store_docs *d, int err)
{
    struct instances *in = container_of(d, struct instances, own);
    if (err == 0) {
        in->version = d->n_rows > 0 ? d->rows[0].version : 0;
        in->unsure = false;
    }
    if (err != 0 || in->stopping)
        beat_over(in);
    else
        write_beat(in);
}

static void look_up_own(struct instances *in)
{
    in->own = (struct store_docs){
        .prefix = str_of(in->key, KEY_LEN), .limit = 1, .exact = true, .done = instances_on_own};
    store_docs(in->store, &in->own);
}

static void instances_on_beat(struct timer *t)
{
    struct instances *in = container_of(t, struct instances, beat);
    in->beating = true;
    if (in->unsure)
        look_up_own(in);
    else
        write_beat(in);
}

/* ---- the others ---- */

static struct instance *peer_of(struct instances *in, struct str key)
{
    struct instance *p = map_get(&in->others, str_skip(key, PREFIX_LEN));
    if (p != NULL)
        return p;
    p = mem_zalloc(sizeof *p);
    memcpy(p->key, key.p, KEY_LEN);
    map_put(&in->others, instances_id_of(p), p);
    return p;
}

/* A store that takes no beat of ours may take none of theirs. */
static bool takes_beats(const struct instances *in)
{
    return in->n_looks - in->beaten <= 2;
}

static void see(struct instances *in, const struct doc_row *row)
{
    if (row->key.n != KEY_LEN || str_eq(row->key, str_of(in->key, KEY_LEN)))
        return;
    struct instance *p = peer_of(in, row->key);
    p->looks = p->version == row->version && takes_beats(in) ? p->looks + 1 : 0;
    p->version = row->version;
    p->seen = in->n_looks;
}

/* Those whose documents are gone have left nothing behind. */
static void forget_unseen(struct instances *in)
{
    size_t at = 0, n = 0;
    struct instance **gone = mem_alloc((in->others.n + 1) * sizeof *gone);
    for (struct instance *p; (p = map_next(&in->others, &at)) != NULL;)
        if (p->seen != in->n_looks)
            gone[n++] = p;
    for (size_t i = 0; i < n; i++) {
        map_remove(&in->others, instances_id_of(gone[i]));
        free(gone[i]);
    }
    free(gone);
}

static void notify_observer(struct instances *in)
{
    size_t at = 0;
    for (struct instance *p; in->observer != NULL && (p = map_next(&in->others, &at)) != NULL;)
        if (is_dead(p))
            in->observer->died(in->observer, instances_id_of(p));
    if (in->observer != NULL)
        in->observer->beat(in->observer);
}

static void instances_on_looked(struct store_docs *d, int err)
{
    struct instances *in = container_of(d, struct instances, all);
    in->n_looks++;
    for (size_t i = 0; err == 0 && i < d->n_rows; i++)
        see(in, &d->rows[i]);
    in->looking = false;
    if (in->stopping) {
        instances_check_stopped(in);
        return;
    }
    if (err == 0) {
        forget_unseen(in);
        notify_observer(in);
    }
    sched_start(in->sched, &in->look, in->beat_ms);
}

static void instances_on_look(struct timer *t)
{
    struct instances *in = container_of(t, struct instances, look);
    in->looking = true;
    in->all = (struct store_docs){
        .prefix = STR(INSTANCE_DOCUMENTS), .limit = PAGE, .done = instances_on_looked};
    store_docs(in->store, &in->all);
}

static void instances_on_removed(struct store_put *put, int err)
{
    struct removal *b = container_of(put, struct removal, put);
    struct instances *in = b->all;
    free(b);
    in->removals--;
    instances_check_stopped(in);
}

void instances_remove(struct instances *in, struct str id)
{
    const struct instance *p = map_get(&in->others, id);
    if (p == NULL || in->stopping)
        return;
    struct removal *b = mem_zalloc(sizeof *b);
    b->all = in;
    memcpy(b->key, p->key, KEY_LEN);
    b->doc = (struct doc_put){.key = str_of(b->key, KEY_LEN), .expect_version = p->version};
    b->put = (struct store_put){.docs = &b->doc, .n_docs = 1, .done = instances_on_removed};
    in->removals++;
    store_put(in->store, &b->put);
}

/* ---- from outside ---- */

uint64_t instances_id(const struct instances *in)
{
    return in->id;
}

struct str instances_name(const struct instances *in)
{
    return str_of(in->key + PREFIX_LEN, INSTANCE_ID_TEXT);
}

bool instances_is_dead(const struct instances *in, uint64_t id)
{
    char text[INSTANCE_ID_TEXT + 1];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    const struct instance *p = map_get(&in->others, str_of(text, INSTANCE_ID_TEXT));
    return p != NULL && is_dead(p);
}

void instances_set_observer(struct instances *in, struct instance_observer *observer)
{
    in->observer = observer;
}

static void instances_run_stop(struct task *t)
{
    struct instances *in = container_of(t, struct instances, stop);
    in->stopped(in->stopped_ctx);
}

struct instances *instances_new(struct sched *sched, struct store *store, uint64_t beat_ms)
{
    struct instances *in = mem_zalloc(sizeof *in);
    in->sched = sched;
    in->store = store;
    in->beat_ms = beat_ms;
    while (in->id == 0)
        in->id = rand_u64();
    snprintf(in->key, sizeof in->key, INSTANCE_DOCUMENTS "%016" PRIx64, in->id);
    map_init(&in->others);
    timer_init(&in->beat, instances_on_beat);
    timer_init(&in->look, instances_on_look);
    task_init(&in->stop, instances_run_stop);
    instances_on_beat(&in->beat);
    instances_on_look(&in->look);
    return in;
}

static void instances_on_left(struct store_put *p, int err)
{
    struct instances *in = container_of(p, struct instances, put);
    in->beating = false;
    instances_check_stopped(in);
}

static void instances_leave(struct instances *in)
{
    if (in->version == 0 || in->unsure) {
        instances_check_stopped(in);
        return;
    }
    in->beating = true;
    in->doc = (struct doc_put){.key = str_of(in->key, KEY_LEN), .expect_version = in->version};
    in->put = (struct store_put){.docs = &in->doc, .n_docs = 1, .done = instances_on_left};
    in->version = 0;
    store_put(in->store, &in->put);
}

void instances_stop(struct instances *in, void (*stopped)(void *ctx), void *ctx)
{
    in->stopping = true;
    in->stopped = stopped;
    in->stopped_ctx = ctx;
    timer_stop(&in->beat);
    timer_stop(&in->look);
    if (!in->beating)
        instances_leave(in);
}

void instances_free(struct instances *in)
{
    if (in == NULL)
        return;
    timer_stop(&in->beat);
    timer_stop(&in->look);
    task_cancel(&in->stop);
    size_t at = 0;
    for (struct instance *p; (p = map_next(&in->others, &at)) != NULL;)
        free(p);
    map_deinit(&in->others);
    free(in);
}
