// SPDX-License-Identifier: Apache-2.0
/* json_edit.h -- a JSON object with some of its members changed, and the others as they came. */
#ifndef BASE_JSON_EDIT_H
#define BASE_JSON_EDIT_H

#include "base/buf.h"
#include "base/str.h"

#define JSON_EDITS_MAX 32 /* of one call */

struct json_edit {
    struct str name;
    struct str value;  /* JSON text; n == 0: the member goes */
    bool only_missing; /* a member that is there stays as it is */
};

/* Appends the object, which json_check has passed. Members keep their order, new ones come last. If
 * all is as the edits want it, it is appended byte for byte; otherwise the white space around its
 * members is left out. Of members of one name all are changed. False: nothing had to be changed. */
bool json_edit_put(struct buf *out, struct str object, const struct json_edit *edits, size_t n);

#endif
