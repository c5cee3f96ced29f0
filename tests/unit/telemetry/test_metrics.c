// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/utf8.h"
#include "telemetry/metrics.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t wait_bounds[] = {1000, 2500, 1000000, 30000000};
static const struct histogram_shape wait_shape = {wait_bounds, 4, 6};

static const struct metric_info resumes = {.name = "resumes", .help = "resumes asked for"};
static const struct metric_info open_streams = {.name = "open_streams", .help = "streams"};
static const struct metric_info wait_info = {
    .name = "wait_seconds", .help = "time to the first event", .shape = &wait_shape};
static const struct metric_info by_reason = {
    .name = "ends", .help = "ended", .labels = {"reason"}, .series_max = 3};
static const struct metric_info by_route = {
    .name = "requests", .help = "requests", .labels = {"method", "route"}, .series_max = 8};
static const struct metric_info wait_by_route = {.name = "route_wait_seconds",
                                                 .help = "by route",
                                                 .shape = &wait_shape,
                                                 .labels = {"route"},
                                                 .series_max = 4};

static int setup(void **state)
{
    struct metrics *m = malloc(sizeof *m);
    metrics_init(m);
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    metrics_deinit(*state);
    free(*state);
    return 0;
}

/* The whole text, NUL-terminated. */
static const char *printed(const struct metrics *m, struct buf *out)
{
    out->n = 0;
    metrics_put(m, out);
    buf_putc(out, '\0');
    return out->p;
}

static void check_text(const struct metrics *m, const char *expected)
{
    struct buf out = {0};
    assert_string_equal(printed(m, &out), expected);
    buf_deinit(&out);
}

/* ---- a strict reader of the format ---- */

struct reader {
    const char *p;
    char family[METRIC_NAME_MAX + 1], type[16];
    char seen[32][METRIC_NAME_MAX + 1]; /* families already over */
    size_t n_seen;
    /* of the histogram series under way */
    char series[1024];
    unsigned long long last_bucket;
    double last_le;
    bool saw_inf;
};

static void take(struct reader *r, const char *text)
{
    if (strncmp(r->p, text, strlen(text)) != 0)
        fail_msg("expected '%s' at '%.40s'", text, r->p);
    r->p += strlen(text);
}

static void take_name(struct reader *r, char *out, size_t size, const char *also)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    char allowed[80];
    assert_true(strchr(letters, *r->p) != NULL && *r->p != '\0');
    snprintf(allowed, sizeof allowed, "%s0123456789%s", letters, also);
    size_t n = strspn(r->p, allowed);
    assert_true(n < size);
    memcpy(out, r->p, n);
    out[n] = '\0';
    r->p += n;
}

static void take_head(struct reader *r)
{
    char again[METRIC_NAME_MAX + 1];
    take(r, "# HELP ");
    take_name(r, r->family, sizeof r->family, ":");
    for (size_t i = 0; i < r->n_seen; i++)
        assert_string_not_equal(r->seen[i], r->family);
    assert_true(r->n_seen < 32);
    strcpy(r->seen[r->n_seen++], r->family);
    take(r, " ");
    for (; *r->p != '\n'; r->p++)
        if (*r->p == '\\')
            assert_true(*++r->p == '\\' || *r->p == 'n');
    take(r, "\n# TYPE ");
    take_name(r, again, sizeof again, ":");
    assert_string_equal(again, r->family);
    take(r, " ");
    take_name(r, r->type, sizeof r->type, "");
    assert_true(strcmp(r->type, "counter") == 0 || strcmp(r->type, "gauge") == 0 ||
                strcmp(r->type, "histogram") == 0);
    take(r, "\n");
}

/* The label set without `le`, whose value is returned apart. */
static void take_labels(struct reader *r, char *labels, size_t size, char *le, size_t le_size)
{
    labels[0] = le[0] = '\0';
    if (*r->p != '{')
        return;
    do {
        char name[64];
        r->p++;
        const char *start = r->p;
        take_name(r, name, sizeof name, "");
        take(r, "=\"");
        const char *value = r->p;
        for (; *r->p != '"'; r->p++) {
            assert_true(*r->p != '\n' && *r->p != '\0');
            if (*r->p == '\\')
                assert_non_null(strchr("\\\"n", *++r->p));
        }
        assert_true(utf8_valid(str_of(value, (size_t)(r->p - value))));
        if (strcmp(name, "le") == 0)
            snprintf(le, le_size, "%.*s", (int)(r->p - value), value);
        else
            snprintf(labels + strlen(labels), size - strlen(labels), "%.*s;", (int)(r->p - start),
                     start);
        r->p++;
    } while (*r->p == ',');
    take(r, "}");
}

