// SPDX-License-Identifier: Apache-2.0
#include "access/policy.h"
#include "app/config.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"
#include "app/access_config.h"
#include "feature/cascade/cascade_config.h"
#include "app/config_file.h"
#include "app/config_tables.h"
#include "feature/gateway/gateway_config.h"
#include "feature/subscriptions/subscriptions_config.h"
#include "feature/tools/tools_config.h"
#include "feature/gateway/route_config.h"
#include "feature/logs/log_config.h"
#include "feature/tools/pages_config.h"
#include "feature/sessions/session_config.h"
#include "telemetry/trace.h"
#include "feature/tools/tool_config.h"

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

/* The settings of a feature. */
#define OF(feature)                                                                                \
    static const struct feature##_settings *feature##_of(const struct fixture *f)                  \
    {                                                                                              \
        return feature_config(&f->c.features, #feature);                                           \
    }
OF(gateway)
OF(logs)
OF(tools)
OF(sessions)
OF(cascade)
OF(subscriptions)

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
    secret_unshield();
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
    assert_string_equal(c->store, "embedded");
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
    assert_int_equal(c->drain_timeout_ms, 30000);
    assert_int_equal(c->long_poll_timeout_ms, 4000);
    assert_int_equal(c->heartbeat_ms, 10000);
    assert_int_equal(c->sse_lifetime_ms, 60000);
    assert_false(subscriptions_of(f)->allow_private_targets);
    assert_false(subscriptions_of(f)->allow_loopback_targets);
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
    assert_true(subscriptions_of(f)->allow_private_targets);
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
    assert_refused(f, STR("data = x\n = y\n"), "2: expected `name = value`");
    assert_refused(f, STR("data =\n"), "1: data: expected DIR, got ''");
}

#define DIGEST "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define UPPER  "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A09"
#define UP     "upstream = http://u\n"

static const struct route_config *route(const struct fixture *f, size_t i)
{
    assert_in_range(i, 0, gateway_of(f)->routes.n - 1);
    return (const struct route_config *)gateway_of(f)->routes.items + i;
}

static void a_route_has_these_defaults(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("data = d\n[route /a/b]\n" UP)), 0);
    assert_string_equal(f->c.data, "d");
    assert_int_equal(gateway_of(f)->routes.n, 1);
    const struct route_config *r = route(f, 0);
    assert_string_equal(r->path, "/a/b");
    assert_string_equal(r->upstream, "http://u");
    assert_int_equal(r->dialect, ROUTE_DIALECT_SSE);
    assert_int_equal(r->ids, ROUTE_IDS_PLAIN);
    assert_int_equal(r->snapshot, ROUTE_SNAPSHOT_UNSET);
    assert_int_equal(r->trim, ROUTE_TRIM_LENIENT);
    assert_int_equal(r->forward.n, 0);
    assert_string_equal(r->step, "DRAFTING");
    assert_int_equal(r->requests_per_minute, 0);
    assert_int_equal(r->parallel, 0);
    assert_int_equal(r->max_body_bytes, 16 << 20);
    assert_int_equal(r->connect_timeout_ms, 10000);
    assert_int_equal(r->first_byte_timeout_ms, 600000);
    assert_int_equal(r->idle_timeout_ms, 60000);
    assert_int_equal(r->total_timeout_ms, 3600000);
    assert_int_equal(r->disconnect, ROUTE_DISCONNECT_CONTINUE);
    assert_int_equal(r->key_lifetime_ms, 86400000);
    assert_int_equal(r->buffer_max_events, 256);
    assert_int_equal(r->buffer_max_bytes, 1572864);
    assert_int_equal(r->state_ttl_ms, 900000);
    assert_int_equal(r->snapshot_ttl_ms, 60000);
    assert_int_equal(r->resume_ttl_ms, 900000);
    assert_string_equal(gateway_of(f)->telemetry_prefix, "assist.sse");
}

static void a_route_takes_every_setting(void **state)
{
    struct fixture *f = *state;
    struct str text = STR("\xef\xbb\xbf[route /chat] ; a comment\r\n"
                          "  upstream = https://h.example:8443/v1/x?y=z ; another\n"
                          "dialect = ui-message\n"
                          "trim = strict\n"
                          "forward = X-One, x-two\n"
                          "forward = X-Three\n"
                          "step = WRITING\n"
                          "requests-per-minute = 20\n"
                          "parallel = 3\n"
                          "total-timeout = 0\n"
                          "buffer-max-bytes = 2m\n"
                          "\t[route /plain]# no settings of the first\n"
                          "upstream = http://[::1]:1\n"
                          "dialect = auto\n"
                          "ids = full\n"
                          "snapshot = openai\n"
                          "[route /bare]\n"
                          "snapshot = none\n"
                          "dialect = openai\n" UP);
    assert_int_equal(load_file(f, text), 0);
    assert_int_equal(gateway_of(f)->routes.n, 3);
    const struct route_config *r = route(f, 0);
    assert_string_equal(r->upstream, "https://h.example:8443/v1/x?y=z");
    assert_int_equal(r->dialect, ROUTE_DIALECT_UI_MESSAGE);
    assert_int_equal(r->snapshot, ROUTE_SNAPSHOT_UNSET);
    assert_int_equal(r->trim, ROUTE_TRIM_STRICT);
    assert_int_equal(r->forward.n, 3);
    assert_string_equal(r->forward.items[1], "x-two");
    assert_string_equal(r->step, "WRITING");
    assert_int_equal(r->requests_per_minute, 20);
    assert_int_equal(r->parallel, 3);
    assert_int_equal(r->total_timeout_ms, 0);
    assert_int_equal(r->buffer_max_bytes, 2 << 20);
    assert_int_equal(route(f, 1)->forward.n, 0);
    assert_int_equal(route(f, 1)->ids, ROUTE_IDS_FULL);
    assert_int_equal(route(f, 1)->snapshot, ROUTE_SNAPSHOT_OPENAI);
    assert_int_equal(route(f, 2)->snapshot, ROUTE_SNAPSHOT_NONE);
}

static void a_route_says_what_becomes_of_what_nobody_reads(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        enum route_disconnect what;
        uint64_t ms;
    } cases[] = {
        {"continue", true, ROUTE_DISCONNECT_CONTINUE, 0},
        {"stop", true, ROUTE_DISCONNECT_STOP, 0},
        {"stop-after 30s", true, ROUTE_DISCONNECT_STOP, 30000},
        {"stop-after  250ms", true, ROUTE_DISCONNECT_STOP, 250},
        {"stop-after 24h", true, ROUTE_DISCONNECT_STOP, 86400000},
        {"stop-after 25h", false, 0, 0},
        {"stop-after", false, 0, 0},
        {"stop-after soon", false, 0, 0},
        {"stop 30s", false, 0, 0},
        {"continue 30s", false, 0, 0},
        {"Stop", false, 0, 0},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        snprintf(text, sizeof text, "[route /a]\n" UP "on-disconnect = %s\n", cases[i].text);
        int err = load_file(f, str_of_cstr(text));
        assert_int_equal(err, cases[i].ok ? 0 : ERR_SYNTAX);
        if (cases[i].ok) {
            assert_int_equal(route(f, 0)->disconnect, cases[i].what);
            assert_int_equal(route(f, 0)->disconnect_ms, cases[i].ms);
        }
        config_deinit(&f->c);
    }
}

