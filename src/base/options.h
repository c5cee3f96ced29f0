// SPDX-License-Identifier: Apache-2.0
/* options.h -- settings by table: one row gives a setting its file key, its environment variable
 * (TIDEMARK_ and the name in capitals, `-` as `_`), its flag (--name), its default and its help.
 *
 * Later sources win: defaults, file, environment, flags. The target struct is the caller's; texts
 * put there are owned by it and freed by options_free. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/str.h"

#include <stdint.h>
#include <stdio.h>

enum option_type {
    OPTION_BOOL,   /* bool: --name, --name=yes|no */
    OPTION_TEXT,   /* char *: owned; NULL when unset */
    OPTION_LIST,   /* struct option_list: may be given many times, the first time clears the default
                    */
    OPTION_NUMBER, /* uint64_t */
    OPTION_SIZE,   /* uint64_t bytes: 64k, 16m */
    OPTION_DURATION, /* uint64_t milliseconds: 250ms, 10s */
};

struct option_list {
    char **items;
    size_t n;
};

struct option_row {
    const char *name; /* "long-poll-timeout" */
    enum option_type type;
    size_t field;         /* offsetof in the target */
    const char *fallback; /* the default, as a user would write it; NULL: unset */
    uint64_t min, max;    /* numbers only; max 0: no bound */
    const char *value;    /* what help calls the value: "HOST:PORT" */
    const char *help;     /* one or two sentences */
};

struct options {
    const struct option_row *rows;
    size_t n;
};

/* Where a setting could not be taken, `why` (size bytes) gets a sentence that names it, what was
 * wrong and what is expected; the result is then ERR_SYNTAX. */
int options_defaults(const struct options *o, void *target, char *why, size_t size);
int options_env(const struct options *o, void *target, char *why, size_t size);

/* One `key = value` of the file. ERR_NOT_FOUND: no such setting. */
int options_set(const struct options *o, void *target, struct str key, struct str value, char *why,
                size_t size);

/* argv without the program and command names. Flags may stand anywhere; `--` ends them. The others
 * are moved to the front of argv and counted in *positional. --help is ERR_CANCELLED. */
int options_args(const struct options *o, void *target, int argc, char **argv, int *positional,
                 char *why, size_t size);

/* The flags with their values, defaults and help, wrapped for a terminal. */
void options_help(const struct options *o, FILE *to);

void options_free(const struct options *o, void *target);

#endif
