// SPDX-License-Identifier: Apache-2.0
/* session_open.c -- the beginning of a session in memory: created, or read back from the store.
 *
 *     document    --there, and its key fits----> all of `in`
 *     all of `in` --the store is ours alone----> `out`
 *     all of `in` --ours, as far as we know----> document again --still ours--> `out`
 *     all of `in` --another process has it-----> taking over --taken--> `out`, maybe after a moment
 *     taking over --overtaken------------------> document, from the start
 *     `out`       --its last event is read-----> open
 *     document    --not there------------------> create `out` --> create `in`, document --> open
 *     create      --something of that name-----> clear it, and create again
 *
 * What fails kills the session, or it is created anew in memory alone (degraded).
 *
 * `out` is created first, and `in` together with the document: so whatever a crash leaves behind, a
 * document without its streams means that they have expired, and streams without a document mean
 * nothing and are removed. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "stream/instances.h"
#include "feature/sessions/session_core.h"
#include "token/mac.h"

#include <stdlib.h>

#define READ_BYTES        (64 * 1024)
#define TRIES             5                   /* while others change it */
#define HANDOVER_MS       250                 /* in which another process stops what it was at */
#define MOVE_RETRY_FOR_MS 10000               /* with a store that does not answer */
#define RETAIN_ALL        (UINT64_C(1) << 50) /* events, bytes, ms: more than there will be */

struct session_load {
    struct session *session;
    struct store_docs docs;
    struct store_read read;
    struct store_write write;
    struct writer writer; /* of what moves it here */
    struct store_remove remove;
    struct store_put take;
    struct stream_config config;
    struct doc_put put;
    struct buf doc;
    struct session_stream *lane; /* that is being created */
    bool cleared;                /* what was left of its name has been removed */
    uint64_t ordinal;            /* of the next record of `in` */
    unsigned tries;
    uint64_t owner;            /* at the first look */
    struct buf message, moved; /* taking over: the document's sealed message, and our record */
    struct timer handover;
};

static void load_free(struct session_load *l)
{
    struct session *s = l->session;
    timer_stop(&l->handover);
    buf_deinit(&l->doc);
    buf_deinit(&l->message);
    buf_deinit(&l->moved);
    free(l);
    session_release(s);
}

static void session_open_fail(struct session_load *l, enum session_over over, int err)
{
    session_kill(l->session, over, err);
    load_free(l);
}

static void ready(struct session_load *l)
{
    struct session *s = l->session;
    s->state = SESSION_STATE_BUSY;
    s->next = s->doc.answered;
    s->in_queued = s->in.events;
    load_free(l);
    session_own_look(s);
    session_admit(s);
    if (s->aborted && s->out_state != SESSION_OUT_ENDED)
        session_put_end(s, END_CANCELLED, STR_NONE);
    session_pump(s);
    session_settle(s);
}

void session_doc_ask(const struct session *s, struct store_docs *d,
                     void (*done)(struct store_docs *d, int err))
{
    *d = (struct store_docs){.prefix = s->doc_key, .limit = 1, .exact = true, .done = done};
    store_docs(s->home->store, d);
}

int session_doc_found(const struct store_docs *d, int err, struct session_doc *out)
{
    if (err == 0 && d->n_rows == 0)
        err = ERR_NOT_FOUND;
    return err != 0 ? err : session_doc_read(d->rows[0].value, out);
}

/* ---- creating ---- */

static void session_open_create(struct session_load *l, struct session_stream *lane);

static void go_degraded(struct session_load *l, int err)
{
    if (session_degrade(l->session)) {
        l->cleared = false;
        session_open_create(l, &l->session->out);
    } else {
        session_open_fail(l, l->session->crowded ? SESSION_BUSY : SESSION_FAILED, err);
    }
}

static void session_open_on_removed(struct store_remove *r, int err)
{
    struct session_load *l = container_of(r, struct session_load, remove);
    if (l->session->state == SESSION_STATE_DYING)
        load_free(l);
    else if (err != 0 && err != ERR_NOT_FOUND)
        go_degraded(l, err);
    else
        session_open_create(l, l->lane);
}

