// SPDX-License-Identifier: Apache-2.0
/* session.c -- sessions in memory.
 *
 *     a client comes
 *           |
 *           v        that one is freed          created or read back        nobody needs it
 *        QUEUED -----------------------> LOADING ------------------> BUSY ------------------> IDLE
 *           |                               |                         | <--------------------  |
 *           |                               | cannot be had           |    a client, a write    |
 *           |                               |                  killed |                 evicted |
 *           `-------------------------------+------------+------------+-------------------------'
 *                                                        v
 *                                                      DYING --its last operation is over--> freed
 *
 * A session is killed when its copy is not to be trusted any more, and evicted when it was idle for
 * long enough or another one needs its place. */
#include "feature/sessions/session.h"
#include "access/principal.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/units.h"
#include "feature/sessions/session_core.h"
#include "store/mem/mem_store.h"

#include <stdlib.h>

#define END_PIECE     32
#define LINGER_MS     (60 * SECOND_MS) /* without its key, for a client that is back soon */
#define TOUCHES       4                /* in a lifetime, while somebody is there */
#define DEGRADED_PART 10               /* of max_open: one in so many may run degraded besides */

bool session_key_valid(struct str key)
{
    for (size_t i = 0; i < key.n; i++)
        if (key.p[i] <= ' ' || key.p[i] > '~' || key.p[i] == '/' || key.p[i] == '%')
            return false;
    return key.n > 0 && key.n <= SESSION_KEY_MAX;
}

struct str session_key_rooted(const struct principal *p, struct arena *a, struct str key)
{
    struct str rooted = principal_rooted(p, a, key);
    for (size_t i = 0; i < p->root.n; i++)
        if (rooted.p[i] == '/')
            ((char *)rooted.p)[i] = '%';
    return rooted;
}

struct str session_key_unrooted(const struct principal *p, struct str key)
{
    return str_skip(key, key.n < p->root.n ? key.n : p->root.n);
}

/* ---- all ---- */

/* There may be many, each with a client to write to. In between any of them may end by itself. */
static void sessions_end_some(struct task *t)
{
    struct sessions *all = container_of(t, struct sessions, end);
    sched_work(all->setup.sched, "sessions");
    for (int i = 0; i < END_PIECE && !list_empty(&all->open); i++) {
        struct session *s = list_item(all->open.next, struct session, link);
        if (all->phase == SESSIONS_STOPPING) {
            session_kill(s, SESSION_DRAINING, 0);
            continue;
        }
        list_remove(&s->link);
        list_push(&all->told, &s->link);
        session_visits_over(s, SESSION_DRAINING, 0);
    }
    if (!list_empty(&all->open))
        sched_post(all->setup.sched, t);
}

struct sessions *sessions_new(const struct sessions_setup *setup)
{
    struct sessions *all = mem_zalloc(sizeof *all);
    all->setup = *setup;
    all->durable = (struct session_home){setup->store, setup->feeds};
    all->degraded = (struct session_home){mem_store_new(setup->sched), &all->degraded_feeds};
    feeds_init(&all->degraded_feeds, all->degraded.store);
    map_init(&all->by_key);
    list_init(&all->open);
    list_init(&all->told);
    task_init(&all->end, sessions_end_some);
    list_init(&all->idle);
    list_init(&all->dying);
    gate_init(&all->under_way, setup->sched);
    session_sweep_start(all);
    return all;
}

void sessions_drain(struct sessions *all)
{
    all->phase = SESSIONS_DRAINING;
    sessions_end_some(&all->end);
}

void sessions_stop(struct sessions *all, void (*stopped)(void *ctx), void *ctx)
{
    all->phase = SESSIONS_STOPPING;
    session_sweep_stop(all);
    list_splice(&all->open, &all->told);
    sessions_end_some(&all->end);
    gate_shut(&all->under_way, stopped, ctx);
}

void sessions_free(struct sessions *all)
{
    if (all == NULL)
        return;
    must(all->n == 0);
    task_cancel(&all->under_way.notify);
    task_cancel(&all->end);
    map_deinit(&all->by_key);
    feeds_deinit(&all->degraded_feeds);
    store_free(all->degraded.store);
    session_sweep_free(all);
    free(all);
}

