// SPDX-License-Identifier: Apache-2.0
/* json.h -- JSON on the hot path: validate and split without building anything.
 *
 * One pass, no recursion, strict RFC 8259: UTF-8 is checked, nesting is at most JSON_DEPTH_MAX,
 * nothing may follow the value but white space, no byte order mark before it. What the RFC allows
 * passes: repeated names, numbers of any size, half a surrogate pair as an escape. Documents are
 * built and taken apart with jansson, off the hot path. The client library has json_scan.c of it,
 * which needs no memory: json_check and json_escape. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define JSON_DEPTH_MAX 512

/* 0: `text` is one valid JSON value. Otherwise ERR_JSON, and *at is where it went wrong (text.n if
 * it ended too early). */
int json_check(struct str text, size_t *at);

/* One valid JSON text as the events of a stream: a top-level array is flattened by one level,
 * anything else is one event. Into *out goes each element's bytes as they came (surrounding white
 * space left out, raw CR and LF between tokens too, so an event has no line breaks) with a comma
 * behind it, and into *ends where each event ends in *out, its comma included (as uint32_t,
 * growing). An empty array gives no events. 0, or ERR_JSON or ERR_TOO_MANY_EVENTS with *at set and
 * *out and *ends as they were. out->n + text.n < UINT32_MAX. */
#define JSON_EVENTS_MAX (1024 * 1024) /* err.h tells people */
int json_split(struct str text, struct buf *out, struct buf *ends, size_t *at);

/* How a quote, a backslash or a control byte stands in a string; returns how many characters. */
#define JSON_ESCAPE_MAX 6
size_t json_escape(char c, char out[JSON_ESCAPE_MAX]);

/* s as a JSON string with its quotes. Each byte that is no part of UTF-8 becomes U+FFFD. */
void json_put_string(struct buf *out, struct str s);
void json_put_strings(struct buf *out, const struct str *all, size_t n); /* as an array */

/* {"error":{"code":CODE,"message":MESSAGE}}: what every surface without words of its own answers.
 * extra: JSON of further members, with a comma before the first; STR_NONE: none. */
void json_put_problem(struct buf *out, struct str code, struct str message, struct str extra);

#endif