static void session_open_on_docs_again(struct store_docs *d, int err)
{
    struct session_load *l = container_of(d, struct session_load, docs);
    if (l->session->state == SESSION_STATE_DYING)
        load_free(l);
    else if (err != 0)
        go_degraded(l, err);
    else if (d->n_rows > 0)
        session_open_fail(l, SESSION_FAILED, ERR_VERSION); /* somebody else was faster, as below */
    else
        store_remove(l->session->home->store, &l->remove);
}

/* A stream of this name is there, of a session that nobody knows any more; unless another process
 * has made it since we looked. */
static void session_open_clear(struct session_load *l)
{
    l->cleared = true;
    l->remove = (struct store_remove){.name = l->lane->name, .done = session_open_on_removed};
    session_doc_ask(l->session, &l->docs, session_open_on_docs_again);
}

/* With an `in` that was there the document was not written. */
static bool is_left_over(const struct session_load *l, int err)
{
    const struct store_write *w = &l->write;
    bool used = l->lane == &l->session->in || w->info.events > 0 || w->info.end != END_NONE;
    return err == ERR_EXISTS || err == ERR_CLOSED || (err == 0 && !w->created && used);
}

static void take_stream(struct session_stream *lane, const struct stream_info *info)
{
    lane->life = info->life;
    lane->tail = info->tail;
    lane->events = info->events;
    lane->bytes = info->bytes;
}

static void session_open_on_created(struct store_write *w, int err)
{
    struct session_load *l = container_of(w, struct session_load, write);
    struct session *s = l->session;
    if (s->state == SESSION_STATE_DYING) {
        load_free(l);
    } else if (is_left_over(l, err) && !l->cleared) {
        session_open_clear(l);
    } else if (err == ERR_VERSION) {
        session_open_fail(l, SESSION_FAILED,
                          err); /* somebody else was faster; the client finds theirs */
    } else if (err != 0) {
        go_degraded(l, err);
    } else {
        take_stream(l->lane, &w->info);
        l->cleared = false;
        if (l->lane == &s->out) {
            session_open_create(l, &s->in);
            return;
        }
        s->doc_version = DOC_NEXT(0);
        ready(l);
    }
}

static void set_doc(struct session_load *l)
{
    struct session *s = l->session;
    const struct session_visit *v = session_waiting_first(s);
    s->doc = (struct session_doc){.service = session_visit_service(v),
                                  .created_ms = s->all->setup.sched->wall_ms,
                                  .out_life = s->out.life};
    if (session_is_shared(s))
        s->doc.owner = instances_id(s->all->setup.instances);
    rand_bytes(s->doc.salt, sizeof s->doc.salt);
    session_check(session_visit_secret(v), s->doc.salt, s->doc.check);
    l->doc.n = 0;
    session_doc_put(&l->doc, &s->doc);
    l->put = (struct doc_put){.key = s->doc_key, .value = buf_str(&l->doc)};
    l->write.docs = &l->put;
    l->write.n_docs = 1;
}

static void session_open_create(struct session_load *l, struct session_stream *lane)
{
    struct session *s = l->session;
    const struct sessions_setup *setup = &s->all->setup;
    if (list_empty(&s->waiting)) { /* whoever wanted it has gone */
        session_open_fail(l, SESSION_FAILED, ERR_CANCELLED);
        return;
    }
    /* Bounds of its own, of every kind, so that the server's retention does not trim it. */
    l->config = (struct stream_config){
        .content_type = STR(SESSION_CONTENT_TYPE),
        .ttl_s = (int64_t)(setup->lifetime_ms / 1000),
        .expires_ms = STORE_TTL_NONE,
        .retain = {.events = RETAIN_ALL, .bytes = RETAIN_ALL, .age_ms = RETAIN_ALL}};
    l->lane = lane;
    l->write = (struct store_write){
        .name = lane->name, .create = &l->config, .done = session_open_on_created};
    if (lane == &s->in)
        set_doc(l);
    store_write(s->home->store, &l->write);
}

/* ---- reading back ---- */

