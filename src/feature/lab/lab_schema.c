// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_schema.h"
#include "base/date.h"
#include "base/num.h"
#include "feature/lab/lab_json.h"

#include <math.h>

enum type {
    TEXT,   /* not empty */
    DATE,   /* RFC 3339 in UTC, with a Z */
    WHOLE,  /* from min to max, where these are given */
    NUMBER, /* not below min */
    WORD,   /* one of `words` */
    OBJECT, /* any */
    TEXTS,
    PART,  /* an object with a schema */
    PARTS, /* a list of them */
};

struct field {
    const char *name;
    enum type type;
    bool required, nullable, bounded;
    double min, max;
    const char *words;    /* "|queued|done|" */
    const char *fallback; /* JSON */
    const struct lab_schema *part;
};

struct lab_schema {
    const struct field *fields;
    size_t n;
};

#define SCHEMA(rows)                                                                               \
    {                                                                                              \
        rows, sizeof rows / sizeof *rows                                                           \
    }
#define VERSION                                                                                    \
    {                                                                                              \
        "schemaVersion", WHOLE, .bounded = true, .min = 1, .max = NUM_SAFE_MAX, .fallback = "1"    \
    }
#define SCORE        .type = WHOLE, .bounded = true, .min = 0, .max = 100
#define NOT_NEGATIVE .bounded = true, .min = 0, .max = HUGE_VAL

/* ---- feedback ---- */

static const struct field rating_fields[] = {
    {"overall", SCORE}, {"hook", SCORE},   {"pacing", SCORE},   {"script", SCORE},
    {"visuals", SCORE}, {"motion", SCORE}, {"captions", SCORE}, {"sync", SCORE},
};
static const struct lab_schema ratings = SCHEMA(rating_fields);

static const struct field snapshot_fields[] = {
    {"syncRating", SCORE, .nullable = true},
    {"captionOverall", SCORE, .nullable = true},
    {"proxyScoreOverall", SCORE, .nullable = true},
    {"meanDriftMs", NUMBER, .nullable = true},
    {"maxDriftMs", NUMBER, .nullable = true},
    {"captionCoverageRatio", NUMBER, .nullable = true},
    {"ocrConfidenceMean", NUMBER, .nullable = true},
};
static const struct lab_schema snapshot = SCHEMA(snapshot_fields);

static const struct field report_fields[] = {{"syncReportPath", .type = TEXT},
                                             {"captionReportPath", .type = TEXT},
                                             {"scorePath", .type = TEXT}};
static const struct lab_schema reports = SCHEMA(report_fields);

static const struct field feedback_fields[] = {
    VERSION,
    {"id", TEXT, .required = true},
    {"createdAt", DATE, .required = true},
    {"sessionId", .type = TEXT},
    {"runId", .type = TEXT},
    {"experimentId", .type = TEXT},
    {"variantId", .type = TEXT},
    {"topic", .type = TEXT},
    {"videoPath", .type = TEXT},
    {"artifactsDir", .type = TEXT},
    {"ratings", PART, .part = &ratings},
    {"notes", .type = TEXT},
    {"tags", .type = TEXTS},
    {"autoMetricsSnapshot", PART, .part = &snapshot},
    {"answers", .type = OBJECT},
    {"reports", PART, .part = &reports},
    {"extra", .type = OBJECT},
};
const struct lab_schema lab_feedback_schema = SCHEMA(feedback_fields);

const char *lab_rating_name(size_t i)
{
    return i < ratings.n ? ratings.fields[i].name : NULL;
}

/* ---- runs ---- */

static const struct field file_fields[] = {
    {"path", TEXT, .required = true},
    {"sizeBytes", WHOLE, .required = true, .bounded = true, .min = 0, .max = NUM_SAFE_MAX},
    {"mtimeMs", NUMBER, .required = true, NOT_NEGATIVE},
};
static const struct lab_schema file_print = SCHEMA(file_fields);

static const struct field print_fields[] = {{"video", PART, .part = &file_print},
                                            {"script", PART, .part = &file_print}};
