// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_submit.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "feature/lab/lab_entry.h"
#include "feature/lab/lab_experiment.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_request.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"
#include "feature/logs/logs.h"

#include <stdlib.h>

/* ---- looking for entries ---- */

/* Marks in `found` (n of them) which of these ids the line has. */
static void look_at_line(struct str line, const json_t *ids, bool *found)
{
    struct str id = STR_NONE;
    json_t *entry = NULL;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *wanted = json_array_get(ids, i);
        struct str text = str_of(json_string_value(wanted), json_string_length(wanted));
        if (found[i] || memmem(line.p, line.n, text.p, text.n) == NULL)
            continue;
        if (entry == NULL) {
            entry = lab_schema_line(&lab_feedback_schema, line);
            id = lab_json_get(entry, "id");
        }
        if (entry == NULL)
            return;
        found[i] = str_eq(id, text);
    }
    json_decref(entry);
}

/* From this cursor on, or in all of the file if it is none any more. Returns how many, or an error.
 */
static int look_for(struct lab_store *s, const json_t *ids, uint64_t cursor, bool *found)
{
    struct log log = {.path = s->feedback};
    int n = 0;
    for (;;) {
        struct log_read r = {.log = &log, .since = cursor};
        int err = lab_log_read(&r);
        if ((err == ERR_GAP || err == ERR_OFFSET) && cursor > 0) {
            cursor = 0;
            continue;
        }
        if (err != 0)
            return err;
        struct str rest = r.bytes != NULL ? str_of(r.bytes->bytes, r.bytes->n) : STR_NONE, line;
        while (log_line(&rest, &line))
            look_at_line(line, ids, found);
        block_unref(r.bytes);
        if (r.next == cursor)
            break;
        cursor = r.next;
    }
    for (size_t i = 0; i < json_array_size(ids); i++)
        n += found[i];
    return n;
}

/* ---- one submission ---- */

struct submission {
    struct lab_store *store;
    struct lab_problem *problem;
    struct str type, request, experiment; /* experiment.n == 0: of none */
    json_t *response;                     /* of an earlier one; NULL: there is none */
    json_t *ids;                          /* chosen by now or by an earlier one; NULL: not yet */
    bool *found;                          /* for each of them */
    int n_found;
};

static void submission_deinit(struct submission *b)
{
    json_decref(b->response);
    json_decref(b->ids);
    free(b->found);
}

static enum lab_code lab_submit_failed(struct submission *b, int err, const char *what)
{
    return lab_problem_of(b->problem, err, what);
}

/* Takes ids over. */
static enum lab_code take_ids(struct submission *b, json_t *ids, uint64_t cursor, bool look)
{
    json_decref(b->ids);
    free(b->found);
    b->ids = ids;
    b->found = mem_zalloc(json_array_size(ids) * sizeof *b->found + 1);
    b->n_found = look ? look_for(b->store, ids, cursor, b->found) : 0;
    return b->n_found < 0 ? lab_submit_failed(b, b->n_found, b->store->feedback) : LAB_FINE;
}

/* What an earlier request with this id has left. */
static enum lab_code find_earlier(struct submission *b)
{
    struct lab_index *requests = &b->store->requests;
    char room[SHA256_SIZE];
    if (b->request.n == 0)
        return LAB_FINE;
    int err = lab_index_refresh(requests);
    if (err != 0)
        return lab_submit_failed(b, err, requests->log.path);
    const struct lab_record *r =
        lab_index_find(requests, lab_request_key(b->type, b->request, room));
    if (r == NULL)
        return LAB_FINE;
    json_t *record = lab_index_read(requests, r);
    if (record == NULL) /* there was one: to do it all again could store a second entry */
        return lab_submit_failed(b, ERR_IO, requests->log.path);
    json_t *plan = json_object_get(record, "intent");
    if (plan != NULL && !str_eq(lab_json_get(plan, "experimentId"), b->experiment)) {
        /* Its entries must not count as those of this one. */
        lab_problem_set(b->problem, LAB_INVALID_ARGUMENT,
                        "Request id is in use for another experiment");
    } else if (plan != NULL) {
        json_int_t cursor = json_integer_value(json_object_get(plan, "feedbackCursor"));
        take_ids(b, json_incref(json_object_get(plan, "entityIds")), (uint64_t)cursor, true);
    } else {
        b->response = json_incref(json_object_get(record, "response"));
    }
    json_decref(record);
    return b->problem->code;
}

