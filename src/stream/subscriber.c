// SPDX-License-Identifier: Apache-2.0
#include "stream/subscriber.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

#define RETRY_FOR_MS 30000 /* with a store that does not answer */
#define RETRY_MS     250
#define WAKE_AT_ONCE 64 /* subscribers; then others have their turn */

/* What the subscribers of one stream share. `tail` is where the shared read has got to. `fresh`: it
 * is the tail of an open stream, and no change was told since the read that said so began; only
 * then may anybody wait there, except for a shared read that is under way or owed. While somebody
 * waits, the tail moves by shared reads alone: they begin where those who wait are.
 *
 * A shared read that brought something makes a wave: those who waited are woken, some at a time. A
 * change during the wave is owed a read, which begins when the wave is over, for all who wait then:
 * so each wave comes to its end, and however many changes come meanwhile, they are one read. */
struct feed {
    struct feeds *feeds;
    struct store_watch watch;
    struct link waiting; /* subscribers at the tail, or held */
    struct link wave;    /* those still to be woken, which waited before */
    struct task wake;    /* goes on with it */
    uint32_t users;      /* subscribers, loads and the wave */
    bool fresh;
    bool waves;          /* a wave is under way ... */
    bool owed;           /* ... and a shared read is to follow */
    struct load *shared; /* the read for all, under way; or NULL */
    uint64_t life, tail;
    uint64_t changes;         /* told so far */
    struct event_batch *last; /* what the wave brings; NULL: that the shared read failed */
    size_t name_n;
    char name[];
};

/* One read of the store: for one subscriber, or (subscriber NULL) for all that wait. */
struct load {
    struct store_read read;
    struct feed *feed;
    struct subscriber *subscriber;
    uint64_t changes;    /* the feed's when it began */
    struct timer retry;  /* a store that does not answer is asked again */
    uint64_t trouble_ms; /* since when it does not; 0: it does */
    bool abandoned;
};

struct subscriber_pin {
    struct pin pin;
    struct subscriber *of;
    void (*cut)(struct subscriber *s);
};

void event_batch_unref(struct event_batch *b)
{
    if (b == NULL || --b->refs > 0)
        return;
    for (uint32_t i = 0; i < b->n_slices; i++)
        block_unref(b->slices[i].owner);
    block_unref(b->frame);
    free(b);
}

static struct event_batch *event_batch_take(struct store_read *r)
{
    struct event_batch *b = mem_zalloc(sizeof *b);
    b->refs = 1;
    b->info = r->info;
    b->info.content_type = STR_NONE;
    b->start = r->start;
    b->next = r->next;
    b->last = r->last;
    b->ordinal = r->ordinal;
    b->events = store_read_events(r);
    b->n_slices = r->n_slices;
    memcpy(b->slices, r->slices, r->n_slices * sizeof *r->slices);
    r->n_slices = 0;
    return b;
}

/* ---- feeds ---- */

void feeds_init(struct feeds *fs, struct store *store)
{
    fs->store = store;
    map_init(&fs->by_name);
    map_init(&fs->pins);
}

void feeds_deinit(struct feeds *fs)
{
    must(fs->by_name.n == 0 && fs->pins.n == 0);
    map_deinit(&fs->by_name);
    map_deinit(&fs->pins);
}

bool feeds_has(const struct feeds *fs, struct str name)
{
    return map_get(&fs->by_name, name) != NULL;
}

static void feed_release(struct feed *f)
{
    if (--f->users > 0)
        return;
    store_unwatch(f->feeds->store, &f->watch);
    map_remove(&f->feeds->by_name, str_of(f->name, f->name_n));
    free(f);
}

static void start_load(struct feed *f, struct subscriber *s, struct offset at);

/* For those who wait at the tail, of which more is known or might be. */
static void read_on(struct feed *f)
{
    f->owed = f->waves;
    if (f->shared == NULL && !f->waves && !list_empty(&f->waiting))
        start_load(f, NULL, (struct offset){f->life, f->tail});
}

