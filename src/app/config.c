// SPDX-License-Identifier: Apache-2.0
#include "app/config.h"
#include "base/ascii.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/secret.h"
#include "base/units.h"
#include "app/config_file.h"
#include "app/config_tables.h"
#include "http/front.h"
#include "http/origin.h"
#include "http/url.h"
#include "net/addr.h"
#include "store/embedded/embedded.h"
#include "store/redis/redis_store.h"
#include "telemetry/trace.h"

#include <stdlib.h>

#define RETAIN_EVENTS_MAX 1000000000000
#define DNS_NAME_MAX      253

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

static int config_check_access(struct str value, char *reason, size_t size)
{
    return str_eq(value, STR("open")) ? 0 : ERR_SYNTAX;
}

/* ---- the table ---- */

#define ROW(...) OPTION_ROW(struct config, __VA_ARGS__)

/* The first row is no setting of the file, which cannot name another file. */
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
    {ROW("tls-client-ca", OPTION_TEXT, tls_client_ca), .value = "FILE",
     .help = "Ask clients for a certificate, which they may do without: those that these "
             "authorities (PEM) have signed are taken, others end the handshake. Whose it is, "
             "`certificate` in [caller] says. SIGHUP reads it again."},
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
     BETWEEN(MIB, 1024 * GIB),
     .help = "Memory for stored events. Answers that their readers have not taken come first; the "
             "rest is a cache of events that rest on disk."},
    {ROW("disk-cap", OPTION_SIZE, disk_cap_bytes), .fallback = "0", .value = "SIZE",
     BETWEEN(64 * MIB, 1024 * 1024 * GIB), .zero_is_off = true,
     .help = "The most that the embedded store may take of the disk, with all that it keeps. "
             "Beyond it, appends, new streams and larger documents (of subscriptions, sessions and "
             "idempotency keys) are answered 507; deletes go on, and make room at the next "
             "checkpoint. 0 sets no bound."},
    {ROW("public-url", OPTION_TEXT, public_url), .value = "http://HOST|https://HOST",
     .check = config_check_public_url,
     .help = "How clients reach this server, if not by the address they ask at, as behind a "
             "proxy. Links in answers and webhooks begin with it. Without it they follow the "
             "request's Host."},
    {ROW("allow-host", OPTION_LIST, allow_host), .live = true, .value = "NAME",
     .check = config_check_host_name,
     .help = "Another name of this server; may be given many times. The server answers only if a "
             "request's Host is such a name, public-url's, localhost or an IP address, so that no "
             "site can point its own name at this server. Others are answered 421."},
    {ROW("access", OPTION_TEXT, access_word), .heading = "Access", .value = "open",
     .check = config_check_access,
     .help = "open lets everybody who reaches the server do everything, by any name and through "
             "any proxy. Without it a server where no section grants anything listens on this "
             "machine only, and takes no requests that came through a proxy."},
    {ROW("allow-origin", OPTION_LIST, allow_origin), .live = true,
     .value = "http://HOST|https://HOST|*", .check = origin_check_setting,
     .help = "A site whose pages may use this server, besides its own; may be given many times. * "
             "is every site, without its users' cookies, and does not count for tools, logs, "
             "metrics and the Lab. Pages of this machine may use a server where everybody may do "
             "everything and that only this machine can reach."},
    {ROW("proxy-from", OPTION_LIST, proxy_from), .live = true, .value = "NETWORK|unix",
     .check = front_check_proxy,
     .help = "Where proxies are that tell whom they ask for, by X-Forwarded-For or Forwarded: "
             "10.0.0.0/8, an address, or unix for all that come over a Unix socket; may be given "
             "many times. From others these headers do not count."},
    {ROW("admin-listen", OPTION_TEXT, admin_listen), .value = "HOST:PORT|unix:PATH",
     .check = config_check_listen,
     .help = "Where metrics, the list of sessions and what else is for those who run the server "
             "is served, and then nowhere else; nothing else is served there but /healthz and "
             "/readyz."},

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
     .help = "Connections open at the same time; further ones are answered 503. Fewer where the "
             "system allows fewer descriptors."},
    {ROW("address-connections", OPTION_NUMBER, per_address.connections), .live = true,
     .fallback = "100", .value = "N", BETWEEN(0, 1000000),
     .help = "Connections of one client address at the same time; further ones are answered 503, "
             "except for /healthz. An IPv6 network of /64 is one address. This and the next three "
             "hold once access is configured; another value than the default holds on every "
             "server. 0 sets no bound."},
    {ROW("address-connection-rate", OPTION_NUMBER, per_address.connection_rate), .live = true,
     .fallback = "30", .value = "N", BETWEEN(0, 1000000),
     .help = "New connections of one address a second, and as many as address-connections in a "
             "burst."},
    {ROW("address-rate", OPTION_NUMBER, per_address.rate), .live = true, .fallback = "20",
     .value = "N", BETWEEN(0, 1000000),
     .help = "Requests without a credential that one address may send a second, and twice as many "
             "in a burst; further ones are answered 429."},
    {ROW("address-failures", OPTION_NUMBER, per_address.failures), .live = true, .fallback = "10",
     .value = "N", BETWEEN(0, 1000000),
     .help = "Bad credentials that one address may show a minute; then, for 60 s, its "
             "credentials are answered 429 without a look at them, but for tokens that were good "
             "within the last minute: nobody locks out others who share his address."},
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
     .help = "How long an SSE answer stays quiet at most before it carries a comment, so that "
             "nothing on the way takes it for dead. 0 sends none."},
    {ROW("sse-lifetime", OPTION_DURATION, sse_lifetime_ms), .live = true, .fallback = "60s",
     .value = "TIME", BETWEEN(100, DAY_MS),
     .help =
         "After this time, or up to a tenth earlier so that many do not end at once, a live SSE "
         "answer ends and the client connects again from where it was."},
    {ROW("sse-retry", OPTION_DURATION, sse_retry_ms), .live = true, .fallback = "100ms",
     .value = "TIME", BETWEEN(1, HOUR_MS), .zero_is_off = true, .bare_ms = true,
     .help = "How long a browser's EventSource waits before it connects again, after sse-lifetime "
             "or a lost connection. A plain number is milliseconds. 0 leaves it to the browser."},

    {ROW("audit", OPTION_TEXT, audit), .heading = "Audit", .value = "FILE",
     .help = "Append a line of JSON to this file for each refused credential and request, each "
             "token that is minted or revoked, and each call of a tool: who, what, when, from "
             "where. No line has a token or what was sent. Tokens, revocations and calls are "
             "answered when their line is on the disk."},

    {ROW("trace", OPTION_CHOICE, trace_form), .live = true, .heading = "Traces",
     .fallback = "human", .value = "human|json", .help = "How lines on standard error look."},
    {ROW("trace-level", OPTION_CHOICE, trace_level), .live = true, .fallback = "info",
     .value = "error|warn|info|debug",
     .help = "How much is said there: this level and those before it."},
};
static const struct options own_options = {rows, sizeof rows / sizeof *rows};

