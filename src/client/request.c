// SPDX-License-Identifier: Apache-2.0
#include "client/request.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "http/url.h"

#include <assert.h>
#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

int client_fail(struct client *c, int err, const char *fmt, ...)
{
    char text[CLIENT_ERROR_SIZE]; /* the old error may be among the arguments */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if (is_control(*p))
            *p = ' ';
    memcpy(c->error, text, sizeof text);
    return err;
}

void client_notice(struct client *c, const char *fmt, ...)
{
    if (c->options.notice == NULL)
        return;
    char text[CLIENT_ERROR_SIZE + 128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->options.notice(c->options.user, text);
}

char *client_copy(struct str s)
{
    char *z = mem_alloc(s.n + 1);
    if (s.n > 0)
        memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    return z;
}

/* -- building --------------------------------------------------------------------------------- */

void client_request_init_at(struct client_request *r, struct client *c, const char *method,
                            const char *path, const char *name)
{
    *r = (struct client_request){.client = c, .method = method};
    buf_put(&r->url, str_of_cstr(c->base));
    buf_put(&r->url, str_of_cstr(path));
    if (name)
        url_encode(&r->url, str_of_cstr(name), true);
    if (name && *name == '\0')
        r->bad = client_fail(c, ERR_SYNTAX, "a name cannot be empty");
    if (c->authorization)
        client_request_header(r, "Authorization", c->authorization);
}

void client_request_init(struct client_request *r, struct client *c, const char *method,
                         const char *name)
{
    client_request_init_at(r, c, method, CLIENT_STREAMS, name);
}

void client_request_deinit(struct client_request *r)
{
    buf_deinit(&r->url);
    buf_deinit(&r->answer.body);
    curl_slist_free_all(r->headers);
}

static void add_line(struct client_request *r, const char *line)
{
    struct curl_slist *longer = curl_slist_append(r->headers, line);
    if (longer == NULL)
        abort(); /* as mem_alloc does */
    r->headers = longer;
}

void client_request_header(struct client_request *r, const char *name, const char *value)
{
    for (const char *p = value; *p; p++)
        if (is_control(*p)) {
            r->bad = client_fail(r->client, ERR_SYNTAX, "%s has a control character in it", name);
            return;
        }
    struct buf line = {0};
    buf_printf(&line, "%s: %s", name, value);
    buf_putc(&line, '\0');
    add_line(r, line.p);
    buf_deinit(&line);
    if (str_eq_nocase(str_of_cstr(name), STR("Content-Type")))
        r->has_type = true;
}

void client_request_header_u64(struct client_request *r, const char *name, uint64_t value)
{
    char text[NUM_TEXT_MAX + 1];
    text[num_format(value, text)] = '\0';
    client_request_header(r, name, text);
}

void client_request_param(struct client_request *r, const char *key, struct str value)
{
    buf_printf(&r->url, "%c%s=", r->has_params ? '&' : '?', key);
    url_encode(&r->url, value, false);
    r->has_params = true;
}

/* -- the answer's head ------------------------------------------------------------------------ */

/* A text header into its buffer; one that is too long is the server's mistake. */
static void read_text(struct client_request *r, const char *name, char *to, size_t size)
{
    struct curl_header *h;
    if (curl_easy_header(r->client->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return;
    struct str value = str_trim(str_of_cstr(h->value));
    if (value.n >= size) {
        r->bad = client_fail(r->client, ERR_SYNTAX, "%s sent a %s of more than %zu bytes",
                             r->client->server, name, size - 1);
        return;
    }
    memcpy(to, value.p, value.n);
    to[value.n] = '\0';
}

static bool read_flag(struct client_request *r, const char *name, const char *yes)
{
    char value[16] = "";
    struct curl_header *h;
    if (curl_easy_header(r->client->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK)
        snprintf(value, sizeof value, "%s", h->value);
    return str_eq_nocase(str_trim(str_of_cstr(value)), str_of_cstr(yes));
}

static bool read_number(struct client_request *r, const char *name, uint64_t *to)
{
    char text[NUM_TEXT_MAX + 1] = "";
    read_text(r, name, text, sizeof text);
    return num_parse(str_of_cstr(text), NUM_SAFE_MAX, to) == 0;
}

static bool has_header(struct client_request *r, const char *name)
{
    struct curl_header *h;
    return curl_easy_header(r->client->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK;
}

/* Whether a body that breaks off can be told from one that ends. */
static bool is_framed(struct client_request *r)
{
    long version = 0;
    curl_easy_getinfo(r->client->easy, CURLINFO_HTTP_VERSION, &version);
    return version >= CURL_HTTP_VERSION_2_0 || has_header(r, "Content-Length") ||
           has_header(r, "Transfer-Encoding");
}

static void read_head(struct client_request *r)
{
    struct client_answer *a = &r->answer;
    CURL *easy = r->client->easy;
    long status = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
    r->headed = true;
    a->status = (int)status;
    a->framed = status == 204 || is_framed(r);
    /* A day is as good as never; more would only overflow somewhere. */
    a->retry_after_ms = 1000 * (uint64_t)(retry_after > 86400 ? 86400 : retry_after);
    read_text(r, "Content-Type", a->state.content_type, sizeof a->state.content_type);
    read_text(r, "Stream-Next-Offset", a->state.next_offset, sizeof a->state.next_offset);
    read_text(r, "Stream-End-Reason", a->state.end_reason, sizeof a->state.end_reason);
    read_text(r, "Stream-Cursor", a->cursor, sizeof a->cursor);
    a->state.closed = read_flag(r, "Stream-Closed", "true");
    a->up_to_date = read_flag(r, "Stream-Up-To-Date", "true");
    a->base64 = read_flag(r, "Stream-SSE-Data-Encoding", "base64");
    a->has_epoch = read_number(r, "Producer-Epoch", &a->epoch);
    a->has_expected_seq = read_number(r, "Producer-Expected-Seq", &a->expected_seq);
}

/* -- the transfer ----------------------------------------------------------------------------- */

static bool is_success(const struct client_answer *a)
{
    return a->status >= 200 && a->status <= 299;
}

static int take_body(struct client_request *r, struct str bytes)
{
    struct client_answer *a = &r->answer;
    if (!is_success(a)) {
        size_t room = CLIENT_REFUSAL_MAX - a->body.n;
        buf_put(&a->body, str_of(bytes.p, bytes.n < room ? bytes.n : room));
        return 0;
    }
    if (r->on_body)
        return r->on_body(r, bytes);
    if (bytes.n > CLIENT_ANSWER_MAX - a->body.n)
        return client_fail(r->client, ERR_TOO_LARGE, "%s sent an answer of more than %d bytes",
                           r->client->server, CLIENT_ANSWER_MAX);
    buf_put(&a->body, bytes);
    return 0;
}

/* libcurl takes a head that breaks off for a whole one; only the empty line tells. */
static size_t on_header(char *p, size_t one, size_t n, void *user)
{
    struct client_request *r = user;
    struct str line = str_of(p, one * n);
    r->head_ended = str_eq(line, STR("\r\n")) || str_eq(line, STR("\n"));
    return line.n;
}

static size_t on_bytes(char *p, size_t one, size_t n, void *user)
{
    struct client_request *r = user;
    if (!r->headed)
        read_head(r);
    r->stopped = r->bad ? r->bad : take_body(r, str_of(p, one * n));
    return r->stopped ? 0 : one * n;
}

static void set_method(struct client_request *r)
{
    CURL *easy = r->client->easy;
    if (strcmp(r->method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (strcmp(r->method, "GET") != 0) {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->method);
        if (strcmp(r->method, "DELETE") != 0) {
            curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.n);
            curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body.n ? r->body.p : "");
        }
    }
}

static void set_up(struct client_request *r)
{
    struct client *c = r->client;
    CURL *easy = c->easy;
    const struct client_options *o = &c->options;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, r->url.p);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "tidemark/" TIDEMARK_VERSION);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, r->curl_error);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                     (long)(r->live ? o->live_timeout_s : o->stall_timeout_s));
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, r);
    /* On a kept connection that turns out dead libcurl sends the request again by itself. */
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, r->once ? 1L : 0L);
    if (c->socket_path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
    if (c->is_near)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    set_method(r);
    add_line(r, "Expect:"); /* waiting for 100 Continue costs a round trip */
    if (!r->has_type)
        add_line(r, "Content-Type:"); /* or libcurl makes one up */
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, r->headers);
}

