// SPDX-License-Identifier: Apache-2.0
#include "app/config.h"
#include "base/ascii.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/secret.h"
#include "base/units.h"
#include "app/caller_config.h"
#include "feature/cascade/cascade_config.h"
#include "app/config_file.h"
#include "http/url.h"
#include "feature/lab/lab_config.h"
#include "feature/logs/log_config.h"
#include "net/addr.h"
#include "store/redis/client/redis.h"
#include "feature/tools/pages_config.h"
#include "feature/poll/poll_config.h"
#include "feature/gateway/route_config.h"
#include "feature/sessions/session_config.h"
#include "store/embedded/journal.h"
#include "store/redis/redis_store.h"
#include "telemetry/trace.h"
#include "feature/tools/tool_config.h"

#include <stdlib.h>

#define RETAIN_EVENTS_MAX   1000000000000
#define DNS_NAME_MAX        253
#define PREFIX_MAX          64 /* bytes of telemetry-prefix */

/* What a record of the journal holds besides an append's bytes: names, a claim, documents. */
#define RECORD_HEAD_MAX     MIB
#define EMBEDDED_APPEND_MAX (JOURNAL_RECORD_MAX - RECORD_HEAD_MAX)

/* ---- checks ---- */

static int config_check_listen(struct str value, char *reason, size_t size)
{
    struct addr ignored;
    return addr_parse_listen(value, &ignored, reason, size);
}

/* The one place that knows which stores are built in. */
static int config_check_store(struct str value, char *reason, size_t size)
{
    if (str_eq(value, STR("memory")) || str_eq(value, STR("embedded")))
        return 0;
    if (!str_starts(value, STR("redis")) && !str_starts(value, STR("unix:"))) {
        if (ascii_is_word(value, "-_")) /* and not something with a password in it */
            snprintf(reason, size, "expected embedded, memory or the URL of a Redis, got '%.*s'",
                     (int)value.n, value.p);
        return ERR_SYNTAX;
    }
    struct redis_url *url;
    int err = redis_url_parse(value, &url, reason, size);
    if (err != 0)
        return err;
    err = redis_store_check(url, reason, size);
    redis_url_free(url);
    return err;
}

/* `always`, `never`, or `interval:` and a time. */
static int parse_sync(struct str value, int *sync, uint64_t *interval_ms)
{
    *sync = JOURNAL_SYNC_ALWAYS;
    if (str_eq(value, STR("always")))
        return 0;
    *sync = JOURNAL_SYNC_NEVER;
    if (str_eq(value, STR("never")))
        return 0;
    *sync = JOURNAL_SYNC_INTERVAL;
    struct str kind = str_cut(&value, ':');
    if (!str_eq(kind, STR("interval")))
        return ERR_SYNTAX;
    /* A plain number is milliseconds. */
    if (num_parse(value, HOUR_MS, interval_ms) != 0 &&
        num_parse_duration_ms(value, interval_ms) != 0)
        return ERR_SYNTAX;
    return *interval_ms == 0 || *interval_ms > HOUR_MS ? ERR_SYNTAX : 0;
}

static int config_check_sync(struct str value, char *reason, size_t size)
{
    int sync;
    uint64_t interval_ms;
    return parse_sync(value, &sync, &interval_ms);
}

static int config_check_public_url(struct str value, char *reason, size_t size)
{
    struct url url;
    bool query = memchr(value.p, '?', value.n) != NULL;
    return query || url_parse(value, &url) != 0 ? ERR_SYNTAX : 0;
}

static int config_check_host_name(struct str value, char *reason, size_t size)
{
    if (value.n <= DNS_NAME_MAX && ascii_is_word(value, "-._"))
        return 0;
    snprintf(reason, size, "expected the name of a host, without a port");
    return ERR_SYNTAX;
}

static int config_check_route(struct str value, char *reason, size_t size)
{
    struct str path, url;
    return route_parse(value, &path, &url, reason, size);
}

static int config_check_socket(struct str value, char *reason, size_t size)
{
    if (value.n <= ADDR_PATH_MAX)
        return 0;
    snprintf(reason, size, "the path of a Unix socket has at most %d bytes", ADDR_PATH_MAX);
    return ERR_SYNTAX;
}

