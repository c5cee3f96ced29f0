// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "feature/subscriptions/subscription_token.h"

static void subscription_lease_end_refused(struct subop *j)
{
    subop_end(j, j->refusal);
}

/* ---- what a wake is told ---- */

static const struct subscription_stream *in_wake(const struct subop *j, struct str name)
{
    for (size_t i = 0; i < j->head.n_streams; i++)
        if (str_eq(j->head.streams[i].path, name))
            return &j->head.streams[i];
    return NULL;
}

/* A linked stream that the wake is not about: nothing is pending there, as far as we know. */
static struct subscription_stream quiet_stream(const struct subop *j, struct str name,
                                               const struct subscription_link *link)
{
    const struct sub_hint *hint = map_get(&j->sub->hint_map, name);
    if (hint != NULL && hint->stream.has_pending)
        return hint->stream;
    return (struct subscription_stream){
        .path = name, .is_explicit = link->is_explicit, .acked = link->acked, .tail = link->acked};
}

static void subscription_lease_add_stream(struct subop *j, struct subscription_stream stream)
{
    struct subscription_view *v = &j->call->view;
    stream.path = arena_dup(&j->call->arena, stream.path);
    v->streams[v->n_streams++] = stream;
}

static void subscription_lease_on_all_links(struct subop *j)
{
    const struct store_docs *d = &j->op.docs;
    struct subscription_view *v = &j->call->view;
    size_t n = d->more ? 0 : d->n_rows;
    v->more = n == 0;
    v->streams = arena_alloc(&j->call->arena, (j->head.n_streams + n + 1) * sizeof *v->streams);
    for (size_t i = 0; i < j->head.n_streams; i++)
        subscription_lease_add_stream(j, j->head.streams[i]);
    for (size_t i = 0; i < n; i++) {
        struct subscription_link link;
        struct str name = str_skip(d->rows[i].key, j->sub->link_prefix.n);
        if (subscription_link_parse(d->rows[i].value, &link) == 0 && link.birth == j->head.birth &&
            in_wake(j, name) == NULL)
            subscription_lease_add_stream(j, quiet_stream(j, name, &link));
    }
    subop_end(j, 0);
}

/* The wake as its taker sees it: what is pending first, and all the others if they are few. */
static void subscription_lease_tell_wake(struct subop *j)
{
    /* A webhook's receiver is told names as who made it sees them. */
    struct str root =
        j->head.config.type == SUBSCRIPTION_WEBHOOK ? j->head.config.root : j->call->root;
    subop_fill_view(j);
    j->call->view.token = subscription_token_make(j->sub->all->tokens, &j->call->arena, j->sub->id,
                                                  root, j->head.generation, j->head.wake_id);
    subop_docs(j, j->sub->link_prefix, STR_NONE, SUB_LISTED_MAX, subscription_lease_on_all_links);
}

/* ---- claim ---- */

static void subscription_lease_claim_looked(struct subop *j)
{
    struct subscription_head *h = &j->head;
    if (list_empty(&j->sub->pending)) {
        /* The wake is for nothing: what it was about is gone, or acknowledged. */
        j->refusal = SUBSCRIPTION_NO_PENDING_WORK;
        if (h->state != SUBSCRIPTION_IDLE)
            subop_end_wake(j);
        if (j->changed)
            subop_commit(j, subscription_lease_end_refused);
        else
            subscription_lease_end_refused(j);
        return;
    }
    if (h->state == SUBSCRIPTION_IDLE)
        subop_new_generation(j);
    subop_take_snapshot(j);
    h->state = SUBSCRIPTION_HELD;
    h->holder = arena_dup(&j->arena, j->call->worker);
    h->until_ms = subop_now(j) + (int64_t)h->config.lease_ttl_ms;
    subop_commit(j, subscription_lease_tell_wake);
}

static void subscription_lease_claim_begin(struct subop *j)
{
    if (!subop_require_shown(j))
        return;
    if (j->head.config.type != SUBSCRIPTION_PULL) {
        subop_end(j, SUBSCRIPTION_INVALID_REQUEST);
        return;
    }
    subop_lapse(j);
    if (j->head.state == SUBSCRIPTION_HELD) {
        subop_fill_view(j);
        subop_end(j, SUBSCRIPTION_ALREADY_CLAIMED);
        return;
    }
    subop_look(j, subscription_lease_claim_looked);
}

/* ---- acks ---- */