enum { KIND_CALLER, KIND_ISSUER, KIND_ANONYMOUS, ACCESS_KINDS_N };
static const struct section_kind kind_rows[] = {
    [KIND_CALLER] = {.word = "caller",
                     .name = "NAME",
                     .size = sizeof(struct caller_config),
                     .name_field = offsetof(struct caller_config, name),
                     .list_field = offsetof(struct config, access.callers),
                     .options = &caller_options,
                     .check_name = caller_check_name,
                     .finish = caller_finish,
                     .help = "A program that is known by its token or its certificate, and what it "
                             "may do."},
    [KIND_ISSUER] = {.word = "issuer",
                     .name = "NAME",
                     .size = sizeof(struct issuer_config),
                     .name_field = offsetof(struct issuer_config, name),
                     .list_field = offsetof(struct config, access.issuers),
                     .options = &issuer_options,
                     .check_name = issuer_check_name,
                     .finish = issuer_finish,
                     .help = "Who signs tokens (JWTs) that are taken here, and the most that they "
                             "may grant. A token whose authorization_details are of the type "
                             "tidemark may do what both grant, every other what is granted here."},
    [KIND_ANONYMOUS] = {.word = "anonymous",
                        .size = sizeof(struct anonymous_config),
                        .list_field = offsetof(struct config, access.anonymous),
                        .options = &anonymous_options,
                        .help = "What everybody may do who shows no credential. Once anything is "
                                "granted to anybody, they may do nothing without it."},
};
static const struct section_kinds own_kinds = {.rows = kind_rows,
                                               .n = sizeof kind_rows / sizeof *kind_rows};

