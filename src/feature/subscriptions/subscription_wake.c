// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/json.h"
#include "base/rand.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/content.h"

#include <inttypes.h>

int64_t subop_now(const struct subop *j)
{
    return j->sub->all->sched->wall_ms;
}

bool subop_require_active(struct subop *j)
{
    if (j->exists && j->head.phase == SUBSCRIPTION_ACTIVE)
        return true;
    subop_end(j, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    return false;
}

bool subop_is_hidden(const struct subop *j)
{
    return j->head.config.sealed && !j->call->sees_sealed;
}

bool subop_is_allowed(const struct subop *j)
{
    const struct subscription_call *c = j->call;
    const struct subscription_config *config = &j->head.config;
    size_t at = 0;
    if (c->allows == NULL)
        return true;
    if (!c->allows(c, config, STR_NONE))
        return false;
    for (const struct sub_tie *t; (t = map_next(&j->sub->ties, &at)) != NULL;)
        if (!c->allows(c, config, str_of(t->bucket->key, t->bucket->n)))
            return false;
    return true;
}

bool subop_require_shown(struct subop *j)
{
    if (!subop_require_active(j))
        return false;
    if (!subop_is_hidden(j) && subop_is_allowed(j))
        return true;
    subop_end(j, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    return false;
}

/* ---- the head, from state to state ---- */

void subop_end_wake(struct subop *j)
{
    struct subscription_head *h = &j->head;
    h->state = SUBSCRIPTION_IDLE;
    h->wake_id = h->holder = STR_NONE;
    h->until_ms = 0;
    h->attempts = 0;
    h->n_streams = 0;
    j->changed = true;
}

void subop_lapse(struct subop *j)
{
    const struct subscription_head *h = &j->head;
    /* A lease that ends later than one that begins now means that the clock was set back. */
    int64_t latest = subop_now(j) + (int64_t)h->config.lease_ttl_ms + SUB_SLACK_MS;
    if (h->state == SUBSCRIPTION_HELD && (h->until_ms <= subop_now(j) || h->until_ms > latest))
        subop_end_wake(j);
}

void subop_new_generation(struct subop *j)
{
    uint64_t random[2];
    rand_bytes(random, sizeof random);
    j->head.generation++;
    j->head.wake_id =
        arena_printf(&j->arena, "w_%016" PRIx64 "%08" PRIx32, random[0], (uint32_t)random[1]);
}

/* As many as fit: what is left over begins the next wake. */
void subop_take_snapshot(struct subop *j)
{
    struct subscription_head *h = &j->head;
    size_t n = 0, bytes = 0;
    list_each (l, &j->sub->pending) {
        bytes += subscription_stream_cost(&list_item(l, struct sub_hint, link)->stream);
        if (bytes > SUBSCRIPTION_WAKE_BYTES)
            break;
        n++;
    }
    h->streams = arena_alloc(&j->arena, (n + 1) * sizeof *h->streams);
    h->n_streams = 0;
    list_each (l, &j->sub->pending) {
        if (h->n_streams == n)
            break;
        struct subscription_stream *s = &h->streams[h->n_streams++];
        *s = list_item(l, struct sub_hint, link)->stream;
        s->path = arena_dup(&j->arena, s->path);
    }
}

/* ---- wakes ---- */

static void begin_wake(struct subop *j)
{
    struct subscription_head *h = &j->head;
    subop_take_snapshot(j);
    subop_new_generation(j);
    h->state = SUBSCRIPTION_WAKING;
    h->holder = STR_NONE;
    h->attempts = 0;
    h->until_ms = 0;
    if (h->config.type == SUBSCRIPTION_WEBHOOK)
        h->until_ms =
            subop_now(j) + SUB_SLACK_MS + (int64_t)subscription_delivery_ms(h->config.lease_ttl_ms);
    j->woke = true;
}

static void subscription_wake_put_event(struct subop *j, enum content_kind kind)
{
    struct buf *e = &j->event;
    struct str root = j->head.config.root;
    e->n = 0;
    buf_put(e, STR("{\"type\":\"wake\",\"subscription_id\":"));
    json_put_string(e, subscription_unrooted(root, j->sub->id));
    buf_put(e, STR(",\"stream\":"));
    json_put_string(e, subscription_unrooted(root, j->head.streams[0].path));
    buf_printf(e, ",\"generation\":%" PRIu64 ",\"ts\":%" PRId64 "}", j->head.generation,
               subop_now(j));
    buf_putc(e, kind == CONTENT_JSON ? ',' : '\n');
}

static void subscription_wake_on_stream(struct subop *j)
{
    struct stream_info info = j->op.stat.info;
    if (info.life != 0 && info.end == END_NONE) {
        j->sub->blocked = false;
        begin_wake(j);
        subscription_wake_put_event(j, content_kind(info.content_type));
    }
    j->next(j);
}

void subop_wake_if_pending(struct subop *j, subop_next *next)
{
    if (list_empty(&j->sub->pending)) {
        next(j);
    } else if (j->head.config.type == SUBSCRIPTION_PULL) {
        j->next = next;
        j->sub->blocked = true; /* a claim still finds what is pending */
        subop_stat(j, j->head.config.wake_stream, subscription_wake_on_stream);
    } else {
        begin_wake(j);
        next(j);
    }
}

/* ---- writing it down ---- */

/* What the acks have settled is pending no more. */
static void drop_batch(struct subop *j)
{
    list_each_safe (l, &j->batch) {
        struct sub_hint *hint = list_item(l, struct sub_hint, link);
        if (!hint->changed)
            sub_hint_free(j->sub, hint);
    }
    list_splice(&j->sub->hints, &j->batch);
}

static void subscription_wake_on_commit(struct subop *j, int err)
{
    struct subscription *sub = j->sub;
    /* The wake stream may have been closed or deleted since it was looked up. */
    bool stream_moved = j->event.n > 0 && (err == ERR_NOT_FOUND || err == ERR_DELETED ||
                                           err == ERR_CLOSED || err == ERR_TYPE_MISMATCH);
    if (err == ERR_VERSION || stream_moved) {
        subop_retry(j);
        return;
    }
    if (err != 0) {
        subop_end(j, err);
        return;
    }
    drop_batch(j);
    j->version = DOC_NEXT(j->version);
    sub->version = j->version; /* our own change gives no cause for doubt */
    sub_adopt(sub, &j->head, j->version);
    if (j->woke && j->head.config.type == SUBSCRIPTION_WEBHOOK) {
        sub->delivery = SUB_DELIVERY_OURS;
        sub_deliver(sub);
    }
    j->committed(j);
}

void subop_commit(struct subop *j, subop_next *committed)
{
    j->committed = committed;
    j->head_text.n = 0;
    subscription_head_put(&j->head_text, &j->head);
    struct doc_put *docs = arena_alloc(&j->arena, (j->n_puts + 1) * sizeof *docs);
    for (size_t i = 0; i < j->n_puts; i++)
        docs[i] = j->puts[i];
    docs[j->n_puts] = (struct doc_put){
        .key = j->sub->head_key, .value = buf_str(&j->head_text), .expect_version = j->version};
    if (j->event.n > 0)
        subop_write(j, j->head.config.wake_stream, buf_str(&j->event), docs, j->n_puts + 1,
                    subscription_wake_on_commit);
    else
        subop_put(j, docs, j->n_puts + 1, subscription_wake_on_commit);
}

/* ---- on our own account ---- */

static void subscription_wake_woken(struct subop *j)
{
    if (j->woke || j->changed)
        subop_commit(j, subop_end_well);
    else
        subop_end(j, 0);
}

static void subscription_wake_looked(struct subop *j)
{
    if (j->head.state == SUBSCRIPTION_IDLE)
        subop_wake_if_pending(j, subscription_wake_woken);
    else
        subop_end(j, 0);
}

void subop_begin_look(struct subop *j)
{
    if (!j->exists || j->head.phase == SUBSCRIPTION_LINKING) {
        subop_end(j, 0);
    } else if (j->head.phase == SUBSCRIPTION_DELETING) {
        subop_delete_rest(j, subop_end_well); /* somebody began and could not finish */
    } else {
        subop_lapse(j);
        subop_look(j, subscription_wake_looked);
    }
}