static void the_sse_variables_give_defaults_of_routes(void **state)
{
    static const char *const variables[][2] = {
        {"SSE_BUFFER_MAX_EVENTS", "10"}, {"SSE_BUFFER_MAX_SIZE_MB", "0.5"},
        {"SSE_STATE_TTL_SEC", "30"},     {"SSE_SNAPSHOT_TTL_SEC", "0"},
        {"SSE_RESUME_TTL_MS", "1500"},
    };
    enum { N = sizeof variables / sizeof *variables };
    struct fixture *f = *state;
    for (int i = 0; i < N; i++)
        setenv(variables[i][0], variables[i][1], 1);
    int err = load_file(f, STR("[route /a]\n" UP "[route /b]\nstate-ttl = 5s\n" UP));
    for (int i = 0; i < N; i++)
        unsetenv(variables[i][0]);
    assert_int_equal(err, 0);
    assert_int_equal(route(f, 0)->buffer_max_events, 10);
    assert_int_equal(route(f, 0)->buffer_max_bytes, 512 << 10);
    assert_int_equal(route(f, 0)->state_ttl_ms, 30000);
    assert_int_equal(route(f, 0)->snapshot_ttl_ms, 60000);
    assert_int_equal(route(f, 0)->resume_ttl_ms, 1500);
    assert_int_equal(route(f, 1)->state_ttl_ms, 5000);
}

static void routes_have_a_short_form(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--route", "/a=http://x/?k=v", "--route=/b=https://y"), 0);
    assert_int_equal(gateway_of(f)->routes.n, 2);
    assert_string_equal(route(f, 0)->path, "/a");
    assert_string_equal(route(f, 0)->upstream, "http://x/?k=v");
    assert_int_equal(route(f, 0)->buffer_max_events, 256);
    assert_int_equal(route(f, 1)->snapshot, ROUTE_SNAPSHOT_UNSET);
    config_deinit(&f->c);

    setenv("TIDEMARK_ROUTE", "/c=http://x, /d=http://y", 1);
    int err = load_file(f, STR("[route /c]\nparallel = 2\n" UP));
    unsetenv("TIDEMARK_ROUTE");
    assert_int_equal(err, 0);
    assert_int_equal(gateway_of(f)->routes.n, 2);
    assert_string_equal(route(f, 0)->upstream, "http://x");
    assert_int_equal(route(f, 0)->parallel, 2);
    assert_string_equal(route(f, 1)->path, "/d");
    config_deinit(&f->c);

    assert_int_equal(load_file(f, STR("route = /e=http://x\nroute = /f=http://y\n")), 0);
    assert_int_equal(gateway_of(f)->routes.n, 2);
    config_deinit(&f->c);
    assert_int_equal(load_file(f, STR("route = /e=http://x\n[route /e]\n" UP)), ERR_SYNTAX);
    assert_string_equal(f->why, "the route /e is given twice");
    assert_int_equal(LOAD(f, "--route=/a=http://x", "--route=/b=http://x", "--route=/a=http://x"),
                     ERR_SYNTAX);
    assert_string_equal(f->why, "the route /a is given twice");
}

static void prefixes_have_short_forms(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(LOAD(f, "--proxy=/p=http://x/y"), 0);
    assert_int_equal(gateway_of(f)->routes.n, 1);
    assert_true(route(f, 0)->prefix);
    assert_string_equal(route(f, 0)->path, "/p");
    assert_string_equal(route(f, 0)->upstream, "http://x/y");
    config_deinit(&f->c);

    assert_int_equal(LOAD(f, "--openai=https://x"), 0);
    assert_int_equal(gateway_of(f)->routes.n, 1);
    assert_true(route(f, 0)->prefix);
    assert_string_equal(route(f, 0)->path, "/v1");
    assert_string_equal(route(f, 0)->upstream, "https://x");
    assert_null(route(f, 0)->upstream_anthropic);
    config_deinit(&f->c);

    assert_int_equal(LOAD(f, "--anthropic=https://y"), 0);
    assert_string_equal(route(f, 0)->upstream, "https://y");
    assert_null(route(f, 0)->upstream_anthropic);
    config_deinit(&f->c);

    assert_int_equal(LOAD(f, "--anthropic=https://y", "--openai=https://x"), 0);
    assert_int_equal(gateway_of(f)->routes.n, 1);
    assert_string_equal(route(f, 0)->upstream, "https://x");
    assert_string_equal(route(f, 0)->upstream_anthropic, "https://y");
    assert_true(route_is_anthropic(route(f, 0), STR("/v1/messages"), false));
    assert_true(route_is_anthropic(route(f, 0), STR("/v1/messages/batches"), false));
    assert_true(route_is_anthropic(route(f, 0), STR("/v1/complete"), false));
    assert_true(route_is_anthropic(route(f, 0), STR("/v1/models"), true));
    assert_false(route_is_anthropic(route(f, 0), STR("/v1/models"), false));
    assert_false(route_is_anthropic(route(f, 0), STR("/v1/completions"), false));
    assert_false(route_is_anthropic(route(f, 0), STR("/v1/x/messages"), false));
    config_deinit(&f->c);

    setenv("TIDEMARK_OPENAI", "http://127.0.0.1:8000", 1);
    int err = load_file(f, STR("[route /v1]\nparallel = 2\n" UP));
    unsetenv("TIDEMARK_OPENAI");
    assert_int_equal(err, 0);
    assert_int_equal(gateway_of(f)->routes.n, 1);
    assert_true(route(f, 0)->prefix);
    assert_int_equal(route(f, 0)->parallel, 2);
    assert_string_equal(route(f, 0)->upstream, "http://127.0.0.1:8000");
    config_deinit(&f->c);

    assert_int_equal(LOAD(f, "--openai=https://x", "--proxy=/v1=http://y"), ERR_SYNTAX);
    assert_string_equal(f->why, "the route /v1 is given twice");
    assert_int_equal(LOAD(f, "--route=/a=https://x", "--proxy=/a=http://y"), ERR_SYNTAX);
    assert_string_equal(f->why, "the route /a is given twice");
    assert_int_equal(LOAD(f, "--openai=ftp://x"), ERR_SYNTAX);
}

static void parameters_of_upstreams_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("[route /m/{a}]\nupstream = http://u/{a}\n")), 0);
    config_deinit(&f->c);
    assert_refused(f, STR("[route /m/{a}]\nupstream = http://u/{b}\n"),
                   "1: [route /m/{a}]: the route's path has no parameter {b}");
    assert_refused(f, STR("[route /m/{a}]\nupstream = http://u/?x={a}\n"),
                   "1: [route /m/{a}]: a parameter stands in the path of the upstream, not in its "
                   "query");
    assert_refused(f, STR("[route /m]\ndrop = X-A, Host\nupstream = http://u\n"),
                   "2: drop 'Host': this header is never forwarded; the server sets it itself");
}