struct config_tables *config_tables(void)
{
    return config_tables_new(&own_options, &own_kinds, offsetof(struct config, of_features),
                             CONFIG_FEATURES_BYTES);
}

/* ---- features ---- */

static void *settings_of(struct config *c, size_t i)
{
    return (char *)c + c->tables->at[i];
}

#define each_with_settings(i)                                                                      \
    for (size_t i = 0; features[i] != NULL; i++)                                                   \
        if (features[i]->settings != NULL)

static int finish_features(struct config *c, char *why, size_t size)
{
    int err = 0;
    c->features.embedded = str_eq(str_of_cstr(c->store), STR("embedded"));
    each_with_settings (i) {
        const struct feature_settings *s = features[i]->settings;
        c->features.of[i] = settings_of(c, i);
        if (err == 0 && s->finish != NULL)
            err = s->finish(settings_of(c, i), why, size);
    }
    return err;
}

/* ---- secrets ---- */

static char **secret_at(struct config *c, size_t feature, const struct feature_secret *s)
{
    return (char **)((char *)settings_of(c, feature) + s->field);
}

#define each_secret(i, s)                                                                          \
    each_with_settings (i)                                                                         \
        for (const struct feature_secret *s = features[i]->settings->secrets;                      \
             s != NULL && s < features[i]->settings->secrets + features[i]->settings->n_secrets;   \
             s++)

/* Flags show them to more eyes than the environment does. */
static int load_secrets(struct config *c, char *why, size_t size)
{
    int err = 0;
    each_secret (i, s) {
        char **secret = secret_at(c, i, s);
        if (err == 0)
            err = env_secret_get(s->name, secret, why, size);
        if (err == 0 && *secret == NULL && s->other != NULL)
            err = env_secret_get(s->other, secret, why, size);
    }
    return err;
}

/* There are secrets in the file; what came by the environment is shielded as it is. */
static bool needs_shield(const struct config *c)
{
    bool needs = strchr(c->store, '@') != NULL || c->tls_key != NULL ||
                 access_config_has_secrets(&c->access);
    each_with_settings (i)
        if (features[i]->settings->shield != NULL)
            needs = features[i]->settings->shield(c->features.of[i]) || needs;
    return needs;
}

void config_forget(struct config *c)
{
    each_with_settings (i)
        if (features[i]->settings->forget != NULL)
            features[i]->settings->forget(settings_of(c, i));
}

/* ---- doubts ---- */

#define SECRET_LEAST 32 /* bytes: as many as the signatures have */

static bool is_short(const char *secret)
{
    return secret != NULL && strlen(secret) < SECRET_LEAST;
}

static bool changes(const struct config *c, const char *setting)
{
    return !options_is_default(&own_options, c, str_of_cstr(setting));
}

bool config_limits_addresses(const struct config *c)
{
    return access_config_on(&c->access) || changes(c, "address-connections") ||
           changes(c, "address-connection-rate") || changes(c, "address-rate") ||
           changes(c, "address-failures");
}

