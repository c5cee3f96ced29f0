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

#define HEADS_PAGE 8 /* of up to 64 KiB of JSON each */
#define KEY_SIZE   32

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
};

static void next_key(struct sub_load *l);
static void next_heads(struct sub_load *l);

/* Those who wait for the load need not wait for the next one too. */
static void fail_waiting(struct subscriptions *s, int err)
{
    struct link subs; /* by their want_look: dropping one changes the map */
    list_init(&subs);
    size_t at = 0;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;)
        if (!list_empty(&sub->ops)) {
            list_remove(&sub->want_look);
            list_push(&subs, &sub->want_look);
        }
    while (!list_empty(&subs)) {
        struct subscription *sub = list_item(subs.next, struct subscription, want_look);
        list_remove(&sub->want_look);
        subop_cancel_all(sub, err);
        sub_drop_if_unused(sub);
    }
}

static void subscription_load_finish(struct sub_load *l, int err)
{
    struct subscriptions *s = l->all;
    l->busy = false;
    if (err != 0 && s->phase == SUBSCRIPTIONS_LOADING)
        fail_waiting(s, err);
    if (err == 0 && s->phase == SUBSCRIPTIONS_LOADING)
        s->phase = SUBSCRIPTIONS_READY;
    size_t at = 0;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;) {
        subop_run(sub);
        sub_settle(sub);
    }
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
    sub->seen = true;
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
static void drop_unseen(struct subscriptions *s)
{
    struct link gone;
    list_init(&gone);
    size_t at = 0;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;)
        if (!sub->seen && sub->active && list_empty(&sub->ops)) {
            list_remove(&sub->want_look);
            list_push(&gone, &sub->want_look);
        }
    while (!list_empty(&gone)) {
        struct subscription *sub = list_item(gone.next, struct subscription, want_look);
        list_remove(&sub->want_look);
        sub_adopt(sub, NULL, 0);
        sub_drop_if_unused(sub);
    }
}

static void subscription_load_on_heads(struct store_docs *d, int err)
{
    struct sub_load *l = container_of(d, struct sub_load, docs);
    sched_work(l->all->sched, SUB_WORK);
    if (landed(l, err))
        return;
    for (size_t i = 0; i < d->n_rows; i++) {
        struct arena a = {0};
        subscription_load_take_head(l->all, &a, &d->rows[i]);
        arena_deinit(&a);
    }
    if (d->more) {
        l->after.n = 0;
        buf_put(&l->after, d->rows[d->n_rows - 1].key);
        next_heads(l);
    } else {
        drop_unseen(l->all);
        subscription_load_finish(l, 0);
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
    size_t at = 0;
    for (struct subscription *sub; (sub = map_next(&l->all->by_id, &at)) != NULL;)
        sub->seen = false;
    next_key(l);
}

void sub_load_new(struct subscriptions *s)
{
    s->load = mem_zalloc(sizeof *s->load);
    s->load->all = s;
    timer_init(&s->load->timer, subscription_load_begin);
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

void sub_load_stop(struct subscriptions *s)
{
    timer_stop(&s->load->timer);
}

void sub_load_free(struct subscriptions *s)
{
    timer_stop(&s->load->timer);
    buf_deinit(&s->load->after);
    free(s->load);
}
