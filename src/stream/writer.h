// SPDX-License-Identifier: Apache-2.0
/* writer.h -- the server's own writes to a stream: each is done once, or it is known why not.
 *
 * A store that is reached over a network can lose an answer (store->author): the write was done,
 * and whoever wrote sees an error. Tried again, it would be done twice, or would find its own first
 * try and take it for somebody else's. So each write has a claim, as those of clients have: the
 * process's own producer, the number of the write as its epoch, 0 as its sequence. A try that comes
 * again is a duplicate, and a success; one that comes late, behind a newer write, is fenced. The
 * tail and the events that come back are those that it left, whatever others have written since: so
 * the next write finds out.
 *
 * While the store is overloaded or away, or full, a write is tried again, with growing pauses,
 * until the first failure is retry_for_ms ago. Then nobody knows whether it was done: err is
 * ERR_AWAY or ERR_BUSY, and the next write with If-Match may find its tail moved by it.
 *
 * Loop thread only. One write at a time; done() comes exactly once for each, from the schedule. */
#ifndef STREAM_WRITER_H
#define STREAM_WRITER_H

#include "store/store.h"

struct writer {
    /* The caller's: all of it but again, done and what comes back. A claim of its own counts
     * instead of ours. With these two errors nothing that comes
     * back counts. */
    struct store_write write;
    uint64_t retry_for_ms; /* these two may change between two writes */
    bool waits_for_room;   /* ERR_FULL is no answer either */
    uint64_t events;       /* in the stream before a write with If-Match, as the caller knows it */
    bool followed;         /* out: it was done, and somebody else has written behind it since */
    void (*done)(struct writer *w, int err);

    /* the writer's own */
    struct store *store;
    struct timer retry;
    unsigned tries;      /* in vain, since the last answer */
    uint64_t trouble_ms; /* when the first of them failed */
    bool busy;           /* done() is to come */
    bool stopped;
    char id[16];
};

void writer_init(struct writer *w, uint64_t retry_for_ms, void (*done)(struct writer *w, int err));

/* Not busy. w->write, and all it points to, stays as it is until done(). */
void writer_start(struct writer *w, struct store *store);

/* Something has happened: if it waits to be tried again, that is now. */
void writer_retry_now(struct writer *w);

/* It is tried no more. True: it waited for that, and done() does not come. */
bool writer_stop(struct writer *w);

#endif
