// SPDX-License-Identifier: Apache-2.0
/* lab_experiment.h -- comparisons of a baseline with variants: made, and decided once. */
#ifndef FEATURE_LAB_LAB_EXPERIMENT_H
#define FEATURE_LAB_LAB_EXPERIMENT_H

#include "feature/lab/lab_problem.h"
#include "feature/lab/lab_store.h"

#define LAB_VARIANTS_MAX 200

/* From what somebody sent; it is stored then. *id is the caller's reference. */
enum lab_code lab_experiment_create(struct lab_store *s, const json_t *body, json_t **id,
                                    struct lab_problem *p);

/* What is said of the runs, checked against the experiment. Texts and values are lent by both. */
struct lab_decision {
    struct lab_decided {
        struct str run, variant;
        const json_t *said;
    } runs[LAB_VARIANTS_MAX + 1];
    size_t n;
    struct str winner, reason; /* n == 0: none */
    const json_t *answers;     /* NULL: none */
};
enum lab_code lab_experiment_decide(const json_t *experiment, const json_t *body,
                                    struct lab_decision *out, struct lab_problem *p);

bool lab_experiment_done(const json_t *experiment);

/* The record that says so; the caller's reference. */
json_t *lab_experiment_finish(const json_t *experiment, const struct lab_decision *d);

#endif
