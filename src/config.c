// SPDX-License-Identifier: Apache-2.0
#include "config.h"
#include "base/err.h"
#include "base/num.h"
#include "http/url.h"
#include "net/addr.h"
#include "store/journal.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>

#define KIB                 ((uint64_t)1 << 10)
#define MIB                 ((uint64_t)1 << 20)
#define GIB                 ((uint64_t)1 << 30)

#define SECOND_MS           ((uint64_t)1000)
#define MINUTE_MS           (60 * SECOND_MS)
#define HOUR_MS             (60 * MINUTE_MS)
#define DAY_MS              (24 * HOUR_MS)

#define RETAIN_EVENTS_MAX   1000000000000

/* What a record of the journal holds besides an append's bytes: names, a claim, documents. */
#define RECORD_HEAD_MAX     MIB
#define EMBEDDED_APPEND_MAX (JOURNAL_RECORD_MAX - RECORD_HEAD_MAX)

/* ---- checks ---- */

static int check_listen(struct str value, char *reason, size_t size)
{
    struct addr ignored;
    return addr_parse_listen(value, &ignored, reason, size);
}

/* The one place that knows which stores are built in. */
static int check_store(struct str value, char *reason, size_t size)
{
    if (str_eq(value, STR("memory")) || str_eq(value, STR("embedded")))
        return 0;
    if (str_starts(value, STR("redis://")) || str_starts(value, STR("rediss://")))
        snprintf(reason, size, "this build has no Redis store; expected embedded or memory");
    return ERR_SYNTAX;
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

static int check_sync(struct str value, char *reason, size_t size)
{
    int sync;
    uint64_t interval_ms;
    return parse_sync(value, &sync, &interval_ms);
}

static int check_public_url(struct str value, char *reason, size_t size)
{
    struct url url;
    bool query = memchr(value.p, '?', value.n) != NULL;
    return query || url_parse(value, &url) != 0 ? ERR_SYNTAX : 0;
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
     .value = "HOST:PORT|unix:PATH", .check = check_listen,
     .help = "Where to listen; may be given many times. Port 0 takes any free port."},
    {ROW("data", OPTION_TEXT, data), .fallback = "./tidemark-data", .value = "DIR",
     .help = "Where data is kept."},
    {ROW("store", OPTION_TEXT, store), .fallback = "memory", .value = "memory|embedded",
     .check = check_store,
     .help =
         "What keeps the events. memory: what it holds is gone when the server stops. embedded: "
         "on disk, in the data directory."},
    {ROW("sync", OPTION_TEXT, sync_text), .fallback = "always", .value = "always|interval:MS|never",
     .check = check_sync,
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
     .check = check_public_url,
     .help = "How clients reach this server, if not by the address they ask at, as behind a "
             "proxy. Links in answers and webhooks begin with it. Without it they follow the "
             "request's Host."},

    {ROW("retain-events", OPTION_NUMBER, retain_events), .heading = "Retention", .fallback = "0",
     .value = "N", BETWEEN(0, RETAIN_EVENTS_MAX),
     .help = "At least so many of a stream's newest events are kept, and older ones are trimmed "
             "from its front, unless the stream asks for something else. 0 keeps all."},
    {ROW("retain-bytes", OPTION_SIZE, retain_bytes), .fallback = "0", .value = "SIZE",
     BETWEEN(0, 1024 * 1024 * GIB),
     .help = "The same by bytes: at least so many of the newest are kept. 0 sets no bound."},
    {ROW("retain-age", OPTION_DURATION, retain_age_ms), .fallback = "0", .value = "TIME",
     BETWEEN(SECOND_MS, 3650 * DAY_MS), .zero_is_off = true,
     .help = "The same by age: an event is kept for at least this time. 0 sets no bound."},

    {ROW("max-connections", OPTION_NUMBER, max_connections), .heading = "Limits",
     .fallback = "10000", .value = "N", BETWEEN(1, 1000000),
     .help = "Connections open at the same time; further ones are answered 503."},
    {ROW("max-append", OPTION_SIZE, max_append_bytes), .fallback = "64m", .value = "SIZE",
     BETWEEN(KIB, GIB), .help = "The largest body of one append; a larger one is answered 413."},
    {ROW("max-inflight-bytes", OPTION_SIZE, max_inflight_bytes), .fallback = "256m",
     .value = "SIZE", BETWEEN(KIB, 1024 * GIB),
     .help = "Request bodies held in memory at the same time, all together; beyond it requests "
             "are answered 503. At least max-append."},
    {ROW("read-chunk", OPTION_SIZE, read_chunk_bytes), .fallback = "1m", .value = "SIZE",
     BETWEEN(KIB, 64 * MIB),
     .help = "The most bytes that one catch-up answer carries; clients go on from where it ends."},

    {ROW("head-timeout", OPTION_DURATION, head_timeout_ms), .heading = "Timeouts",
     .fallback = "10s", .value = "TIME", BETWEEN(100, 10 * MINUTE_MS),
     .help = "How long the head of a request may take to arrive."},
    {ROW("idle-timeout", OPTION_DURATION, idle_timeout_ms), .fallback = "60s", .value = "TIME",
     BETWEEN(100, DAY_MS), .help = "How long a connection may stay open between two requests."},
    {ROW("body-timeout", OPTION_DURATION, body_timeout_ms), .fallback = "10s", .value = "TIME",
     BETWEEN(100, 10 * MINUTE_MS),
     .help = "In this time a request body must bring at least body-rate-min bytes."},
    {ROW("body-rate-min", OPTION_SIZE, body_rate_min), .fallback = "1k", .value = "SIZE",
     BETWEEN(1, MIB), .help = "See body-timeout."},
    {ROW("write-timeout", OPTION_DURATION, write_timeout_ms), .fallback = "60s", .value = "TIME",
     BETWEEN(100, HOUR_MS),
     .help = "After this time a client that takes nothing of its answer is disconnected."},
    {ROW("drain-timeout", OPTION_DURATION, drain_timeout_ms), .fallback = "10s", .value = "TIME",
     BETWEEN(0, HOUR_MS),
     .help = "When the server is stopped, how long requests under way may take to finish."},

    {ROW("long-poll-timeout", OPTION_DURATION, long_poll_timeout_ms), .heading = "Live reads",
     .fallback = "4s", .value = "TIME", BETWEEN(100, 5 * MINUTE_MS),
     .help = "How long a long-poll waits for news before it is answered without any."},
    {ROW("heartbeat", OPTION_DURATION, heartbeat_ms), .fallback = "10s", .value = "TIME",
     BETWEEN(100, HOUR_MS), .zero_is_off = true,
     .help = "How often a quiet SSE answer carries a comment, so that nothing on the way takes it "
             "for dead. 0 sends none."},
    {ROW("sse-lifetime", OPTION_DURATION, sse_lifetime_ms), .fallback = "60s", .value = "TIME",
     BETWEEN(100, DAY_MS),
     .help = "After this time a live SSE answer ends and the client connects again from where it "
             "was."},

    {ROW("allow-private-targets", OPTION_BOOL, allow_private_targets),
     .heading = "Outgoing requests", .fallback = "no",
     .help = "Whether webhooks and the like may reach addresses of private networks."},
    {ROW("allow-loopback-targets", OPTION_BOOL, allow_loopback_targets), .fallback = "yes",
     .help = "Whether they may reach this machine itself."},

    {ROW("trace", OPTION_CHOICE, trace_form), .heading = "Traces", .fallback = "human",
     .value = "human|json", .help = "How lines on standard error look."},
    {ROW("trace-level", OPTION_CHOICE, trace_level), .fallback = "info",
     .value = "error|warn|info|debug",
     .help = "How much is said there: this level and those before it."},
};
static const struct options options = {rows, sizeof rows / sizeof *rows};
static const struct options file_options = {rows + FILE_ROWS_FROM,
                                            sizeof rows / sizeof *rows - FILE_ROWS_FROM};