void config_warnings(const struct config *c, struct feature_warnings *out)
{
    static const char guessed[] = "has less than 32 bytes: whoever guesses it can resume anything";
    static const char no_disk[] = "does not apply: the store is not on this disk";
    static const char *const on_disk[] = {"data", "sync", "disk-cap"};
    static const char open_file[] = "is in a file that other users can read: chmod o-r";
    each_with_settings (i)
        if (features[i]->settings->warnings != NULL)
            features[i]->settings->warnings(c->features.of[i], &c->features, out);
    each_secret (i, s)
        if (s->guards && is_short(*secret_at((struct config *)c, i, s)))
            feature_warn(out, s->name, guessed);
    for (size_t i = 0; !c->features.embedded && i < sizeof on_disk / sizeof *on_disk; i++)
        if (changes(c, on_disk[i]))
            feature_warn(out, on_disk[i], no_disk);
    if (access_config_idle_issuer(&c->access) != NULL)
        feature_warn(out, "[issuer]", "has no grant in one section: its tokens may do nothing");
    access_config_warnings(&c->access, out);
    if (c->access_word != NULL && !access_config_on(&c->access))
        feature_warn(out, "access", "is open: everybody who reaches the server can do everything");
    if (env_secret_file_is_open(c->tls_key))
        feature_warn(out, "tls-key", open_file);
    for (size_t i = 0; env_secret_names[i] != NULL; i++)
        if (env_secret_is_open(env_secret_names[i]))
            feature_warn(out, env_secret_names[i], open_file);
}

/* ---- exposure ---- */

static bool stays_here(const char *listen)
{
    struct addr at;
    char ignored[256];
    return addr_parse_listen(str_of_cstr(listen), &at, ignored, sizeof ignored) == 0 &&
           addr_stays_here(&at);
}

/* The first address that others can reach; NULL: there is none. */
static const char *exposed_listen(const struct config *c)
{
    for (size_t i = 0; i < c->listen.n; i++)
        if (!stays_here(c->listen.items[i]))
            return c->listen.items[i];
    return c->admin_listen != NULL && !stays_here(c->admin_listen) ? c->admin_listen : NULL;
}

bool config_is_exposed(const struct config *c)
{
    return exposed_listen(c) != NULL;
}

/* Whoever can reach a server that grants nothing can do everything: that has to be meant. */
static int config_check_exposure(const struct config *c, const struct access_config *access,
                                 char *why, size_t size)
{
    const char *listen = exposed_listen(c);
    if (listen == NULL || c->access_word != NULL || access_config_on(access))
        return 0;
    snprintf(why, size,
             "other machines can reach %s, and no setting says who may do what. Listen on "
             "127.0.0.1; or say who may, as with the lines `[caller NAME]`, `token-sha256 = "
             "DIGEST`, `grant = VERBS PATTERN`; or let everybody do everything with `access = "
             "open`",
             listen);
    return ERR_SYNTAX;
}

/* ---- all sources ---- */

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
    if (c->tls_client_ca != NULL && c->tls_cert == NULL) {
        snprintf(why, size, "tls-client-ca is given without tls-cert and tls-key");
        return ERR_SYNTAX;
    }
    if ((c->tls_cert == NULL) != (c->tls_key == NULL)) {
        snprintf(why, size, "%s is given without %s; TLS needs both",
                 c->tls_cert ? "tls-cert" : "tls-key", c->tls_cert ? "tls-key" : "tls-cert");
        return ERR_SYNTAX;
    }
    for (size_t n = c->public_url ? strlen(c->public_url) : 0; n > 0 && c->public_url[n - 1] == '/';
         n--)
        c->public_url[n - 1] = '\0';
    c->access.public_url = c->public_url;
    int err = access_config_check(&c->access, why, size);
    if (err == 0)
        err = config_check_exposure(c, &c->access, why, size);
    if (err == 0)
        err = finish_features(c, why, size);
    if (err != 0)
        return err;
    parse_sync(str_of_cstr(c->sync_text), &c->sync, &c->sync_interval_ms);
    return 0;
}

/* path: NULL reads no file. */
static int load_sources(struct config *c, const char *path, int argc, char **argv, char *why,
                        size_t size)
{
    int positional = 0;
    *c = (struct config){.tables = config_tables()};
    const struct config_tables *t = c->tables;
    int err = options_defaults(&t->options, c, why, size);
    if (err == 0 && path)
        err = config_file_read(path, &t->file_options, &t->kinds, c, why, size);
    if (err == 0)
        err = options_env(&t->options, c, why, size);
    if (err == 0)
        err = options_args(&t->options, c, argc, argv, &positional, why, size);
    if (err == 0 && positional > 0) {
        snprintf(why, size, "unexpected argument '%.60s'", argv[0]);
        err = ERR_SYNTAX;
    }
    if (err != 0)
        config_deinit(c);
    return err;
}