static int config_check_prefix(struct str value, char *reason, size_t size)
{
    if (value.n <= PREFIX_MAX && ascii_is_word(value, "-._"))
        return 0;
    snprintf(reason, size, "expected up to %d letters, digits and -._", PREFIX_MAX);
    return ERR_SYNTAX;
}

/* ---- the table ---- */

#define ROW(key, kind, member) .name = key, .type = kind, .field = offsetof(struct config, member)
#define BETWEEN(least, most)   .min = (least), .max = (most)

/* The first row is no setting of the file, which cannot name another file. */
#define FILE_ROWS_FROM         1
static const struct option_row rows[] = {
    {ROW("config", OPTION_TEXT, file), .value = "FILE",
     .help = "Read settings from this file, one `name = value` a line."},
    {ROW("listen", OPTION_LIST, listen), .fallback = "127.0.0.1:4437",
     .value = "HOST:PORT|unix:PATH", .check = config_check_listen,
     .help = "Where to listen; may be given many times. Port 0 takes any free port."},
    {ROW("tls-cert", OPTION_TEXT, tls_cert), .value = "FILE",
     .help = "Speak TLS on every TCP address, with the certificate in this file: PEM, followed by "
             "those between it and its authority. SIGHUP reads it again."},
    {ROW("tls-key", OPTION_TEXT, tls_key), .value = "FILE",
     .help = "The private key of tls-cert: PEM, without a password."},
    {ROW("data", OPTION_TEXT, data), .fallback = CONFIG_DATA, .value = "DIR",
     .help = "Where data is kept."},
    {ROW("store", OPTION_TEXT, store), .fallback = "embedded", .value = "embedded|memory|URL",
     .secret = true, .check = config_check_store,
     .help = "What keeps the events. embedded: on disk, in the data directory. memory: what it "
             "holds is gone when the server stops. redis://HOST:PORT (or rediss://, unix:PATH, "
             "redis+sentinel://, redis+cluster://): in Redis, which any number of servers may "
             "share."},
    {ROW("sync", OPTION_TEXT, sync_text), .fallback = "always", .value = "always|interval:MS|never",
     .check = config_check_sync,
     .help = "When the embedded store makes the disk write. always: before an append is answered. "
             "interval: a power cut may take what was answered in the last so many milliseconds. "
             "never: as much as the system likes to hold back. A crash of the server alone loses "
             "nothing in any of them."},
    {ROW("cache-bytes", OPTION_SIZE, cache_bytes), .fallback = "64m", .value = "SIZE",
     BETWEEN(MIB, 1024 * GIB), .help = "Memory for events that rest on disk and were read lately."},
    {ROW("disk-cap", OPTION_SIZE, disk_cap_bytes), .fallback = "0", .value = "SIZE",
     BETWEEN(64 * MIB, 1024 * 1024 * GIB), .zero_is_off = true,
     .help = "The most that the embedded store may take of the disk; appends beyond it are "
             "answered 507. 0 sets no bound."},
    {ROW("public-url", OPTION_TEXT, public_url), .value = "http://HOST|https://HOST",
     .check = config_check_public_url,
     .help = "How clients reach this server, if not by the address they ask at, as behind a "
             "proxy. Links in answers and webhooks begin with it. Without it they follow the "
             "request's Host."},
    {ROW("allow-host", OPTION_LIST, allow_host), .live = true, .value = "NAME",
     .check = config_check_host_name,
     .help = "Another name of this server; may be given many times. Metrics, logs, tools and the "
             "Lab answer only if a request's Host is such a name, public-url's, localhost or an IP "
             "address, so that no site can point its own name at this server."},

    {ROW("retain-events", OPTION_NUMBER, retain_events), .live = true, .heading = "Retention",
     .fallback = "0", .value = "N", BETWEEN(0, RETAIN_EVENTS_MAX),
     .help = "Maximum number of events per stream. The oldest are removed first. A stream can set "
             "its own limit. 0 keeps all."},
    {ROW("retain-bytes", OPTION_SIZE, retain_bytes), .live = true, .fallback = "0", .value = "SIZE",
     BETWEEN(0, 1024 * 1024 * GIB),
     .help = "The same by bytes; the newest event is kept whatever its size. 0 sets no bound."},
    {ROW("retain-age", OPTION_DURATION, retain_age_ms), .fallback = "0", .value = "TIME",
     BETWEEN(SECOND_MS, 3650 * DAY_MS), .zero_is_off = true,
     .help = "The same by age: an event is kept for this time. 0 sets no bound."},

    {ROW("max-connections", OPTION_NUMBER, max_connections), .live = true, .heading = "Limits",
     .fallback = "10000", .value = "N", BETWEEN(1, 1000000),
     .help = "Connections open at the same time; further ones are answered 503."},
    {ROW("max-streams", OPTION_NUMBER, max_streams), .live = true, .fallback = "100", .value = "N",
     BETWEEN(1, 10000),
     .help = "Requests open at the same time on one HTTP/2 connection, live readers among them; "
             "further ones are refused."},
    {ROW("max-append", OPTION_SIZE, max_append_bytes), .fallback = "64m", .value = "SIZE",
     BETWEEN(KIB, GIB),
     .help = "The largest body of one append; a larger one is answered 413. At most 95m with the "
             "embedded store."},
    {ROW("max-inflight-bytes", OPTION_SIZE, max_inflight_bytes), .fallback = "256m",
     .value = "SIZE", BETWEEN(KIB, 1024 * GIB),
     .help = "Request bodies held in memory at the same time, all together; beyond it requests "
             "are answered 503. At least max-append."},
    {ROW("max-fork-depth", OPTION_NUMBER, max_fork_depth), .fallback = "64", .value = "N",
     BETWEEN(0, 1000),
     .help = "The longest chain of forks of forks; a fork that would make it longer is answered "
             "422. 0 allows no forks."},
    {ROW("read-chunk", OPTION_SIZE, read_chunk_bytes), .fallback = "1m", .value = "SIZE",
     BETWEEN(KIB, 64 * MIB),
     .help = "The most bytes that one catch-up answer carries; clients go on from where it ends."},

    {ROW("head-timeout", OPTION_DURATION, head_timeout_ms), .live = true, .heading = "Timeouts",
     .fallback = "10s", .value = "TIME", BETWEEN(100, 10 * MINUTE_MS),
     .help = "How long the head of a request may take to arrive."},
    {ROW("idle-timeout", OPTION_DURATION, idle_timeout_ms), .live = true, .fallback = "60s",
     .value = "TIME", BETWEEN(100, DAY_MS),
     .help = "How long a connection may stay open between two requests."},
    {ROW("body-timeout", OPTION_DURATION, body_timeout_ms), .live = true, .fallback = "10s",
     .value = "TIME", BETWEEN(100, 10 * MINUTE_MS),
     .help = "In this time a request body must bring at least body-rate-min bytes."},
    {ROW("body-rate-min", OPTION_SIZE, body_rate_min), .live = true, .fallback = "1k",
     .value = "SIZE", BETWEEN(1, MIB), .help = "See body-timeout."},
    {ROW("write-timeout", OPTION_DURATION, write_timeout_ms), .live = true, .fallback = "60s",
     .value = "TIME", BETWEEN(100, HOUR_MS),
     .help = "After this time the server disconnects a client that takes nothing of its answer, or "
             "that reads so slowly that it holds a generation back."},
    {ROW("drain-timeout", OPTION_DURATION, drain_timeout_ms), .live = true, .fallback = "30s",
     .value = "TIME", BETWEEN(0, HOUR_MS),
     .help = "When the server is stopped, how long answers and requests under way may take to "
             "finish."},

    {ROW("long-poll-timeout", OPTION_DURATION, long_poll_timeout_ms), .live = true,
     .heading = "Live reads", .fallback = "4s", .value = "TIME", BETWEEN(100, 5 * MINUTE_MS),
     .help = "How long a long-poll waits for news before it is answered without any."},
    {ROW("heartbeat", OPTION_DURATION, heartbeat_ms), .live = true, .fallback = "10s",
     .value = "TIME", BETWEEN(100, HOUR_MS), .zero_is_off = true,
     .help = "How often a quiet SSE answer carries a comment, so that nothing on the way takes it "
             "for dead. 0 sends none."},
    {ROW("sse-lifetime", OPTION_DURATION, sse_lifetime_ms), .live = true, .fallback = "60s",
     .value = "TIME", BETWEEN(100, DAY_MS),
     .help = "After this time a live SSE answer ends and the client connects again from where it "
             "was."},
    {ROW("sse-retry", OPTION_DURATION, sse_retry_ms), .live = true, .fallback = "100ms",
     .value = "TIME", BETWEEN(1, HOUR_MS), .zero_is_off = true, .bare_ms = true,
     .help = "How long a browser's EventSource waits before it connects again, after sse-lifetime "
             "or a lost connection. A plain number is milliseconds. 0 leaves it to the browser."},

    {ROW("route", OPTION_LIST, route), .heading = "Routes", .value = "PATH=URL",
     .check = config_check_route,
     .help = "Send requests to this path on to this URL and make the answers resumable; may be "
             "given many times. [route PATH] in the file is the long form; where both name a path, "
             "the section's URL gives way."},
    {ROW("telemetry-prefix", OPTION_TEXT, telemetry_prefix), .fallback = "assist.sse",
     .value = "PREFIX", .check = config_check_prefix,
     .help = "What the names of the routes' telemetry events begin with."},

    {ROW("tools-socket", OPTION_TEXT, tools_socket), .heading = "Tools", .value = "PATH",
     .check = config_check_socket,
     .help = "Let programs of the same user call tools over a Unix socket at this path. Without it "
             "the one that ATD_SOCK names, if it does."},

    {ROW("allow-private-targets", OPTION_BOOL, allow_private_targets),
     .heading = "Outgoing requests", .fallback = "no",
     .help = "Whether webhooks may reach addresses of private networks."},
    {ROW("allow-loopback-targets", OPTION_BOOL, allow_loopback_targets), .fallback = "no",
     .help =
         "Whether webhooks may reach other servers on this machine. They never reach this one."},

    {ROW("trace", OPTION_CHOICE, trace_form), .live = true, .heading = "Traces",
     .fallback = "human", .value = "human|json", .help = "How lines on standard error look."},
    {ROW("trace-level", OPTION_CHOICE, trace_level), .live = true, .fallback = "info",
     .value = "error|warn|info|debug",
     .help = "How much is said there: this level and those before it."},
};
static const struct options options = {rows, sizeof rows / sizeof *rows};
static const struct options file_options = {rows + FILE_ROWS_FROM,
                                            sizeof rows / sizeof *rows - FILE_ROWS_FROM};

