// SPDX-License-Identifier: Apache-2.0
/* tool_keep.c -- how much is kept for cursors, all together.
 *
 * Each stream goes by its TTL, but a caller that asks and asks could fill the store before that. So
 * this server counts what it has put there, and when it is too much, removes what was used longest
 * ago: its cursors are expired then. */
#include "base/mem.h"
#include "feature/tools/tool_core.h"

#include <stdlib.h>

struct kept {
    struct link link; /* those used last are last */
    struct tools *all;
    struct store_remove remove;
    uint64_t bytes;
    uint64_t until_ms; /* then its TTL has taken it */
    char name[TOOL_KEEP_NAME];
};

static struct str tool_keep_name_of(const struct kept *k)
{
    return str_of(k->name, sizeof k->name);
}

static void tool_keep_forget(struct kept *k)
{
    map_remove(&k->all->kept_by_name, tool_keep_name_of(k));
    list_remove(&k->link);
    k->all->kept_bytes -= k->bytes;
}

static void tool_keep_on_removed(struct store_remove *r, int err)
{
    struct kept *k = container_of(r, struct kept, remove);
    struct tools *t = k->all;
    free(k); /* what could not be removed goes by its TTL */
    gate_leave(&t->work);
}

static void tool_keep_drop(struct kept *k)
{
    struct tools *t = k->all;
    tool_keep_forget(k);
    k->remove = (struct store_remove){.name = tool_keep_name_of(k), .done = tool_keep_on_removed};
    gate_enter(&t->work);
    store_remove(t->setup.store, &k->remove);
}

static struct kept *oldest(struct tools *t)
{
    return list_empty(&t->kept) ? NULL : list_item(t->kept.next, struct kept, link);
}

static void use(struct kept *k)
{
    struct tools *t = k->all;
    uint64_t keep_s = t->setup.cursor_ttl_s + TOOL_KEEP_SLACK_S;
    k->until_ms = t->setup.sched->now_ms + keep_s * 1000;
    list_remove(&k->link);
    list_push(&t->kept, &k->link);
}

void tool_keep_add(struct tools *t, struct str name, uint64_t bytes)
{
    struct kept *k = mem_zalloc(sizeof *k);
    k->all = t;
    k->bytes = bytes + TOOL_KEEP_COST;
    memcpy(k->name, name.p, sizeof k->name);
    list_init(&k->link);
    map_put(&t->kept_by_name, tool_keep_name_of(k), k);
    t->kept_bytes += k->bytes;
    use(k);
    for (struct kept *o; (o = oldest(t)) != k && o->until_ms < t->setup.sched->now_ms;) {
        tool_keep_forget(o);
        free(o);
    }
    for (struct kept *o; t->kept_bytes > t->setup.keep_max && (o = oldest(t)) != k;)
        tool_keep_drop(o);
}

void tool_keep_use(struct tools *t, struct str name)
{
    struct kept *k = map_get(&t->kept_by_name, name);
    if (k != NULL)
        use(k);
}

void tool_keep_deinit(struct tools *t)
{
    for (struct kept *k; (k = oldest(t)) != NULL;) {
        tool_keep_forget(k);
        free(k);
    }
    map_deinit(&t->kept_by_name);
}
