// SPDX-License-Identifier: Apache-2.0
/* bench_h2.h -- many calls without bodies on one HTTP/2 connection (h2c). What they bring is
 * counted and dropped. */
#ifndef BENCH_H2_H
#define BENCH_H2_H

#include "bench_swarm.h"

#include "base/buf.h"

#include <nghttp2/nghttp2.h>

#define H2_HEADERS_MAX 8

struct h2_header {
    const char *name, *value;
};

/* Embedded in what a phase keeps per connection; stays where it is while open. */
struct h2 {
    struct source source;
    struct swarm *swarm;
    int fd; /* -1: closed */
    nghttp2_session *session;
    bool waits_to_write;
    struct buf out; /* frames that the kernel has not taken */
    size_t out_at;
    uint64_t asked, begun, ended; /* calls; begun: the answer's head is there, a 200 */
    uint64_t refused;             /* any other status, or reset */
    uint64_t bytes;               /* of bodies */
    void (*after)(struct h2 *c);  /* once per read; may be NULL */
};

/* window: what each answer may send before it is told that there is room again, which happens
 * unless it is 0. */
void h2_open(struct h2 *c, struct swarm *s, uint32_t window, void (*after)(struct h2 *c));
void h2_close(struct h2 *c);

/* At most H2_HEADERS_MAX headers. They go out with the next flush, which follows after(). */
void h2_call(struct h2 *c, const char *method, const char *path, const struct h2_header *headers,
             size_t n);
void h2_flush(struct h2 *c);

#endif
