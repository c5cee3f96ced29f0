// SPDX-License-Identifier: Apache-2.0
#include "config.h"
#include "base/err.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

struct fixture {
    struct config c;
    struct trace t;
    char why[512];
    char path[32]; /* of the configuration file */
    char *said;    /* what was traced */
    size_t n_said;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->path, "/tmp/test_config.XXXXXX");
    close(mkstemp(f->path));
    f->t.to = open_memstream(&f->said, &f->n_said);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    config_deinit(&f->c);
    unlink(f->path);
    fclose(f->t.to);
    free(f->said);
    free(f);
    return 0;
}

static int load(struct fixture *f, const char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return config_load(&f->c, argc, (char **)argv, &f->t, f->why, sizeof f->why);
}
#define LOAD(f, ...) load((f), (const char *[]){__VA_ARGS__, NULL})

static int load_file(struct fixture *f, struct str text)
{
    FILE *to = fopen(f->path, "w");
    fwrite(text.p, 1, text.n, to);
    fclose(to);
    return LOAD(f, "--config", f->path);
}

/* The file is refused, with this behind "<path>:". */
static void assert_refused(struct fixture *f, struct str text, const char *expected)
{
    assert_int_equal(load_file(f, text), ERR_SYNTAX);
    size_t n = strlen(f->path);
    assert_memory_equal(f->why, f->path, n);
    assert_string_equal(f->why + n + 1, expected);
}

static void defaults_are_these(void **state)
{
    struct fixture *f = *state;
    const char *none[] = {NULL};
    assert_int_equal(load(f, none), 0);
    const struct config *c = &f->c;
    assert_null(c->file);
    assert_int_equal(c->listen.n, 1);
    assert_string_equal(c->listen.items[0], "127.0.0.1:4437");
    assert_string_equal(c->data, "./tidemark-data");
    assert_string_equal(c->store, "memory");
    assert_int_equal(c->retain_events, 0);
    assert_int_equal(c->retain_bytes, 0);
    assert_int_equal(c->retain_age_ms, 0);
    assert_null(c->public_url);
    assert_int_equal(c->max_connections, 10000);
    assert_int_equal(c->max_append_bytes, 64 << 20);
    assert_int_equal(c->max_inflight_bytes, 256 << 20);
    assert_int_equal(c->read_chunk_bytes, 1 << 20);
    assert_int_equal(c->head_timeout_ms, 10000);
    assert_int_equal(c->idle_timeout_ms, 60000);
    assert_int_equal(c->body_timeout_ms, 10000);
    assert_int_equal(c->body_rate_min, 1024);
    assert_int_equal(c->write_timeout_ms, 60000);
    assert_int_equal(c->drain_timeout_ms, 10000);
    assert_int_equal(c->long_poll_timeout_ms, 4000);
    assert_int_equal(c->heartbeat_ms, 10000);
    assert_int_equal(c->sse_lifetime_ms, 60000);
    assert_false(c->allow_private_targets);
    assert_true(c->allow_loopback_targets);
    assert_false(f->t.json);
    assert_int_equal(f->t.level, TRACE_INFO);
}

static void a_file_is_read(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("# where\n"
                          "listen = 127.0.0.1:1\r\n"
                          "listen=unix:/tmp/x ; a comment\n"
                          "\n"
                          "data = /srv\n"
                          "  store = memory\n"
                          "heartbeat = 0\n"
                          "allow-private-targets = yes\n"
                          "trace = json\n"
                          "trace-level = debug");
    assert_int_equal(load_file(f, text), 0);
    assert_string_equal(f->c.file, f->path);
    assert_int_equal(f->c.listen.n, 2);
    assert_string_equal(f->c.listen.items[0], "127.0.0.1:1");
    assert_string_equal(f->c.listen.items[1], "unix:/tmp/x");
    assert_string_equal(f->c.data, "/srv");
    assert_int_equal(f->c.heartbeat_ms, 0);
    assert_true(f->c.allow_private_targets);
    assert_true(f->t.json);
    assert_int_equal(f->t.level, TRACE_DEBUG);
}

