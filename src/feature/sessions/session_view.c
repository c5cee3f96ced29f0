// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_view.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/json_view.h"
#include "feature/sessions/session.h"
#include "feature/sessions/session_seal.h"
#include "store/content.h"
#include "store/store.h"

#include <stdlib.h>

#define CONTENT_HEAD (1 + 4)

struct view {
    struct store store;
    struct store *real;
    const struct session_view_ops *ops;
    void *ctx;
    struct gate under_way; /* operations of the real store that we wait for */
};

static struct view *view_of(struct store *s)
{
    return container_of(s, struct view, store);
}

/* ---- names ---- */

struct view_target {
    struct str key;
    enum session_direction direction;
};

static bool find_target(struct str name, struct view_target *out)
{
    if (!str_starts(name, STR(SESSION_PREFIX)))
        return false;
    struct str rest = str_skip(name, sizeof SESSION_PREFIX - 1);
    out->key = str_cut(&rest, '/');
    out->direction = str_eq(rest, STR("out")) ? SESSION_OUT : SESSION_IN;
    return out->key.n > 0 && (out->direction == SESSION_OUT || str_eq(rest, STR("in")));
}

static struct stream_info session_view_shown(struct stream_info info)
{
    info.content_type = STR("application/json");
    return info;
}

/* ---- operations ---- */

static void session_view_begin(struct view *v)
{
    gate_enter(&v->under_way);
}

static void session_view_finish(struct view *v)
{
    gate_leave(&v->under_way);
}

/* Ends an operation that goes no further; run() calls its done() with the result. */
static void session_view_refuse(struct store *s, struct store_call *call, int err,
                                void (*run)(struct task *t))
{
    call->store = s;
    call->result = err;
    task_init(&call->task, run);
    sched_post(s->sched, &call->task);
}

/* ---- contents ---- */

void session_content_put(struct buf *out, bool is_text, struct str content)
{
    char *head = buf_reserve(out, CONTENT_HEAD);
    head[0] = is_text;
    le_put_u32(head + 1, (uint32_t)content.n);
    out->n += CONTENT_HEAD;
    buf_put(out, content);
}

bool session_content_cut(struct str *rest, bool *is_text, struct str *content)
{
    if (rest->n < CONTENT_HEAD || le_get_u32(rest->p + 1) > rest->n - CONTENT_HEAD)
        return false;
    *is_text = rest->p[0] != 0;
    *content = str_of(rest->p + CONTENT_HEAD, le_get_u32(rest->p + 1));
    *rest = str_skip(*rest, CONTENT_HEAD + content->n);
    return true;
}

static int session_view_put_text(struct buf *out, struct str inside)
{
    size_t at = out->n;
    view_decode(inside, out);
    return utf8_valid(str_of(out->p + at, out->n - at)) ? 0 : ERR_SYNTAX; /* half of a pair */
}

static int session_view_put_data(struct buf *out, struct str inside)
{
    if (memchr(inside.p, '\\', inside.n) == NULL)
        return b64_take(out, inside);
    struct buf plain = {0}; /* some encoders write a slash as `\/` */
    view_decode(inside, &plain);
    int err = b64_take(out, buf_str(&plain));
    buf_deinit(&plain);
    return err;
}

/* One element of an append: valid JSON, so far. */
static int put_element(struct buf *out, struct str element)
{
    if (view_type(element) != VIEW_OBJECT)
        return ERR_SYNTAX;
    struct str rest = view_inside(element), name, value, more;
    if (!view_member(&rest, &name, &value) || view_type(value) != VIEW_STRING)
        return ERR_SYNTAX;
    bool is_text = str_eq(name, STR("text"));
    if ((!is_text && !str_eq(name, STR("data"))) || view_member(&rest, &name, &more))
        return ERR_SYNTAX;
    size_t at = out->n;
    session_content_put(out, is_text, STR_NONE);
    int err = is_text ? session_view_put_text(out, view_inside(value))
                      : session_view_put_data(out, view_inside(value));
    le_put_u32(out->p + at + 1, (uint32_t)(out->n - at - CONTENT_HEAD));
    return err;
}