static void check_bucket(struct reader *r, const char *labels, const char *le,
                         unsigned long long value)
{
    char *end;
    assert_true(le[0] != '\0');
    double bound = strcmp(le, "+Inf") == 0 ? 1e300 : strtod(le, &end);
    if (strcmp(le, "+Inf") != 0)
        assert_int_equal(*end, '\0');
    if (strcmp(r->series, labels) != 0 || r->saw_inf) {
        snprintf(r->series, sizeof r->series, "%s", labels);
        r->last_bucket = 0;
        r->last_le = -1;
        r->saw_inf = false;
    }
    assert_true(bound > r->last_le);
    assert_true(value >= r->last_bucket);
    r->last_le = bound;
    r->last_bucket = value;
    r->saw_inf = strcmp(le, "+Inf") == 0;
}

static void take_sample(struct reader *r)
{
    char name[METRIC_NAME_MAX + 10], labels[1024], le[64], *end;
    take_name(r, name, sizeof name, ":");
    take_labels(r, labels, sizeof labels, le, sizeof le);
    take(r, " ");
    assert_true((*r->p >= '0' && *r->p <= '9') || *r->p == '-');
    unsigned long long whole = strtoull(r->p, NULL, 10);
    strtod(r->p, &end);
    r->p = end;
    take(r, "\n");
    size_t n = strlen(r->family);
    assert_int_equal(strncmp(name, r->family, n), 0);
    if (strcmp(r->type, "histogram") != 0) {
        assert_string_equal(name, r->family);
        assert_string_equal(le, "");
    } else if (strcmp(name + n, "_bucket") == 0) {
        check_bucket(r, labels, le, whole);
    } else if (strcmp(name + n, "_count") == 0) {
        assert_true(r->saw_inf);
        assert_string_equal(r->series, labels);
        assert_true(whole == r->last_bucket);
    } else {
        assert_string_equal(name + n, "_sum");
    }
}

static void check_format(const struct metrics *m)
{
    struct buf out = {0};
    struct reader r = {.p = printed(m, &out)};
    assert_int_equal(strlen(out.p), out.n - 1);
    while (*r.p != '\0') {
        take_head(&r);
        assert_true(*r.p != '#' && *r.p != '\0');
        while (*r.p != '#' && *r.p != '\0')
            take_sample(&r);
    }
    buf_deinit(&out);
}

/* ---- the tests ---- */

static void nothing_prints_as_nothing(void **state)
{
    struct metric_family *f;
    check_text(*state, "");
    assert_int_equal(metrics_add_family(*state, STR_NONE, &by_reason, METRIC_COUNTER, &f), 0);
    check_text(*state, "");
}

static void counters_and_gauges(void **state)
{
    struct counter c = {77};
    struct gauge g = {77};
    assert_int_equal(metrics_add_counter(*state, STR("tidemark"), &resumes, &c), 0);
    assert_int_equal(metrics_add_gauge(*state, STR("tidemark"), &open_streams, &g), 0);
    counter_inc(&c);
    counter_add(&c, 41);
    gauge_set(&g, 5);
    gauge_add(&g, -8);
    check_format(*state);
    check_text(*state, "# HELP tidemark_resumes_total resumes asked for\n"
                       "# TYPE tidemark_resumes_total counter\n"
                       "tidemark_resumes_total 42\n"
                       "# HELP tidemark_open_streams streams\n"
                       "# TYPE tidemark_open_streams gauge\n"
                       "tidemark_open_streams -3\n");
}

static void extreme_numbers_stay_whole(void **state)
{
    struct counter c;
    struct gauge g;
    assert_int_equal(metrics_add_counter(*state, STR_NONE, &resumes, &c), 0);
    assert_int_equal(metrics_add_gauge(*state, STR_NONE, &open_streams, &g), 0);
    c.n = UINT64_MAX;
    g.n = INT64_MIN;
    check_text(*state, "# HELP resumes_total resumes asked for\n"
                       "# TYPE resumes_total counter\n"
                       "resumes_total 18446744073709551615\n"
                       "# HELP open_streams streams\n"
                       "# TYPE open_streams gauge\n"
                       "open_streams -9223372036854775808\n");
}

