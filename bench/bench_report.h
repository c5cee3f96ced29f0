// SPDX-License-Identifier: Apache-2.0
/* bench_report.h -- what was measured, beside what we aim at: one table. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_ROWS_MAX 512
#define REPORT_NOTE_MAX 96

/* What the server keeps events in, and so which aims hold: memory; the embedded store, which syncs
 * before it answers; a Redis that keeps no log, and one that syncs before it answers. */
enum store_kind { STORE_MEMORY, STORE_EMBEDDED, STORE_REDIS, STORE_REDIS_AOF };
#define STORES 4
extern const char *const store_names[STORES];

struct row {
    const struct figure *figure;
    enum store_kind store;
    double value;
    char note[REPORT_NOTE_MAX]; /* what one has to know to read the value; may be empty */
    bool measured;              /* what follows is known */
    double cpu_us;              /* server CPU per operation */
    double busy;                /* part of the time (0 to 1) that the server was on a processor */
    double others;              /* part of the machine (0 to 1) that other processes took */
    double growth_mb;
};

struct report {
    enum store_kind store; /* of the rows that are added */
    unsigned n;
    struct row rows[REPORT_ROWS_MAX];
};

/* Adds a row; `key` names a figure of the table in bench_report.c. The caller fills in the rest. */
struct row *report_add(struct report *r, const char *key, double value);
void row_note(struct row *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* In the order of the figures; what the stores do stands side by side. */
void report_print(const struct report *r, FILE *to);
void report_print_json(const struct report *r, FILE *to);

#endif