/* The elements rest with a comma behind each (payload.h). */
static int put_contents(struct buf *out, const struct store_write *w)
{
    int err = w->data_err;
    if (err == 0 && w->data.n > 0 &&
        (w->ends == NULL || content_kind(w->content_type) != CONTENT_JSON))
        err = ERR_TYPE_MISMATCH;
    size_t at = 0;
    for (uint32_t i = 0; err == 0 && w->data.n > 0 && i < w->n_events; i++) {
        err = put_element(out, str_of(w->data.p + at, w->ends[i] - at - 1));
        at = w->ends[i];
    }
    return err;
}

/* ---- write ---- */

struct writing {
    struct store_write write;
    struct store_write *asked;
    struct view *view;
    struct buf contents;
};

/* Closing what is closed is no failure, but the store was told of contents that cannot be had. */
static bool closed_again(const struct store_write *asked, int err)
{
    return err == ERR_CLOSED && asked->close && asked->data.n == 0 && asked->data_err == 0 &&
           asked->claim.id.n == 0;
}

static void session_view_on_written(struct store_write *w, int err)
{
    struct writing *wr = container_of(w, struct writing, write);
    struct store_write *asked = wr->asked;
    struct view *v = wr->view;
    bool again = closed_again(asked, err);
    asked->info = session_view_shown(w->info);
    asked->created = false;
    asked->duplicate = w->duplicate || again;
    asked->producer = w->producer;
    asked->expected_seq = w->expected_seq;
    asked->done(asked, again ? 0 : err);
    buf_deinit(&wr->contents);
    free(wr);
    session_view_finish(v);
}

static void session_view_run_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    w->done(w, w->call.result);
}

/* What cannot be appended goes to the real store all the same, as data that is bad: so the other
 * preconditions come first, as ever, and a request that was done before is known again. */
static void start_write(struct view *v, struct store_write *w, struct str key)
{
    struct writing *wr = mem_zalloc(sizeof *wr);
    wr->asked = w;
    wr->view = v;
    int err = put_contents(&wr->contents, w);
    if (err == 0 && v->ops->keys(v->ctx, key) == NULL)
        err = ERR_KEY_ABSENT;
    wr->write = (struct store_write){.name = w->name,
                                     .data_err = err,
                                     .close = w->close,
                                     .end = w->end,
                                     .claim = w->claim,
                                     .seq = w->seq,
                                     .if_match = w->if_match,
                                     .match = w->match,
                                     .done = session_view_on_written};
    session_view_begin(v);
    if (err == 0)
        v->ops->write_out(v->ctx, key, &wr->write, buf_str(&wr->contents));
    else
        store_write(v->real, &wr->write);
}

static void session_view_write(struct store *s, struct store_write *w)
{
    struct view_target p;
    w->info = (struct stream_info){0};
    w->created = w->duplicate = false;
    if (!find_target(w->name, &p))
        session_view_refuse(s, &w->call, w->create != NULL ? ERR_DENIED : ERR_NOT_FOUND,
                            session_view_run_write);
    else if (p.direction != SESSION_OUT || w->create != NULL || w->n_docs > 0)
        session_view_refuse(s, &w->call, ERR_DENIED, session_view_run_write);
    else
        start_write(view_of(s), w, p.key);
}

/* ---- read ---- */

struct reading {
    struct store_read read;
    struct store_read *asked;
    struct view *view;
};

static void put_base64(struct buf *out, struct str bytes)
{
    buf_put(out, STR("\"data\":\""));
    b64_put(out, bytes);
    buf_put(out, STR("\"},"));
}

/* An event of `out` begins with the id that the backend gave it, which is between those two. */
static int session_view_put_event(struct buf *out, uint64_t ordinal, struct str content)
{
    size_t n_id = content.n > 0 ? (uint8_t)content.p[0] : 0;
    if (content.n < 1 + n_id)
        return ERR_CORRUPT;
    buf_put(out, STR("{\"id\":\""));
    buf_put_u64(out, ordinal + 1);
    buf_put(out, STR("\","));
    put_base64(out, str_skip(content, 1 + n_id));
    return 0;
}

