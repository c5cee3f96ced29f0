// SPDX-License-Identifier: Apache-2.0
/* redis_watch.c -- wake-ups: by messages, which may be missed; then all who wait are told. */
#include "net/loop.h"
#include "store/redis/redis_store_core.h"

static struct redis_store *redis_of(struct store *s)
{
    return container_of(s, struct redis_store, store);
}

static void redis_watch_subscribe(struct redis_store *rs, struct str name,
                                  void (*how)(struct redis *r, struct str channel))
{
    struct arena a = {0};
    how(rs->redis, rstore_channel(rs, &a, rstore_tag(&a, name), name));
    arena_deinit(&a);
}

/* On a cluster the others are asked to publish everything once more, see steps_sweep. */
static void subscribe_all(struct redis_store *rs)
{
    struct arena a = {0};
    struct str prefix = str_of_cstr(rs->prefix);
    if (!rs->subscribed_all && rs->cluster)
        redis_subscribe(rs->redis, JOIN(&a, prefix, STR("wake")));
    else if (!rs->subscribed_all)
        redis_subscribe_prefix(rs->redis, JOIN(&a, prefix, STR("wake:")));
    rs->subscribed_all = true;
    arena_deinit(&a);
}

void rstore_watch(struct store *s, struct store_watch *w)
{
    struct redis_store *rs = redis_of(s);
    watchers_add(&rs->watchers, w);
    if (w->name.n == 0) {
        subscribe_all(rs);
        return;
    }
    redis_watch_subscribe(rs, w->name, redis_subscribe);
    if (rs->cluster)
        redis_family_watch(rs, w->name);
}

void rstore_unwatch(struct store *s, struct store_watch *w)
{
    struct redis_store *rs = redis_of(s);
    watchers_remove(&rs->watchers, w);
    if (w->name.n == 0)
        return;
    redis_watch_subscribe(rs, w->name, redis_unsubscribe);
    if (rs->cluster)
        redis_family_unwatch(rs, w->name);
}

/* The stream whose channel it is; n == 0: that of none. No tag has a brace in it. */
static struct str channel_name(struct str channel)
{
    str_cut(&channel, '}');
    return channel.n > 0 ? str_skip(channel, 1) : STR_NONE;
}

/* Who published it has told its own watchers, unless it had given the write up before it was done.
 */
void rstore_on_message(void *ctx, struct str channel, struct str payload)
{
    struct redis_store *rs = ctx;
    struct str name = channel_name(channel);
    bool ours = str_eq(payload, str_of(rs->process, sizeof rs->process)) &&
                rs->loop->sched.now_ms >= rs->heeds_own_ms;
    if (name.n == 0)
        name = channel_name(payload); /* of every stream, on a cluster */
    if (name.n > 0 && !ours)
        watchers_changed(&rs->watchers, name);
}

void rstore_on_missed(void *ctx, struct str channel)
{
    struct redis_store *rs = ctx;
    struct str name = channel_name(channel);
    if (name.n > 0) {
        watchers_changed(&rs->watchers, name);
        return;
    }
    watchers_all_changed(&rs->watchers);
    if (!list_empty(&rs->watchers.everything))
        rstore_rescan(rs);
}
