// SPDX-License-Identifier: Apache-2.0
/* bench_appends.h -- appends of 256 bytes, pumped into so many streams. */
#ifndef BENCH_APPENDS_H
#define BENCH_APPENDS_H

#include "bench_pump.h"

#define APPEND_SIZE 256

struct appends {
    struct pump pump;
    const char *phase, *type;
    unsigned streams; /* each connection has its own, in turn; with fewer streams they share them */
};

/* type: TYPE_JSON or TYPE_BYTES; further headers may follow it, each behind a CRLF. */
struct appends appends_of(struct bench *b, const char *phase, const char *type, unsigned streams,
                          unsigned connections, unsigned depth);

/* Creates the streams and connects; pump_start begins. */
void appends_open(struct appends *a);

/* Waits for the last answers; what was answered must be there. Then the streams go. */
void appends_close(struct appends *a);

#endif
