// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/recorder.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "base/utf8.h"
#include "stream/writer.h"

#include <stdlib.h>

#define KEEP_BYTES (16 * 1024) /* of an empty buffer; thousands of generations are idle */

/* Stored events in a row, as a write wants them. */
struct run {
    struct buf bytes, ends;
    uint64_t n; /* without a notice */
};

enum step { STEP_NONE, STEP_CREATE, STEP_APPEND, STEP_SNAPSHOT, STEP_CLOSE };

/* `going` is what the current step writes. It stays until the store has taken it, or was asked
 * long enough. */
struct recorder {
    struct sched *sched;
    struct store *store;
    struct recorder_config config;
    struct arena texts; /* of config */
    struct stream_config stream, snapshot;
    struct str snapshot_name;
    struct fold *fold; /* of the durable events; may be NULL */
    struct buf lines;  /* of an event on its way to the fold */

    struct run pending, going;
    uint64_t taken;                  /* number of the last event in either */
    uint64_t seq;                    /* ... and of the last that is durable */
    struct offset tail;              /* that the next write must find */
    uint64_t first_pos, first_event; /* of the stream */

    enum step step;
    struct writer writer;
    struct task wake;
    uint64_t began_ms; /* the write under way */

    uint64_t hole_start, hole_end; /* the last jump of positions: there is nothing between */
    struct pins pins;
    struct timer lag; /* it waits for readers; those that hold it up are cut off then */
    bool lagged;      /* ... and still waits, for others */

    enum end_reason end; /* to come; END_NONE: not yet asked for */
    struct buf message;
    bool created, snapshot_due, over;
    bool in_doubt; /* a write was given up that may have been done */
    bool full;     /* room() is due */
    bool busy;     /* callbacks are being called */
    bool freed;    /* goes as soon as neither they nor a write are under way */
};

/* ---- runs ---- */

static void run_clear(struct run *u)
{
    u->bytes.n = u->ends.n = 0;
    u->n = 0;
    if (u->bytes.cap > KEEP_BYTES)
        buf_deinit(&u->bytes);
    if (u->ends.cap > KEEP_BYTES)
        buf_deinit(&u->ends);
}

static void run_deinit(struct run *u)
{
    buf_deinit(&u->bytes);
    buf_deinit(&u->ends);
}

static uint32_t run_end(const struct run *u, uint64_t i)
{
    uint32_t end;
    memcpy(&end, u->ends.p + i * sizeof end, sizeof end);
    return end;
}

/* Moves the first n events of one to the other, which is empty. */
static void run_move(struct run *to, struct run *from, uint64_t n)
{
    if (n == from->n) {
        struct run empty = *to;
        *to = *from;
        *from = empty;
        return;
    }
    uint32_t cut = run_end(from, n - 1);
    size_t ends = n * sizeof cut;
    buf_put(&to->bytes, str_of(from->bytes.p, cut));
    buf_put(&to->ends, str_of(from->ends.p, ends));
    to->n = n;
    memmove(from->bytes.p, from->bytes.p + cut, from->bytes.n - cut);
    from->bytes.n -= cut;
    for (uint64_t i = n; i < from->n; i++) {
        uint32_t end = run_end(from, i) - cut;
        memcpy(from->ends.p + (i - n) * sizeof end, &end, sizeof end);
    }
    from->ends.n -= ends;
    from->n -= n;
}

/* What was put into u->bytes since the last one is an event. */
static void run_end_event(struct run *u)
{
    must(u->bytes.n <= UINT32_MAX);
    uint32_t end = (uint32_t)u->bytes.n;
    buf_put(&u->ends, str_of((const char *)&end, sizeof end));
}

/* ---- the format ---- */

/* Takes the first line off *rest, which is not NULL. Behind a last line end comes one more, empty
 * line; behind the last line *rest is NULL. */
static struct str cut_line(struct str *rest)
{
    size_t n = 0;
    while (n < rest->n && rest->p[n] != '\n' && rest->p[n] != '\r')
        n++;
    struct str line = str_of(rest->p, n);
    bool crlf = n + 1 < rest->n && rest->p[n] == '\r' && rest->p[n + 1] == '\n';
    *rest = n == rest->n ? STR_NONE : str_skip(*rest, n + (crlf ? 2 : 1));
    return line;
}