static void paths_of_routes_are_checked(void **state)
{
    static const char *const good[] = {"/a",
                                       "/a.b/c-d_e~f:g@h+i",
                                       "/v1x",
                                       "/metricsx",
                                       "/x/v1",
                                       "/v1/chat/completions",
                                       "/v1",
                                       "/m/{model}:x",
                                       "/t/{id}/runs/{run_id}"};
    static const struct {
        const char *path, *why;
    } bad[] = {
        {"a", "a path begins with `/`"},
        {"http://x", "a path begins with `/`"},
        {"/", "a route's path does not end with `/`"},
        {"/a/", "a route's path does not end with `/`"},
        {"/a b", "a route's path is made of letters, digits and /-._~:@+"},
        {"/a%62", "a route's path is made of letters, digits and /-._~:@+"},
        {"/a?b", "a route's path is made of letters, digits and /-._~:@+"},
        {"/\xc3\xa4", "a route's path is made of letters, digits and /-._~:@+"},
        {"/a//b", "a route's path has no empty, `.` or `..` segment"},
        {"/a/../b", "a route's path has no empty, `.` or `..` segment"},
        {"/a/.", "a route's path has no empty, `.` or `..` segment"},
        {"/a/{b", "a `{` or `}` has no other"},
        {"/a/{b}{c}", "a segment has one parameter at most"},
        {"/{a}/{a}", "two parameters have one name"},
        {"/{a-b}", "the name of a parameter is made of letters, digits and _"},
        {"/v1/stream/{x}", "the server answers under this path itself"},
        {"/v1/stream/x", "the server answers under this path itself"},
        {"/metrics", "the server answers under this path itself"},
        {"/healthz", "the server answers under this path itself"},
        {"/readyz/x", "the server answers under this path itself"},
    };
    struct fixture *f = *state;
    char text[128], why[160];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(text, sizeof text, "[route %s]\n" UP, good[i]);
        assert_int_equal(load_file(f, str_of_cstr(text)), 0);
        config_deinit(&f->c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "[route %s]\n" UP, bad[i].path);
        snprintf(why, sizeof why, "1: [route %s]: %s", bad[i].path, bad[i].why);
        assert_refused(f, str_of_cstr(text), why);
    }
    assert_int_equal(LOAD(f, "--route=/v1/stream=http://u"), ERR_SYNTAX);
    assert_string_equal(f->why,
                        "--route '/v1/stream=http://u': the server answers under this path itself");
    assert_int_equal(LOAD(f, "--route=/x"), ERR_SYNTAX);
    assert_string_equal(f->why, "--route: expected PATH=URL, got '/x'");
    assert_int_equal(LOAD(f, "--route=/x=ftp://u"), ERR_SYNTAX);
    assert_string_equal(f->why,
                        "--route '/x=ftp://u': what stands behind the `=` is no http or https URL");
}

static void settings_of_sections_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("data = x\n\n[route /a]\n\n[route /b]\n" UP),
                   "3: [route /a] needs a line `upstream = http://HOST/PATH|https://HOST/PATH`");
    assert_refused(f, STR("[route /a]"),
                   "1: [route /a] needs a line `upstream = http://HOST/PATH|https://HOST/PATH`");
    assert_refused(f, STR("[route /a]\n" UP "[route /a]\n"),
                   "3: there is a section [route /a] already");
    assert_refused(f, STR("[route /a]\nupstrem = x\n"),
                   "2: [route /a]: unknown setting upstrem; did you mean upstream?");
    assert_refused(f, STR("[route /a]\n" UP "data = x\n"),
                   "3: data is no setting of [route /a] but of the server; it goes above the first "
                   "section");
    assert_refused(f, STR("[route /a]\nconfig = x\n"), "2: [route /a]: unknown setting config");
    assert_refused(f, STR("[route /a]\nupstream = ftp://x\n"),
                   "2: upstream: expected http://HOST/PATH or https://HOST/PATH, got 'ftp://x'");
    assert_refused(
        f, STR("[route /a]\ndialect = openia\n"),
        "2: dialect: expected auto, sse, openai, responses, anthropic, gemini, ag-ui, mcp, "
        "ui-message or ndjson, got 'openia'");
    assert_refused(f, STR("[route /a]\nforward = X-A, Host\n"),
                   "2: forward 'Host': this header is never forwarded; the server sets it itself");
    assert_refused(f, STR("[route /a]\nforward = X A\n"), "2: forward: expected HEADER, got 'X A'");
    assert_refused(f, STR("[route /a]\nstep = A:B\n"),
                   "2: step 'A:B': expected up to 64 letters, digits and -._");
    assert_refused(f, STR("[route /a]\nparallel = -1\n"),
                   "2: parallel: expected a number up to 1000000, got '-1'");
    assert_refused(f, STR("[route /a]\njust words\n"), "2: expected `name = value`");
}

static void callers_are_read(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("[caller ci-bot]\n"
                                      "token-sha256 = " DIGEST "\n"
                                      "capabilities = worker, tool\n"
                                      "[caller ann@example.org]\n"
                                      "capabilities = admin\n"
                                      "capabilities = notes:read\n"
                                      "token-sha256 = " UPPER "\n")),
                     0);
    assert_int_equal(f->c.access.callers.n, 2);
    const struct caller_config *c = f->c.access.callers.items;
    assert_string_equal(c[0].name, "ci-bot");
    assert_int_equal(c[0].token_sha256[0], 0x9f);
    assert_int_equal(c[0].token_sha256[31], 0x08);
    assert_int_equal(c[1].token_sha256[1], 0x86);
    assert_int_equal(c[1].token_sha256[31], 0x09);
    assert_int_equal(c[0].capabilities.n, 2);
    assert_string_equal(c[0].capabilities.items[1], "tool");
    assert_string_equal(c[1].capabilities.items[1], "notes:read");
}

#define ISSUER "[issuer a]\niss = https://a/\n"

static void callers_are_checked(void **state)
{
    struct fixture *f = *state;
    /* Somebody wrote the token itself: it must not get into a terminal or a log. */
    assert_refused(f, STR("[caller a]\ntoken-sha256 = hunter2\n"),
                   "2: token-sha256: expected 64 hex digits");
    assert_refused(f, STR("[caller a]\ntoken-sha256 = " DIGEST "00\n"),
                   "2: token-sha256: expected 64 hex digits");
    assert_refused(f, STR("[caller a]\ncertificate = *.example.org\n"),
                   "2: certificate '*.example.org': expected a URI, or a DNS name without a "
                   "wildcard");
    assert_refused(f, STR("[caller a]\n"), "1: [caller a]: needs token-sha256 or certificate");
    assert_refused(
        f, STR("[caller a b]\n"),
        "1: [caller a b]: a caller's name is made of letters, digits and -._@, and is not "
        "anonymous");
    assert_refused(f, STR("[caller anonymous]\n"),
                   "1: [caller anonymous]: a caller's name is made of letters, digits and -._@, "
                   "and is not anonymous");
    assert_int_equal(load_file(f, STR("[caller a]\ntoken-sha256 = " DIGEST "\nroot = t/{a}/\n")),
                     ERR_SYNTAX);
    assert_non_null(strstr(f->why, "3: root 't/{a}/': a root is a name"));
    assert_int_equal(load_file(f, STR(ISSUER "jwks = https://a/j\nroot = sessions/{sub}/\n")),
                     ERR_SYNTAX);
    assert_non_null(strstr(f->why, "4: root 'sessions/{sub}/': a root is a name"));
    assert_refused(f, STR("[caller a]\ncapabilities = wroker\n"),
                   "2: capabilities 'wroker': no such capability; did you mean worker?");
    assert_refused(f, STR("[caller a]\ncapabilities = everything\n"),
                   "2: capabilities: expected worker, tool, admin or NAME:NAME, got 'everything'");
    assert_int_equal(load_file(f, STR("[caller a]\ntoken-sha256 = " DIGEST "\n"
                                      "[caller b]\ntoken-sha256 = " DIGEST "\n")),
                     ERR_SYNTAX);
    assert_string_equal(f->why, "the callers a and b have the same token-sha256");
    assert_int_equal(load_file(f, STR("[caller a]\ncertificate = a.example\n"
                                      "[caller b]\ncertificate = A.example\n")),
                     ERR_SYNTAX);
    assert_string_equal(f->why, "the callers a and b have the same certificate");
}