int session_each_record(const struct slice *slices, size_t n, void *ctx, session_record_fn *fn)
{
    int err = 0;
    for (size_t i = 0; i < n && err == 0; i++) {
        struct str rest = slices[i].bytes;
        while (rest.n > 0 && err == 0) {
            struct session_record r;
            err = session_record_cut(&rest, &r);
            if (err == 0)
                err = fn(ctx, &r);
        }
    }
    return err;
}

bool session_is_gone(int err)
{
    return err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_GAP;
}

/* False: it has failed. */
static bool survives(struct session_load *l, int err)
{
    if (l->session->state == SESSION_STATE_DYING) {
        load_free(l);
        return false;
    }
    if (err != 0) {
        session_check_waiting(l->session); /* some have come since the document was found */
        session_open_fail(l, session_is_gone(err) ? SESSION_EXPIRED : SESSION_FAILED, err);
    }
    return err == 0;
}

/* The chain goes on from the last event, and so does an answer that was not complete. */
static int session_open_take_last(void *ctx, const struct session_record *r)
{
    struct session *s = ctx;
    struct buf content = {0};
    int err = session_open(s->keys, SESSION_OUT, s->out.events - 1, r, &content);
    size_t n_id = content.n > 0 ? (uint8_t)content.p[0] : 0;
    if (err == 0 && content.n < 1 + n_id)
        err = ERR_CORRUPT;
    if (err == 0)
        err = session_get_mac(str_skip(buf_str(&content), 1 + n_id), s->mac);
    if (err == 0 && r->a == s->doc.answered) {
        s->answer_begun = true;
        s->last_id.n = 0;
        buf_put(&s->last_id, str_of(content.p + 1, n_id));
    }
    buf_deinit(&content);
    return err;
}

static void session_open_on_last_read(struct store_read *r, int err)
{
    struct session_load *l = container_of(r, struct session_load, read);
    if (err == 0 && l->session->state != SESSION_STATE_DYING) /* or its keys are gone */
        err = session_each_record(r->slices, r->n_slices, l->session, session_open_take_last);
    store_read_release(r);
    if (survives(l, err))
        ready(l);
}

static void read_last(struct session_load *l)
{
    struct session *s = l->session;
    l->read = (struct store_read){.name = s->out.name,
                                  .from = READ_EVENT,
                                  .event = s->out.events - 1,
                                  .max_bytes = 1,
                                  .done = session_open_on_last_read};
    store_read(s->home->store, &l->read);
}

static void open_message(struct session *s, struct str sealed)
{
    struct session_record r;
    if (sealed.n > 0 && session_record_cut(&sealed, &r) == 0)
        (void)session_open(s->keys, SESSION_OUT, UINT64_MAX, &r, &s->message);
}

static void session_open_on_out_read(struct store_read *r, int err)
{
    struct session_load *l = container_of(r, struct session_load, read);
    struct session *s = l->session;
    if (err == 0) {
        take_stream(&s->out, &r->info);
        session_set_end(s, r->info.end);
        store_read_release(r);
        if (s->out.life != s->doc.out_life)
            err = ERR_NOT_FOUND; /* of another session */
    }
    if (!survives(l, err))
        return;
    if (s->out.events > 0)
        read_last(l);
    else
        ready(l);
}

/* Nobody answers it: what comes behind it is next, if it was. */
static void skip_moved(struct session_load *l, uint64_t ordinal)
{
    if (l->session->doc.answered == ordinal)
        l->session->doc.answered++;
}

static int session_open_take_in(void *ctx, const struct session_record *r)
{
    struct session_load *l = ctx;
    struct session *s = l->session;
    uint64_t ordinal = l->ordinal++;
    switch (r->type) {
    case SESSION_RECORD_CHUNK: return ranges_add(&s->seen, (uint32_t)r->a) < 0 ? ERR_LIMIT : 0;
    case SESSION_RECORD_ABORT: s->aborted = true; return 0;
    case SESSION_RECORD_CLOSE: s->closed = true; return 0;
    case SESSION_RECORD_MOVED: skip_moved(l, ordinal); return 0;
    case SESSION_RECORD_EVENT: break;
    }
    return ERR_CORRUPT;
}

