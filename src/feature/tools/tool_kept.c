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
 * A page that is not full waits for more rows, or for the end. */
#include "base/err.h"
#include "feature/tools/tool_core.h"

#include <assert.h>
#include <string.h>

#define SECOND      1000
#define PATIENCE_MS (5 * SECOND) /* with a store that does not answer: the call waits */
#define RETRY_MS    500

void tool_kept_state(const uint8_t id[TOOL_KEEP_ID], uint64_t row, int64_t deadline_s,
                     uint8_t out[TOOL_KEPT_STATE])
{
    memcpy(out, id, TOOL_KEEP_ID);
    tool_put_be(out + TOOL_KEEP_ID, row, 8);
    tool_put_be(out + TOOL_KEEP_ID + 8, (uint64_t)deadline_s, 4);
}

static const uint8_t *kept_id(const struct tool_job *j)
{
    return (const uint8_t *)j->state.p;
}

static void tool_kept_answer(struct tool_job *j, size_t n, bool more)
{
    uint8_t state[TOOL_KEPT_STATE];
    tool_kept_state(kept_id(j), j->row + n, j->deadline_s, state);
    tool_rows_put(&j->rows, n, &j->call->result);
    tool_job_page_state(j, more ? str_of((const char *)state, sizeof state) : STR_NONE);
}

/* ---- waiting ---- */

static void tool_kept_read_on(struct tool_job *j);

static void tool_kept_on_changed(struct store_watch *w, struct str name)
{
    struct tool_job *j = container_of(w, struct tool_job, watch);
    j->changed = true;
    if (j->under_way || j->call == NULL)
        return;
    timer_stop(&j->timer);
    tool_kept_read_on(j);
}

static void tool_kept_on_deadline(struct timer *t)
{
    tool_kept_read_on(container_of(t, struct tool_job, timer));
}

static bool is_late(const struct tool_job *j)
{
    return j->all->setup.sched->wall_ms / SECOND > j->deadline_s;
}

static void wait_for_more(struct tool_job *j)
{
    if (j->changed) {
        tool_kept_read_on(j);
        return;
    }
    int64_t left_ms = (j->deadline_s + 1) * SECOND - j->all->setup.sched->wall_ms;
    j->timer.fire = tool_kept_on_deadline;
    sched_start(j->all->setup.sched, &j->timer, left_ms > 0 ? (uint64_t)left_ms : 1);
}

/* A stall of the store is waited out. False: for too long. */
static bool wait_for_store(struct tool_job *j)
{
    struct sched *sched = j->all->setup.sched;
    if (j->trouble_ms == 0)
        j->trouble_ms = sched->now_ms;
    if (sched->now_ms - j->trouble_ms >= PATIENCE_MS)
        return false;
    j->timer.fire = tool_kept_on_deadline;
    sched_start(sched, &j->timer, RETRY_MS);
    return true;
}

/* ---- reading ---- */

/* Adds what was read to the rows, and puts the failure aside that the last event may be. */
static void take_rows(struct tool_job *j, struct store_read *r, struct str *failure)
{
    struct buf stored = {0};
    struct str rest, row;
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&stored, r->slices[i].bytes);
    rest = buf_str(&stored);
    for (uint64_t at = r->ordinal; tool_rows_cut(&rest, &row); at++) {
        if (r->info.end == END_FAILED && at + 1 == r->info.events)
            *failure = arena_dup(&j->arena, row);
        else
            tool_rows_add(&j->rows, row);
    }
    buf_deinit(&stored);
}

/* The page is not full, and no more is stored. */
static void answer_end(struct tool_job *j, enum end_reason end, struct str failure)
{
    size_t n = tool_rows_count(&j->rows);
    if (end == END_COMPLETED)
        tool_kept_answer(j, n, false);
    else if (end == END_NONE && !is_late(j))
        wait_for_more(j);
    else if (n > 0)
        tool_kept_answer(j, n, true); /* the next page says how it ended */
    else if (failure.n > 0)
        tool_job_failed_with(j, failure);
    else
        tool_job_failed(j, true, "the result broke off before its end; ask for it anew");
}

static void tool_kept_on_read(struct store_read *r, int err)
{
    struct tool_job *j = container_of(r, struct tool_job, read);
    const struct tool_spec *spec = j->tool->spec;
    struct str failure = STR_NONE;
    struct stream_info info = r->info;
    if (err == 0)
        take_rows(j, r, &failure);
    store_read_release(r);
    if (!tool_job_back(j))
        return;
    if (err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_GAP) {
        tool_job_expired(j);
        return;
    }
    if (ERR_IS_PASSING(err) && wait_for_store(j))
        return;
    if (err != 0) {
        tool_job_failed(j, true, "the result cannot be read: %s", err_text(err));
        return;
    }
    j->trouble_ms = 0;
    size_t n = tool_rows_page(&j->rows, spec->page_rows, spec->page_bytes);
    uint64_t next = j->row + tool_rows_count(&j->rows);
    bool is_full = n == spec->page_rows || n < tool_rows_count(&j->rows);
    if (is_full && (n < tool_rows_count(&j->rows) || next < info.events))
        tool_kept_answer(j, n, true);
    else if (next < info.events && failure.n == 0)
        tool_kept_read_on(j);
    else
        answer_end(j, info.end, failure);
}

static void tool_kept_read_on(struct tool_job *j)
{
    j->changed = false;
    j->read = (struct store_read){.name = j->name,
                                  .from = READ_EVENT,
                                  .event = j->row + tool_rows_count(&j->rows),
                                  .max_bytes = j->tool->spec->page_bytes,
                                  .touch = true,
                                  .done = tool_kept_on_read};
    tool_keep_use(j->all, j->name);
    tool_job_begin(j);
    store_read(j->all->setup.store, &j->read);
}

void tool_kept_start(struct tool_job *j)
{
    if (j->state.n != TOOL_KEPT_STATE) {
        tool_job_malformed(j);
        return;
    }
    char *name = arena_alloc(&j->arena, TOOL_KEEP_NAME);
    tool_keep_name(kept_id(j), name);
    j->name = str_of(name, TOOL_KEEP_NAME);
    j->row = tool_get_be(kept_id(j) + TOOL_KEEP_ID, 8);
    j->deadline_s = (int64_t)tool_get_be(kept_id(j) + TOOL_KEEP_ID + 8, 4);
    j->watch = (struct store_watch){.name = j->name, .changed = tool_kept_on_changed};
    j->watches = true;
    store_watch(j->all->setup.store, &j->watch);
    tool_kept_read_on(j);
}
