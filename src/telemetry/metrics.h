// SPDX-License-Identifier: Apache-2.0
/* metrics.h -- numbers for whoever scrapes the server, in Prometheus text format 0.0.4.
 *
 * A metric is a plain struct in the struct of whoever counts, and counting is one addition:
 *
 *     struct relay { struct counter resumes; struct histogram wait; ... };
 *     metrics_add_counter(m, STR("tidemark"), &resumes_info, &r->resumes);   once, at the start
 *     counter_inc(&r->resumes);                                              wherever it happens
 *
 * The registry only knows where the structs are, to print them; it is looked at when a metric is
 * added and when somebody scrapes. A family with labels keeps its series itself:
 * metric_family_counter finds or makes one, for a connection or a route to keep the pointer of.
 * Label values may come from a peer, so a family has at most `series_max` of them and everything
 * beyond is counted in one more, whose values all read `other`.
 *
 * Telemetry events. An event of a surface, such as `assist.sse.resume_issued`, is two things at the
 * place where it happens: a trace (trace.h) with all its fields, and a counter of its name, dots
 * turned into underscores and `_total` behind it: `assist_sse_resume_issued_total`. The surface has
 * one table row per event (name, help, trace kind) and one `struct counter` per row; the part of
 * the name before its last dot is configuration and is the prefix given when the row's counter is
 * added, since a fleet that watches `assist.sse.` today must not have to change its boards. An
 * event adds one, or what it counts if it carries a count (`resume_replay_count`: events replayed).
 * Fields with few values by nature (`reason`, `recovery_type`) may be labels; ids, sequence numbers
 * and everything else a client chooses go into the trace alone.
 *
 * Loop thread only: with several loops, each has a registry and structs of its own. */
#ifndef TELEMETRY_METRICS_H
#define TELEMETRY_METRICS_H

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"

#include <stdint.h>

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

#define METRIC_NAME_MAX      128 /* bytes of a name, prefix and `_total` included */
#define METRIC_LABELS_MAX    3
#define METRIC_VALUE_MAX     128 /* bytes of a label's value; a longer one is counted as `other` */
#define METRIC_SERIES_MAX    1000
#define METRIC_BUCKETS_MAX   20

/* ---- counting ---- */

struct counter {
    uint64_t n;
};

struct gauge {
    int64_t n;
};

/* The buckets of a histogram; static. What is observed is a whole number of some small unit, and
 * `decimals` says how much smaller than the printed one: with 6, microseconds are observed and
 * seconds printed. */
struct histogram_shape {
    const uint64_t *bounds; /* the highest value of each bucket, ascending */
    uint8_t n;              /* 1 to METRIC_BUCKETS_MAX; one for all above is added */
    uint8_t decimals;       /* at most 9 */
};

struct histogram {
    const struct histogram_shape *shape; /* set when it is added */
    uint64_t sum;
    uint64_t buckets[METRIC_BUCKETS_MAX + 1]; /* each by itself, not yet added up */
};

static inline void counter_inc(struct counter *c)
{
    c->n++;
}

static inline void counter_add(struct counter *c, uint64_t n)
{
    c->n += n;
}

static inline void gauge_set(struct gauge *g, int64_t n)
{
    g->n = n;
}

static inline void gauge_add(struct gauge *g, int64_t n)
{
    g->n += n;
}

/* The bounds are few, and most values end up in the first ones. */
static inline void histogram_observe(struct histogram *h, uint64_t value)
{
    uint8_t i = 0;
    while (i < h->shape->n && value > h->shape->bounds[i])
        i++;
    h->buckets[i]++;
    h->sum += value;
}

/* ---- the registry ---- */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* What a family is called and holds. Static: a row of its owner's table. */
struct metric_info {
    const char *name; /* dots become underscores; a counter gets `_total` unless it ends so */
    const char *help; /* a sentence without its full stop */
    const struct histogram_shape *shape;   /* of a histogram */
    const char *labels[METRIC_LABELS_MAX]; /* their names; NULL behind the last */
    uint16_t series_max;                   /* with labels: 1 to METRIC_SERIES_MAX */
};

struct metrics {
    struct link families; /* printed in this order */
    /* What may be added now, NULL behind the last: whoever adds must have declared it. NULL:
     * anything. */
    const struct metric_info *const *declared;
};

void metrics_init(struct metrics *m);

/* The structs that were added are forgotten, the families with labels freed. */
void metrics_deinit(struct metrics *m);

/* Adds a family of one series without labels, which lives at *c (*g, *h) from now on and as long as
 * the registry; it starts as zero. Its name is the prefix, `_` and info->name, or info->name alone
 * when the prefix is empty. ERR_SYNTAX: that is no metric name (the prefix is configuration, so it
 * may be anything). ERR_EXISTS: the name, or one that a histogram's lines would have, is taken. */
int metrics_add_counter(struct metrics *m, struct str prefix, const struct metric_info *info,
                        struct counter *c);
int metrics_add_gauge(struct metrics *m, struct str prefix, const struct metric_info *info,
                      struct gauge *g);
int metrics_add_histogram(struct metrics *m, struct str prefix, const struct metric_info *info,
                          struct histogram *h);

/* A family with labels. *out belongs to the registry. Errors as above. */
struct metric_family;
int metrics_add_family(struct metrics *m, struct str prefix, const struct metric_info *info,
                       enum metric_type type, struct metric_family **out);

/* The series with these values, one for each label, in order; never NULL, and it stays where it is.
 * The family's type is the one asked for. Values that are not UTF-8 or too long are `other`. */
struct counter *metric_family_counter(struct metric_family *f, const struct str *values);
struct gauge *metric_family_gauge(struct metric_family *f, const struct str *values);
struct histogram *metric_family_histogram(struct metric_family *f, const struct str *values);

/* Everything, as METRICS_CONTENT_TYPE. A family without series is left out. */
void metrics_put(const struct metrics *m, struct buf *out);

#endif