static json_t *record_of(const struct submission *b)
{
    json_t *record = json_object();
    json_object_set_new(record, "schemaVersion", json_integer(1));
    json_object_set_new(record, "requestId", lab_json_text(b->request));
    json_object_set_new(record, "type", lab_json_text(b->type));
    return record;
}

static enum lab_code append_record(struct submission *b, json_t *record)
{
    json_object_set_new(record, "createdAt", lab_now());
    int err = lab_index_append(&b->store->requests, record);
    json_decref(record);
    return err == 0 ? LAB_FINE : lab_submit_failed(b, err, b->store->requests.log.path);
}

static enum lab_code write_intent(struct submission *b)
{
    uint64_t cursor;
    int err = lab_log_end(b->store->feedback, &cursor);
    if (err != 0)
        return lab_submit_failed(b, err, b->store->feedback);
    json_t *plan = json_object(), *record = record_of(b);
    json_object_set(plan, "entityIds", b->ids);
    json_object_set_new(plan, "feedbackCursor", json_integer((json_int_t)cursor));
    if (b->experiment.n > 0)
        json_object_set_new(plan, "experimentId", lab_json_text(b->experiment));
    json_object_set_new(record, "intent", plan);
    return append_record(b, record);
}

/* So many ids, those of an earlier try if it had as many. From then on it is known what will be
 * written. */
static enum lab_code choose_ids(struct submission *b, size_t n)
{
    if (b->ids != NULL && json_array_size(b->ids) == n)
        return LAB_FINE;
    json_t *ids = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(ids, lab_new_id(""));
    take_ids(b, ids, 0, false);
    return b->request.n > 0 ? write_intent(b) : LAB_FINE;
}

static struct str id_at(const struct submission *b, size_t i)
{
    const json_t *id = json_array_get(b->ids, i);
    return str_of(json_string_value(id), json_string_length(id));
}

/* Takes the entry over. One that readers would pass over must not be said to be stored. */
static enum lab_code put_entry(struct submission *b, struct buf *lines, json_t *entry)
{
    size_t before = lines->n;
    if (entry == NULL)
        return lab_problem_set(b->problem, LAB_INVALID_ARGUMENT, "Feedback is not valid");
    lab_json_put(lines, entry);
    json_decref(entry);
    if (!log_scan_takes(str_skip(buf_str(lines), before)))
        return lab_problem_set(b->problem, LAB_INVALID_ARGUMENT,
                               "Feedback is too large or nested too deep");
    buf_putc(lines, '\n');
    if (lines->n > LAB_SUBMIT_MAX)
        return lab_problem_set(b->problem, LAB_INVALID_ARGUMENT, "Submission is too large");
    return LAB_FINE;
}

static enum lab_code append_entries(struct submission *b, struct buf *lines)
{
    int err = lines->n > 0 ? lab_log_append(b->store->feedback, buf_str(lines)) : 0;
    return err == 0 ? LAB_FINE : lab_submit_failed(b, err, b->store->feedback);
}

static enum lab_code lab_submit_settle(struct submission *b, struct str entity)
{
    if (b->request.n == 0)
        return LAB_FINE;
    json_t *record = record_of(b);
    json_object_set_new(record, "entityId", lab_json_text(entity));
    json_object_set(record, "response", b->response);
    return append_record(b, record);
}

