// SPDX-License-Identifier: Apache-2.0
#include "model/oracle.h"
#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *wrong(struct oracle *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static const char *wrong(struct oracle *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(o->why, sizeof o->why, fmt, args);
    va_end(args);
    return o->why;
}

/* Says so and returns from the function unless the condition holds. */
#define DEMAND(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return wrong(o, __VA_ARGS__);                                                          \
    } while (0)

#define DEMAND_ERR(err, expected)                                                                  \
    DEMAND((err) == (expected), "answered %s, expected %s", err_name(err), err_name(expected))

static struct str copy(struct str s)
{
    if (s.p == NULL)
        return s;
    char *p = mem_alloc(s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return str_of(p, s.n);
}

static void drop(struct str s)
{
    free((char *)(uintptr_t)s.p);
}

/* ---- names and lives ---- */

static struct oracle_name *name_of(const struct oracle *o, struct str text)
{
    for (struct oracle_name *n = o->names; n != NULL; n = n->next)
        if (str_eq(n->text, text))
            return n;
    return NULL;
}

static struct oracle_name *name_made(struct oracle *o, struct str text)
{
    struct oracle_name *n = name_of(o, text);
    if (n == NULL) {
        n = mem_zalloc(sizeof *n);
        n->text = copy(text);
        n->next = o->names;
        o->names = n;
    }
    return n;
}

static bool was_life_of(const struct oracle_name *n, uint64_t life)
{
    for (size_t i = 0; i < n->n_lives; i++)
        if (n->lives[i] == life)
            return true;
    return false;
}

static void free_stream(struct oracle *o, struct oracle_stream *s)
{
    struct oracle_stream **at = &o->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (size_t i = 0; i < s->n_producers; i++)
        drop(s->producers[i].id);
    buf_deinit(&s->bytes);
    drop(s->config.content_type);
    drop(s->config.fork_of);
    drop(s->type);
    drop(s->closed_by.id);
    drop(s->last_seq);
    free(s->events);
    free(s->producers);
    free(s->origins);
    free(s);
}

static struct oracle_stream *any_fork_of(const struct oracle *o, const struct oracle_stream *s)
{
    for (struct oracle_stream *f = o->streams; f != NULL; f = f->next)
        if (f->source == s)
            return f;
    return NULL;
}

static bool past(const struct oracle *o, const struct oracle_stream *s)
{
    return (s->ttl_s >= 0 && o->now_ms >= s->touched_ms + s->ttl_s * 1000) ||
           (s->expires_ms >= 0 && o->now_ms >= s->expires_ms);
}

/* Takes a stream that has no forks away, and sources that only it kept. One of those that expired
 * may not have been noticed by the engine, which keeps it longer. */
static void clear_away(struct oracle *o, struct oracle_stream *s)
{
    struct oracle_stream *source = s->source;
    free_stream(o, s);
    if (source == NULL || !source->deleted || any_fork_of(o, source) != NULL)
        return;
    if (past(o, source))
        source->expired = true;
    else
        clear_away(o, source);
}

enum standing {
    ABSENT,
    LIVE,
    DELETED, /* held by forks that live */
    EITHER,  /* held by nothing but expired forks, if the engine has not cleared them yet */
};

static enum standing standing(const struct oracle *o, const struct oracle_stream *s)
{
    if (s == NULL || s->expired)
        return ABSENT;
    if (!s->deleted)
        return LIVE;
    for (const struct oracle_stream *f = o->streams; f != NULL; f = f->next) {
        enum standing its = f->source == s ? standing(o, f) : ABSENT;
        if (its == LIVE || its == DELETED)
            return DELETED;
    }
    return EITHER;
}

static struct oracle_stream *stream_of(const struct oracle *o, struct str name)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if (str_eq(s->name->text, name))
            return s;
    return NULL;
}

static void age(struct oracle *o)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next) {
        if (s->deleted || s->expired || !past(o, s))
            continue;
        if (any_fork_of(o, s) != NULL)
            s->deleted = true;
        else
            s->expired = true;
    }
}

static void clear_forks(struct oracle *o, struct oracle_stream *s)
{
    for (struct oracle_stream *f; (f = any_fork_of(o, s)) != NULL;) {
        clear_forks(o, f);
        f->source = NULL;
        clear_away(o, f);
    }
}

/* Where the name stands now. An answer that says what has become of it settles a doubt. */
static enum standing look(struct oracle *o, struct str name, bool still_there,
                          struct oracle_stream **out)
{
    age(o);
    *out = stream_of(o, name);
    enum standing st = standing(o, *out);
    if (st != EITHER)
        return st;
    if (still_there)
        return DELETED;
    clear_forks(o, *out);
    clear_away(o, *out);
    *out = NULL;
    return ABSENT;
}

