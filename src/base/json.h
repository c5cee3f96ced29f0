// SPDX-License-Identifier: Apache-2.0
/* json.h -- JSON on the hot path: validate and split without building anything.
 *
 * One pass, no allocation, no recursion, strict RFC 8259: UTF-8 is checked, nesting is at most
 * JSON_DEPTH_MAX, nothing may follow the value but white space. Documents are built and taken
 * apart with jansson, off the hot path. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define JSON_DEPTH_MAX 512

/* 0: `text` is one valid JSON value. Otherwise ERR_JSON, and *at is where it went wrong. */
int json_check(struct str text, size_t *at);

/* One valid JSON text as the events of a stream: a top-level array is flattened by one level,
 * anything else is one event. Into *out goes each element's bytes as they came (surrounding white
 * space left out, raw CR and LF between tokens too) with a comma behind it, and into *ends where
 * each event ends in *out (as uint32_t, growing). An empty array gives no events. 0, or ERR_JSON
 * with *at set and *out and *ends as they were. text.n < 2^31. */
int json_split(struct str text, struct buf *out, struct buf *ends, size_t *at);

/* s as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void json_put_string(struct buf *out, struct str s);

#endif