/* ---- sections ---- */

#define KIND(type, list, its_name)                                                                 \
    .size = sizeof(struct type), .name_field = offsetof(struct type, its_name),                    \
    .list_field = offsetof(struct config, list)

enum {
    KIND_ROUTE,
    KIND_CALLER,
    KIND_SESSION,
    KIND_LOG,
    KIND_LAB,
    KIND_POLL,
    KIND_TOOL,
    KIND_PAGES,
    KIND_CASCADE,
};
static const struct section_kind kind_rows[] = {
    [KIND_ROUTE] = {.word = "route",
                    .name = "PATH",
                    KIND(route_config, routes, path),
                    .options = &route_options,
                    .check_name = route_check_path,
                    .finish = route_finish,
                    .help = "A path whose requests are sent on to an upstream, and whose answers "
                            "are resumable."},
    [KIND_CALLER] = {.word = "caller",
                     .name = "NAME",
                     KIND(caller_config, callers, name),
                     .options = &caller_options,
                     .check_name = caller_check_name,
                     .finish = caller_finish,
                     .help = "A program that is known by its token, and what it may do."},
    [KIND_SESSION] = {.word = "session",
                      .size = sizeof(struct session_config),
                      .list_field = offsetof(struct config, session),
                      .options = &session_options,
                      .finish = session_finish,
                      .help = "Who answers the clients of sessions, and how long what is kept."},
    [KIND_LOG] = {.word = "log",
                  .name = "NAME",
                  KIND(log_config, logs, name),
                  .options = &log_options,
                  .check_name = log_check_name,
                  .help = "A file of JSON objects, one a line, that is read, followed and appended "
                          "to at /v1/log/NAME."},
    [KIND_LAB] = {.word = "lab",
                  .size = sizeof(struct lab_config),
                  .list_field = offsetof(struct config, lab),
                  .options = &lab_options,
                  .finish = lab_config_finish,
                  .help = "A Lab under /lab and /api/, where people look at runs and say what they "
                          "think of them."},
    [KIND_POLL] = {.word = "poll",
                   .name = "NAME",
                   KIND(poll_config, polls, name),
                   .options = &poll_options,
                   .check_name = poll_check_name,
                   .finish = poll_config_finish,
                   .help = "A resource that can only be polled, as the stream poll/NAME, read at "
                           "/v1/stream/poll/NAME."},
    [KIND_TOOL] = {.word = "tool",
                   .name = "NAME",
                   KIND(tool_config, tools, name),
                   .options = &tool_options,
                   .check_name = tool_check_name,
                   .finish = tool_finish,
                   .help = "A program or a URL whose result agents ask for, page by page."},
    [KIND_PAGES] = {.word = "pages",
                    .size = sizeof(struct pages_config),
                    .list_field = offsetof(struct config, pages),
                    .options = &pages_options,
                    .finish = pages_config_finish,
                    .help = "Who may call tools, and how long the rest of a result can be asked "
                            "for."},
    [KIND_CASCADE] = {.word = "cascade",
                      .size = sizeof(struct cascade_config),
                      .list_field = offsetof(struct config, cascade),
                      .options = &cascade_options,
                      .finish = cascade_config_finish,
                      .help = "A bridge to the language server of an editor on this machine, at "
                              "/v1/chat/completions and /v1/models."},
};
static const struct section_kinds kinds = {kind_rows, sizeof kind_rows / sizeof *kind_rows};

