// SPDX-License-Identifier: Apache-2.0
/* catalog.h -- the streams and documents of a store that one process owns, with the rules for
 * changing them; for engines that keep them in memory (mem.c) and on disk (embedded.c).
 *
 * A change is judged against what has been applied so far, then applied. Readers are shown the
 * *settled* part: what a crash cannot take back. mem.c settles at once, the store on disk when the
 * journal has. Loop thread only. */
#ifndef STORE_CATALOG_CATALOG_H
#define STORE_CATALOG_CATALOG_H

#include "base/heap.h"
#include "base/map.h"
#include "base/order.h"
#include "store/catalog/extent.h"
#include "store/store.h"
#include "store/catalog/tape.h"
#include "store/watchers.h"

/* A life whose positions below `upto` are a stream's too: its own, or one that it was forked from.
 */
struct origin {
    uint64_t life, upto;
};

/* How long a stream is kept, and how much of it. Most streams have no such thing. */
struct stream_term {
    struct stream *stream;
    struct heap_item due, dated; /* in the catalog's */
    int64_t ttl_s, expires_ms;   /* in force */
    int64_t touched_ms;          /* steady, as catalog->due; 0: not since the start */
    int64_t look_ms;             /* the same: how far it can be trimmed is to be looked at */
    struct retain retain;        /* of its own */

    /* the engine's */
    int64_t front_ms; /* no event of the block that the stream begins in is younger; 0: unknown */
    bool looking;     /* for how far it can be trimmed */
};

/* What a stream that was forked has besides. What it has below the fork point is its source's. */
struct stream_fork {
    struct stream *stream, *source; /* source NULL: it is lost, or this one was removed */
    uint64_t lost;                  /* its life, if so */
    struct stream_config config;    /* as asked for; without the content type */
    uint64_t at, events;            /* the fork point, and the ordinal there */
    uint32_t depth;                 /* of how many streams, one of the other, it is a fork */
    bool whole;       /* the engine has all of it under its own life: made by version 0.1 */
    struct link link; /* among the forks of its source */
    uint64_t low;     /* from here on it, or a fork of it, needs its source */
    struct heap_item needs[2]; /* in the heaps of its source; in none: it needs nothing of that */
};

/* Of a stream that has forks. */
struct stream_family {
    struct link forks;
    struct heap heaps[2]; /* catalog_family.c */
};

/* What later writes are held against. */
struct stream_guard {
    struct producer_claim closed_by;
    struct str last_seq; /* p == NULL: none yet */
};

/* There may be millions that nobody looks at: what few have is kept apart. */
struct stream {
    struct str name; /* owned, as all texts here */
    uint64_t life;
    struct tape tape;             /* what has been applied and is in memory */
    uint64_t first, first_event;  /* trimmed up to here */
    struct str content_type;      /* shared */
    struct stream_term *term;     /* NULL: kept for ever */
    struct stream_fork *fork;     /* NULL: is none */
    struct stream_family *family; /* NULL: it has no forks */
    struct stream_guard *guard;   /* NULL: nothing in it */
    struct map *producers;        /* of struct producer; NULL: none yet */
    uint64_t settled_first, settled_tail;
    struct link dirty;   /* the engine's: changed since it was written out; see dirty_turn */
    uint64_t last_batch; /* the engine's: of the journal that changed it */
    uint32_t pins;       /* keep the memory although it has been removed */
    enum end_reason end : 8, settled_end : 8;
    bool settled; /* its creation is */
    bool deleted; /* only forks keep it, as far as they need it */
    bool removed;
    bool dirty_turn; /* the engine's */
    char name_bytes[];
};

struct producer {
    struct producer_state state;
    bool dirty; /* the engine's */
    size_t n;
    char id[];
};

struct doc {
    struct str key, value; /* owned; value.p == NULL: removed, kept for the engine */
    uint64_t version;
    struct link dirty; /* the engine's */
    bool dirty_turn;   /* the engine's */
};

/* How far a stream can be trimmed. */
enum trim_verdict {
    TRIM_NONE, /* not at all */
    TRIM_TO,   /* trim->first */
    TRIM_LOOK, /* it begins before its tape: trim->keep says what of the rest has to stay */
};

