// SPDX-License-Identifier: Apache-2.0
/* fake_session_http.h -- http.h for tests, in place of http.c: requests are noted, and answered by
 * hand. Include it in one file of a test; the archive's own is then not linked. */
#ifndef TESTS_LIB_FAKE_SESSION_HTTP_H
#define TESTS_LIB_FAKE_SESSION_HTTP_H

#include "client/client_http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FAKE_MAX 64

struct http_exchange {
    struct http_request *r; /* NULL: over or cancelled */
    char path[128];
    char event_id[64], request_id[64], key[64], secret[64];
    char *body; /* all that was sent */
    size_t n;
    bool ended, cancelled;
    enum http_version version;
};

/* Those of the test that runs. Texts outlive their requests. */
static struct {
    struct http_exchange all[FAKE_MAX];
    size_t n;
    int refuse; /* the next http_start fails with it */
} fake;

static inline void fake_reset(void)
{
    for (size_t i = 0; i < fake.n; i++)
        free(fake.all[i].body);
    memset(&fake, 0, sizeof fake);
}

static inline void fake_put(struct http_exchange *x, struct str s)
{
    x->body = realloc(x->body, x->n + s.n + 1);
    if (s.n > 0)
        memcpy(x->body + x->n, s.p, s.n);
    x->n += s.n;
}

static inline void fake_header(const struct http_request *r, const char *name, char *out, size_t n)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (str_eq(r->headers[i].name, str_of_cstr(name)))
            snprintf(out, n, "%.*s", (int)r->headers[i].value.n, r->headers[i].value.p);
}

int http_start(struct http_request *r)
{
    if (fake.refuse != 0) {
        int err = fake.refuse;
        fake.refuse = 0;
        return err;
    }
    assert_true(fake.n < FAKE_MAX);
    struct http_exchange *x = &fake.all[fake.n++];
    x->r = r;
    x->version = r->version;
    snprintf(x->path, sizeof x->path, "%.*s", (int)r->path.n, r->path.p);
    fake_header(r, "x-idempotency-event-id", x->event_id, sizeof x->event_id);
    fake_header(r, "x-idempotency-key", x->key, sizeof x->key);
    fake_header(r, "x-idempotent-encryption-key", x->secret, sizeof x->secret);
    fake_header(r, "x-request-id", x->request_id, sizeof x->request_id);
    fake_put(x, r->body);
    r->exchange = x;
    r->status = 0;
    r->http2_refused = false;
    r->message[0] = '\0';
    return 0;
}

int http_send(struct http_request *r, struct str bytes)
{
    assert_non_null(r->exchange);
    assert_true(r->duplex && !r->exchange->ended);
    fake_put(r->exchange, bytes);
    return 0;
}

int http_end(struct http_request *r)
{
    assert_non_null(r->exchange);
    r->exchange->ended = true;
    return 0;
}

size_t http_unsent(const struct http_request *r)
{
    return 0;
}

void http_cancel(struct http_request *r)
{
    if (r->exchange == NULL)
        return;
    r->exchange->cancelled = true;
    r->exchange->r = NULL;
    r->exchange = NULL;
}

struct str http_answer_header(const struct http_request *r, struct str name)
{
    return STR_NONE;
}

void http_turn(struct tm_client *c)
{
}

void http_flush(struct tm_client *c)
{
}

size_t http_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max)
{
    return 0;
}

void http_close_all(struct tm_client *c)
{
}

/* ---- answering ---- */

static inline void fake_over(struct http_exchange *x, int err, const char *message)
{
    struct http_request *r = x->r;
    assert_non_null(r);
    x->r = NULL;
    r->exchange = NULL;
    snprintf(r->message, sizeof r->message, "%s", message);
    r->over(r, err);
}

static inline void fake_head(struct http_exchange *x, int status)
{
    x->r->status = status;
    if (x->r->head != NULL)
        x->r->head(x->r);
}

/* Ends the request with what data() says, if that is an error. */
static inline void fake_data(struct http_exchange *x, const void *bytes, size_t n)
{
    if (x->r->status == 0)
        fake_head(x, 200);
    int err = x->r->data(x->r, str_of(bytes, n));
    if (err != 0 && x->r != NULL)
        fake_over(x, err, "");
}

#endif
