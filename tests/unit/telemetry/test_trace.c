// SPDX-License-Identifier: Apache-2.0
#include "telemetry/trace.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* A table as a feature has one. */
#define TEST_TRACES(X)                                                                             \
    X(TEST_FULL, TRACE_WARN, "connection limit {} reached; new ones get 503")                      \
    X(TEST_FAILED, TRACE_WARN, "webhook of subscription {} failed: {}; next try in {} ms")
TRACE_TABLE_DEFINE(test_traces, TEST_TRACES);

struct fixture {
    struct trace t;
    char *text;
    size_t n, seen;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->t = (struct trace){.to = open_memstream(&f->text, &f->n), .level = TRACE_INFO};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fclose(f->t.to);
    free(f->text);
    free(f);
    return 0;
}

/* What came since the last call, without the time, which is checked to be one. */
static const char *sentence(struct fixture *f)
{
    int h, m, s, used = 0;
    assert_int_equal(sscanf(f->text + f->seen, "%2d:%2d:%2d %n", &h, &m, &s, &used), 3);
    assert_int_equal(used, 9);
    assert_in_range(h, 0, 23);
    assert_in_range(m, 0, 59);
    assert_in_range(s, 0, 60);
    const char *line = f->text + f->seen + used;
    f->seen = f->n;
    return line;
}

static void a_line_fills_its_sentence(void **state)
{
    struct fixture *f = *state;
    trace(&f->t, LISTEN_FAILED, TRACE_STR("address", STR("[::1]:80")),
          TRACE_STR("reason", STR("permission denied")));
    assert_string_equal(sentence(f), "error cannot listen on [::1]:80: permission denied\n");
}

static void a_table_has_its_rows_in_order(void **state)
{
    assert_ptr_equal(test_traces[0], &TRACE_KIND_TEST_FULL);
    assert_ptr_equal(test_traces[1], &TRACE_KIND_TEST_FAILED);
    assert_null(test_traces[2]);
    assert_string_equal(test_traces[1]->name, "TEST_FAILED");
    assert_int_equal(test_traces[1]->level, TRACE_WARN);
}

static void numbers_may_be_negative(void **state)
{
    struct fixture *f = *state;
    trace(&f->t, TEST_FULL, TRACE_INT("limit", -5));
    assert_string_equal(sentence(f), "warn  connection limit -5 reached; new ones get 503\n");
}

static void a_line_needs_no_fields(void **state)
{
    struct fixture *f = *state;
    trace(&f->t, STOPPED);
    assert_string_equal(sentence(f), "info  stopped\n");
}

static void missing_and_extra_fields_show(void **state)
{
    struct fixture *f = *state;
    trace(&f->t, LISTEN_FAILED, TRACE_STR("address", STR("a")));
    assert_string_equal(sentence(f), "error cannot listen on a: ?\n");
    trace(&f->t, STOPPED, TRACE_INT("after", 3), TRACE_STR("by", STR_NONE));
    assert_string_equal(sentence(f), "info  stopped after=3 by=\n");
}

static void lines_above_the_level_are_dropped(void **state)
{
    struct fixture *f = *state;
    trace(&f->t, BAD_REQUEST, TRACE_STR("reason", STR("x")));
    fflush(f->t.to);
    assert_int_equal(f->n, 0);
    f->t.level = TRACE_DEBUG;
    trace(&f->t, BAD_REQUEST, TRACE_STR("reason", STR("x")));
    assert_string_equal(sentence(f), "debug refused a request: x\n");
}

