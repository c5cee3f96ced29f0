// SPDX-License-Identifier: Apache-2.0
/* tool_run.c -- a result that is being made: its first page, and the stream that keeps it.
 *
 * A result that fits on one page is answered and forgotten. Otherwise all of it goes into a stream,
 * its first page included; that page is answered when the first write is durable, and the run goes
 * on by itself. At most one write is under way; what comes meanwhile goes into the next, and when
 * too much is waiting the maker is held back.
 *
 * The stream is closed in one write with the last rows: as END_COMPLETED if the maker has said that
 * all is made, as END_FAILED behind one more event that says what went wrong. A crash leaves it
 * open, and so does a store that takes no more; see tool_kept.c.
 *
 * The maker and the stream have a state each:
 *
 *     GIVES --too much waits--> HELD --room--> GIVES
 *     GIVES, HELD --it ends, or fails, or is stopped--> GONE
 *
 *     NOTHING --first write--> OPEN --write--> OPEN --last write--> OVER
 *        |                      |  ^
 *        |         no answer in |  | it was done all the same: the failure goes behind it
 *        |         time         v  |
 *        |                    DOUBT --failure written--> OVER
 *        `---- trouble, abandoned ----> OVER <---- not ours any more, or trouble with the failure
 *
 * A write that is refused while the stream is OPEN leaves a hole: the maker is stopped, and the
 * failure is the last write. A run is gone once its stream is OVER or its page answered at once. */
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "base/units.h"
#include "feature/tools/tool_core.h"
#include "feature/tools/tool_rows.h"
#include "stream/writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PENDING_MAX       (512 * 1024) /* bytes that wait for the write under way */
#define WRITE_MAX         (4 * 1024 * 1024)
/* With a store that does not answer; while the call waits for its first page, less. */
#define RETRY_FOR_MS      (30 * SECOND_MS)
#define CALL_RETRY_FOR_MS (5 * SECOND_MS)
#define DEADLINE_SLACK_S  5 /* for the last write, behind the time that the maker has */

struct tool_making {
    struct tool_run handle; /* the maker's */
    struct tools *all;
    struct tool *tool;
    struct link link;       /* in all->runs */
    struct tool_page *page; /* the first one; NULL: it is answered, or was cancelled */
    struct arena arena;
    enum { MAKER_GIVES, MAKER_HELD, MAKER_GONE } maker;
    enum { STREAM_NOTHING, STREAM_OPEN, STREAM_DOUBT, STREAM_OVER } stream;
    uint8_t id[TOOL_KEEP_ID];
    char name[TOOL_KEEP_NAME];
    struct tool_splitter splitter;
    struct tool_rows pending, going; /* rows that wait; those of the write under way */
    uint64_t taken;                  /* bytes that the maker gave */
    struct timer timer;              /* of the maker's time */
    int64_t deadline_s;
    size_t first; /* rows on the first page, once it is on its way */
    struct stream_config config;
    struct writer writer;
    struct offset tail; /* life == 0: nothing has been stored */
    uint64_t events;    /* before it */
    struct buf failure;
};

static void tool_run_step(struct tool_making *r);

/* ---- lifetime ---- */

static void run_free(struct tool_making *r)
{
    struct tools *t = r->all;
    must(r->maker == MAKER_GONE && !r->writer.busy);
    r->tool->running--;
    timer_stop(&r->timer);
    list_remove(&r->link);
    if (r->tail.life > 0)
        tool_keep_add(t, str_of(r->name, sizeof r->name), r->taken);
    tool_splitter_deinit(&r->splitter);
    tool_rows_deinit(&r->pending);
    tool_rows_deinit(&r->going);
    buf_deinit(&r->failure);
    arena_deinit(&r->arena);
    free(r);
    gate_leave(&t->work);
}

static void stop_making(struct tool_making *r)
{
    if (r->maker == MAKER_GONE)
        return;
    r->maker = MAKER_GONE;
    timer_stop(&r->timer);
    r->tool->spec->maker->stop(r->tool->spec->ctx, &r->handle);
}