/* ---- the file ---- */

struct file_load {
    struct config *config;
    const char *path;
    FILE *from;
    unsigned line;
    int err; /* the first one; nothing is read after it */
    char *why;
    size_t size;
};

static void fail_at_line(struct file_load *l, const char *reason)
{
    snprintf(l->why, l->size, "%s:%u: %s", l->path, l->line, reason);
    l->err = ERR_SYNTAX;
}

/* fgets for inih, which would split a line that is longer than its buffer, take an indented one
 * for a continuation of the last value, and not tell of a section that is empty. */
static char *read_line(char *out, int size, void *user)
{
    struct file_load *l = user;
    if (l->err != 0 || fgets(out, size, l->from) == NULL)
        return NULL;
    l->line++;
    size_t n = strlen(out);
    if ((n == 0 || out[n - 1] != '\n') && getc(l->from) != EOF) {
        fail_at_line(l, "the line is too long or holds a NUL byte");
        return NULL;
    }
    size_t blank = strspn(out, " \t");
    memmove(out, out + blank, n - blank + 1);
    if (out[0] == '[') {
        fail_at_line(l, "unknown section; settings stand outside of any section");
        return NULL;
    }
    return out;
}

static int take_setting(void *user, const char *section, const char *name, const char *value)
{
    struct file_load *l = user;
    char reason[256];
    if (l->err == 0 && options_set(&file_options, l->config, str_of_cstr(name), str_of_cstr(value),
                                   reason, sizeof reason) != 0)
        fail_at_line(l, reason);
    return 1;
}

static int load_file(struct config *c, const char *path, char *why, size_t size)
{
    struct file_load l = {.config = c, .path = path, .why = why, .size = size};
    l.from = fopen(path, "re");
    if (l.from == NULL) {
        snprintf(why, size, "cannot read %s: %s", path, strerror(errno));
        return ERR_SYNTAX;
    }
    int bad_line = ini_parse_stream(read_line, &l, take_setting, &l);
    if (l.err == 0 && ferror(l.from)) {
        snprintf(why, size, "cannot read %s: %s", path, strerror(errno));
        l.err = ERR_SYNTAX;
    }
    if (l.err == 0 && bad_line != 0) {
        l.line = (unsigned)bad_line;
        fail_at_line(&l, "expected `name = value`");
    }
    fclose(l.from);
    return l.err;
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
    int err = options_defaults(&options, c, why, size);
    if (err == 0 && path)
        err = load_file(c, path, why, size);
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

int config_load(struct config *c, int argc, char **argv, struct trace *t, char *why, size_t size)
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
    if (err != 0) {
        config_deinit(c);
        return err;
    }
    t->json = c->trace_form == CONFIG_TRACE_JSON;
    t->level = (enum trace_level)c->trace_level;
    warn_of_typos(t);
    return 0;
}

void config_deinit(struct config *c)
{
    options_free(&options, c);
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
          "separate the items of a list. A variable wins over the file, a flag over both.\n",
          to);
}