#define SECRET "0123456789abcdef0123456789abcdef"

static void issuers_are_read(void **state)
{
    struct fixture *f = *state;
    setenv("ISSUER_TEST_SECRET", SECRET, 1);
    assert_int_equal(load_file(f, STR("public-url = https://us.example/\n" ISSUER
                                      "jwks = https://a/jwks\nroot = t/{tenant}/\n"
                                      "grant = read chats/{sub}\nalg = ES256, PS256\nlive = 3\n"
                                      "[issuer b]\niss = b\naud = x, y\nmax-lifetime = 1d\n"
                                      "secret-env = ISSUER_TEST_SECRET\ntyp = JWT, none\n"
                                      "not-before = 2023-11-14T22:13:20Z\n")),
                     0);
    assert_true(access_config_on(&f->c.access));
    assert_string_equal(access_config_idle_issuer(&f->c.access), "b");
    assert_int_equal(access_config_longest_s(&f->c.access), 86400);
    struct policy *p = access_config_policy(&f->c.access, f->why, sizeof f->why);
    assert_non_null(p);
    const struct issuer *a = policy_find_issuer_named(p, STR("a")),
                        *b = policy_find_issuer(p, STR("b"));
    assert_true(a->n_aud == 1 && str_eq(a->aud[0], STR("https://us.example")));
    assert_true(a->n_typ == 1 && str_eq(a->typ[0], STR("at+jwt")));
    assert_int_equal(a->max_lifetime_s, 3600);
    assert_true(a->algs.rsa == JWK_PS256 && a->algs.allowed == (1u << JWK_ES256 | 1u << JWK_PS256));
    assert_true(str_eq(a->jwks_url, STR("https://a/jwks")) && a->keys == NULL);
    assert_true(a->grants.n == 1 && a->limits.live == 3 && a->not_before_s == 0);
    assert_true(b->n_aud == 2 && str_eq(b->aud[1], STR("y")) && b->grants.n == 0);
    assert_true(b->n_typ == 2 && b->typ[1].n == 0);
    assert_true(b->max_lifetime_s == 86400 && b->not_before_s == 1700000000);
    assert_true(b->jwks_url.n == 0 && b->keys != NULL);
    policy_unref(p);
    unsetenv("ISSUER_TEST_SECRET");
}

static void issuers_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("[issuer a]\njwks = x\n"), "1: [issuer a] needs a line `iss = TEXT`");
    assert_refused(f, STR(ISSUER), "1: [issuer a]: needs jwks or secret-env, and not both");
    assert_refused(f, STR("[issuer a]\niss = tidemark\n"),
                   "2: iss 'tidemark': this is what the server calls itself");
    assert_refused(f, STR(ISSUER "jwks = http://10.0.0.1/jwks\n"),
                   "3: jwks 'http://10.0.0.1/jwks': keys come by https, or else from this machine");
    assert_int_equal(load_file(f, STR(ISSUER "jwks = https://a/jwks\n")), ERR_SYNTAX);
    assert_string_equal(f->why, "[issuer a] needs aud, since there is no public-url");
    assert_int_equal(load_file(f, STR(ISSUER "aud = x\nsecret-env = NO_SUCH_SECRET\n")),
                     ERR_SYNTAX);
    assert_string_equal(f->why, "[issuer a]: the variable NO_SUCH_SECRET is not set");
}

static void logs_are_read(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("[log feedback]\npath = /var/f.jsonl\n"
                                      "[log a.b-c_1]\npath = x\nread-only = yes\n"
                                      "max-append = 4m\n")),
                     0);
    assert_int_equal(logs_of(f)->logs.n, 2);
    const struct log_config *l = logs_of(f)->logs.items;
    assert_string_equal(l[0].name, "feedback");
    assert_string_equal(l[0].path, "/var/f.jsonl");
    assert_false(l[0].read_only);
    assert_int_equal(l[0].max_append_bytes, 1024 * 1024);
    assert_string_equal(l[1].name, "a.b-c_1");
    assert_true(l[1].read_only);
    assert_int_equal(l[1].max_append_bytes, 4 * 1024 * 1024);
}

static void settings_of_logs_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("[log a]\n"), "1: [log a] needs a line `path = FILE`");
    assert_refused(f, STR("[log a/b]\n"),
                   "1: [log a/b]: a log's name is made of letters, digits and -._");
    assert_refused(f, STR("[log a]\npath = /tmp/\n"), "2: path: expected FILE, got '/tmp/'");
    assert_refused(f, STR("[log a]\npath = x\nmax-append = 5m\n"),
                   "3: max-append: expected a size between 1k and 4m, got '5m'");
    assert_refused(f, STR("[log a]\npath = x\n[log a]\n"), "3: there is a section [log a] already");
}

static void tools_are_read(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        load_file(f, STR("[tool db:rows]\ncommand = psql -c 'select * from t'\n"
                         "command = \"\" a\"b c\"d\ndescription = All rows.\n"
                         "input-schema = {\"type\":\"object\"}\ncapability = db:read\n"
                         "timeout = 5s\nmax-output = 1m\npage-rows = 7\npage-bytes = 2k\n"
                         "parallel = 1\nmax-memory = 64m\n"
                         "[tool asked]\nurl = http://127.0.0.1:1/x\n")),
        0);
    assert_int_equal(tools_of(f)->tools.n, 2);
    const struct tool_config *t = tools_of(f)->tools.items;
    char **words = tool_command_words(&t[0]);
    const char *expected[] = {"psql", "-c", "select * from t", "", "ab cd"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(words[i], expected[i]);
    assert_null(words[5]);
    free(words);
    assert_string_equal(t[0].name, "db:rows");
    assert_string_equal(t[0].input_schema, "{\"type\":\"object\"}");
    assert_string_equal(t[0].capability, "db:read");
    assert_int_equal(t[0].timeout_ms, 5000);
    assert_int_equal(t[0].max_output, 1 << 20);
    assert_int_equal(t[0].page_rows, 7);
    assert_int_equal(t[0].page_bytes, 2048);
    assert_int_equal(t[0].parallel, 1);
    assert_int_equal(t[0].max_memory, 64 << 20);
    assert_string_equal(t[1].url, "http://127.0.0.1:1/x");
    assert_int_equal(t[1].timeout_ms, 30000);
    assert_int_equal(t[1].max_output, 16 << 20);
    assert_int_equal(t[1].page_rows, 100);
    assert_int_equal(t[1].page_bytes, 64 << 10);
    assert_int_equal(t[1].parallel, 4);
    assert_int_equal(t[1].max_memory, 1 << 30);
}

