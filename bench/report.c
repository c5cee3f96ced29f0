// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <assert.h>
#include <string.h>

enum unit { PER_SECOND, BYTES_PER_SECOND, MICROSECONDS, MILLISECONDS, BYTES, PERCENT, COUNT };

enum better { MORE, LESS };

struct figure {
    const char *key, *label;
    enum unit unit;
    enum better better;
    double aim[2];     /* by enum aims; 0: none */
    double cpu_aim[2]; /* microseconds of server CPU per operation, at most; 0: none */
};

/* CPU is per append, delivery, token, event, resuming client; for the bulk GET, per megabyte. */
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
    {"fanout", "fan-out deliveries, 500 readers", PER_SECOND, MORE, {190e3, 190e3}, {5.2, 5.2}},
    {"tokens", "tokens, 64 chats", PER_SECOND, MORE, {95e3, 45e3}, {0, 0}},
    {"tokens-p50", "  p50 to the reader", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"tokens-p99", "  p99 to the reader", MICROSECONDS, LESS, {0, 0}, {0, 0}},
    {"replay-sse", "replay 1M events, SSE", PER_SECOND, MORE, {5e6, 5e6}, {0, 0}},
    {"replay-get", "replay 1M events, bulk GET", BYTES_PER_SECOND, MORE, {3e9, 3e9}, {0, 0}},
    {"resume", "resume storm, 2,000 clients", MILLISECONDS, LESS, {85, 85}, {0, 0}},
    {"idle-memory", "idle SSE reader, memory", BYTES, LESS, {512, 512}, {0, 0}},
    /* Zero, but for the heartbeats. */
    {"idle-cpu", "idle SSE readers, 5,000: CPU", PERCENT, LESS, {0.5, 0.5}, {0, 0}},
    {"instructions-append", "instructions per append", COUNT, LESS, {5000, 5000}, {0, 0}},
    {"instructions-delivery", "instructions per delivery", COUNT, LESS, {200, 200}, {0, 0}},
};

static const struct figure *find(const char *key)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(figures[i].key, key) == 0)
            return &figures[i];
    return NULL;
}

struct row *report_add(struct report *r, const char *key, double value)
{
    const struct figure *f = find(key);
    assert(f && r->n < REPORT_ROWS_MAX);
    struct row *row = &r->rows[r->n++];
    *row = (struct row){.figure = f, .value = value};
    return row;
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

void report_print(const struct report *r, FILE *to)
{
    if (r->n == 0)
        return;
    fprintf(to, "%-32s %13s  %-14s %-7s %9s  %-7s %-6s %6s %8s %8s\n", "figure", "measured", "aim",
            "verdict", "CPU us", "aim", "", "busy", "MB grown", "others");
    for (unsigned i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        const struct figure *f = row->figure;
        char value[32], aim[40];
        with_unit(value, sizeof value, f->unit, row->value);
        aim_text(aim, sizeof aim, f, f->aim[r->aims]);
        fprintf(to, "%-32s %13s", f->label, value);
        if (*aim || row->measured)
            fprintf(to, "  %-14s %-7s", aim, verdict(f->better, row->value, f->aim[r->aims]));
        if (row->measured)
            print_spent(to, row, f->cpu_aim[r->aims]);
        fputc('\n', to);
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
    static const char *const units[] = {"1/s", "B/s", "us", "ms", "B", "%", "1"};
    fputs("[\n", to);
    for (unsigned i = 0; i < r->n; i++) {
        const struct row *row = &r->rows[i];
        const struct figure *f = row->figure;
        double aim = f->aim[r->aims];
        fprintf(to, "{\"figure\":\"%s\",\"unit\":\"%s\",\"value\":%.6g", f->key, units[f->unit],
                row->value);
        json_aim(to, "aim", aim);
        json_verdict(to, "verdict", verdict(f->better, row->value, aim));
        if (row->measured)
            json_spent(to, row, f->cpu_aim[r->aims]);
        fprintf(to, "}%s\n", i + 1 < r->n ? "," : "");
    }
    fputs("]\n", to);
}