/* Runs under the lock; the response goes out when all went well. */
static enum lab_code lab_submit_locked(struct submission *b,
                                       enum lab_code (*run)(struct submission *b, void *),
                                       void *arg, json_t **response)
{
    int lock, err = lab_store_lock(b->store, &lock);
    if (err != 0)
        return lab_submit_failed(b, err, "The Lab's files are in use");
    if (find_earlier(b) == LAB_FINE && b->response == NULL)
        run(b, arg);
    lab_store_unlock(lock);
    if (b->problem->code == LAB_FINE)
        *response = json_incref(b->response);
    submission_deinit(b);
    return b->problem->code;
}

/* ---- feedback ---- */

static enum lab_code lab_submit_run_feedback(struct submission *b, void *arg)
{
    struct lab_said *said = arg;
    struct buf lines = {0};
    if (choose_ids(b, 1) != LAB_FINE)
        return b->problem->code;
    said->id = id_at(b, 0);
    if (b->n_found == 0 && put_entry(b, &lines, lab_entry_new(said)) == LAB_FINE)
        append_entries(b, &lines);
    buf_deinit(&lines);
    if (b->problem->code != LAB_FINE)
        return b->problem->code;
    b->response = json_object();
    json_object_set_new(b->response, "feedbackId", lab_json_text(said->id));
    return lab_submit_settle(b, said->id);
}

enum lab_code lab_submit_feedback(struct lab_store *s, const json_t *body, struct str request,
                                  json_t **response, struct lab_problem *p)
{
    struct submission b = {.store = s, .problem = p, .type = STR("feedback"), .request = request};
    struct lab_said said = {.session = str_of_cstr(s->session),
                            .run = lab_json_trimmed(body, "runId"),
                            .experiment = lab_json_trimmed(body, "experimentId"),
                            .variant = lab_json_trimmed(body, "variantId"),
                            .topic = lab_json_get(body, "topic"),
                            .ratings = json_object_get(body, "ratings"),
                            .notes = json_object_get(body, "notes"),
                            .tags = json_object_get(body, "tags"),
                            .answers = json_object_get(body, "answers"),
                            .keep_no_tags = true,
                            .roots = &s->roots};
    json_t *run = NULL;
    if (said.run.n > 0 && lab_store_run(s, said.run, &run, p) != LAB_FINE)
        return p->code;
    said.record = run;
    lab_submit_locked(&b, lab_submit_run_feedback, &said, response);
    json_decref(run);
    return p->code;
}

/* ---- experiments ---- */

/* Somebody else's submission may have got as far as its entries, and then no further. */
static int others_have_entries(struct submission *b)
{
    struct lab_index *requests = &b->store->requests;
    uint64_t group = lab_request_group(b->experiment);
    char room[SHA256_SIZE];
    struct str own = b->request.n > 0 ? lab_request_key(b->type, b->request, room) : STR_NONE;
    const struct lab_record *r;
    size_t at = 0;
    int n = lab_index_refresh(requests);
    while (n == 0 && (r = map_next(&requests->by_id, &at)) != NULL) {
        if (r->mark != LAB_REQUEST_INTENT || r->group != group ||
            str_eq(own, str_of(r->id, r->id_n)))
            continue;
        json_t *record = lab_index_read(requests, r), *plan = json_object_get(record, "intent");
        json_t *ids = json_object_get(plan, "entityIds");
        bool *found = mem_zalloc(json_array_size(ids) * sizeof *found + 1);
        json_int_t cursor = json_integer_value(json_object_get(plan, "feedbackCursor"));
        n = look_for(b->store, ids, (uint64_t)cursor, found);
        free(found);
        json_decref(record);
    }
    return n;
}

static enum lab_code check_open(struct submission *b, const json_t *experiment)
{
    if (b->n_found > 0)
        return LAB_FINE; /* it was we who submitted it */
    int others = lab_experiment_done(experiment) ? 1 : others_have_entries(b);
    if (others < 0)
        return lab_submit_failed(b, others, b->store->feedback);
    if (others == 0)
        return LAB_FINE;
    lab_problem_set(b->problem, LAB_INVALID_ARGUMENT, "Experiment already submitted");
    lab_problem_add(b->problem, "experimentId", b->experiment);
    lab_problem_fix(b->problem, "Create a new experiment for another rating pass.");
    return b->problem->code;
}

