// SPDX-License-Identifier: Apache-2.0
/* gateway_key_http.c -- by what a request is recognised when it comes again.
 *
 *     Idempotency-Key          what the client means by it: one request, and another one is refused
 *     X-Run-Id                 of a run (TanStack AI): with the same request it is a retry
 *     amz-sdk-invocation-id    of a call (AWS SDKs): the same
 *     X-Stainless-Retry-Count  the number of a try (OpenAI, Anthropic): gateway_repeats.h */
#include "base/err.h"
#include "base/num.h"
#include "feature/gateway/gateway_http_core.h"

#define KEY_MAX   255 /* bytes */
#define TRIES_MAX 1000

static const struct key_header headers[] = {
    {.name = STR_INIT("Idempotency-Key")},
    {.name = STR_INIT("X-Run-Id"), .implied = true},
    {.name = STR_INIT("amz-sdk-invocation-id"), .implied = true},
};

int gateway_key_find(const struct request *req, struct key_header *k)
{
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct str value = request_header(req, headers[i].name);
        bool fits = value.n > 0 && value.n <= KEY_MAX;
        if (value.p == NULL || (!fits && headers[i].implied))
            continue;
        *k = headers[i];
        k->value = value;
        return fits ? 0 : ERR_SYNTAX;
    }
    *k = (struct key_header){0};
    return 0;
}

struct str gateway_key_doc(const struct gateway_route *r, struct exchange *x,
                           const struct key_header *k, struct str fingerprint)
{
    struct str who = gateway_caller(r, x), path = gateway_path(r, x), digest;
    if (k->implied)
        digest = gateway_digest(x, (struct str[]){path, who, k->name, k->value, fingerprint}, 5);
    else
        digest = gateway_digest(x, (struct str[]){path, who, k->value}, 3);
    return arena_printf(&x->arena, GATEWAY_KEYS "%.*s", (int)digest.n, digest.p);
}

/* ---- those who count their tries ---- */

void gateway_mark_tries(const struct gateway_route *r, const struct exchange *x,
                        struct repeat_mark *m)
{
    struct str tries = request_header(x->request, STR("X-Stainless-Retry-Count"));
    m->counts = tries.p != NULL && num_parse_canonical(tries, TRIES_MAX, &m->tries) == 0 &&
                gateway_is_told_apart(r, x);
}

void gateway_mark_request(const struct gateway_route *r, struct exchange *x, struct str fingerprint,
                          struct repeat_mark *m)
{
    struct str what[] = {gateway_path(r, x), gateway_caller(r, x), fingerprint};
    if (m->counts)
        gateway_put_digest(what, 3, m->digest);
}

void gateway_note_repeat(const struct gateway_route *r, const struct repeat_note *note)
{
    struct gateway *g = r->gateway;
    repeats_note(&g->repeats, note, g->setup.sched->now_ms);
}
