// SPDX-License-Identifier: Apache-2.0
/* lab_schema.h -- what the lines of the Lab's files hold.
 *
 * Schemas are strict: a member that is not in the table makes the whole line invalid. Applying one
 * gives a new object whose members stand in the order of the table, defaults included. */
#ifndef FEATURE_LAB_LAB_SCHEMA_H
#define FEATURE_LAB_LAB_SCHEMA_H

#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

struct lab_schema;

extern const struct lab_schema lab_feedback_schema;
extern const struct lab_schema lab_run_schema;
extern const struct lab_schema lab_experiment_schema;
/* sessions/ID/idempotency.jsonl: what was answered, and what is about to be done. */
extern const struct lab_schema lab_settled_schema;
extern const struct lab_schema lab_intent_schema;

/* NULL: invalid. The caller's reference; parts without a schema of their own are shared. */
json_t *lab_schema_apply(const struct lab_schema *schema, const json_t *value);

/* A line of a file; NULL: it is not one of these. */
json_t *lab_schema_line(const struct lab_schema *schema, struct str line);

/* What a rating is called; NULL behind the last. */
const char *lab_rating_name(size_t i);

#endif
