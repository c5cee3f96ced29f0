// SPDX-License-Identifier: Apache-2.0
/* fake_http.h -- client/client_http.h without a network: what is started waits in a list until the
 * test answers it. Included by one test program each, which is then linked without
 * client/client_http.c. */
#ifndef TESTS_LIB_FAKE_HTTP_H
#define TESTS_LIB_FAKE_HTTP_H

#include "client/client_http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FAKE_MAX 32

static struct fake {
    struct http_request *requests[FAKE_MAX]; /* under way, oldest first */
    size_t n;
    unsigned started;              /* all in all */
    const char *headers;           /* of the answer that is being given: "name: value\n" each */
    unsigned allocations, fail_at; /* the one that fails; 0: none */
    int blocks;                    /* not freed yet */
} fake;

static void fake_remove(struct http_request *r)
{
    for (size_t i = 0; i < fake.n; i++)
        if (fake.requests[i] == r) {
            fake.n--;
            memmove(fake.requests + i, fake.requests + i + 1, (fake.n - i) * sizeof *fake.requests);
            break;
        }
    r->exchange = NULL;
}

int http_start(struct http_request *r)
{
    if (++fake.allocations == fake.fail_at)
        return TM_E_NOMEM;
    assert_true(fake.n < FAKE_MAX);
    assert_null(r->exchange);
    r->exchange = (struct http_exchange *)r;
    r->status = 0;
    r->framed = true;
    r->message[0] = '\0';
    fake.requests[fake.n++] = r;
    fake.started++;
    return 0;
}

void http_cancel(struct http_request *r)
{
    fake_remove(r);
}

struct str http_answer_header(const struct http_request *r, struct str name)
{
    struct str rest = str_of_cstr(fake.headers);
    (void)r;
    while (rest.n > 0) {
        struct str value = str_cut(&rest, '\n');
        if (str_eq(str_cut(&value, ':'), name))
            return str_trim(value);
    }
    return STR_NONE;
}

int http_send(struct http_request *r, struct str bytes)
{
    (void)r, (void)bytes;
    return TM_E_INVALID;
}

size_t http_unsent(const struct http_request *r)
{
    (void)r;
    return 0;
}

int http_end(struct http_request *r)
{
    (void)r;
    return TM_E_INVALID;
}

void http_turn(struct tm_client *c)
{
    (void)c;
}

void http_flush(struct tm_client *c)
{
    (void)c;
}

size_t http_descriptors(const struct tm_client *c, struct tm_descriptor *out, size_t max)
{
    (void)c, (void)out, (void)max;
    return 0;
}

void http_close_all(struct tm_client *c)
{
    (void)c;
    assert_int_equal(fake.n, 0);
}

/* -- answering -------------------------------------------------------------------------------- */

static inline void fake_head(struct http_request *r, int status, const char *headers)
{
    fake.headers = headers;
    r->status = status;
    if (r->head)
        r->head(r);
}

static inline void fake_over(struct http_request *r, int err)
{
    fake_remove(r);
    r->over(r, err);
}

/* A piece of the body; what it is refused with ends the request. */
static inline int fake_data(struct http_request *r, const char *bytes)
{
    int err = r->data(r, str_of_cstr(bytes));
    if (err)
        fake_over(r, err);
    return err;
}

static inline void fake_answer(struct http_request *r, int status, const char *headers,
                               const char *body)
{
    fake_head(r, status, headers);
    if (*body == '\0' || fake_data(r, body) == 0)
        fake_over(r, 0);
}

static inline void fake_lose(struct http_request *r)
{
    fake_over(r, TM_E_NETWORK);
}

/* -- a client --------------------------------------------------------------------------------- */

static inline void *fake_alloc(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (++fake.allocations == fake.fail_at)
        return NULL;
    fake.blocks += p == NULL;
    return realloc(p, n);
}

static inline void fake_free(void *ctx, void *p)
{
    (void)ctx;
    fake.blocks -= p != NULL;
    free(p);
}

static inline struct tm_client *fake_client(void)
{
    static const struct tm_allocator allocator = {NULL, fake_alloc, fake_free};
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    fake = (struct fake){.headers = ""};
    o.server = "http://127.0.0.1:1";
    o.retry_first_ms = 1;
    o.retry_max_ms = 2;
    o.answer_max = 1000;
    o.allocator = &allocator;
    assert_int_equal(tm_open(&o, &c), 0);
    return c;
}

/* Nothing may be left behind. */
static inline void fake_close(struct tm_client *c)
{
    tm_close(c);
    assert_int_equal(fake.blocks, 0);
}

/* Turns until so many requests are under way. */
static inline struct http_request *fake_wait(struct tm_client *c, size_t n)
{
    for (int i = 0; i < 1000 && fake.n < n; i++)
        tm_wait(c, 5);
    assert_int_equal(fake.n, n);
    return fake.requests[0];
}

/* Turns for a while; nothing more may be asked for. */
static inline void fake_quiet(struct tm_client *c)
{
    size_t n = fake.n;
    for (int i = 0; i < 10; i++)
        tm_wait(c, 5);
    assert_int_equal(fake.n, n);
}

static inline const char *fake_header(const struct http_request *r, const char *name)
{
    static char value[512];
    for (size_t i = 0; i < r->n_headers; i++)
        if (str_eq(r->headers[i].name, str_of_cstr(name))) {
            snprintf(value, sizeof value, "%.*s", (int)r->headers[i].value.n,
                     r->headers[i].value.p);
            return value;
        }
    return "";
}

#define assert_str(s, text)                                                                        \
    do {                                                                                           \
        struct str got_ = (s);                                                                     \
        assert_int_equal(got_.n, strlen(text));                                                    \
        assert_memory_equal(got_.p, text, got_.n);                                                 \
    } while (0)

#endif