static void warn_of_typos(const struct config *c, const struct trace *t)
{
    struct str name;
    for (size_t at = 0; (name = options_env_typo(&c->tables->options, &at)).p;)
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
    access_config_hide_secrets(&c->access);
    config_tune_trace(c, t);
    warn_of_typos(c, t);
    return 0;
}

/* ---- changes ---- */

static void add_name(char *names, const char *open, const char *name, const char *close)
{
    size_t n = strlen(names);
    snprintf(names + n, CONFIG_NAMES_MAX - n, "%s%s%s%s", n > 0 ? ", " : "", open, name, close);
}

static void compare_secrets(struct config *c, struct config *fresh, char *names)
{
    each_secret (i, s) {
        const char *a = *secret_at(c, i, s), *b = *secret_at(fresh, i, s);
        if (a == NULL || b == NULL ? a != b : strcmp(a, b) != 0)
            add_name(names, "", s->name, "");
    }
}

int config_reload(struct config *c, int argc, char **argv, struct config_change *out, char *why,
                  size_t size)
{
    *out = (struct config_change){0};
    int err = load_all(&out->before, argc, argv, why, size);
    if (err != 0)
        return err;
    err = config_check_exposure(c, &out->before.access, why, size); /* listeners stay as they are */
    if (err != 0) {
        config_deinit(&out->before);
        return err;
    }
    const struct options *options = &c->tables->options;
    const struct section_kind *kinds = c->tables->kinds.rows;
    for (size_t i = 0; i < options->n; i++) {
        const struct option_row *r = &options->rows[i];
        if (option_same(r, c, &out->before))
            continue;
        add_name(r->live ? out->taken : out->restart, "", r->name, "");
        if (r->live)
            option_swap(r, c, &out->before);
    }
    for (size_t i = 0; i < c->tables->kinds.n; i++) {
        if (sections_same(&kinds[i], c, &out->before))
            continue;
        bool access = i < ACCESS_KINDS_N;
        out->access |= access;
        add_name(access ? out->taken : out->restart, "[", kinds[i].word, "]");
    }
    for (size_t i = 0; out->access && i < ACCESS_KINDS_N; i++)
        sections_swap(&kinds[i], c, &out->before);
    compare_secrets(c, &out->before, out->restart);
    return 0;
}

void config_deinit(struct config *c)
{
    if (c->tables == NULL)
        return;
    config_forget(c);
    options_free(&c->tables->options, c);
    sections_free(&c->tables->kinds, c);
    each_secret (i, s)
        env_secret_drop(secret_at(c, i, s));
    free(c->tables);
    c->tables = NULL;
}

void config_hide_args(int argc, char **argv)
{
    struct config_tables *t = config_tables();
    options_hide_args(&t->options, argc, argv);
    free(t);
}

static void help_on_secrets(FILE *to)
{
    each_secret (i, s)
        if (s->signs != NULL)
            fprintf(to, "%s%s%s signs %s.\n", s->name, s->other ? " or else " : "",
                    s->other ? s->other : "", s->signs);
}

void config_help(FILE *to)
{
    fputs("Usage: tidemark serve [flags]\n"
          "\n"
          "Runs a server until it is interrupted.\n"
          "\n"
          "Flags:\n",
          to);
    struct config_tables *t = config_tables();
    options_help(&t->options, to);
    fputs("\n"
          "Every flag is also a setting of the --config file and a variable: --data DIR is\n"
          "`data = DIR` there and TIDEMARK_DATA=DIR in the environment, where commas\n"
          "separate the items of a list. A variable wins over the file, a flag over both.\n"
          "\n"
          "Sections of the file stand below its other settings:\n",
          to);
    sections_help(&t->kinds, to);
    free(t);
    fputs("\n"
          "For example:\n"
          "  store = embedded\n",
          to);
    each_with_settings (i)
        if (features[i]->settings->example != NULL)
            fputs(features[i]->settings->example, to);
    fputs("\nSecrets are read from the environment alone.\n", to);
    help_on_secrets(to);
    fputs("docs/configuration.md explains all of it.\n", to);
}