static int put_record(struct buf *out, const struct session_record *r,
                      enum session_direction direction, uint64_t ordinal, struct str content)
{
    if ((r->type == SESSION_RECORD_EVENT) != (direction == SESSION_OUT))
        return ERR_CORRUPT;
    switch (r->type) {
    case SESSION_RECORD_CHUNK:
        buf_put(out, STR("{\"type\":\"chunk\",\"seqno\":"));
        buf_put_u64(out, r->a);
        buf_putc(out, ',');
        put_base64(out, content);
        return 0;
    case SESSION_RECORD_ABORT: buf_put(out, STR("{\"type\":\"abort\"},")); return 0;
    case SESSION_RECORD_CLOSE: buf_put(out, STR("{\"type\":\"close\"},")); return 0;
    case SESSION_RECORD_MOVED: buf_put(out, STR("{\"type\":\"moved\"},")); return 0;
    case SESSION_RECORD_EVENT: return session_view_put_event(out, ordinal, content);
    }
    return ERR_CORRUPT;
}

static int open_records(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                        struct str records, struct buf *out)
{
    struct buf content = {0};
    int err = 0;
    for (; err == 0 && records.n > 0; ordinal++) {
        struct session_record r;
        content.n = 0;
        err = session_record_cut(&records, &r);
        if (err == 0)
            err = session_open(k, direction, ordinal, &r, &content);
        if (err == 0)
            err = put_record(out, &r, direction, ordinal, buf_str(&content));
    }
    buf_deinit(&content);
    return err;
}

/* A record may lie in two slices; all of them are joined, since they have to be gone over anyway.
 */
static int open_read(struct view *v, const struct store_read *r, struct buf *out)
{
    struct view_target p;
    if (!find_target(r->name, &p))
        return ERR_NOT_FOUND;
    struct session_keys *k = v->ops->keys(v->ctx, p.key);
    if (k == NULL)
        return ERR_KEY_ABSENT;
    if (r->n_slices == 1)
        return open_records(k, p.direction, r->ordinal, r->slices[0].bytes, out);
    struct buf records = {0};
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&records, r->slices[i].bytes);
    int err = open_records(k, p.direction, r->ordinal, buf_str(&records), out);
    buf_deinit(&records);
    return err;
}

static void session_view_on_read(struct store_read *r, int err)
{
    struct reading *rd = container_of(r, struct reading, read);
    struct store_read *asked = rd->asked;
    struct view *v = rd->view;
    struct buf events = {0};
    if (err == 0 && r->n_slices > 0)
        err = open_read(v, r, &events);
    asked->info = session_view_shown(r->info);
    asked->start = r->start;
    asked->next = r->next;
    asked->last = r->last;
    asked->last_ordinal = r->last_ordinal;
    asked->ordinal = r->ordinal;
    asked->gap = r->gap;
    if (err == 0 && events.n > 0) {
        struct block *b = block_of(buf_str(&events));
        asked->slices[0] = slice_of(b, 0, b->n);
        asked->n_slices = 1;
    }
    buf_deinit(&events);
    store_read_release(r);
    asked->done(asked, err);
    free(rd);
    session_view_finish(v);
}

static void session_view_run_read(struct task *t)
{
    struct store_read *r = container_of(t, struct store_read, call.task);
    r->done(r, r->call.result);
}

static void session_view_read(struct store *s, struct store_read *r)
{
    struct view *v = view_of(s);
    struct view_target p;
    r->n_slices = 0;
    if (!find_target(r->name, &p)) {
        session_view_refuse(s, &r->call, ERR_NOT_FOUND, session_view_run_read);
        return;
    }
    struct reading *rd = mem_zalloc(sizeof *rd);
    rd->asked = r;
    rd->view = v;
    rd->read = (struct store_read){.name = r->name,
                                   .from = r->from,
                                   .at = r->at,
                                   .event = r->event,
                                   .max_bytes = r->max_bytes,
                                   .touch = r->touch,
                                   .done = session_view_on_read};
    session_view_begin(v);
    store_read(v->real, &rd->read);
}

/* ---- stat, list ---- */

struct statting {
    struct store_stat stat;
    struct store_stat *asked;
    struct view *view;
};

static void session_view_on_stat(struct store_stat *st, int err)
{
    struct statting *s = container_of(st, struct statting, stat);
    struct view *v = s->view;
    s->asked->info = session_view_shown(st->info);
    s->asked->done(s->asked, err);
    free(s);
    session_view_finish(v);
}

