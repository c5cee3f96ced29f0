// SPDX-License-Identifier: Apache-2.0
/* path_pattern.h -- paths with parameters.
 *
 *     /threads/{id}/runs/stream
 *     /v1beta/models/{model}:streamGenerateContent
 *
 * A segment has one parameter at most, which stands for a byte or more, none of them a slash. What
 * it stands for is as the request has it, still encoded. A path without braces is a pattern, too.
 * Pure. */
#ifndef HTTP_PATH_PATTERN_H
#define HTTP_PATH_PATTERN_H

#include "base/str.h"

/* Are the braces as they should be, and no name there twice? 0, or ERR_SYNTAX with a reason. */
int path_pattern_check(struct str pattern, char *reason, size_t size);

bool path_pattern_has_parameters(struct str pattern);

/* Its bytes outside of parameters: of two patterns for one path, the one with more is meant. */
size_t path_pattern_literal(struct str pattern);

/* How many bytes of the path it stands for: all of it, or all before a slash. 0: it does not. */
size_t path_pattern_covers(struct str pattern, struct str path);

/* What the parameter of this name stands for in a path that the pattern covers. False: it has no
 * such parameter. */
bool path_pattern_value(struct str pattern, struct str path, struct str name, struct str *value);

/* The next `{name}` in a text: *before is what stands in front of it, *text what stands behind.
 * False: there is none, and *before is all of it. */
bool path_pattern_next(struct str *text, struct str *before, struct str *name);

#endif