static bool has_hung_up(const struct client *c)
{
    struct pollfd fd = {.fd = c->watch_fd};
    return c->watch_fd >= 0 && poll(&fd, 1, 0) > 0 && (fd.revents & (POLLERR | POLLHUP | POLLNVAL));
}

static CURLcode take_result(struct client *c)
{
    int left;
    struct CURLMsg *m = curl_multi_info_read(c->multi, &left);
    return m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_OK;
}

/* Until the transfer is over, one way or another. */
static CURLcode transfer(struct client_request *r)
{
    struct client *c = r->client;
    CURLMcode bad = curl_multi_add_handle(c->multi, c->easy);
    int running = 1;
    while (bad == CURLM_OK) {
        bad = curl_multi_perform(c->multi, &running);
        if (bad != CURLM_OK || running == 0)
            break;
        if (has_hung_up(c)) {
            r->stopped = ERR_CANCELLED;
            break;
        }
        struct curl_waitfd watched = {.fd = c->watch_fd};
        bad = curl_multi_poll(c->multi, &watched, c->watch_fd >= 0, 1000, NULL);
    }
    CURLcode result = bad == CURLM_OK ? take_result(c) : CURLE_FAILED_INIT;
    if (result == CURLE_OK && !r->head_ended && !r->stopped)
        result = CURLE_RECV_ERROR;
    if (!r->headed && result == CURLE_OK && !r->stopped)
        read_head(r); /* an answer without a body */
    curl_multi_remove_handle(c->multi, c->easy);
    return result;
}

