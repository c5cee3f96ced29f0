// SPDX-License-Identifier: Apache-2.0
#include "client/stream.h"
#include "base/ascii.h"
#include "base/hex.h"
#include "base/num.h"
#include "client/codec.h"
#include "client/client_json.h"

#include <stdio.h>

#define STREAMS_PATH    "/v1/stream/"
#define RETRY_AFTER_MAX 86400 /* seconds: a day is as good as never */

/* -- requests ---------------------------------------------------------------------------------
 */

static int put_encoded(struct tm_client *c, struct bytes *out, struct str s, bool in_path)
{
    char *to = bytes_room(c, out, 3 * s.n);
    if (to == NULL)
        return TM_E_NOMEM;
    out->n += percent_encode(s, in_path, to);
    out->p[out->n] = '\0';
    return 0;
}

int stream_path(struct tm_client *c, struct bytes *out, const char *name)
{
    if (name == NULL || *name == '\0')
        return client_fail(c, TM_E_INVALID, "a stream's name cannot be empty");
    const char *base = c->options.stream_path ? c->options.stream_path : STREAMS_PATH;
    int err = bytes_put(c, out, str_of_cstr(base));
    if (err == 0)
        err = put_encoded(c, out, str_of_cstr(name), true);
    return err ? client_fail(c, err, "%s", tm_error_text(err)) : 0;
}

int stream_param(struct tm_client *c, struct bytes *out, bool first, const char *key,
                 const char *value)
{
    int err = bytes_put(c, out, first ? STR("?") : STR("&"));
    if (err == 0)
        err = put_encoded(c, out, str_of_cstr(key), false);
    if (err == 0)
        err = bytes_put(c, out, STR("="));
    if (err == 0)
        err = put_encoded(c, out, str_of_cstr(value), false);
    return err;
}

/* Two of these, and two servers may see two requests; the connection is not the program's. */
static bool is_ours(struct str name)
{
    static const struct str ours[] = {
        STR_INIT("host"),       STR_INIT("content-length"), STR_INIT("transfer-encoding"),
        STR_INIT("connection"), STR_INIT("keep-alive"),     STR_INIT("proxy-connection"),
        STR_INIT("te"),         STR_INIT("trailer"),        STR_INIT("upgrade"),
        STR_INIT("expect"),
    };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (str_eq(name, ours[i]))
            return true;
    return false;
}

bool stream_name_ok(const char *name, char low[HTTP_NAME_MAX + 1])
{
    size_t n = strlen(name);
    if (n == 0 || n > HTTP_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        low[i] = ascii_lower(name[i]);
    low[n] = '\0';
    return ascii_is_token(str_of(low, n)) && !is_ours(str_of(low, n));
}

bool stream_header_ok(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || *value == 0x7f)
            return false;
    return true;
}

void stream_header(struct http_request *r, struct str name, struct str value)
{
    if (r->n_headers < HTTP_HEADERS_MAX)
        r->headers[r->n_headers++] = (struct http_header){name, value};
}

bool stream_type_is(struct str content_type, struct str essence)
{
    return str_eq_nocase(str_trim(str_cut(&content_type, ';')), essence);
}

enum stream_kind stream_kind(struct str content_type)
{
    if (stream_type_is(content_type, STR("application/json")))
        return STREAM_JSON;
    bool is_text = content_type.n >= 5 && str_eq_nocase_n(content_type.p, "text/", 5);
    return is_text ? STREAM_TEXT : STREAM_BYTES;
}

/* -- the answer's head ------------------------------------------------------------------------ */

void stream_answer_init(struct stream_answer *a)
{
    *a = (struct stream_answer){.ttl_s = -1};
}

static int stream_read_text(const struct http_request *r, struct str name, char *to, size_t size)
{
    struct str value = str_trim(http_answer_header(r, name));
    if (value.n >= size)
        return TM_E_PROTOCOL;
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    to[value.n] = '\0';
    return 0;
}

static bool read_flag(const struct http_request *r, struct str name, struct str yes)
{
    struct str value = http_answer_header(r, name);
    return value.p && str_eq_nocase(str_trim(value), yes);
}

static bool read_number(const struct http_request *r, struct str name, uint64_t *to)
{
    struct str value = http_answer_header(r, name);
    return value.p && num_parse(str_trim(value), NUM_SAFE_MAX, to) == 0;
}

