// SPDX-License-Identifier: Apache-2.0
/* bench.h -- what all phases share: the server under load, the connections to it, the report, and
 * simple requests for what is not measured. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "bench_data.h"
#include "bench_report.h"
#include "bench_server.h"
#include "bench_swarm.h"
#include "bench_tally.h"

struct bench {
    struct server_plan plan; /* of a server of ours */
    struct server server;
    struct server redis, second; /* what it keeps its streams in, and another one over the same */
    char redis_url[64], redis_data[DATA_PATH_MAX];
    struct swarm swarm; /* its failure is the run's */
    struct report report;
    double seconds;                        /* to measure each figure for */
    size_t sockets;                        /* that we may open */
    unsigned streams;                      /* of the phases that have a million */
    const char *baseline;                  /* another server, to compare memory with; may be NULL */
    const char *data_under, *memory_under; /* of folders; the latter is no disk */
    char data[DATA_PATH_MAX]; /* of the server now; empty: it keeps nothing, or it is not ours */
};

/* A phase works on a server that has no load and leaves it without load and without its streams.
 * It adds its rows to the report; what goes wrong fails the swarm. */
void phase_append_64(struct bench *b);
void phase_append_256(struct bench *b);
void phase_append_64x16(struct bench *b);
void phase_json_64(struct bench *b);
void phase_json_256(struct bench *b);
void phase_json_64x16(struct bench *b);
void phase_spread(struct bench *b);
void phase_create(struct bench *b);
void phase_fanout(struct bench *b);
void phase_tokens(struct bench *b);
void phase_replay(struct bench *b);
void phase_catchup(struct bench *b);
void phase_resume(struct bench *b);
void phase_idle(struct bench *b);
void phase_streams(struct bench *b);
void phase_gateway(struct bench *b);
void phase_session_1(struct bench *b);
void phase_session_1k(struct bench *b);
void phase_redis_1(struct bench *b);
void phase_redis_2(struct bench *b);
void phase_redis_idle(struct bench *b);
void phase_logs(struct bench *b);
void phase_cursors(struct bench *b);
void phase_forged(struct bench *b);
void phase_scale(struct bench *b);
void phase_windows(struct bench *b);
void phase_subs(struct bench *b);
void phase_hooks(struct bench *b);
void phase_files(struct bench *b);
void phase_slow(struct bench *b);
void phase_memory(struct bench *b);

/* A server of ours with no data; its end, and that of its data. 0, or -1 (said on stderr).
 * instructions: as for server_stop. */
int bench_begin(struct bench *b);
int bench_end(struct bench *b, uint64_t *instructions);

/* For phases that want another server of the same kind than the one they got. Each fails the swarm
 * if the server does not start or not end; all leave one alone that is not ours. */
void bench_stop(struct bench *b, bool by_kill);
void bench_start(struct bench *b); /* on the same data */
void bench_renew(struct bench *b); /* ends it and starts one that has no data */
/* Starts another one over the same Redis, which then gets every other connection. */
void bench_second(struct bench *b);

/* Appends of 256 bytes to so many streams, and deliveries to so many readers, for so long; rows
 * KEY, KEY-p50 and KEY-p99, and KEY. */
void measure_appends(struct bench *b, const char *key, const char *type, unsigned streams,
                     unsigned connections, unsigned depth, double seconds);
void measure_fanout(struct bench *b, const char *key, unsigned readers, double seconds);

/* `count` appends over 64 connections, with a token (NULL: without); `count` deliveries to each of
 * `readers`; `count` chunks of one session, one under way, on a new server. For phases that count
 * instructions: nothing is reported. */
void run_appends(struct bench *b, const char *token, uint64_t count);
void run_deliveries(struct bench *b, unsigned readers, uint64_t count);
void run_chunks(struct bench *b, uint64_t count);

/* Counts instructions with servers of its own (plan.callgrind is set). Adds its rows. 0 or -1. */
int count_instructions(struct bench *b);

/* A line on stderr that says what goes on. */
void progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What the server spent between two moments, and how much of the machine others took meanwhile. */
struct spent {
    uint64_t start_ns, cpu_ns, others_ns, memory;
    double seconds, cpu_seconds, growth_mb, others; /* set by spent_end; others: 0 to 1 */
};

struct spent spent_begin(const struct bench *b);
void spent_end(const struct bench *b, struct spent *s);

/* Fills in a row's columns for CPU, load, memory and others, for so many operations. */
void row_spent(struct row *row, const struct bench *b, const struct spent *s, double operations);

/* ---- requests. A stream's name is its phase's and a number; `type` its content type ---- */

#define NAME_MAX_BYTES 64
struct name {
    char text[NAME_MAX_BYTES];
};
struct name stream_name(const char *phase, unsigned number);

void request_create(struct buf *out, struct name stream, const char *type, struct str body);
void request_delete(struct buf *out, struct name stream);
void request_append(struct buf *out, struct name stream, const char *type, struct str body);
void request_read(struct buf *out, struct name stream, const char *offset, bool sse);

/* These wait for the answer, each on a connection of its own, and fail the swarm unless it is
 * the one expected. */
void ask_create(struct bench *b, struct name stream, const char *type);
void ask_confirm(struct bench *b, struct name stream, const char *type); /* it may be there */
void ask_delete(struct bench *b, struct name stream);
/* next (may be NULL): the offset behind what was appended. */
void ask_append(struct bench *b, struct name stream, const char *type, struct str body,
                char next[ANSWER_OFFSET_MAX]);
void ask_read(struct bench *b, struct name stream, int status);
/* Any request, which is freed. status: one, or ASK_2XX, or ASK_ANY. body (may be NULL) gets the
 * answer's. */
#define ASK_2XX 2
#define ASK_ANY 0
void ask_for(struct bench *b, struct buf *request, int status, const char *what, struct buf *body);
/* All that the stream holds, by plain GETs; returns how many. */
unsigned ask_all(struct bench *b, struct name stream, struct tally *into);

#define TYPE_BYTES "application/octet-stream"
#define TYPE_JSON  "application/json"
#define TYPE_TEXT  "text/plain"

#endif
