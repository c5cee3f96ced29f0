// SPDX-License-Identifier: Apache-2.0
/* report.h -- what was measured, beside what we aim at: one table. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_ROWS_MAX 64

/* Which column of aims holds: for the memory store, or for one that syncs before it answers. */
enum aims { AIMS_MEMORY, AIMS_FSYNC };

struct row {
    const struct figure *figure;
    double value;
    bool measured; /* what follows is known */
    double cpu_us; /* server CPU per operation */
    double busy;   /* part of the time (0 to 1) that the server was on a processor */
    double others; /* part of the machine (0 to 1) that other processes took */
    double growth_mb;
};

struct report {
    enum aims aims;
    unsigned n;
    struct row rows[REPORT_ROWS_MAX];
};

/* Adds a row; `key` names a figure of the table in report.c. The caller fills in the rest. */
struct row *report_add(struct report *r, const char *key, double value);

void report_print(const struct report *r, FILE *to);
void report_print_json(const struct report *r, FILE *to);

#endif