/* ---- events ---- */

static uint64_t tail_of(const struct oracle_stream *s)
{
    return s->bytes.n;
}

static void add_event(struct oracle_stream *s, uint64_t end, bool ends_append, int64_t at_ms)
{
    if (s->n_events == s->cap_events) {
        s->cap_events = s->cap_events * 2 + 8;
        s->events = mem_realloc(s->events, s->cap_events * sizeof *s->events);
    }
    s->events[s->n_events++] = (struct oracle_event){end, ends_append, at_ms};
}

static void add_events(struct oracle_stream *s, const struct store_write *w, int64_t now_ms)
{
    uint64_t base = tail_of(s);
    if (w->data.n == 0)
        return;
    buf_put(&s->bytes, w->data);
    if (w->ends == NULL)
        add_event(s, base + w->data.n, true, now_ms);
    for (uint32_t i = 0; w->ends != NULL && i < w->n_events; i++)
        add_event(s, base + w->ends[i], i + 1 == w->n_events, now_ms);
}

/* Index of the event that begins at pos; n_events at the tail; SIZE_MAX if none does. */
static size_t event_at(const struct oracle_stream *s, uint64_t pos)
{
    uint64_t start = 0;
    for (size_t i = 0; i < s->n_events; i++) {
        if (start == pos)
            return i;
        start = s->events[i].end;
    }
    return start == pos ? s->n_events : SIZE_MAX;
}

static uint64_t event_start(const struct oracle_stream *s, size_t i)
{
    return i == 0 ? 0 : s->events[i - 1].end;
}

/* ---- retention ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Notes how far it may be trimmed by now. */
static void allow_trim(const struct oracle *o, struct oracle_stream *s)
{
    const struct retain *r = &s->retain;
    size_t n = s->n_events;
    if (n == 0)
        return;
    if (r->events > 0 && n > r->events)
        s->may = later(s->may, event_start(s, n - r->events));
    if (r->bytes > 0 && tail_of(s) > r->bytes) {
        size_t i = 0;
        while (i < n - 1 && event_start(s, i) < tail_of(s) - r->bytes)
            i++;
        s->may = later(s->may, event_start(s, i));
    }
    if (r->age_ms > 0) {
        size_t i = 0;
        while (i < n && s->events[i].at_ms < o->now_ms - (int64_t)r->age_ms)
            i++;
        s->may = later(s->may, i < n ? event_start(s, i) : tail_of(s));
    }
}

/* The engine says that the stream begins there. */
static const char *check_first(struct oracle *o, struct oracle_stream *s, uint64_t first)
{
    allow_trim(o, s);
    DEMAND(first >= s->first, "began at %" PRIu64 " and now at %" PRIu64, s->first, first);
    DEMAND(first <= s->may, "begins at %" PRIu64 ", must be there from %" PRIu64, first, s->may);
    DEMAND(event_at(s, first) != SIZE_MAX, "begins at %" PRIu64 ", within an event", first);
    s->first = first;
    return NULL;
}

const char *oracle_trimmed(struct oracle *o)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next) {
        const struct retain *r = &s->retain;
        if (standing(o, s) != LIVE || s->n_events == 0)
            continue;
        uint64_t bytes = tail_of(s) - s->first;
        size_t events = s->n_events - event_at(s, s->first);
        DEMAND(r->events == 0 || events <= r->events + r->events / 8,
               "'%.*s' has %zu events, should keep %" PRIu64, (int)s->name->text.n, s->name->text.p,
               events, r->events);
        DEMAND(r->bytes == 0 || events == 1 || bytes <= r->bytes + r->bytes / 8,
               "'%.*s' has %" PRIu64 " bytes, should keep %" PRIu64, (int)s->name->text.n,
               s->name->text.p, bytes, r->bytes);
    }
    return NULL;
}

/* 0 and the position, ERR_OFFSET, or ERR_GAP. */
static int locate(const struct oracle_stream *s, struct offset at, uint64_t *pos)
{
    uint64_t upto = 0;
    bool known = false;
    if (offset_is_zero(at)) {
        *pos = s->first;
        return 0;
    }
    if (at.life == s->life) {
        known = true;
        upto = tail_of(s);
    }
    for (size_t i = 0; i < s->n_origins; i++)
        if (at.life == s->origins[i].life) {
            known = true;
            upto = s->origins[i].upto;
        }
    if (!known || at.pos > upto || at.pos < s->first)
        return ERR_GAP;
    if (event_at(s, at.pos) == SIZE_MAX)
        return ERR_OFFSET;
    *pos = at.pos;
    return 0;
}

/* ---- comparing ---- */

