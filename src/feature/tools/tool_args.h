// SPDX-License-Identifier: Apache-2.0
/* tool_args.h -- the arguments of built-in tools: one table gives their schema and checks them. */
#ifndef FEATURE_TOOLS_TOOL_ARGS_H
#define FEATURE_TOOLS_TOOL_ARGS_H

#include "base/buf.h"
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* All that any of them takes. Texts are lent by root. */
struct tool_args {
    json_t *root;
    struct str name, offset, prefix, cursor, session, stream, run;
    uint64_t limit, timeout_s;
    json_t *where; /* lent; NULL: not given */
};
void tool_args_deinit(struct tool_args *a);

enum tool_arg_type {
    TOOL_ARG_TEXT,   /* struct str; not empty */
    TOOL_ARG_NUMBER, /* uint64_t: an integer between min and max */
    TOOL_ARG_OBJECT, /* json_t *: its members are texts, numbers or bools */
};

struct tool_arg {
    const char *name;
    enum tool_arg_type type;
    size_t field; /* offsetof in struct tool_args */
    bool required;
    uint64_t min, max;   /* of numbers; of a text's bytes, max alone */
    uint64_t fallback;   /* of numbers */
    const char *choices; /* of texts: "in|out"; NULL: any */
    const char *help;
};

/* ERR_SYNTAX with a sentence in why. text: a JSON object, checked before. tool_args_deinit is due
 * in either case. */
int tool_args_take(struct tool_args *out, const struct tool_arg *rows, size_t n, struct str text,
                   char *why, size_t size);

/* The JSON Schema of these. */
void tool_args_schema(const struct tool_arg *rows, size_t n, bool pages, struct buf *out);

/* A schema that somebody else wrote, a JSON object (json_check), as it is but with __cursor among
 * its properties. */
void tool_args_add_cursor(struct str schema, struct buf *out);

#endif
