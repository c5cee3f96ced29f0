// SPDX-License-Identifier: Apache-2.0
/* bench_reader.h -- one SSE reader of numbered events. */
#ifndef BENCH_READER_H
#define BENCH_READER_H

#include "bench.h"

struct reader {
    struct peer peer;
    void *owner; /* the phase's, for its ops */
    struct tally tally;
    struct buf request;
    bool ready; /* its first SSE event, of whatever kind, is complete */
    char last;  /* byte of the body */
};

/* For a phase's ops: the status must be 200; no event may be lost or come twice. */
void reader_head(struct peer *p);
void reader_body(struct peer *p, struct str piece);

/* Connects and asks for `stream` from `offset` on; events are numbered from `first` on there. */
void reader_open(struct reader *r, struct bench *b, const struct peer_ops *ops, struct name stream,
                 const char *offset, uint64_t first);
/* The same with the request that the caller has put into r->request. */
void reader_ask(struct reader *r, struct bench *b, const struct peer_ops *ops, uint64_t first);
void reader_close(struct reader *r);

/* n of them, not open yet; free() after closing them. */
struct reader *readers_new(unsigned n, void *owner);
void readers_close(struct reader *all, unsigned n);

/* Waits until all n are ready. */
void readers_wait(struct bench *b, struct reader *all, unsigned n);

/* Fails the swarm unless each has got every event up to and without `end` exactly once. */
void readers_verify(struct bench *b, const struct reader *all, unsigned n, uint64_t end);

#endif
