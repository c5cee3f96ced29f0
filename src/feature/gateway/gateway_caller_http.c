// SPDX-License-Identifier: Apache-2.0
/* gateway_caller_http.c -- who asks: what belongs to him, what he may see, and how often he comes.
 *
 *     known to the server        by his principal, whatever token he shows
 *     not known, access is on    by the headers of `identity`; without any by his address
 *     not known, access is off   by the headers of `identity`; all without any are one
 *
 * An address is shared by some, but a connection would not do: who lost one sends his key again on
 * the next. For limits only principals and addresses count: a header is made up for nothing. */
#include "base/pack.h"
#include "feature/gateway/gateway_http_core.h"
#include "http/limits.h"

/* ---- digests ---- */

void gateway_put_digest(const struct str *parts, size_t n, char out[SHA256_HEX])
{
    struct buf text = {0};
    for (size_t i = 0; i < n; i++)
        pack_str(&text, parts[i]); /* which separates them for certain */
    sha256_hex(buf_str(&text), out);
    buf_deinit(&text);
}

struct str gateway_digest(struct exchange *x, const struct str *parts, size_t n)
{
    char *hex = arena_alloc(&x->arena, SHA256_HEX);
    gateway_put_digest(parts, n, hex);
    return str_of(hex, SHA256_HEX);
}

/* ---- whose it is ---- */

static bool is_guarded(const struct exchange *x)
{
    return x->principal->rights.n > 0;
}

/* The first part says what the others are, so that nobody is taken for somebody of another sort. */
static struct str guarded_caller(struct exchange *x, struct str *shown, size_t n, bool any)
{
    const struct principal *p = x->principal;
    if (p->known)
        return gateway_digest(x, (struct str[]){STR("principal"), p->id, p->root}, 3);
    if (!any)
        return gateway_digest(x, (struct str[]){STR("address"), limits_key(x)}, 2);
    shown[0] = STR("headers");
    return gateway_digest(x, shown, n + 1);
}

bool gateway_is_told_apart(const struct gateway_route *r, const struct exchange *x)
{
    const struct option_list *names = &r->config->identity;
    for (size_t i = 0; i < names->n; i++)
        if (request_header(x->request, str_of_cstr(names->items[i])).p != NULL)
            return true;
    return x->principal->known;
}

struct str gateway_caller(const struct gateway_route *r, struct exchange *x)
{
    const struct option_list *names = &r->config->identity;
    struct str *shown = arena_alloc(&x->arena, (names->n + 1) * sizeof *shown);
    bool any = false;
    for (size_t i = 0; i < names->n; i++) {
        shown[i + 1] = request_header(x->request, str_of_cstr(names->items[i]));
        any = any || shown[i + 1].p != NULL;
    }
    if (is_guarded(x))
        return guarded_caller(x, shown, names->n, any);
    if (x->principal->known || !any)
        return x->principal->name;
    return gateway_digest(x, shown + 1, names->n);
}

/* His own; or all, for who may read the streams themselves. Those are nobody's tenant. */
bool gateway_may_read(const struct gateway_route *r, struct exchange *x, struct str request_id)
{
    if (gateway_id_is_of(request_id, x->principal))
        return true;
    return x->principal->root.n == 0 && exchange_can(x, ACCESS_VERB_READ, ACCESS_STREAM,
                                                     gateway_stream(&x->arena, r, request_id, ""));
}

/* ---- how often he comes ---- */

void gateway_refuse_limit(const struct gateway_route *r, struct exchange *x, uint64_t retry_after_s,
                          struct str message)
{
    exchange_header_u64(x, STR("Retry-After"), retry_after_s);
    gateway_error(r, x, 429, STR("RATE_LIMITED"), message,
                  arena_printf(&x->arena, "{\"retry_after_seconds\":%llu}",
                               (unsigned long long)retry_after_s));
}

static struct str counted_as(struct exchange *x)
{
    struct str who[] = {x->principal->known ? STR("caller") : STR("address"), limits_key(x)};
    return gateway_digest(x, who, 2);
}

/* His own bucket first: what it refuses must cost the others nothing. */
static bool take_quota(struct gateway_route *r, struct exchange *x, struct quota_answer *answer)
{
    struct quota_answer all;
    uint64_t now_ms = r->gateway->setup.sched->now_ms;
    if (!quota_take(&r->quota, counted_as(x), now_ms, answer))
        return false;
    if (x->principal->known)
        return true;
    bool ok = quota_take(&r->anonymous, STR("all"), now_ms, &all);
    if (r->config->requests_per_minute == 0 || all.remaining < answer->remaining)
        answer->remaining = all.remaining;
    answer->retry_after_s = all.retry_after_s;
    return ok;
}

static uint64_t limit_of(const struct gateway_route *r, const struct exchange *x)
{
    const struct route_config *c = r->config;
    return c->requests_per_minute > 0 || x->principal->known ? c->requests_per_minute
                                                             : c->anonymous_per_minute;
}

bool gateway_within_quota(struct gateway_route *r, struct exchange *x)
{
    struct quota_answer answer;
    uint64_t limit = limit_of(r, x);
    if (limit == 0)
        return true;
    bool ok = take_quota(r, x, &answer);
    exchange_header_u64(x, STR("X-RateLimit-Limit"), limit);
    exchange_header_u64(x, STR("X-RateLimit-Remaining"), answer.remaining);
    if (!ok) {
        counter_inc(r->refused_rate);
        gateway_refuse_limit(r, x, answer.retry_after_s, STR("Too many requests"));
    }
    return ok;
}
