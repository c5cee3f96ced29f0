// SPDX-License-Identifier: Apache-2.0
#include "bench_report.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

enum unit {
    PER_SECOND,
    BYTES_PER_SECOND,
    MICROSECONDS,
    MILLISECONDS,
    BYTES,
    PERCENT,
    COUNT,
    TIMES
};

enum better { MORE, LESS };

struct figure {
    const char *key, *label;
    enum unit unit;
    enum better better;
    double aim[STORES];     /* 0: none */
    double cpu_aim[STORES]; /* microseconds of server CPU per operation, at most; 0: none */
};

const char *const store_names[STORES] = {"memory", "embedded", "redis", "redis-aof"};

#define NONE 0.4 /* an aim of zero, for what is counted: 0 stands for no aim */

/* CPU is per append, create, delivery, token, event, resuming client, chunk, session; for bulk
 * GETs, per megabyte.
 */
static const struct figure figures[] = {
    {"append-64", "append 256 B, 64 connections", PER_SECOND, MORE, {130e3, 55e3}, {7, 12}},
    {"append-64-p50", "  p50", MICROSECONDS, LESS, {0, 1000}, {0, 0}},
    {"append-64-p99", "  p99", MICROSECONDS, LESS, {0, 4000}, {0, 0}},
    {"append-256", "append 256 B, 256 connections", PER_SECOND, MORE, {130e3, 80e3}, {7, 12}},
    {"append-256-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"append-256-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"append-64x16", "append 256 B, 64 pipelining 16", PER_SECOND, MORE, {130e3, 80e3}, {7, 12}},
    {"append-64x16-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"append-64x16-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"json-64", "append JSON, 64 connections", PER_SECOND, MORE, {130e3, 55e3}, {7, 12}},
    {"json-64-p50", "  p50", MICROSECONDS, LESS, {0, 1000}, {0, 0}},
    {"json-64-p99", "  p99", MICROSECONDS, LESS, {0, 4000}, {0, 0}},
    {"json-256", "append JSON, 256 connections", PER_SECOND, MORE, {130e3, 80e3}, {7, 12}},
    {"json-256-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"json-256-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"json-64x16", "append JSON, 64 pipelining 16", PER_SECOND, MORE, {130e3, 80e3}, {7, 12}},
    {"json-64x16-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"json-64x16-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"spread-64", "append 256 B over 64 streams", PER_SECOND, MORE, {130e3, 55e3}, {7, 12}},
    {"spread-64-calm", "  p99, no checkpoint", MICROSECONDS, LESS, {0, 4000}, {0, 0}},
    {"spread-64-rest", "  p99, in a checkpoint", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"spread-64-times", "  p99, in one : in none", TIMES, LESS, {0, 2}, {0, 0}},
    {"spread-64-disk", "  written to disk per byte", TIMES, LESS, {0, 0}, {0, 0}},
    {"spread-64-calls", "  passed to write() per byte", TIMES, LESS, {0, 0}, {0, 0}},
    {"spread-10k", "append 256 B over 10,000 streams", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"spread-10k-cost", "  CPU us : that of 64 streams", TIMES, LESS, {1.3, 1.3}, {0, 0}},
    {"spread-10k-calm", "  p99, no checkpoint", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"spread-10k-rest", "  p99, in a checkpoint", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"spread-10k-times", "  p99, in one : in none", TIMES, LESS, {0, 2}, {0, 0}},
    {"spread-10k-disk", "  written to disk per byte", TIMES, LESS, {0, 0}, {0, 0}},
    {"spread-10k-calls", "  passed to write() per byte", TIMES, LESS, {0, 0}, {0, 0}},
    {"create", "create streams, 64 connections", PER_SECOND, MORE, {0, 10e3}, {0, 0}},
    {"create-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"fanout", "fan-out deliveries, 500 readers", PER_SECOND, MORE, {190e3, 190e3}, {5.2, 5.2}},
    {"tokens", "tokens, 64 chats", PER_SECOND, MORE, {95e3, 45e3}, {0, 0}},
    {"tokens-p50", "  p50 to the reader", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"tokens-p99", "  p99 to the reader", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"replay-sse", "replay 1M events, SSE", PER_SECOND, MORE, {5e6, 5e6}, {0, 0}},
    {"replay-get", "replay 1M events, bulk GET", BYTES_PER_SECOND, MORE, {3e9, 3e9}, {0, 0}},
    {"catchup", "catch-up 256 MB, bulk GET", BYTES_PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"catchup-disk", "  page cache emptied before", BYTES_PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"resume", "resume storm, 2,000 clients", MILLISECONDS, LESS, {85, 85}, {0, 0}},
    {"idle-memory", "idle SSE reader, memory", BYTES, LESS, {512, 512}, {0, 0}},
    /* Zero, but for the heartbeats. */
    {"idle-cpu", "idle SSE readers, 5,000: CPU", PERCENT, LESS, {0.5, 0.5}, {0, 0}},
    {"restart-rest", "restart, 100,000 streams at rest", MILLISECONDS, LESS, {0, 2000}, {0, 0}},
    {"restart-clean", "  stopped, all in the journal", MILLISECONDS, LESS, {0, 2000}, {0, 0}},
    {"restart-kill", "  SIGKILL, one append to each", MILLISECONDS, LESS, {0, 2000}, {0, 0}},
    {"restart-change", "  ... until a create is answered", MILLISECONDS, LESS, {0, 2000}, {0, 0}},
    {"streams-memory", "idle stream, private memory", BYTES, LESS, {0, 300}, {0, 0}},
    {"streams-written", "  before it rests", BYTES, LESS, {0, 0}, {0, 0}},
    {"streams-mapped", "  resident in the index's map", BYTES, LESS, {0, 0}, {0, 0}},
    {"streams-files", "  more descriptors for 100,000", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"streams-threads", "  more threads for 100,000", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"gateway", "gateway, 64 streams of 50/s", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"gateway-direct-p50", "  p50, backend directly", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-through-p50", "  p50, through the gateway", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-added-p50", "  p50, added", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-direct-p99", "  p99, backend directly", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-through-p99", "  p99, through the gateway", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-added-p99", "  p99, added", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-most", "generations of 50/s, p99 < 50 ms", COUNT, MORE, {0, 0}, {0, 0}},
    {"gateway-most-p50", "  p50", MILLISECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-most-p99", "  p99", MILLISECONDS, LESS, {0, 0}, {0, 0}},
    {"gateway-core", "  a core's worth by CPU us", COUNT, MORE, {0, 0}, {0, 0}},
    {"gateway-memory", "  private memory of each", BYTES, LESS, {0, 0}, {0, 0}},
    {"session-1", "1 session, a chunk under way", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"session-1-ack-p50", "  p50, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1-ack-p99", "  p99, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1-event-p50", "  p50, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1-event-p99", "  p99, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1x64", "1 session, 64 chunks under way", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"session-1x64-ack-p50", "  p50, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1x64-ack-p99", "  p99, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1x64-event-p50", "  p50, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1x64-event-p99", "  p99, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1k", "1,000 sessions, 10 chunks/s each", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"session-1k-ack-p50", "  p50, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1k-ack-p99", "  p99, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1k-event-p50", "  p50, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1k-event-p99", "  p99, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1kx4", "1,000 sessions, 4 chunks each", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"session-1kx4-ack-p50", "  p50, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1kx4-ack-p99", "  p99, chunk to ack", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1kx4-event-p50", "  p50, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-1kx4-event-p99", "  p99, chunk to event", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"session-open", "sessions opened, 950 at once", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"session-memory", "  private memory of an idle one", BYTES, LESS, {0, 0}, {0, 0}},
    {"session-cpu", "  1,000 idle ones: CPU", PERCENT, LESS, {0, 0}, {0, 0}},
    {"redis-1", "append 256 B, 1 connection", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"redis-1-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-1-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-64", "append 256 B, 64 connections", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"redis-64-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-64-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-calls", "  calls to Redis per append", TIMES, LESS, {0, 0}, {0, 0}},
    {"redis-commands", "  commands within a call", TIMES, LESS, {0, 0}, {0, 0}},
    {"redis-script", "  p99 of a call within Redis", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-cpu", "  CPU of Redis per append", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-fanout", "fan-out deliveries, 200 readers", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"redis-two-64", "append, 64 conn., 2 processes", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"redis-two-64-p50", "  p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-two-64-p99", "  p99", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"redis-two-fanout", "fan-out to 200, 2 processes", PER_SECOND, MORE, {0, 0}, {0, 0}},
    {"redis-idle", "idle stream, memory of Redis", BYTES, LESS, {0, 0}, {0, 0}},
    {"redis-young", "  in the minute after a write", BYTES, LESS, {0, 0}, {0, 0}},
    {"log-1m", "poll a log of 1 MB, 100 new: p50", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"log-1g", "  of 1 GB, the same", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"log-times", "  1 GB : 1 MB", TIMES, LESS, {2, 0}, {0, 0}},
    {"cursors-issue", "cursors issued, one core", PER_SECOND, MORE, {400e3, 0}, {0, 0}},
    {"cursors-verify", "cursors verified, one core", PER_SECOND, MORE, {400e3, 0}, {0, 0}},
    {"forged-hmac", "10,000 forged HMACs/s, of a core", PERCENT, LESS, {20, 20}, {0, 0}},
    {"forged-hmac-p99", "  p99 of appends, with : without", TIMES, LESS, {1.5, 1.5}, {0, 0}},
    {"forged-ed", "10,000 forged Ed25519s/s, a core", PERCENT, LESS, {20, 20}, {0, 0}},
    {"forged-ed-p99", "  p99 of appends, with : without", TIMES, LESS, {1.5, 1.5}, {0, 0}},
    {"scale-empty", "p99.9 of an append, empty server", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"scale-grow", "  : creating 1,000,000 streams", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-grow-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-subscribe", "  : a subscription to 100,000", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-subscribe-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-list", "  : listings, 100 a second", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-list-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-head", "  : HEADs of absent names", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-head-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-delete", "  : deleting 100,000 streams", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-delete-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-expire", "  : 100,000 expire at once", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-expire-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-checkpoint", "  : a checkpoint", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-checkpoint-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-body", "  : a body of 60 MB, [1,1,...]", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-body-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-items", "  : a body of 60 MB, items", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-items-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-restarted", "  : after a restart", TIMES, LESS, {3, 3}, {0, 0}},
    {"scale-restarted-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-page-1", "list 1, 1,000,000 : 1,000", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-page-100", "list 100, 1,000,000 : 1,000", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-page-1000", "list 1,000, 1,000,000 : 1,000", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-restart", "restart, 1,000,000: first append", MILLISECONDS, LESS, {0, 3000}, {0, 0}},
    {"scale-windows", "closed windows: memory : allowed", TIMES, LESS, {0, 1}, {0, 0}},
    {"scale-subs", "append, 10,000 on **/* : none", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-subs-turns", "      turns above 10 ms", COUNT, LESS, {NONE, NONE}, {0, 0}},
    {"scale-subs-woken", "  woken", COUNT, MORE, {10000, 10000}, {0, 0}},
    {"scale-subs-drain", "  the last one after", MILLISECONDS, LESS, {0, 0}, {0, 0}},
    {"scale-hooks", "webhook, 1,000 slow ones : none", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-hooks-first", "  the first to its receiver", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-hooks-hosts", "  slow ones at 100 hosts : none", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-hooks-hosts-first", "  the first to its receiver", TIMES, LESS, {2, 2}, {0, 0}},
    {"scale-files-appends", "10,000 idle connections: appends", PERCENT, MORE, {100, 100}, {0, 0}},
    {"scale-files-reads", "  reads", PERCENT, MORE, {100, 100}, {0, 0}},
    {"scale-files-hard-appends", "  a hard limit: appends", PERCENT, MORE, {100, 100}, {0, 0}},
    {"scale-files-hard-reads", "    reads", PERCENT, MORE, {100, 100}, {0, 0}},
    {"scale-slow", "slow stream : at once, requests", TIMES, LESS, {0, 2}, {0, 0}},
    {"scale-slow-time", "  time", TIMES, LESS, {0, 2}, {0, 0}},
    {"scale-memory", "stream of 250,000, memory", BYTES, LESS, {0, 0}, {0, 0}},
    {"scale-memory-more", "  more than the other server", BYTES, LESS, {64, 64}, {0, 0}},
    {"instructions-append", "instructions per append", COUNT, LESS, {5000, 5000}, {0, 0}},
    {"instructions-caller-open", "  with a token, open", COUNT, LESS, {0, 0}, {0, 0}},
    {"instructions-caller", "  with a caller's token", COUNT, LESS, {0, 0}, {0, 0}},
    {"instructions-caller-times", "    access : open", TIMES, LESS, {1.05, 1.05}, {0, 0}},
    {"instructions-jwt-open", "  with a JWT, open", COUNT, LESS, {0, 0}, {0, 0}},
    {"instructions-jwt", "  with a JWT, verified before", COUNT, LESS, {0, 0}, {0, 0}},
    {"instructions-jwt-times", "    access : open", TIMES, LESS, {1.05, 1.05}, {0, 0}},
    {"instructions-delivery", "instructions per delivery", COUNT, LESS, {200, 200}, {0, 0}},
    {"instructions-chunk", "instructions per session chunk", COUNT, LESS, {0, 0}, {0, 0}},
};

#define FIGURES (sizeof figures / sizeof *figures)

static const struct figure *find(const char *key)
{
    for (size_t i = 0; i < FIGURES; i++)
        if (strcmp(figures[i].key, key) == 0)
            return &figures[i];
    return NULL;
}

struct row *report_add(struct report *r, const char *key, double value)
{
    const struct figure *f = find(key);
    assert(f && r->n < REPORT_ROWS_MAX);
    struct row *row = &r->rows[r->n++];
    *row = (struct row){.figure = f, .store = r->store, .value = value};
    return row;
}

void row_note(struct row *row, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(row->note, sizeof row->note, fmt, args);
    va_end(args);
}

static const char *verdict(enum better better, double value, double aim)
{
    if (aim <= 0)
        return "";
    return (better == MORE ? value >= aim : value <= aim) ? "ok" : "short";
}

static void with_unit(char *out, size_t size, enum unit unit, double v)
{
    switch (unit) {
    case PER_SECOND:
        if (v >= 1e6)
            snprintf(out, size, "%.2f M/s", v / 1e6);
        else
            snprintf(out, size, "%.1f k/s", v / 1e3);
        break;
    case BYTES_PER_SECOND: snprintf(out, size, "%.0f MB/s", v / 1e6); break;
    case MICROSECONDS: snprintf(out, size, "%.0f us", v); break;
    case MILLISECONDS: snprintf(out, size, "%.1f ms", v); break;
    case BYTES: snprintf(out, size, "%.0f B", v); break;
    case PERCENT: snprintf(out, size, "%.2f %%", v); break;
    case COUNT: snprintf(out, size, "%.0f", v); break;
    case TIMES: snprintf(out, size, "%.2f x", v); break;
    }
}

static void aim_text(char *out, size_t size, const struct figure *f, double aim)
{
    char value[32];
    out[0] = '\0';
    if (aim <= 0)
        return;
    with_unit(value, sizeof value, f->unit, aim);
    snprintf(out, size, "%s %s", f->better == MORE ? ">=" : "<=", value);
}

static void print_spent(FILE *to, const struct row *row, double aim)
{
    char limit[32] = "";
    if (aim > 0)
        snprintf(limit, sizeof limit, "<= %.1f", aim);
    fprintf(to, " %9.3f  %-7s %-6s %4.0f %% %8.1f %6.0f %%", row->cpu_us, limit,
            verdict(LESS, row->cpu_us, aim), row->busy * 100, row->growth_mb, row->others * 100);
}

static void print_row(FILE *to, const struct row *row, const char *label)
{
    const struct figure *f = row->figure;
    char value[32], aim[40];
    with_unit(value, sizeof value, f->unit, row->value);
    aim_text(aim, sizeof aim, f, f->aim[row->store]);
    fprintf(to, "%-32s %-9s %12s", label, store_names[row->store], value);
    if (*aim || row->measured || *row->note)
        fprintf(to, "  %-14s %-7s", aim, verdict(f->better, row->value, f->aim[row->store]));
    if (row->measured)
        print_spent(to, row, f->cpu_aim[row->store]);
    if (*row->note)
        fprintf(to, "  %s", row->note);
    fputc('\n', to);
}

void report_print(const struct report *r, FILE *to)
{
    if (r->n == 0)
        return;
    fprintf(to, "%-32s %-9s %12s  %-14s %-7s %9s  %-7s %-6s %6s %8s %8s\n", "figure", "store",
            "measured", "aim", "verdict", "CPU us", "aim", "", "busy", "MB grown", "others");
    for (size_t i = 0; i < FIGURES; i++) {
        const char *label = figures[i].label; /* once for all stores */
        for (unsigned k = 0; k < r->n; k++) {
            if (r->rows[k].figure != &figures[i])
                continue;
            print_row(to, &r->rows[k], label);
            label = "";
        }
    }
}

static void json_aim(FILE *to, const char *name, double aim)
{
    if (aim > 0)
        fprintf(to, ",\"%s\":%.6g", name, aim);
}

static void json_verdict(FILE *to, const char *name, const char *text)
{
    if (*text)
        fprintf(to, ",\"%s\":\"%s\"", name, text);
}

static void json_spent(FILE *to, const struct row *row, double aim)
{
    fprintf(to, ",\"cpu_us\":%.6g", row->cpu_us);
    json_aim(to, "cpu_aim_us", aim);
    json_verdict(to, "cpu_verdict", verdict(LESS, row->cpu_us, aim));
    fprintf(to, ",\"busy\":%.3f,\"growth_mb\":%.3f,\"others\":%.3f", row->busy, row->growth_mb,
            row->others);
}

void report_print_json(const struct report *r, FILE *to)
{
    static const char *const units[] = {"1/s", "B/s", "us", "ms", "B", "%", "1", "x"};
    fputs("[\n", to);
    for (unsigned i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        const struct figure *f = row->figure;
        double aim = f->aim[row->store];
        fprintf(to, "{\"figure\":\"%s\",\"store\":\"%s\",\"unit\":\"%s\",\"value\":%.6g", f->key,
                store_names[row->store], units[f->unit], row->value);
        json_aim(to, "aim", aim);
        json_verdict(to, "verdict", verdict(f->better, row->value, aim));
        if (row->measured)
            json_spent(to, row, f->cpu_aim[row->store]);
        if (*row->note) /* ours: nothing in it needs escaping */
            fprintf(to, ",\"note\":\"%s\"", row->note);
        fprintf(to, "}%s\n", i + 1 < r->n ? "," : "");
    }
    fputs("]\n", to);
}
