// SPDX-License-Identifier: Apache-2.0
#include "http/h2_head.h"
#include "base/num.h"

#include <stddef.h>

#define FIELD_OVERHEAD 32

void h2_head_reset(struct h2_head *h)
{
    memset(h, 0, offsetof(struct h2_head, headers));
}

static void h2_head_refuse(struct h2_head *h, int status, const char *why)
{
    if (h->status != 0)
        return;
    h->status = status;
    h->why = why;
}

static struct str *pseudo(struct h2_head *h, struct str name)
{
    if (str_eq(name, STR(":method")))
        return &h->method;
    if (str_eq(name, STR(":scheme")))
        return &h->scheme;
    if (str_eq(name, STR(":path")))
        return &h->path;
    if (str_eq(name, STR(":authority")))
        return &h->authority;
    return NULL;
}

static void h2_head_note(struct h2_head *h, const struct header *field)
{
    if (str_eq(field->name, STR("host"))) {
        h->host = field->value;
        h->hosts++;
    } else if (str_eq(field->name, STR("content-length"))) {
        h->length = field->value;
    } else if (str_eq(field->name, STR("expect"))) {
        h->expect = field->value;
    } else if (str_eq(field->name, STR("authorization"))) {
        h->authorization = h->n;
        h->authorizations++;
    }
}

void h2_head_add(struct h2_head *h, struct arena *arena, struct str name, struct str value)
{
    h->size += name.n + value.n + FIELD_OVERHEAD;
    if (h->size > H2_LIST_MAX)
        h2_head_refuse(h, 431, "the request's headers are too large");
    if (h->status != 0 || arena == NULL)
        return;
    if (name.p[0] == ':') {
        struct str *to = pseudo(h, name);
        if (to != NULL)
            *to = arena_dup(arena, value);
        else
            h2_head_refuse(h, 400, "the request has a pseudo-header that means nothing here");
        return;
    }
    if (h->n == H1_HEADERS_MAX) {
        h2_head_refuse(h, 431, "the request has too many headers");
        return;
    }
    struct header *field = &h->headers[h->n++];
    *field = (struct header){arena_dup(arena, name), arena_dup(arena, value)};
    h->names |= header_bit(field->name);
    h2_head_note(h, field);
}

/* ---- what the fields mean together ---- */

static void judge_target(struct h2_head *h)
{
    bool star = str_eq(h->path, STR("*")) && str_eq(h->method, STR("OPTIONS"));
    if (h->method.n > H1_METHOD_MAX)
        h2_head_refuse(h, 400, "the method is too long");
    if (str_eq(h->method, STR("CONNECT")))
        h2_head_refuse(h, 400, "CONNECT is for proxies, and this is none");
    if (!str_eq(h->scheme, STR("http")) && !str_eq(h->scheme, STR("https")))
        h2_head_refuse(h, 400, "the request's scheme is neither http nor https");
    if (h->path.n > H1_TARGET_MAX)
        h2_head_refuse(h, 414, "the request target is too long");
    if (!h1_target_ok(h->path) || (h->path.p[0] != '/' && !star))
        h2_head_refuse(h, 400, "the request's path is no path, or holds a forbidden character");
}

/* Whoever looks at one of the two must not be told something else than who looks at the other. */
static void judge_host(struct h2_head *h)
{
    struct str authority = h->authority.p != NULL ? h->authority : h->host;
    if (h->hosts > 1)
        h2_head_refuse(h, 400, "Host is given more than once");
    if (authority.p == NULL)
        h2_head_refuse(h, 400, "both :authority and Host are missing");
    else if (!h1_host_ok(authority))
        h2_head_refuse(h, 400, ":authority is not a host name with an optional port");
    if (h->hosts == 1 && !str_eq(h->host, authority))
        h2_head_refuse(h, 400, ":authority and Host differ");
    h->authority = authority;
}

static uint64_t judge_length(struct h2_head *h)
{
    uint64_t length = 0;
    if (h->length.p != NULL && num_parse(h->length, H1_LENGTH_MAX, &length) != 0)
        h2_head_refuse(h, 400, "Content-Length is not a number of bytes");
    if (h->expect.p != NULL && !str_eq_nocase(h->expect, STR("100-continue")))
        h2_head_refuse(h, 417, "Expect asks for something other than 100-continue");
    return length;
}

static struct request *request_of(struct h2_head *h, struct arena *arena)
{
    struct request *req = arena_alloc(arena, sizeof *req);
    *req = (struct request){.method = h1_method(h->method),
                            .version = 20,
                            .n_headers = h->n,
                            .authorization = h->authorizations == 1 ? h->authorization : 0,
                            .absent = ~h->names,
                            .method_text = h->method,
                            .query = h->path,
                            .host = h->authority};
    req->path = str_cut(&req->query, '?');
    req->headers = arena_alloc(arena, h->n * sizeof *req->headers);
    memcpy(req->headers, h->headers, h->n * sizeof *req->headers);
    return req;
}

int h2_head_finish(struct h2_head *h, struct exchange *x, const char **why)
{
    uint64_t length = 0;
    if (h->status == 0) {
        judge_target(h);
        judge_host(h);
        length = judge_length(h);
    }
    if (h->status != 0) {
        *why = h->why;
        return h->status;
    }
    x->request = request_of(h, &x->arena);
    x->head_only = x->request->method == METHOD_HEAD;
    x->body_length = length;
    return 0;
}