static const char *check_info(struct oracle *o, struct oracle_stream *s,
                              const struct stream_info *info)
{
    DEMAND(info->life == s->life, "life %" PRIu64 ", expected %" PRIu64, info->life, s->life);
    DEMAND(info->tail == tail_of(s), "tail %" PRIu64 ", expected %" PRIu64, info->tail, tail_of(s));
    DEMAND(str_eq(info->content_type, s->type), "content type '%.*s', expected '%.*s'",
           (int)info->content_type.n, info->content_type.p, (int)s->type.n, s->type.p);
    DEMAND(info->ttl_s == s->ttl_s, "TTL %" PRId64 ", expected %" PRId64, info->ttl_s, s->ttl_s);
    DEMAND(info->expires_ms == s->expires_ms, "expires %" PRId64 ", expected %" PRId64,
           info->expires_ms, s->expires_ms);
    DEMAND(info->end == s->end, "end %d, expected %d", info->end, s->end);
    DEMAND(info->retain.events == s->retain.events && info->retain.bytes == s->retain.bytes &&
               info->retain.age_ms == s->retain.age_ms,
           "retains something else");
    DEMAND(info->events == s->n_events, "%" PRIu64 " events, expected %zu", info->events,
           s->n_events);
    const char *why = check_first(o, s, info->first);
    if (why == NULL)
        DEMAND(info->first_event >= event_at(s, s->first), "its first event is %" PRIu64,
               info->first_event);
    return why;
}

/* ---- documents ---- */

static struct oracle_doc **doc_at(const struct oracle *o, struct str key)
{
    struct oracle_doc **at = (struct oracle_doc **)&o->docs;
    while (*at != NULL && !str_eq((*at)->key, key))
        at = &(*at)->next;
    return at;
}

uint64_t oracle_doc_version(const struct oracle *o, struct str key)
{
    struct oracle_doc *d = *doc_at(o, key);
    return d == NULL ? 0 : d->version;
}

static int docs_verdict(const struct oracle *o, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (oracle_doc_version(o, puts[i].key) != puts[i].expect_version)
            return ERR_VERSION;
    return 0;
}

static void put_docs(struct oracle *o, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct oracle_doc **at = doc_at(o, puts[i].key), *d = *at;
        if (d == NULL && puts[i].value.p != NULL) {
            d = *at = mem_zalloc(sizeof *d);
            d->key = copy(puts[i].key);
        } else if (d != NULL) {
            drop(d->value);
        }
        if (puts[i].value.p != NULL) {
            d->value = copy(puts[i].value);
            d->version = DOC_NEXT(puts[i].expect_version);
        } else if (d != NULL) {
            *at = d->next;
            drop(d->key);
            free(d);
        }
    }
}

/* ---- writes ---- */

static struct str media_type(struct str type)
{
    return str_trim(str_cut(&type, ';'));
}

static bool same_type(struct str a, struct str b)
{
    return str_eq_nocase(media_type(a), media_type(b));
}

const struct producer_state *oracle_producer(const struct oracle_stream *s, struct str id)
{
    for (size_t i = 0; i < s->n_producers; i++)
        if (str_eq(s->producers[i].id, id))
            return &s->producers[i].state;
    return NULL;
}

#define DUPLICATE 1

static int claim_verdict(const struct producer_state *p, const struct producer_claim *c)
{
    if (p == NULL)
        return c->seq == 0 ? 0 : ERR_SEQ_GAP;
    if (c->epoch != p->epoch)
        return c->epoch < p->epoch ? ERR_FENCED : c->seq == 0 ? 0 : ERR_EPOCH_START;
    if (c->seq <= p->seq)
        return DUPLICATE;
    return c->seq == p->seq + 1 ? 0 : ERR_SEQ_GAP;
}

static int closed_verdict(const struct oracle_stream *s, const struct store_write *w)
{
    const struct producer_claim *by = &s->closed_by;
    if (w->close && w->claim.id.n == 0 && w->data.n == 0 && w->data_err == 0)
        return DUPLICATE; /* closing is repeatable */
    if (w->close && w->claim.id.n > 0 && str_eq(w->claim.id, by->id) &&
        w->claim.epoch == by->epoch && w->claim.seq == by->seq)
        return DUPLICATE; /* the very request that closed it */
    return ERR_CLOSED;
}