static struct str or_empty(struct str s)
{
    return s.p == NULL ? STR("") : s;
}

#define ID    STR("id: ")
#define EVENT STR("event: ")
#define DATA  STR("data: ")

/* An upper bound of the stored event's size; stops counting beyond max. */
static size_t stored_bound(const struct recorder_form *form, struct str type, struct str data,
                           size_t max)
{
    size_t n = ID.n + form->generation.n + 1 + NUM_TEXT_MAX + EVENT.n + type.n + 3;
    if (data.n > max)
        return data.n;
    for (struct str rest = or_empty(data); rest.p != NULL && n <= max;)
        n += DATA.n + cut_line(&rest).n + 1;
    return n;
}

static void put_field(struct buf *out, struct str name, struct str value)
{
    buf_put(out, name);
    buf_put(out, value);
    buf_putc(out, '\n');
}

static void put_id(struct buf *out, const struct recorder_form *form, uint64_t number)
{
    buf_put(out, ID);
    if (form->generation.n > 0) {
        buf_put(out, form->generation);
        buf_putc(out, ':');
    }
    buf_put_u64(out, number);
    buf_putc(out, '\n');
}

/* Line ends in JSON stand between its tokens. */
static void put_line(struct buf *out, struct str data)
{
    for (struct str rest = or_empty(data); rest.p != NULL;) {
        buf_put(out, cut_line(&rest));
        buf_putc(out, rest.p != NULL ? ' ' : '\n');
    }
}

void recorder_put_event(struct buf *out, const struct recorder_form *form, uint64_t number,
                        struct str type, struct str data)
{
    if (form->lines) {
        put_line(out, data);
        return;
    }
    if (number > 0 && !form->bare)
        put_id(out, form, number);
    if (type.n > 0 && !str_eq(type, STR("message")))
        put_field(out, EVENT, type);
    for (struct str rest = or_empty(data); rest.p != NULL;)
        put_field(out, DATA, cut_line(&rest));
    buf_putc(out, '\n');
}

static void recorder_add_event(struct recorder *r, struct str type, struct str data)
{
    struct run *u = &r->pending;
    recorder_put_event(&u->bytes, &r->config.form, ++r->taken, type, data);
    run_end_event(u);
    u->n++;
}

static void put_notice(struct run *u, struct str message)
{
    put_field(&u->bytes, STR(": "), message);
    buf_putc(&u->bytes, '\n');
    run_end_event(u);
}

struct str recorder_notice(struct str stored)
{
    if (!str_starts(stored, STR(": ")))
        return STR_NONE;
    struct str rest = str_skip(stored, 2);
    return cut_line(&rest);
}

/* One line, of a size that a notice may have, and not nothing. */
static void set_message(struct recorder *r, struct str message)
{
    if (message.n == 0)
        message = STR("the generation failed");
    if (message.n > RECORDER_MESSAGE_MAX) {
        message.n = RECORDER_MESSAGE_MAX;
        message.n -= utf8_incomplete_tail(message);
    }
    r->message.n = 0;
    for (size_t i = 0; i < message.n; i++) {
        unsigned char c = (unsigned char)message.p[i];
        buf_putc(&r->message, c < 0x20 || c == 0x7f ? ' ' : (char)c);
    }
}

/* ---- the fold ---- */

struct str recorder_event_data(struct str stored, struct str *type, struct buf *lines)
{
    struct str data = STR_NONE;
    size_t n_lines = 0;
    *type = STR_NONE;
    lines->n = 0;
    for (struct str rest = stored; rest.n > 1;) {
        struct str line = cut_line(&rest);
        if (str_starts(line, EVENT))
            *type = str_skip(line, EVENT.n);
        if (!str_starts(line, DATA))
            continue;
        if (n_lines == 1)
            buf_put(lines, data);
        data = str_skip(line, DATA.n);
        if (n_lines++ == 0)
            continue;
        buf_putc(lines, '\n');
        buf_put(lines, data);
    }
    return n_lines > 1 ? buf_str(lines) : data;
}

