// SPDX-License-Identifier: Apache-2.0
/* lab_export_http.c -- POST /api/export: one step at a time, so that others get their turn. */
#include "feature/lab/lab_export.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_http_core.h"

static void lab_free_export(void *work)
{
    lab_export_free(work);
}

static void lab_export_begin(struct lab_call *c, struct lab_store *s)
{
    struct lab_export *e;
    json_t *body = lab_call_body(c);
    if (body == NULL)
        return;
    struct str session = lab_json_trimmed(body, "sessionId"), path = lab_json_trimmed(body, "path");
    if (session.n == 0) {
        lab_problem_set(&c->problem, LAB_INVALID_ARGUMENT, "Missing sessionId");
        lab_problem_fix(&c->problem, "Send {\"sessionId\": \"lab_...\"}.");
    } else if (lab_export_new(s, session, path, &e, &c->problem) == LAB_FINE) {
        c->work = e;
        c->free_work = lab_free_export;
        c->again = true;
    }
    json_decref(body);
}

void lab_post_export(struct lab_call *c, struct lab_store *s)
{
    if (c->work == NULL) {
        lab_export_begin(c, s);
        return;
    }
    int more = lab_export_step(c->work);
    if (more < 0)
        lab_problem_of(&c->problem, more, "The export cannot be written");
    else if (more == 0)
        c->answer = lab_export_answer(c->work);
    c->again = more > 0;
}