static const struct lab_schema print = SCHEMA(print_fields);

static const struct field summary_fields[] = {
    {"syncRating", SCORE, .required = true, .nullable = true},
    {"syncLabel", TEXT, .nullable = true},
    {"meanDriftMs", NUMBER, .nullable = true},
    {"maxDriftMs", NUMBER, .nullable = true},
    {"captionOverall", SCORE, .required = true, .nullable = true},
    {"captionCoverageRatio", NUMBER, .nullable = true},
    {"ocrConfidenceMean", NUMBER, .nullable = true},
    {"proxyScoreOverall", SCORE, .required = true, .nullable = true},
};
static const struct lab_schema summary = SCHEMA(summary_fields);

static const struct field run_fields[] = {
    VERSION,
    {"runId", TEXT, .required = true},
    {"sessionId", TEXT, .required = true},
    {"createdAt", DATE, .required = true},
    {"topic", .type = TEXT},
    {"artifactsDir", TEXT, .required = true},
    {"artifactsDirRealpath", TEXT, .required = true},
    {"fingerprint", PART, .part = &print},
    {"supersedesRunId", .type = TEXT},
    {"videoPath", .type = TEXT},
    {"reports", PART, .part = &reports},
    {"autoMetricsSummary", PART, .part = &summary},
};
const struct lab_schema lab_run_schema = SCHEMA(run_fields);

/* ---- experiments ---- */

static const struct field variant_fields[] = {{"variantId", TEXT, .required = true},
                                              {"label", TEXT, .required = true},
                                              {"runId", TEXT, .required = true}};
static const struct lab_schema variant = SCHEMA(variant_fields);

static const struct field winner_fields[] = {{"variantId", TEXT, .required = true},
                                             {"reason", .type = TEXT}};
static const struct lab_schema winner = SCHEMA(winner_fields);

static const struct field question_fields[] = {
    {"id", TEXT, .required = true},
    {"prompt", TEXT, .required = true},
    {"type", WORD, .words = "|yes_no_unsure|text|", .fallback = "\"yes_no_unsure\""},
};
static const struct lab_schema question = SCHEMA(question_fields);

static const struct field experiment_fields[] = {
    VERSION,
    {"experimentId", TEXT, .required = true},
    {"sessionId", TEXT, .required = true},
    {"createdAt", DATE, .required = true},
    {"name", TEXT, .required = true},
    {"hypothesis", .type = TEXT},
    {"topic", .type = TEXT},
    {"baselineRunId", TEXT, .required = true},
    {"variants", PARTS, .required = true, .part = &variant},
    {"status", WORD, .words = "|queued|running|done|failed|", .fallback = "\"queued\""},
    {"winner", PART, .part = &winner},
    {"questions", PARTS, .part = &question},
    {"answers", .type = OBJECT},
    {"updatedAt", .type = DATE},
};
const struct lab_schema lab_experiment_schema = SCHEMA(experiment_fields);

/* ---- submissions ---- */

#define REQUEST                                                                                    \
    VERSION, {"requestId", TEXT, .required = true},                                                \
    {                                                                                              \
        "type", WORD, .required = true, .words = "|feedback|experiment_submit|"                    \
    }

static const struct field settled_fields[] = {
    REQUEST,
    {"entityId", .type = TEXT}, /* other programs write none */
    {"response", OBJECT, .required = true},
    {"createdAt", DATE, .required = true},
};
const struct lab_schema lab_settled_schema = SCHEMA(settled_fields);

static const struct field plan_fields[] = {
    {"entityIds", TEXTS, .required = true},
    {"feedbackCursor", WHOLE, .required = true, .bounded = true, .max = NUM_SAFE_MAX},
    {"experimentId", .type = TEXT},
};
static const struct lab_schema plan = SCHEMA(plan_fields);

static const struct field intent_fields[] = {
    REQUEST,
    {"intent", PART, .required = true, .part = &plan},
    {"createdAt", DATE, .required = true},
};
const struct lab_schema lab_intent_schema = SCHEMA(intent_fields);

/* ---- applying ---- */

