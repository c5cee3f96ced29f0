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
    uint64_t late_ns; /* of a sum: what a generator was late meanwhile, at most */
    unsigned n;
    struct {
        char name[TURNS_WORK_MAX];
        double count;
    } works[TURNS_WORKS];
};

void turns_look(struct bench *b, struct turns *out);

/* Adds what came between two looks at one server to a sum, which begins as {0}. */
void turns_add(struct turns *sum, const struct turns *before, const struct turns *after);

/* Those of more than 10 ms. */
double turns_long(const struct turns *sum);

/* Who held the loop, as "name 3, other 1"; may be empty. */
void turns_blame(const struct turns *sum, char *out, size_t size);

#endif