int stream_answer_read(struct stream_answer *a, const struct http_request *r)
{
    stream_answer_init(a);
    int err = stream_read_text(r, STR("content-type"), a->content_type, sizeof a->content_type);
    if (err == 0)
        err = stream_read_text(r, STR("stream-next-offset"), a->next_offset, sizeof a->next_offset);
    if (err == 0)
        err = stream_read_text(r, STR("stream-cursor"), a->cursor, sizeof a->cursor);
    if (err == 0)
        err = stream_read_text(r, STR("stream-end-reason"), a->end_reason, sizeof a->end_reason);
    if (err == 0)
        err = stream_read_text(r, STR("stream-expires-at"), a->expires_at, sizeof a->expires_at);
    a->closed = read_flag(r, STR("stream-closed"), STR("true"));
    a->up_to_date = read_flag(r, STR("stream-up-to-date"), STR("true"));
    a->base64 = read_flag(r, STR("stream-sse-data-encoding"), STR("base64"));
    a->has_epoch = read_number(r, STR("producer-epoch"), &a->epoch);
    a->has_expected_seq = read_number(r, STR("producer-expected-seq"), &a->expected_seq);
    uint64_t seconds;
    if (read_number(r, STR("stream-ttl"), &seconds))
        a->ttl_s = (int64_t)seconds;
    if (read_number(r, STR("retry-after"), &seconds))
        a->retry_after_ms = 1000 * (seconds < RETRY_AFTER_MAX ? seconds : RETRY_AFTER_MAX);
    return err;
}

/* -- refusals --------------------------------------------------------------------------------- */

/* What tidemark calls its refusals, and what a caller of the library is told. */
static const struct code {
    struct str name;
    int err;
} codes[] = {
    {STR_INIT("FENCED"), TM_E_FENCED},
    {STR_INIT("SEQ_GAP"), TM_E_CONFLICT},
    {STR_INIT("EPOCH_START"), TM_E_CONFLICT},
    {STR_INIT("CLOSED"), TM_E_CLOSED},
    {STR_INIT("TYPE_MISMATCH"), TM_E_CONFLICT},
    {STR_INIT("SEQ_ORDER"), TM_E_CONFLICT},
    {STR_INIT("TAIL_MOVED"), TM_E_CONFLICT},
    {STR_INIT("NOT_FOUND"), TM_E_NOT_FOUND},
    {STR_INIT("DELETED"), TM_E_NOT_FOUND},
    {STR_INIT("EXISTS"), TM_E_EXISTS},
    {STR_INIT("OFFSET"), TM_E_OFFSET},
    {STR_INIT("JSON"), TM_E_INVALID},
    {STR_INIT("EMPTY"), TM_E_INVALID},
    {STR_INIT("SYNTAX"), TM_E_INVALID},
    {STR_INIT("TOO_LARGE"), TM_E_TOO_LARGE},
    {STR_INIT("FULL"), TM_E_BUSY},
    {STR_INIT("IO"), TM_E_BUSY},
    {STR_INIT("LIMIT"), TM_E_BUSY},
    {STR_INIT("BUSY"), TM_E_BUSY},
    {STR_INIT("FORK_SOURCE"), TM_E_NOT_FOUND},
    {STR_INIT("FORK_DELETED"), TM_E_CONFLICT},
    {STR_INIT("FORK_OFFSET"), TM_E_OFFSET},
    {STR_INIT("FORK_DEPTH"), TM_E_INVALID},
    {STR_INIT("TOO_MANY_EVENTS"), TM_E_TOO_LARGE},
    {STR_INIT("DENIED"), TM_E_DENIED},
    {STR_INIT("UNAUTHENTICATED"), TM_E_DENIED},
    {STR_INIT("KEY_ABSENT"), TM_E_BUSY},
};

static int conflict_error(const struct http_request *r, const struct stream_answer *a)
{
    if (str_eq(r->method, STR("PUT")))
        return TM_E_EXISTS;
    return a->closed ? TM_E_CLOSED : TM_E_CONFLICT;
}