static void read_out(struct session_load *l)
{
    l->read = (struct store_read){.name = l->session->out.name,
                                  .from = READ_TAIL,
                                  .max_bytes = 1,
                                  .touch = true,
                                  .done = session_open_on_out_read};
    store_read(l->session->home->store, &l->read);
}

/* ---- taking it over ----
 *
 * A record in `in` and the document, in one write: from then on nothing that the other one writes
 * to `in` is taken, and nothing that it has answered in full. It watches `in`, stops its backend,
 * and has a moment for that, in which what it had under way to `out` gets there. Should it be
 * slower than that, a write of ours finds the tail moved, and all of this is done again.
 *
 * Workers read `in` themselves, and would not know what to make of the record; there is no backend
 * to be stopped for them either. */

static void look_again(struct session_load *l);

/* The client may have been elsewhere meanwhile, and be back. */
static void session_open_on_still_ours(struct store_docs *d, int err)
{
    struct session_load *l = container_of(d, struct session_load, docs);
    struct session_doc doc = {0};
    err = session_doc_found(d, err, &doc);
    if (err == 0 && doc.owner != l->session->doc.owner)
        err = ERR_VERSION;
    if (survives(l, err))
        read_out(l);
}

/* Whoever takes it over changes the document and `in` at once: if the one is as it was before the
 * other was read, that is how we left it. */
static void look_whether_ours(struct session_load *l)
{
    session_doc_ask(l->session, &l->docs, session_open_on_still_ours);
}

static void session_open_on_handover(struct timer *t)
{
    look_whether_ours(container_of(t, struct session_load, handover));
}

static void on_taken(struct session_load *l, int err)
{
    struct session *s = l->session;
    const struct instances *in = s->all->setup.instances;
    uint64_t before = s->doc.owner;
    bool overtaken = err == ERR_VERSION || err == ERR_TAIL_MOVED;
    if (s->state != SESSION_STATE_DYING && overtaken && ++l->tries < TRIES) {
        look_again(l);
        return;
    }
    if (!survives(l, err))
        return;
    s->doc.owner = instances_id(in);
    s->doc_version = DOC_NEXT(s->doc_version);
    if (before != 0 && !instances_is_dead(in, before))
        sched_start(s->all->setup.sched, &l->handover, HANDOVER_MS);
    else
        read_out(l);
}

static void session_open_on_moved(struct writer *w, int err)
{
    struct session_load *l = container_of(w, struct session_load, writer);
    if (w->followed)
        err = ERR_VERSION;
    if (err == 0) {
        take_stream(&l->session->in, &w->write.info);
        skip_moved(l, l->ordinal);
    }
    on_taken(l, err);
}

static void session_open_on_doc_taken(struct store_put *p, int err)
{
    on_taken(container_of(p, struct session_load, take), err);
}

static void set_owner(struct session_load *l)
{
    struct session *s = l->session;
    struct session_doc doc = s->doc;
    doc.owner = instances_id(s->all->setup.instances);
    doc.message = buf_str(&l->message);
    l->doc.n = 0;
    session_doc_put(&l->doc, &doc);
    l->put = (struct doc_put){
        .key = s->doc_key, .value = buf_str(&l->doc), .expect_version = s->doc_version};
}

static void take_over(struct session_load *l)
{
    struct session *s = l->session;
    set_owner(l);
    if (s->all->setup.backend == NULL) {
        l->take =
            (struct store_put){.docs = &l->put, .n_docs = 1, .done = session_open_on_doc_taken};
        store_put(s->home->store, &l->take);
        return;
    }
    l->moved.n = 0;
    session_seal(s->keys, SESSION_IN, s->in.events, SESSION_RECORD_MOVED, 0, STR_NONE, &l->moved);
    writer_init(&l->writer, MOVE_RETRY_FOR_MS, session_open_on_moved);
    l->writer.events = s->in.events;
    l->writer.write = (struct store_write){.name = s->in.name,
                                           .data = buf_str(&l->moved),
                                           .n_events = 1,
                                           .if_match = true,
                                           .match = {s->in.life, s->in.tail},
                                           .docs = &l->put,
                                           .n_docs = 1};
    writer_start(&l->writer, s->home->store);
}

