// SPDX-License-Identifier: Apache-2.0
/* feature.h -- what a feature is to the rest of the program.
 *
 * A feature is one folder, feature/NAME/, and one row of the table in features.c. The row says all
 * that others have to know: its settings, commands, paths, names of streams and documents, traces,
 * built-in tools, and how it is opened and stopped. The kernel knows no feature; a feature knows
 * another one only through NAME.h, and names it in `needs`.
 *
 * A server opens features in the order of their needs and stops them in the reverse order:
 *
 *     closed --open--> open --drain--> draining --stop--> closed
 *                       |                                   ^
 *                       `------------- stop ----------------'
 *
 * Loop thread only. A feature may leave *state NULL when its settings ask for nothing: it is then
 * not there, and none of its other functions is called. */
#ifndef FEATURE_FEATURE_H
#define FEATURE_FEATURE_H

#include "base/sections.h"
#include "cmd/cmd.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addr_own;
struct builtin_tool;
struct durable;
struct feature_state;
struct feeds;
struct fetcher;
struct http;
struct instances;
struct loop;
struct metric_info;
struct metrics;
struct store;
struct trace;
struct trace_kind;

/* ---- what a server lends ---- */

/* All of it outlives the feature. Times that may change while the server runs are read where they
 * are: in durable and in http->limits. */
struct feature_host {
    struct loop *loop;
    struct store *store;
    struct feeds *feeds;         /* of store */
    struct instances *instances; /* NULL: no other process uses the store */
    struct http *http;
    struct durable *durable; /* /v1/stream/, mounted */
    struct fetcher *fetcher;
    struct metrics *metrics;
    const struct trace *trace;
    const struct addr_own *own; /* the ports of this server; filled when it listens */
    /* The work this server was started for is done: drain it. */
    void (*finished)(void *ctx, struct str why);
    void *ctx;
    const struct feature_state *states; /* of all features, for feature_find */
};

/* The state of an open feature, for those that need it; NULL: it is not there. */
void *feature_find(const struct feature_host *host, const char *name);

/* ---- settings ---- */

/* A secret, which is read from the environment alone. */
struct feature_secret {
    const char *name;  /* of the variable; NAME_FILE names a file instead */
    const char *other; /* tried if that is not set; NULL: none */
    size_t field;      /* offsetof in the settings: a char *, owned; NULL: not set */
    const char *help;  /* what it is for: "Resume tokens are signed with" */
    bool guards;       /* it should have 32 bytes or more: who guesses it can resume anything */
};

/* A setting that is taken and yet not as good as it looks, with the rest of a sentence. */
struct feature_doubt {
    const char *setting, *why;
};

/* What a check may look at beside its own settings. */
struct feature_store_kind {
    bool embedded; /* the store is on this disk */
};

/* Settings of the server (flags, variables, keys of the file), sections of the file, and secrets.
 * All fields are offsets in one struct of `size` bytes, which begins zeroed. */
struct feature_settings {
    size_t size;
    const struct option_row *options;
    size_t n_options;
    const struct section_kind *sections;
    size_t n_sections;
    const struct feature_secret *secrets;
    size_t n_secrets;
    /* All sources are read. Derives, compares, adds sections that are always there. NULL: nothing
     * to do. 0, or ERR_SYNTAX with a sentence in why. */
    int (*finish)(void *settings, char *why, size_t size);
    /* Puts what is doubtful behind the n that are there; at most `max` in all. NULL: nothing. */
    size_t (*doubts)(const void *settings, const struct feature_store_kind *store,
                     struct feature_doubt *out, size_t n, size_t max);
    /* Whether memory or children of this process hold secrets, so that no core file may be left.
     * NULL: no. */
    bool (*shield)(const void *settings);
    /* The feature has copied its secrets: they are wiped in the settings. NULL: nothing to do. */
    void (*forget)(void *settings);
};

/* ---- rows ---- */

/* How many of it a process with several loops has. */
enum feature_scope {
    FEATURE_OF_LOOP,    /* one for each loop */
    FEATURE_OF_PROCESS, /* one, on the first loop */
};

/* Streams and documents whose names begin so belong to the feature. */
struct feature_names {
    const char *streams; /* a prefix; NULL behind the last */
    bool hidden;         /* nobody is shown them unasked */
};

/* Something that goes wrong quietly: a count that should stay 0. */
struct feature_trouble {
    uint64_t (*count)(const void *state);
    const struct trace_kind *told;    /* with one number: how many more since the last time */
    const struct metric_info *metric; /* a counter below `tidemark_`; NULL: it has one elsewhere */
};

struct feature {
    const char *name;  /* as in FEATURES= */
    const char *title; /* in sentences: "the Lab" */
    enum feature_scope scope;
    const char *const *needs; /* names of features, NULL behind the last; NULL: none */
    const struct feature_settings *settings; /* NULL: none */
    const char *const *paths;                /* that it serves, NULL behind the last; `/x/`: all
                                                below. Those of settings are claimed when it opens */
    const struct feature_names *streams;     /* NULL: none */
    const char *const *documents;           /* prefixes of keys, NULL behind the last; NULL: none */
    const struct trace_kind *const *traces; /* NULL behind the last; NULL: none */
    const struct command *commands;         /* name == NULL behind the last; NULL: none */
    const struct builtin_tool *tools;       /* id == NULL behind the last; NULL: none */
    const struct feature_trouble *troubles; /* count == NULL behind the last; NULL: none */

    /* 0, or an ERR_ code with a sentence in why. Whatever the result: if *state is set then, stop()
     * is due. May block: no request is served yet. */
    int (*open)(const struct feature_host *host, const void *settings, void **state, char *why,
                size_t size);
    /* Settings of the server have changed. NULL: it reads them anew each time. */
    void (*tune)(void *state, const struct feature_host *host);
    /* Begins nothing new. drained() comes once, from the schedule or from within this call, when
     * nothing of it has to finish before connections end. NULL: nothing has. */
    void (*drain)(void *state, void (*drained)(void *ctx), void *ctx);
    /* Connections end now. NULL: nothing to do. */
    void (*quiesce)(void *state);
    /* Nobody is waited for any more: what is under way ends, with its readers told. How much was.
     * NULL: nothing is. */
    size_t (*cut)(void *state);
    /* No exchange is left. Frees all, and calls stopped() once, maybe from within this call. */
    void (*stop)(void *state, void (*stopped)(void *ctx), void *ctx);
};

/* ---- the table ---- */

/* Each after those it needs; NULL behind the last. FEATURES_MAX of them at most. */
extern const struct feature *const features[];
#define FEATURES_MAX 16

struct feature_state {
    const struct feature *feature;
    void *state;
};

#endif
