// SPDX-License-Identifier: Apache-2.0
#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/subscriptions/subscription_core.h"
#include "token/mac.h"
#include "token/signer.h"

#include <stdlib.h>

void subscription_call_deinit(struct subscription_call *c)
{
    arena_deinit(&c->arena);
    c->arena = (struct arena){0};
}

static struct str own(struct str s)
{
    if (s.n == 0)
        return STR_NONE;
    return str_of(memcpy(mem_alloc(s.n), s.p, s.n), s.n);
}

static void free_text(struct str *s)
{
    free((char *)(uintptr_t)s->p);
    *s = STR_NONE;
}

/* ---- one subscription ---- */

static void subscription_on_timer(struct timer *t);

static struct str subscription_key_of(struct str prefix, struct str id, struct str suffix)
{
    struct buf key = {0};
    buf_put(&key, prefix);
    subscription_id_put(&key, id);
    buf_put(&key, suffix);
    return buf_str(&key); /* the buffer's memory becomes the key's */
}

/* Every change of every stream is told, which costs each append something: only while there is
 * anybody it could matter to. */
static void watch_if_needed(struct subscriptions *s)
{
    bool needed = s->by_id.n > 0 && s->phase != SUBSCRIPTIONS_STOPPING;
    if (needed == s->watching)
        return;
    s->watching = needed;
    if (needed)
        store_watch(s->store, &s->watch);
    else
        store_unwatch(s->store, &s->watch);
}

struct subscription *sub_of(struct subscriptions *s, struct str id)
{
    struct subscription *sub = map_get(&s->by_id, id);
    if (sub != NULL)
        return sub;
    sub = mem_zalloc(sizeof *sub);
    sub->all = s;
    sub->id = str_of(memcpy(mem_alloc(id.n + 1), id.p, id.n), id.n);
    sub->head_key = subscription_key_of(STR(SUBSCRIPTION_HEADS), id, STR(""));
    sub->link_prefix = subscription_key_of(STR(SUBSCRIPTION_LINKS), id, STR("/"));
    list_init(&sub->ops);
    list_init(&sub->in_pattern);
    map_init(&sub->ties);
    list_init(&sub->hints);
    list_init(&sub->pending);
    list_init(&sub->want_look);
    list_init(&sub->scanned);
    list_init(&sub->waiting);
    map_init(&sub->hint_map);
    timer_init(&sub->timer, subscription_on_timer);
    map_put(&s->by_id, sub->id, sub);
    watch_if_needed(s);
    return sub;
}

/* ---- owners ---- */

static struct sub_owner *owner_of(struct subscriptions *s, struct str name)
{
    struct sub_owner *o = map_get(&s->owners, name);
    if (o != NULL || name.n == 0)
        return o;
    o = mem_alloc(sizeof *o + name.n);
    o->count = 0;
    o->n = name.n;
    memcpy(o->text, name.p, name.n);
    map_put(&s->owners, str_of(o->text, o->n), o);
    return o;
}

void sub_set_owner(struct subscription *sub, struct str owner)
{
    struct subscriptions *s = sub->all;
    struct sub_owner *before = sub->owner;
    sub->owner = owner_of(s, owner);
    if (sub->owner != NULL)
        sub->owner->count++;
    if (before == NULL || --before->count > 0)
        return;
    map_remove(&s->owners, str_of(before->text, before->n));
    free(before);
}

size_t subs_owned(const struct subscriptions *s, struct str owner)
{
    const struct sub_owner *o = map_get(&s->owners, owner);
    return o == NULL ? 0 : o->count;
}

/* ---- active or not ---- */

static void free_hints(struct subscription *sub, struct link *hints)
{
    list_each_safe (l, hints)
        sub_hint_free(sub, list_item(l, struct sub_hint, link));
}

static void deactivate(struct subscription *sub)
{
    if (!sub->active)
        return;
    sub->active = false;
    sub->all->n_active--;
    sub_index_remove(sub);
    free_hints(sub, &sub->hints);
    free_hints(sub, &sub->pending);
    list_remove(&sub->want_look);
    list_remove(&sub->scanned);
    timer_stop(&sub->timer);
    free_text(&sub->pattern);
    free_text(&sub->wake_stream);
    free_text(&sub->receiver);
    sub_set_owner(sub, STR_NONE);
    sub->state = SUBSCRIPTION_IDLE;
    sub->behind = sub->blocked = sub->paused = false;
    sub->delivery = SUB_DELIVERY_OTHERS;
}