static void a_schema_may_be_a_file(void **state)
{
    struct fixture *f = *state;
    char schema[] = "/tmp/test_config.XXXXXX", text[256];
    close(mkstemp(schema));
    FILE *to = fopen(schema, "w");
    fputs("{\n  \"type\": \"object\"\n}\n", to);
    fclose(to);
    snprintf(text, sizeof text, "[tool a]\ncommand = a\ninput-schema = @%s\n", schema);
    int err = load_file(f, str_of_cstr(text));
    unlink(schema);
    assert_int_equal(err, 0);
    const struct tool_config *t = tools_of(f)->tools.items;
    assert_string_equal(t[0].input_schema, "{\n  \"type\": \"object\"\n}\n");
}

static void settings_of_tools_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("[tool a]\n"), "1: [tool a]: a tool needs a command or a url");
    assert_refused(f, STR("[tool a]\ncommand = '' x\n"),
                   "1: [tool a]: a tool needs a command or a url");
    assert_refused(f, STR("[tool a]\ncommand = x\nurl = http://h/\n"),
                   "1: [tool a]: command and url are both set; a tool has one of them");
    assert_refused(f, STR("[tool a b]\n"),
                   "1: [tool a b]: a tool's name is made of up to 128 letters, digits and -._:");
    assert_refused(f, STR("[tool a]\ncommand = a 'b\n"),
                   "2: command 'a 'b': a quote is opened and not closed");
    assert_refused(f, STR("[tool a]\nurl = ftp://h/\n"),
                   "2: url: expected http://HOST/PATH or https://HOST/PATH, got 'ftp://h/'");
    assert_refused(f, STR("[tool a]\ncommand = x\ncapability = wroker\n"),
                   "3: capability 'wroker': no such capability; did you mean worker?");
    assert_refused(f, STR("[tool a]\ncommand = x\ninput-schema = {\"type\":\"array\"}\n"),
                   "1: [tool a]: input-schema is not a JSON object, or its type is not object");
    assert_refused(f, STR("[tool a]\ncommand = x\ninput-schema = [1]\n"),
                   "1: [tool a]: input-schema is not a JSON object, or its type is not object");
    assert_refused(f, STR("[tool a]\ncommand = x\ninput-schema = @/nowhere/at/all\n"),
                   "1: [tool a]: /nowhere/at/all cannot be read: No such file or directory");
    assert_refused(f, STR("[tool a]\ncommand = x\ntimeout = 2h\n"),
                   "3: timeout: expected a duration between 10ms and 1h, got '2h'");
}

static const struct session_config *session(const struct fixture *f)
{
    assert_int_equal(sessions_of(f)->session.n, 1);
    return sessions_of(f)->session.items;
}

static void sessions_have_these_defaults(void **state)
{
    static const char *const files[] = {"data = d\n", "[session]\n"};
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) { /* the section changes nothing if it says nothing */
        assert_int_equal(load_file(f, str_of_cstr(files[i])), 0);
        const struct session_config *s = session(f);
        assert_null(s->upstream);
        assert_int_equal(s->handler, SESSION_HANDLER_NONE);
        assert_int_equal(s->upstream_http, ROUTE_HTTP1);
        assert_null(s->content_type);
        assert_int_equal(s->connect_timeout_ms, 10000);
        assert_int_equal(s->first_byte_timeout_ms, 60000);
        assert_int_equal(s->idle_timeout_ms, 60000);
        assert_int_equal(s->total_timeout_ms, 3600000);
        assert_int_equal(s->lifetime_ms, 7200000);
        assert_int_equal(s->key_hold_ms, 600000);
        assert_int_equal(s->max_open, 10000);
        assert_int_equal(s->max_message_bytes, 4 << 20);
        assert_int_equal(s->max_bytes, 256 << 20);
        config_deinit(&f->c);
    }
}

static void sessions_take_every_setting(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("[session]\n"
                                      "upstream = https://h.example/answer\n"
                                      "upstream-http = auto\n"
                                      "content-type = text/plain; charset=\"utf-8\"\n"
                                      "total-timeout = 0\n"
                                      "lifetime = 30d\n"
                                      "key-hold = 0\n"
                                      "max-open = 1\n"
                                      "max-message = 64m\n"
                                      "max-bytes = 64m\n"
                                      "[route /a]\n" UP)),
                     0);
    const struct session_config *s = session(f);
    assert_string_equal(s->upstream, "https://h.example/answer");
    assert_int_equal(s->upstream_http, ROUTE_HTTP_AUTO);
    assert_string_equal(s->content_type, "text/plain; charset=\"utf-8\"");
    assert_int_equal(s->total_timeout_ms, 0);
    assert_int_equal(s->lifetime_ms, 30ULL * 86400000);
    assert_int_equal(s->key_hold_ms, 0);
    assert_int_equal(s->max_open, 1);
    assert_int_equal(s->max_message_bytes, 64 << 20);
    config_deinit(&f->c);
    assert_int_equal(load_file(f, STR("[session]\nhandler = echo\n")), 0);
    assert_int_equal(session(f)->handler, SESSION_HANDLER_ECHO);
}

static void settings_of_sessions_are_checked(void **state)
{
    struct fixture *f = *state;
    assert_refused(f, STR("[session]\n" UP "handler = echo\n"),
                   "1: [session]: upstream and handler both answer; only one of them can be given");
    assert_refused(f, STR("[session]\nmax-bytes = 1m\n"),
                   "1: [session]: max-bytes must be at least max-message, or a message of the full "
                   "size could never be taken");
    assert_refused(f, STR("[session]\n[session]\n"), "2: there is a section [session] already");
    assert_refused(f, STR("[session a]\n"), "1: a section [session] takes no name");
    assert_refused(f, STR("[session]\nupstream = h\n"),
                   "2: upstream: expected http://HOST/PATH or https://HOST/PATH, got 'h'");
    assert_refused(f, STR("[session]\nhandler = ech\n"), "2: handler: expected echo, got 'ech'");
    assert_refused(f, STR("[session]\ncontent-type = text\n"),
                   "2: content-type: expected TYPE/SUBTYPE, got 'text'");
    assert_refused(f, STR("[session]\ncontent-type = text/a\x01\n"),
                   "2: content-type: expected TYPE/SUBTYPE, got 'text/a\x01'");
    assert_refused(f, STR("[session]\nlifetime = 500ms\n"),
                   "2: lifetime: expected a duration between 1s and 30d, got '500ms'");
    assert_refused(f, STR("[session]\nkey-hold = 2d\n"),
                   "2: key-hold: expected a duration up to 1d, got '2d'");
    assert_refused(f, STR("[session]\nmax-message = 65m\n"),
                   "2: max-message: expected a size between 1k and 64m, got '65m'");
}

static const struct cascade_config *cascade(const struct fixture *f)
{
    assert_int_equal(cascade_of(f)->bridges.n, 1);
    return cascade_of(f)->bridges.items;
}