static bool is_date(struct str s)
{
    int64_t ms;
    return s.n > 10 && s.p[10] == 'T' && s.p[s.n - 1] == 'Z' && date_parse_rfc3339(s, &ms) == 0;
}

static bool lab_schema_is_word(const struct field *f, struct str s)
{
    char framed[32];
    if (s.n == 0 || s.n > sizeof framed - 3 || memchr(s.p, '|', s.n) != NULL ||
        memchr(s.p, '\0', s.n) != NULL)
        return false;
    snprintf(framed, sizeof framed, "|%.*s|", (int)s.n, s.p);
    return strstr(f->words, framed) != NULL;
}

static json_t *lab_schema_take_number(const struct field *f, const json_t *v)
{
    double d = json_is_number(v) ? json_number_value(v) : NAN;
    if (isnan(d) || (f->bounded && (d < f->min || d > f->max)))
        return NULL;
    if (f->type == NUMBER || json_is_integer(v))
        return json_incref((json_t *)(uintptr_t)v);
    return d == floor(d) && fabs(d) <= (double)NUM_SAFE_MAX ? json_integer((json_int_t)d) : NULL;
}

static json_t *take_texts(const json_t *v)
{
    if (!json_is_array(v))
        return NULL;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_string_length(json_array_get(v, i)) == 0)
            return NULL;
    return json_incref((json_t *)(uintptr_t)v);
}

static json_t *take_parts(const struct lab_schema *part, const json_t *v)
{
    json_t *out = json_is_array(v) ? json_array() : NULL;
    for (size_t i = 0; out != NULL && i < json_array_size(v); i++) {
        json_t *item = lab_schema_apply(part, json_array_get(v, i));
        if (item == NULL) {
            json_decref(out);
            return NULL;
        }
        json_array_append_new(out, item);
    }
    return out;
}

static json_t *lab_schema_take(const struct field *f, const json_t *v)
{
    json_t *same = (json_t *)(uintptr_t)v;
    struct str text = str_of(json_string_value(v), json_string_length(v));
    if (f->nullable && json_is_null(v))
        return json_incref(same);
    switch (f->type) {
    case TEXT: return text.n > 0 ? json_incref(same) : NULL;
    case DATE: return is_date(text) ? json_incref(same) : NULL;
    case WORD: return lab_schema_is_word(f, text) ? json_incref(same) : NULL;
    case WHOLE:
    case NUMBER: return lab_schema_take_number(f, v);
    case OBJECT: return json_is_object(v) ? json_incref(same) : NULL;
    case TEXTS: return take_texts(v);
    case PART: return lab_schema_apply(f->part, v);
    case PARTS: return take_parts(f->part, v);
    }
    return NULL;
}

/* False: invalid. *seen counts the members of the object that are in the table. */
static bool apply_field(const struct field *f, const json_t *value, json_t *out, size_t *seen)
{
    const json_t *v = json_object_get(value, f->name);
    json_t *taken;
    if (v == NULL && f->fallback == NULL)
        return !f->required;
    if (v != NULL) {
        (*seen)++;
        taken = lab_schema_take(f, v);
    } else {
        taken = lab_json_load(str_of_cstr(f->fallback));
    }
    return taken != NULL && json_object_set_new_nocheck(out, f->name, taken) == 0;
}

json_t *lab_schema_apply(const struct lab_schema *schema, const json_t *value)
{
    if (!json_is_object(value))
        return NULL;
    json_t *out = json_object();
    size_t seen = 0;
    bool valid = true;
    for (size_t i = 0; valid && i < schema->n; i++)
        valid = apply_field(&schema->fields[i], value, out, &seen);
    if (valid && seen == json_object_size(value))
        return out;
    json_decref(out);
    return NULL;
}

json_t *lab_schema_line(const struct lab_schema *schema, struct str line)
{
    if (line.n < 2 || line.p[0] != '{' || line.p[line.n - 1] != '}')
        return NULL;
    json_t *v = lab_json_load(line);
    json_t *out = lab_schema_apply(schema, v);
    json_decref(v);
    return out;
}