static void wave_end(struct feed *f)
{
    task_cancel(&f->wake);
    event_batch_unref(f->last);
    f->last = NULL;
    f->waves = false;
    if (f->owed)
        read_on(f);
    feed_release(f);
}

/* Those who are woken ask at once, or stay where they are and are found to be behind later. */
static void wave_go_on(struct feed *f)
{
    struct sched *sched = f->feeds->store->sched;
    for (int i = 0; i < WAKE_AT_ONCE && !list_empty(&f->wave); i++) {
        struct subscriber *s = list_item(f->wave.next, struct subscriber, link);
        list_remove(&s->link);
        s->ready(s);
    }
    if (list_empty(&f->wave)) {
        wave_end(f);
        return;
    }
    sched_work(sched, "fan-out");
    sched_post(sched, &f->wake);
}

static void subscriber_on_wave(struct task *t)
{
    wave_go_on(container_of(t, struct feed, wake));
}

/* last: the wave's, and taken over. owed: more is there already. */
static void wave_begin(struct feed *f, struct event_batch *last, bool owed)
{
    f->last = last;
    f->waves = true;
    f->owed = owed;
    f->users++;
    list_splice(&f->wave, &f->waiting);
    wave_go_on(f);
}

static void subscriber_on_changed(struct store_watch *w, struct str name)
{
    struct feed *f = container_of(w, struct feed, watch);
    f->fresh = false;
    f->changes++;
    read_on(f);
}

static struct feed *feed_of(struct feeds *fs, struct str name)
{
    struct feed *f = map_get(&fs->by_name, name);
    if (f != NULL)
        return f;
    f = mem_zalloc(sizeof *f + name.n);
    f->feeds = fs;
    list_init(&f->waiting);
    list_init(&f->wave);
    task_init(&f->wake, subscriber_on_wave);
    f->name_n = name.n;
    memcpy(f->name, name.p, name.n);
    f->watch.name = str_of(f->name, f->name_n);
    f->watch.changed = subscriber_on_changed;
    map_put(&fs->by_name, f->watch.name, f);
    store_watch(fs->store, &f->watch);
    return f;
}

/* ---- loads ---- */

static bool has_news(const struct store_read *r)
{
    return r->next > r->start || r->info.end != END_NONE;
}

/* Is the tail that a read has seen still the tail of an open stream, for all we were told? */
static bool is_fresh(const struct load *l)
{
    return l->feed->changes == l->changes && l->read.info.end == END_NONE;
}

static void shared_loaded(struct load *l, int err)
{
    struct feed *f = l->feed;
    const struct store_read *r = &l->read;
    f->shared = NULL;
    if (err != 0) {
        wave_begin(f, NULL, false); /* each finds out by a read of its own */
        return;
    }
    bool up_to_date = r->next == r->info.tail;
    f->life = r->info.life;
    f->tail = r->next;
    f->fresh = up_to_date && is_fresh(l);
    bool more = !f->fresh && !(up_to_date && r->info.end != END_NONE);
    if (has_news(r))
        wave_begin(f, event_batch_take(&l->read), more);
    else if (more)
        read_on(f);
}

/* What one subscriber's read has found out is good for all: who waits at a place that is no longer
 * the tail gets a shared read, since the notice of it may find the feed up to date and keep quiet.
 */
static void share_tail(struct load *l)
{
    struct feed *f = l->feed;
    const struct stream_info *info = &l->read.info;
    if (f->shared != NULL || f->changes != l->changes)
        return;
    bool moved = info->life != f->life || info->tail != f->tail || info->end != END_NONE;
    if (moved && (f->waves || !list_empty(&f->waiting))) {
        f->fresh = false;
        read_on(f);
        return;
    }
    f->fresh = is_fresh(l);
    f->life = info->life;
    f->tail = info->tail;
}

/* Nothing but what this subscriber gave back? */
static bool only_held(const struct subscriber *s, const struct store_read *r)
{
    return s->held && r->info.tail == s->held_tail && r->info.end == END_NONE;
}

