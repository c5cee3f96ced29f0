// SPDX-License-Identifier: Apache-2.0
/* tool_kept.c -- the pages of a result that is kept, behind the first.
 *
 * A result is a stream, one row an event. That it is complete is said by how the stream ended, and
 * by nothing else:
 *
 *     END_COMPLETED   these are all the rows
 *     END_FAILED      the last event is no row but tells what went wrong
 *     open            it is being made; or whoever made it is gone, once its time is up
 *
 * A page that is not full waits for more rows, or for the end:
 *
 *     READS --not enough--> WAITS --changed, or time is up--> READS --page or end--> answered
 *       `--changed meanwhile--> STALE --not enough--> READS
 */
#include "base/be.h"
#include "base/err.h"
#include "feature/tools/tool_core.h"
#include "feature/tools/tool_rows.h"

#include <string.h>

#define SECOND       1000
#define RETRY_FOR_MS (5 * SECOND) /* with a store that does not answer: the call waits */
#define RETRY_MS     500

struct tool_kept {
    struct tool_page *page;
    enum {
        KEPT_READS,
        KEPT_STALE, /* reads, and something has changed since it began */
        KEPT_WAITS,
    } state;
    struct str name;
    uint64_t row; /* that the page begins with */
    int64_t deadline_s;
    struct tool_rows rows;
    struct store_watch watch;
    struct store_read read;
    struct timer timer;
    uint64_t trouble_ms; /* since when the store has not answered; 0: it does */
};

void tool_kept_state(const uint8_t id[TOOL_KEEP_ID], uint64_t row, int64_t deadline_s,
                     uint8_t out[TOOL_KEPT_STATE])
{
    memcpy(out, id, TOOL_KEEP_ID);
    be_put(out + TOOL_KEEP_ID, row, 8);
    be_put(out + TOOL_KEEP_ID + 8, (uint64_t)deadline_s, 4);
}

static const uint8_t *kept_id(const struct tool_kept *k)
{
    return (const uint8_t *)k->page->state.p;
}

static void tool_kept_answer(struct tool_kept *k, size_t n, bool more)
{
    uint8_t state[TOOL_KEPT_STATE];
    tool_kept_state(kept_id(k), k->row + n, k->deadline_s, state);
    tool_rows_put(&k->rows, n, &k->page->call->result);
    tool_page_done(k->page, more ? str_of((const char *)state, sizeof state) : STR_NONE);
}

/* ---- waiting ---- */

static void tool_kept_read_on(struct tool_kept *k);

static void tool_kept_on_changed(struct store_watch *w, struct str name)
{
    struct tool_kept *k = container_of(w, struct tool_kept, watch);
    if (k->state != KEPT_WAITS)
        k->state = KEPT_STALE;
    else
        tool_kept_read_on(k);
}

static void tool_kept_on_deadline(struct timer *t)
{
    tool_kept_read_on(container_of(t, struct tool_kept, timer));
}

static bool is_late(const struct tool_kept *k)
{
    return k->page->all->setup.sched->wall_ms / SECOND > k->deadline_s;
}

static void tool_kept_wait(struct tool_kept *k, uint64_t ms)
{
    k->state = KEPT_WAITS;
    sched_start(k->page->all->setup.sched, &k->timer, ms);
}

static void wait_for_more(struct tool_kept *k)
{
    int64_t left_ms = (k->deadline_s + 1) * SECOND - k->page->all->setup.sched->wall_ms;
    if (k->state == KEPT_STALE)
        tool_kept_read_on(k);
    else
        tool_kept_wait(k, left_ms > 0 ? (uint64_t)left_ms : 1);
}

/* A stall of the store is waited out. False: for too long. */
static bool wait_for_store(struct tool_kept *k)
{
    uint64_t now_ms = k->page->all->setup.sched->now_ms;
    if (k->trouble_ms == 0)
        k->trouble_ms = now_ms;
    if (now_ms - k->trouble_ms >= RETRY_FOR_MS)
        return false;
    tool_kept_wait(k, RETRY_MS);
    return true;
}

/* ---- reading ---- */

