// SPDX-License-Identifier: Apache-2.0
/* A client: its options, its turns, its errors. */
#include "client/client_core.h"
#include "base/clock.h"
#include "client/client_http.h"
#include "client/server_url.h"
#include "client/client_wire.h"

#include "base/utf8.h"

#include <errno.h>
#include <limits.h>
#include <openssl/rand.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define POLLED_AT_ONCE 64

int tm_abi(void)
{
    return TM_ABI;
}

const char *tm_version(void)
{
    return TIDEMARK_VERSION;
}

/* ---- errors and news ---- */

const char *tm_error_text(int err)
{
    switch (err) {
    case 0: return "success";
#define X(name, code, text)                                                                        \
    case code: return text;
        TM_ERRORS(X)
#undef X
    default: return "unknown error";
    }
}

const char *tm_error(const struct tm_client *c)
{
    return c == NULL ? "" : c->error;
}

/* Of valid UTF-8, the controls (U+0080 to U+009F among them); of anything else, all but ASCII. */
void text_make_safe(char *text)
{
    size_t n = strlen(text);
    n -= utf8_incomplete_tail(str_of(text, n));
    text[n] = 0;
    bool utf8 = utf8_valid(str_of(text, n));
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)text[i];
        bool c1 = ch == 0xc2 && (unsigned char)text[i + 1] < 0xa0;
        if (ch < 0x20 || ch == 0x7f || (ch >= 0x80 && !utf8)) {
            text[i] = '?';
        } else if (c1) {
            text[i] = text[i + 1] = '?';
            i++;
        }
    }
}

int client_fail(struct tm_client *c, int err, const char *fmt, ...)
{
    va_list ap;
    char text[ERROR_SIZE]; /* the old sentence may be an argument */
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_make_safe(text);
    memcpy(c->error, text, strlen(text) + 1);
    return err;
}

void client_notice(struct tm_client *c, const char *fmt, ...)
{
    va_list ap;
    char text[ERROR_SIZE];
    if (c->options.notice == NULL)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_make_safe(text);
    c->options.notice(c->options.notice_ctx, text);
}

/* Beyond so many failures the wait does not grow. */
#define GROWTHS_MAX 1000

uint64_t client_backoff_bound_ms(const struct tm_client *c, uint64_t first_ms, unsigned failures)
{
    double bound = (double)first_ms, max = c->options.retry_max_ms;
    for (unsigned i = 1; i < failures && i < GROWTHS_MAX && bound < max; i++)
        bound *= c->options.retry_multiplier;
    return (uint64_t)(bound < max ? bound : max);
}

uint64_t client_backoff_ms(struct tm_client *c, unsigned failures)
{
    uint64_t bound = client_backoff_bound_ms(c, (uint64_t)c->options.retry_first_ms, failures);
    uint32_t draw;
    /* Without randomness the whole wait is the safe one. */
    if (RAND_bytes((unsigned char *)&draw, sizeof(draw)) != 1)
        return bound;
    return draw % (bound + 1);
}

/* ---- opening and closing ---- */

static void *client_system_alloc(void *ctx, void *p, size_t n)
{
    return realloc(p, n);
}

static void client_system_free(void *ctx, void *p)
{
    free(p);
}

const struct tm_allocator client_system_memory = {.alloc = client_system_alloc,
                                                  .free = client_system_free};

static uint64_t client_awake_ms(const struct sched *s)
{
    return clock_mono_ms();
}

static void or_default(int *setting, int standard)
{
    if (*setting == 0)
        *setting = standard;
}

/* Of the two bounds of waits, the one that was set holds against the default of the other. */
static void fill_in_waits(struct tm_options *o, const struct tm_options *standard)
{
    int first = standard->retry_first_ms, max = standard->retry_max_ms;
    if (o->retry_first_ms == 0)
        o->retry_first_ms =
            o->retry_max_ms > 0 && o->retry_max_ms < first ? o->retry_max_ms : first;
    if (o->retry_max_ms == 0)
        o->retry_max_ms = o->retry_first_ms > max ? o->retry_first_ms : max;
    if (o->retry_multiplier == 0)
        o->retry_multiplier = standard->retry_multiplier;
    or_default(&o->retries, standard->retries);
}

