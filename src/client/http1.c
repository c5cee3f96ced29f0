// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 on a wire. Answers are read strictly (RFC 9112): lines end with CRLF, a length is said
 * once, nothing is folded. What could be read in two ways is refused and the connection with it. */
#include "client/client_http_core.h"

#include "base/ascii.h"
#include "base/hex.h"
#include "base/num.h"

#include <stdio.h>

#define CHUNK_LINE_MAX 1024 /* a size with its extensions */
#define BODY_SLICE     (16 * 1024)

enum part {
    PART_STATUS,
    PART_HEADERS,
    PART_LENGTH, /* a body of `left` bytes */
    PART_CHUNK_SIZE,
    PART_CHUNK,
    PART_CHUNK_END,
    PART_TRAILERS,
    PART_UNTIL_CLOSE,
};

struct http1 {
    enum part part;
    struct bytes line; /* that is not complete yet */
    size_t head_n;     /* bytes of lines so far */
    int status;
    bool old;      /* HTTP/1.0 */
    bool close;    /* the server says that it is going to */
    bool chunked;  /* and not both of these: */
    bool measured; /* left */
    uint64_t left; /* bytes of the body or of the chunk */
};

static const struct speaker http1_speaker;

struct wire *http1_wire_new(struct tm_client *c)
{
    struct http1 *h = client_zalloc(c, sizeof(*h));
    if (h == NULL)
        return NULL;
    struct wire *w = wire_new(c, &http1_speaker, STR("\x08http/1.1"));
    if (w == NULL)
        client_free(c, h);
    else
        w->speech = h;
    return w;
}

bool http1_speaks(const struct wire *w)
{
    return w->speaker == &http1_speaker;
}

static void http1_free(struct wire *w)
{
    struct http1 *h = w->speech;
    if (h != NULL)
        bytes_free(w->client, &h->line);
    client_free(w->client, h);
}

static struct http_exchange *current(const struct wire *w)
{
    if (list_empty(&w->exchanges))
        return NULL;
    return list_item(w->exchanges.next, struct http_exchange, link);
}

/* Half an answer leaves the connection where nobody knows. */
void http1_drop(struct http_exchange *x)
{
    wire_close(x->wire);
}

/* ---- requests ---- */

static int http1_put_header(struct tm_client *c, struct bytes *b, struct str name, struct str value)
{
    if (bytes_put_secret(c, b, name) != 0 || bytes_put_secret(c, b, STR(": ")) != 0 ||
        bytes_put_secret(c, b, value) != 0)
        return TM_E_NOMEM;
    return bytes_put_secret(c, b, STR("\r\n"));
}

static int put_request_line(struct tm_client *c, struct bytes *b, const struct http_exchange *x)
{
    if (bytes_put_secret(c, b, x->r->method) != 0 || bytes_put_secret(c, b, STR(" ")) != 0 ||
        exchange_put_target(x, b) != 0 || bytes_put_secret(c, b, STR(" HTTP/1.1\r\n")) != 0)
        return TM_E_NOMEM;
    return http1_put_header(c, b, STR("host"), str_of_cstr(c->server.authority));
}

static int put_token(struct tm_client *c, struct bytes *b, const struct http_exchange *x)
{
    if (c->options.token == NULL || exchange_sets(x, STR("authorization")))
        return 0;
    if (bytes_put_secret(c, b, STR("authorization: Bearer ")) != 0 ||
        bytes_put_secret(c, b, str_of_cstr(c->options.token)) != 0)
        return TM_E_NOMEM;
    return bytes_put_secret(c, b, STR("\r\n"));
}