static struct str short_path(const struct config *c, size_t i)
{
    struct str rest = str_of_cstr(c->route.items[i]);
    return str_trim(str_cut(&rest, '='));
}

static bool is_given_before(const struct config *c, size_t i)
{
    struct str path = short_path(c, i);
    for (size_t j = 0; j < i; j++)
        if (str_eq(short_path(c, j), path))
            return true;
    return false;
}

/* The i-th `PATH=URL`: another URL for a section of the file, or a route with defaults. */
static int apply_route(struct config *c, size_t i, char *why, size_t size)
{
    const struct section_kind *kind = &kinds.rows[KIND_ROUTE];
    struct str path, url;
    route_parse(str_of_cstr(c->route.items[i]), &path, &url, why, size);
    struct section s = {kind, sections_find(kind, c, path)};
    if (is_given_before(c, i) || (s.settings && c->route.source == OPTION_FROM_FILE)) {
        snprintf(why, size, "the route %.*s is given twice", (int)path.n, path.p);
        return ERR_SYNTAX;
    }
    int err = s.settings ? 0 : sections_add(kind, c, path, &s, why, size);
    if (err == 0)
        err = options_set(&route_options, s.settings, STR("upstream"), url, why, size);
    return err == 0 ? section_finish(&s, why, size) : err;
}

