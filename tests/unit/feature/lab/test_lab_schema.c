// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "feature/lab/lab_artifacts.h"
#include "feature/lab/lab_entry.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_path.h"
#include "feature/lab/lab_schema.h"

/* The line as it comes out again; NULL: it is invalid. The caller frees. */
static char *applied(const struct lab_schema *schema, const char *line)
{
    json_t *v = lab_schema_line(schema, str_of_cstr(line));
    struct buf out = {0};
    if (v == NULL)
        return NULL;
    lab_json_put(&out, v);
    buf_putc(&out, '\0');
    json_decref(v);
    return out.p;
}

static void assert_applied(const struct lab_schema *schema, const char *line, const char *expected)
{
    char *text = applied(schema, line);
    if (expected == NULL) {
        if (text != NULL)
            print_error("taken: %s\n", line);
        assert_null(text);
    } else {
        assert_non_null(text);
        assert_string_equal(text, expected);
    }
    free(text);
}

/* Each level would add two spaces to every line: a small text could become a huge file. */
static void what_is_nested_deep_is_not_indented_further(void **state)
{
    struct buf text = {0}, out = {0};
    for (int i = 0; i < 500; i++)
        buf_putc(&text, '[');
    for (int i = 0; i < 1000; i++)
        buf_put(&text, i > 0 ? STR(",1") : STR("1"));
    for (int i = 0; i < 500; i++)
        buf_putc(&text, ']');
    json_t *v = lab_json_load(buf_str(&text)), *flat = lab_json_load(STR("{\"a\":[1,{}]}"));
    lab_json_put_pretty(&out, v, 2);
    assert_in_range(out.n, text.n, text.n + 1000);
    json_t *again = lab_json_load(buf_str(&out));
    assert_true(json_equal(v, again));
    out.n = 0;
    lab_json_put_pretty(&out, flat, 2);
    buf_putc(&out, '\0');
    assert_string_equal(out.p, "{\n      \"a\": [\n        1,\n        {}\n      ]\n    }");
    json_decref(v);
    json_decref(flat);
    json_decref(again);
    buf_deinit(&text);
    buf_deinit(&out);
}

#define BASE  "\"id\":\"a\",\"createdAt\":\"2026-02-06T10:00:00.000Z\""
#define ENTRY "\"schemaVersion\":1," BASE

static void feedback_gets_its_order_and_its_version(void **state)
{
    const struct lab_schema *s = &lab_feedback_schema;
    assert_applied(s, "{" BASE "}", "{" ENTRY "}");
    assert_applied(
        s, "{\"extra\":{\"k\":[1,{}]},\"tags\":[],\"notes\":\"n\"," BASE ",\"sessionId\":\"s\"}",
        "{" ENTRY ",\"sessionId\":\"s\",\"notes\":\"n\",\"tags\":[],"
        "\"extra\":{\"k\":[1,{}]}}");
    assert_applied(s, "{" BASE ",\"schemaVersion\":2,\"ratings\":{\"sync\":0,\"overall\":1e2}}",
                   "{\"schemaVersion\":2," BASE ",\"ratings\":{\"overall\":100,\"sync\":0}}");
    assert_applied(
        s, "{" BASE ",\"autoMetricsSnapshot\":{\"meanDriftMs\":-0.5,\"syncRating\":null}}",
        "{" ENTRY ",\"autoMetricsSnapshot\":{\"syncRating\":null,\"meanDriftMs\":-0.5}}");
}

