// SPDX-License-Identifier: Apache-2.0
/* config.h -- the settings of `tidemark serve`. app/config.c holds their table, from which come the
 * flags, the variables, the keys of the file and the help, and the table of the file's sections.
 *
 * What there may be many of is a section of the file: `[route /chat]`, `[caller ci]`, `[log
 * feedback]`; so is what belongs together: `[session]`. A new kind takes a struct with its table of
 * options, a list in struct config and a row in app/config.c. docs/configuration.md describes all
 * settings; a test compares it with the tables. */
#ifndef APP_CONFIG_H
#define APP_CONFIG_H

#include "app/access_config.h"
#include "base/sections.h"
#include "feature/feature.h"
#include "http/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_tables;
struct trace;

#define CONFIG_DATA           "./tidemark-data" /* where data is kept unless somebody says where */

#define CONFIG_FEATURES_BYTES 1024 /* for the settings of all features */

enum config_trace { CONFIG_TRACE_HUMAN, CONFIG_TRACE_JSON };

struct config {
    char *file;                /* --config; NULL: none */
    struct option_list listen; /* each of them is a valid address to listen on */
    char *tls_cert, *tls_key;  /* PEM files; both or neither */
    char *tls_client_ca;       /* a PEM file; NULL: no certificates are asked for */
    char *data, *store;
    int sync;                  /* enum journal_sync */
    uint64_t sync_interval_ms; /* with JOURNAL_SYNC_INTERVAL */
    char *sync_text;
    uint64_t cache_bytes, disk_cap_bytes;                /* disk cap 0: none */
    uint64_t retain_events, retain_bytes, retain_age_ms; /* of streams that ask for none; 0: off */
    char *public_url; /* without a slash at its end; NULL: derive it from Host */
    struct option_list allow_host, allow_origin, proxy_from;
    char *access_word;  /* `open`; NULL: see config_check_exposure */
    char *admin_listen; /* NULL: none */
    uint64_t max_connections;
    struct limits_settings per_address; /* see config_limits_addresses */
    uint64_t max_streams;
    uint64_t max_append_bytes;
    uint64_t max_inflight_bytes; /* at least max_append_bytes */
    uint64_t max_fork_depth;
    uint64_t read_chunk_bytes;
    uint64_t head_timeout_ms, idle_timeout_ms, write_timeout_ms, drain_timeout_ms;
    uint64_t body_timeout_ms, body_rate_min; /* bytes that a body brings per timeout */
    uint64_t long_poll_timeout_ms;
    uint64_t heartbeat_ms; /* 0: none */
    uint64_t sse_lifetime_ms, sse_retry_ms;
    struct access_config access;
    char *audit;     /* NULL: none */
    int trace_form;  /* enum config_trace */
    int trace_level; /* enum trace_level */
    bool private;    /* serves only who started it; no setting */
    struct config_tables *tables;
    struct feature_configs features; /* where the settings of each are, below: not of a copy */
    _Alignas(max_align_t) unsigned char of_features[CONFIG_FEATURES_BYTES];
};

/* Defaults, then the file of --config, then the environment, then flags; secrets come from the
 * environment alone. argv without the program and command names; it may be reordered. From here on
 * *t speaks as configured; it is also told of variables that look misspelt. 0; ERR_CANCELLED when
 * --help was asked for; ERR_SYNTAX with a sentence in `why` (size bytes), also when the file cannot
 * be read. On failure there is nothing to deinit and *t is as it was. */
int config_load(struct config *c, int argc, char **argv, struct trace *t, char *why, size_t size);
void config_deinit(struct config *c); /* may be called twice */

/* How *t is to speak. */
void config_tune_trace(const struct config *c, struct trace *t);

/* Reads everything again, as config_load has with the same arguments, and takes over into *c what
 * may change while a server runs (`live` in the tables, and who may do what). ERR_SYNTAX with a
 * sentence in why, and nothing has changed. Otherwise config_deinit of out->before is due: it holds
 * what *c had before, and texts that somebody may still have from there. */
#define CONFIG_NAMES_MAX 1024
struct config_change {
    char taken[CONFIG_NAMES_MAX];   /* what is in use now, with commas between names */
    char restart[CONFIG_NAMES_MAX]; /* what has changed and needs a restart */
    bool access;                    /* who may do what is among what was taken */
    struct config before;
};
int config_reload(struct config *c, int argc, char **argv, struct config_change *out, char *why,
                  size_t size);

/* Settings that are taken and yet not as good as they look. */
void config_warnings(const struct config *c, struct feature_warnings *out);

/* Do the limits of addresses hold: is access configured, or is one of them set? */
bool config_limits_addresses(const struct config *c);

/* Can other machines reach it? */
bool config_is_exposed(const struct config *c);

/* The features have copied their secrets. */
void config_forget(struct config *c);

/* Overwrites what secret settings were given in argv: see options_hide_args. */
void config_hide_args(int argc, char **argv);

/* What `tidemark serve --help` prints. */
void config_help(FILE *to);

/* The tables of settings and of sections, for those who check documents against them. The caller
 * frees. */
struct config_tables *config_tables(void);

#endif