/* What stands between `://` and the path. */
static struct str receiver_of(struct str url)
{
    size_t at = 0, n = 0;
    while (at + 2 < url.n && memcmp(url.p + at, "://", 3) != 0)
        at++;
    url = str_skip(url, at + 3 < url.n ? at + 3 : url.n);
    while (n < url.n && memchr("/?#", url.p[n], 3) == NULL)
        n++;
    struct str host = own(str_of(url.p, n));
    for (size_t i = 0; i < host.n; i++)
        ((char *)(uintptr_t)host.p)[i] = ascii_lower(host.p[i]);
    return host;
}

void sub_seen(struct subscription *sub)
{
    list_remove(&sub->scanned);
    list_push(&sub->all->known, &sub->scanned);
}

void sub_activate(struct subscription *sub, const struct subscription_head *h)
{
    sub_seen(sub);
    if (sub->active)
        return;
    sub->active = true;
    sub->all->n_active++;
    sub->type = h->config.type;
    sub->edits = h->edits;
    sub->pattern = own(h->config.pattern);
    sub->wake_stream = own(h->config.wake_stream);
    sub->receiver = receiver_of(h->config.webhook_url);
    sub->sealed = h->config.sealed;
    sub_set_owner(sub, h->config.owner);
    sub_index_add(sub);
}

static void free_sub(struct subscription *sub)
{
    struct subscriptions *s = sub->all;
    deactivate(sub);
    timer_stop(&sub->timer);
    list_remove(&sub->want_look);
    list_remove(&sub->waiting);
    sub_set_owner(sub, STR_NONE);
    map_remove(&s->by_id, sub->id);
    watch_if_needed(s);
    map_deinit(&sub->hint_map);
    map_deinit(&sub->ties);
    free_text(&sub->head_key);
    free_text(&sub->link_prefix);
    free_text(&sub->id);
    free(sub);
}

void sub_drop_if_unused(struct subscription *sub)
{
    bool waits = !list_empty(&sub->want_look) || timer_running(&sub->timer);
    if (!sub->active && list_empty(&sub->ops) && !waits)
        free_sub(sub);
}

/* ---- what the store says ---- */

static void subscription_arm(struct subscription *sub, const struct subscription_head *h)
{
    bool waits = h->state == SUBSCRIPTION_HELD ||
                 (h->state == SUBSCRIPTION_WAKING && sub->type == SUBSCRIPTION_WEBHOOK);
    timer_stop(&sub->timer);
    if (!waits)
        return;
    /* Not for longer than can have been meant, should the clock be set back. */
    int64_t most = SUBSCRIPTION_LEASE_MAX_MS + SUB_SLACK_MS;
    int64_t delay = h->until_ms - sub->all->sched->wall_ms;
    delay = delay < 0 ? 0 : delay > most ? most : delay;
    sched_start(sub->all->sched, &sub->timer, (uint64_t)delay);
}

void sub_adopt(struct subscription *sub, const struct subscription_head *h, uint64_t version)
{
    if (h == NULL || h->phase != SUBSCRIPTION_ACTIVE) {
        deactivate(sub);
        sub->version = version;
        return;
    }
    bool was_active = sub->active, news = !was_active || sub->version != version;
    sub_activate(sub, h);
    sub->version = version;
    sub->state = h->state;
    sub->paused = false;
    if (news) { /* somebody else has been at it, and what we know may be old */
        if (sub->delivery == SUB_DELIVERY_OURS)
            sub->delivery = SUB_DELIVERY_OTHERS;
        sub_recheck_hints(sub);
        for (size_t i = 0; i < h->n_streams; i++)
            sub_hint(sub, h->streams[i].path, &sub->hints);
    }
    if (!was_active || sub->edits != h->edits)
        sub->behind = true;
    sub->edits = h->edits;
    subscription_arm(sub, h);
}

/* ---- looks ---- */

void sub_start_looks(struct subscriptions *s)
{
    while (s->phase == SUBSCRIPTIONS_READY && s->n_looks < SUB_LOOKS_MAX &&
           !list_empty(&s->want_look)) {
        struct subscription *sub = list_item(s->want_look.next, struct subscription, want_look);
        list_remove(&sub->want_look);
        sub->looking = true;
        s->n_looks++;
        subop_add(sub, NULL, subop_begin_look);
    }
}

void sub_want_look(struct subscription *sub)
{
    struct subscriptions *s = sub->all;
    if (s->phase == SUBSCRIPTIONS_STOPPING || sub->looking)
        return;
    if (list_empty(&sub->want_look))
        list_push(&s->want_look, &sub->want_look);
    sub_start_looks(s);
}

static bool subscription_has_reason(const struct subscription *sub)
{
    return !list_empty(&sub->hints) || sub->behind || !list_empty(&sub->pending);
}