/* -- what went wrong -------------------------------------------------------------------------- */

static int network_error(struct client_request *r, CURLcode code)
{
    struct client *c = r->client;
    const char *why = *r->curl_error ? r->curl_error : curl_easy_strerror(code);
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
        return client_fail(c, ERR_REFUSED, "cannot reach %s: %s", c->server, why);
    case CURLE_OPERATION_TIMEDOUT:
        return client_fail(c, ERR_TIMEOUT, "no answer from %s: %s", c->server, why);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return client_fail(c, ERR_SYNTAX, "cannot use the address %s: %s", c->server, why);
    default: return client_fail(c, ERR_REFUSED, "lost the connection to %s: %s", c->server, why);
    }
}

static int conflict_error(const struct client_request *r)
{
    if (r->answer.has_expected_seq)
        return ERR_SEQ_GAP;
    if (strcmp(r->method, "PUT") == 0)
        return ERR_EXISTS;
    return r->answer.state.closed ? ERR_CLOSED : ERR_TYPE_MISMATCH;
}

static int status_error(const struct client_request *r)
{
    switch (r->answer.status) {
    case 403: return r->answer.has_epoch ? ERR_FENCED : ERR_SYNTAX;
    case 404: return ERR_NOT_FOUND;
    case 409: return conflict_error(r);
    case 410: return ERR_DELETED;
    case 412: return ERR_TAIL_MOVED;
    case 413: return ERR_TOO_LARGE;
    case 429: return ERR_LIMIT;
    case 504: return ERR_TIMEOUT;
    case 507: return ERR_FULL;
    default: return r->answer.status >= 500 ? ERR_BUSY : ERR_SYNTAX;
    }
}

/* The error of that name (err_name), which a server of ours puts in its refusals; else fallback. */
static int error_named(const char *name, int fallback)
{
    if (strcmp(name, "key-absent") == 0)
        return ERR_KEY_ABSENT; /* the only one whose code is not its name */
    for (int err = -1; strcmp(err_name(err), err_name(1)) != 0; err--)
        if (strcmp(err_name(err), name) == 0)
            return err;
    return fallback;
}

/* The code and the sentence of a refusal, {"error":{"code","message"}}; other servers say it in a
 * short plain text, or only with the status. */
static int read_refusal(struct client_request *r, struct buf *sentence)
{
    struct str body = buf_str(&r->answer.body);
    json_t *doc = json_loadb(body.p ? body.p : "", body.n, 0, NULL);
    json_t *error = json_object_get(doc, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    int err = status_error(r);
    if (code)
        err = error_named(code, err);
    if (message)
        buf_printf(sentence, "%.300s", message);
    else if (doc == NULL && body.n > 0 && body.n <= 300 && body.p[0] != '<')
        buf_put(sentence, str_trim(body));
    else
        buf_printf(sentence, "%s", err == ERR_SYNTAX ? "unexpected answer" : err_text(err));
    json_decref(doc);
    return err;
}

static int refusal(struct client_request *r)
{
    struct buf sentence = {0};
    int err = read_refusal(r, &sentence);
    client_fail(r->client, err, "%.*s (%s answered %d)", (int)sentence.n, sentence.p,
                r->client->server, r->answer.status);
    buf_deinit(&sentence);
    return err;
}

int client_request_run(struct client_request *r)
{
    struct client *c = r->client;
    assert(!c->busy);
    if (r->bad)
        return r->bad;
    c->busy = true;
    buf_putc(&r->url, '\0');
    set_up(r);
    CURLcode code = transfer(r);
    c->busy = false;
    if (r->stopped == ERR_CANCELLED)
        return client_fail(c, ERR_CANCELLED, "ended on request");
    if (r->stopped)
        return r->stopped; /* with the text of whoever stopped it */
    if (code != CURLE_OK) {
        r->answer.status = 0; /* half an answer is none */
        return network_error(r, code);
    }
    if (r->bad)
        return r->bad;
    return is_success(&r->answer) ? 0 : refusal(r);
}

bool client_request_may_retry(const struct client_request *r, int err)
{
    int status = r->answer.status;
    if (status == 0)
        return err == ERR_REFUSED || err == ERR_TIMEOUT;
    return err != 0 && (status == 429 || status >= 500);
}

int client_wait(struct client *c, uint64_t ms)
{
    uint64_t end = clock_mono_ms() + ms;
    for (uint64_t now = clock_mono_ms(); now < end; now = clock_mono_ms()) {
        uint64_t left = end - now;
        struct pollfd fd = {.fd = c->watch_fd}; /* poll passes over a negative one */
        poll(&fd, 1, left < 60000 ? (int)left : 60000);
        if (has_hung_up(c))
            return client_fail(c, ERR_CANCELLED, "ended on request");
    }
    return 0;
}
