// SPDX-License-Identifier: Apache-2.0
/* json_values.h -- the values of one JSON array, each as soon as it is complete.
 *
 * A stream of JSON values travels as arrays that may be far larger than what one wants in memory;
 * here only the value that is under way is kept. Values are checked (json_check); the bytes come as
 * they are, but without the white space around a value and with spaces for line ends inside it, so
 * that a value is one line. How the bytes are cut into pieces changes nothing. */
#ifndef CLIENT_JSON_VALUES_H
#define CLIENT_JSON_VALUES_H

#include "base/buf.h"
#include "base/str.h"

/* The value is lent for the call. Not 0: parsing ends, and json_values_feed returns it. */
typedef int json_value_fn(void *user, struct str value);

enum json_values_state {
    JSON_VALUES_BEFORE, /* white space before the array */
    JSON_VALUES_FIRST,  /* a value, or the end of an empty array */
    JSON_VALUES_VALUE,  /* in a value, or before one that must come */
    JSON_VALUES_AFTER,  /* white space behind the array */
};

struct json_values {
    size_t max; /* bytes of one value */
    struct buf value;
    enum json_values_state state;
    size_t depth; /* brackets open inside the value */
    bool in_string, escaped;
    int failed; /* sticky */
    json_value_fn *on_value;
    void *user;
};

void json_values_init(struct json_values *v, size_t max, void *user, json_value_fn *on_value);
void json_values_deinit(struct json_values *v);

/* Ready for the next array. */
void json_values_reset(struct json_values *v);

/* 0; ERR_JSON; ERR_TOO_LARGE for a value above max; or what on_value returned. */
int json_values_feed(struct json_values *v, struct str bytes);

/* All is fed: 0, or ERR_JSON when the array is not complete. */
int json_values_end(const struct json_values *v);

#endif