static void feedback_that_is_not_as_it_should_be_is_invalid(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{" BASE,
        "{" BASE "} x",
        "{" BASE ",\"more\":1}",
        "{" BASE ",\"schemaVersion\":0}",
        "{" BASE ",\"schemaVersion\":1.5}",
        "{" BASE ",\"schemaVersion\":null}",
        "{" BASE ",\"notes\":\"\"}",
        "{" BASE ",\"notes\":null}",
        "{" BASE ",\"tags\":\"x\"}",
        "{" BASE ",\"tags\":[\"x\",\"\"]}",
        "{" BASE ",\"tags\":[1]}",
        "{" BASE ",\"answers\":[]}",
        "{" BASE ",\"ratings\":{\"overall\":-1}}",
        "{" BASE ",\"ratings\":{\"overall\":\"5\"}}",
        "{" BASE ",\"ratings\":{\"overall\":null}}",
        "{" BASE ",\"ratings\":[]}",
        "{" BASE ",\"reports\":{\"other\":\"x\"}}",
        "{" BASE ",\"autoMetricsSnapshot\":{\"syncRating\":50.5}}",
        "{\"id\":\"a\"}",
        "{\"id\":1,\"createdAt\":\"2026-02-06T10:00:00Z\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-06\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-06T10:00:00\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-06T10:00:00z\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-06 10:00:00Z\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-06T10:00:00+00:00\"}",
        "{\"id\":\"a\",\"createdAt\":\"2026-02-31T10:00:00Z\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_applied(&lab_feedback_schema, bad[i], NULL);
}

#define EXPERIMENT                                                                                 \
    "\"experimentId\":\"e\",\"sessionId\":\"s\",\"createdAt\":\"2026-02-06T10:00:00Z\","           \
    "\"name\":\"n\",\"baselineRunId\":\"r\",\"variants\":["

static void experiments_have_parts_with_rules_of_their_own(void **state)
{
    const struct lab_schema *s = &lab_experiment_schema;
    assert_applied(s, "{" EXPERIMENT "]}",
                   "{\"schemaVersion\":1," EXPERIMENT "],\"status\":\"queued\"}");
    assert_applied(s,
                   "{" EXPERIMENT
                   "{\"runId\":\"x\",\"label\":\"B\",\"variantId\":\"v\"}],\"status\":\"done\","
                   "\"questions\":[{\"prompt\":\"p\",\"id\":\"q\"}]}",
                   "{\"schemaVersion\":1," EXPERIMENT
                   "{\"variantId\":\"v\",\"label\":\"B\",\"runId\":\"x\"}],\"status\":\"done\","
                   "\"questions\":[{\"id\":\"q\",\"prompt\":\"p\",\"type\":\"yes_no_unsure\"}]}");
    assert_applied(s, "{" EXPERIMENT "{}]}", NULL);
    assert_applied(s, "{" EXPERIMENT "],\"status\":\"over\"}", NULL);
    assert_applied(s, "{" EXPERIMENT "],\"status\":\"queued|done\"}", NULL);
    assert_applied(s, "{" EXPERIMENT "],\"winner\":{}}", NULL);
    assert_applied(
        s, "{" EXPERIMENT "],\"questions\":[{\"id\":\"q\",\"prompt\":\"p\",\"type\":\"x\"}]}",
        NULL);
}

static void records_of_requests_are_told_apart(void **state)
{
    static const char settled[] =
        "{\"schemaVersion\":1,\"requestId\":\"r\",\"type\":\"feedback\",\"response\":{},"
        "\"createdAt\":\"2026-02-06T10:00:00Z\"}";
    static const char intent[] =
        "{\"schemaVersion\":1,\"requestId\":\"r\",\"type\":\"experiment_submit\",\"intent\":"
        "{\"entityIds\":[\"a\",\"b\"],\"feedbackCursor\":7,\"experimentId\":\"e\"},"
        "\"createdAt\":\"2026-02-06T10:00:00Z\"}";
    assert_applied(&lab_settled_schema, settled, settled);
    assert_applied(&lab_intent_schema, intent, intent);
    assert_applied(&lab_settled_schema, intent, NULL);
    assert_applied(&lab_intent_schema, settled, NULL);
}

static void numbers_look_as_they_were_written(void **state)
{
    static const char *const same[] = {"0.1",
                                       "0.9",
                                       "-2.5",
                                       "1794760323789.0283",
                                       "12345678901234567",
                                       "1e+22",
                                       "[1,2.25,\"\\u0000\",null,true,false,{}]"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *v = lab_json_load(str_of_cstr(same[i]));
        struct buf out = {0};
        assert_non_null(v);
        lab_json_put(&out, v);
        buf_putc(&out, '\0');
        assert_string_equal(out.p, same[i]);
        buf_deinit(&out);
        json_decref(v);
    }
    /* Too large for an integer, and still a number. */
    json_t *large = lab_json_load(STR("{\"n\":123456789012345678901}"));
    assert_non_null(large);
    json_decref(large);
    assert_null(lab_json_load(STR("1e999")));
}

static void ratings_are_read_with_patience(void **state)
{
    json_t *sent =
        lab_json_load(STR("{\"overall\":\" 84.5 \",\"hook\":true,\"pacing\":-0.5,\"script\":100.4,"
                          "\"visuals\":100.5,\"motion\":\"\",\"captions\":null,\"sync\":\"1e1\","
                          "\"fun\":3}"));
    json_t *ratings = lab_ratings(sent);
    struct buf out = {0};
    lab_json_put(&out, ratings);
    buf_putc(&out, '\0');
    assert_string_equal(out.p,
                        "{\"overall\":85,\"hook\":1,\"pacing\":0,\"script\":100,\"sync\":10}");
    buf_deinit(&out);
    json_decref(ratings);
    json_decref(sent);
    static const char *const none[] = {"{}",
                                       "[]",
                                       "null",
                                       "3",
                                       "{\"overall\":\"x\"}",
                                       "{\"overall\":101}",
                                       "{\"overall\":-0.6}",
                                       "{\"overall\":{}}",
                                       "{\"overall\":[1]}",
                                       "{\"overall\":\"nan\"}",
                                       "{\"overall\":\"inf\"}",
                                       "{\"overall\":\" \"}"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        sent = lab_json_load(str_of_cstr(none[i]));
        assert_null(lab_ratings(sent));
        json_decref(sent);
    }
}

static void assert_resolved(const char *base, const char *path, const char *expected)
{
    char *got = lab_path_resolve(base, str_of_cstr(path));
    assert_string_equal(got, expected);
    free(got);
}

static void paths_are_resolved_by_their_letters(void **state)
{
    assert_resolved("/a/b", "", "/a/b");
    assert_resolved("/a/b", "c//d/./e/", "/a/b/c/d/e");
    assert_resolved("/a/b", "../c", "/a/c");
    assert_resolved("/a/b", "../../../..", "/");
    assert_resolved("/a/b", "/x/../y", "/y");
    assert_resolved("/", "x", "/x");
    assert_resolved("/a/b", "..", "/a");
    assert_resolved("/a/b", "...", "/a/b/...");
}

static void a_root_holds_what_lies_in_it(void **state)
{
    struct lab_roots r = {0};
    lab_roots_add(&r, "/", STR("/usr/lib"));
    lab_roots_add(&r, "/usr", STR("lib"));
    lab_roots_add(&r, "/", STR("/does/not/exist"));
    assert_int_equal(r.n, 2);
    assert_true(lab_roots_hold(&r, "/usr/lib"));
    assert_true(lab_roots_hold(&r, "/usr/lib/x"));
    assert_false(lab_roots_hold(&r, "/usr/libx"));
    assert_false(lab_roots_hold(&r, "/usr"));
    assert_false(lab_roots_hold(&r, "/does/not/exist/x"));
    r.own = "/some/run";
    assert_true(lab_roots_hold(&r, "/some/run/video.mp4"));
    assert_false(lab_roots_hold(&r, "/some/runs"));
    lab_roots_deinit(&r);
    lab_roots_add(&r, "/", STR("/"));
    assert_true(lab_roots_hold(&r, "/anything"));
    lab_roots_deinit(&r);
}

static void artifacts_have_known_names(void **state)
{
    static const char *const good[] = {"script.json", "caption-quality.json", "score-attempt1.json",
                                       "sync-report-attempt12.json"};
    static const char *const bad[] = {"",
                                      ".json",
                                      "script",
                                      "Script.json",
                                      "x.json",
                                      "script.json/",
                                      "../score.json",
                                      "score-attempt.json",
                                      "score-attempt-1.json",
                                      "score-attempt1x.json",
                                      "scores.json"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(lab_artifact_allowed(str_of_cstr(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(lab_artifact_allowed(str_of_cstr(bad[i])));
    assert_false(lab_artifact_allowed(str_of("script\0.json", 12)));
}

static bool same(const char *a, const char *b)
{
    json_t *l = a != NULL ? lab_json_load(str_of_cstr(a)) : NULL;
    json_t *r = b != NULL ? lab_json_load(str_of_cstr(b)) : NULL;
    bool result = lab_fingerprint_same(l, r);
    json_decref(l);
    json_decref(r);
    return result;
}

#define FILE_OF(path, size, ms) "{\"path\":\"" path "\",\"sizeBytes\":" size ",\"mtimeMs\":" ms "}"

static void fingerprints_are_compared_without_their_paths(void **state)
{
    assert_true(same(NULL, NULL));
    assert_true(same(NULL, "{}"));
    assert_true(same("{\"video\":" FILE_OF("a", "1", "2.5") "}",
                     "{\"video\":" FILE_OF("b", "1", "2.5") "}"));
    assert_true(
        same("{\"video\":" FILE_OF("a", "1", "2") "}", "{\"video\":" FILE_OF("a", "1", "2.0") "}"));
    assert_false(same("{\"video\":" FILE_OF("a", "1", "2.5") "}",
                      "{\"video\":" FILE_OF("a", "1", "2.25") "}"));
    assert_false(
        same("{\"video\":" FILE_OF("a", "1", "2") "}", "{\"video\":" FILE_OF("a", "2", "2") "}"));
    assert_false(
        same("{\"video\":" FILE_OF("a", "1", "2") "}", "{\"script\":" FILE_OF("a", "1", "2") "}"));
    assert_false(same("{\"video\":" FILE_OF("a", "1", "2") "}", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_nested_deep_is_not_indented_further),
        cmocka_unit_test(feedback_gets_its_order_and_its_version),
        cmocka_unit_test(feedback_that_is_not_as_it_should_be_is_invalid),
        cmocka_unit_test(experiments_have_parts_with_rules_of_their_own),
        cmocka_unit_test(records_of_requests_are_told_apart),
        cmocka_unit_test(numbers_look_as_they_were_written),
        cmocka_unit_test(ratings_are_read_with_patience),
        cmocka_unit_test(paths_are_resolved_by_their_letters),
        cmocka_unit_test(a_root_holds_what_lies_in_it),
        cmocka_unit_test(artifacts_have_known_names),
        cmocka_unit_test(fingerprints_are_compared_without_their_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
