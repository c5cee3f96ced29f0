// SPDX-License-Identifier: Apache-2.0
/* tool_args.h -- the arguments of tools: those of built-in ones are checked by their table
 * (feature/builtin.h), which is also their schema. */
#ifndef FEATURE_TOOLS_TOOL_ARGS_H
#define FEATURE_TOOLS_TOOL_ARGS_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

struct arena;
struct builtin_arg;

/* Puts them into the fields of a zeroed state. text: a JSON object, checked before; objects are
 * slices of it, texts are in the arena. ERR_SYNTAX with a sentence in why. On any thread. */
int tool_args_take(void *state, const struct builtin_arg *rows, size_t n, struct str text,
                   struct arena *a, char *why, size_t size);

/* The JSON Schema of these. */
void tool_args_schema(const struct builtin_arg *rows, size_t n, bool pages, struct buf *out);

/* A schema that somebody else wrote, a JSON object (json_check), as it is but with __cursor among
 * its properties. */
void tool_args_add_cursor(struct str schema, struct buf *out);

#endif