/* Adds what was read to the rows, and puts the failure aside that the last event may be. */
static void take_rows(struct tool_kept *k, struct store_read *r, struct str *failure)
{
    struct buf stored = {0};
    struct str rest, row;
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&stored, r->slices[i].bytes);
    rest = buf_str(&stored);
    for (uint64_t at = r->ordinal; tool_rows_cut(&rest, &row); at++) {
        if (r->info.end == END_FAILED && at + 1 == r->info.events)
            *failure = arena_dup(&k->page->arena, row);
        else
            tool_rows_add(&k->rows, row);
    }
    buf_deinit(&stored);
}

/* The page is not full, and no more is stored. */
static void answer_end(struct tool_kept *k, enum end_reason end, struct str failure)
{
    size_t n = tool_rows_count(&k->rows);
    if (end == END_COMPLETED)
        tool_kept_answer(k, n, false);
    else if (end == END_NONE && !is_late(k))
        wait_for_more(k);
    else if (n > 0)
        tool_kept_answer(k, n, true); /* the next page says how it ended */
    else if (failure.n > 0)
        tool_page_failed_with(k->page, failure);
    else
        tool_page_failed(k->page, true, "the result broke off before its end; ask for it anew");
}

static void tool_kept_on_rows(struct tool_kept *k, const struct stream_info *info,
                              struct str failure)
{
    const struct tool_spec *spec = k->page->tool->spec;
    size_t count = tool_rows_count(&k->rows);
    size_t n = tool_rows_page(&k->rows, spec->page_rows, spec->page_bytes);
    uint64_t next = k->row + count;
    bool is_full = n == spec->page_rows || n < count;
    k->trouble_ms = 0;
    if (is_full && (n < count || next < info->events))
        tool_kept_answer(k, n, true);
    else if (next < info->events && failure.n == 0)
        tool_kept_read_on(k);
    else
        answer_end(k, info->end, failure);
}

static void tool_kept_on_read(struct store_read *r, int err)
{
    struct tool_kept *k = container_of(r, struct tool_kept, read);
    struct tool_page *p = k->page;
    struct str failure = STR_NONE;
    struct stream_info info = r->info;
    if (err == 0)
        take_rows(k, r, &failure);
    store_read_release(r);
    if (!tool_page_back(p))
        return;
    if (err == 0)
        tool_kept_on_rows(k, &info, failure);
    else if (err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_GAP)
        tool_page_expired(p);
    else if (!ERR_IS_PASSING(err) || !wait_for_store(k))
        tool_page_failed(p, true, "the result cannot be read: %s", err_text(err));
}

static void tool_kept_read_on(struct tool_kept *k)
{
    struct tools *t = k->page->all;
    k->state = KEPT_READS;
    timer_stop(&k->timer);
    k->read = (struct store_read){.name = k->name,
                                  .from = READ_EVENT,
                                  .event = k->row + tool_rows_count(&k->rows),
                                  .max_bytes = k->page->tool->spec->page_bytes,
                                  .touch = true,
                                  .done = tool_kept_on_read};
    tool_keep_use(t, k->name);
    tool_page_begin(k->page);
    store_read(t->setup.store, &k->read);
}

void tool_kept_start(struct tool_page *p)
{
    if (p->state.n != TOOL_KEPT_STATE) {
        tool_page_malformed(p);
        return;
    }
    struct tool_kept *k = arena_alloc(&p->arena, sizeof *k);
    char *name = arena_alloc(&p->arena, TOOL_KEEP_NAME);
    *k = (struct tool_kept){.page = p, .name = str_of(name, TOOL_KEEP_NAME)};
    p->kept = k;
    tool_keep_name(kept_id(k), name);
    k->row = be_get(kept_id(k) + TOOL_KEEP_ID, 8);
    k->deadline_s = (int64_t)be_get(kept_id(k) + TOOL_KEEP_ID + 8, 4);
    k->watch = (struct store_watch){.name = k->name, .changed = tool_kept_on_changed};
    timer_init(&k->timer, tool_kept_on_deadline);
    store_watch(p->all->setup.store, &k->watch);
    tool_kept_read_on(k);
}

void tool_kept_end(struct tool_kept *k)
{
    store_unwatch(k->page->all->setup.store, &k->watch);
    timer_stop(&k->timer);
    tool_rows_deinit(&k->rows);
}
