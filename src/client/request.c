// SPDX-License-Identifier: Apache-2.0
/* What a program adds to a request before it goes: tm_options.prepare. */
#include "client/client_http_core.h"
#include "client/stream.h"

#include <stdio.h>

#define ADDED_BYTES_MAX (32 * 1024) /* of headers, and of parameters */

struct tm_request {
    struct http_exchange *x;
    int err; /* the first that makes the request one that nobody meant */
    const char *why;
};

/* -- what is there ---------------------------------------------------------------------------- */

bool exchange_added(const struct http_exchange *x, size_t *at, struct str *name, struct str *value)
{
    size_t n[2];
    if (*at >= x->added.n)
        return false;
    memcpy(n, x->added.p + *at, sizeof n);
    *name = str_of(x->added.p + *at + sizeof n, n[0]);
    *value = str_of(name->p + n[0], n[1]);
    *at += sizeof n + n[0] + n[1];
    return true;
}

bool exchange_sets(const struct http_exchange *x, struct str wanted)
{
    struct str name, value;
    for (size_t i = 0; i < x->r->n_headers; i++)
        if (str_eq(x->r->headers[i].name, wanted))
            return true;
    for (size_t at = 0; exchange_added(x, &at, &name, &value);)
        if (str_eq(name, wanted))
            return true;
    return false;
}

int exchange_put_target(const struct http_exchange *x, struct bytes *to)
{
    struct tm_client *c = x->r->client;
    const struct str parts[] = {str_of_cstr(c->server.prefix), x->r->path, bytes_str(&x->params)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (bytes_put_secret(c, to, parts[i]) != 0)
            return TM_E_NOMEM;
    return 0;
}

/* -- what is added ---------------------------------------------------------------------------- */

static int fail_request(struct tm_request *r, int err, const char *why)
{
    if (r->err == 0) {
        r->err = err;
        r->why = why;
    }
    return err;
}

const char *tm_request_method(const struct tm_request *r)
{
    return r->x->r->method.p;
}

const char *tm_request_path(const struct tm_request *r)
{
    return r->x->r->path.p;
}

static int request_put_header(struct http_exchange *x, struct str name, struct str value)
{
    struct tm_client *c = x->r->client;
    size_t n[2] = {name.n, value.n}, before = x->added.n;
    if (bytes_put_secret(c, &x->added, str_of((const char *)n, sizeof n)) == 0 &&
        bytes_put_secret(c, &x->added, name) == 0 && bytes_put_secret(c, &x->added, value) == 0)
        return 0;
    x->added.n = before;
    return TM_E_NOMEM;
}

int tm_request_header(struct tm_request *r, const char *name, const char *value)
{
    struct http_exchange *x = r->x;
    char low[HTTP_NAME_MAX + 1];
    if (name == NULL || value == NULL || !stream_name_ok(name, low) || !stream_header_ok(value))
        return fail_request(r, TM_E_INVALID, "prepare has set what cannot be a header");
    struct str own = str_of_cstr(low), text = str_of_cstr(value);
    if (exchange_sets(x, own))
        return TM_E_CONFLICT;
    if (x->n_added == HTTP_ADDED_MAX || own.n + text.n > ADDED_BYTES_MAX - x->added_bytes)
        return fail_request(r, TM_E_TOO_LARGE, "prepare has set too many headers");
    if (request_put_header(x, own, text) != 0)
        return fail_request(r, TM_E_NOMEM, tm_error_text(TM_E_NOMEM));
    x->n_added++;
    x->added_bytes += own.n + text.n;
    return 0;
}

int tm_request_param(struct tm_request *r, const char *name, const char *value)
{
    struct http_exchange *x = r->x;
    if (name == NULL || *name == '\0' || value == NULL)
        return fail_request(r, TM_E_INVALID, "prepare has set a parameter without a name or value");
    /* A byte may become three. */
    if (strlen(name) + strlen(value) > (ADDED_BYTES_MAX - x->params.n) / 3)
        return fail_request(r, TM_E_TOO_LARGE, "prepare has set too many parameters");
    bool is_first = x->params.n == 0 && memchr(x->r->path.p, '?', x->r->path.n) == NULL;
    struct bytes one = {0};
    int err = stream_param(x->r->client, &one, is_first, name, value);
    if (err == 0)
        err = bytes_put_secret(x->r->client, &x->params, bytes_str(&one));
    bytes_free_secret(x->r->client, &one);
    return err ? fail_request(r, err, tm_error_text(err)) : 0;
}

/* -- asking the program ----------------------------------------------------------------------- */

int exchange_prepare(struct http_exchange *x)
{
    const struct tm_options *o = &x->r->client->options;
    struct tm_request r = {.x = x};
    if (o->prepare == NULL)
        return 0;
    int err = o->prepare(o->prepare_ctx, &r);
    if (r.err == 0 && err != 0)
        fail_request(&r, err < 0 ? err : TM_E_CANCELLED, "prepare has refused the request");
    if (r.err != 0)
        snprintf(x->r->message, sizeof x->r->message, "%s", r.why);
    return r.err;
}
