// SPDX-License-Identifier: Apache-2.0
/* lab_experiments_http.c -- experiments and what was decided, and the settings that the page asks
 * for.
 */
#include "feature/lab/lab_experiment.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_submit.h"
#include "feature/lab/lab_http_core.h"

static json_t *lab_view_experiment(struct lab_store *s, json_t *experiment)
{
    static const char *const keys[] = {"experimentId", "sessionId", "createdAt",
                                       "name",         "topic",     "status"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(experiment, keys[i]);
        json_object_set_new(out, keys[i], v != NULL ? json_incref(v) : json_null());
    }
    json_decref(experiment);
    return out;
}

void lab_get_experiments(struct lab_call *c, struct lab_store *s)
{
    int err = lab_index_refresh(&s->experiments);
    if (err != 0)
        lab_problem_of(&c->problem, err, s->experiments.log.path);
    else
        c->source = lab_list_new(&s->experiments, lab_view_experiment);
}

void lab_get_experiment(struct lab_call *c, struct lab_store *s)
{
    lab_store_experiment(s, c->ids[0], &c->answer, &c->problem);
}

void lab_create_experiment(struct lab_call *c, struct lab_store *s)
{
    json_t *body = lab_call_body(c), *id = NULL;
    if (body == NULL)
        return;
    if (lab_experiment_create(s, body, &id, &c->problem) == LAB_FINE)
        lab_call_answer_one(c, "experimentId", id);
    json_decref(body);
}

/* Whether there is the experiment comes first: what was sent says nothing without it. */
void lab_submit_decision(struct lab_call *c, struct lab_store *s)
{
    const char *compare = c->lab->setup.compare;
    json_t *experiment, *body;
    if (lab_store_experiment(s, c->ids[0], &experiment, &c->problem) != LAB_FINE)
        return;
    json_decref(experiment);
    body = lab_call_body(c);
    if (body == NULL)
        return;
    lab_submit_experiment(s, c->ids[0], body, lab_call_request(c, body), &c->answer, &c->problem);
    c->counts = compare != NULL && str_eq(c->ids[0], str_of_cstr(compare));
    json_decref(body);
}

/* ---- settings ---- */

static json_t *task_of(const struct lab_setup *setup)
{
    if (setup->review != NULL)
        return json_pack("{s:s,s:s}", "type", "review", "runId", setup->review);
    if (setup->compare != NULL)
        return json_pack("{s:s,s:s}", "type", "compare", "experimentId", setup->compare);
    return json_null();
}

void lab_get_config(struct lab_call *c, struct lab_store *s)
{
    const struct lab *lab = c->lab;
    json_t *roots = json_array();
    for (size_t i = 0; i < s->roots.n; i++)
        json_array_append_new(roots, json_string_nocheck(s->roots.paths[i]));
    c->answer =
        json_pack("{s:s,s:s,s:s,s:b,s:b,s:b,s:o,s:{s:b,s:b},s:o,s:I}", "sessionId", s->session,
                  "token", c->token, "version", TIDEMARK_VERSION, "runnerEnabled", 0,
                  "runnerAllowNetwork", 0, "runnerAllowWorkflowExec", 0, "allowedRoots", roots,
                  "ui", "blindMetricsDefault", 1, "revealMetricsEnabled", 1, "task",
                  task_of(&lab->setup), "exitAfterSubmit", (json_int_t)lab->setup.exit_after);
}
