// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_experiment.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"

/* v may be NULL. */
static void lab_experiment_put(json_t *object, const char *key, json_t *v)
{
    if (v != NULL)
        json_object_set_new_nocheck(object, key, v);
}

static json_t *text_or(struct str s, const char *fallback)
{
    return s.n > 0 ? lab_json_text(s) : fallback != NULL ? json_string(fallback) : NULL;
}

static enum lab_code lab_experiment_refuse(struct lab_problem *p, const char *message,
                                           const char *fix)
{
    lab_problem_set(p, LAB_INVALID_ARGUMENT, "%s", message);
    if (fix != NULL)
        lab_problem_fix(p, fix);
    return p->code;
}

static enum lab_code refuse_of(struct lab_problem *p, const char *message, struct str what)
{
    return lab_problem_set(p, LAB_INVALID_ARGUMENT, "%s: %.*s", message,
                           (int)(what.n < 200 ? what.n : 200), what.p);
}

/* ---- made ---- */

static enum lab_code check_run(struct lab_store *s, struct str id, struct lab_problem *p)
{
    json_t *run;
    if (lab_store_run(s, id, &run, p) == LAB_FINE)
        json_decref(run);
    return p->code;
}

static enum lab_code take_variants(struct lab_store *s, const json_t *sent, json_t *out,
                                   struct lab_problem *p)
{
    if (json_array_size(sent) == 0)
        return lab_experiment_refuse(p, "Missing variants", "Provide at least one variant runId.");
    if (json_array_size(sent) > LAB_VARIANTS_MAX)
        return lab_experiment_refuse(p, "Too many variants", "Compare at most 200 at once.");
    for (size_t i = 0; i < json_array_size(sent); i++) {
        const json_t *one = json_array_get(sent, i);
        struct str run = lab_json_trimmed(one, "runId");
        if (run.n == 0)
            continue;
        if (check_run(s, run, p) != LAB_FINE)
            return p->code;
        json_t *v = json_object();
        lab_experiment_put(v, "variantId", lab_new_id("var_"));
        lab_experiment_put(v, "label", text_or(lab_json_trimmed(one, "label"), "B"));
        lab_experiment_put(v, "runId", lab_json_text(run));
        json_array_append_new(out, v);
    }
    if (json_array_size(out) == 0)
        return lab_experiment_refuse(p, "No valid variants provided",
                                     "Provide variants as [{label, runId}].");
    return LAB_FINE;
}

static json_t *questions_of(const json_t *body)
{
    json_t *v = json_object_get(body, "questions");
    return json_is_array(v) ? json_incref(v) : NULL;
}

static enum lab_code store(struct lab_store *s, const json_t *draft, json_t **id,
                           struct lab_problem *p)
{
    json_t *experiment = lab_schema_apply(&lab_experiment_schema, draft);
    if (experiment == NULL)
        return lab_experiment_refuse(p, "Invalid experiment",
                                     "Questions are [{id, prompt, type}].");
    int err = lab_index_append(&s->experiments, experiment);
    if (err == 0)
        *id = json_incref(json_object_get(experiment, "experimentId"));
    else
        lab_problem_of(p, err, s->experiments.log.path);
    json_decref(experiment);
    return p->code;
}

enum lab_code lab_experiment_create(struct lab_store *s, const json_t *body, json_t **id,
                                    struct lab_problem *p)
{
    struct str baseline = lab_json_trimmed(body, "baselineRunId");
    json_t *variants = json_array(), *draft = json_object();
    if (baseline.n == 0)
        lab_experiment_refuse(p, "Missing baselineRunId",
                              "Send {baselineRunId, variants: [{label, runId}]}.");
    else if (check_run(s, baseline, p) == LAB_FINE)
        take_variants(s, json_object_get(body, "variants"), variants, p);
    lab_experiment_put(draft, "experimentId", lab_new_id("exp_"));
    lab_experiment_put(draft, "sessionId", json_string(s->session));
    lab_experiment_put(draft, "createdAt", lab_now());
    lab_experiment_put(draft, "name", text_or(lab_json_trimmed(body, "name"), "A/B Compare"));
    lab_experiment_put(draft, "hypothesis", text_or(lab_json_trimmed(body, "hypothesis"), NULL));
    lab_experiment_put(draft, "topic", text_or(lab_json_trimmed(body, "topic"), NULL));
    lab_experiment_put(draft, "baselineRunId", lab_json_text(baseline));
    lab_experiment_put(draft, "variants", variants);
    lab_experiment_put(draft, "questions", questions_of(body));
    if (p->code == LAB_FINE)
        store(s, draft, id, p);
    json_decref(draft);
    return p->code;
}

/* ---- decided ---- */

