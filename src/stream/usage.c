// SPDX-License-Identifier: Apache-2.0
#include "stream/usage.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/store.h"

#include <stdlib.h>

#define PAGE  1000 /* names of one listing */
#define LOOKS 2    /* at old roots for each new one */

struct amount {
    uint64_t streams, bytes;
};

struct usage_root {
    struct link link;
    struct usage *usage;
    struct amount listed;  /* by the last count */
    struct amount written; /* since it began */
    struct amount claimed; /* granted, and not settled */
    uint64_t used_ms, counted_ms;
    bool counted, counting;
    uint32_t claims;     /* not settled */
    struct link waiters; /* of struct usage_claim */

    /* the count under way */
    struct store_list list;
    struct amount found;  /* so far */
    struct amount before; /* of `written`, when it began */
    char after[STORE_NAME_MAX];

    size_t n;
    char name[];
};

struct usage {
    struct sched *sched;
    struct store *store;
    struct map by_name;
    struct link roots; /* in the order in which they are looked at, to forget idle ones */
    bool stopping;
};

static void amount_add(struct amount *to, struct amount a)
{
    to->streams += a.streams;
    to->bytes += a.bytes;
}

static void amount_take(struct amount *from, struct amount a)
{
    from->streams -= a.streams;
    from->bytes -= a.bytes;
}

/* ---- roots ---- */

struct usage *usage_new(struct sched *sched, struct store *store)
{
    struct usage *u = mem_zalloc(sizeof *u);
    u->sched = sched;
    u->store = store;
    map_init(&u->by_name);
    list_init(&u->roots);
    return u;
}

static void root_free(struct usage_root *r)
{
    must(r->claims == 0 && list_empty(&r->waiters));
    map_remove(&r->usage->by_name, str_of(r->name, r->n));
    list_remove(&r->link);
    free(r);
}

void usage_stop(struct usage *u)
{
    if (u != NULL)
        u->stopping = true;
}

void usage_free(struct usage *u)
{
    if (u == NULL)
        return;
    list_each_safe (l, &u->roots)
        root_free(list_item(l, struct usage_root, link));
    map_deinit(&u->by_name);
    free(u);
}

static void forget_some(struct usage *u)
{
    for (int i = 0; i < LOOKS && !list_empty(&u->roots); i++) {
        struct usage_root *r = list_item(u->roots.next, struct usage_root, link);
        bool busy = r->counting || r->claims > 0 || !list_empty(&r->waiters);
        if (!busy && u->sched->now_ms - r->used_ms >= USAGE_IDLE_MS) {
            root_free(r);
            continue;
        }
        list_remove(&r->link);
        list_push(&u->roots, &r->link);
    }
}

static struct usage_root *root_of(struct usage *u, struct str name)
{
    struct usage_root *r = map_get(&u->by_name, name);
    if (r == NULL) {
        forget_some(u);
        r = mem_zalloc(sizeof *r + name.n);
        r->usage = u;
        list_init(&r->waiters);
        r->n = name.n;
        memcpy(r->name, name.p, name.n);
        map_put(&u->by_name, str_of(r->name, r->n), r);
        list_push(&u->roots, &r->link);
    }
    r->used_ms = u->sched->now_ms;
    return r;
}

/* ---- claims ---- */

static bool within(uint64_t used, uint64_t more, uint64_t max)
{
    return max == 0 || more == 0 || (used <= max && more <= max - used);
}

static bool fits(const struct usage_root *r, const struct usage_claim *c)
{
    struct amount used = r->listed;
    amount_add(&used, r->written);
    amount_add(&used, r->claimed);
    return within(used.streams, c->streams, c->streams_max) &&
           within(used.bytes, c->bytes, c->bytes_max);
}

static enum usage_answer grant(struct usage_root *r, struct usage_claim *c)
{
    amount_add(&r->claimed, (struct amount){c->streams, c->bytes});
    r->claims++;
    c->of = r;
    return USAGE_GRANTED;
}

void usage_settle(struct usage *u, struct usage_claim *c, uint64_t streams, uint64_t bytes)
{
    struct usage_root *r = c->of;
    if (r == NULL)
        return;
    c->of = NULL;
    r->claims--;
    amount_take(&r->claimed, (struct amount){c->streams, c->bytes});
    amount_add(&r->written, (struct amount){streams, bytes});
}

void usage_deleted(struct usage *u, struct str root)
{
    struct usage_root *r = u != NULL ? map_get(&u->by_name, root) : NULL;
    if (r != NULL)
        r->counted_ms = 0;
}

/* ---- counts ---- */

static void list_page(struct usage_root *r);

/* A store that does not answer refuses the writes by itself. */
static void count_done(struct usage_root *r, bool known)
{
    struct link waiters;
    r->counting = false;
    if (known) {
        r->listed = r->found;
        amount_take(&r->written, r->before);
        r->counted = true;
        r->counted_ms = r->usage->sched->now_ms;
    }
    list_init(&waiters);
    list_splice(&waiters, &r->waiters);
    while (!list_empty(&waiters)) {
        struct usage_claim *c = list_item(waiters.next, struct usage_claim, link);
        list_remove(&c->link);
        c->done(c, !known || fits(r, c) ? grant(r, c) : USAGE_REFUSED);
    }
}

static void usage_on_page(struct store_list *list, int err)
{
    struct usage_root *r = container_of(list, struct usage_root, list);
    for (size_t i = 0; err == 0 && i < list->n_rows; i++)
        amount_add(&r->found, (struct amount){1, list->rows[i].info.bytes});
    if (err != 0 || !list->more || r->usage->stopping) {
        count_done(r, err == 0 && !list->more);
        return;
    }
    struct str last = list->rows[list->n_rows - 1].name;
    memcpy(r->after, last.p, last.n);
    list->after = str_of(r->after, last.n);
    list_page(r);
}

static void list_page(struct usage_root *r)
{
    r->list = (struct store_list){.prefix = str_of(r->name, r->n),
                                  .after = r->list.after,
                                  .limit = PAGE,
                                  .reserved = true,
                                  .done = usage_on_page};
    store_list(r->usage->store, &r->list);
}

static void count(struct usage_root *r)
{
    if (r->counting || r->usage->stopping)
        return;
    r->counting = true;
    r->found = (struct amount){0};
    r->before = r->written;
    r->list.after = STR_NONE;
    list_page(r);
}

static enum usage_answer wait_for_count(struct usage_root *r, struct usage_claim *c)
{
    if (r->usage->stopping)
        return grant(r, c);
    list_push(&r->waiters, &c->link);
    count(r);
    return USAGE_WAITS;
}

/* By a count that another one would not change. */
static bool is_fresh(const struct usage_root *r)
{
    return !r->counting && r->written.streams == 0 && r->written.bytes == 0 &&
           r->usage->sched->now_ms - r->counted_ms < USAGE_FRESH_MS;
}

enum usage_answer usage_take(struct usage *u, struct usage_claim *c)
{
    struct usage_root *r = root_of(u, c->root);
    c->of = NULL;
    if (!r->counted)
        return wait_for_count(r, c);
    if (fits(r, c)) {
        if (u->sched->now_ms - r->counted_ms >= USAGE_RECOUNT_MS)
            count(r);
        return grant(r, c);
    }
    return is_fresh(r) ? USAGE_REFUSED : wait_for_count(r, c);
}