static void a_histogram_adds_up(void **state)
{
    struct histogram h;
    assert_int_equal(metrics_add_histogram(*state, STR_NONE, &wait_info, &h), 0);
    static const uint64_t values[] = {0, 1000, 1001, 2500, 999999, 30000001, 90000000};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        histogram_observe(&h, values[i]);
    check_format(*state);
    check_text(*state, "# HELP wait_seconds time to the first event\n"
                       "# TYPE wait_seconds histogram\n"
                       "wait_seconds_bucket{le=\"0.001\"} 2\n"
                       "wait_seconds_bucket{le=\"0.0025\"} 4\n"
                       "wait_seconds_bucket{le=\"1\"} 5\n"
                       "wait_seconds_bucket{le=\"30\"} 5\n"
                       "wait_seconds_bucket{le=\"+Inf\"} 7\n"
                       "wait_seconds_sum 121.004501\n"
                       "wait_seconds_count 7\n");
}

static void labels_make_series(void **state)
{
    struct metric_family *f;
    assert_int_equal(metrics_add_family(*state, STR("t"), &by_route, METRIC_COUNTER, &f), 0);
    struct str get[] = {STR("GET"), STR("/v1")}, post[] = {STR("POST"), STR("/v1")};
    struct counter *a = metric_family_counter(f, get), *b = metric_family_counter(f, post);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(metric_family_counter(f, get), a);
    counter_inc(a);
    counter_add(b, 2);
    check_format(*state);
    check_text(*state, "# HELP t_requests_total requests\n"
                       "# TYPE t_requests_total counter\n"
                       "t_requests_total{method=\"GET\",route=\"/v1\"} 1\n"
                       "t_requests_total{method=\"POST\",route=\"/v1\"} 2\n");
}

static void a_family_with_labels_may_hold_any_type(void **state)
{
    static const struct metric_info gauges = {
        .name = "depth", .help = "h", .labels = {"queue"}, .series_max = 2};
    struct metric_family *f, *g;
    assert_int_equal(metrics_add_family(*state, STR_NONE, &wait_by_route, METRIC_HISTOGRAM, &f), 0);
    assert_int_equal(metrics_add_family(*state, STR_NONE, &gauges, METRIC_GAUGE, &g), 0);
    struct str a = STR("/a"), b = STR("/b");
    histogram_observe(metric_family_histogram(f, &a), 2000);
    histogram_observe(metric_family_histogram(f, &b), 40000000);
    histogram_observe(metric_family_histogram(f, &a), 500);
    gauge_set(metric_family_gauge(g, &a), -1);
    check_format(*state);
    struct buf out = {0};
    const char *text = printed(*state, &out);
    assert_non_null(strstr(text, "\nroute_wait_seconds_bucket{route=\"/a\",le=\"0.001\"} 1\n"));
    assert_non_null(strstr(text, "\nroute_wait_seconds_bucket{route=\"/b\",le=\"30\"} 0\n"));
    assert_non_null(strstr(text, "\nroute_wait_seconds_sum{route=\"/a\"} 0.0025\n"));
    assert_non_null(strstr(text, "\nroute_wait_seconds_count{route=\"/b\"} 1\n"));
    assert_non_null(strstr(text, "\ndepth{queue=\"/a\"} -1\n"));
    buf_deinit(&out);
}

static void series_beyond_the_limit_are_other(void **state)
{
    struct metric_family *f;
    assert_int_equal(metrics_add_family(*state, STR_NONE, &by_reason, METRIC_COUNTER, &f), 0);
    static const char *const reasons[] = {"a", "b", "c", "d", "e", "a"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        struct str value = str_of_cstr(reasons[i]);
        counter_inc(metric_family_counter(f, &value));
    }
    check_format(*state);
    check_text(*state, "# HELP ends_total ended\n"
                       "# TYPE ends_total counter\n"
                       "ends_total{reason=\"a\"} 2\n"
                       "ends_total{reason=\"b\"} 1\n"
                       "ends_total{reason=\"c\"} 1\n"
                       "ends_total{reason=\"other\"} 2\n");
}

/* Somebody's own `other` must not make a second line of that name. */
static void other_is_one_series(void **state)
{
    struct metric_family *f;
    assert_int_equal(metrics_add_family(*state, STR_NONE, &by_reason, METRIC_COUNTER, &f), 0);
    char lengthy[METRIC_VALUE_MAX + 1];
    memset(lengthy, 'x', sizeof lengthy);
    struct str other = STR("other"), too_long = str_of(lengthy, sizeof lengthy),
               not_text = STR("\xff"), torn = STR("\xe2\x82"), fits = str_of(lengthy, 128);
    struct counter *c = metric_family_counter(f, &other);
    assert_ptr_equal(metric_family_counter(f, &too_long), c);
    assert_ptr_equal(metric_family_counter(f, &not_text), c);
    assert_ptr_equal(metric_family_counter(f, &torn), c);
    assert_ptr_not_equal(metric_family_counter(f, &fits), c);
    check_format(*state);
}