static void flags_win_over_variables_over_the_file(void **state)
{
    struct fixture *f = *state;
    FILE *to = fopen(f->path, "w");
    fputs("data = file\nlisten = 127.0.0.1:1\nidle-timeout = 1s\n", to);
    fclose(to);
    setenv("TIDEMARK_CONFIG", f->path, 1);
    setenv("TIDEMARK_LISTEN", "127.0.0.1:2,127.0.0.1:3", 1);
    setenv("TIDEMARK_DATA", "variable", 1);
    int err = LOAD(f, "--data", "flag");
    unsetenv("TIDEMARK_CONFIG");
    unsetenv("TIDEMARK_LISTEN");
    unsetenv("TIDEMARK_DATA");
    assert_int_equal(err, 0);
    assert_string_equal(f->c.data, "flag");
    assert_int_equal(f->c.listen.n, 2);
    assert_string_equal(f->c.listen.items[0], "127.0.0.1:2");
    assert_int_equal(f->c.idle_timeout_ms, 1000);
}

static void errors_in_a_file_name_file_and_line(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("data = x\nlisten-to = y\n"),
                   "2: unknown setting listen-to; did you mean listen?");
    assert_refused(f, STR("\n\nheartbeet = 1s"),
                   "3: unknown setting heartbeet; did you mean heartbeat?");
    assert_refused(f, STR("config = other\n"), "1: unknown setting config");
    assert_refused(f, STR("heartbeat = 1x\n"),
                   "1: heartbeat: expected 0 or a duration between 100ms and 1h, got '1x'");
    assert_refused(f, STR("data = x\njust words\n"), "2: expected `name = value`");
    assert_refused(f, STR("data =\n"), "1: data: expected DIR, got ''");
}

static void sections_are_refused(void **state)
{
    static const char *const why = "2: unknown section; settings stand outside of any section";
    struct fixture *f = *state;
    assert_refused(f, STR("\n[server]\ndata = x\n"), why);
    assert_refused(f, STR("data = x\n  [empty]\n"), why);
    assert_refused(f, STR("data = x\n[open\n"), why);
}

static void broken_lines_are_refused(void **state)
{
    static const char *const why = "1: the line is too long or holds a NUL byte";
    struct fixture *f = *state;
    char text[1000];
    memset(text, 'x', sizeof text);
    memcpy(text, "data = ", 7);
    assert_refused(f, str_of(text, sizeof text), why);
    assert_refused(f, STR("data = a\0b\nstore = memory\n"), why);
    /* One that just fits inih's buffer is whole, if no end of line follows. */
    for (size_t n = 190; n < 200; n++) {
        assert_int_equal(load_file(f, str_of(text, n)), 0);
        assert_int_equal(strlen(f->c.data), n - 7);
        config_deinit(&f->c);
    }
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--config=/nonexistent/t.ini"), ERR_SYNTAX);
    assert_string_equal(f->why, "cannot read /nonexistent/t.ini: No such file or directory");
    assert_int_equal(LOAD(f, "--config", "/"), ERR_SYNTAX);
    assert_string_equal(f->why, "cannot read /: Is a directory");
}