static void feed_stored(struct recorder *r, struct str stored)
{
    struct str type = STR_NONE, data = stored;
    if (r->config.form.lines)
        data.n--; /* its end */
    else
        data = recorder_event_data(stored, &type, &r->lines);
    fold_feed(r->fold, type, data);
    if (r->lines.cap > KEEP_BYTES)
        buf_deinit(&r->lines);
}

static void feed_run(struct recorder *r, const struct run *u)
{
    uint32_t start = 0, end;
    for (uint64_t i = 0; i < u->n; i++, start = end) {
        end = run_end(u, i);
        feed_stored(r, str_of(u->bytes.p + start, end - start));
    }
}

int recorder_snapshot(const struct recorder *r, struct buf *out, uint64_t *seq)
{
    if (r->fold == NULL)
        return ERR_NOT_FOUND;
    int err = fold_put(r->fold, out);
    if (err == 0)
        *seq = r->seq;
    return err;
}

/* ---- writing ---- */

static void put_going(struct recorder *r)
{
    struct store_write *w = &r->writer.write;
    w->data = buf_str(&r->going.bytes);
    w->ends = (const uint32_t *)r->going.ends.p;
    w->n_events = (uint32_t)(r->going.ends.n / sizeof(uint32_t));
    w->if_match = true;
    w->match = r->tail;
    r->writer.events = r->seq;
}

static void set_write(struct recorder *r, enum step step)
{
    struct store_write *w = &r->writer.write;
    *w = (struct store_write){.name = r->config.name};
    r->writer.retry_for_ms =
        step == STEP_CREATE ? r->config.create_retry_for_ms : RECORDER_RETRY_FOR_MS;
    r->writer.waits_for_room = step != STEP_CREATE;
    switch (step) {
    case STEP_NONE: break; /* nothing is written */
    case STEP_CREATE:
        w->create = &r->stream;
        w->docs = r->config.docs;
        w->n_docs = r->config.n_docs;
        break;
    case STEP_APPEND:
    case STEP_CLOSE: put_going(r); break;
    case STEP_SNAPSHOT:
        w->name = r->snapshot_name;
        w->create = &r->snapshot;
        w->data = buf_str(&r->going.bytes);
        w->n_events = 1;
        break;
    }
    w->close = step == STEP_SNAPSHOT || step == STEP_CLOSE;
    w->end = w->close ? r->end : END_NONE;
}

/* ---- readers ---- */

static struct pin_position tail_position(const struct recorder *r)
{
    return (struct pin_position){r->tail.pos, r->seq};
}

/* The position so many bytes before this one: what lies in the hole is none. */
static uint64_t bytes_back(const struct recorder *r, uint64_t pos, uint64_t bytes)
{
    uint64_t back = pos > bytes ? pos - bytes : 0, hole = r->hole_end - r->hole_start;
    if (back >= r->hole_end)
        return back;
    return back > hole ? back - hole : 0;
}

/* How far readers have to be for so much more. The newest event stays whatever its size. */
static struct pin_position position_needed(const struct recorder *r, uint64_t n_events,
                                           uint64_t bytes)
{
    const struct retain *own = &r->config.retain, *other = &r->store->retain;
    uint64_t events_max = own->events > 0 ? own->events : other->events;
    uint64_t bytes_max = own->bytes > 0 ? own->bytes : other->bytes;
    uint64_t events = r->seq + n_events, end = r->tail.pos + bytes;
    struct pin_position need = {0};
    if (events_max > 0 && events > events_max)
        need.event = events - events_max;
    if (bytes_max > 0)
        need.pos = bytes_back(r, end, bytes_max);
    if (n_events == 1 && need.pos > r->tail.pos)
        need.pos = r->tail.pos;
    return need;
}

static bool recorder_fits(const struct recorder *r, struct pin_position least, uint64_t n_events,
                          uint64_t bytes)
{
    struct pin_position need = position_needed(r, n_events, bytes);
    return n_events == 0 || (least.pos >= need.pos && least.event >= need.event);
}

static uint64_t notice_size(const struct recorder *r)
{
    return r->end == END_FAILED ? STR(": ").n + r->message.n + 2 : 0;
}

