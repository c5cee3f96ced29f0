// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/route_config.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/num.h"
#include "base/units.h"
#include "base/http_url.h"
#include "feature/gateway/upstream_header.h"
#include "feature/gateway/upstream_url.h"
#include "http/path_pattern.h"

#define STEP_MAX    64 /* bytes */
#define CROWD_TIMES 10 /* so many callers' quota for all that are not known, if nothing is set */

/* ---- paths ---- */

static bool is_at_or_below(struct str path, struct str other)
{
    return str_starts(path, other) && (path.n == other.n || path.p[other.n] == '/');
}

/* What a server answers whatever its features are. Their paths are claimed when they open. Above
 * one a route has its place: the longer path wins. */
static bool is_reserved(struct str path)
{
    static const struct str reserved[] = {STR_INIT("/v1/stream"), STR_INIT("/metrics"),
                                          STR_INIT("/healthz"), STR_INIT("/readyz")};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (is_at_or_below(path, reserved[i]))
            return true;
    return false;
}

/* A client or a proxy would resolve these before they get here. */
static bool has_odd_segment(struct str path)
{
    for (struct str rest = str_skip(path, 1); rest.p;) {
        struct str segment = str_cut(&rest, '/');
        if (segment.n == 0 || str_eq(segment, STR(".")) || str_eq(segment, STR("..")))
            return true;
    }
    return false;
}

/* Requests are compared with it as they are written, so it has no escapes: those have two
 * spellings. */
int route_check_path(struct str path, char *reason, size_t size)
{
    if (!str_starts(path, STR("/")))
        snprintf(reason, size, "a path begins with `/`");
    else if (path.p[path.n - 1] == '/')
        snprintf(reason, size, "a route's path does not end with `/`");
    else if (!ascii_is_word(path, "/-._~:@+{}"))
        snprintf(reason, size, "a route's path is made of letters, digits and /-._~:@+");
    else if (path_pattern_check(path, reason, size) != 0)
        return ERR_SYNTAX;
    else if (has_odd_segment(path))
        snprintf(reason, size, "a route's path has no empty, `.` or `..` segment");
    else if (is_reserved(path))
        snprintf(reason, size, "the server answers under this path itself");
    else
        return 0;
    return ERR_SYNTAX;
}

int route_parse(struct str text, struct str *path, struct str *url, char *reason, size_t size)
{
    struct url ignored;
    struct str rest = text;
    *path = str_trim(str_cut(&rest, '='));
    *url = str_trim(rest);
    if (rest.p == NULL)
        return ERR_SYNTAX;
    int err = route_check_path(*path, reason, size);
    if (err != 0)
        return err;
    if (url_parse(*url, &ignored) == 0)
        return 0;
    snprintf(reason, size, "what stands behind the `=` is no http or https URL");
    return ERR_SYNTAX;
}

/* ---- checks ---- */

/* It becomes a part of resume tokens, whose parts are separated by colons. */
static int route_config_check_step(struct str value, char *reason, size_t size)
{
    if (value.n <= STEP_MAX && ascii_is_word(value, "-._"))
        return 0;
    snprintf(reason, size, "expected up to %d letters, digits and -._", STEP_MAX);
    return ERR_SYNTAX;
}

/* `continue`, `stop` or `stop-after TIME`. */
static int parse_disconnect(struct str text, enum route_disconnect *what, uint64_t *after_ms)
{
    struct str rest = text, word = str_cut(&rest, ' ');
    *what = str_eq(word, STR("continue")) ? ROUTE_DISCONNECT_CONTINUE : ROUTE_DISCONNECT_STOP;
    *after_ms = 0;
    if (str_eq(word, STR("continue")) || str_eq(word, STR("stop")))
        return rest.p == NULL ? 0 : ERR_SYNTAX;
    if (!str_eq(word, STR("stop-after")) || rest.p == NULL)
        return ERR_SYNTAX;
    int err = num_parse_duration_ms(str_trim(rest), after_ms);
    return err == 0 && *after_ms > DAY_MS ? ERR_SYNTAX : err;
}