int http1_prepare(struct http_exchange *x)
{
    const struct http_request *r = x->r;
    struct tm_client *c = r->client;
    struct bytes *b = &x->text;
    char length[NUM_TEXT_MAX];
    if (put_request_line(c, b, x) != 0 || put_token(c, b, x) != 0)
        return TM_E_NOMEM;
    if (!exchange_sets(x, STR("user-agent")) &&
        http1_put_header(c, b, STR("user-agent"), STR(HTTP_USER_AGENT)) != 0)
        return TM_E_NOMEM;
    for (size_t i = 0; i < r->n_headers; i++)
        if (http1_put_header(c, b, r->headers[i].name, r->headers[i].value) != 0)
            return TM_E_NOMEM;
    struct str name, value;
    for (size_t at = 0; exchange_added(x, &at, &name, &value);)
        if (http1_put_header(c, b, name, value) != 0)
            return TM_E_NOMEM;
    if (exchange_has_length(x) &&
        http1_put_header(c, b, STR("content-length"),
                         str_of(length, num_format(r->body.n, length))) != 0)
        return TM_E_NOMEM;
    return bytes_put_secret(c, b, STR("\r\n"));
}

static bool is_sent(const struct http_exchange *x)
{
    return x->text_sent == x->text.n && x->body_sent == x->r->body.n;
}

/* What goes next: the rest of the head, then a slice of the body. */
static struct str next_slice(struct http_exchange *x, size_t **sent)
{
    struct str rest = str_skip(bytes_str(&x->text), x->text_sent);
    *sent = &x->text_sent;
    if (rest.n == 0) {
        rest = str_skip(x->r->body, x->body_sent);
        *sent = &x->body_sent;
    }
    return rest.n > BODY_SLICE ? str_of(rest.p, BODY_SLICE) : rest;
}

static void http1_fill(struct wire *w)
{
    struct http_exchange *x = current(w);
    if (x == NULL)
        return;
    while (!is_sent(x) && wire_has_room(w)) {
        size_t *sent;
        struct str slice = next_slice(x, &sent);
        exchange_begin(x);
        exchange_progress(x);
        if (wire_write(w, slice) != 0) {
            exchange_fail(x, TM_E_NOMEM, NULL);
            return;
        }
        *sent += slice.n;
    }
}

static void http1_opened(struct wire *w)
{
}

/* ---- answers ---- */

static void http1_refuse(struct wire *w, int err, const char *message)
{
    wire_fail(w, err, message);
}

static void reset(struct http1 *h)
{
    h->part = PART_STATUS;
    h->line.n = h->head_n = 0;
    h->old = h->close = h->chunked = h->measured = false;
}

/* The answer is complete. The wire is settled first: over() may ask for the next one. */
static void http1_complete(struct wire *w, size_t unasked)
{
    struct http1 *h = w->speech;
    struct http_exchange *x = current(w);
    bool clean = unasked == 0 && !h->old && !h->close && is_sent(x) && !w->mute;
    if (!clean)
        w->no_more = true;
    reset(h);
    exchange_over(x, 0, NULL);
    if (!clean)
        wire_close(w);
}

/* "HTTP/1.1 200 OK"; the reason may be missing, and with it the space. */
static int parse_status(struct http1 *h, struct str line)
{
    if (line.n < 12 || !str_starts(line, STR("HTTP/1.")) || line.p[8] != ' ' ||
        (line.p[7] != '0' && line.p[7] != '1') || (line.n > 12 && line.p[12] != ' '))
        return TM_E_PROTOCOL;
    uint64_t status;
    if (num_parse(str_of(line.p + 9, 3), 599, &status) != 0 || status < 100)
        return TM_E_PROTOCOL;
    h->old = line.p[7] == '0';
    h->status = (int)status;
    return 0;
}

static bool lower_name(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = ascii_lower(p[i]);
    return http_name_ok(str_of(p, n));
}

static bool has_token(struct str list, struct str token)
{
    while (list.p != NULL)
        if (str_eq_nocase(str_trim(str_cut(&list, ',')), token))
            return true;
    return false;
}

