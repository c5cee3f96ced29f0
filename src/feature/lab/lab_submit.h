// SPDX-License-Identifier: Apache-2.0
/* lab_submit.h -- submissions that may be sent again: once a request id was used for a kind of
 * submission in a session, it is answered with what it was answered then.
 *
 * In ROOT/sessions/SESSION/idempotency.jsonl stands first what is about to be done, and at the end
 * what was answered:
 *
 *     {"schemaVersion":1,"requestId":"r","type":"feedback",
 *      "intent":{"entityIds":["UUID"],"feedbackCursor":1200},"createdAt":"..."}
 *     {"schemaVersion":1,"requestId":"r","type":"feedback","entityId":"UUID",
 *      "response":{"feedbackId":"UUID"},"createdAt":"..."}
 *
 * In between the entries are appended under the ids that were chosen. Whoever finds an intent
 * without an answer looks for these ids behind the cursor, appends what is missing, and answers.
 * All of it happens under the store's lock, so that of two requests the second finds the first. */
#ifndef FEATURE_LAB_LAB_SUBMIT_H
#define FEATURE_LAB_LAB_SUBMIT_H

#include "feature/lab/lab_index.h"
#include "feature/lab/lab_problem.h"

struct lab_store;

#define LAB_SUBMIT_MAX (16 * 1024 * 1024) /* bytes of all entries of one submission */

/* request.n == 0: it cannot be sent again. *response is the caller's reference. */
enum lab_code lab_submit_feedback(struct lab_store *s, const json_t *body, struct str request,
                                  json_t **response, struct lab_problem *p);
enum lab_code lab_submit_experiment(struct lab_store *s, struct str experiment, const json_t *body,
                                    struct str request, json_t **response, struct lab_problem *p);

#endif
