// SPDX-License-Identifier: Apache-2.0
/* config.h -- the settings of `tidemark serve`. config.c holds their table, from which come the
 * flags, the variables, the keys of the file and the help.
 *
 * The file is INI: `name = value` lines, `#` and `;` begin comments, a list is a setting written
 * many times. Sections are reserved: there are none yet. */
#ifndef CONFIG_H
#define CONFIG_H

#include "base/options.h"

#include <stdbool.h>
#include <stdint.h>

struct trace;

enum config_trace { CONFIG_TRACE_HUMAN, CONFIG_TRACE_JSON };

struct config {
    char *file;                /* --config; NULL: none */
    struct option_list listen; /* each of them is a valid address to listen on */
    char *data, *store;
    int sync;                  /* enum journal_sync */
    uint64_t sync_interval_ms; /* with JOURNAL_SYNC_INTERVAL */
    char *sync_text;
    uint64_t cache_bytes, disk_cap_bytes;                /* disk cap 0: none */
    uint64_t retain_events, retain_bytes, retain_age_ms; /* of streams that ask for none; 0: off */
    char *public_url; /* without a slash at its end; NULL: derive it from Host */
    uint64_t max_connections;
    uint64_t max_append_bytes;
    uint64_t max_inflight_bytes; /* at least max_append_bytes */
    uint64_t read_chunk_bytes;
    uint64_t head_timeout_ms, idle_timeout_ms, write_timeout_ms, drain_timeout_ms;
    uint64_t body_timeout_ms, body_rate_min; /* bytes that a body brings per timeout */
    uint64_t long_poll_timeout_ms;
    uint64_t heartbeat_ms; /* 0: none */
    uint64_t sse_lifetime_ms;
    bool allow_private_targets, allow_loopback_targets;
    int trace_form;  /* enum config_trace */
    int trace_level; /* enum trace_level */
};

/* Defaults, then the file of --config, then the environment, then flags. argv without the program
 * and command names; it may be reordered. From here on *t speaks as configured; it is also told of
 * variables that look misspelt. 0; ERR_CANCELLED when --help was asked for; ERR_SYNTAX with a
 * sentence in `why` (size bytes), also when the file cannot be read. On failure there is nothing to
 * deinit and *t is as it was. */
int config_load(struct config *c, int argc, char **argv, struct trace *t, char *why, size_t size);
void config_deinit(struct config *c);

/* What `tidemark serve --help` prints. */
void config_help(FILE *to);

#endif