/* The first one counts. */
static void tool_run_fail(struct tool_making *r, bool retryable, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void tool_run_fail(struct tool_making *r, bool retryable, const char *fmt, ...)
{
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (r->failure.n == 0)
        tool_put_failure(&r->failure, TOOL_CODE_UNHANDLED, str_of_cstr(message), retryable);
    stop_making(r);
}

/* ---- writing ---- */

/* Takes from the front of the rows that wait, so that no write is too large for the store. */
static void take_pending(struct tool_making *r)
{
    size_t count = tool_rows_count(&r->pending), n = tool_rows_page(&r->pending, count, WRITE_MAX);
    if (n == count) {
        struct tool_rows empty = r->going;
        r->going = r->pending;
        r->pending = empty;
        return;
    }
    struct tool_rows rest = {0};
    for (size_t i = 0; i < count; i++) {
        struct str row = tool_rows_at(&r->pending, i);
        tool_rows_add(i < n ? &r->going : &rest, str_of(row.p, row.n - 1));
    }
    tool_rows_deinit(&r->pending);
    r->pending = rest;
}

static void write_going(struct tool_making *r)
{
    bool is_first = r->stream == STREAM_NOTHING;
    bool is_last = r->maker == MAKER_GONE && tool_rows_count(&r->pending) == 0;
    bool failed = r->failure.n > 0;
    if (is_last && failed)
        tool_rows_add(&r->going, buf_str(&r->failure));
    r->writer.write = (struct store_write){.name = str_of(r->name, sizeof r->name),
                                           .create = is_first ? &r->config : NULL,
                                           .data = buf_str(&r->going.bytes),
                                           .ends = (const uint32_t *)r->going.ends.p,
                                           .n_events = (uint32_t)tool_rows_count(&r->going),
                                           .if_match = !is_first,
                                           .match = r->tail,
                                           .close = is_last};
    if (is_last)
        r->writer.write.end = failed ? END_FAILED : END_COMPLETED;
    r->writer.events = r->events;
    r->writer.retry_for_ms = r->page != NULL ? CALL_RETRY_FOR_MS : RETRY_FOR_MS;
    writer_start(&r->writer, r->all->setup.store);
}

/* What waits for the first rows, and is to be answered last of all: whoever asked may do anything
 * then. */
static struct tool_page *take_page(struct tool_making *r)
{
    struct tool_page *p = r->page;
    r->page = NULL;
    if (p != NULL)
        p->run = NULL;
    return p;
}

/* What is stored has a hole behind it, so that it can only end as failed; if not even that can be
 * written, or it is not ours any more, it stays open. */
static void on_trouble(struct tool_making *r, int err)
{
    bool was_failure = r->writer.write.end == END_FAILED;
    bool lost =
        err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_CLOSED || err == ERR_TAIL_MOVED;
    if (r->stream == STREAM_NOTHING || lost || was_failure)
        r->stream = STREAM_OVER;
    else if (r->stream != STREAM_OVER)
        r->stream = ERR_IS_PASSING(err) ? STREAM_DOUBT : STREAM_OPEN;
    tool_rows_clear(&r->pending);
    tool_rows_clear(&r->going);
    r->failure.n = 0;
    tool_run_fail(r, true, "the result cannot be kept: %s",
                  ERR_IS_PASSING(err) ? "the store did not answer in time" : err_text(err));
}

/* What is stored ends there now. */
static void tool_run_on_tail(struct tool_making *r, const struct store_write *w, bool is_last)
{
    r->tail = (struct offset){w->info.life, w->info.tail};
    r->events = w->info.events;
    tool_rows_clear(&r->going);
    if (r->stream != STREAM_OVER) /* abandoned */
        r->stream = is_last ? STREAM_OVER : STREAM_OPEN;
}

static void tool_run_on_written(struct writer *writer, int err)
{
    struct tool_making *r = container_of(writer, struct tool_making, writer);
    const struct store_write *w = &writer->write;
    struct tool_page *p = NULL;
    uint8_t state[TOOL_KEPT_STATE];
    if (err == 0 && w->create != NULL && !w->created)
        err = ERR_EXISTS;
    if (err == ERR_TAIL_MOVED && r->stream == STREAM_DOUBT && w->info.life == r->tail.life) {
        tool_run_on_tail(r, w, false); /* by the write that was given up */
    } else if (err != 0) {
        on_trouble(r, err);
    } else {
        p = take_page(r);
        if (p != NULL)
            tool_rows_put(&r->going, r->first, &p->call->result);
        tool_kept_state(r->id, r->first, r->deadline_s, state);
        tool_run_on_tail(r, w, w->close);
    }
    tool_run_step(r);
    if (p != NULL)
        tool_page_done(p, str_of((const char *)state, sizeof state));
}

static void notify_room(struct tool_making *r)
{
    if (r->maker != MAKER_HELD || r->pending.bytes.n > PENDING_MAX / 2)
        return;
    r->maker = MAKER_GIVES;
    r->tool->spec->maker->room(r->tool->spec->ctx, &r->handle);
}

/* The rows that have come are more than one page. */
static bool fills_page(struct tool_making *r)
{
    const struct tool_spec *s = r->tool->spec;
    size_t n = tool_rows_page(&r->pending, s->page_rows, s->page_bytes);
    r->first = n;
    return n < tool_rows_count(&r->pending);
}

/* The page is not answered, and no write is under way. True: now it is, and the run is gone. */
static bool answer_at_once(struct tool_making *r)
{
    bool failed = r->failure.n > 0;
    if (!failed && (r->maker != MAKER_GONE || fills_page(r)))
        return false;
    struct tool_page *p = take_page(r);
    struct buf failure = r->failure;
    r->failure = (struct buf){0};
    if (!failed)
        tool_rows_put(&r->pending, tool_rows_count(&r->pending), &p->call->result);
    run_free(r);
    if (failed)
        tool_page_failed_with(p, buf_str(&failure));
    else
        tool_page_done(p, STR_NONE);
    buf_deinit(&failure);
    return true;
}

/* What comes next; the run may be gone afterwards. */
static void tool_run_step(struct tool_making *r)
{
    if (r->writer.busy)
        return;
    if (r->page != NULL && answer_at_once(r))
        return;
    if (r->stream == STREAM_OVER) {
        run_free(r);
        return;
    }
    if (r->page != NULL && !fills_page(r))
        return;
    if (tool_rows_count(&r->pending) > 0 || r->maker == MAKER_GONE) {
        take_pending(r);
        must(r->page == NULL || r->first <= tool_rows_count(&r->going));
        write_going(r);
    }
    notify_room(r);
}

/* ---- the maker's side ---- */

static void tool_run_check_rows(struct tool_making *r, enum tool_rows_fault fault)
{
    unsigned long long row = r->splitter.rows + 1;
    switch (fault) {
    case TOOL_ROWS_FINE: break;
    case TOOL_ROWS_JSON:
        tool_run_fail(r, false, "row %llu of the result is not valid JSON", row);
        break;
    case TOOL_ROWS_LARGE:
        tool_run_fail(r, false, "row %llu of the result has more than %zu bytes", row,
                      r->splitter.row_max);
        break;
    case TOOL_ROWS_AFTER:
        tool_run_fail(r, false, "something stands behind the result's array");
        break;
    case TOOL_ROWS_CUT:
        tool_run_fail(r, false, "the result ended in the middle of its array");
        break;
    }
}

bool tool_run_output(struct tool_run *run, struct str bytes)
{
    struct tool_making *r = container_of(run, struct tool_making, handle);
    const struct tool_spec *s = r->tool->spec;
    uint64_t room = s->max_output - r->taken;
    r->taken += bytes.n;
    if (bytes.n > room)
        bytes.n = (size_t)room;
    tool_run_check_rows(r, tool_splitter_feed(&r->splitter, bytes, &r->pending));
    if (r->taken > s->max_output)
        tool_run_fail(r, false, "the result has more than %llu bytes",
                      (unsigned long long)s->max_output);
    if (r->maker == MAKER_GIVES && r->writer.busy && r->pending.bytes.n > PENDING_MAX)
        r->maker = MAKER_HELD;
    bool goes_on = r->maker == MAKER_GIVES;
    tool_run_step(r);
    return goes_on;
}

void tool_run_end(struct tool_run *run, struct str message, bool retryable)
{
    struct tool_making *r = container_of(run, struct tool_making, handle);
    r->maker = MAKER_GONE;
    timer_stop(&r->timer);
    if (message.n > 0)
        tool_run_fail(r, retryable, "%.*s", message.n < 1000 ? (int)message.n : 1000, message.p);
    else
        tool_run_check_rows(r, tool_splitter_end(&r->splitter, &r->pending));
    tool_run_step(r);
}

static void tool_run_on_timeout(struct timer *t)
{
    struct tool_making *r = container_of(t, struct tool_making, timer);
    tool_run_fail(r, true, "the tool took longer than %llu ms",
                  (unsigned long long)r->tool->spec->timeout_ms);
    tool_run_step(r);
}

/* ---- from the outside ---- */

void tool_run_abandon(struct tool_making *r)
{
    take_page(r);
    r->stream = STREAM_OVER;
    stop_making(r);
    writer_stop(&r->writer);
    if (!r->writer.busy)
        run_free(r);
}

void tool_runs_stop(struct tools *t)
{
    list_each_safe (l, &t->runs) {
        struct tool_making *r = list_item(l, struct tool_making, link);
        r->writer.retry_for_ms = 0; /* once more, and no longer */
        writer_retry_now(&r->writer);
        if (r->maker == MAKER_GONE)
            continue;
        tool_run_fail(r, true, "the server was stopped");
        tool_run_step(r);
    }
}

void tool_run_start(struct tool_page *p)
{
    const struct tool_spec *s = p->tool->spec;
    struct tool_making *r = mem_zalloc(sizeof *r);
    struct sched *sched = p->all->setup.sched;
    r->all = p->all;
    r->tool = p->tool;
    r->page = p;
    p->run = r;
    r->handle.args = arena_dup(&r->arena, p->args);
    rand_bytes(r->id, sizeof r->id);
    tool_keep_name(r->id, r->name);
    r->splitter.row_max = TOOL_ROW_MAX;
    r->config = tool_keep_config(p->all, STR("application/json"), 2 * s->max_output + WRITE_MAX,
                                 s->timeout_ms / 1000 + 1);
    r->deadline_s = (sched->wall_ms + (int64_t)s->timeout_ms) / 1000 + 1 + DEADLINE_SLACK_S;
    timer_init(&r->timer, tool_run_on_timeout);
    writer_init(&r->writer, RETRY_FOR_MS, tool_run_on_written);
    sched_start(sched, &r->timer, s->timeout_ms);
    list_push(&p->all->runs, &r->link);
    gate_enter(&p->all->work);
    s->maker->start(s->ctx, &r->handle);
}