bool lab_experiment_done(const json_t *experiment)
{
    return str_eq(lab_json_get(experiment, "status"), STR("done"));
}

static const json_t *variant_with(const json_t *experiment, const char *key, struct str value)
{
    const json_t *all = json_object_get(experiment, "variants");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (str_eq(lab_json_get(json_array_get(all, i), key), value))
            return json_array_get(all, i);
    return NULL;
}

static bool has_run(const struct lab_decision *d, struct str run)
{
    for (size_t i = 0; i < d->n; i++)
        if (str_eq(d->runs[i].run, run))
            return true;
    return false;
}

static enum lab_code take_run(const json_t *experiment, const json_t *said, struct lab_decision *d,
                              struct lab_problem *p)
{
    struct str run = lab_json_trimmed(said, "runId"), named = lab_json_trimmed(said, "variantId");
    if (run.n == 0)
        return LAB_FINE;
    const json_t *variant = variant_with(experiment, "runId", run);
    struct str expected = variant != NULL ? lab_json_get(variant, "variantId") : STR("baseline");
    if (variant == NULL && !str_eq(run, lab_json_get(experiment, "baselineRunId")))
        return refuse_of(p, "RunId is not part of this experiment", run);
    if (has_run(d, run))
        return refuse_of(p, "Duplicate perRun entry for runId", run);
    if (named.n > 0 && !str_eq(named, expected))
        return lab_experiment_refuse(p,
                                     variant != NULL
                                         ? "VariantId does not match experiment variant"
                                         : "Baseline perRun entry must use variantId \"baseline\" "
                                           "(or omit it)",
                                     "Take variantIds from GET /api/experiments/:id.");
    if (d->n == sizeof d->runs / sizeof *d->runs)
        return lab_experiment_refuse(p, "Too many perRun entries", NULL);
    d->runs[d->n++] = (struct lab_decided){run, expected, said};
    return LAB_FINE;
}

static bool has_variant(const json_t *experiment, const struct lab_decision *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (variant_with(experiment, "runId", d->runs[i].run) != NULL)
            return true;
    return false;
}

static enum lab_code take_runs(const json_t *experiment, const json_t *said, struct lab_decision *d,
                               struct lab_problem *p)
{
    static const char fix[] = "Send {perRun: [{runId, ratings, notes, tags}]}.";
    if (json_array_size(said) == 0)
        return lab_experiment_refuse(p, "Missing perRun ratings", fix);
    for (size_t i = 0; i < json_array_size(said); i++)
        if (take_run(experiment, json_array_get(said, i), d, p) != LAB_FINE)
            return p->code;
    if (d->n == 0)
        return lab_experiment_refuse(p, "No valid perRun entries provided", fix);
    if (!has_run(d, lab_json_get(experiment, "baselineRunId")))
        return lab_experiment_refuse(p, "Missing baseline perRun entry",
                                     "Rate the baselineRunId, too.");
    if (!has_variant(experiment, d))
        return lab_experiment_refuse(p, "Missing variant perRun entry",
                                     "Rate at least one variant's run.");
    return LAB_FINE;
}

enum lab_code lab_experiment_decide(const json_t *experiment, const json_t *body,
                                    struct lab_decision *out, struct lab_problem *p)
{
    const json_t *answers = json_object_get(body, "answers");
    out->n = 0;
    out->winner = lab_json_trimmed(body, "winnerVariantId");
    out->reason = lab_json_trimmed(body, "reason");
    out->answers = json_is_object(answers) ? answers : NULL;
    if (take_runs(experiment, json_object_get(body, "perRun"), out, p) != LAB_FINE)
        return p->code;
    if (out->winner.n > 0 && !str_eq(out->winner, STR("baseline")) &&
        variant_with(experiment, "variantId", out->winner) == NULL)
        return refuse_of(p, "Invalid winnerVariantId", out->winner);
    return LAB_FINE;
}

json_t *lab_experiment_finish(const json_t *experiment, const struct lab_decision *d)
{
    json_t *draft = json_copy((json_t *)(uintptr_t)experiment);
    if (d->winner.n > 0) {
        json_t *winner = json_object();
        lab_experiment_put(winner, "variantId", lab_json_text(d->winner));
        lab_experiment_put(winner, "reason", text_or(d->reason, NULL));
        lab_experiment_put(draft, "winner", winner);
    }
    if (d->answers != NULL)
        lab_experiment_put(draft, "answers", json_incref((json_t *)(uintptr_t)d->answers));
    lab_experiment_put(draft, "status", json_string("done"));
    lab_experiment_put(draft, "updatedAt", lab_now());
    json_t *valid = lab_schema_apply(&lab_experiment_schema, draft);
    json_decref(draft);
    return valid;
}