uint64_t sessions_open(const struct sessions *all)
{
    return all->by_key.n;
}

uint64_t sessions_degraded(const struct sessions *all)
{
    return all->n_degraded_ever;
}

/* ---- one ---- */

void session_buf_rest(struct buf *b)
{
    b->n = 0;
    if (b->cap > SESSION_KEEP_MAX)
        buf_deinit(b);
}

struct session *session_find(struct sessions *all, struct str key)
{
    return map_get(&all->by_key, key);
}

bool session_is_dying(const struct sessions *all, struct str key)
{
    list_each (l, &all->dying)
        if (str_eq(list_item(l, struct session, idle_link)->key, key))
            return true;
    return false;
}

/* One of the same name may have waited for this one's end. */
static void load_next(struct sessions *all, struct str key)
{
    struct session *next = session_find(all, key);
    if (next != NULL && next->state == SESSION_STATE_QUEUED)
        session_load(next);
}

static void free_session(struct session *s)
{
    struct sessions *all = s->all;
    timer_stop(&s->idle_timer);
    task_cancel(&s->reap);
    task_cancel(&s->admit);
    list_remove(&s->idle_link);
    load_next(all, s->key);
    session_stream_deinit(&s->in, ERR_CANCELLED);
    session_stream_deinit(&s->out, ERR_CANCELLED);
    session_keys_free(s->keys);
    ranges_deinit(&s->seen);
    buf_deinit(&s->message);
    buf_deinit(&s->chunk);
    buf_deinit(&s->last_id);
    buf_deinit(&s->names);
    if (session_is_degraded(s))
        all->n_degraded--;
    free(s);
    all->n--;
    gate_leave(&all->under_way);
}

static void session_on_reap(struct task *t)
{
    struct session *s = container_of(t, struct session, reap);
    if (s->operations == 0)
        free_session(s);
}

static void session_on_admit(struct task *t)
{
    session_admit(container_of(t, struct session, admit));
}

static void session_on_idle_timer(struct timer *t);

static struct str put_name(struct buf *out, const char *prefix, struct str key, const char *suffix)
{
    size_t from = out->n;
    buf_put(out, str_of_cstr(prefix));
    buf_put(out, key);
    buf_put(out, str_of_cstr(suffix));
    return str_skip(buf_str(out), from);
}

/* All in one piece that is no larger than they need, as there may be many sessions; reserved at
 * once, so that it does not move. */
static void make_names(struct session *s, struct str key, struct str *in, struct str *out)
{
    static const char prefixes[] = SESSION_DOC_PREFIX SESSION_PREFIX "/in" SESSION_PREFIX "/out";
    buf_reserve(&s->names, sizeof prefixes + 3 * key.n);
    s->doc_key = put_name(&s->names, SESSION_DOC_PREFIX, key, "");
    s->key = str_skip(s->doc_key, sizeof SESSION_DOC_PREFIX - 1);
    *in = put_name(&s->names, SESSION_PREFIX, key, "/in");
    *out = put_name(&s->names, SESSION_PREFIX, key, "/out");
}

static struct session *session_new(struct sessions *all, struct str key)
{
    struct session *s = mem_zalloc(sizeof *s);
    struct str in, out;
    s->all = all;
    s->home = &all->durable;
    make_names(s, key, &in, &out);
    session_stream_init(&s->in, s, SESSION_IN, in);
    session_stream_init(&s->out, s, SESSION_OUT, out);
    list_push(&all->open, &s->link);
    list_init(&s->idle_link);
    list_init(&s->waiting);
    timer_init(&s->idle_timer, session_on_idle_timer);
    task_init(&s->reap, session_on_reap);
    task_init(&s->admit, session_on_admit);
    ranges_init(&s->seen, SESSION_RANGES_MAX);
    all->n++;
    gate_enter(&all->under_way);
    map_put(&all->by_key, s->key, s);
    return s;
}

void session_hold(struct session *s)
{
    s->operations++;
}