static void cascade_takes_every_setting(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("data = d\n")), 0);
    assert_int_equal(cascade_of(f)->bridges.n, 0);
    config_deinit(&f->c);
    assert_int_equal(load_file(f, STR("[cascade]\n"
                                      "target = http://localhost:42100/\n"
                                      "csrf-token = abc-1\n"
                                      "api-key = cog_x\n"
                                      "version = 2.1.0\n"
                                      "timeout = 1m\n"
                                      "parallel = 3\n"
                                      "tools = refuse\n")),
                     0);
    assert_string_equal(cascade(f)->target, "http://127.0.0.1:42100");
    assert_string_equal(cascade(f)->csrf_token, "abc-1");
    assert_string_equal(cascade(f)->api_key, "cog_x");
    assert_string_equal(cascade(f)->version, "2.1.0");
    assert_int_equal(cascade(f)->timeout_ms, 60000);
    assert_int_equal(cascade(f)->parallel, 3);
    assert_int_equal(cascade(f)->tools, CASCADE_TOOLS_REFUSE);
    config_deinit(&f->c);
    assert_int_equal(load_file(f, STR("[cascade]\ntarget = discover\n")), 0);
    assert_string_equal(cascade(f)->target, "discover");
    assert_null(cascade(f)->csrf_token);
    assert_null(cascade(f)->api_key);
    assert_int_equal(cascade(f)->timeout_ms, 300000);
    assert_int_equal(cascade(f)->tools, CASCADE_TOOLS_IGNORE);
    config_deinit(&f->c);
    setenv("WINDSURF_CSRF_TOKEN", "of-env", 1);
    assert_int_equal(load_file(f, STR("[cascade]\ntarget = http://[::1]:1\n")), 0);
    unsetenv("WINDSURF_CSRF_TOKEN");
    assert_string_equal(cascade(f)->target, "http://[::1]:1");
    assert_string_equal(cascade(f)->csrf_token, "of-env");
}

static void settings_of_cascade_are_checked(void **state)
{
    static const char *const elsewhere[] = {"192.168.1.1", "localhost.example", "0.0.0.0"};
    struct fixture *f = *state;
    assert_refused(f, STR("[cascade]\n"),
                   "1: [cascade] needs a line `target = http://127.0.0.1:PORT|discover`");
    assert_refused(f, STR("[cascade]\ntarget = http://127.0.0.1:1\n"),
                   "1: [cascade]: csrf-token is missing; give it, or WINDSURF_CSRF_TOKEN in the "
                   "environment, or let it be found with target = discover");
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        char file[128], why[256];
        snprintf(file, sizeof file, "[cascade]\ntarget = http://%s:1\n", elsewhere[i]);
        snprintf(why, sizeof why,
                 "2: target 'http://%s:1': a language server is spoken to on this machine only: "
                 "127.0.0.1 or ::1",
                 elsewhere[i]);
        assert_refused(f, str_of_cstr(file), why);
    }
    assert_refused(f, STR("[cascade]\ntarget = https://127.0.0.1:1\n"),
                   "2: target: expected http://127.0.0.1:PORT or discover, got "
                   "'https://127.0.0.1:1'");
    assert_refused(f, STR("[cascade]\ncsrf-token = a b\n"), "2: csrf-token: expected TOKEN");
    assert_refused(f, STR("[cascade]\ntarget = discover\n[cascade]\n"),
                   "3: there is a section [cascade] already");
}

static void headers_of_sections_are_checked(void **state)
{
    static const char *const form = "2: a section is written `[KIND NAME]` on a line of its own";
    struct fixture *f = *state;
    assert_refused(f, STR("\n[server]\ndata = x\n"),
                   "2: unknown section [server]; there are [caller NAME], [issuer NAME], "
                   "[anonymous], [route PATH], [session], [log NAME], [lab], [poll NAME], [tool "
                   "NAME], [pages] and [cascade]");
    assert_refused(f, STR("data = x\n  [routes /a]\n"),
                   "2: unknown section [routes]; did you mean [route PATH]?");
    assert_refused(f, STR("data = x\n[route]\n"), "2: the section needs a name: [route PATH]");
    assert_refused(f, STR("data = x\n[route /a\n"), form);
    assert_refused(f, STR("data = x\n[route /a] x = y\n"), form);
    assert_refused(f, STR("data = x\n\v\f[route /a] x\n"), form);
}

static void broken_lines_are_refused(void **state)
{
    struct fixture *f = *state;
    static char text[CONFIG_LINE_MAX + 1000];
    static const char too_long[] = "1: the line is longer than 65536 bytes";
    memset(text, 'x', sizeof text);
    memcpy(text, "data = ", 7);
    assert_refused(f, str_of(text, sizeof text), too_long);
    assert_refused(f, str_of(text, CONFIG_LINE_MAX + 1), too_long);
    assert_refused(f, STR("store = memory\ndata = a\0b\n"), "2: the line holds a NUL byte");
    assert_refused(f, STR("store = memory\n[route /a\0b]\n"), "2: the line holds a NUL byte");
    assert_refused(f, STR("\0"), "1: the line holds a NUL byte");
    /* One that just fits is whole, with and without an end. */
    for (size_t n = CONFIG_LINE_MAX - 5; n <= CONFIG_LINE_MAX; n++) {
        text[n] = '\n';
        for (size_t end = 0; end < 2; end++) {
            assert_int_equal(load_file(f, str_of(text, n + end)), 0);
            assert_int_equal(strlen(f->c.data), n - 7);
            config_deinit(&f->c);
        }
        text[n] = 'x';
    }
    memcpy(text, "[route /", 8);
    assert_refused(f, str_of(text, sizeof text), too_long);
    text[180] = ']';
    assert_int_equal(load_file(f, str_of(text, 181)), ERR_SYNTAX);
    assert_non_null(strstr(f->why, ":1: [route /xxx"));
    assert_non_null(strstr(f->why, "]: the name is longer than 128 bytes"));
}

/* As files were read before there was a reader of our own. */
static void lines_have_these_forms(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *line, *data;
    } rows[] = {
        {"data = a b", "a b"},
        {"data=a", "a"},
        {"data: a", "a"},
        {"data : a = b", "a = b"},
        {"data = a:b", "a:b"},
        {"\t data \t=\t a \t", "a"},
        {"data = a ; b", "a"},
        {"data = a\t;b", "a"},
        {"data = a;b", "a;b"},
        {"data = a # b", "a # b"},
        {"data =;b", ";b"},
        {"data = a\r", "a"},
        {"data = \"a\"", "\"a\""},
        {"data = a\\", "a\\"},
        {"; data = x\ndata = a", "a"},
        {"  # data = x\ndata = a", "a"},
        {"data = a\n  store = memory", "a"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(load_file(f, str_of_cstr(rows[i].line)), 0);
        assert_string_equal(f->c.data, rows[i].data);
        config_deinit(&f->c);
    }
    static const char form[] = "2: expected `name = value`";
    assert_refused(f, STR("\nstore\n"), form);
    assert_refused(f, STR("\n = memory\n"), form);
    assert_refused(f, STR("\nstore ; = memory\n"), form);
    assert_refused(f, STR("\n\xef\xbb\xbfstore\n"), form);
}

static void ten_thousand_sections_are_too_many(void **state)
{
    struct fixture *f = *state;
    struct buf text = {0};
    for (int i = 0; i < 10000; i++)
        buf_printf(&text, "[route /r%d]\n" UP, i);
    assert_refused(f, buf_str(&text), "2001: there are more than 1000 sections [route]");
    text.n = 0;
    buf_put(&text, STR("[route /r]\n" UP));
    for (int i = 0; i < 10000; i++)
        buf_put(&text, STR("forward = X-A\n"));
    assert_refused(f, buf_str(&text), "1003: forward 'X-A': more than 1000 are given");
    buf_deinit(&text);
}