/* What a stream with this state answers; everything but the documents. */
static int write_verdict(const struct oracle_stream *s, const struct store_write *w)
{
    if (s->end != END_NONE)
        return closed_verdict(s, w);
    if (w->content_type.p != NULL && !same_type(w->content_type, s->type))
        return ERR_TYPE_MISMATCH;
    if (w->claim.id.n > 0) {
        int v = claim_verdict(oracle_producer(s, w->claim.id), &w->claim);
        if (v != 0)
            return v;
    }
    if (w->seq.p != NULL && s->last_seq.p != NULL && str_cmp(w->seq, s->last_seq) <= 0)
        return ERR_SEQ_ORDER;
    bool is_tail = (w->match.life == s->life && w->match.pos == tail_of(s)) ||
                   (offset_is_zero(w->match) && tail_of(s) == 0);
    if (w->if_match && !is_tail)
        return ERR_TAIL_MOVED;
    return w->data_err;
}

static void note_claim(struct oracle_stream *s, const struct producer_claim *c)
{
    struct producer_state *p = (struct producer_state *)oracle_producer(s, c->id);
    if (p == NULL) {
        s->producers = mem_realloc(s->producers, (s->n_producers + 1) * sizeof *s->producers);
        s->producers[s->n_producers].id = copy(c->id);
        p = &s->producers[s->n_producers++].state;
    }
    *p = (struct producer_state){c->epoch, c->seq};
}

static void apply(struct oracle *o, struct oracle_stream *s, const struct store_write *w)
{
    add_events(s, w, o->now_ms);
    if (w->claim.id.n > 0)
        note_claim(s, &w->claim);
    if (w->seq.p != NULL) {
        drop(s->last_seq);
        s->last_seq = copy(w->seq);
    }
    if (w->close) {
        s->end = w->end;
        s->closed_by = w->claim;
        s->closed_by.id = copy(w->claim.id);
    }
    put_docs(o, w->docs, w->n_docs);
    s->touched_ms = o->now_ms;
    s->name->changes += w->data.n > 0 || w->close;
}

static const char *check_claim(struct oracle *o, const struct oracle_stream *s,
                               const struct store_write *w, int err)
{
    const struct producer_state *p = oracle_producer(s, w->claim.id);
    bool told = err == 0 || err == ERR_FENCED || (err == ERR_CLOSED && p != NULL);
    if (w->claim.id.n > 0 && told)
        DEMAND(w->producer.epoch == p->epoch && w->producer.seq == p->seq,
               "producer at %" PRIu64 ".%" PRIu64 ", expected %" PRIu64 ".%" PRIu64,
               w->producer.epoch, w->producer.seq, p->epoch, p->seq);
    uint64_t expected = p == NULL ? 0 : p->seq + 1;
    if (err == ERR_SEQ_GAP)
        DEMAND(w->expected_seq == expected, "expected_seq %" PRIu64 ", expected %" PRIu64,
               w->expected_seq, expected);
    return NULL;
}

static const char *append(struct oracle *o, struct oracle_stream *s, const struct store_write *w,
                          int err)
{
    int v = write_verdict(s, w);
    if (v == 0)
        v = docs_verdict(o, w->docs, w->n_docs);
    DEMAND_ERR(err, v == DUPLICATE ? 0 : v);
    DEMAND(!w->created, "created what was there");
    DEMAND(err != 0 || w->duplicate == (v == DUPLICATE), "duplicate is %d", w->duplicate);
    if (v == 0)
        apply(o, s, w);
    if (v == DUPLICATE)
        s->touched_ms = o->now_ms;
    const char *why = check_claim(o, s, w, err);
    if (why == NULL && (err == 0 || err == ERR_CLOSED || err == ERR_TAIL_MOVED))
        why = check_info(o, s, &w->info);
    return why;
}

/* The same stream, asked for in the same words? A fork may leave out the type it shares with its
 * source; the life in its offset can be written in several ways and is not told apart here. */
static const char *confirm(struct oracle *o, struct oracle_stream *s, const struct store_write *w,
                           int err)
{
    const struct stream_config *kept = &s->config, *c = w->create;
    bool same = str_eq(kept->fork_of, c->fork_of) && kept->fork_at_tail == c->fork_at_tail &&
                kept->fork_sub == c->fork_sub && kept->ttl_s == c->ttl_s &&
                kept->expires_ms == c->expires_ms && kept->retain.events == c->retain.events &&
                kept->retain.bytes == c->retain.bytes && kept->retain.age_ms == c->retain.age_ms &&
                w->close == (s->end != END_NONE) && kept->fork_at.pos == c->fork_at.pos &&
                (c->content_type.n == 0 || same_type(c->content_type, s->type));
    bool same_words = kept->fork_at.life == c->fork_at.life;
    if (w->claim.id.n > 0 &&
        claim_verdict(oracle_producer(s, w->claim.id), &w->claim) == DUPLICATE) {
        DEMAND_ERR(err, 0); /* it has made it before, and was not told */
        DEMAND(w->created && w->duplicate, "made before, but does not say so");
        s->touched_ms = o->now_ms;
        const char *why = check_claim(o, s, w, err);
        return why != NULL ? why : check_info(o, s, &w->info);
    }
    if (!same || same_words || err != ERR_EXISTS)
        DEMAND_ERR(err, same ? 0 : ERR_EXISTS);
    DEMAND(!w->created && !w->duplicate, "created what was there");
    return err == 0 ? check_info(o, s, &w->info) : NULL;
}

