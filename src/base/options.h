// SPDX-License-Identifier: Apache-2.0
/* options.h -- settings by table: one row gives a setting its file key, its environment variable
 * (TIDEMARK_ and the name in capitals, `-` as `_`), its flag (--name), its default and its help.
 *
 * Later sources win: defaults, file, environment, flags. The target struct is the caller's; texts
 * put there are owned by it and freed by options_free. A table may be used without flags and
 * variables: those of a file's sections are (base/sections.h). */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/str.h"

#include <stdint.h>
#include <stdio.h>

struct buf;

enum option_type {
    OPTION_BOOL,     /* bool: --name, --no-name, --name=yes|no */
    OPTION_TEXT,     /* char *: owned; NULL when unset */
    OPTION_LIST,     /* struct option_list: may be given many times; see there */
    OPTION_NUMBER,   /* uint64_t */
    OPTION_SIZE,     /* uint64_t bytes: 64k, 16m */
    OPTION_DURATION, /* uint64_t milliseconds: 250ms, 10s */
    OPTION_CHOICE,   /* int: which of the row's value words, "human|json", from 0; -1: unset */
};

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_FILE, OPTION_FROM_ENV, OPTION_FROM_FLAG };

/* All that one source gives, OPTION_ITEMS_MAX items at most; a later source starts over. The file
 * and the command line repeat the setting; the default and the environment variable separate items
 * with commas. */
#define OPTION_ITEMS_MAX 1000
struct option_list {
    char **items;
    size_t n;
    enum option_source source;
};

/* Rows are best written with designated initialisers: what is left out is off. */
struct option_row {
    const char *name; /* "long-poll-timeout" */
    enum option_type type;
    size_t field;         /* offsetof in the target */
    const char *fallback; /* the default, as a user would write it; NULL: unset, 0 or no */
    /* Numbers, sizes and durations only: a variable of another program's making that goes before
     * the fallback, and how much its 1 means. It may hold a fraction; what is no positive number is
     * as good as unset. */
    const char *fallback_env;
    uint64_t fallback_unit;
    uint64_t min, max;   /* numbers, sizes and durations only; max 0: no bound */
    const char *value;   /* what help and errors call the value: "HOST:PORT|unix:PATH" */
    const char *help;    /* one or two sentences */
    bool zero_is_off;    /* 0 is taken although it is below min */
    bool bare_ms;        /* durations: a number without a unit is milliseconds */
    bool required;       /* texts and lists: see options_missing */
    bool commas;         /* lists: commas separate items in the file and in flags, too */
    bool secret;         /* errors do not repeat its value; its variable may be NAME_FILE, too */
    bool live;           /* may change while its program runs */
    const char *heading; /* help begins a new group with this row */
    /* Texts and list items only: 0, or ERR_SYNTAX, which is reported as "expected <value>" unless
     * the check put a reason of its own in `reason` (size bytes). */
    int (*check)(struct str value, char *reason, size_t size);
};

/* Parts of a row: what is set where, and what a number may be. */
#define OPTION_ROW(target, key, kind, member)                                                      \
    .name = key, .type = kind, .field = offsetof(target, member)
#define BETWEEN(least, most) .min = (least), .max = (most)

struct options {
    const struct option_row *rows;
    size_t n;
};

/* Where a setting could not be taken, `why` (size bytes) gets a sentence that names it, what was
 * wrong and what is expected; the result is then ERR_SYNTAX. What was taken before stays taken:
 * options_free is due after a failure too. */

/* Comes first: sets every field of the table, whatever was there before. */
int options_defaults(const struct options *o, void *target, char *why, size_t size);

/* A variable that is empty is as good as unset. */
int options_env(const struct options *o, void *target, char *why, size_t size);

/* One `key = value` of the file. ERR_NOT_FOUND: no such setting; `why` says so and suggests one. An
 * empty value unsets a text that has no default. */
int options_set(const struct options *o, void *target, struct str key, struct str value, char *why,
                size_t size);

/* Of a text or a quantity of the table: is it what its default says? */
bool options_is_default(const struct options *o, const void *target, struct str name);

/* Of one setting in two targets of a table: whether they are the same, and the one for the other.
 */
bool option_same(const struct option_row *r, const void *a, const void *b);
void option_swap(const struct option_row *r, void *a, void *b);

/* Whether the table has a setting of this name. */
bool options_has(const struct options *o, struct str name);

/* The first required setting that nobody gave; NULL: none is missing. */
const struct option_row *options_missing(const struct options *o, const void *target);

/* argv without the program and command names. Flags may stand anywhere; `--` ends them and a lone
 * `-` is none. The others are moved to the front of argv and counted in *positional, the flags
 * follow in their order. A value that itself starts with `--` is written --name=VALUE. --help and
 * -h are ERR_CANCELLED. argv and *positional are untouched on failure. */
int options_args(const struct options *o, void *target, int argc, char **argv, int *positional,
                 char *why, size_t size);

/* Overwrites user and password in URLs that secret settings were given in argv, where every user of
 * the machine can read them. What was taken from there was copied. */
void options_hide_args(const struct options *o, int argc, char **argv);
void options_hide_url(char *url); /* one of them */

/* The next TIDEMARK_* variable that is no setting but almost spells one, STR_NONE after the last.
 * *at starts at 0; the environment must not change meanwhile. Others are not ours to judge: the
 * container world sets variables after the names of services. */
struct str options_env_typo(const struct options *o, size_t *at);

/* The flags with their values, defaults and help, wrapped for a terminal. */
void options_help(const struct options *o, FILE *to);

/* For help that says more: a paragraph, indented and wrapped as there. */
void options_help_text(const char *text, FILE *to);

/* What the setting takes, in words: "a size between 1k and 1g", "human or json". */
void option_expected(const struct option_row *r, struct buf *out);

/* A check: an http or https URL. */
int option_check_url(struct str value, char *reason, size_t size);

/* Leaves texts NULL and lists empty; may be called twice. */
void options_free(const struct options *o, void *target);

#endif