static int route_config_check_disconnect(struct str value, char *reason, size_t size)
{
    enum route_disconnect what;
    uint64_t after_ms;
    if (parse_disconnect(value, &what, &after_ms) == 0)
        return 0;
    snprintf(reason, size, "expected continue, stop, or stop-after and a duration of up to 24h");
    return ERR_SYNTAX;
}

static int check_upstream(const struct route_config *r, const char *upstream, char *reason,
                          size_t size)
{
    struct upstream_place place = {
        .path = str_of_cstr(r->path), .upstream = str_of_cstr(upstream), .prefix = r->prefix};
    return upstream_url_check(&place, reason, size);
}

bool route_is_anthropic(const struct route_config *r, struct str path, bool has_version)
{
    static const struct str own[] = {STR_INIT("/messages"), STR_INIT("/complete")};
    struct str below = str_skip(path, path_pattern_covers(str_of_cstr(r->path), path));
    if (r->upstream_anthropic == NULL)
        return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (is_at_or_below(below, own[i]))
            return true;
    return has_version;
}

int route_finish(void *route, char *reason, size_t size)
{
    struct route_config *r = route;
    if (r->upstream != NULL && check_upstream(r, r->upstream, reason, size) != 0)
        return ERR_SYNTAX;
    if (r->upstream_anthropic != NULL &&
        check_upstream(r, r->upstream_anthropic, reason, size) != 0)
        return ERR_SYNTAX;
    if (r->dialect < 0)
        r->dialect = r->prefix ? ROUTE_DIALECT_AUTO : ROUTE_DIALECT_SSE;
    if (r->anonymous_per_minute == 0)
        r->anonymous_per_minute = CROWD_TIMES * r->requests_per_minute;
    return parse_disconnect(str_of_cstr(r->on_disconnect), &r->disconnect, &r->disconnect_ms);
}

/* ---- the table ---- */

#define ROW(...)                OPTION_ROW(struct route_config, __VA_ARGS__)
#define OR_VARIABLE(name, unit) .fallback_env = (name), .fallback_unit = (unit)