static void client_fill_in(struct tm_options *o)
{
    static const struct tm_options standard = TM_OPTIONS_STRICT_INIT;
    if (o->strict)
        return;
    or_default(&o->connect_timeout_ms, standard.connect_timeout_ms);
    or_default(&o->request_timeout_ms, standard.request_timeout_ms);
    or_default(&o->live_timeout_ms, standard.live_timeout_ms);
    fill_in_waits(o, &standard);
    if (o->answer_max == 0)
        o->answer_max = standard.answer_max;
}

static bool token_ok(const char *token)
{
    for (; *token != 0; token++)
        if (*token <= 0x20 || *token >= 0x7f)
            return false;
    return true;
}

/* What is wrong with them, beginning with its name; NULL: nothing. A multiplier that is no number
 * is not at least 1 either. */
static const char *options_fault(const struct tm_options *o)
{
    const struct tm_allocator *mem = o->allocator;
    const struct {
        bool is_wrong;
        const char *what;
    } checks[] = {
        {o->server == NULL, "server is not set"},
        {o->stream_path && *o->stream_path != '/', "stream_path does not begin with `/`"},
        {o->token && !token_ok(o->token), "token has characters that no token has"},
        {(unsigned)o->http > TM_HTTP_2, "http is none of enum tm_http"},
        {mem && (mem->alloc == NULL || mem->free == NULL), "allocator lacks a function"},
        {o->connect_timeout_ms <= 0, "connect_timeout_ms must be positive"},
        {o->request_timeout_ms <= 0, "request_timeout_ms must be positive"},
        {o->live_timeout_ms <= 0, "live_timeout_ms must be positive"},
        {o->retries < 0, "retries cannot be negative"},
        {o->retry_first_ms <= 0, "retry_first_ms must be positive"},
        {o->retry_max_ms < o->retry_first_ms, "retry_max_ms is less than retry_first_ms"},
        {!(o->retry_multiplier >= 1), "retry_multiplier is less than 1"},
        {o->answer_max == 0, "answer_max must be positive"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].is_wrong)
            return checks[i].what;
    return NULL;
}

/* The caller's texts are in *text; ours replace them. */
static int own(struct tm_client *c, const char **text)
{
    const char *theirs = *text;
    if (theirs == NULL)
        return 0;
    *text = client_copy(c, str_of_cstr(theirs));
    return *text == NULL ? TM_E_NOMEM : 0;
}

static int own_texts(struct tm_client *c, const struct tm_options *o)
{
    c->options.server = o->server;
    if (own(c, &c->options.server) != 0)
        return TM_E_NOMEM;
    c->options.token = o->token;
    if (own(c, &c->options.token) != 0)
        return TM_E_NOMEM;
    c->options.ca_file = o->ca_file;
    if (own(c, &c->options.ca_file) != 0)
        return TM_E_NOMEM;
    c->options.stream_path = o->stream_path;
    return own(c, &c->options.stream_path);
}

int tm_open(const struct tm_options *options, struct tm_client **out)
{
    struct tm_options o = {0};
    if (options == NULL || out == NULL || options->size < offsetof(struct tm_options, token))
        return TM_E_INVALID;
    memcpy(&o, options, options->size < sizeof(o) ? options->size : sizeof(o));
    o.size = sizeof(o);
    client_fill_in(&o);
    const char *fault = options_fault(&o);
    if (fault != NULL && o.notice != NULL)
        o.notice(o.notice_ctx, fault);
    if (fault != NULL)
        return TM_E_INVALID;

    const struct tm_allocator *mem = o.allocator != NULL ? o.allocator : &client_system_memory;
    struct tm_client *c = mem->alloc(mem->ctx, NULL, sizeof(*c));
    if (c == NULL)
        return TM_E_NOMEM;
    memset(c, 0, sizeof(*c));
    c->mem = *mem;
    c->options = o;
    c->options.server = c->options.token = c->options.ca_file = c->options.stream_path = NULL;
    c->options.allocator = NULL;
    list_init(&c->wires);
    sched_init(&c->sched, clock_mono_ms(), clock_wall_ms());
    c->sched.awake_ms = client_awake_ms;

    int err = own_texts(c, &o);
    if (err == 0)
        err = server_url_parse(c, o.server, &c->server);
    if (err == 0 && c->server.tls)
        err = wire_tls_new(c);
    if (err != 0) {
        if (c->error[0] != 0)
            client_notice(c, "%s", c->error);
        tm_close(c);
        return err;
    }
    *out = c;
    return 0;
}