static const struct pages_config *pages(const struct fixture *f)
{
    assert_int_equal(tools_of(f)->pages.n, 1);
    return tools_of(f)->pages.items;
}

static void pages_are_read(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(load_file(f, STR("data = d\n")), 0);
    assert_int_equal(pages(f)->cursor_ttl_ms, 300000);
    assert_null(pages(f)->cursor_session);
    assert_null(f->c.audit);
    assert_false(pages(f)->require_bearer);
    config_deinit(&f->c);
    assert_int_equal(load_file(f, STR("audit = /a\n[pages]\ncursor-ttl = 1h\n"
                                      "cursor-session = AQIDBAUGBwg\nrequire-bearer = yes\n"
                                      "capabilities = worker, a:b\n")),
                     0);
    assert_int_equal(pages(f)->cursor_ttl_ms, 3600000);
    assert_memory_equal(pages(f)->session, "\1\2\3\4\5\6\7\10", 8);
    assert_string_equal(f->c.audit, "/a");
    assert_true(pages(f)->require_bearer);
    assert_string_equal(pages(f)->capabilities.items[1], "a:b");
    config_deinit(&f->c);
    assert_refused(f, STR("[pages]\ncursor-session = AQID\n"),
                   "2: cursor-session: expected 8 bytes in base64, got 'AQID'");
    assert_refused(f, STR("[pages]\ncapabilities = wroker\n"),
                   "2: capabilities 'wroker': no such capability; did you mean worker?");
    assert_refused(f, STR("[pages]\ncursor-ttl = 1ms\n"),
                   "2: cursor-ttl: expected a duration between 1s and 7d, got '1ms'");
}

static void the_socket_of_tools_is_found(void **state)
{
    struct fixture *f = *state;
    setenv("ATD_SOCK", "/from/atd", 1);
    assert_int_equal(load_file(f, STR("data = d\n")), 0);
    assert_string_equal(tools_of(f)->socket, "/from/atd");
    config_deinit(&f->c);
    assert_int_equal(LOAD(f, "--tools-socket=/from/flag"), 0);
    assert_string_equal(tools_of(f)->socket, "/from/flag");
    config_deinit(&f->c);
    setenv("ATD_SOCK", "", 1);
    assert_int_equal(load_file(f, STR("data = d\n")), 0);
    assert_null(tools_of(f)->socket);
    unsetenv("ATD_SOCK");
    config_deinit(&f->c);
    char flag[200] = "--tools-socket=";
    memset(flag + 15, 'x', 108);
    assert_int_equal(LOAD(f, flag), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "the path of a Unix socket has at most 107 bytes"));
}