/* All that is pending, and what is said behind it. */
static bool close_fits(const struct recorder *r, struct pin_position least)
{
    uint64_t notice = notice_size(r);
    return recorder_fits(r, least, r->pending.n + (notice > 0 ? 1 : 0),
                         r->pending.bytes.n + notice);
}

/* So many of the pending events can be written now. */
static uint64_t count_fitting(const struct recorder *r, struct pin_position least)
{
    uint64_t low = 0, high = r->pending.n + 1; /* low can, high cannot */
    while (low + 1 < high) {
        uint64_t mid = low + (high - low) / 2;
        if (recorder_fits(r, least, mid, run_end(&r->pending, mid - 1)))
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* ---- the next write ---- */

/* An end that somebody asked for, or that the server makes for itself, is not held up. */
static bool waits_for_readers(const struct recorder *r)
{
    return r->end == END_NONE || r->end == END_COMPLETED || r->end == END_FAILED;
}

static enum step wait_for_readers(struct recorder *r)
{
    r->pins.waiting = true;
    return STEP_NONE;
}

/* What comes next; with what it writes in `going`. */
static enum step next_step(struct recorder *r)
{
    r->pins.waiting = false;
    if (!r->created)
        return STEP_CREATE;
    if (r->going.bytes.n > 0)
        return r->step; /* again */
    struct pin_position least = pins_least(&r->pins, tail_position(r));
    if (r->pending.n > 0 && (r->end == END_NONE || r->snapshot_due || !close_fits(r, least))) {
        uint64_t n = count_fitting(r, least);
        if (n == 0 && waits_for_readers(r))
            return wait_for_readers(r);
        if (n > 0) {
            run_move(&r->going, &r->pending, n);
            return STEP_APPEND;
        }
        run_clear(&r->pending);
    }
    if (r->end == END_NONE)
        return STEP_NONE;
    if (r->snapshot_due && fold_put(r->fold, &r->going.bytes) == 0) {
        buf_putc(&r->going.bytes, ',');
        return STEP_SNAPSHOT;
    }
    r->snapshot_due = false;
    if (!close_fits(r, least))
        return wait_for_readers(r);
    run_move(&r->going, &r->pending, r->pending.n);
    if (r->end == END_FAILED)
        put_notice(&r->going, buf_str(&r->message));
    return STEP_CLOSE;
}

static void time_readers(struct recorder *r)
{
    if (!r->pins.waiting) {
        timer_stop(&r->lag);
        r->lagged = false;
    } else if (!timer_running(&r->lag)) {
        sched_start(r->sched, &r->lag, r->config.reader_timeout_ms);
    }
}

static void recorder_step(struct recorder *r)
{
    if (r->writer.busy || r->over)
        return;
    r->step = next_step(r);
    time_readers(r);
    if (r->step == STEP_NONE)
        return;
    set_write(r, r->step);
    r->began_ms = r->sched->now_ms;
    writer_start(&r->writer, r->store);
}

/* What was pending is mostly on its way now. */
static void notify_room(struct recorder *r)
{
    bool wanted = r->full && r->end == END_NONE && !r->over;
    if (!wanted || r->pending.bytes.n >= r->config.pending_max / 2)
        return;
    r->full = false;
    if (r->config.on.room != NULL)
        r->config.on.room(r->config.ctx);
}

/* It goes, unless a write is under way. */
static void destroy(struct recorder *r)
{
    writer_stop(&r->writer);
    if (r->writer.busy)
        return;
    task_cancel(&r->wake);
    timer_stop(&r->lag);
    fold_free(r->fold);
    run_deinit(&r->pending);
    run_deinit(&r->going);
    buf_deinit(&r->lines);
    buf_deinit(&r->message);
    arena_deinit(&r->texts);
    free(r);
}

/* The end of every call from outside: the owner may have let go in one of its callbacks. */
static void recorder_leave(struct recorder *r)
{
    if (!r->freed) {
        recorder_step(r);
        notify_room(r);
    }
    r->busy = false;
    if (r->freed)
        destroy(r);
}

/* ---- the store's answers ---- */

static void recorder_finish(struct recorder *r, enum end_reason end, int err)
{
    r->over = true;
    run_clear(&r->pending);
    run_clear(&r->going);
    r->config.on.ended(r->config.ctx, end, err);
}

/* Events are missing, so it cannot end as anything else. The store is in trouble, or the stream is
 * not ours alone: no snapshot either. */
static void recorder_fail(struct recorder *r, const char *why)
{
    run_clear(&r->pending);
    run_clear(&r->going);
    r->snapshot_due = false;
    r->end = END_FAILED;
    set_message(r, str_of_cstr(why));
}

#define SILENCE "the store did not answer for 30 s"
_Static_assert(RECORDER_RETRY_FOR_MS == 30000, "as it says");

/* The writer has asked long enough. */
static void recorder_drop_write(struct recorder *r, int err)
{
    if (r->step == STEP_SNAPSHOT) {
        run_clear(&r->going);
        r->snapshot_due = false;
    } else if (r->going.n > 0) {
        r->in_doubt = ERR_IS_PASSING(err);
        recorder_fail(r, ERR_IS_PASSING(err) ? SILENCE : err_text(err));
    } else if (r->going.bytes.n > 0) {
        run_clear(&r->going); /* a close that stores nothing may find room where this does not */
        r->end = END_ORPHANED;
    } else {
        recorder_finish(r, END_FAILED, err);
    }
}

/* Somebody else has ended it. What it did not take is no part of it; its snapshot is made all the
 * same, and closing it once more finds out how it ended. */
static void leave_closed(struct recorder *r, enum end_reason end)
{
    run_clear(&r->pending);
    run_clear(&r->going);
    r->end = end;
}

static void recorder_on_failed(struct recorder *r, int err)
{
    const struct stream_info *info = &r->writer.write.info;
    if (ERR_IS_PASSING(err) || err == ERR_FULL) {
        recorder_drop_write(r, err);
    } else if (err == ERR_CLOSED && r->step == STEP_APPEND && r->snapshot_due) {
        leave_closed(r, info->end);
    } else if (r->step == STEP_SNAPSHOT) {
        recorder_drop_write(r, err);
    } else if (err == ERR_TAIL_MOVED && info->life == r->tail.life && r->in_doubt) {
        r->tail.pos = info->tail; /* it was done all the same; the message stands */
        r->in_doubt = false;
    } else if (err == ERR_TAIL_MOVED && info->life == r->tail.life) {
        r->tail.pos = info->tail;
        recorder_fail(r, "somebody else has written to the stream of this generation");
    } else if (err == ERR_TAIL_MOVED) {
        recorder_finish(r, END_FAILED, ERR_NOT_FOUND); /* another life of the name */
    } else {
        recorder_finish(r, err == ERR_CLOSED ? info->end : END_FAILED, err);
    }
}

static void on_created(struct recorder *r, int err)
{
    const struct store_write *w = &r->writer.write;
    if (err == 0 && !w->created)
        err = ERR_EXISTS;
    r->created = err == 0;
    r->over = err != 0;
    r->tail = (struct offset){w->info.life, w->info.tail};
    r->first_pos = w->info.first;
    if (r->created && r->config.pins != NULL)
        pins_publish(&r->pins, r->config.pins, r->config.name);
    r->config.on.started(r->config.ctx, err);
}

static void note_trim(struct recorder *r, const struct stream_info *info)
{
    struct recorder_trim t = {.events = info->first_event - r->first_event,
                              .bytes = info->first - r->first_pos,
                              .first_event = info->first_event,
                              .kept_events = info->events - info->first_event,
                              .kept_bytes = info->bytes};
    if (info->first_event <= r->first_event)
        return;
    r->first_event = info->first_event;
    r->first_pos = info->first;
    if (!r->freed && r->config.on.trimmed != NULL)
        r->config.on.trimmed(r->config.ctx, &t);
}

static void on_recorded(struct recorder *r)
{
    uint64_t n = r->going.n, bytes = r->going.bytes.n;
    struct stream_info info = r->writer.write.info;
    if (r->fold != NULL)
        feed_run(r, &r->going);
    run_clear(&r->going);
    r->seq += n;
    if (info.tail > r->tail.pos + bytes) {
        r->hole_start = r->tail.pos;
        r->hole_end = info.tail - bytes;
    }
    r->tail.pos = info.tail;
    if (n > 0 && r->config.on.recorded != NULL)
        r->config.on.recorded(r->config.ctx, n, bytes, r->sched->now_ms - r->began_ms);
    note_trim(r, &info);
}

static void recorder_on_snapshot(struct recorder *r)
{
    uint64_t bytes = r->going.bytes.n - 1; /* without the comma */
    r->snapshot_due = false;
    run_clear(&r->going);
    if (r->config.on.snapshot != NULL)
        r->config.on.snapshot(r->config.ctx, bytes);
}

static void recorder_on_done(struct recorder *r, int err)
{
    if (r->step == STEP_CREATE) {
        on_created(r, err);
        return;
    }
    if (err != 0) {
        recorder_on_failed(r, err);
        return;
    }
    if (r->step == STEP_SNAPSHOT) {
        recorder_on_snapshot(r);
        return;
    }
    enum end_reason end = r->writer.write.info.end; /* somebody else may have closed it before */
    on_recorded(r);
    if (r->step == STEP_CLOSE && !r->freed)
        recorder_finish(r, end, 0);
}

static void recorder_on_written(struct writer *w, int err)
{
    struct recorder *r = container_of(w, struct recorder, writer);
    r->busy = true;
    if (!r->freed)
        recorder_on_done(r, err);
    recorder_leave(r);
}

/* ---- from outside ---- */

static void recorder_on_moved(struct pins *p)
{
    struct recorder *r = container_of(p, struct recorder, pins);
    sched_post(r->sched, &r->wake);
}

/* The first pending event could not be written for too long. Who came meanwhile has its own time,
 * once: the next time all go who hold it up, or newcomers could do so for ever. */
static void recorder_on_lag(struct timer *t)
{
    struct recorder *r = container_of(t, struct recorder, lag);
    uint64_t bytes = r->pending.n > 0 ? run_end(&r->pending, 0) : notice_size(r);
    uint64_t since_ms = r->sched->now_ms - (r->lagged ? 0 : r->config.reader_timeout_ms);
    r->busy = r->lagged = true;
    uint64_t n = pins_cut(&r->pins, position_needed(r, 1, bytes), tail_position(r), since_ms);
    if (n > 0 && r->config.on.cut != NULL)
        r->config.on.cut(r->config.ctx, n);
    recorder_leave(r);
}

static void recorder_on_wake(struct task *t)
{
    struct recorder *r = container_of(t, struct recorder, wake);
    r->busy = true;
    recorder_leave(r);
}

static void copy_docs(struct recorder *r)
{
    struct doc_put *docs = arena_alloc(&r->texts, (r->config.n_docs + 1) * sizeof *docs);
    for (size_t i = 0; i < r->config.n_docs; i++) {
        docs[i] = r->config.docs[i];
        docs[i].key = arena_dup(&r->texts, docs[i].key);
        if (docs[i].value.p != NULL)
            docs[i].value = arena_dup(&r->texts, docs[i].value);
    }
    r->config.docs = docs;
}

static void set_form(struct recorder *r, const struct recorder_form *form)
{
    r->config.form = *form;
    r->config.form.generation = arena_dup(&r->texts, form->generation);
}

static void copy_config(struct recorder *r, const struct recorder_config *config)
{
    struct recorder_config *c = &r->config;
    must(config->name.n <= RECORDER_NAME_MAX);
    *c = *config;
    c->fold_max = c->fold_max > 0 ? c->fold_max : RECORDER_FOLD_MAX;
    c->event_max = c->event_max > 0 ? c->event_max : RECORDER_EVENT_MAX;
    c->pending_max = c->pending_max > 0 ? c->pending_max : RECORDER_PENDING_MAX;
    c->name = arena_dup(&r->texts, config->name);
    set_form(r, &config->form);
    r->snapshot_name = arena_printf(&r->texts, "%.*s" RECORDER_SNAPSHOT_SUFFIX, (int)config->name.n,
                                    config->name.p);
    copy_docs(r);
    r->stream = (struct stream_config){.content_type = STR(RECORDER_CONTENT_TYPE),
                                       .ttl_s = c->ttl_s,
                                       .expires_ms = STORE_TTL_NONE,
                                       .retain = c->retain};
    r->snapshot = (struct stream_config){
        .content_type = STR("application/json"), .ttl_s = c->ttl_s, .expires_ms = STORE_TTL_NONE};
    if (c->ttl_s != STORE_TTL_NONE)
        r->snapshot.ttl_s += c->snapshot_ttl_s;
}

struct recorder *recorder_new(struct sched *sched, struct store *store,
                              const struct recorder_config *config)
{
    struct recorder *r = mem_zalloc(sizeof *r);
    r->sched = sched;
    r->store = store;
    copy_config(r, config);
    task_init(&r->wake, recorder_on_wake);
    writer_init(&r->writer, RECORDER_RETRY_FOR_MS, recorder_on_written);
    pins_init(&r->pins, recorder_on_moved);
    timer_init(&r->lag, recorder_on_lag);
    if (config->folds)
        r->fold = fold_new(config->fold, r->config.fold_max);
    r->snapshot_due = config->folds;
    recorder_step(r);
    return r;
}

void recorder_settle(struct recorder *r, const struct recorder_form *form, enum fold_kind kind)
{
    must(r->taken == 0);
    set_form(r, form);
    if (!r->config.folds)
        return;
    fold_free(r->fold);
    r->fold = fold_new(kind, r->config.fold_max);
}

void recorder_free(struct recorder *r)
{
    if (r == NULL)
        return;
    r->freed = true;
    pins_deinit(&r->pins);
    timer_stop(&r->lag);
    if (!r->busy)
        destroy(r);
}

static bool type_is_plain(struct str type)
{
    for (size_t i = 0; i < type.n; i++)
        if (type.p[i] == '\0' || type.p[i] == '\r' || type.p[i] == '\n')
            return false;
    return true;
}

int recorder_event(struct recorder *r, struct str type, struct str data)
{
    if (r->over || r->end != END_NONE)
        return ERR_CLOSED;
    if (type.n > RECORDER_TYPE_MAX ||
        stored_bound(&r->config.form, type, data, r->config.event_max) > r->config.event_max)
        return ERR_TOO_LARGE;
    if (!type_is_plain(type))
        return ERR_SYNTAX;
    recorder_add_event(r, type, data);
    sched_post(r->sched, &r->wake); /* with what else comes in this turn */
    if (r->pending.bytes.n >= r->config.pending_max)
        r->full = true;
    return r->full ? 0 : 1;
}

void recorder_take_whole(struct recorder *r, struct buf *bytes)
{
    must(r->taken == 0);
    if (r->over || r->end != END_NONE)
        return;
    fold_free(r->fold);
    r->fold = NULL;
    r->snapshot_due = false;
    buf_deinit(&r->pending.bytes);
    r->pending.bytes = *bytes;
    *bytes = (struct buf){0};
    run_end_event(&r->pending);
    r->pending.n = r->taken = 1;
    sched_post(r->sched, &r->wake);
}

void recorder_end(struct recorder *r, enum end_reason reason, struct str message)
{
    must(reason != END_NONE);
    if (r->over || r->end != END_NONE)
        return;
    r->end = reason;
    set_message(r, message);
    sched_post(r->sched, &r->wake);
}

/* What waits is in no snapshot yet. */
void recorder_end_now(struct recorder *r, enum end_reason reason)
{
    if (r->over || r->end == END_NONE || !r->pins.waiting || r->pending.n == 0)
        return;
    r->end = reason;
    sched_post(r->sched, &r->wake);
}

void recorder_skip_snapshot(struct recorder *r)
{
    r->snapshot_due = false;
}

void recorder_pin(struct recorder *r, struct pin *pin)
{
    pin_add(pin, r->config.pins != NULL ? &r->pins : NULL, (struct pin_position){0},
            r->sched->now_ms);
}

uint64_t recorder_seq(const struct recorder *r)
{
    return r->seq;
}