void tm_close(struct tm_client *c)
{
    if (c == NULL)
        return;
    http_close_all(c);
    wire_tls_free(c);
    server_url_free(c, &c->server);
    client_free(c, (char *)c->options.server);
    if (c->options.token != NULL)
        client_free_secret(c, (char *)c->options.token, strlen(c->options.token));
    client_free(c, (char *)c->options.ca_file);
    client_free(c, (char *)c->options.stream_path);
    struct tm_allocator mem = c->mem;
    mem.free(mem.ctx, c);
}

/* ---- turns ---- */

static void client_turn(struct tm_client *c)
{
    http_turn(c);
    sched_turn(&c->sched, clock_mono_ms(), clock_wall_ms());
    http_flush(c);
}

int tm_turn(struct tm_client *c)
{
    client_turn(c);
    int news = c->happened;
    c->happened = false;
    return news;
}

size_t tm_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max)
{
    return http_descriptors(c, out, max);
}

/* Until a turn has something to do; UINT64_MAX: nothing is planned. */
static uint64_t wait_ms(const struct tm_client *c)
{
    if (!list_empty(&c->sched.tasks) || !list_empty(&c->sched.flushes))
        return 0;
    uint64_t wait = sched_wait_ms(&c->sched);
    if (wait == UINT64_MAX)
        return wait;
    uint64_t passed = clock_mono_ms() - c->sched.now_ms;
    return wait > passed ? wait - passed : 0;
}

int tm_deadline_ms(const struct tm_client *c)
{
    uint64_t wait = c->happened ? 0 : wait_ms(c);
    if (wait == UINT64_MAX)
        return TM_FOREVER;
    return wait < INT_MAX ? (int)wait : INT_MAX;
}

/* Sleeps until a descriptor is ready or the time is over. Interrupted: wakes early. */
static void wait_for_descriptors(struct tm_client *c, uint64_t ms)
{
    struct tm_descriptor wanted[POLLED_AT_ONCE];
    struct pollfd polled[POLLED_AT_ONCE];
    size_t n = tm_descriptors(c, wanted, POLLED_AT_ONCE);
    /* More than are looked at: nothing may be overlooked for long. */
    if (n > POLLED_AT_ONCE) {
        n = POLLED_AT_ONCE;
        ms = ms < 10 ? ms : 10;
    }
    for (size_t i = 0; i < n; i++)
        polled[i] = (struct pollfd){
            .fd = wanted[i].fd,
            .events =
                (short)((wanted[i].readable ? POLLIN : 0) | (wanted[i].writable ? POLLOUT : 0)),
        };
    poll(polled, n, ms < INT_MAX ? (int)ms : ms == UINT64_MAX ? -1 : INT_MAX);
}

struct limit {
    bool ever;
    uint64_t at_ms;
};

static struct limit limit_of(int timeout_ms)
{
    if (timeout_ms < 0)
        return (struct limit){0};
    return (struct limit){true, clock_mono_ms() + (uint64_t)timeout_ms};
}

/* Sleeps for no longer than there is to wait; false: the time is over. */
static bool sleep_within(struct tm_client *c, struct limit limit)
{
    uint64_t now = clock_mono_ms(), wait = wait_ms(c);
    if (limit.ever && now >= limit.at_ms)
        return false;
    if (limit.ever && limit.at_ms - now < wait)
        wait = limit.at_ms - now;
    wait_for_descriptors(c, wait);
    return true;
}

int tm_wait(struct tm_client *c, int timeout_ms)
{
    struct limit limit = limit_of(timeout_ms);
    for (;;) {
        if (tm_turn(c))
            return 1;
        if (!sleep_within(c, limit))
            return 0;
    }
}

/* News of others stay news for the next tm_turn. */
int client_wait_for(struct tm_client *c, bool (*done)(void *ctx), void *ctx, int timeout_ms)
{
    struct limit limit = limit_of(timeout_ms);
    for (;;) {
        if (done(ctx))
            return 0;
        client_turn(c);
        if (done(ctx))
            return 0;
        if (!sleep_within(c, limit))
            return client_fail(c, TM_E_TIMEOUT, "%s", tm_error_text(TM_E_TIMEOUT));
    }
}
