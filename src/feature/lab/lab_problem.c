// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_problem.h"
#include "base/err.h"
#include "feature/lab/lab_json.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    int status;
} codes[] = {[LAB_FINE] = {"FINE", 200},
#define X(word, number) [LAB_##word] = {#word, number},
             LAB_CODES(X)
#undef X
};

void lab_problem_deinit(struct lab_problem *p)
{
    json_decref(p->context);
    *p = (struct lab_problem){0};
}

enum lab_code lab_problem_set(struct lab_problem *p, enum lab_code code, const char *fmt, ...)
{
    va_list ap;
    lab_problem_deinit(p);
    p->code = code;
    va_start(ap, fmt);
    vsnprintf(p->message, sizeof p->message, fmt, ap);
    va_end(ap);
    return code;
}

void lab_problem_add(struct lab_problem *p, const char *key, struct str value)
{
    if (p->context == NULL)
        p->context = json_object();
    json_object_set_new_nocheck(p->context, key, lab_json_text(value));
}

enum lab_code lab_problem_of(struct lab_problem *p, int err, const char *what)
{
    return lab_problem_set(p, LAB_INTERNAL, "%s: %s", what, err_text(err));
}

/* A message may have been cut within a character. */
static json_t *clean_text(const char *z)
{
    json_t *v = json_string(z);
    for (size_t n = strlen(z); v == NULL && n > 0;)
        v = json_stringn(z, --n);
    return v != NULL ? v : json_string("");
}

json_t *lab_problem_json(const struct lab_problem *p)
{
    json_t *error = json_object();
    json_object_set_new(error, "code", json_string(codes[p->code].name));
    json_object_set_new(error, "message", clean_text(p->message));
    if (p->context != NULL)
        json_object_set(error, "context", p->context);
    json_t *body = json_object();
    json_object_set_new(body, "error", error);
    return body;
}

int lab_problem_status(const struct lab_problem *p)
{
    return codes[p->code].status;
}

enum lab_code lab_code_of_status(int status)
{
    for (size_t i = LAB_FINE + 1; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return (enum lab_code)i;
    return LAB_INTERNAL;
}