static void values_are_escaped(void **state)
{
    static const struct metric_info odd = {
        .name = "odd", .help = "a \\ and a \"line\"\nbreak", .labels = {"a", "b"}, .series_max = 4};
    struct metric_family *f;
    assert_int_equal(metrics_add_family(*state, STR_NONE, &odd, METRIC_GAUGE, &f), 0);
    /* what would be the same text if it were not escaped */
    struct str one[] = {STR("x\",b=\"y"), STR("\\")}, two[] = {STR("x"), STR("\n\xc3\xb6")};
    gauge_set(metric_family_gauge(f, one), 1);
    gauge_set(metric_family_gauge(f, two), 2);
    check_format(*state);
    check_text(*state, "# HELP odd a \\\\ and a \"line\"\\nbreak\n"
                       "# TYPE odd gauge\n"
                       "odd{a=\"x\\\",b=\\\"y\",b=\"\\\\\"} 1\n"
                       "odd{a=\"x\",b=\"\\n\xc3\xb6\"} 2\n");
}

static void events_become_counters_of_their_name(void **state)
{
    static const struct {
        struct str prefix;
        const char *event, *name;
    } cases[] = {
        {STR_INIT("assist.sse"), "resume_issued", "assist_sse_resume_issued_total"},
        {STR_INIT("assist.sse."), "resume_attempt", "assist_sse_resume_attempt_total"},
        {STR_INIT(""), "assist.sse.snapshot_created", "assist_sse_snapshot_created_total"},
        {STR_INIT("x"), "seen_total", "x_seen_total"},
        {STR_INIT("job:a"), "b", "job:a_b_total"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metric_info info = {.name = cases[i].event, .help = "h"};
        struct counter c;
        char expected[200];
        struct metrics m;
        metrics_init(&m);
        assert_int_equal(metrics_add_counter(&m, cases[i].prefix, &info, &c), 0);
        snprintf(expected, sizeof expected, "# HELP %s h\n# TYPE %s counter\n%s 0\n", cases[i].name,
                 cases[i].name, cases[i].name);
        check_text(&m, expected);
        metrics_deinit(&m);
    }
}

static void bad_prefixes_are_refused(void **state)
{
    static const struct str prefixes[] = {
        STR_INIT("9lives"),   STR_INIT("a b"),  STR_INIT("a-b"), STR_INIT("a\n"),
        STR_INIT("\xc3\xa9"), STR_INIT("a\0b"), STR_INIT("{"),
    };
    struct counter c;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        assert_int_equal(metrics_add_counter(*state, prefixes[i], &resumes, &c), ERR_SYNTAX);
    char name[METRIC_NAME_MAX];
    memset(name, 'p', sizeof name);
    size_t fits = METRIC_NAME_MAX - strlen("_resumes_total");
    assert_int_equal(metrics_add_counter(*state, str_of(name, fits + 1), &resumes, &c), ERR_SYNTAX);
    check_text(*state, "");
    assert_int_equal(metrics_add_counter(*state, str_of(name, fits), &resumes, &c), 0);
    check_format(*state);
}

static void a_name_is_taken_once(void **state)
{
    static const struct metric_info names[] = {
        {.name = "wait_seconds", .help = "h"},
        {.name = "wait_seconds_sum", .help = "h"},
        {.name = "wait_seconds_bucket", .help = "h"},
        {.name = "wait_seconds_count", .help = "h"},
    };
    struct gauge g, other;
    struct histogram h;
    assert_int_equal(metrics_add_histogram(*state, STR_NONE, &wait_info, &h), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(metrics_add_gauge(*state, STR_NONE, &names[i], &g), ERR_EXISTS);
    /* the other way round, and what only looks similar */
    assert_int_equal(metrics_add_gauge(*state, STR("t"), &names[1], &g), 0);
    histogram_observe(&h, 1);
    assert_int_equal(metrics_add_histogram(*state, STR("t"), &wait_info, &h), ERR_EXISTS);
    assert_int_equal(h.sum, 1);
    assert_int_equal(metrics_add_gauge(*state, STR("t"), &names[0], &other), 0);
    check_format(*state);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nothing_prints_as_nothing),
        TEST(counters_and_gauges),
        TEST(extreme_numbers_stay_whole),
        TEST(a_histogram_adds_up),
        TEST(labels_make_series),
        TEST(a_family_with_labels_may_hold_any_type),
        TEST(series_beyond_the_limit_are_other),
        TEST(other_is_one_series),
        TEST(values_are_escaped),
        TEST(events_become_counters_of_their_name),
        TEST(bad_prefixes_are_refused),
        TEST(a_name_is_taken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
