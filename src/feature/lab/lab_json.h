// SPDX-License-Identifier: Apache-2.0
/* lab_json.h -- JSON documents of the Lab: read with jansson, written so that numbers look as a
 * person would write them. */
#ifndef FEATURE_LAB_LAB_JSON_H
#define FEATURE_LAB_LAB_JSON_H

#include "base/buf.h"
#include "base/str.h"

#include <jansson.h>

/* NULL: no JSON. The caller's reference. */
json_t *lab_json_load(struct str text);

/* Members stay in their order. */
void lab_json_put(struct buf *out, const json_t *value);

/* The same over several lines, two spaces a level, as it stands at that level. */
void lab_json_put_pretty(struct buf *out, const json_t *value, int level);

json_t *lab_json_text(struct str s);

/* A member that is a text, as it is or without white space around it; n == 0: it is missing, empty
 * or something else. Lent by the object. */
struct str lab_json_get(const json_t *object, const char *key);
struct str lab_json_trimmed(const json_t *object, const char *key);

/* What a program that is not strict takes it for: texts are read as numbers, true is 1. NAN: no
 * number. An empty text and null are none. */
double lab_json_number(const json_t *value);

#endif
