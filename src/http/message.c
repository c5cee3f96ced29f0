// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

static void move(struct str *s, struct str old, const char *to)
{
    if (s->p >= old.p && s->p < old.p + old.n)
        s->p = to + (s->p - old.p);
}

void request_move(struct request *req, struct str old, const char *to)
{
    move(&req->method_text, old, to);
    move(&req->path, old, to);
    move(&req->query, old, to);
    move(&req->host, old, to);
    for (int i = 0; i < req->n_headers; i++) {
        move(&req->headers[i].name, old, to);
        move(&req->headers[i].value, old, to);
    }
}

struct str request_find_header(const struct request *req, struct str name)
{
    for (const struct header *h = req->headers, *end = h + req->n_headers; h < end; h++)
        if (str_eq_nocase(h->name, name))
            return h->value;
    return STR_NONE;
}