/* The headers that say how the answer is to be read. */
static int apply_header(struct http1 *h, struct str name, struct str value)
{
    if (str_eq(name, STR("content-length"))) {
        uint64_t n;
        if (num_parse(value, INT64_MAX, &n) != 0 || (h->measured && n != h->left))
            return TM_E_PROTOCOL;
        h->measured = true;
        h->left = n;
    } else if (str_eq(name, STR("transfer-encoding"))) {
        if (h->chunked || h->old || !str_eq_nocase(value, STR("chunked")))
            return TM_E_PROTOCOL;
        h->chunked = true;
    } else if (str_eq(name, STR("connection"))) {
        h->close |= has_token(value, STR("close"));
    }
    return 0;
}

static int take_header(struct wire *w, bool trailer)
{
    struct http1 *h = w->speech;
    struct str line = bytes_str(&h->line);
    char *colon = memchr(h->line.p, ':', h->line.n);
    if (colon == NULL || !lower_name(h->line.p, (size_t)(colon - h->line.p)))
        return TM_E_PROTOCOL;
    struct str name = str_of(line.p, (size_t)(colon - h->line.p));
    struct str value = str_trim(str_skip(line, name.n + 1));
    if (!http_value_ok(value) || (!trailer && apply_header(h, name, value) != 0))
        return TM_E_PROTOCOL;
    return exchange_header(current(w), trailer, name, value);
}

static bool has_no_body(const struct http_exchange *x, int status)
{
    return str_eq(x->r->method, STR("HEAD")) || status == 204 || status == 304;
}

/* Where the body ends; true: here. */
static bool choose_body(struct http1 *h, struct http_exchange *x)
{
    x->r->framed = true;
    if (has_no_body(x, h->status))
        return true;
    if (h->chunked) {
        h->part = PART_CHUNK_SIZE;
        return false;
    }
    if (h->measured) {
        h->part = PART_LENGTH;
        return h->left == 0;
    }
    h->part = PART_UNTIL_CLOSE;
    x->r->framed = false;
    h->close = true;
    return false;
}

static int end_of_head(struct wire *w, size_t rest)
{
    struct http1 *h = w->speech;
    struct http_exchange *x = current(w);
    if (h->status == 101 || (h->chunked && h->measured))
        return TM_E_PROTOCOL;
    if (h->status < 200) { /* the answer is still to come */
        size_t head_n = h->head_n;
        exchange_forget_answer(x);
        reset(h);
        h->head_n = head_n; /* interim answers are bounded, too */
        return 0;
    }
    bool no_body = choose_body(h, x);
    exchange_head(x, h->status);
    if (x->r != NULL && no_body)
        http1_complete(w, rest);
    return 0;
}

/* Hexadecimal, then perhaps extensions, which mean nothing here. */
static int parse_chunk_size(struct http1 *h)
{
    uint64_t n = 0;
    size_t i = 0;
    for (; i < h->line.n; i++) {
        int digit = hex_value(h->line.p[i]);
        if (digit < 0)
            break;
        if (i >= 15)
            return TM_E_PROTOCOL;
        n = n * 16 + (unsigned)digit;
    }
    struct str rest = str_trim(str_skip(bytes_str(&h->line), i));
    if (i == 0 || (rest.n > 0 && rest.p[0] != ';') || !http_value_ok(rest))
        return TM_E_PROTOCOL;
    h->left = n;
    h->part = n > 0 ? PART_CHUNK : PART_TRAILERS;
    return 0;
}

/* A whole line stands in h->line, without its end; rest: bytes that came behind it. */
static int http1_take_line(struct wire *w, size_t rest)
{
    struct http1 *h = w->speech;
    int err;
    switch (h->part) {
    case PART_STATUS:
        err = parse_status(h, bytes_str(&h->line));
        h->part = PART_HEADERS;
        return err;
    case PART_HEADERS: return h->line.n > 0 ? take_header(w, false) : end_of_head(w, rest);
    case PART_CHUNK_SIZE: return parse_chunk_size(h);
    case PART_CHUNK_END: h->part = PART_CHUNK_SIZE; return h->line.n == 0 ? 0 : TM_E_PROTOCOL;
    default: break; /* trailers */
    }
    if (h->line.n > 0)
        return take_header(w, true);
    http1_complete(w, rest);
    return 0;
}