static int apply_routes(struct config *c, char *why, size_t size)
{
    int err = 0;
    for (size_t i = 0; err == 0 && i < c->route.n; i++)
        err = apply_route(c, i, why, size);
    return err;
}

/* A token has to tell who calls. */
static int check_callers(const struct config *c, char *why, size_t size)
{
    const struct caller_config *callers = c->callers.items;
    for (size_t i = 0; i < c->callers.n; i++)
        for (size_t j = 0; j < i; j++)
            if (memcmp(callers[i].token_sha256, callers[j].token_sha256, CALLER_DIGEST_N) == 0) {
                snprintf(why, size, "the callers %s and %s have the same token-sha256",
                         callers[j].name, callers[i].name);
                return ERR_SYNTAX;
            }
    return 0;
}

/* There are sessions and tools without their sections, too: with the defaults. */
static int default_sections(struct config *c, char *why, size_t size)
{
    struct section ignored;
    int err = 0;
    if (c->session.n == 0)
        err = sections_add(&kinds.rows[KIND_SESSION], c, STR_NONE, &ignored, why, size);
    if (err == 0 && c->pages.n == 0)
        err = sections_add(&kinds.rows[KIND_PAGES], c, STR_NONE, &ignored, why, size);
    return err;
}

/* ---- secrets ---- */