/* The position that is `sub` events or bytes behind the one at `at`, within its append. */
static int fork_point(const struct oracle_stream *source, const struct stream_config *c,
                      uint64_t *out)
{
    uint64_t pos = tail_of(source);
    if (!c->fork_at_tail && locate(source, c->fork_at, &pos) != 0)
        return ERR_FORK_OFFSET;
    *out = pos;
    if (c->fork_sub == 0)
        return 0;
    size_t first = event_at(source, pos), last = first;
    if (first == source->n_events)
        return ERR_FORK_OFFSET;
    while (last + 1 < source->n_events && !source->events[last].ends_append)
        last++;
    bool by_event = same_type(source->type, STR("application/json"));
    uint64_t most = by_event ? last - first + 1 : source->events[last].end - pos;
    if (c->fork_sub > most)
        return ERR_FORK_OFFSET;
    *out = by_event ? source->events[first + c->fork_sub - 1].end : pos + c->fork_sub;
    return 0;
}

static void copy_events(struct oracle_stream *s, const struct oracle_stream *source, uint64_t upto)
{
    buf_put(&s->bytes, str_of(source->bytes.p, upto));
    for (size_t i = 0; i < source->n_events && event_start(source, i) < upto; i++) {
        bool whole = source->events[i].end <= upto;
        add_event(s, whole ? source->events[i].end : upto, whole && source->events[i].ends_append,
                  source->events[i].at_ms);
    }
    if (s->n_events > 0) /* a fork's first append never continues one of its source */
        s->events[s->n_events - 1].ends_append = true;
    s->n_origins = source->n_origins + 1;
    s->origins = mem_alloc(s->n_origins * sizeof *s->origins);
    for (size_t i = 0; i < source->n_origins; i++) {
        s->origins[i] = source->origins[i];
        if (s->origins[i].upto > upto)
            s->origins[i].upto = upto;
    }
    s->origins[s->n_origins - 1] = (struct oracle_origin){source->life, upto};
}

/* As it will be if it can be made; in no list yet. */
static struct oracle_stream *make(struct oracle *o, const struct store_write *w,
                                  struct oracle_stream *source, uint64_t upto)
{
    const struct stream_config *c = w->create;
    struct oracle_stream *s = mem_zalloc(sizeof *s);
    bool inherits = source != NULL && c->ttl_s < 0 && c->expires_ms < 0;
    s->name = name_made(o, w->name);
    s->config = *c;
    s->config.content_type = copy(c->content_type);
    s->config.fork_of = copy(c->fork_of);
    s->type = copy(c->content_type.n > 0 || source == NULL ? c->content_type : source->type);
    s->ttl_s = inherits ? source->ttl_s : c->ttl_s;
    s->expires_ms = inherits ? source->expires_ms : c->expires_ms;
    bool own = c->retain.events > 0 || c->retain.bytes > 0 || c->retain.age_ms > 0;
    s->retain = own || source == NULL ? c->retain : source->retain;
    s->source = source;
    if (source != NULL) {
        allow_trim(o, source);
        copy_events(s, source, upto);
        /* Where it begins is seen below; its source may have been seen trimmed since. */
        s->may = source->may < upto ? source->may : upto;
    }
    s->next = o->streams;
    o->streams = s;
    return s;
}

static const char *made(struct oracle *o, struct oracle_stream *s, const struct store_write *w)
{
    struct oracle_name *n = s->name;
    DEMAND(w->created && !w->duplicate, "made, but does not say so");
    DEMAND(w->info.life > o->last_life, "life %" PRIu64 " is not new", w->info.life);
    s->life = o->last_life = w->info.life;
    n->lives = mem_realloc(n->lives, (n->n_lives + 1) * sizeof *n->lives);
    n->lives[n->n_lives++] = s->life;
    n->changes++;
    apply(o, s, w);
    const char *why = check_claim(o, s, w, 0);
    return why != NULL ? why : check_info(o, s, &w->info);
}

/* A fork from the start begins where its source does: it may have been trimmed since that was last
 * seen, and the tail of the fork tells. */
