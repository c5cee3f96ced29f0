// SPDX-License-Identifier: Apache-2.0
/* mcp_http.c -- POST /mcp: MCP's Streamable HTTP, with one JSON answer to each request and no
 * sessions. `?bridge=1` and `&quiet=1` are as mcp.h has them. */
#include "access/policy.h"
#include "base/err.h"
#include "base/json.h"
#include "http/guard.h"
#include "http/surface.h"
#include "http/url.h"
#include "feature/tools/mcp.h"
#include "feature/tools/tools_http_core.h"

#include <stdlib.h>

#define NOT_ADMITTED  (-32001) /* as with a foreign Host or Origin */
#define UNKNOWN_TOKEN (-32002)
#define MCP_FORBIDDEN (-32003)

struct mcp_exchange {
    struct mcp_request request;
    struct mcp_headers headers;
    struct exchange *x;
};

static void send_answer(struct exchange *x, int status, struct str body)
{
    exchange_status(x, status);
    if (body.n > 0)
        exchange_header(x, STR("Content-Type"), STR("application/json"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    exchange_send(x, body);
}

static void mcp_refuse(struct exchange *x, int status, int code, const char *message)
{
    struct buf body = {0};
    mcp_put_error(&body, STR_NONE, code, str_of_cstr(message));
    send_answer(x, status, buf_str(&body));
    buf_deinit(&body);
}

static void mcp_finish(struct mcp_exchange *m)
{
    struct exchange *x = m->x;
    x->ops = NULL;
    if (m->request.denied)
        exchange_deny(x);
    else
        send_answer(x, m->request.status, buf_str(&m->request.answer));
    mcp_request_deinit(&m->request);
    free(m);
    exchange_release(x);
}

static void mcp_on_done(struct mcp_request *r)
{
    mcp_finish(container_of(r, struct mcp_exchange, request));
}

static void mcp_on_gone(struct exchange *x)
{
    struct mcp_exchange *m = x->state;
    mcp_cancel(&m->request);
    mcp_request_deinit(&m->request);
    free(m);
    exchange_release(x);
}

static const struct exchange_ops ops = {.gone = mcp_on_gone};

static bool is_set(struct exchange *x, struct str name)
{
    struct str value;
    return url_query(&x->arena, x->request->query, name, &value) == 1 && str_eq(value, STR("1"));
}

static void mcp_start(struct tools_http *t, struct exchange *x, struct str body,
                      const struct principal *who)
{
    struct mcp_exchange *m = mem_zalloc(sizeof *m);
    m->x = x;
    m->headers = (struct mcp_headers){
        .version = request_header(x->request, STR("MCP-Protocol-Version")),
        .method = request_header(x->request, STR("Mcp-Method")),
        .name = request_header(x->request, STR("Mcp-Name")),
        .request = x->request,
    };
    m->request.text = body;
    m->request.headers = &m->headers;
    tools_ask_as(&m->request.ask, x, who);
    m->request.bridge = is_set(x, STR("bridge"));
    m->request.quiet = is_set(x, STR("quiet"));
    m->request.done = mcp_on_done;
    exchange_hold(x);
    if (mcp_handle(t->service, &m->request)) {
        mcp_finish(m);
        return;
    }
    x->state = m;
    x->ops = &ops;
    x->peer_bound = true;
}

static void mcp_refuse_token(struct exchange *x, struct str challenge)
{
    exchange_header(x, STR("WWW-Authenticate"), challenge);
    mcp_refuse(x, 401, UNKNOWN_TOKEN,
               "the token is not known, or none was sent where one is required");
}

static void mcp_on_body(struct exchange *x, struct str body, int err)
{
    struct tools_http *t = x->state;
    const struct principal *who;
    struct str ignored;
    if (err == ERR_TOO_LARGE)
        mcp_refuse(x, 413, MCP_INVALID_REQUEST, "the message is too large");
    else if (err != 0)
        mcp_refuse(x, err_http_status(err), MCP_INTERNAL, err_text(err));
    else if (tools_who(t, x, &who, &ignored) == 0)
        mcp_start(t, x, body, who);
}

static void mcp_http_handle(void *ctx, struct exchange *x)
{
    struct tools_http *t = ctx;
    const struct principal *who;
    struct str challenge;
    if (x->request->path.n != sizeof MCP_PATH - 1) {
        mcp_refuse(x, 404, MCP_INVALID_REQUEST, "MCP is at " MCP_PATH);
    } else if (x->request->method != METHOD_POST) {
        exchange_header(x, STR("Allow"), STR("POST"));
        mcp_refuse(x, 405, MCP_INVALID_REQUEST, "messages are POSTed; there are no sessions");
    } else if (tools_who(t, x, &who, &challenge) != 0) {
        mcp_refuse_token(x, challenge);
    } else if (!tools_may_ask(x)) {
        return;
    } else if (!tools_is_json(x)) {
        mcp_refuse(x, 415, MCP_INVALID_REQUEST, "a message is application/json");
    } else {
        x->state = t;
        exchange_collect(x, TOOLS_BODY_MAX, mcp_on_body);
    }
}

static const struct surface_rule rules[] = {
    {"mcp.message", "POST", "", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_LATER, NULL},
    {0},
};

static void mcp_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    struct buf body = {0};
    int code = why->challenge.n > 0 ? MCP_FORBIDDEN : NOT_ADMITTED;
    mcp_put_error(&body, STR_NONE, why->status == 401 ? UNKNOWN_TOKEN : code, why->message);
    send_answer(x, why->status, buf_str(&body));
    buf_deinit(&body);
}

/* ---- where tokens come from ---- */

static struct str mcp_base(const struct tools_http *t, struct exchange *x)
{
    struct str host = x->request->host;
    return t->public_url.n > 0
               ? t->public_url
               : arena_printf(&x->arena, "%s%.*s", exchange_scheme(x).p, (int)host.n, host.p);
}

/* Clients look there for who gives them a token, and ask for that scope. */
static struct str mcp_challenge(void *ctx, struct exchange *x)
{
    struct str base = mcp_base(ctx, x);
    return arena_printf(&x->arena,
                        "resource_metadata=\"%.*s" MCP_METADATA MCP_PATH "\", scope=\"tool\"",
                        (int)base.n, base.p);
}

const struct surface mcp_surface = {.path = MCP_PATH,
                                    .rules = rules,
                                    .share = &tools_share,
                                    .strict = true,
                                    .refuse = mcp_on_refused,
                                    .challenge = mcp_challenge};

static void put_metadata(struct buf *out, struct str base, const struct policy *policy)
{
    struct buf resource = {0};
    buf_put(&resource, base);
    buf_put(&resource, STR(MCP_PATH));
    buf_put(out, STR("{\"resource\":"));
    json_put_string(out, buf_str(&resource));
    buf_put(out, STR(",\"authorization_servers\":"));
    buf_putc(out, '[');
    for (size_t i = 0; i < policy->n_issuers; i++) {
        if (i > 0)
            buf_putc(out, ',');
        json_put_string(out, policy->issuers[i].iss);
    }
    buf_putc(out, ']');
    buf_put(out, STR(",\"scopes_supported\":[\"tool\"],\"bearer_methods_supported\":"
                     "[\"header\"]}\n"));
    buf_deinit(&resource);
}

static void mcp_metadata_handle(void *ctx, struct exchange *x)
{
    struct str rest = str_skip(x->request->path, sizeof MCP_METADATA - 1);
    const struct policy *policy = x->http->guard != NULL ? guard_policy(x->http->guard) : NULL;
    struct buf body = {0};
    if ((rest.n > 0 && !str_eq(rest, STR(MCP_PATH))) || policy == NULL || !policy->on) {
        exchange_problem(x, 404, STR("NO_ROUTE"), STR("nothing here asks for tokens"));
    } else if (x->request->method != METHOD_GET && x->request->method != METHOD_HEAD) {
        exchange_header(x, STR("Allow"), STR("GET, HEAD"));
        exchange_problem(x, 405, STR("METHOD"), STR("this can only be read"));
    } else {
        put_metadata(&body, mcp_base(ctx, x), policy);
        exchange_send_json(x, 200, buf_str(&body));
    }
    buf_deinit(&body);
}

static const struct surface_rule metadata_rules[] = {
    {"mcp.metadata", "GET HEAD", "", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_PUBLIC, NULL},
    {"mcp.metadata.path", "GET HEAD", "mcp", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_PUBLIC, NULL},
    {0},
};
const struct surface mcp_metadata_surface = {.path = MCP_METADATA, .rules = metadata_rules};

void mcp_http_mount(struct tools_http *t, struct http *http)
{
    http_mount(http, &mcp_surface, mcp_http_handle, t);
    http_mount(http, &mcp_metadata_surface, mcp_metadata_handle, t);
}