/* Flags show them to more eyes than the environment does. */
static int load_secrets(struct config *c, char *why, size_t size)
{
    int err = env_secret_get("SSE_RESUME_SECRET", &c->resume_secret, why, size);
    if (err == 0 && c->resume_secret == NULL)
        err = env_secret_get("HMAC_SECRET", &c->resume_secret, why, size);
    if (err == 0)
        err = env_secret_get("SSE_RESUME_SECRET_PREVIOUS", &c->resume_secret_previous, why, size);
    if (err == 0)
        err = env_secret_get("ATD_CURSOR_SIGNING_KEY", &c->cursor_key, why, size);
    return err;
}

/* There are secrets in the file (what came by the environment is shielded as it is), or programs
 * are started, of the same user, who might look into the environment for others'. */
static bool needs_shield(const struct config *c)
{
    const struct poll_config *polls = c->polls.items;
    const struct tool_config *tools = c->tools.items;
    bool needs = strchr(c->store, '@') != NULL || c->tls_key != NULL ||
                 cascade_shield(&c->cascade);
    for (size_t i = 0; i < c->polls.n; i++)
        needs = needs || polls[i].headers.n > 0;
    for (size_t i = 0; i < c->tools.n; i++)
        needs = needs || tools[i].command.n > 0;
    return needs;
}

/* ---- doubts ---- */

#define SECRET_LEAST 32 /* bytes: as many as the signatures have */

static bool is_short(const char *secret)
{
    return secret != NULL && strlen(secret) < SECRET_LEAST;
}

static bool has_routes(const struct config *c)
{
    return c->routes.n > 0 || c->cascade.n > 0;
}

static bool bounds_a_buffer(const struct config *c)
{
    const struct route_config *r = c->routes.items;
    for (size_t i = 0; i < c->routes.n; i++)
        if (r[i].trim == ROUTE_TRIM_LENIENT &&
            (!options_is_default(&route_options, &r[i], STR("buffer-max-events")) ||
             !options_is_default(&route_options, &r[i], STR("buffer-max-bytes"))))
            return true;
    return false;
}

static bool changes(const struct config *c, const char *setting)
{
    return !options_is_default(&options, c, str_of_cstr(setting));
}

size_t config_doubts(const struct config *c, struct config_doubt out[CONFIG_DOUBTS_MAX])
{
    static const char no_disk[] = "does not apply: the store is not on this disk";
    bool embedded = str_eq(str_of_cstr(c->store), STR("embedded"));
    const struct {
        bool holds;
        struct config_doubt doubt;
    } cases[] = {
        {has_routes(c) && c->resume_secret == NULL,
         {"SSE_RESUME_SECRET", "is not set: answers carry no tokens to resume with"}},
        {is_short(c->resume_secret),
         {"SSE_RESUME_SECRET", "has less than 32 bytes: whoever guesses it can resume anything"}},
        {is_short(c->resume_secret_previous),
         {"SSE_RESUME_SECRET_PREVIOUS",
          "has less than 32 bytes: whoever guesses it can resume anything"}},
        {!embedded && changes(c, "data"), {"data", no_disk}},
        {!embedded && changes(c, "sync"), {"sync", no_disk}},
        {!embedded && changes(c, "cache-bytes"), {"cache-bytes", no_disk}},
        {!embedded && changes(c, "disk-cap"), {"disk-cap", no_disk}},
        {env_secret_file_is_open(c->tls_key),
         {"tls-key", "is in a file that other users can read: chmod o-r"}},
        {embedded && bounds_a_buffer(c),
         {"buffer-max-events",
          "and buffer-max-bytes do not apply on disk: a route needs `trim = strict` for them"}},
    };
    _Static_assert(sizeof cases / sizeof *cases + ENV_SECRETS <= CONFIG_DOUBTS_MAX, "room for all");
    size_t n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].holds)
            out[n++] = cases[i].doubt;
    for (size_t i = 0; env_secret_names[i] != NULL; i++)
        if (env_secret_is_open(env_secret_names[i]))
            out[n++] = (struct config_doubt){env_secret_names[i],
                                             "is in a file that other users can read: chmod o-r"};
    return n;
}