struct catalog {
    const struct store *store; /* its bounds */
    struct sched *sched;
    struct map streams; /* by name */
    struct map docs;    /* by key */
    struct map types;   /* content types in use */
    struct order names; /* of streams that can be listed: settled, and not deleted */
    struct order keys;  /* of documents that have a value */
    struct watchers watchers;
    struct heap due;   /* by steady time: that of the clock, less what that has jumped */
    struct heap dated; /* by the date that they expire at */
    struct timer sweep;
    struct task sweeping;
    uint64_t lives; /* handed out so far */
    /* The time, as catalog_wall_ms tells it */
    int64_t wall_ms;
    uint64_t mono_ms;       /* at the last look */
    int64_t stepped_ms;     /* that it has jumped since the start, in sum */
    int64_t started_ms;     /* steady */
    int64_t trusted_ms;     /* since then it has not jumped back */
    bool ticking;           /* otherwise all that counts is the latest that was stored */
    bool keep_removed_docs; /* the engine has yet to hear of them, and drops them itself */
    /* Told before a stream's row and data go (also when only forks keep the name). May be NULL. */
    void (*removing)(struct catalog *c, struct stream *s);
    /* Told before less than so far has to be kept of a stream, for its forks need less. May be
     * NULL. */
    void (*shrinking)(struct catalog *c, struct stream *s);
    /* Called now and then for streams that may hold more than they retain. TRIM_NONE: not now. */
    enum trim_verdict (*trim)(struct catalog *c, struct stream *s);
};

void catalog_init(struct catalog *c, const struct store *store);
void catalog_deinit(struct catalog *c);

/* From now on expired streams are removed by themselves, and aged events; some at a time. */
void catalog_start_sweep(struct catalog *c);
void catalog_stop_sweep(struct catalog *c);

/* Unix time. A clock that goes back a little is waited for; if it goes back by more than
 * CATALOG_LEAD_MS it, or what was there before, was wrong, and there is no telling which: it is
 * believed, unless it says a time that cannot be. What it jumps, either way, does not count for
 * TTLs. */
#define CATALOG_LEAD_MS (60 * 60 * 1000)
int64_t catalog_wall_ms(struct catalog *c);

/* wall_ms is the latest time that was stored; 0: none. Every stream counts as touched. */
void catalog_start_clock(struct catalog *c);

/* ERR_NOT_FOUND, ERR_DELETED, or 0 and a live stream. One that has expired is removed by this. */
int catalog_find(struct catalog *c, struct str name, struct stream **out);

void stream_touch(struct catalog *c, struct stream *s);
struct stream_info stream_info_of(const struct stream *s); /* settled */
struct stream_config stream_config_of(const struct stream *s);

/* The position that an offset means in this stream: ERR_GAP with *reason, or 0. Whether an event
 * begins there is not looked at. */
int stream_resolve(const struct stream *s, struct offset at, uint64_t *pos,
                   enum gap_reason *reason);

/* Where the event of this ordinal begins (or the next one will): 0; ERR_GAP with *reason; or
 * STREAM_LOOK: where something rests, from *pos on. */
#define STREAM_LOOK 1
int stream_seek(const struct stream *s, uint64_t event, uint64_t *pos, enum gap_reason *reason);

/* ---- families: catalog_family.c ---- */

static inline uint32_t stream_depth(const struct stream *s)
{
    return s->fork == NULL ? 0 : s->fork->depth;
}

/* Whose what a stream has at a position is (its own, or that of one which it was forked from), up
 * to where at least, and the ordinal there. UINT64_MAX: up to its tail. */
struct span {
    const struct stream *owner;
    uint64_t upto, events;
};
struct span stream_span(const struct stream *s, uint64_t pos);
struct span stream_span_of_event(const struct stream *s, uint64_t event);

/* Whether positions of that life are positions of this stream, and below which. */
bool stream_origin(const struct stream *s, uint64_t life, uint64_t *upto);

/* The life that the byte at pos was written for, and up to where that is so. */
struct origin stream_writer(const struct stream *s, uint64_t pos);

/* What it has at this position is in memory. */
bool stream_holds(const struct stream *s, uint64_t pos);

/* As of a tape (tape.h), also before the fork point; what is asked for is held. A read ends where
 * something is not. */
uint32_t stream_read_held(const struct stream *s, uint64_t from, uint64_t limit, size_t max,
                          struct slice *slices, uint32_t room, uint64_t *next, uint64_t *last);

/* The same into an operation, from r->start on. ERR_OFFSET: no event begins there. */
int stream_fill_read(const struct stream *s, struct store_read *r);

/* The ordinal of the event that begins at a position that is held. */
uint64_t stream_ordinal(const struct stream *s, uint64_t pos);

/* What has to be kept of what it owns, by what has been applied; of one that is not deleted, up to
 * its tail. */
uint64_t stream_needed_from(const struct stream *s);
uint64_t stream_needed_upto(const struct stream *s);

