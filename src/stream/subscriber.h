// SPDX-License-Identifier: Apache-2.0
/* subscriber.h -- a reader of a stream: an offset and a wake-up.
 *
 * Replay and live tail are one loop: ask for the next batch, take it, ask again; when there is
 * none, ready() tells when to ask again. Nothing is queued for a subscriber that does not ask.
 * Subscribers that wait at the tail of the same stream share one watch and one read. Loop thread
 * only. */
#ifndef STREAM_SUBSCRIBER_H
#define STREAM_SUBSCRIBER_H

#include "base/map.h"
#include "stream/pins.h"
#include "store/store.h"

#define EVENT_BATCH_BYTES (64 * 1024)

/* Events [start, next) of one life of a stream, shared by reference count. */
struct event_batch {
    uint32_t refs;
    uint32_t n_slices;
    struct stream_info info; /* when it was read; content_type is not kept */
    uint64_t start, next;    /* next == info.tail: up to date */
    uint64_t last;           /* where the last event begins */
    uint64_t ordinal;        /* of the event at start */
    uint64_t events;         /* how many */
    struct slice slices[READ_SLICES];
    /* The protocol's encoding of this batch, made by the first that needs it. */
    struct block *frame;
    uint64_t frame_key;
};
void event_batch_unref(struct event_batch *b);

/* The streams that have subscribers. */
struct feeds {
    struct store *store;
    struct map by_name;
    struct map pins; /* of the streams whose writers wait for subscribers */
};
void feeds_init(struct feeds *fs, struct store *store);
void feeds_deinit(struct feeds *fs); /* no subscriber is left */

/* Does anybody follow the stream of this name? */
bool feeds_has(const struct feeds *fs, struct str name);

enum next {
    NEXT_BATCH,  /* *batch is the caller's reference; the position has moved behind it */
    NEXT_WAIT,   /* ready() will be called */
    NEXT_FAILED, /* the stream is gone, or the position in it: subscriber.err, .gap */
};

struct subscriber {
    struct feed *feed;
    struct link link; /* among those that wait */
    uint64_t life, pos;
    struct event_batch *own; /* read for this one alone */
    struct load *load;       /* being read */
    union {
        uint64_t held_tail; /* with held: batches up to this tail were given back */
        struct gap *gap;    /* with ERR_GAP */
    };
    bool held;
    bool reserves; /* has asked for room, and may have it */
    int err;
    struct subscriber_pin *pin; /* at pos, if the stream's writer waits for subscribers; or NULL */
    void (*ready)(struct subscriber *s);
    bool (*reserve)(struct subscriber *s, size_t bytes);
};

/* From a position that a read has confirmed. ready() is called from the schedule, never from within
 * a call to the functions below. */
void subscriber_init(struct subscriber *s, struct feeds *fs, struct str name, struct offset at,
                     void (*ready)(struct subscriber *s));
void subscriber_deinit(struct subscriber *s);

struct str subscriber_name(const struct subscriber *s); /* of the stream; lent */

/* What to do when this one has held up the stream's writer for too long; it ends with a
 * subscriber_deinit. Without it the subscriber takes every batch as soon as it is there. */
void subscriber_may_lag(struct subscriber *s, void (*cut)(struct subscriber *s));

/* Whom to ask before something is read for this one alone, as exchange_reserve is asked. False: it
 * asks for the next batch again when there is room. What has been granted is given back with
 * subscriber_used, or when it waits at the tail. */
void subscriber_asks(struct subscriber *s, bool (*reserve)(struct subscriber *s, size_t bytes));
void subscriber_give_back(struct subscriber *s);
static inline void subscriber_used(struct subscriber *s) /* nothing of the last batch is held */
{
    if (s->reserves && s->own == NULL && s->load == NULL)
        subscriber_give_back(s);
}

/* Makes what a successful read gave the first batch; its slices are taken over. There has to be
 * room for it: else it is read again. */
void subscriber_prime(struct subscriber *s, struct store_read *r);

enum next subscriber_next(struct subscriber *s, struct event_batch **batch);

/* Gives the tail of a batch back: the next one begins at `pos` again, and comes only when the
 * stream's tail is another than `tail`. */
void subscriber_hold(struct subscriber *s, uint64_t pos, uint64_t tail);

#endif