void session_release(struct session *s)
{
    must(s->operations > 0);
    if (--s->operations == 0 && s->state == SESSION_STATE_DYING)
        sched_post(s->all->setup.sched, &s->reap);
}

static void wipe_keys(struct session *s)
{
    session_keys_free(s->keys);
    s->keys = NULL;
}

/* ---- forgetting what a degraded session has left in memory ---- */

/* Its document is written once, when it is created. */

struct forget {
    struct sessions *all;
    struct store_remove in, out;
    struct store_put put;
    struct doc_put doc;
    unsigned left;
    struct arena arena;
};

static void forgot(struct forget *f)
{
    struct sessions *all = f->all;
    if (--f->left > 0)
        return;
    arena_deinit(&f->arena);
    free(f);
    gate_leave(&all->under_way);
}

static void session_forgot_in(struct store_remove *r, int err)
{
    forgot(container_of(r, struct forget, in));
}

static void session_forgot_out(struct store_remove *r, int err)
{
    forgot(container_of(r, struct forget, out));
}

static void session_forgot_doc(struct store_put *p, int err)
{
    forgot(container_of(p, struct forget, put));
}

static void session_forget(struct session *s)
{
    struct forget *f = mem_zalloc(sizeof *f);
    struct store *store = s->home->store;
    f->all = s->all;
    f->left = 3;
    f->in =
        (struct store_remove){.name = arena_dup(&f->arena, s->in.name), .done = session_forgot_in};
    f->out = (struct store_remove){.name = arena_dup(&f->arena, s->out.name),
                                   .done = session_forgot_out};
    f->doc =
        (struct doc_put){.key = arena_dup(&f->arena, s->doc_key), .expect_version = DOC_NEXT(0)};
    f->put = (struct store_put){.docs = &f->doc, .n_docs = 1, .done = session_forgot_doc};
    gate_enter(&s->all->under_way);
    store_remove(store, &f->in);
    store_remove(store, &f->out);
    store_put(store, &f->put);
}

/* ---- being busy, idle, and gone ---- */

/* Out of the map; what is under way comes to its end. */
static void session_evict(struct session *s)
{
    if (s->state == SESSION_STATE_DYING)
        return;
    s->state = SESSION_STATE_DYING;
    map_remove(&s->all->by_key, s->key);
    list_remove(&s->link);
    timer_stop(&s->idle_timer);
    session_own_unwatch(s);
    list_remove(&s->idle_link);
    if (s->operations > 0)
        list_push(&s->all->dying, &s->idle_link);
    wipe_keys(s);
    if (session_is_degraded(s))
        session_forget(s);
    sched_post(s->all->setup.sched, &s->reap);
}

void session_kill(struct session *s, enum session_over over, int err)
{
    if (s->state == SESSION_STATE_DYING)
        return;
    session_reply_stop(s);
    session_evict(s);
    session_visits_over(s, over, err);
    session_stream_deinit(&s->in, err != 0 ? err : ERR_CANCELLED);
    session_stream_deinit(&s->out, err != 0 ? err : ERR_CANCELLED);
}

static void session_on_touched(struct store_read *r, int err)
{
    struct session_stream *l = container_of(r, struct session_stream, touch);
    l->touching = false;
    store_read_release(r);
    session_release(l->session);
}

static void touch_one(struct session_stream *l)
{
    if (l->touching)
        return;
    l->touching = true;
    l->touch = (struct store_read){.name = l->name,
                                   .from = READ_TAIL,
                                   .max_bytes = 1,
                                   .touch = true,
                                   .done = session_on_touched};
    session_hold(l->session);
    store_read(l->session->home->store, &l->touch);
}

/* Both streams last as long as the session does, whichever of them is used. */
static void touch(struct session *s)
{
    touch_one(&s->in);
    touch_one(&s->out);
}

static bool is_busy(const struct session *s)
{
    return s->visit != NULL || !list_empty(&s->waiting) || s->reply_state != SESSION_REPLY_NONE ||
           !list_empty(&s->in.queue) || !list_empty(&s->out.queue);
}

/* A worker needs the key for as long as it may be at work. */
static bool keeps_key(const struct session *s)
{
    return s->all->setup.backend == NULL && s->out_state != SESSION_OUT_ENDED && s->keys != NULL;
}

