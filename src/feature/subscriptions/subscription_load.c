// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/subscriptions/subscription_core.h"
#include "token/mac.h"
#include "token/signer.h"

#include <stdlib.h>
#include <string.h>

/* The keys first (drawn at random by whoever comes first: a document that must not exist yet makes
 * all processes agree), then the heads of all subscriptions, page by page. What links them to
 * streams is gone through by their looks. */

#define HEADS_PAGE  8
#define HEADS_BYTES 16384 /* of JSON, about, that are read at a time; one has up to 64 KiB */
#define SLICE       64    /* subscriptions that are dealt with before others have their turn */
#define KEY_SIZE    32

struct sub_load {
    struct subscriptions *all;
    bool busy; /* from the first step to the last, all of which are operations of the store */
    struct timer timer;
    int key; /* which of the two */
    uint8_t drawn[KEY_SIZE];
    struct doc_put key_put;
    struct store_docs docs;
    struct store_put put;
    struct buf after;
    struct link unseen; /* those that were active when the scan began, and that it has not found */
    struct task drop;   /* those of them that it did not find at all */
    struct link released; /* those whose operations waited for the load */
    struct task release;  /* runs these; or, with an error, ends them */
    int err;
};

static void next_key(struct sub_load *l);
static void next_heads(struct sub_load *l);

/* Who waits for a load that has failed need not wait for the next one too. */
static void subscription_load_release(struct task *t)
{
    struct sub_load *l = container_of(t, struct sub_load, release);
    sched_work(l->all->sched, SUB_WORK);
    for (int n = 0; n < SLICE && !list_empty(&l->released); n++) {
        struct subscription *sub = list_item(l->released.next, struct subscription, waiting);
        list_remove(&sub->waiting);
        if (l->err != 0)
            subop_cancel_all(sub, l->err);
        else
            subop_run(sub);
        sub_drop_if_unused(sub);
    }
    if (!list_empty(&l->released))
        sched_post(l->all->sched, t);
}

static void subscription_load_finish(struct sub_load *l, int err)
{
    struct subscriptions *s = l->all;
    l->busy = false;
    if (s->phase == SUBSCRIPTIONS_LOADING) {
        l->err = err;
        list_splice(&l->released, &s->waiting);
        sched_post(s->sched, &l->release);
    }
    if (err == 0 && s->phase == SUBSCRIPTIONS_LOADING)
        s->phase = SUBSCRIPTIONS_READY;
    sub_start_looks(s);
    if (err != 0)
        sub_load_again(s, SUB_PAUSE_MS);
    else if (s->refresh_ms > 0)
        sub_load_again(s, s->refresh_ms);
}

/* True: this is no time to go on. */
static bool landed(struct sub_load *l, int err)
{
    if (l->all->phase == SUBSCRIPTIONS_STOPPING) {
        l->busy = false;
        sub_check_stop(l->all);
        return true;
    }
    if (err != 0)
        subscription_load_finish(l, err);
    return err != 0;
}

/* ---- keys ---- */

static void use_key(struct sub_load *l, struct str key)
{
    struct subscriptions *s = l->all;
    uint8_t secret[KEY_SIZE], sub[MAC_KEY_SIZE];
    memcpy(secret, key.p, sizeof secret);
    if (l->key == 0) {
        s->signer = signer_new(secret);
    } else {
        mac_subkey(secret, "subscription", sub);
        s->tokens = mac_new(str_of((const char *)sub, sizeof sub));
    }
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(sub, sizeof sub);
    explicit_bzero(l->drawn, sizeof l->drawn);
    l->key++;
    next_key(l);
}

static void subscription_load_on_key_put(struct store_put *p, int err)
{
    struct sub_load *l = container_of(p, struct sub_load, put);
    if (landed(l, err == ERR_VERSION ? 0 : err))
        return;
    if (err == ERR_VERSION)
        next_key(l); /* another process was first: use its key */
    else
        use_key(l, l->key_put.value);
}

static void subscription_load_on_key(struct store_docs *d, int err)
{
    struct sub_load *l = container_of(d, struct sub_load, docs);
    bool found = err == 0 && d->n_rows == 1 && str_eq(d->rows[0].key, d->prefix);
    if (found && d->rows[0].value.n != KEY_SIZE)
        err = ERR_CORRUPT;
    if (landed(l, err))
        return;
    if (found) {
        use_key(l, d->rows[0].value);
        return;
    }
    rand_bytes(l->drawn, sizeof l->drawn);
    l->key_put = (struct doc_put){.key = d->prefix,
                                  .value = str_of((const char *)l->drawn, sizeof l->drawn)};
    l->put =
        (struct store_put){.docs = &l->key_put, .n_docs = 1, .done = subscription_load_on_key_put};
    store_put(l->all->store, &l->put);
}

static void next_key(struct sub_load *l)
{
    if (l->key == 2) {
        next_heads(l);
        return;
    }
    l->docs = (struct store_docs){.prefix = l->key == 0 ? STR(SUBSCRIPTION_KEY_SIGNING)
                                                        : STR(SUBSCRIPTION_KEY_TOKENS),
                                  .limit = 1,
                                  .exact = true,
                                  .done = subscription_load_on_key};
    store_docs(l->all->store, &l->docs);
}