static void see_start(struct oracle *o, struct oracle_stream *source, const struct store_write *w)
{
    uint64_t seen = source->first, at;
    allow_trim(o, source);
    if (w->create->fork_at_tail || !offset_is_zero(w->create->fork_at))
        return;
    for (size_t i = event_at(source, seen); i <= source->n_events; i++) {
        source->first = event_start(source, i);
        if (source->first > source->may)
            break;
        if (fork_point(source, w->create, &at) == 0 && at + w->data.n == w->info.tail)
            return;
    }
    source->first = seen;
}

static const char *create(struct oracle *o, const struct store_write *w, int err)
{
    const struct stream_config *c = w->create;
    struct oracle_stream *source = NULL;
    uint64_t upto = 0;
    if (c->fork_of.n > 0) {
        enum standing st = look(o, c->fork_of, err == ERR_FORK_DELETED, &source);
        if (st != LIVE) {
            DEMAND_ERR(err, st == DELETED ? ERR_FORK_DELETED : ERR_FORK_SOURCE);
            return NULL;
        }
        if (source->n_origins >= o->fork_depth) {
            DEMAND_ERR(err, ERR_FORK_DEPTH);
            return NULL;
        }
        bool mismatch = c->content_type.n > 0 && !same_type(c->content_type, source->type);
        if (err == 0)
            see_start(o, source, w);
        bool nowhere = fork_point(source, c, &upto) != 0;
        allow_trim(o, source);
        if (!nowhere && err == ERR_FORK_OFFSET && !c->fork_at_tail && c->fork_at.pos < source->may)
            return NULL; /* trimmed, which nobody has seen yet */
        if (mismatch && nowhere && err == ERR_TYPE_MISMATCH)
            return NULL;
        if (mismatch || nowhere) {
            DEMAND_ERR(err, nowhere ? ERR_FORK_OFFSET : ERR_TYPE_MISMATCH);
            return NULL;
        }
    }
    struct oracle_stream *s = make(o, w, source, upto);
    int v = write_verdict(s, w);
    if (v == 0)
        v = docs_verdict(o, w->docs, w->n_docs);
    if (v != 0) {
        free_stream(o, s);
        DEMAND_ERR(err, v);
        return NULL;
    }
    DEMAND_ERR(err, 0);
    return made(o, s, w);
}

const char *oracle_write(struct oracle *o, const struct store_write *w, int err)
{
    struct oracle_stream *s;
    enum standing st = look(o, w->name, err == ERR_DELETED || err == ERR_EXISTS, &s);
    if (st == LIVE)
        return w->create != NULL ? confirm(o, s, w, err) : append(o, s, w, err);
    if (st == DELETED) {
        DEMAND_ERR(err, w->create != NULL ? ERR_EXISTS : ERR_DELETED);
        return NULL;
    }
    if (w->create == NULL) {
        DEMAND_ERR(err, ERR_NOT_FOUND);
        return NULL;
    }
    if (s != NULL && err == 0) /* an expired one is gone for certain when its name is taken */
        clear_away(o, s);
    return create(o, w, err);
}

const char *oracle_remove(struct oracle *o, const struct store_remove *r, int err)
{
    struct oracle_stream *s;
    enum standing st = look(o, r->name, err == ERR_DELETED, &s);
    DEMAND_ERR(err, st == LIVE ? 0 : st == DELETED ? ERR_DELETED : ERR_NOT_FOUND);
    if (st != LIVE)
        return NULL;
    s->name->changes++;
    if (any_fork_of(o, s) == NULL)
        clear_away(o, s);
    else
        s->deleted = true;
    return NULL;
}

/* ---- reads ---- */

const char *oracle_stat(struct oracle *o, const struct store_stat *st, int err)
{
    struct oracle_stream *s;
    enum standing is = look(o, st->name, err == ERR_DELETED, &s);
    DEMAND_ERR(err, is == LIVE ? 0 : is == DELETED ? ERR_DELETED : ERR_NOT_FOUND);
    return is == LIVE ? check_info(o, s, &st->info) : NULL;
}

static const char *check_gap(struct oracle *o, struct oracle_stream *s, const struct store_read *r)
{
    const struct gap *g = &r->gap;
    DEMAND(g->requested.life == r->at.life && g->requested.pos == r->at.pos,
           "the gap is of another request");
    DEMAND(g->earliest.life == s->life, "earliest is of another life");
    const char *why = check_first(o, s, g->earliest.pos);
    uint64_t pos;
    if (why != NULL)
        return why;
    DEMAND(locate(s, r->at, &pos) == ERR_GAP, "a gap where there is none");
    bool ours = r->at.life == s->life;
    uint64_t upto = tail_of(s);
    for (size_t i = 0; i < s->n_origins && !ours; i++) {
        ours = r->at.life == s->origins[i].life;
        upto = s->origins[i].upto;
    }
    if (ours && r->at.pos < s->first && r->at.pos <= upto)
        DEMAND(g->reason == GAP_TRIMMED, "gap %d instead of trimmed", g->reason);
    else if (!ours && was_life_of(s->name, r->at.life))
        DEMAND(g->reason == GAP_REBORN, "gap %d instead of reborn", g->reason);
    else if (ours || r->at.life > s->life)
        DEMAND(g->reason == GAP_UNKNOWN, "gap %d instead of unknown", g->reason);
    else /* of some other stream: nobody need remember whose */
        DEMAND(g->reason == GAP_UNKNOWN || g->reason == GAP_REBORN, "gap %d", g->reason);
    return NULL;
}