/* ---- all sources ---- */

/* Where other programs of this kind look, too. */
static int default_socket(struct config *c, char *why, size_t size)
{
    const char *path = getenv("ATD_SOCK");
    if (c->tools_socket != NULL || path == NULL || path[0] == '\0')
        return 0;
    return options_set(&options, c, STR("tools-socket"), str_of_cstr(path), why, size);
}

static int check_together(struct config *c, char *why, size_t size)
{
    bool embedded = str_eq(str_of_cstr(c->store), STR("embedded"));
    if (embedded && c->max_append_bytes > EMBEDDED_APPEND_MAX) {
        snprintf(why, size,
                 "max-append must be at most %llum with the embedded store, whose journal takes "
                 "no larger append",
                 (unsigned long long)(EMBEDDED_APPEND_MAX / MIB));
        return ERR_SYNTAX;
    }
    if (c->max_inflight_bytes < c->max_append_bytes) {
        snprintf(why, size,
                 "max-inflight-bytes must be at least max-append, or an append of the "
                 "full size could never be taken");
        return ERR_SYNTAX;
    }
    if ((c->tls_cert == NULL) != (c->tls_key == NULL)) {
        snprintf(why, size, "%s is given without %s; TLS needs both",
                 c->tls_cert ? "tls-cert" : "tls-key", c->tls_cert ? "tls-key" : "tls-cert");
        return ERR_SYNTAX;
    }
    int err = apply_routes(c, why, size);
    if (err == 0)
        err = check_callers(c, why, size);
    if (err == 0)
        err = default_sections(c, why, size);
    if (err == 0)
        err = default_socket(c, why, size);
    if (err != 0)
        return err;
    parse_sync(str_of_cstr(c->sync_text), &c->sync, &c->sync_interval_ms);
    for (size_t n = c->public_url ? strlen(c->public_url) : 0; n > 0 && c->public_url[n - 1] == '/';
         n--)
        c->public_url[n - 1] = '\0';
    return 0;
}

/* path: NULL reads no file. */
static int load_sources(struct config *c, const char *path, int argc, char **argv, char *why,
                        size_t size)
{
    int positional = 0;
    *c = (struct config){0};
    int err = options_defaults(&options, c, why, size);
    if (err == 0 && path)
        err = config_file_read(path, &file_options, &kinds, c, why, size);
    if (err == 0)
        err = options_env(&options, c, why, size);
    if (err == 0)
        err = options_args(&options, c, argc, argv, &positional, why, size);
    if (err == 0 && positional > 0) {
        snprintf(why, size, "unexpected argument '%.60s'", argv[0]);
        err = ERR_SYNTAX;
    }
    if (err != 0)
        config_deinit(c);
    return err;
}

static void warn_of_typos(const struct trace *t)
{
    struct str name;
    for (size_t at = 0; (name = options_env_typo(&options, &at)).p;)
        trace(t, CONFIG_UNKNOWN, TRACE_STR("setting", name),
              TRACE_STR("place", STR("the environment")));
}

static int load_all(struct config *c, int argc, char **argv, char *why, size_t size)
{
    /* Once without the file, to learn which it is: the flags that come after it name it. */
    int err = load_sources(c, NULL, argc, argv, why, size);
    if (err == 0 && c->file) {
        char *path = c->file;
        c->file = NULL;
        config_deinit(c);
        err = load_sources(c, path, argc, argv, why, size);
        free(path);
    }
    if (err != 0)
        return err;
    err = check_together(c, why, size);
    if (err == 0)
        err = load_secrets(c, why, size);
    if (err != 0) {
        config_deinit(c);
        return err;
    }
    if (needs_shield(c))
        secret_shield();
    return 0;
}