static void session_view_run_stat(struct task *t)
{
    struct store_stat *st = container_of(t, struct store_stat, call.task);
    st->done(st, st->call.result);
}

static void session_view_stat(struct store *s, struct store_stat *st)
{
    struct view *v = view_of(s);
    struct view_target p;
    if (!find_target(st->name, &p)) {
        session_view_refuse(s, &st->call, ERR_NOT_FOUND, session_view_run_stat);
        return;
    }
    struct statting *sg = mem_zalloc(sizeof *sg);
    sg->asked = st;
    sg->view = v;
    sg->stat = (struct store_stat){.name = st->name, .done = session_view_on_stat};
    session_view_begin(v);
    store_stat(v->real, &sg->stat);
}

struct listing {
    struct store_list list;
    struct store_list *asked;
    struct view *view;
};

static void session_view_on_list(struct store_list *l, int err)
{
    struct listing *lg = container_of(l, struct listing, list);
    struct store_list *asked = lg->asked;
    struct view *v = lg->view;
    for (size_t i = 0; err == 0 && i < l->n_rows; i++)
        if (str_starts(l->rows[i].name, STR(SESSION_PREFIX)))
            l->rows[i].info = session_view_shown(l->rows[i].info);
    asked->rows = l->rows;
    asked->n_rows = l->n_rows;
    asked->more = l->more;
    asked->done(asked, err);
    free(lg);
    session_view_finish(v);
}

static void session_view_list(struct store *s, struct store_list *l)
{
    struct view *v = view_of(s);
    struct listing *lg = mem_zalloc(sizeof *lg);
    lg->asked = l;
    lg->view = v;
    lg->list = (struct store_list){.prefix = l->prefix,
                                   .after = l->after,
                                   .limit = l->limit,
                                   .reserved = l->reserved,
                                   .done = session_view_on_list};
    session_view_begin(v);
    store_list(v->real, &lg->list);
}

/* ---- the rest ---- */

static void session_view_run_remove(struct task *t)
{
    struct store_remove *r = container_of(t, struct store_remove, call.task);
    r->done(r, r->call.result);
}

static void session_view_remove(struct store *s, struct store_remove *r)
{
    session_view_refuse(s, &r->call, ERR_DENIED, session_view_run_remove);
}

static void session_view_run_docs(struct task *t)
{
    struct store_docs *d = container_of(t, struct store_docs, call.task);
    d->done(d, d->call.result);
}

static void session_view_docs(struct store *s, struct store_docs *d)
{
    d->n_rows = 0;
    d->more = false;
    session_view_refuse(s, &d->call, ERR_DENIED, session_view_run_docs);
}

static void session_view_run_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    p->done(p, p->call.result);
}

static void session_view_put(struct store *s, struct store_put *p)
{
    session_view_refuse(s, &p->call, ERR_DENIED, session_view_run_put);
}

static void session_view_watch(struct store *s, struct store_watch *w)
{
    store_watch(view_of(s)->real, w);
}

static void session_view_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(view_of(s)->real, w);
}

static void session_view_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    gate_shut(&view_of(s)->under_way, stopped, ctx);
}

static void session_view_free(struct store *s)
{
    struct view *v = view_of(s);
    task_cancel(&v->under_way.notify);
    free(v);
}

static int session_view_health(struct store *s, struct str *why)
{
    return store_health(view_of(s)->real, why);
}

static const struct store_ops ops = {
    .write = session_view_write,
    .remove = session_view_remove,
    .stat = session_view_stat,
    .read = session_view_read,
    .list = session_view_list,
    .docs = session_view_docs,
    .put = session_view_put,
    .watch = session_view_watch,
    .unwatch = session_view_unwatch,
    .health = session_view_health,
    .stop = session_view_stop,
    .free = session_view_free,
};

struct store *session_view_new(struct sched *sched, struct store *real,
                               const struct session_view_ops *view_ops, void *ctx)
{
    struct view *v = mem_zalloc(sizeof *v);
    v->store = (struct store){.ops = &ops, .sched = sched};
    v->real = real;
    v->ops = view_ops;
    v->ctx = ctx;
    gate_init(&v->under_way, v->store.sched);
    return &v->store;
}
