// SPDX-License-Identifier: Apache-2.0
/* jcs.h -- the one spelling of a JSON value (RFC 8785, JCS), in memory that the caller lends, so
 * that the client library has it, too. json_canonical.h says what it is. */
#ifndef BASE_JCS_H
#define BASE_JCS_H

#include "base/str.h"

#include <stdint.h>

#define JCS_MAX (1u << 20) /* bytes of a text; what comes of it may be five times as long */

struct jcs_member {
    struct str name;   /* without escapes: in the text, or in the room for names */
    const char *value; /* where it begins, behind white space */
    uint32_t object;   /* the next that begins there */
};

struct jcs_object {
    const char *end;     /* behind its bracket */
    uint32_t members, n; /* the first of n in a row, sorted */
    uint32_t object;     /* the next behind it */
};

/* jcs_measure says how many of each, and how many bytes of names and of the result, are needed; the
 * caller puts them there. None is 0. */
struct jcs_room {
    size_t n_objects, n_members, n_names, n_out;
    struct jcs_object *objects;
    struct jcs_member *members;
    char *names, *out;
};

/* 0, ERR_TOO_LARGE, or ERR_JSON: json_check refuses it. */
int jcs_measure(struct str text, struct jcs_room *room);

/* Writes into room->out the text that jcs_measure has measured, but for the member `without` of the
 * outermost object; STR_NONE: none. ERR_JSON: a name that comes twice in one object, half a
 * surrogate pair, a number beyond a double's range. */
int jcs_write(struct str text, struct str without, const struct jcs_room *room, size_t *n);

#endif