static void read_in(struct session_load *l, struct offset at);

static void session_open_on_in_read(struct store_read *r, int err)
{
    struct session_load *l = container_of(r, struct session_load, read);
    struct session *s = l->session;
    struct offset next = {r->info.life, r->next};
    bool more = false;
    if (err == 0) {
        err = session_each_record(r->slices, r->n_slices, l, session_open_take_in);
        take_stream(&s->in, &r->info);
        more = r->next < r->info.tail;
        store_read_release(r);
    }
    if (!survives(l, err))
        return;
    if (more) {
        read_in(l, next);
        return;
    }
    if (!session_is_shared(s))
        read_out(l);
    else if (!session_is_anothers(s))
        look_whether_ours(l);
    else if (!list_empty(&s->waiting))
        take_over(l);
    else
        session_open_fail(l, SESSION_FAILED,
                          ERR_CANCELLED); /* whoever came has gone, maybe to its owner */
}

static void read_in(struct session_load *l, struct offset at)
{
    l->read = (struct store_read){.name = l->session->in.name,
                                  .from = at.life > 0 ? READ_AT : READ_START,
                                  .at = at,
                                  .max_bytes = READ_BYTES,
                                  .touch = true,
                                  .done = session_open_on_in_read};
    store_read(l->session->home->store, &l->read);
}

/* ---- the document ---- */

static void found(struct session_load *l, const struct doc_row *row)
{
    struct session *s = l->session;
    int err = session_doc_read(row->value, &s->doc);
    struct str message = s->doc.message;
    l->message.n = 0;
    buf_put(&l->message, message);
    s->doc.message = STR_NONE;
    s->doc_version = row->version;
    if (err != 0) {
        session_open_fail(l, SESSION_FAILED, err);
        return;
    }
    if (l->tries == 0)
        l->owner = s->doc.owner;
    /* Who cannot open it is not told what has become of it. */
    session_check_waiting(s);
    if (s->keys == NULL) {
        session_open_fail(l, SESSION_WRONG_SECRET, 0);
    } else if (s->doc.owner != l->owner) { /* taken over meanwhile, for one that may be newer */
        session_open_fail(l, SESSION_FAILED, ERR_VERSION);
    } else if (s->crowded) {
        session_open_fail(l, SESSION_BUSY, 0);
    } else if (s->all->failed) {
        go_degraded(l, ERR_IO);
    } else {
        open_message(s, message);
        read_in(l, (struct offset){0});
    }
}

static void not_found(struct session_load *l)
{
    struct session *s = l->session;
    session_refuse_positions(s);
    if (list_empty(&s->waiting))
        session_open_fail(l, SESSION_UNKNOWN, 0);
    else if (s->crowded)
        go_degraded(l, ERR_BUSY);
    else
        session_open_create(l, &s->out);
}

static void session_open_on_docs(struct store_docs *d, int err)
{
    struct session_load *l = container_of(d, struct session_load, docs);
    struct session *s = l->session;
    if (s->state == SESSION_STATE_DYING)
        load_free(l);
    else if (err != 0)
        go_degraded(l, err);
    else if (d->n_rows > 0)
        found(l, &d->rows[0]);
    else
        not_found(l);
}

/* With nothing that was read before. */
static void look_again(struct session_load *l)
{
    struct session *s = l->session;
    session_keys_free(s->keys);
    s->keys = NULL;
    s->aborted = s->closed = false;
    s->message.n = 0;
    ranges_deinit(&s->seen);
    ranges_init(&s->seen, SESSION_RANGES_MAX);
    l->ordinal = 0;
    session_doc_ask(s, &l->docs, session_open_on_docs);
}

void session_load(struct session *s)
{
    if (session_is_dying(s->all, s->key)) /* what its last writes leave is not known yet */
        return;
    struct session_load *l = mem_zalloc(sizeof *l);
    l->session = s;
    timer_init(&l->handover, session_open_on_handover);
    s->state = SESSION_STATE_LOADING;
    session_hold(s);
    session_own_watch(s);
    session_doc_ask(s, &l->docs, session_open_on_docs);
}