static const char *check_no_event(struct oracle *o, struct oracle_stream *s,
                                  const struct store_read *r)
{
    bool beyond = r->event > s->n_events;
    const char *why = check_first(o, s, r->gap.earliest.pos);
    if (why != NULL)
        return why;
    allow_trim(o, s);
    DEMAND(beyond || r->event < event_at(s, s->may), "event %" PRIu64 " should be there", r->event);
    DEMAND(r->gap.reason == (beyond ? GAP_UNKNOWN : GAP_TRIMMED), "gap %d", r->gap.reason);
    return NULL;
}

static const char *check_bytes(struct oracle *o, const struct oracle_stream *s,
                               const struct store_read *r)
{
    uint64_t pos = r->start;
    for (uint32_t i = 0; i < r->n_slices; i++) {
        struct str got = r->slices[i].bytes;
        DEMAND(got.n > 0 && got.n <= r->next - pos, "slice %u has a wrong size", i);
        DEMAND(memcmp(got.p, s->bytes.p + pos, got.n) == 0, "slice %u has other bytes", i);
        pos += got.n;
    }
    DEMAND(pos == r->next, "slices up to %" PRIu64 ", next is %" PRIu64, pos, r->next);
    return NULL;
}

/* "About" max_bytes: no event is begun behind them. */
static const char *check_extent(struct oracle *o, const struct oracle_stream *s,
                                const struct store_read *r)
{
    size_t first = event_at(s, r->start), behind = event_at(s, r->next);
    DEMAND(behind != SIZE_MAX && r->next >= r->start, "next %" PRIu64 " is no boundary", r->next);
    DEMAND(behind > first || first == s->n_events, "nothing although there is more");
    DEMAND(r->ordinal == first, "ordinal %" PRIu64 ", expected %zu", r->ordinal, first);
    uint64_t last = behind == first ? r->next : event_start(s, behind - 1);
    DEMAND(r->last == last, "last %" PRIu64 ", expected %" PRIu64, r->last, last);
    DEMAND(behind - first <= 1 || last - r->start <= r->max_bytes, "more than asked for");
    return NULL;
}

const char *oracle_read(struct oracle *o, const struct store_read *r, int err)
{
    struct oracle_stream *s;
    enum standing st = look(o, r->name, err == ERR_DELETED, &s);
    if (st != LIVE) {
        DEMAND_ERR(err, st == DELETED ? ERR_DELETED : ERR_NOT_FOUND);
        return NULL;
    }
    if (r->touch)
        s->touched_ms = o->now_ms;
    if (err == ERR_GAP && r->from == READ_AT)
        return check_gap(o, s, r);
    if (err == ERR_GAP && r->from == READ_EVENT)
        return check_no_event(o, s, r);
    const char *why = err == 0 ? check_info(o, s, &r->info) : NULL;
    if (why != NULL)
        return why;
    uint64_t start = r->from == READ_TAIL ? tail_of(s) : s->first;
    int expected = r->from == READ_AT ? locate(s, r->at, &start) : 0;
    if (r->from == READ_EVENT && r->event >= event_at(s, s->first) && r->event <= s->n_events)
        start = event_start(s, r->event);
    else if (r->from == READ_EVENT)
        expected = ERR_GAP;
    DEMAND_ERR(err, expected);
    if (err != 0)
        return NULL;
    DEMAND(r->start == start, "start %" PRIu64 ", expected %" PRIu64, r->start, start);
    why = check_extent(o, s, r);
    return why != NULL ? why : check_bytes(o, s, r);
}

/* ---- listings ---- */

static bool listed(struct str key, struct str prefix, struct str after)
{
    return str_starts(key, prefix) && (after.n == 0 || str_cmp(key, after) > 0);
}

/* The live stream with the lowest name behind `after`. */
static struct oracle_stream *next_stream(const struct oracle *o, struct str prefix,
                                         struct str after)
{
    struct oracle_stream *best = NULL;
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if (standing(o, s) == LIVE && listed(s->name->text, prefix, after) &&
            (best == NULL || str_cmp(s->name->text, best->name->text) < 0))
            best = s;
    return best;
}