static size_t size_of(const struct store_read *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_slices; i++)
        n += r->slices[i].bytes.n;
    return n;
}

/* Nothing at all takes no room. */
static bool has_room(struct subscriber *s, size_t bytes)
{
    if (s->reserve == NULL || bytes == 0)
        return true;
    s->reserves = true;
    return s->reserve(s, bytes);
}

void subscriber_give_back(struct subscriber *s)
{
    if (s->reserves)
        s->reserve(s, 0);
    s->reserves = false;
}

static void own_loaded(struct load *l, int err)
{
    struct subscriber *s = l->subscriber;
    s->load = NULL;
    s->err = err;
    if (err == ERR_GAP) {
        s->held = false;
        s->gap = mem_alloc(sizeof *s->gap);
        *s->gap = l->read.gap;
    }
    if (err == 0) {
        share_tail(l);
        s->life = l->read.info.life; /* it may have come with an alias of its position */
        bool news = has_news(&l->read) && !only_held(s, &l->read);
        if (news && !has_room(s, size_of(&l->read)))
            return; /* a large event: it is read again */
        if (news)
            s->own = event_batch_take(&l->read);
    }
    s->ready(s); /* without news it asks again, and then waits */
}

/* Nobody wants what it would bring. */
static bool is_unwanted(const struct load *l)
{
    return l == l->feed->shared ? list_empty(&l->feed->waiting) : l->abandoned;
}

/* False: it is not worth it, or was too long. */
static bool wait_for_store(struct load *l)
{
    struct sched *sched = l->feed->feeds->store->sched;
    if (l->trouble_ms == 0)
        l->trouble_ms = sched->now_ms;
    if (is_unwanted(l) || sched->now_ms - l->trouble_ms >= RETRY_FOR_MS)
        return false;
    sched_start(sched, &l->retry, RETRY_MS);
    return true;
}

/* It waits to ask again, and nobody is left for whom. */
static void drop_unwanted(struct load *l)
{
    struct feed *f;
    if (l == NULL || !timer_running(&l->retry) || !is_unwanted(l))
        return;
    f = l->feed;
    timer_stop(&l->retry);
    if (l == f->shared)
        f->shared = NULL;
    free(l);
    feed_release(f);
}

static void subscriber_on_loaded(struct store_read *r, int err)
{
    struct load *l = container_of(r, struct load, read);
    struct feed *f = l->feed;
    if (ERR_IS_PASSING(err) && wait_for_store(l))
        return;
    if (l == f->shared)
        shared_loaded(l, err);
    else if (!l->abandoned)
        own_loaded(l, err);
    store_read_release(r);
    free(l);
    feed_release(f);
}

static void read_load(struct load *l, struct offset at)
{
    struct feed *f = l->feed;
    l->read = (struct store_read){.name = str_of(f->name, f->name_n),
                                  .from = READ_AT,
                                  .at = at,
                                  .max_bytes = EVENT_BATCH_BYTES,
                                  .done = subscriber_on_loaded};
    l->changes = f->changes;
    store_read(f->feeds->store, &l->read);
}

static void subscriber_on_retry_load(struct timer *t)
{
    struct load *l = container_of(t, struct load, retry);
    read_load(l, l->read.at);
}

static void start_load(struct feed *f, struct subscriber *s, struct offset at)
{
    struct load *l = mem_zalloc(sizeof *l);
    l->feed = f;
    l->subscriber = s;
    timer_init(&l->retry, subscriber_on_retry_load);
    f->users++;
    if (s != NULL)
        s->load = l;
    else
        f->shared = l;
    read_load(l, at);
}

/* ---- subscribers ---- */