/* Any of its forks; NULL: it has none. */
struct stream *stream_any_fork(const struct stream *s);

/* ---- writes ---- */

/* What a write comes to. */
struct judgement {
    struct stream *stream;         /* that exists; NULL: it is to be created */
    struct stream *source;         /* of a fork */
    uint64_t fork_anchor;          /* the position that fork_at means */
    uint64_t fork_at, fork_events; /* the fork point, and the ordinal there; see catalog_judge */
};

/* VERDICT_APPLY, VERDICT_DUPLICATE, or the error; nothing has changed (but what expired). Fills the
 * results of w. For a fork whose point lies before what the source's tape holds,
 * `find_fork_position` says where it is: it has been called with *j filled up to fork_anchor, and
 * sets fork_at and fork_events. NULL: the tapes hold everything. */
int catalog_judge(struct catalog *c, struct store_write *w, struct judgement *j,
                  int (*find_fork_position)(void *ctx, struct judgement *j), void *ctx);

/* Applies what was judged VERDICT_APPLY, and trims the stream as far as its tape can tell. Returns
 * the stream; w->info shows what was applied. */
struct stream *catalog_apply(struct catalog *c, struct store_write *w, const struct judgement *j);

/* Its creation is safe: it can be listed. */
void stream_show(struct catalog *c, struct stream *s);

/* What has been applied is safe: readers may see it, watchers are told. */
void catalog_settle(struct catalog *c, struct stream *s, const struct stream_info *applied);

/* ---- retention ---- */

struct trim {
    uint64_t first, event; /* the position, and the ordinal there */
    struct keep keep;
};
/* Nothing has changed. */
enum trim_verdict catalog_judge_trim(struct catalog *c, const struct stream *s, struct trim *out);

/* It may have to be trimmed again: the next sweep looks at it. */
void stream_look_soon(struct catalog *c, struct stream *s);

/* How far apart in time events may be that are told apart by age no more; INT64_MAX: any. */
int64_t catalog_age_step(const struct catalog *c, const struct stream *s);

/* The stream begins here from now on. */
void stream_trim(struct stream *s, uint64_t pos, uint64_t event);

/* A trim up to here is safe. */
void stream_settle_trim(struct catalog *c, struct stream *s, uint64_t first);

/* It does not expire any more by itself, nor is it trimmed. */
void catalog_end_term(struct catalog *c, struct stream *s);

/* Takes the stream away. While forks of it live, its name is not free. */
void catalog_remove(struct catalog *c, struct stream *s);

/* Lets go of a pinned stream. */
void stream_unpin(struct stream *s);

/* ---- documents ---- */

/* Drops a removed document that was kept for the engine. */
void catalog_forget_doc(struct catalog *c, struct doc *d);

int catalog_check_docs(struct catalog *c, const struct doc_put *puts, size_t n);
void catalog_put_docs(struct catalog *c, const struct doc_put *puts, size_t n);

/* ---- listings: catalog_list.c ---- */

/* Fills the operation, whose page is NULL at first. False: it is called again in another task, for
 * that there is more took as long as one should. The texts of the rows are lent until the next
 * change, unless they have been kept. */
bool catalog_find_list(struct catalog *c, struct store_list *l);
bool catalog_find_docs(struct catalog *c, struct store_docs *d);

/* The rows get texts of their own. */
void catalog_keep_list(struct store_list *l);
void catalog_keep_docs(struct store_docs *d);

/* Calls its done() and frees the rows. */
void catalog_end_list(struct store_list *l, int err);
void catalog_end_docs(struct store_docs *d, int err);

/* As if it had not begun. */
void catalog_drop_list(struct store_list *l);

/* ---- loading what an engine has kept ---- */

/* A stream of this name and type, with the term that a config asks for; the rest is set by the
 * caller afterwards. Texts are copied. */
struct stream *catalog_add(struct catalog *c, struct str name, uint64_t life,
                           const struct stream_config *term, struct str content_type);
void stream_set_seq(struct stream *s, struct str seq);
void stream_set_end(struct stream *s, enum end_reason end, const struct producer_claim *by);
void stream_set_producer(struct stream *s, const struct producer_claim *claim);

/* Makes it a fork, as was asked for, that begins here; its source is told by stream_join, when it
 * is known from where on the stream can be read. */
void stream_set_fork(struct stream *s, const struct stream_config *config, uint64_t at,
                     uint64_t events);
void stream_join(struct stream *s, struct stream *source);

/* Both, of a stream that is made now. */
void stream_fork_from(struct stream *s, const struct stream_config *config, struct stream *source,
                      uint64_t at, uint64_t events);

#endif