void sub_settle(struct subscription *sub)
{
    bool may = sub->active && !sub->running && !sub->paused && !sub->blocked &&
               sub->state == SUBSCRIPTION_IDLE;
    if (may && !sub->listening && !subscription_has_reason(sub))
        sub_listen(sub);
    if (may && subscription_has_reason(sub))
        sub_want_look(sub);
    else
        sub_start_looks(sub->all);
}

void sub_deliver(struct subscription *sub)
{
    struct subscriptions *s = sub->all;
    if (s->notifier != NULL && s->phase != SUBSCRIPTIONS_STOPPING)
        s->notifier->due(s->notifier, sub->id, sub->receiver);
}

static void subscription_on_timer(struct timer *t)
{
    struct subscription *sub = container_of(t, struct subscription, timer);
    struct sched *sched = sub->all->sched;
    sub->paused = false;
    if (sub->state == SUBSCRIPTION_WAKING) {
        sched_start(sched, &sub->timer, SUB_SLACK_MS); /* should the attempt fail */
        sub_deliver(sub);
    } else if (sub->looking) {
        sched_start(sched, &sub->timer, SCHED_TICK_MS); /* it may have begun before the time */
    } else {
        sub_want_look(sub);
    }
}

/* ---- the set ---- */

static void subscription_run_stop(struct task *t)
{
    struct subscriptions *s = container_of(t, struct subscriptions, stop);
    void (*stopped)(void *ctx) = s->stopped;
    if (s->n_ops > 0) /* a late call; its end brings us back */
        return;
    s->stopped = NULL;
    stopped(s->stopped_ctx);
}

struct subscriptions *subscriptions_new(struct sched *sched, struct store *store)
{
    struct subscriptions *s = mem_zalloc(sizeof *s);
    s->sched = sched;
    s->store = store;
    s->hints_max = SUB_HINTS_MAX;
    s->hints_all = SUB_HINTS_ALL;
    s->notices.news_max = SUB_NEWS_MAX;
    s->notices.slice = SUB_SLICE;
    map_init(&s->by_id);
    map_init(&s->owners);
    list_init(&s->known);
    list_init(&s->waiting);
    sub_index_init(s);
    sub_notices_init(s);
    list_init(&s->want_look);
    task_init(&s->stop, subscription_run_stop);
    s->watch.changed = sub_notices_changed;
    sub_load_new(s);
    return s;
}

void sub_check_stop(struct subscriptions *s)
{
    if (s->stopped != NULL && s->n_ops == 0 && !sub_load_busy(s))
        sched_post(s->sched, &s->stop);
}

void subscriptions_stop(struct subscriptions *s, void (*stopped)(void *ctx), void *ctx)
{
    must(s->phase != SUBSCRIPTIONS_STOPPING);
    s->phase = SUBSCRIPTIONS_STOPPING;
    s->stopped = stopped;
    s->stopped_ctx = ctx;
    watch_if_needed(s);
    sub_notices_stop(s);
    sub_load_stop(s);
    size_t at = 0;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;) {
        timer_stop(&sub->timer);
        list_remove(&sub->want_look);
    }
    at = 0;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;)
        subop_run(sub); /* what waited for the load ends now */
    sub_check_stop(s);
}

static void free_all(struct subscriptions *s)
{
    struct link all; /* by their want_look: freeing one changes the map */
    size_t at = 0;
    list_init(&all);
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;) {
        list_remove(&sub->want_look);
        list_push(&all, &sub->want_look);
    }
    while (!list_empty(&all))
        free_sub(list_item(all.next, struct subscription, want_look));
}

void subscriptions_free(struct subscriptions *s)
{
    if (s == NULL)
        return;
    must(s->n_ops == 0);
    task_cancel(&s->stop);
    sub_notices_stop(s);
    free_all(s);
    sub_load_free(s);
    map_deinit(&s->by_id);
    map_deinit(&s->owners);
    sub_index_deinit(s);
    map_deinit(&s->notices.names);
    signer_free(s->signer);
    mac_free(s->tokens);
    free(s);
}

struct signer *subscriptions_signer(struct subscriptions *s)
{
    return s->signer;
}

void subscriptions_set_refresh(struct subscriptions *s, uint64_t every_ms)
{
    s->refresh_ms = every_ms;
    if (s->phase == SUBSCRIPTIONS_READY && every_ms > 0)
        sub_load_again(s, every_ms);
}

void subscriptions_set_notifier(struct subscriptions *s, struct subscription_notifier *c)
{
    s->notifier = c;
    size_t at = 0;
    for (struct subscription *sub; c != NULL && (sub = map_next(&s->by_id, &at)) != NULL;)
        if (sub->delivery == SUB_DELIVERY_LOST)
            sub_deliver(sub);
}
