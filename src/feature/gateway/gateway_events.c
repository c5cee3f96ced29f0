// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_events.h"
#include "base/must.h"
#include "feature/gateway/gateway_trace.h"

TRACE_TABLE_DEFINE(gateway_traces, GATEWAY_TRACES);

static const struct metric_info counters[] = {
#define X(kind, text, said) {.name = text, .help = said},
    GATEWAY_EVENTS(X)
#undef X
};

/* Microseconds, printed as seconds. */
static const uint64_t time_bounds[] = {100,   250,   500,    1000,   2500,   5000,    10000,
                                       25000, 50000, 100000, 250000, 500000, 1000000, 2500000};
static const uint64_t count_bounds[] = {0, 1, 4, 16, 64, 256, 1024, 4096, 16384};
#define SHAPE(bounds, decimals)                                                                    \
    {                                                                                              \
        bounds, sizeof(bounds) / sizeof *(bounds), decimals                                        \
    }
static const struct histogram_shape times = SHAPE(time_bounds, 6);
static const struct histogram_shape sizes = SHAPE(count_bounds, 0);

static const struct metric_info append_info = {.name = "append_seconds",
                                               .help =
                                                   "From an event's arrival to its being durable",
                                               .shape = &times};
static const struct metric_info resume_info = {.name = "resume_seconds",
                                               .help = "From a request to resume to its first byte",
                                               .shape = &times};
static const struct metric_info replay_info = {
    .name = "replay_events", .help = "Events replayed by one resume", .shape = &sizes};

const struct metric_info gateway_running_info = {.name = "gateway_generations",
                                                 .help = "Generations under way",
                                                 .labels = {"route"},
                                                 .series_max = METRIC_SERIES_MAX};
const struct metric_info gateway_passing_info = {.name = "gateway_passing",
                                                 .help = "Requests under way that are passed on",
                                                 .labels = {"route"},
                                                 .series_max = METRIC_SERIES_MAX};
const struct metric_info gateway_failed_info = {
    .name = "upstream_errors",
    .help = "Answers that upstreams did not give, or not to their end",
    .labels = {"route", "reason"},
    .series_max = METRIC_SERIES_MAX};
const struct metric_info gateway_refused_info = {.name = "gateway_refused",
                                                 .help = "Requests beyond a route's limits",
                                                 .labels = {"route", "limit"},
                                                 .series_max = METRIC_SERIES_MAX};

const struct metric_info *const gateway_metrics[] = {
#define X(kind, text, said) &counters[GATEWAY_##kind],
    GATEWAY_EVENTS(X)
#undef X
        & append_info,
    &resume_info,
    &replay_info,
    &gateway_running_info,
    &gateway_passing_info,
    &gateway_failed_info,
    &gateway_refused_info,
    NULL};

int gateway_events_init(struct gateway_events *e, struct metrics *m, const struct trace *trace,
                        struct str prefix)
{
    *e = (struct gateway_events){.trace = trace, .prefix = prefix};
    int err = 0;
    for (int i = 0; i < GATEWAY_EVENT_KINDS && err == 0; i++)
        err = metrics_add_counter(m, prefix, &counters[i], &e->counts[i]);
    if (err == 0)
        err = metrics_add_histogram(m, prefix, &append_info, &e->append);
    if (err == 0)
        err = metrics_add_histogram(m, prefix, &resume_info, &e->resume);
    if (err == 0)
        err = metrics_add_histogram(m, prefix, &replay_info, &e->replay);
    return err;
}

void gateway_report(struct gateway_events *e, enum gateway_event kind, uint64_t n,
                    const struct trace_field *fields, size_t n_fields)
{
    struct trace_field all[GATEWAY_FIELDS_MAX + 1];
    char name[METRIC_NAME_MAX];
    must(n_fields <= GATEWAY_FIELDS_MAX);
    counter_add(&e->counts[kind], n);
    int len =
        snprintf(name, sizeof name, "%.*s.%s", (int)e->prefix.n, e->prefix.p, counters[kind].name);
    all[0] =
        TRACE_STR("event", str_of(name, (size_t)len < sizeof name ? (size_t)len : sizeof name - 1));
    for (size_t i = 0; i < n_fields; i++)
        all[i + 1] = fields[i];
    trace_line(e->trace, &TRACE_KIND_GATEWAY, all, n_fields + 1);
}
