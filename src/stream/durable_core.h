// SPDX-License-Identifier: Apache-2.0
/* durable_core.h -- what the parts of the Durable Streams protocol share. */
#ifndef STREAM_DURABLE_CORE_H
#define STREAM_DURABLE_CORE_H

#include "http/exchange.h"
#include "store/store.h"
#include "stream/durable.h"

struct buf;

/* Where streams of this name are. */
struct stream_home {
    struct store *store;
    struct feeds *feeds;
};
struct stream_home durable_home(const struct durable *d, struct str name);
const struct stream_space *durable_space(const struct durable *d, struct str name); /* or NULL */

/* durable_write.c, durable_read.c, durable_sse.c: one request each; name is in the arena. */
void durable_put(struct durable *d, struct exchange *x, struct str name);
void durable_post(struct durable *d, struct exchange *x, struct str name);
void durable_get(struct durable *d, struct exchange *x, struct str name);

/* durable_list.c: those that the caller may list. */
void durable_list(struct durable *d, struct exchange *x);

/* durable_answer.c: sends events as the body, a JSON array or as they are, as the peer takes them.
 * The slices are lent for the call; what is still to be sent then is read again. */
struct durable_events {
    struct str name;
    uint64_t life, start, next;
    const struct slice *slices;
    size_t n_slices;
};
void durable_answer(struct durable *d, struct exchange *x, const struct durable_events *e,
                    bool json);

/* Answers a read that was asked for as live=sse: r has succeeded, its slices are taken over. */
void durable_sse(struct durable *d, struct exchange *x, struct store_read *r, uint64_t cursor);

/* Stream-Closed: true. */
bool durable_wants_close(const struct exchange *x);

/* Only a browser on another site needs the headers of the second, and it says so. */

/* A stream's path in a header (absolute URL, path, or bare name) as its name. 0 or ERR_SYNTAX. */
int durable_name(struct exchange *x, struct str path, struct str *name);

void durable_put_offset(struct exchange *x, struct str header, struct offset o);

/* Stream-Closed and Stream-End-Reason, where the stream has ended. */
void durable_put_end(struct exchange *x, enum end_reason end);

/* The gap object as JSON. */
void durable_gap_json(struct buf *out, const struct gap *gap);

/* The error of a stream operation; gap is used with ERR_GAP. */
void durable_error(struct exchange *x, int err, const struct gap *gap);

/* The interval number that collapses caches, or one behind the client's if that is ahead. */
uint64_t durable_cursor(const struct sched *sched, uint64_t client);

#endif
