// SPDX-License-Identifier: Apache-2.0
/* client_json.h -- as much JSON as a client of streams needs: is it valid, what are an array's
 * values, what does a small object say. Nothing is built and nothing allocated; results point into
 * the text.
 *
 * Strict RFC 8259, without recursion: UTF-8 is checked, nesting is at most JSON_DEPTH_MAX, nothing
 * but white space may stand around the value. Repeated names, numbers of any size and half a
 * surrogate pair as an escape are allowed by the RFC, so they pass. */
#ifndef CLIENT_CLIENT_JSON_H
#define CLIENT_CLIENT_JSON_H

#include "base/json.h"

/* All of the text is one value. */
bool json_valid(struct str text);

/* The values of an array, one after the other:
 *
 *     struct json_array a;
 *     struct str value;
 *     if (json_array_begin(&a, text))
 *         while (json_array_next(&a, &value)) ...
 *
 * The whole is checked before the first value is given. */
struct json_array {
    struct str rest;
};
bool json_array_begin(struct json_array *a, struct str text); /* false: not an array */
/* Each value as it stands there, without the white space around it. */
bool json_array_next(struct json_array *a, struct str *value);
bool json_array_ended(struct json_array *a); /* json_array_next would find nothing */

/* The value of a member, as it stands there; the first of that name. false: there is none, or the
 * text is no object. Names with escapes in them are not found. */
bool json_member(struct str object, struct str name, struct str *value);

/* A member that is a string, with its escapes resolved and a NUL behind it. false, and an empty
 * text: there is none, it does not fit, or it has a NUL in it. */
bool json_member_text(struct str object, struct str name, char *out, size_t size);
bool json_member_is_true(struct str object, struct str name);

#endif