/* Lines of a body are bounded one by one, those of a head all together. */
static bool line_fits(struct http1 *h, size_t n)
{
    if (h->part == PART_CHUNK_SIZE || h->part == PART_CHUNK_END)
        return h->line.n + n <= CHUNK_LINE_MAX;
    h->head_n += n;
    return h->head_n <= HTTP_HEAD_MAX;
}

/* Whatever it is that speaks here, it need not end a line before it is found out. */
static bool begins_well(const struct http1 *h)
{
    struct str know = STR("HTTP/1.");
    size_t n = h->line.n < know.n ? h->line.n : know.n;
    return h->part != PART_STATUS || memcmp(h->line.p, know.p, n) == 0;
}

/* Takes bytes up to the end of a line. */
static int gather_line(struct wire *w, struct str *bytes)
{
    struct http1 *h = w->speech;
    const char *end = memchr(bytes->p, '\n', bytes->n);
    size_t n = end != NULL ? (size_t)(end - bytes->p) + 1 : bytes->n;
    if (!line_fits(h, n))
        return TM_E_PROTOCOL;
    if (bytes_put(w->client, &h->line, str_of(bytes->p, n)) != 0)
        return TM_E_NOMEM;
    *bytes = str_skip(*bytes, n);
    if (!begins_well(h))
        return TM_E_PROTOCOL;
    if (end == NULL)
        return 0;
    if (h->line.n < 2 || memchr(h->line.p, '\r', h->line.n) != h->line.p + h->line.n - 2)
        return TM_E_PROTOCOL;
    h->line.n -= 2;
    int err = http1_take_line(w, bytes->n);
    h->line.n = 0;
    return err;
}

static void body_bytes(struct wire *w, struct str *bytes)
{
    struct http1 *h = w->speech;
    struct http_exchange *x = current(w);
    size_t n = bytes->n;
    if (h->part != PART_UNTIL_CLOSE && n > h->left)
        n = (size_t)h->left;
    struct str piece = str_of(bytes->p, n);
    *bytes = str_skip(*bytes, n);
    h->left -= h->part != PART_UNTIL_CLOSE ? n : 0;
    exchange_data(x, piece);
    if (x->r == NULL || h->part == PART_UNTIL_CLOSE || h->left > 0)
        return;
    if (h->part == PART_CHUNK)
        h->part = PART_CHUNK_END;
    else
        http1_complete(w, bytes->n);
}

static void http1_bytes(struct wire *w, struct str bytes)
{
    struct http1 *h = w->speech;
    while (bytes.n > 0 && w->state == WIRE_OPEN) {
        struct http_exchange *x = current(w);
        if (x == NULL || !x->begun) {
            http1_refuse(w, TM_E_NETWORK, "the server sent something that was not asked for");
            return;
        }
        x->received = true;
        if (h->part == PART_LENGTH || h->part == PART_CHUNK || h->part == PART_UNTIL_CLOSE) {
            body_bytes(w, &bytes);
            continue;
        }
        exchange_progress(x);
        int err = gather_line(w, &bytes);
        if (err != 0)
            http1_refuse(
                w, err, err == TM_E_PROTOCOL ? "the server's answer is not proper HTTP/1.1" : NULL);
    }
}

static void http1_lost(struct wire *w, int err, const char *message)
{
    struct http1 *h = w->speech;
    struct http_exchange *x = current(w);
    if (err == 0 && x != NULL && h->part == PART_UNTIL_CLOSE)
        exchange_over(x, 0, NULL);
    else
        http_lost(w, err,
                  x != NULL && x->received && err == 0 ? "the answer was cut off" : message);
}

static const struct speaker http1_speaker = {
    .opened = http1_opened,
    .bytes = http1_bytes,
    .fill = http1_fill,
    .lost = http1_lost,
    .free = http1_free,
};