void subscriber_init(struct subscriber *s, struct feeds *fs, struct str name, struct offset at,
                     void (*ready)(struct subscriber *s))
{
    *s = (struct subscriber){
        .feed = feed_of(fs, name), .life = at.life, .pos = at.pos, .ready = ready};
    list_init(&s->link);
    s->feed->users++;
    struct pins *pins = map_get(&fs->pins, name);
    if (pins == NULL)
        return;
    s->pin = mem_zalloc(sizeof *s->pin);
    s->pin->of = s;
    pin_add(&s->pin->pin, pins, (struct pin_position){.pos = at.pos}, fs->store->sched->now_ms);
}

static void subscriber_on_cut(struct pin *p)
{
    struct subscriber_pin *pin = container_of(p, struct subscriber_pin, pin);
    pin->cut(pin->of);
}

void subscriber_may_lag(struct subscriber *s, void (*cut)(struct subscriber *s))
{
    if (s->pin == NULL)
        return;
    s->pin->cut = cut;
    s->pin->pin.cut = subscriber_on_cut;
}

void subscriber_asks(struct subscriber *s, bool (*reserve)(struct subscriber *s, size_t bytes))
{
    s->reserve = reserve;
}

void subscriber_deinit(struct subscriber *s)
{
    if (s->feed == NULL)
        return;
    subscriber_give_back(s);
    list_remove(&s->link);
    if (list_empty(&s->feed->wave) && !list_empty(&s->feed->wake.link))
        wave_end(s->feed); /* it was the last to be woken */
    if (s->pin != NULL)
        pin_remove(&s->pin->pin);
    free(s->pin);
    if (s->load != NULL)
        s->load->abandoned = true;
    drop_unwanted(s->load);
    drop_unwanted(s->feed->shared);
    event_batch_unref(s->own);
    if (s->err == ERR_GAP)
        free(s->gap);
    feed_release(s->feed);
    *s = (struct subscriber){0};
}

struct str subscriber_name(const struct subscriber *s)
{
    return str_of(s->feed->name, s->feed->name_n);
}

void subscriber_prime(struct subscriber *s, struct store_read *r)
{
    must(s->own == NULL && s->load == NULL);
    if (has_room(s, size_of(r)))
        s->own = event_batch_take(r);
}

static enum next subscriber_give(struct subscriber *s, struct event_batch *b,
                                 struct event_batch **out)
{
    s->life = b->info.life;
    s->pos = b->next;
    s->held = false;
    if (s->pin != NULL) /* the ordinal of the next one is not known */
        pin_move(&s->pin->pin, (struct pin_position){b->next, b->ordinal});
    *out = b;
    return NEXT_BATCH;
}

enum next subscriber_next(struct subscriber *s, struct event_batch **batch)
{
    struct feed *f = s->feed;
    list_remove(&s->link); /* who asks anew may get something now, and is not told to ask for it */
    if (s->err != 0)
        return NEXT_FAILED;
    if (s->own != NULL) {
        struct event_batch *b = s->own;
        s->own = NULL;
        return subscriber_give(s, b, batch);
    }
    if (s->load != NULL)
        return NEXT_WAIT;
    if (f->last != NULL && f->last->info.life == s->life && f->last->start == s->pos && !s->held) {
        f->last->refs++;
        return subscriber_give(s, f->last, batch);
    }
    bool at_tail = f->life == s->life && s->pos == f->tail;
    bool held = f->life == s->life && s->held && s->held_tail == f->tail;
    bool read_comes = f->shared != NULL || (f->owed && f->last != NULL);
    if ((f->fresh && (at_tail || held)) || (read_comes && at_tail)) {
        subscriber_used(s);
        list_push(&f->waiting, &s->link);
        return NEXT_WAIT;
    }
    if (has_room(s, EVENT_BATCH_BYTES))
        start_load(f, s, (struct offset){s->life, s->pos});
    return NEXT_WAIT;
}

void subscriber_hold(struct subscriber *s, uint64_t pos, uint64_t tail)
{
    s->pos = pos;
    if (s->pin != NULL)
        s->pin->pin.at.pos = pos;
    s->held = true;
    s->held_tail = tail;
}