void config_tune_trace(const struct config *c, struct trace *t)
{
    t->json = c->trace_form == CONFIG_TRACE_JSON;
    t->level = (enum trace_level)c->trace_level;
}

int config_load(struct config *c, int argc, char **argv, struct trace *t, char *why, size_t size)
{
    int err = load_all(c, argc, argv, why, size);
    if (err != 0)
        return err;
    config_tune_trace(c, t);
    warn_of_typos(t);
    return 0;
}

/* ---- changes ---- */

static void add_name(char *names, const char *open, const char *name, const char *close)
{
    size_t n = strlen(names);
    snprintf(names + n, CONFIG_NAMES_MAX - n, "%s%s%s%s", n > 0 ? ", " : "", open, name, close);
}

static void compare_secrets(const struct config *c, const struct config *fresh, char *names)
{
    const struct {
        const char *name, *now, *then;
    } secrets[] = {
        {"SSE_RESUME_SECRET", c->resume_secret, fresh->resume_secret},
        {"SSE_RESUME_SECRET_PREVIOUS", c->resume_secret_previous, fresh->resume_secret_previous},
        {"ATD_CURSOR_SIGNING_KEY", c->cursor_key, fresh->cursor_key}};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        const char *a = secrets[i].now, *b = secrets[i].then;
        if (a == NULL || b == NULL ? a != b : strcmp(a, b) != 0)
            add_name(names, "", secrets[i].name, "");
    }
}

int config_reload(struct config *c, int argc, char **argv, struct config_change *out, char *why,
                  size_t size)
{
    *out = (struct config_change){0};
    int err = load_all(&out->before, argc, argv, why, size);
    if (err != 0)
        return err;
    for (size_t i = 0; i < options.n; i++) {
        const struct option_row *r = &options.rows[i];
        if (option_same(r, c, &out->before))
            continue;
        add_name(r->live ? out->taken : out->restart, "", r->name, "");
        if (r->live)
            option_swap(r, c, &out->before);
    }
    for (size_t i = 0; i < kinds.n; i++) {
        if (sections_same(&kinds.rows[i], c, &out->before))
            continue;
        out->callers |= i == KIND_CALLER;
        add_name(i == KIND_CALLER ? out->taken : out->restart, "[", kinds.rows[i].word, "]");
    }
    if (out->callers)
        sections_swap(&kinds.rows[KIND_CALLER], c, &out->before);
    compare_secrets(c, &out->before, out->restart);
    return 0;
}

void config_deinit(struct config *c)
{
    cascade_forget(&c->cascade);
    options_free(&options, c);
    sections_free(&kinds, c);
    env_secret_drop(&c->resume_secret);
    env_secret_drop(&c->resume_secret_previous);
    env_secret_drop(&c->cursor_key);
}

const struct options *config_options(void)
{
    return &options;
}

const struct section_kinds *config_sections(void)
{
    return &kinds;
}

void config_help(FILE *to)
{
    fputs("Usage: tidemark serve [flags]\n"
          "\n"
          "Runs a server until it is interrupted.\n"
          "\n"
          "Flags:\n",
          to);
    options_help(&options, to);
    fputs("\n"
          "Every flag is also a setting of the --config file and a variable: --data DIR is\n"
          "`data = DIR` there and TIDEMARK_DATA=DIR in the environment, where commas\n"
          "separate the items of a list. A variable wins over the file, a flag over both.\n"
          "\n"
          "Sections of the file stand below its other settings:\n",
          to);
    sections_help(&kinds, to);
    fputs("\n"
          "For example:\n"
          "  store = embedded\n"
          "  [route /chat]\n"
          "  upstream = http://127.0.0.1:8000/v1/chat/completions\n"
          "  dialect = openai\n"
          "\n"
          "Resume tokens are signed with SSE_RESUME_SECRET or else HMAC_SECRET, cursors of\n"
          "pages with ATD_CURSOR_SIGNING_KEY, which are read from the environment only.\n"
          "docs/configuration.md explains all of it.\n",
          to);
}
