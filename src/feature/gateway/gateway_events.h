// SPDX-License-Identifier: Apache-2.0
/* gateway_events.h -- what the gateway tells those who watch it: named events, as traces with their
 * fields and as counters, and how long things take. */
#ifndef FEATURE_GATEWAY_GATEWAY_EVENTS_H
#define FEATURE_GATEWAY_GATEWAY_EVENTS_H

#include "telemetry/metrics.h"
#include "telemetry/trace.h"

#define GATEWAY_EVENTS(X)                                                                          \
    X(RESUME_ISSUED, "resume_issued", "Resume tokens issued")                                      \
    X(RESUME_ATTEMPT, "resume_attempt", "Requests to resume")                                      \
    X(RESUME_SUCCESS, "resume_success", "Resumes that were granted")                               \
    X(RESUME_EXPIRED, "resume_expired", "Resumes refused because the token or state was no good")  \
    X(RESUME_INCOMPATIBLE, "resume_incompatible", "Resumes refused because of another step")       \
    X(RESUME_REPLAY_COUNT, "resume_replay_count", "Events replayed by resumes")                    \
    X(PARTIAL_RECOVERY, "partial_recovery", "Resumes answered with a snapshot")                    \
    X(BUFFER_TRIMMED, "buffer_trimmed", "Events trimmed from the front of a generation")           \
    X(READER_CUT, "reader_cut", "Readers cut off because they held up an answer")                  \
    X(SNAPSHOT_CREATED, "snapshot_created", "Snapshots written")                                   \
    X(DEGRADED, "degraded", "Answers passed on without being recorded")                            \
    X(ANSWER_RECORDED, "answer_recorded", "Answers recorded that are no streams of events")        \
    X(ANSWER_UNRECORDED, "answer_unrecorded", "Answers of this kind that were too large for that") \
    X(RETRY_JOINED, "retry_joined", "Retries that got the answer that was lost before them")       \
    X(ABANDONED, "abandoned", "Generations stopped because nobody read them")

enum gateway_event {
#define X(name, text, help) GATEWAY_##name,
    GATEWAY_EVENTS(X)
#undef X
        GATEWAY_EVENT_KINDS,
};

struct gateway_events {
    const struct trace *trace;
    struct str prefix; /* `assist.sse` */
    struct counter counts[GATEWAY_EVENT_KINDS];
    struct histogram append, resume; /* seconds */
    struct histogram replay;         /* events */
};

/* By route. */
extern const struct metric_info gateway_running_info, gateway_passing_info, gateway_failed_info,
    gateway_refused_info;

/* All metrics of the gateway, for its row. */
extern const struct metric_info *const gateway_metrics[];

/* 0, or ERR_SYNTAX: the prefix makes no metric names. */
int gateway_events_init(struct gateway_events *e, struct metrics *m, const struct trace *trace,
                        struct str prefix);

/* Counts n and tells; at most GATEWAY_FIELDS_MAX fields. */
#define GATEWAY_FIELDS_MAX 7
void gateway_report(struct gateway_events *e, enum gateway_event kind, uint64_t n,
                    const struct trace_field *fields, size_t n_fields);

/* gateway_event(e, RESUME_ISSUED, 1, TRACE_STR(...), ...) */
#define gateway_event(e, kind, n, ...)                                                             \
    gateway_report((e), GATEWAY_##kind, (n), (const struct trace_field[]){__VA_ARGS__},            \
                   sizeof((const struct trace_field[]){__VA_ARGS__}) / sizeof(struct trace_field))

#endif