/* Ends the operation unless the call is about the current wake and has its token. */
static bool require_wake(struct subop *j)
{
    const struct subscription_head *h = &j->head;
    const struct subscription_call *c = j->call;
    uint64_t generation;
    struct str wake_id;
    if (!subop_require_active(j))
        return false;
    if (subscription_token_check(j->sub->all->tokens, j->sub->id, c->token, &generation,
                                 &wake_id)) {
        subop_end(j, SUBSCRIPTION_TOKEN_INVALID);
        return false;
    }
    if (h->state == SUBSCRIPTION_IDLE || generation != h->generation ||
        c->generation != h->generation || !str_eq(wake_id, h->wake_id) ||
        !str_eq(c->wake_id, h->wake_id)) {
        subop_end(j, SUBSCRIPTION_FENCED);
        return false;
    }
    return true;
}

static void next_ack(struct subop *j);

/* Where this ack would lead; false: it does not fit. */
static bool ack_fits(struct subop *j, const struct subscription_ack *ack,
                     const struct stream_info *info, struct subscription_link *link)
{
    struct offset to, tail = {info->life, info->tail};
    *link = j->link_doc;
    if (offset_parse(ack->offset, &to) != 0)
        return false;
    if (sub_offset_cmp(to, link->acked) == 0) /* as we told it ourselves */
        return true;
    if (link->life != info->life) /* born again since it was linked */
        link->acked = (struct offset){0};
    link->life = info->life;
    if ((!offset_is_zero(to) && to.life != info->life) || sub_offset_cmp(to, link->acked) < 0 ||
        sub_offset_cmp(to, tail) > 0)
        return false;
    link->acked = to;
    return true;
}

/* The last ack of a stream counts. */
static bool acked_later(const struct subop *j)
{
    struct str name = subscription_path(j->acks[j->at].stream);
    for (size_t i = j->at + 1; i < j->n_acks; i++)
        if (str_eq(subscription_path(j->acks[i].stream), name))
            return true;
    return false;
}

static void skip_or_refuse(struct subop *j)
{
    if (!j->lenient) {
        subop_end(j, SUBSCRIPTION_INVALID_OFFSET);
        return;
    }
    j->at++;
    next_ack(j);
}

static void subscription_lease_on_ack_stream(struct subop *j)
{
    struct stream_info info = j->op.stat.info;
    struct subscription_link link;
    if (!ack_fits(j, &j->acks[j->at], &info, &link)) {
        skip_or_refuse(j);
        return;
    }
    if (!acked_later(j)) {
        struct str name = subscription_path(j->acks[j->at].stream);
        subop_put_link(j, &j->arena, name, &link);
        j->acked[j->n_acked++] = (struct subop_acked){name, link.acked, {info.life, info.tail}};
    }
    j->at++;
    next_ack(j);
}

static void subscription_lease_on_ack_link(struct subop *j)
{
    if (!j->linked)
        skip_or_refuse(j);
    else
        subop_stat(j, subscription_path(j->acks[j->at].stream), subscription_lease_on_ack_stream);
}

/* In memory, ahead of the write: whether anything is pending then depends on it. */
static void apply_acked(struct subop *j, const struct subop_acked *a)
{
    struct sub_hint *hint = map_get(&j->sub->hint_map, a->stream);
    if (hint == NULL || !hint->stream.has_pending)
        return;
    hint->stream.acked = a->acked;
    hint->stream.tail = a->tail;
    if (sub_offset_cmp(a->acked, a->tail) < 0)
        return;
    hint->stream.has_pending = false;
    list_remove(&hint->link);
    list_push(&j->batch, &hint->link); /* gone with the commit, or back if that fails */
}

static void subscription_lease_acks_woken(struct subop *j)
{
    j->call->next_wake = j->woke;
    subop_commit(j, subop_end_well);
}

static void acks_checked(struct subop *j)
{
    struct subscription_head *h = &j->head;
    for (size_t i = 0; i < j->n_acked; i++)
        apply_acked(j, &j->acked[i]);
    if (j->call->finished) {
        subop_end_wake(j);
        subop_wake_if_pending(j, subscription_lease_acks_woken);
        return;
    }
    h->state = SUBSCRIPTION_HELD;
    h->attempts = 0;
    h->until_ms = subop_now(j) + (int64_t)h->config.lease_ttl_ms;
    subop_commit(j, subop_end_well);
}

static void next_ack(struct subop *j)
{
    if (j->at == j->n_acks)
        acks_checked(j);
    else
        subop_read_link(j, subscription_path(j->acks[j->at].stream),
                        subscription_lease_on_ack_link);
}