static int status_error(const struct http_request *r, const struct stream_answer *a)
{
    switch (r->status) {
    /* Of what a read sends, only the offset can be wrong. */
    case 400: return str_eq(r->method, STR("GET")) ? TM_E_OFFSET : TM_E_INVALID;
    case 401: return TM_E_DENIED;
    case 403: return a->has_epoch ? TM_E_FENCED : TM_E_DENIED;
    case 404: return TM_E_NOT_FOUND;
    case 409: return conflict_error(r, a);
    case 410: return TM_E_NOT_FOUND;
    case 412: return TM_E_CONFLICT;
    case 413: return TM_E_TOO_LARGE;
    case 504: return TM_E_TIMEOUT;
    case 429:
    case 503:
    case 507: return TM_E_BUSY;
    default: return TM_E_REFUSED;
    }
}

static int code_error(const char *name, int fallback)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (str_eq(codes[i].name, str_of_cstr(name)))
            return codes[i].err;
    return fallback;
}

bool stream_gap_read(struct stream_refusal *out, struct str body)
{
    struct str gap;
    if (!json_member(body, STR("gap"), &gap) ||
        !json_member_text(gap, STR("earliest"), out->earliest, sizeof out->earliest) ||
        out->earliest[0] == '\0')
        return false;
    json_member_text(gap, STR("requested"), out->requested, sizeof out->requested);
    json_member_text(gap, STR("reason"), out->reason, sizeof out->reason);
    out->err = TM_E_GAP;
    snprintf(
        out->message, sizeof out->message,
        "what stood at %.80s can no longer be read (%.40s); the earliest position is now %.80s",
        out->requested, out->reason, out->earliest);
    return true;
}

/* Other servers explain themselves in a short plain text, or only by the status. */
static void read_sentence(struct stream_refusal *out, struct str body, bool is_json)
{
    body = str_trim(body);
    if (is_json || body.n == 0 || body.n > 300 || body.p[0] == '<')
        snprintf(out->message, sizeof out->message, "%s", tm_error_text(out->err));
    else
        snprintf(out->message, sizeof out->message, "%.*s", (int)body.n, body.p);
}

void stream_refusal_read(struct stream_refusal *out, const struct http_request *r,
                         const struct stream_answer *a, struct str body)
{
    memset(out, 0, sizeof *out);
    if (r->status == 410 && stream_gap_read(out, body))
        return;
    out->err = status_error(r, a);
    struct str error;
    char code[32];
    bool explained = json_member(body, STR("error"), &error);
    if (explained && json_member_text(error, STR("code"), code, sizeof code))
        out->err = code_error(code, out->err);
    if (!explained || !json_member_text(error, STR("message"), out->message, sizeof out->message))
        read_sentence(out, body, json_valid(body));
}

/* -- what is said of a request ---------------------------------------------------------------- */

#define PATH_SHOWN 160 /* bytes; the rest of the sentence must have room */

static struct str stream_shown(struct str path)
{
    path = str_cut(&path, '?');
    return str_of(path.p, path.n < PATH_SHOWN ? path.n : PATH_SHOWN);
}

int stream_fail(struct tm_client *c, int err, struct str path, const char *message)
{
    struct str s = stream_shown(path);
    return client_fail(c, err, "%.*s: %s", (int)s.n, s.p, message);
}

void stream_notice_retry(struct tm_client *c, struct str path, const char *why, uint64_t ms)
{
    struct str s = stream_shown(path);
    client_notice(c, "%.*s: %s; trying again in %.1f s", (int)s.n, s.p, why, (double)ms / 1000);
}

/* -- trying again ----------------------------------------------------------------------------- */

bool stream_may_retry(int err, int status)
{
    if (status == 0)
        return err == TM_E_NETWORK || err == TM_E_TIMEOUT;
    return status == 429 || status >= 500;
}

uint64_t stream_retry_ms(struct tm_client *c, unsigned failures, const struct stream_answer *a)
{
    uint64_t ms = client_backoff_ms(c, failures);
    return ms > a->retry_after_ms ? ms : a->retry_after_ms;
}

uint64_t stream_now_ms(const struct tm_client *c)
{
    return c->sched.awake_ms ? c->sched.awake_ms(&c->sched) : c->sched.now_ms;
}

/* -- base64 ----------------------------------------------------------------------------------- */

static size_t drop_lines(char *p, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (p[i] != '\n')
            p[kept++] = p[i];
    return kept;
}

int stream_unbase64(char *p, size_t *n)
{
    return codec_take_base64(str_of(p, drop_lines(p, *n)), p, n);
}
