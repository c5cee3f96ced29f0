// SPDX-License-Identifier: Apache-2.0
#include "store/watchers.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

#define NOTIFY_AT_ONCE 64 /* watches; then others have their turn */

struct watched {
    struct link watches;
    struct link dirty;
    size_t n;
    char name[];
};

static struct str watchers_name_of(const struct watched *w)
{
    return str_of(w->name, w->n);
}

static struct watched *entry(struct watchers *ws, struct str name)
{
    struct watched *w = map_get(&ws->names, name);
    if (w != NULL)
        return w;
    w = mem_alloc(sizeof *w + name.n);
    list_init(&w->watches);
    list_init(&w->dirty);
    w->n = name.n;
    memcpy(w->name, name.p, name.n);
    map_put(&ws->names, watchers_name_of(w), w);
    return w;
}

static void drop_if_unused(struct watchers *ws, struct watched *w)
{
    if (!list_empty(&w->watches) || !list_empty(&w->dirty) || w == ws->told)
        return;
    map_remove(&ws->names, watchers_name_of(w));
    free(w);
}

/* Each watch is put back before it is called, so that it may remove itself or any other. */
static void watchers_notify_first(struct link *untold, struct link *watches, struct str name)
{
    struct store_watch *w = list_item(untold->next, struct store_watch, link);
    list_remove(&w->link);
    list_push(watches, &w->link);
    w->changed(w, name);
}

/* There are few of them, and they are told at once: what waits its turn is not theirs to wait for.
 */
static void watchers_notify_everything(struct watchers *ws, struct str name)
{
    struct link untold;
    list_init(&untold);
    list_splice(&untold, &ws->everything);
    while (!list_empty(&untold))
        watchers_notify_first(&untold, &ws->everything, name);
}

/* While it is being told no unwatch frees it, and a change makes it dirty again. */
static void watchers_begin(struct watchers *ws)
{
    struct watched *w = list_item(ws->dirty.next, struct watched, dirty);
    list_remove(&w->dirty);
    ws->told = w;
    list_splice(&ws->untold, &w->watches);
}

static void watchers_end(struct watchers *ws)
{
    struct watched *w = ws->told;
    ws->told = NULL;
    drop_if_unused(ws, w);
}

static void watchers_notify(struct task *t)
{
    struct watchers *ws = container_of(t, struct watchers, notify);
    for (int i = 0; i < NOTIFY_AT_ONCE; i++) {
        if (ws->told == NULL && list_empty(&ws->dirty))
            return;
        if (ws->told == NULL)
            watchers_begin(ws);
        if (!list_empty(&ws->untold))
            watchers_notify_first(&ws->untold, &ws->told->watches, watchers_name_of(ws->told));
        if (list_empty(&ws->untold))
            watchers_end(ws);
    }
    sched_work(ws->sched, "watchers");
    sched_post(ws->sched, &ws->notify);
}

void watchers_init(struct watchers *ws, struct sched *sched)
{
    ws->sched = sched;
    map_init(&ws->names);
    list_init(&ws->everything);
    list_init(&ws->dirty);
    list_init(&ws->untold);
    ws->told = NULL;
    task_init(&ws->notify, watchers_notify);
}

void watchers_deinit(struct watchers *ws)
{
    task_cancel(&ws->notify);
    must(list_empty(&ws->everything) && list_empty(&ws->untold));
    if (ws->told != NULL)
        watchers_end(ws);
    while (!list_empty(&ws->dirty)) {
        struct watched *w = list_item(ws->dirty.next, struct watched, dirty);
        list_remove(&w->dirty);
        drop_if_unused(ws, w);
    }
    must(ws->names.n == 0);
    map_deinit(&ws->names);
}

void watchers_add(struct watchers *ws, struct store_watch *w)
{
    list_push(w->name.n == 0 ? &ws->everything : &entry(ws, w->name)->watches, &w->link);
}

void watchers_remove(struct watchers *ws, struct store_watch *w)
{
    list_remove(&w->link);
    struct watched *of = w->name.n == 0 ? NULL : map_get(&ws->names, w->name);
    if (of != NULL)
        drop_if_unused(ws, of);
}

static void mark(struct watchers *ws, struct watched *w)
{
    if (list_empty(&w->dirty))
        list_push(&ws->dirty, &w->dirty);
    sched_post(ws->sched, &ws->notify);
}

void watchers_changed(struct watchers *ws, struct str name)
{
    struct watched *w = map_get(&ws->names, name);
    if (w != NULL)
        mark(ws, w);
    watchers_notify_everything(ws, name);
}

void watchers_all_changed(struct watchers *ws)
{
    size_t at = 0;
    for (struct watched *w; (w = map_next(&ws->names, &at)) != NULL;)
        mark(ws, w);
}
