// SPDX-License-Identifier: Apache-2.0
/* bench_turns.h -- what the server says of its loop's turns: how many took longer than 10 ms of the
 * thread's CPU time, and which work held the loop. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include "bench.h"

#define TURNS_WORKS    16
#define TURNS_WORK_MAX 32

struct turns {
    bool known; /* the server counts its turns */
    double all, short_ones;
    unsigned n;
    struct {
        char name[TURNS_WORK_MAX];
        double count;
    } works[TURNS_WORKS];
};

void turns_look(struct bench *b, struct turns *out);

/* Those of more than 10 ms between two looks. */
double turns_long(const struct turns *before, const struct turns *after);

/* Who held the loop meanwhile, as "name 3, other 1"; may be empty. */
void turns_blame(const struct turns *before, const struct turns *after, char *out, size_t size);

#endif