static enum lab_code put_decided(struct submission *b, struct buf *lines, size_t i,
                                 const struct lab_decision *d)
{
    struct lab_store *s = b->store;
    const struct lab_decided *one = &d->runs[i];
    json_t *run;
    if (lab_store_run(s, one->run, &run, b->problem) != LAB_FINE)
        return b->problem->code;
    json_t *entry =
        lab_entry_new(&(struct lab_said){.id = id_at(b, i),
                                         .session = str_of_cstr(s->session),
                                         .run = one->run,
                                         .experiment = b->experiment,
                                         .variant = one->variant,
                                         .ratings = json_object_get(one->said, "ratings"),
                                         .notes = json_object_get(one->said, "notes"),
                                         .tags = json_object_get(one->said, "tags"),
                                         .answers = d->answers,
                                         .record = run,
                                         .roots = &s->roots});
    json_decref(run);
    return put_entry(b, lines, entry);
}

static enum lab_code append_decided(struct submission *b, const struct lab_decision *d)
{
    struct buf lines = {0};
    for (size_t i = 0; i < d->n && b->problem->code == LAB_FINE; i++)
        if (!b->found[i])
            put_decided(b, &lines, i, d);
    if (b->problem->code == LAB_FINE)
        append_entries(b, &lines);
    buf_deinit(&lines);
    return b->problem->code;
}

static enum lab_code append_done(struct submission *b, const json_t *experiment,
                                 const struct lab_decision *d)
{
    if (lab_experiment_done(experiment))
        return LAB_FINE;
    json_t *record = lab_experiment_finish(experiment, d);
    int err = record != NULL ? lab_index_append(&b->store->experiments, record) : ERR_CORRUPT;
    json_decref(record);
    return err == 0 ? LAB_FINE : lab_submit_failed(b, err, b->store->experiments.log.path);
}

/* Leaves out the ids that no entry has. */
static void keep_found(struct submission *b)
{
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(b->ids); i++)
        if (b->found[i])
            json_array_append(kept, json_array_get(b->ids, i));
    json_decref(b->ids);
    b->ids = kept;
}

/* The experiment as it is now that nobody else can change it. */
static enum lab_code lab_submit_run_experiment(struct submission *b, void *arg)
{
    const json_t *body = arg;
    struct lab_decision *d = mem_zalloc(sizeof *d);
    json_t *experiment = NULL;
    bool good =
        lab_store_experiment(b->store, b->experiment, &experiment, b->problem) == LAB_FINE &&
        check_open(b, experiment) == LAB_FINE &&
        lab_experiment_decide(experiment, body, d, b->problem) == LAB_FINE;
    /* A try whose entries are there stands, whatever this one has to say. */
    bool stands = good && b->n_found > 0 && json_array_size(b->ids) != d->n;
    if (stands)
        keep_found(b);
    else if (good)
        good = choose_ids(b, d->n) == LAB_FINE && append_decided(b, d) == LAB_FINE;
    if (good && append_done(b, experiment, d) == LAB_FINE) {
        b->response = json_object();
        json_object_set_new(b->response, "experimentId", lab_json_text(b->experiment));
        json_object_set(b->response, "feedbackIds", b->ids);
        lab_submit_settle(b, b->experiment);
    }
    json_decref(experiment);
    free(d);
    return b->problem->code;
}

enum lab_code lab_submit_experiment(struct lab_store *s, struct str experiment, const json_t *body,
                                    struct str request, json_t **response, struct lab_problem *p)
{
    struct submission b = {.store = s,
                           .problem = p,
                           .type = STR("experiment_submit"),
                           .request = request,
                           .experiment = experiment};
    return lab_submit_locked(&b, lab_submit_run_experiment, (void *)(uintptr_t)body, response);
}
