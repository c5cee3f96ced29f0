// SPDX-License-Identifier: Apache-2.0
/* bench_scale.h -- what is done to a server that holds a million streams, and rows about how others
 * fare meanwhile. */
#ifndef BENCH_SCALE_H
#define BENCH_SCALE_H

#include "bench_pump.h"
#include "bench_steady.h"
#include "bench_turns.h"

#define SCALE_GENTLE 4 /* requests under way of what goes on beside the steady load */
#define SCALE_PAGES  3
#define SCALE_TRIES  3 /* of everything, of which the one in the middle counts */

struct scale {
    struct bench *bench;
    unsigned streams; /* in all */
    unsigned some;    /* a tenth of them: so many match, expire, are deleted */
    double empty_us;  /* p99.9 of a steady append on an empty server */
    double try_s;     /* how long one lasts at least */
    unsigned try;     /* 0 to SCALE_TRIES - 1 */
    double create_us; /* what a create took when streams were last made */
    double page_us[SCALE_PAGES];
    uint64_t expires_s; /* Unix time */
    struct scale_start {
        struct spent spent;
        double ms; /* to the first append that was answered */
    } starts[SCALE_TRIES];
};

/* What goes on while appends are timed: once, or again and again until until_ns. It is done
 * SCALE_TRIES times; what can be done but once does a part of it in each. */
struct scale_act {
    const char *key;                                 /* of the figure; KEY-turns is another */
    const char *what;                                /* a line of progress */
    void (*prepare)(struct scale *s);                /* before the load begins; may be NULL */
    void (*act)(struct scale *s, uint64_t until_ns); /* may be NULL */
    void (*verify)(struct scale *s);                 /* when the load has ended; may be NULL */
};

/* Runs it under the steady load. Rows KEY (p99.9 of an append in the try in the middle, times that
 * of an empty server) and KEY-turns (turns of more than 10 ms in all tries). */
void scale_measure(struct scale *s, const struct scale_act *act);

/* The row KEY-turns. */
void scale_report_turns(struct bench *b, const char *key, const struct turns *sum);

/* Until the server has nothing to do, for a minute at most. */
void scale_await_idle(struct bench *b);

/* ---- acts (bench_scale_acts.c) ---- */

void scale_grow(struct scale *s, uint64_t until_ns);
void scale_list(struct scale *s, uint64_t until_ns);
void scale_head(struct scale *s, uint64_t until_ns);
void scale_unsubscribe(struct scale *s);
void scale_subscribe(struct scale *s, uint64_t until_ns);
void scale_delete(struct scale *s, uint64_t until_ns);
void scale_brief(struct scale *s);
void scale_expire(struct scale *s, uint64_t until_ns);
void scale_expired(struct scale *s);
void scale_checkpoint(struct scale *s, uint64_t until_ns);
void scale_body_small(struct scale *s, uint64_t until_ns);
void scale_body_large(struct scale *s, uint64_t until_ns);

/* How long one page of each size takes to list, without other load. */
void scale_time_pages(struct scale *s, double us[SCALE_PAGES]);
extern const unsigned scale_pages[SCALE_PAGES]; /* their sizes */

/* ---- documents (bench_scale_docs.c) ---- */

/* Sessions whose clients have left. */
void scale_add_sessions(struct bench *b, unsigned n);

/* A pull subscription that wakes nobody, with this pattern, and n more that each link a stream. */
void scale_put_subscription(struct bench *b, const char *id, const char *pattern);
void scale_drop_subscription(struct bench *b, const char *id);
void scale_add_subscriptions(struct bench *b, unsigned n);

#define SCALE_BULK  "bulk" /* streams that nothing matches */
#define SCALE_MATCH "m/s"  /* ... and those that the subscription does */

#endif
