// SPDX-License-Identifier: Apache-2.0
/* lab_export.h -- all of a session in one file below ROOT/exports, written in steps. In a lane
 * only. */
#ifndef FEATURE_LAB_LAB_EXPORT_H
#define FEATURE_LAB_LAB_EXPORT_H

#include "feature/lab/lab_problem.h"

struct lab_export;
struct lab_store;

/* path.n == 0: export-SESSION-TIME.json. INVALID_ARGUMENT, FORBIDDEN or INTERNAL; *out is untouched
 * then. */
enum lab_code lab_export_new(struct lab_store *s, struct str session, struct str path,
                             struct lab_export **out, struct lab_problem *p);

/* 1: there is more to do. 0: the file is there. Or an error. */
int lab_export_step(struct lab_export *e);

/* Where it is and how many entries it has. The caller's reference. */
json_t *lab_export_answer(const struct lab_export *e);

/* Takes away what is not finished. */
void lab_export_free(struct lab_export *e);

#endif