const char *oracle_list(struct oracle *o, const struct store_list *l, int err)
{
    age(o);
    DEMAND_ERR(err, 0);
    struct str after = l->after;
    for (size_t i = 0; i < l->n_rows; i++) {
        struct oracle_stream *s = next_stream(o, l->prefix, after);
        DEMAND(s != NULL && str_eq(l->rows[i].name, s->name->text), "row %zu is '%.*s'", i,
               (int)l->rows[i].name.n, l->rows[i].name.p);
        const char *why = check_info(o, s, &l->rows[i].info);
        if (why != NULL)
            return why;
        after = s->name->text;
    }
    bool more = next_stream(o, l->prefix, after) != NULL;
    DEMAND(l->n_rows == l->limit || !more, "%zu rows although there are more", l->n_rows);
    DEMAND(l->n_rows <= l->limit, "more rows than asked for");
    DEMAND(l->more == more, "more is %d", l->more);
    return NULL;
}

static const struct oracle_doc *next_doc(const struct oracle *o, struct str prefix,
                                         struct str after)
{
    const struct oracle_doc *best = NULL;
    for (const struct oracle_doc *d = o->docs; d != NULL; d = d->next)
        if (listed(d->key, prefix, after) && (best == NULL || str_cmp(d->key, best->key) < 0))
            best = d;
    return best;
}

const char *oracle_docs(struct oracle *o, const struct store_docs *q, int err)
{
    DEMAND_ERR(err, 0);
    struct str after = q->after;
    for (size_t i = 0; i < q->n_rows; i++) {
        const struct doc_row *row = &q->rows[i];
        const struct oracle_doc *d = next_doc(o, q->prefix, after);
        DEMAND(d != NULL && str_eq(row->key, d->key), "row %zu is '%.*s'", i, (int)row->key.n,
               row->key.p);
        DEMAND(str_eq(row->value, d->value) && row->version == d->version,
               "'%.*s' has another value or version", (int)row->key.n, row->key.p);
        after = d->key;
    }
    bool more = next_doc(o, q->prefix, after) != NULL;
    DEMAND(q->n_rows == q->limit || !more, "%zu rows although there are more", q->n_rows);
    DEMAND(q->n_rows <= q->limit, "more rows than asked for");
    DEMAND(q->more == more, "more is %d", q->more);
    return NULL;
}

const char *oracle_put(struct oracle *o, const struct store_put *p, int err)
{
    DEMAND_ERR(err, docs_verdict(o, p->docs, p->n_docs));
    if (err == 0)
        put_docs(o, p->docs, p->n_docs);
    return NULL;
}

/* ---- the rest ---- */

void oracle_init(struct oracle *o)
{
    *o = (struct oracle){.fork_depth = STORE_FORK_DEPTH};
}

void oracle_deinit(struct oracle *o)
{
    while (o->streams != NULL)
        free_stream(o, o->streams);
    for (struct oracle_name *n; (n = o->names) != NULL;) {
        o->names = n->next;
        drop(n->text);
        free(n->lives);
        free(n);
    }
    for (struct oracle_doc *d; (d = o->docs) != NULL;) {
        o->docs = d->next;
        drop(d->key);
        drop(d->value);
        free(d);
    }
}

void oracle_clock(struct oracle *o, int64_t wall_ms)
{
    if (wall_ms > o->now_ms)
        o->now_ms = wall_ms;
    age(o);
}

bool oracle_at_deadline(const struct oracle *o, int64_t wall_ms)
{
    for (const struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if ((s->ttl_s >= 0 && wall_ms == s->touched_ms + s->ttl_s * 1000) ||
            wall_ms == s->expires_ms)
            return true;
    return false;
}

static struct oracle_stream *any_expired(const struct oracle *o)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if (s->expired)
            return s;
    return NULL;
}

void oracle_swept(struct oracle *o)
{
    age(o);
    for (struct oracle_stream *s; (s = any_expired(o)) != NULL;)
        clear_away(o, s);
}

const struct oracle_stream *oracle_find(const struct oracle *o, struct str name)
{
    struct oracle_stream *s = stream_of(o, name);
    return standing(o, s) == LIVE ? s : NULL;
}

uint64_t oracle_changes(const struct oracle *o, struct str name)
{
    const struct oracle_name *n = name_of(o, name);
    return n == NULL ? 0 : n->changes;
}

void oracle_touch_all(struct oracle *o)
{
    for (struct oracle_stream *s = o->streams; s != NULL; s = s->next)
        if (!s->expired && !s->deleted)
            s->touched_ms = o->now_ms;
}