static void values_are_checked(void **state)
{
    static const struct {
        const char *arg, *why;
    } cases[] = {
        {"--store=disk", "--store: expected memory or embedded, got 'disk'"},
        {"--sync=sometimes", "--sync: expected always, interval:MS or never, got 'sometimes'"},
        {"--sync=interval:0", "--sync: expected always, interval:MS or never, got 'interval:0'"},
        {"--store=redis://localhost",
         "--store 'redis://localhost': this build has no Redis store; expected embedded or memory"},
        {"--public-url=example.org",
         "--public-url: expected http://HOST or https://HOST, got 'example.org'"},
        {"--public-url=http://a/?b",
         "--public-url: expected http://HOST or https://HOST, got 'http://a/?b'"},
        {"--trace=xml", "--trace: expected human or json, got 'xml'"},
        {"--max-connections=0",
         "--max-connections: expected a number between 1 and 1000000, got '0'"},
        {"--max-append=2g", "--max-append: expected a size between 1k and 1g, got '2g'"},
        {"--long-poll-timeout=6m",
         "--long-poll-timeout: expected a duration between 100ms and 5m, got '6m'"},
        {"--max-append=512m", "max-inflight-bytes must be at least max-append, or an append of "
                              "the full size could never be taken"},
        {"--retain-events=-1", "--retain-events: expected a number up to 1000000000000, got '-1'"},
        {"--retain-bytes=some", "--retain-bytes: expected a size up to 1048576g, got 'some'"},
        {"--retain-age=999ms",
         "--retain-age: expected 0 or a duration between 1s and 3650d, got '999ms'"},
        {"elsewhere", "unexpected argument 'elsewhere'"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(LOAD(f, cases[i].arg), ERR_SYNTAX);
        assert_string_equal(f->why, cases[i].why);
    }
    assert_int_equal(LOAD(f, "--listen=nowhere"), ERR_SYNTAX);
    assert_int_equal(strncmp(f->why, "--listen 'nowhere': ", 20), 0);
}

static void retention_is_read_from_any_source(void **state)
{
    struct fixture *f = *state;
    FILE *to = fopen(f->path, "w");
    fputs("retain-events = 1000\nretain-bytes = 1\n", to);
    fclose(to);
    setenv("TIDEMARK_RETAIN_BYTES", "8m", 1);
    int err = LOAD(f, "--config", f->path, "--retain-age", "7d");
    unsetenv("TIDEMARK_RETAIN_BYTES");
    assert_int_equal(err, 0);
    assert_int_equal(f->c.retain_events, 1000);
    assert_int_equal(f->c.retain_bytes, 8 << 20);
    assert_int_equal(f->c.retain_age_ms, 7 * 86400000);
}

static void an_append_of_the_full_size_fits_the_journal(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--store=embedded", "--max-append=96m"), ERR_SYNTAX);
    assert_string_equal(f->why, "max-append must be at most 95m with the embedded store, whose "
                                "journal takes no larger append");
    assert_int_equal(LOAD(f, "--store=embedded", "--max-append=95m"), 0);
    config_deinit(&f->c);
    assert_int_equal(LOAD(f, "--store=memory", "--max-append=96m"), 0);
}

static void the_public_url_ends_without_a_slash(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--public-url", "https://example.org/streams//"), 0);
    assert_string_equal(f->c.public_url, "https://example.org/streams");
}

static void misspelt_variables_are_traced(void **state)
{
    struct fixture *f = *state;
    setenv("TIDEMARK_LISTNE", "x", 1);
    int err = LOAD(f, "--trace-level=warn");
    unsetenv("TIDEMARK_LISTNE");
    assert_int_equal(err, 0);
    assert_non_null(f->said);
    assert_non_null(strstr(f->said, "unknown setting TIDEMARK_LISTNE in the environment\n"));
}

static void help_names_every_setting(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--help"), ERR_CANCELLED);
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    config_help(to);
    fclose(to);
    assert_non_null(strstr(text, "--config FILE"));
    assert_non_null(strstr(text, "--[no-]allow-loopback-targets"));
    assert_non_null(strstr(text, "--trace-level error|warn|info|debug"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 80);
    free(text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_these),
        TEST(a_file_is_read),
        TEST(flags_win_over_variables_over_the_file),
        TEST(errors_in_a_file_name_file_and_line),
        TEST(sections_are_refused),
        TEST(broken_lines_are_refused),
        TEST(a_file_that_cannot_be_read_is_named),
        TEST(values_are_checked),
        TEST(retention_is_read_from_any_source),
        TEST(an_append_of_the_full_size_fits_the_journal),
        TEST(the_public_url_ends_without_a_slash),
        TEST(misspelt_variables_are_traced),
        TEST(help_names_every_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
