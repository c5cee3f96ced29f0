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
struct audit;
struct builtin_tool;
struct durable;
struct feature_configs;
struct feature_state;
struct feeds;
struct fetcher;
struct http;
struct instances;
struct loop;
struct metric_info;
struct metrics;
struct store;
struct surface;
struct trace;
struct trace_kind;

#define FEATURES_MAX 16

/* ---- what a server lends ---- */

/* All of it outlives the feature. Times that may change while the server runs are read where they
 * are, in durable, or told by tune(). */
struct feature_host {
    struct loop *loop;
    struct store *store;
    struct feeds *feeds;         /* of store */
    struct instances *instances; /* NULL: no other process uses the store */
    struct http *http;
    struct durable *durable; /* /v1/stream/, mounted */
    struct fetcher *fetcher;
    struct metrics *metrics;
    struct audit *audit; /* NULL: none */
    const struct trace *trace;
    const struct addr_own *own; /* the ports of this server; filled when it listens */
    uint64_t write_timeout_ms;  /* for readers that hold others up */
    /* The work this server was started for is done: drain it. */
    void (*finished)(void *ctx, struct str why);
    void *ctx;
    const struct feature_configs *configs;
    const struct feature_state *states; /* of all features, for feature_find */
    bool private;                       /* it serves only who started it: nothing else listens */
};

/* The state of an open feature, for those that need it; NULL: it is not there. */
void *feature_find(const struct feature_host *host, const char *name);

/* ---- settings ---- */

/* A secret, which is read from the environment alone. */
struct feature_secret {
    const char *name;  /* of the variable; NAME_FILE names a file instead */
    const char *other; /* tried if that is not set; NULL: none */
    size_t field;      /* offsetof in the settings: a char *, owned; NULL: not set */
    const char *signs; /* what is signed with it: "resume tokens" */
    bool guards;       /* it should have 32 bytes or more: who guesses it can resume anything */
};

/* Settings that are taken and yet not as good as they look, each with the rest of a sentence. */
#define FEATURE_WARNINGS_MAX 40
struct feature_warnings {
    struct feature_warning {
        const char *setting, *why;
    } rows[FEATURE_WARNINGS_MAX];
    size_t n;
};

/* Adds one, unless it is there. Both texts are static. */
void feature_warn(struct feature_warnings *d, const char *setting, const char *why);

/* The settings of all features, each a struct of its own. */
struct feature_configs {
    const void *of[FEATURES_MAX]; /* in the order of features[]; NULL: it has none */
    bool embedded;                /* the store is on this disk */
};

/* Those of one, by its name; NULL: it is not built in, or has none. */
const void *feature_config(const struct feature_configs *all, const char *name);

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
    const char *example; /* lines of a config file, for help; NULL: none */
    /* All sources are read. Derives, compares, adds sections that are always there. NULL: nothing
     * to do. 0, or ERR_SYNTAX with a sentence in why. */
    int (*finish)(void *settings, char *why, size_t size);
    /* Adds what is doubtful. NULL: nothing is. */
    void (*warnings)(const void *settings, const struct feature_configs *all,
                     struct feature_warnings *out);
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

/* Streams whose names begin so belong to the feature. */
struct feature_names {
    const char *prefix; /* NULL behind the last */
    bool hidden;        /* nobody is shown them unasked, in any build: a row of store/names.h */
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
    /* What it serves, NULL behind the last. Those at paths of the settings have none of their own.
     */
    const struct surface *const *surfaces;
    /* Which of these a section is for that is named by a path. NULL: there is one. */
    const struct surface *(*surface_of)(const void *section);
    const struct feature_names *streams;    /* NULL: none */
    const char *const *documents;           /* prefixes of keys, NULL behind the last; NULL: none */
    const struct trace_kind *const *traces; /* NULL behind the last; NULL: none */
    const struct metric_info *const *metrics; /* NULL behind the last; NULL: none */
    const struct command *commands;           /* name == NULL behind the last; NULL: none */
    const struct builtin_tool *tools;         /* id == NULL behind the last; NULL: none */
    const struct feature_trouble *troubles;   /* count == NULL behind the last; NULL: none */

    /* 0, or an ERR_ code with a sentence in why. Whatever the result: if *state is set then, stop()
     * is due. May block: no request is served yet. */
    int (*open)(const struct feature_host *host, const void *settings, void **state, char *why,
                size_t size);
    /* Settings of the server have changed. NULL: it reads them anew each time. */
    void (*tune)(void *state, const struct feature_host *host);
    /* All below this prefix of names goes: begins to remove what the feature has there, streams
     * aside. How much that is; it is called again until it is none. NULL: it has nothing. */
    size_t (*erase)(void *state, struct str prefix);
    /* Begins nothing new. drained() comes once, from the schedule or from within this call, when
     * nothing of it has to finish before connections end. NULL: nothing has. */
    void (*drain)(void *state, void (*drained)(void *ctx), void *ctx);
    /* Connections end now. NULL: nothing to do. */
    void (*quiesce)(void *state);
    /* Nobody is waited for any more: what is under way ends, with its readers told. How much was.
     * NULL: nothing is. */
    size_t (*cut)(void *state);
    /* Its own connections are closed, as those of HTTP are. NULL: it has none. */
    void (*close)(void *state);
    /* No exchange is left. stopped() comes once, maybe from within this call; free() is due then.
     */
    void (*stop)(void *state, void (*stopped)(void *ctx), void *ctx);
    void (*free)(void *state);
};

/* ---- the table ---- */

/* Each after those it needs; NULL behind the last. */
extern const struct feature *const features[];

/* What this program was built without, with the words of its sections and commands, blanks between
 * them; name == NULL behind the last. */
extern const struct feature_absent {
    const char *name, *sections, *commands;
} features_absent[];

/* The absent feature that such a section, or command, is of; NULL: none. */
const char *feature_absent_section(struct str word);
const char *feature_absent_command(struct str word);

struct feature_state {
    const struct feature *feature;
    void *state;
};

#endif