/* ---- heads ---- */

static void subscription_load_take_head(struct subscriptions *s, struct arena *a,
                                        const struct doc_row *row)
{
    struct str id;
    struct subscription_head head;
    if (subscription_id_parse(a, str_skip(row->key, sizeof SUBSCRIPTION_HEADS - 1), &id) ||
        subscription_head_parse(a, row->value, &head))
        return; /* whoever asks for it is told that it is corrupt */
    struct subscription *sub = sub_of(s, id);
    if (sub->active)
        sub_seen(sub);
    bool first = !sub->active;
    if (!sub->running && (first || sub->version != row->version))
        sub_adopt(sub, &head, row->version);
    if (head.phase == SUBSCRIPTION_DELETING && !sub->running)
        sub_want_look(sub);
    /* With no other process about, a delivery that was under way has ended with its process. */
    bool lost = first && sub->active && s->refresh_ms == 0 && head.attempts == 0 &&
                sub->state == SUBSCRIPTION_WAKING && sub->type == SUBSCRIPTION_WEBHOOK;
    if (sub->delivery != SUB_DELIVERY_OURS)
        sub->delivery = lost ? SUB_DELIVERY_LOST : SUB_DELIVERY_OTHERS;
    if (lost)
        sub_deliver(sub);
    sub_settle(sub);
    sub_drop_if_unused(sub);
}

/* What another process has deleted. */
static void subscription_load_drop(struct task *t)
{
    struct sub_load *l = container_of(t, struct sub_load, drop);
    sched_work(l->all->sched, SUB_WORK);
    if (landed(l, 0))
        return;
    for (int n = 0; n < SLICE && !list_empty(&l->unseen); n++) {
        struct subscription *sub = list_item(l->unseen.next, struct subscription, scanned);
        sub_seen(sub);
        if (!list_empty(&sub->ops))
            continue; /* they will find out */
        sub_adopt(sub, NULL, 0);
        sub_drop_if_unused(sub);
    }
    if (list_empty(&l->unseen))
        subscription_load_finish(l, 0);
    else
        sched_post(l->all->sched, t);
}

/* As many as go into a turn; at least one. Returns how many. */
static size_t take_heads(struct sub_load *l, const struct store_docs *d)
{
    size_t n = 0;
    for (size_t bytes = 0; n < d->n_rows && bytes < HEADS_BYTES; n++) {
        struct arena a = {0};
        subscription_load_take_head(l->all, &a, &d->rows[n]);
        arena_deinit(&a);
        bytes += d->rows[n].value.n;
    }
    return n;
}

static void subscription_load_on_heads(struct store_docs *d, int err)
{
    struct sub_load *l = container_of(d, struct sub_load, docs);
    sched_work(l->all->sched, SUB_WORK);
    if (landed(l, err))
        return;
    size_t n = take_heads(l, d);
    if (d->more || n < d->n_rows) {
        l->after.n = 0;
        buf_put(&l->after, d->rows[n - 1].key);
        next_heads(l);
    } else {
        subscription_load_drop(&l->drop);
    }
}

static void next_heads(struct sub_load *l)
{
    l->docs = (struct store_docs){.prefix = STR(SUBSCRIPTION_HEADS),
                                  .after = buf_str(&l->after),
                                  .limit = HEADS_PAGE,
                                  .done = subscription_load_on_heads};
    store_docs(l->all->store, &l->docs);
}

/* ---- from outside ---- */

static void subscription_load_begin(struct timer *t)
{
    struct sub_load *l = container_of(t, struct sub_load, timer);
    if (l->busy)
        return;
    l->busy = true;
    l->after.n = 0;
    list_splice(&l->unseen, &l->all->known);
    next_key(l);
}

void sub_load_new(struct subscriptions *s)
{
    s->load = mem_zalloc(sizeof *s->load);
    s->load->all = s;
    timer_init(&s->load->timer, subscription_load_begin);
    task_init(&s->load->drop, subscription_load_drop);
    task_init(&s->load->release, subscription_load_release);
    list_init(&s->load->unseen);
    list_init(&s->load->released);
    subscription_load_begin(&s->load->timer);
}

void sub_load_again(struct subscriptions *s, uint64_t delay_ms)
{
    sched_start(s->sched, &s->load->timer, delay_ms);
}

void sub_load_retry_now(struct subscriptions *s)
{
    if (s->phase == SUBSCRIPTIONS_LOADING && timer_running(&s->load->timer)) {
        timer_stop(&s->load->timer);
        subscription_load_begin(&s->load->timer);
    }
}

bool sub_load_busy(const struct subscriptions *s)
{
    return s->load->busy;
}

/* Whoever waited for it ends with all the others. */
void sub_load_stop(struct subscriptions *s)
{
    timer_stop(&s->load->timer);
    task_cancel(&s->load->release);
}

void sub_load_free(struct subscriptions *s)
{
    timer_stop(&s->load->timer);
    task_cancel(&s->load->drop);
    task_cancel(&s->load->release);
    buf_deinit(&s->load->after);
    free(s->load);
}
