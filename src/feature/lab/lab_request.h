// SPDX-License-Identifier: Apache-2.0
/* lab_request.h -- a submission that can be sent again, as the file of requests has it: what was
 * intended, then that it is settled. lab_submit.h says what for. */
#ifndef FEATURE_LAB_LAB_REQUEST_H
#define FEATURE_LAB_LAB_REQUEST_H

#include "base/sha256.h"
#include "feature/lab/lab_index.h"

enum { LAB_REQUEST_INTENT = 1, LAB_REQUEST_SETTLED }; /* marks of records */

/* Those of one experiment; 0: of none. */
uint64_t lab_request_group(struct str experiment);

/* Request ids may be of any length: what stands for one is not. */
struct str lab_request_key(struct str type, struct str request, char room[SHA256_SIZE]);

/* For the index of requests. */
json_t *lab_request_accept(struct str line, struct lab_line *out);

#endif
