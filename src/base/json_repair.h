// SPDX-License-Identifier: Apache-2.0
/* json_repair.h -- what can be told of a JSON value before all of it has come. */
#ifndef BASE_JSON_REPAIR_H
#define BASE_JSON_REPAIR_H

#include "base/buf.h"
#include "base/str.h"

#define REPAIR_DEPTH_MAX 256

/* Appends the value that `text` is or begins: a member without a value is left out, a number ends
 * with its last digit, a word is completed, and open strings, arrays and objects are closed. What
 * follows a complete value is not looked at. The value has no line breaks. false, and nothing
 * appended: it is no beginning of a value, or of one that nests deeper than REPAIR_DEPTH_MAX. */
bool json_repair(struct str text, struct buf *out);

#endif