static void values_cannot_forge_lines(void **state)
{
    static const struct {
        struct str value;
        const char *shown;
    } cases[] = {
        {STR_INIT("a\n12:00:00 error all is lost"), "a\\n12:00:00 error all is lost"},
        {STR_INIT("a\r\tb\x7f"), "a\\x0d\\x09b\\x7f"},
        {STR_INIT("\x1b[2J"), "\\x1b[2J"},
        {STR_INIT("nul\0byte"), "nul\\x00byte"},
        {STR_INIT("back\\nslash"), "back\\\\nslash"},
        {STR_INIT("K\xc3\xb6ln \xf0\x9f\x8c\x8a"), "K\xc3\xb6ln \xf0\x9f\x8c\x8a"},
        {STR_INIT("c1 \xc2\x85"), "c1 \\xc2\\x85"},
        {STR_INIT("turn \xe2\x80\xae"), "turn \\xe2\\x80\\xae"},
        {STR_INIT("overlong \xc0\x8a"), "overlong \\xc0\\x8a"},
        {STR_INIT("surrogate \xed\xa0\x80"), "surrogate \\xed\\xa0\\x80"},
        {STR_INIT("torn \xe2\x82"), "torn \\xe2\\x82"},
        {STR_INIT("\xff\x80"), "\\xff\\x80"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[200];
        snprintf(expected, sizeof expected, "warn  accept failed: %s\n", cases[i].shown);
        trace(&f->t, ACCEPT_FAILED, TRACE_STR("reason", cases[i].value));
        assert_string_equal(sentence(f), expected);
    }
}

static void long_values_are_cut_between_characters(void **state)
{
    struct fixture *f = *state;
    char value[4000];
    memset(value, 'x', sizeof value);
    memcpy(value + TRACE_VALUE_MAX - 1, "\xc3\xb6", 2);
    trace(&f->t, ACCEPT_FAILED, TRACE_STR("reason", str_of(value, sizeof value)));
    const char *line = sentence(f);
    size_t head = strlen("warn  accept failed: ");
    assert_int_equal(strlen(line), head + TRACE_VALUE_MAX - 1 + 4);
    assert_string_equal(line + strlen(line) - 5, "x...\n");
}

static json_t *parsed(struct fixture *f)
{
    json_error_t error;
    assert_int_equal(f->text[f->n - 1], '\n');
    assert_null(memchr(f->text, '\n', f->n - 1));
    json_t *line = json_loads(f->text, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(line);
    return line;
}

static const char *member(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static void json_lines_hold_sentence_and_fields(void **state)
{
    struct fixture *f = *state;
    f->t.json = true;
    trace(&f->t, TEST_FAILED, TRACE_STR("subscription", STR("s\n\"1\"")),
          TRACE_STR("reason", STR("no")), TRACE_INT("retry_ms", 250));
    json_t *line = parsed(f);
    assert_string_equal(member(line, "level"), "warn");
    assert_string_equal(member(line, "kind"), "test_failed");
    assert_string_equal(member(line, "message"),
                        "webhook of subscription s\n\"1\" failed: no; next try in 250 ms");
    assert_string_equal(member(line, "subscription"), "s\n\"1\"");
    assert_int_equal(json_integer_value(json_object_get(line, "retry_ms")), 250);
    struct tm when;
    assert_non_null(strptime(member(line, "time"), "%Y-%m-%dT%H:%M:%S.", &when));
    json_decref(line);
}

static void json_lines_stay_valid_whatever_is_traced(void **state)
{
    struct fixture *f = *state;
    f->t.json = true;
    char value[2 * TRACE_VALUE_MAX];
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (char)(i * 7);
    trace(&f->t, ACCEPT_FAILED, TRACE_STR("reason", str_of(value, sizeof value)));
    json_error_t error;
    json_t *line = json_loads(f->text, JSON_ALLOW_NUL, &error);
    assert_non_null(line);
    assert_null(memchr(f->text, '\n', f->n - 1));
    json_decref(line);
}

/* Two processes may share standard error: a line that is one write stays whole. */
static void a_line_is_one_write(void **state)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    FILE *to = fdopen(fds[0], "w");
    setvbuf(to, NULL, _IONBF, 0); /* as stderr is */
    struct trace t = {.to = to, .level = TRACE_INFO};
    char value[500], got[8192];
    memset(value, '\x01', sizeof value);
    for (int json = 0; json < 2; json++) {
        t.json = json == 1;
        trace(&t, STOPPED);
        trace(&t, ACCEPT_FAILED, TRACE_STR("reason", str_of(value, sizeof value)));
        for (int i = 0; i < 2; i++) {
            ssize_t n = recv(fds[1], got, sizeof got, MSG_DONTWAIT);
            assert_true(n > 0);
            assert_ptr_equal(memchr(got, '\n', (size_t)n), got + n - 1);
        }
    }
    fclose(to);
    close(fds[1]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_line_fills_its_sentence),
        TEST(a_table_has_its_rows_in_order),
        TEST(numbers_may_be_negative),
        TEST(a_line_needs_no_fields),
        TEST(missing_and_extra_fields_show),
        TEST(lines_above_the_level_are_dropped),
        TEST(values_cannot_forge_lines),
        TEST(long_values_are_cut_between_characters),
        TEST(json_lines_hold_sentence_and_fields),
        TEST(json_lines_stay_valid_whatever_is_traced),
        TEST(a_line_is_one_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
