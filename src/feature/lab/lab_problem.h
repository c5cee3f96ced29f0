// SPDX-License-Identifier: Apache-2.0
/* lab_problem.h -- what the Lab refuses a request with. */
#ifndef FEATURE_LAB_LAB_PROBLEM_H
#define FEATURE_LAB_LAB_PROBLEM_H

#include "base/str.h"

#include <jansson.h>

/* name, HTTP status */
#define LAB_CODES(X)                                                                               \
    X(INTERNAL, 500)                                                                               \
    X(INVALID_ARGUMENT, 400)                                                                       \
    X(INVALID_CURSOR, 400)                                                                         \
    X(INVALID_JSON, 400)                                                                           \
    X(UNAUTHORIZED, 401)                                                                           \
    X(FORBIDDEN, 403)                                                                              \
    X(NOT_FOUND, 404)                                                                              \
    X(FILE_NOT_FOUND, 404)                                                                         \
    X(WRONG_HOST, 421)                                                                             \
    X(RATE_LIMITED, 429)                                                                           \
    X(BUSY, 503)

enum lab_code {
    LAB_FINE,
#define X(name, status) LAB_##name,
    LAB_CODES(X)
#undef X
};

/* Zero-initialised: none. */
struct lab_problem {
    enum lab_code code;
    char message[512];
    json_t *context; /* owned; NULL: none */
};

void lab_problem_deinit(struct lab_problem *p);

/* Takes the place of an earlier one. Returns the code, so that it can be returned. */
enum lab_code lab_problem_set(struct lab_problem *p, enum lab_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a member to the context. */
void lab_problem_add(struct lab_problem *p, const char *key, struct str value);

/* What to do about it. */
static inline void lab_problem_fix(struct lab_problem *p, const char *fix)
{
    lab_problem_add(p, "fix", str_of_cstr(fix));
}

/* An error of base/err.h while files were worked on. */
enum lab_code lab_problem_of(struct lab_problem *p, int err, const char *what);

/* {"error":{"code","message","context"}}; the caller's reference. */
json_t *lab_problem_json(const struct lab_problem *p);
int lab_problem_status(const struct lab_problem *p);

/* The first code that has this status; LAB_INTERNAL: none has. */
enum lab_code lab_code_of_status(int status);

#endif