static uint64_t hold_left_ms(const struct session *s)
{
    uint64_t gone_ms = s->all->setup.sched->now_ms - s->left_ms;
    return gone_ms < s->all->setup.key_hold_ms ? s->all->setup.key_hold_ms - gone_ms : 0;
}

static void become_idle(struct session *s)
{
    const struct sessions_setup *setup = &s->all->setup;
    uint64_t delay_ms = LINGER_MS;
    s->state = SESSION_STATE_IDLE;
    if (session_is_degraded(s))
        delay_ms = 0; /* nobody can come back to it */
    else if (keeps_key(s))
        delay_ms = hold_left_ms(s);
    else
        wipe_keys(s);
    touch(s);
    list_push(&s->all->idle, &s->idle_link);
    sched_start(setup->sched, &s->idle_timer, delay_ms);
}

static bool has_no_client(const struct session *s)
{
    return s->visit == NULL && list_empty(&s->waiting);
}

static uint64_t touch_every_ms(const struct session *s)
{
    return s->all->setup.lifetime_ms / TOUCHES;
}

static void become_busy(struct session *s)
{
    s->state = SESSION_STATE_BUSY;
    list_remove(&s->idle_link);
    sched_start(s->all->setup.sched, &s->idle_timer, touch_every_ms(s));
}

/* Whatever a degraded one is at, nobody will see it. */
static void end_if_no_client(struct session *s)
{
    if (session_is_degraded(s) && has_no_client(s))
        sched_start(s->all->setup.sched, &s->idle_timer, 0);
}

void session_settle(struct session *s)
{
    switch (s->state) {
    case SESSION_STATE_QUEUED:
    case SESSION_STATE_LOADING: end_if_no_client(s); break;
    case SESSION_STATE_BUSY:
        if (is_busy(s))
            end_if_no_client(s);
        else
            become_idle(s);
        break;
    case SESSION_STATE_IDLE:
        if (is_busy(s))
            become_busy(s);
        break;
    case SESSION_STATE_DYING: break;
    }
}

/* Since its client was there, or something was written. */
static uint64_t quiet_ms(const struct session *s)
{
    uint64_t since_ms = s->left_ms > s->written_ms ? s->left_ms : s->written_ms;
    return has_no_client(s) ? s->all->setup.sched->now_ms - since_ms : 0;
}

/* A backend that does not get on, such as an upstream that is away, keeps a session busy; it does
 * not make it live longer. */
static void session_on_idle_timer(struct timer *t)
{
    struct session *s = container_of(t, struct session, idle_timer);
    if (s->state == SESSION_STATE_IDLE) {
        session_evict(s);
    } else if (has_no_client(s) &&
               (session_is_degraded(s) || quiet_ms(s) >= s->all->setup.lifetime_ms)) {
        session_kill(s, SESSION_EXPIRED, 0);
    } else {
        if (quiet_ms(s) <= touch_every_ms(s))
            touch(s);
        sched_start(s->all->setup.sched, &s->idle_timer, touch_every_ms(s));
    }
}

/* ---- too many ---- */

/* Makes room by evicting one that nobody needs. */
static bool is_crowded(struct sessions *all)
{
    if (all->by_key.n <= all->setup.max_open)
        return false;
    if (list_empty(&all->idle))
        return true;
    session_evict(list_item(all->idle.next, struct session, idle_link));
    return false;
}

struct session *session_find_or_create(struct sessions *all, struct str key)
{
    struct session *s = session_find(all, key);
    if (s != NULL)
        return s;
    s = session_new(all, key);
    s->crowded = is_crowded(all);
    s->left_ms = all->setup.sched->now_ms;
    sched_start(all->setup.sched, &s->idle_timer, touch_every_ms(s));
    return s;
}

bool session_degrade(struct session *s)
{
    struct sessions *all = s->all;
    if (all->setup.backend == NULL || session_is_degraded(s) ||
        all->n_degraded > all->setup.max_open / DEGRADED_PART)
        return false;
    s->home = &all->degraded;
    all->n_degraded++;
    all->n_degraded_ever++;
    return true;
}
