// SPDX-License-Identifier: Apache-2.0
/* logs_http_core.h -- what the parts of the logs' HTTP interface share. */
#ifndef FEATURE_LOGS_LOGS_HTTP_CORE_H
#define FEATURE_LOGS_LOGS_HTTP_CORE_H

#include "base/gate.h"
#include "feature/logs/log.h"
#include "http/exchange.h"
#include "feature/logs/logs_http.h"
#include "telemetry/metrics.h"

struct log_entry {
    struct logs *logs;
    const struct log_config *config;
    struct log log;
    struct link readers;      /* that follow it: struct reader */
    struct file_watch *watch; /* while there are any */
    bool keys_full;           /* more came than are kept, and that has been said */
};

struct logs {
    struct logs_setup setup;
    struct sched *sched;
    struct log_entry *entries;
    struct gate under_way; /* operations in the lane */
    struct counter keys_dropped;
    size_t n_large; /* readers in the middle of a line that no single pull takes */
};

/* Around each operation on a file. */
void logs_begin(struct logs *l);
void logs_end(struct logs *l);

/* Log-Identity of the answer. */
void logs_put_identity(struct exchange *x, const struct log_id *id);

/* logs_read_http.c: GET and HEAD. */
void logs_get(struct log_entry *e, struct exchange *x);
/* The file may have changed. */
void logs_wake_readers(struct log_entry *e);

#endif