static void subscription_lease_acks_looked(struct subop *j)
{
    subop_puts(j, &j->arena, j->n_acks + 1);
    j->acked = arena_alloc(&j->arena, (j->n_acks + 1) * sizeof *j->acked);
    j->at = j->n_acked = 0;
    next_ack(j);
}

/* What is pending besides is found out first: later on the store does not know of the acks yet. */
static void take_acks(struct subop *j)
{
    if (j->call->finished)
        subop_look(j, subscription_lease_acks_looked);
    else
        subscription_lease_acks_looked(j);
}

static void subscription_lease_callback_begin(struct subop *j)
{
    if (!require_wake(j))
        return;
    j->acks = j->call->acks;
    j->n_acks = j->call->n_acks;
    take_acks(j);
}

static bool require_pull(struct subop *j)
{
    if (!subop_require_active(j))
        return false;
    if (j->head.config.type == SUBSCRIPTION_PULL)
        return true;
    subop_end(j, SUBSCRIPTION_INVALID_REQUEST);
    return false;
}

static void subscription_lease_ack_begin(struct subop *j)
{
    if (require_pull(j))
        subscription_lease_callback_begin(j);
}

static void subscription_lease_release_begin(struct subop *j)
{
    if (!require_pull(j) || !require_wake(j))
        return;
    j->call->finished = true;
    take_acks(j); /* none */
}

/* ---- delivery ---- */

static void subscription_lease_attempt_begin(struct subop *j)
{
    struct subscription_head *h = &j->head;
    if (!subop_require_active(j))
        return;
    bool due = h->until_ms <= subop_now(j);
    /* Its time was set when the wake began, for who began it; nobody else tries before it is over.
     */
    bool fresh = h->attempts == 0 && j->sub->delivery != SUB_DELIVERY_OTHERS;
    if (h->config.type != SUBSCRIPTION_WEBHOOK || h->state != SUBSCRIPTION_WAKING ||
        (!due && !fresh)) {
        subop_end(j, SUBSCRIPTION_NO_PENDING_WORK);
        return;
    }
    j->sub->delivery = SUB_DELIVERY_OTHERS;
    /* Nobody else may take it for lost before this attempt is over; it may have waited for its
     * place. */
    int64_t end_ms = subop_now(j) + (int64_t)subscription_delivery_ms(h->config.lease_ttl_ms);
    if (end_ms <= h->until_ms) {
        subscription_lease_tell_wake(j);
        return;
    }
    h->until_ms = end_ms + SUB_SLACK_MS;
    subop_commit(j, subscription_lease_tell_wake);
}

/* As acks of all that the wake was sent with. */
static void ack_snapshot(struct subop *j)
{
    const struct subscription_head *h = &j->head;
    struct subscription_ack *acks = arena_alloc(&j->arena, (h->n_streams + 1) * sizeof *acks);
    for (size_t i = 0; i < h->n_streams; i++) {
        char *offset = arena_alloc(&j->arena, OFFSET_TEXT);
        offset_format(h->streams[i].tail, offset);
        acks[i] = (struct subscription_ack){h->streams[i].path, str_of(offset, OFFSET_TEXT)};
    }
    j->acks = acks;
    j->n_acks = h->n_streams;
    j->lenient = true;
    take_acks(j);
}

static void subscription_lease_report_begin(struct subop *j)
{
    struct subscription_head *h = &j->head;
    const struct subscription_call *c = j->call;
    if (!j->exists || h->phase != SUBSCRIPTION_ACTIVE || h->state == SUBSCRIPTION_IDLE ||
        c->generation != h->generation || !str_eq(c->wake_id, h->wake_id)) {
        subop_end(j, 0);
        return;
    }
    if (c->delivered && c->finished) {
        ack_snapshot(j);
        return;
    }
    if (h->state == SUBSCRIPTION_HELD) { /* the receiver has called back before it answered */
        subop_end(j, 0);
        return;
    }
    if (c->delivered) {
        h->state = SUBSCRIPTION_HELD;
        h->attempts = 0;
        h->until_ms = subop_now(j) + (int64_t)h->config.lease_ttl_ms;
    } else {
        h->attempts++;
        h->until_ms = subop_now(j) + (int64_t)c->retry_ms;
    }
    subop_commit(j, subop_end_well);
}

/* ---- the calls ---- */

void subscription_claim(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_claim_begin);
}

void subscription_callback(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_callback_begin);
}

void subscription_ack(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_ack_begin);
}

void subscription_release(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_release_begin);
}

void subscription_attempt(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_attempt_begin);
}

void subscription_report(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_lease_report_begin);
}