static void secrets_come_from_the_environment_alone(void **state)
{
    struct fixture *f = *state;
    const char *none[] = {NULL};
    assert_int_equal(load(f, none), 0);
    assert_null(gateway_of(f)->resume_secret);
    assert_null(gateway_of(f)->resume_secret_previous);
    config_deinit(&f->c);

    setenv("SSE_RESUME_SECRET", "", 1);
    setenv("HMAC_SECRET", "general", 1);
    setenv("SSE_RESUME_SECRET_PREVIOUS", "before", 1);
    setenv("ATD_CURSOR_SIGNING_KEY", "key", 1);
    assert_int_equal(load_file(f, STR("data = x\n")), 0);
    assert_string_equal(gateway_of(f)->resume_secret, "general");
    assert_string_equal(gateway_of(f)->resume_secret_previous, "before");
    assert_string_equal(tools_of(f)->cursor_key, "key");
    config_deinit(&f->c);
    assert_null(gateway_of(f)->resume_secret);

    setenv("SSE_RESUME_SECRET", "special", 1);
    int err = load(f, none);
    unsetenv("SSE_RESUME_SECRET");
    unsetenv("HMAC_SECRET");
    unsetenv("SSE_RESUME_SECRET_PREVIOUS");
    unsetenv("ATD_CURSOR_SIGNING_KEY");
    assert_int_equal(err, 0);
    assert_string_equal(gateway_of(f)->resume_secret, "special");
    config_deinit(&f->c);
    assert_int_equal(LOAD(f, "--resume-secret=x"), ERR_SYNTAX);
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
        {"--store=disk", "--store: expected embedded, memory or the URL of a Redis, got 'disk'"},
        {"--store=rdis://:secret@localhost", "--store: expected embedded, memory or URL"},
        {"--sync=sometimes", "--sync: expected always, interval:MS or never, got 'sometimes'"},
        {"--sync=interval:0", "--sync: expected always, interval:MS or never, got 'interval:0'"},
        {"--store=redis://:secret@localhost?prefix={x}",
         "--store: prefix= is at most 64 letters, digits and ._-:"},
        {"--store=redis://:secret@localhost?wait=100",
         "--store: wait= is a number of replicas up to 16"},
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
        {"--max-inflight-bytes=8m", "max-inflight-bytes must be at least max-append, or an append "
                                    "of the full size could never be taken"},
        {"--retain-events=-1", "--retain-events: expected a number up to 1000000000000, got '-1'"},
        {"--retain-bytes=some", "--retain-bytes: expected a size up to 1048576g, got 'some'"},
        {"--retain-age=999ms",
         "--retain-age: expected 0 or a duration between 1s and 3650d, got '999ms'"},
        {"--telemetry-prefix=a b",
         "--telemetry-prefix 'a b': expected up to 64 letters, digits and -._"},
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
    assert_non_null(strstr(text, "  [route PATH]\n"));
    assert_non_null(strstr(text, "  [caller NAME]\n"));
    assert_non_null(strstr(text, "  [session]\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 80);
    free(text);
}

/* ---- docs/configuration.md ---- */

static void put_cell(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            buf_putc(out, '\\');
        buf_putc(out, *text);
    }
}

/* The row that the document has for a setting: name, what it takes, default, what it does. */
static void put_doc_row(struct buf *out, const struct option_row *r)
{
    struct buf expected = {0};
    option_expected(r, &expected);
    buf_putc(&expected, '\0');
    const char *fallback = r->fallback ? r->fallback : r->type == OPTION_BOOL ? "no" : NULL;
    buf_printf(out, "| `%s` | ", r->name);
    put_cell(out, expected.p);
    buf_put(out, STR(" | "));
    if (r->fallback_env)
        buf_printf(out, "`%s`, else ", r->fallback_env);
    if (fallback)
        buf_printf(out, "`%s`", fallback);
    else
        buf_put(out, r->required ? STR("required") : STR("not set"));
    buf_put(out, STR(" | "));
    put_cell(out, r->help);
    buf_put(out, STR(" |\n"));
    buf_deinit(&expected);
}

/* Prints the rows that are missing, so that they can be put there. */
static int missing_rows(const struct options *o, const char *document)
{
    int missing = 0;
    for (size_t i = 0; i < o->n; i++) {
        struct buf row = {0};
        put_doc_row(&row, &o->rows[i]);
        buf_putc(&row, '\0');
        if (strstr(document, row.p) == NULL) {
            missing++;
            print_error("missing in docs/configuration.md:\n%s", row.p);
        }
        buf_deinit(&row);
    }
    return missing;
}

/* Freed by the caller. */
static char *read_document(void)
{
    FILE *from = fopen("docs/configuration.md", "r"); /* tests run at the top of the tree */
    assert_non_null(from);
    struct buf text = {0};
    size_t n;
    while ((n = fread(buf_reserve(&text, 4096), 1, 4096, from)) > 0)
        text.n += n;
    fclose(from);
    buf_putc(&text, '\0');
    return text.p;
}

static void the_document_has_every_setting(void **state)
{
    char *document = read_document();
    struct config_tables *tables = config_tables();
    int missing = missing_rows(&tables->options, document);
    const struct section_kinds *kinds = &tables->kinds;
    size_t settings = tables->options.n, rows = 0;
    for (size_t i = 0; i < kinds->n; i++) {
        char heading[64];
        const char *name = kinds->rows[i].name;
        snprintf(heading, sizeof heading, "\n### `[%s%s%s]`\n", kinds->rows[i].word,
                 name ? " " : "", name ? name : "");
        assert_non_null(strstr(document, heading));
        missing += missing_rows(kinds->rows[i].options, document);
        settings += kinds->rows[i].options->n;
    }
    assert_int_equal(missing, 0);
    for (const char *at = document; (at = strstr(at, "\n| `")) != NULL; at++)
        rows++;
    free(document);
    free(tables);
    assert_int_equal(rows, settings); /* more: one stayed behind that is no setting any more */
}

/* What stands there between "take effect at once:" and the callers. */
static void the_document_names_what_can_change(void **state)
{
    char *document = read_document(), name[80];
    char *from = strstr(document, "take effect at once:"),
         *to = strstr(document, "sections `[caller");
    assert_true(from != NULL && to != NULL);
    *to = '\0';
    size_t live = 0, ticks = 0;
    struct config_tables *tables = config_tables();
    for (size_t i = 0; i < tables->options.n; i++) {
        const struct option_row *r = &tables->options.rows[i];
        snprintf(name, sizeof name, "`%s`", r->name);
        live += r->live;
        if ((strstr(from, name) != NULL) != r->live)
            fail_msg("%s is%s live", r->name, r->live ? "" : " not");
    }
    for (const char *at = from; (at = strchr(at, '`')) != NULL; at++)
        ticks++;
    assert_int_equal(ticks, 2 * live);
    free(document);
    free(tables);
}

static void a_reload_takes_what_is_live(void **state)
{
    struct fixture *f = *state;
    struct config_change change;
    char *argv[] = {(char *)"--config", f->path, NULL};
    assert_int_equal(load_file(f, STR("heartbeat = 1s\ndata = a\nlisten = unix:/a\n")), 0);
    FILE *to = fopen(f->path, "w");
    fputs("heartbeat = 2s\ndata = b\nlisten = unix:/a\n[log l]\npath = x\n", to);
    fclose(to);
    assert_int_equal(config_reload(&f->c, 2, argv, &change, f->why, sizeof f->why), 0);
    assert_string_equal(change.taken, "heartbeat");
    assert_string_equal(change.restart, "data, [log]");
    assert_int_equal(f->c.heartbeat_ms, 2000);
    assert_string_equal(f->c.data, "a");
    assert_int_equal(logs_of(f)->logs.n, 0);
    config_deinit(&change.before);
    assert_int_equal(truncate(f->path, 5), 0);
    assert_int_equal(config_reload(&f->c, 2, argv, &change, f->why, sizeof f->why), ERR_SYNTAX);
    assert_non_null(strstr(f->why, ":1: expected"));
    assert_int_equal(f->c.heartbeat_ms, 2000);
}

/* Features wipe some secrets once they have them, others stay to be compared. */
static void a_reload_knows_secrets_as_they_were(void **state)
{
    struct fixture *f = *state;
    struct config_change change;
    char *argv[] = {(char *)"--config", f->path, NULL};
    setenv("SSE_RESUME_SECRET", "one", 1);
    setenv("WINDSURF_API_KEY", "cog_x", 1);
    assert_int_equal(load_file(f, STR("[cascade]\ntarget = http://127.0.0.1:1\ncsrf-token = a\n")),
                     0);
    config_forget(&f->c);
    assert_null(cascade(f)->csrf_token);
    assert_null(cascade(f)->api_key);
    assert_int_equal(config_reload(&f->c, 2, argv, &change, f->why, sizeof f->why), 0);
    config_deinit(&change.before);
    assert_string_equal(change.taken, "");
    assert_string_equal(change.restart, "");
    setenv("SSE_RESUME_SECRET", "two", 1);
    assert_int_equal(config_reload(&f->c, 2, argv, &change, f->why, sizeof f->why), 0);
    config_deinit(&change.before);
    assert_string_equal(change.restart, "SSE_RESUME_SECRET");
    unsetenv("SSE_RESUME_SECRET");
    unsetenv("WINDSURF_API_KEY");
}

/* The file between ```ini and ``` is one that works. */
static void the_example_of_the_document_loads(void **state)
{
    struct fixture *f = *state;
    char *document = read_document();
    char *start = strstr(document, "```ini\n");
    assert_non_null(start);
    start += 7;
    char *end = strstr(start, "```");
    assert_non_null(end);
    assert_int_equal(load_file(f, str_of(start, (size_t)(end - start))), 0);
    free(document);
    assert_in_range(gateway_of(f)->routes.n, 1, 10);
    assert_in_range(f->c.access.callers.n, 1, 10);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_these),
        TEST(a_file_is_read),
        TEST(flags_win_over_variables_over_the_file),
        TEST(errors_in_a_file_name_file_and_line),
        TEST(a_route_has_these_defaults),
        TEST(a_route_takes_every_setting),
        TEST(a_route_says_what_becomes_of_what_nobody_reads),
        TEST(the_sse_variables_give_defaults_of_routes),
        TEST(routes_have_a_short_form),
        TEST(prefixes_have_short_forms),
        TEST(parameters_of_upstreams_are_checked),
        TEST(paths_of_routes_are_checked),
        TEST(settings_of_sections_are_checked),
        TEST(callers_are_read),
        TEST(callers_are_checked),
        TEST(issuers_are_read),
        TEST(issuers_are_checked),
        TEST(sessions_have_these_defaults),
        TEST(sessions_take_every_setting),
        TEST(settings_of_sessions_are_checked),
        TEST(logs_are_read),
        TEST(settings_of_logs_are_checked),
        TEST(tools_are_read),
        TEST(a_schema_may_be_a_file),
        TEST(settings_of_tools_are_checked),
        TEST(cascade_takes_every_setting),
        TEST(settings_of_cascade_are_checked),
        TEST(headers_of_sections_are_checked),
        TEST(ten_thousand_sections_are_too_many),
        TEST(pages_are_read),
        TEST(the_socket_of_tools_is_found),
        TEST(secrets_come_from_the_environment_alone),
        TEST(lines_have_these_forms),
        TEST(broken_lines_are_refused),
        TEST(a_file_that_cannot_be_read_is_named),
        TEST(values_are_checked),
        TEST(retention_is_read_from_any_source),
        TEST(an_append_of_the_full_size_fits_the_journal),
        TEST(the_public_url_ends_without_a_slash),
        TEST(misspelt_variables_are_traced),
        TEST(help_names_every_setting),
        TEST(the_document_has_every_setting),
        TEST(the_document_names_what_can_change),
        TEST(a_reload_takes_what_is_live),
        TEST(a_reload_knows_secrets_as_they_were),
        TEST(the_example_of_the_document_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
