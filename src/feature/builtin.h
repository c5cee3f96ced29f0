// SPDX-License-Identifier: Apache-2.0
/* builtin.h -- built-in tools: what a feature offers to those who call tools.
 *
 * The feature that owns something offers the tool that looks at it, in the `tools` of its row.
 * feature/tools finds it there, checks the calls and has it make their pages. A feature knows
 * nothing of feature/tools, which may not be in this build: all that a tool needs comes with the
 * page that it is to make.
 *
 *     start() --+--> done, invalid, failed or malformed: the page is gone
 *               |
 *               `--> under_way --back()--> true: on to one of these, or under way again
 *                                    `---> false: the page is gone, for nobody wants it any more
 *
 * Loop thread only. */
#ifndef FEATURE_BUILTIN_H
#define FEATURE_BUILTIN_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct bookmark_key;
struct lane;
struct principal;
struct sched;
struct store;

#define BUILTIN_PAGE_ROWS  100         /* unless its caller says how many */
#define BUILTIN_PAGE_BYTES (64 * 1024) /* of rows, unless one has more */

/* ---- arguments: one table gives their schema and checks them ---- */

enum builtin_arg_type {
    BUILTIN_TEXT,   /* struct str; not empty */
    BUILTIN_NUMBER, /* uint64_t: an integer between min and max */
    BUILTIN_OBJECT, /* struct str: JSON text; its members are texts, numbers or bools */
};

struct builtin_arg {
    const char *name;
    enum builtin_arg_type type;
    size_t field; /* offsetof in the tool's state */
    bool required;
    uint64_t min, max;   /* of numbers; of a text's bytes, max alone */
    uint64_t fallback;   /* of numbers */
    const char *choices; /* of texts: "in|out"; NULL: any */
    const char *help;
};

/* Those that several tools take. state: the tool's, with a field of that name. */
#define BUILTIN_OFFSET_ARG(state)                                                                  \
    {                                                                                              \
        .name = "offset", .type = BUILTIN_TEXT, .field = offsetof(state, offset),                  \
        .max = OFFSET_TEXT,                                                                        \
        .help = "Where to begin: an offset of the stream, or -1 for its first event, as without "  \
                "it."                                                                              \
    }
#define BUILTIN_LIMIT_ARG(state, most, what)                                                       \
    {                                                                                              \
        .name = "limit", .type = BUILTIN_NUMBER, .field = offsetof(state, limit), .min = 1,        \
        .max = most, .fallback = BUILTIN_PAGE_ROWS, .help = what " on a page, at most."            \
    }
#define BUILTIN_CURSOR_ARG(state)                                                                  \
    {                                                                                              \
        .name = "cursor", .type = BUILTIN_TEXT, .field = offsetof(state, cursor),                  \
        .max = BUILTIN_CURSOR_MAX,                                                                 \
        .help = "Only what was appended behind this place: the nextCursor of an earlier answer."   \
    }
#define BUILTIN_CURSOR_MAX      20   /* digits */
#define BUILTIN_STREAM_ROWS_MAX 1000 /* `limit` of tools that read or list streams */

/* ---- a page ---- */

struct builtin_ops;

/* One page that is being made. All that it points to lives as long as it does. */
struct builtin_page {
    const struct builtin_ops *ops;
    void *feature; /* the state of the feature that offers the tool */
    void *state;   /* the tool's own: its arguments, and zeros */
    /* Who asks: the tool may look at what he may, and at nothing else. Names in arguments and rows
     * are without his root, those that a store is asked for have it. */
    const struct principal *principal;
    struct sched *sched;
    struct store *store;
    struct lane *lane;                    /* for files, if the tool looks at some */
    const struct bookmark_key *bookmarks; /* see stream/listing.h; may be NULL */
    struct arena *arena;
    struct str position; /* where the page begins, as the tool said; n == 0: at the beginning */
    struct buf *result;  /* JSON text; NULL: nobody waits for it any more */
    bool under_way;      /* the tool's: something points to its state, until back() */
};

/* A stream that is read for a page, as feature/tools reads all of them. */
struct builtin_stream {
    struct store *store;
    struct str name;   /* as the store has it */
    struct str offset; /* as it was given; n == 0: the first event */
    uint64_t limit;    /* events */
};

/* How a page ends, with one of the first six, and what it may do before. */
struct builtin_ops {
    /* With what stands in the result. more.n > 0: the page behind it begins there. */
    void (*done)(struct builtin_page *p, struct str more);
    /* An argument cannot be used. */
    void (*invalid)(struct builtin_page *p, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
    void (*failed)(struct builtin_page *p, bool retryable, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
    /* Whoever asks may not look at that. */
    void (*denied)(struct builtin_page *p);
    /* The position is none that the tool has ever given. */
    void (*malformed)(struct builtin_page *p);
    /* With the events of a stream from the position on. */
    void (*read_stream)(struct builtin_page *p, const struct builtin_stream *s);

    /* What was under way is done. False: so is the page. */
    bool (*back)(struct builtin_page *p);
};

/* ---- tools ---- */

struct builtin_tool {
    const char *id; /* `stream:read`; NULL: the table ends here */
    const char *description;
    const struct builtin_arg *args;
    size_t n_args;
    const char *capability; /* NULL: anybody may */
    bool pages;
    bool bare;   /* takes no arguments, so that a cursor holds the position and nothing else */
    bool files;  /* needs a lane */
    size_t size; /* of its state */
    /* Makes a page, at once or later. */
    void (*start)(struct builtin_page *p);
    /* The page goes, whatever has become of it: frees what its state owns. NULL: nothing. */
    void (*end)(struct builtin_page *p);
};

/* The tools of a feature that is there, with its state. */
struct builtin_offer {
    const struct builtin_tool *tools;
    void *feature;
};

#endif