static const struct option_row rows[] = {
    {ROW("upstream", OPTION_TEXT, upstream), .value = "http://HOST/PATH|https://HOST/PATH",
     .required = true, .check = option_check_url,
     .help = "Where requests to this path are sent on. May have the {parameters} of the path. With "
             "prefix: a URL without a path keeps the path of the request; one with a path has it "
             "in place of the route's."},
    {ROW("prefix", OPTION_BOOL, prefix),
     .help = "Send on every request to this path and below it, whatever its method, unless the "
             "server answers there itself. Answers to a POST that are streams of events are "
             "recorded; all else is passed on as it is."},
    {ROW("upstream-anthropic", OPTION_TEXT, upstream_anthropic),
     .value = "http://HOST/PATH|https://HOST/PATH", .check = option_check_url,
     .help = "Where requests of Anthropic's API are sent on instead: those to messages and "
             "complete below this path, and those with the header anthropic-version."},
    {ROW("upstream-http", OPTION_CHOICE, upstream_http), .fallback = "1.1", .value = "1.1|auto|2",
     .help = "How the upstream is spoken to. auto: HTTP/2 where a https upstream chooses it. 2: "
             "also over http, by prior knowledge. With 1.1 an answer that breaks off is always "
             "told from one that has ended; with HTTP/2 not from a proxy that resets without an "
             "error."},
    {ROW("dialect", OPTION_CHOICE, dialect),
     .value = "auto|sse|openai|responses|anthropic|gemini|ag-ui|mcp|ui-message|ndjson",
     .help =
         "What the route's clients speak: how events are understood, and how errors and ends "
         "are told. auto: by the request's path, headers and body, else by the answer. sse: any "
         "server-sent events. openai: chat completions of OpenAI. responses: its Responses. "
         "anthropic: Messages. gemini: streamGenerateContent. ag-ui: AG-UI. mcp: JSON-RPC of "
         "MCP and A2A. ui-message: the UI message stream of the AI SDK. ndjson: a JSON value "
         "on each line, as Ollama sends them. Without it sse; with prefix auto."},
    {ROW("ids", OPTION_CHOICE, ids), .fallback = "plain", .value = "plain|full",
     .help =
         "Event ids of the dialect sse. plain: 1, 2, 3. full: GENERATION:1, GENERATION:2, as in "
         "the other dialects; a POST with such a Last-Event-ID goes on instead of asking anew."},
    {ROW("snapshot", OPTION_CHOICE, snapshot),
     .value = "none|last|openai|ui-message|responses|anthropic|gemini|ag-ui|mcp|ndjson",
     .help = "What is kept of a generation for those who come back after its events are gone: "
             "nothing, its last event, or the whole message put together. Without it last for the "
             "dialect sse, and the dialect's own otherwise."},
    {ROW("trim", OPTION_CHOICE, trim), .fallback = "lenient", .value = "lenient|strict",
     .help = "When the bounds of the buffer apply. lenient: to stores in memory (memory, Redis); "
             "on disk a generation keeps all its events. strict: always."},
    {ROW("forward", OPTION_LIST, forward), .value = "HEADER", .commas = true,
     .check = upstream_header_check_name,
     .help = "Request headers that the upstream gets although they are not sent on by default, "
             "such as Cookie, Origin and X-Forwarded-For; several with commas between them."},
    {ROW("drop", OPTION_LIST, drop), .value = "HEADER", .commas = true,
     .check = upstream_header_check_name,
     .help = "Request headers that the upstream does not get."},
    {ROW("upstream-header", OPTION_LIST, upstream_header),
     .value = "NAME: VALUE|@ENV:VARIABLE|@FILE:PATH", .secret = true,
     .check = upstream_header_check,
     .help = "A header that the upstream gets from this server, such as the provider's key; may be "
             "given many times. The client's header of that name is not sent on, nor are its "
             "Authorization, x-api-key and x-goog-api-key: these carry its token for this server "
             "then. A word may stand before the variable or the file: `Authorization: Bearer "
             "@ENV:KEY`."},
    {ROW("identity", OPTION_LIST, identity), .fallback = "Authorization,Cookie,X-Api-Key",
     .value = "HEADER", .commas = true, .check = upstream_header_check_name,
     .help = "Request headers that tell clients apart which are not known to this server: "
             "idempotency keys and chats are kept apart by their values. They do not count for "
             "limits."},
    {ROW("step", OPTION_TEXT, step), .fallback = "DRAFTING", .value = "WORD",
     .check = route_config_check_step,
     .help = "What resume tokens call a generation that is under way."},

    {ROW("requests-per-minute", OPTION_NUMBER, requests_per_minute), .fallback = "0", .value = "N",
     BETWEEN(0, 1000000),
     .help = "Requests of one caller that are taken in a minute; further ones are answered 429. "
             "Callers that are not known are counted by their address. 0 sets no bound."},
    {ROW("anonymous-per-minute", OPTION_NUMBER, anonymous_per_minute), .fallback = "0",
     .value = "N", BETWEEN(0, 10000000),
     .help = "The same for all callers together that are not known. 0: ten times "
             "requests-per-minute."},
    {ROW("parallel", OPTION_NUMBER, parallel), .fallback = "0", .value = "N", BETWEEN(0, 1000000),
     .help =
         "Generations, and requests that are passed on, under way at the same time; further ones "
         "are answered 429. 0 sets no bound."},
    {ROW("max-body", OPTION_SIZE, max_body_bytes), .fallback = "16m", .value = "SIZE",
     BETWEEN(KIB, GIB),
     .help = "The largest request body; a larger one is answered 413. With prefix it is passed on "
             "instead, and the answer is not recorded, if its length is known."},
    {ROW("connect-timeout", OPTION_DURATION, connect_timeout_ms), .fallback = "10s",
     .value = "TIME", BETWEEN(10, HOUR_MS),
     .help = "How long a connection to the upstream may take to open."},
    {ROW("first-byte-timeout", OPTION_DURATION, first_byte_timeout_ms), .fallback = "10m",
     .value = "TIME", BETWEEN(10, DAY_MS),
     .help = "How long the upstream may take to begin its answer. SDKs wait 10 minutes."},
    {ROW("idle-timeout", OPTION_DURATION, idle_timeout_ms), .fallback = "60s", .value = "TIME",
     BETWEEN(10, DAY_MS), .help = "How long the upstream may then be silent."},
    {ROW("total-timeout", OPTION_DURATION, total_timeout_ms), .fallback = "1h", .value = "TIME",
     BETWEEN(10, 30 * DAY_MS), .zero_is_off = true,
     .help = "How long a generation may take in all. 0 sets no bound."},
    {ROW("on-disconnect", OPTION_TEXT, on_disconnect), .fallback = "continue",
     .value = "continue|stop-after TIME|stop", .check = route_config_check_disconnect,
     .help = "What becomes of a generation when its last reader has gone before its end: it goes "
             "on, it is stopped unless somebody comes back within the time, or it is stopped at "
             "once. Readers at other servers do not count."},

    {ROW("key-lifetime", OPTION_DURATION, key_lifetime_ms), .fallback = "24h", .value = "TIME",
     BETWEEN(SECOND_MS, 365 * DAY_MS),
     .help = "How long an idempotency key leads to the generation that it began."},
    {ROW("response-ttl", OPTION_DURATION, response_ttl_ms), .fallback = "24h", .value = "TIME",
     BETWEEN(SECOND_MS, 365 * DAY_MS),
     .help = "How long a response of the dialect responses is kept after its last event: its "
             "events, the response and its input. At least state-ttl."},
    {ROW("buffer-max-events", OPTION_NUMBER, buffer_max_events), .fallback = "256", .value = "N",
     OR_VARIABLE("SSE_BUFFER_MAX_EVENTS", 1), BETWEEN(1, 10000000),
     .help = "Maximum number of events of a generation that are kept for resuming; trim says when "
             "this applies. The oldest are removed first, once every connected reader has them."},
    {ROW("buffer-max-bytes", OPTION_SIZE, buffer_max_bytes), .fallback = "1536k", .value = "SIZE",
     OR_VARIABLE("SSE_BUFFER_MAX_SIZE_MB", MIB), BETWEEN(1, 64 * GIB),
     .help = "The same by bytes."},
    {ROW("state-ttl", OPTION_DURATION, state_ttl_ms), .fallback = "900s", .value = "TIME",
     OR_VARIABLE("SSE_STATE_TTL_SEC", SECOND_MS), BETWEEN(1, 365 * DAY_MS),
     .help = "How long after its last event a generation can be resumed."},
    {ROW("snapshot-ttl", OPTION_DURATION, snapshot_ttl_ms), .fallback = "60s", .value = "TIME",
     OR_VARIABLE("SSE_SNAPSHOT_TTL_SEC", SECOND_MS), BETWEEN(1, 365 * DAY_MS),
     .help = "How long a snapshot is kept after the events are gone."},
    {ROW("resume-ttl", OPTION_DURATION, resume_ttl_ms), .fallback = "900s", .value = "TIME",
     OR_VARIABLE("SSE_RESUME_TTL_MS", 1), BETWEEN(1, 365 * DAY_MS),
     .help = "How long a resume token is good."},
};
const struct options route_options = {rows, sizeof rows / sizeof *rows};
