// SPDX-License-Identifier: Apache-2.0
/* What a Lab that died in the middle of a submission leaves, and what the next one makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "feature/lab/lab_experiment.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_submit.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

struct bench {
    char top[64], root[128], feedback[128], work[128];
    struct lab_store *store;
};

static void open_store(struct bench *b)
{
    char why[256];
    struct lab_roots roots = {0};
    lab_roots_add(&roots, "/", str_of_cstr(b->work));
    b->store = lab_store_open(
        &(struct lab_store_setup){
            .root = b->root, .feedback = b->feedback, .folder = b->work, .roots = roots},
        why, sizeof why);
    assert_non_null(b->store);
}

/* As a restart does. */
static void reopen(struct bench *b)
{
    lab_store_close(b->store);
    open_store(b);
}

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    strcpy(b->top, "/tmp/tidemark-lab-XXXXXX");
    assert_non_null(mkdtemp(b->top));
    snprintf(b->root, sizeof b->root, "%s/lab", b->top);
    snprintf(b->feedback, sizeof b->feedback, "%s/feedback/feedback.jsonl", b->top);
    snprintf(b->work, sizeof b->work, "%s/work", b->top);
    assert_int_equal(mkdir(b->work, 0700), 0);
    open_store(b);
    *state = b;
    return 0;
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int teardown(void **state)
{
    struct bench *b = *state;
    lab_store_close(b->store);
    nftw(b->top, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
    free(b);
    return 0;
}

/* ---- files ---- */

static void append_text(const char *path, const char *text)
{
    FILE *to = fopen(path, "a");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static size_t count_lines_with(const char *path, const char *text)
{
    FILE *from = fopen(path, "r");
    char *line = NULL;
    size_t n = 0, size = 0;
    while (from != NULL && getline(&line, &size, from) > 0)
        n += strstr(line, text) != NULL;
    if (from != NULL)
        fclose(from);
    free(line);
    return n;
}

static long size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

static void add_intent(struct bench *b, const char *type, const char *request, const char *ids,
                       long cursor, const char *experiment)
{
    char line[1024];
    snprintf(
        line, sizeof line,
        "{\"schemaVersion\":1,\"requestId\":\"%s\",\"type\":\"%s\",\"intent\":{\"entityIds\":[%s],"
        "\"feedbackCursor\":%ld%s%s%s},\"createdAt\":\"2026-02-06T10:00:00Z\"}\n",
        request, type, ids, cursor, experiment ? ",\"experimentId\":\"" : "",
        experiment ? experiment : "", experiment ? "\"" : "");
    assert_int_equal(log_append_now(b->store->requests.log.path, str_of_cstr(line), NULL), 0);
}

static void add_entry(struct bench *b, const char *id)
{
    char line[256];
    snprintf(line, sizeof line,
             "{\"schemaVersion\":1,\"id\":\"%s\",\"createdAt\":\"2026-02-06T10:00:00Z\"}\n", id);
    assert_int_equal(log_append_now(b->feedback, str_of_cstr(line), NULL), 0);
}

/* ---- submissions ---- */

/* The id that it is answered with; the caller frees. */
static char *submit(struct bench *b, const char *request)
{
    json_t *body = lab_json_load(STR("{\"notes\":\"n\"}")), *response = NULL;
    struct lab_problem p = {0};
    assert_int_equal(lab_submit_feedback(b->store, body, str_of_cstr(request), &response, &p),
                     LAB_FINE);
    char *id = strdup(json_string_value(json_object_get(response, "feedbackId")));
    json_decref(response);
    json_decref(body);
    return id;
}

static void assert_answered(struct bench *b, const char *request, const char *id, size_t entries)
{
    for (int i = 0; i < 2; i++) {
        char *got = submit(b, request);
        assert_string_equal(got, id);
        free(got);
        reopen(b);
    }
    assert_int_equal(count_lines_with(b->feedback, id), entries);
}

static void an_intent_alone_is_carried_out(void **state)
{
    struct bench *b = *state;
    add_intent(b, "feedback", "r", "\"chosen\"", 0, NULL);
    reopen(b);
    assert_answered(b, "r", "chosen", 1);
    assert_int_equal(count_lines_with(b->store->requests.log.path, "\"entityId\":\"chosen\""), 1);
}

static void an_intent_whose_entry_is_there_is_answered(void **state)
{
    struct bench *b = *state;
    add_entry(b, "before");
    add_intent(b, "feedback", "r", "\"chosen\"", size_of(b->feedback), NULL);
    add_entry(b, "chosen");
    add_entry(b, "behind");
    reopen(b);
    assert_answered(b, "r", "chosen", 1);
}

static void an_entry_that_was_torn_is_written_again(void **state)
{
    struct bench *b = *state;
    add_entry(b, "before");
    add_intent(b, "feedback", "r", "\"chosen\"", size_of(b->feedback), NULL);
    append_text(b->feedback, "{\"schemaVersion\":1,\"id\":\"chosen\",\"crea");
    reopen(b);
    assert_answered(b, "r", "chosen", 2); /* the torn one is no entry */
    assert_int_equal(count_lines_with(b->feedback, "\"notes\":\"n\""), 1);
}

static void a_cursor_that_is_none_any_more_makes_it_look_everywhere(void **state)
{
    struct bench *b = *state;
    add_entry(b, "chosen");
    add_intent(b, "feedback", "ahead", "\"chosen\"", 100000, NULL);
    add_intent(b, "feedback", "within", "\"chosen\"", 3, NULL);
    reopen(b);
    assert_answered(b, "ahead", "chosen", 1);
    assert_answered(b, "within", "chosen", 1);
}

static void the_cursor_of_an_intent_is_behind_a_line_though_the_file_ends_within_one(void **state)
{
    struct bench *b = *state;
    uint64_t cursor;
    add_entry(b, "before");
    long whole = size_of(b->feedback);
    append_text(b->feedback, "{\"torn");
    assert_int_equal(lab_log_end(b->feedback, &cursor), 0);
    assert_int_equal(cursor, whole);
    char *id = submit(b, "r");
    assert_answered(b, "r", id, 1);
    free(id);
    assert_int_equal(lab_log_end("/does/not/exist", &cursor), 0);
    assert_int_equal(cursor, 0);
}

static void the_end_is_found_behind_a_long_line_without_one(void **state)
{
    struct bench *b = *state;
    uint64_t cursor;
    add_entry(b, "before");
    long whole = size_of(b->feedback);
    for (int i = 0; i < 3000; i++)
        append_text(b->feedback,
                    "0123456789012345678901234567890123456789012345678901234567890123");
    assert_int_equal(lab_log_end(b->feedback, &cursor), 0);
    assert_int_equal(cursor, whole);
}

static void kinds_of_submissions_do_not_share_their_ids(void **state)
{
    struct bench *b = *state;
    add_intent(b, "experiment_submit", "r", "\"theirs\"", 0, "exp");
    reopen(b);
    char *id = submit(b, "r");
    assert_string_not_equal(id, "theirs");
    free(id);
}

static enum lab_code submit_body(struct bench *b, const json_t *body, const char *request)
{
    struct lab_problem p = {0};
    json_t *response = NULL;
    enum lab_code code = lab_submit_feedback(b->store, body, str_of_cstr(request), &response, &p);
    json_decref(response);
    lab_problem_deinit(&p);
    return code;
}

/* A failing disk, say: whoever takes it for a request that was never made stores it again. */
static void a_record_that_cannot_be_read_stores_nothing_again(void **state)
{
    struct bench *b = *state;
    const char *path = b->store->requests.log.path;
    json_t *body = lab_json_load(STR("{\"notes\":\"n\"}"));
    free(submit(b, "r"));
    long size = size_of(path);
    FILE *to = fopen(path, "r+");
    assert_non_null(to);
    fseek(to, size - 3, SEEK_SET); /* of the answer, the last line */
    fputs("??", to);
    fclose(to);
    assert_int_equal(submit_body(b, body, "r"), LAB_INTERNAL);
    assert_int_equal(count_lines_with(b->feedback, "\"notes\":\"n\""), 1);
    json_decref(body);
}

/* What readers of the log pass over would be lost, though its id was given. */
static void an_entry_that_nobody_could_read_is_refused(void **state)
{
    struct bench *b = *state;
    json_t *deep = json_object(), *body = json_object();
    for (int i = 0; i < 600; i++)
        deep = json_pack("{s:o}", "a", deep);
    json_object_set_new(body, "answers", deep);
    assert_int_equal(submit_body(b, body, "deep"), LAB_INVALID_ARGUMENT);
    char *long_text = malloc(LOG_LINE_MAX);
    memset(long_text, 'n', LOG_LINE_MAX);
    json_object_clear(body);
    json_object_set_new(body, "notes", json_stringn(long_text, LOG_LINE_MAX));
    assert_int_equal(submit_body(b, body, "long"), LAB_INVALID_ARGUMENT);
    free(long_text);
    json_decref(body);
    assert_int_equal(size_of(b->feedback), 0);
}

/* ---- experiments ---- */

static json_t *import_run(struct bench *b, const char *name)
{
    char folder[192], video[256];
    struct lab_problem p = {0};
    json_t *id = NULL;
    snprintf(folder, sizeof folder, "%s/%s", b->work, name);
    snprintf(video, sizeof video, "%s/video.mp4", folder);
    mkdir(folder, 0700);
    append_text(video, name);
    assert_int_equal(lab_store_import(b->store, str_of_cstr(folder), &id, &p), LAB_FINE);
    return id;
}

/* Two runs, and what is said of them; *body is the caller's, and so is the id. */
static char *make_experiment(struct bench *b, json_t **body)
{
    json_t *first = import_run(b, "one"), *second = import_run(b, "two"), *id = NULL;
    struct lab_problem p = {0};
    json_t *wanted =
        json_pack("{s:O,s:[{s:O}]}", "baselineRunId", first, "variants", "runId", second);
    assert_int_equal(lab_experiment_create(b->store, wanted, &id, &p), LAB_FINE);
    *body = json_pack("{s:[{s:o},{s:o}]}", "perRun", "runId", first, "runId", second);
    char *text = strdup(json_string_value(id));
    json_decref(id);
    json_decref(wanted);
    return text;
}

static enum lab_code decide(struct bench *b, const char *experiment, const json_t *body,
                            const char *request, json_t **response)
{
    struct lab_problem p = {0};
    lab_submit_experiment(b->store, str_of_cstr(experiment), body, str_of_cstr(request), response,
                          &p);
    enum lab_code code = p.code;
    lab_problem_deinit(&p);
    return code;
}

static void assert_decided(struct bench *b, const char *experiment, const json_t *body,
                           const char *request, const char *first, const char *second)
{
    json_t *response = NULL;
    assert_int_equal(decide(b, experiment, body, request, &response), LAB_FINE);
    const json_t *ids = json_object_get(response, "feedbackIds");
    assert_int_equal(json_array_size(ids), 2);
    assert_string_equal(json_string_value(json_array_get(ids, 0)), first);
    assert_string_equal(json_string_value(json_array_get(ids, 1)), second);
    json_decref(response);
    assert_int_equal(count_lines_with(b->feedback, first), 1);
    assert_int_equal(count_lines_with(b->feedback, second), 1);
    assert_int_equal(count_lines_with(b->store->experiments.log.path, "\"status\":\"done\""), 1);
}

static void a_decision_goes_on_where_it_was(void **state)
{
    struct bench *b = *state;
    json_t *body;
    char *experiment = make_experiment(b, &body);
    add_intent(b, "experiment_submit", "r", "\"first\",\"second\"", 0, experiment);
    add_entry(b, "first"); /* of two, the first was written */
    reopen(b);
    assert_decided(b, experiment, body, "r", "first", "second");
    reopen(b);
    assert_decided(b, experiment, body, "r", "first", "second");
    json_decref(body);
    free(experiment);
}

static void a_decision_whose_answer_alone_is_missing_is_answered(void **state)
{
    struct bench *b = *state;
    json_t *body, *experiment_now = NULL;
    struct lab_problem p = {0};
    struct lab_decision *d = calloc(1, sizeof *d);
    char *experiment = make_experiment(b, &body);
    add_intent(b, "experiment_submit", "r", "\"first\",\"second\"", 0, experiment);
    add_entry(b, "first");
    add_entry(b, "second");
    lab_store_experiment(b->store, str_of_cstr(experiment), &experiment_now, &p);
    assert_int_equal(lab_experiment_decide(experiment_now, body, d, &p), LAB_FINE);
    json_t *done = lab_experiment_finish(experiment_now, d);
    assert_int_equal(lab_index_append(&b->store->experiments, done), 0);
    json_decref(done);
    json_decref(experiment_now);
    free(d);
    reopen(b);
    assert_decided(b, experiment, body, "r", "first", "second");
    json_decref(body);
    free(experiment);
}

static void an_id_of_another_experiment_decides_nothing(void **state)
{
    struct bench *b = *state;
    json_t *body, *response = NULL;
    char *experiment = make_experiment(b, &body);
    add_intent(b, "experiment_submit", "r", "\"first\",\"second\"", 0, "exp_other");
    add_entry(b, "first");
    add_entry(b, "second");
    reopen(b);
    assert_int_equal(decide(b, experiment, body, "r", &response), LAB_INVALID_ARGUMENT);
    assert_int_equal(count_lines_with(b->store->experiments.log.path, "\"status\":\"done\""), 0);
    json_decref(body);
    free(experiment);
}

static void of_two_decisions_the_one_with_entries_stands(void **state)
{
    struct bench *b = *state;
    json_t *body, *response = NULL;
    char *experiment = make_experiment(b, &body);
    add_intent(b, "experiment_submit", "mine", "\"first\",\"second\"", 0, experiment);
    add_entry(b, "first");
    reopen(b);
    assert_int_equal(decide(b, experiment, body, "other", &response), LAB_INVALID_ARGUMENT);
    assert_int_equal(decide(b, experiment, body, "", &response), LAB_INVALID_ARGUMENT);
    assert_decided(b, experiment, body, "mine", "first", "second");
    json_decref(body);
    free(experiment);
}

static void a_decision_that_left_nothing_gives_way(void **state)
{
    struct bench *b = *state;
    json_t *body, *response = NULL;
    char *experiment = make_experiment(b, &body);
    add_intent(b, "experiment_submit", "dead", "\"first\",\"second\"", 0, experiment);
    reopen(b);
    assert_int_equal(decide(b, experiment, body, "other", &response), LAB_FINE);
    json_decref(response);
    assert_int_equal(decide(b, experiment, body, "dead", &response), LAB_INVALID_ARGUMENT);
    assert_int_equal(count_lines_with(b->feedback, "\"id\""), 2);
    json_decref(body);
    free(experiment);
}

/* ---- the index ---- */

static void a_file_that_was_replaced_is_read_anew(void **state)
{
    struct bench *b = *state;
    json_t *id = import_run(b, "one"), *run = NULL;
    struct lab_problem p = {0};
    struct str text = str_of(json_string_value(id), json_string_length(id));
    assert_int_equal(lab_store_run(b->store, text, &run, &p), LAB_FINE);
    json_decref(run);
    assert_int_equal(unlink(b->store->runs.log.path), 0);
    assert_int_equal(lab_store_run(b->store, text, &run, &p), LAB_NOT_FOUND);
    append_text(b->store->runs.log.path,
                "{\"runId\":\"theirs\",\"sessionId\":\"s\",\"createdAt\":\"2026-02-06T10:00:00Z\","
                "\"artifactsDir\":\"/x\",\"artifactsDirRealpath\":\"/x\"}\n");
    lab_problem_deinit(&p);
    assert_int_equal(lab_store_run(b->store, STR("theirs"), &run, &p), LAB_FINE);
    json_decref(run);
    json_decref(id);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_intent_alone_is_carried_out),
        TEST(an_intent_whose_entry_is_there_is_answered),
        TEST(an_entry_that_was_torn_is_written_again),
        TEST(a_cursor_that_is_none_any_more_makes_it_look_everywhere),
        TEST(the_cursor_of_an_intent_is_behind_a_line_though_the_file_ends_within_one),
        TEST(the_end_is_found_behind_a_long_line_without_one),
        TEST(kinds_of_submissions_do_not_share_their_ids),
        TEST(a_record_that_cannot_be_read_stores_nothing_again),
        TEST(an_entry_that_nobody_could_read_is_refused),
        TEST(a_decision_goes_on_where_it_was),
        TEST(a_decision_whose_answer_alone_is_missing_is_answered),
        TEST(an_id_of_another_experiment_decides_nothing),
        TEST(of_two_decisions_the_one_with_entries_stands),
        TEST(a_decision_that_left_nothing_gives_way),
        TEST(a_file_that_was_replaced_is_read_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
