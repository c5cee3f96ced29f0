// SPDX-License-Identifier: Apache-2.0
/* tools_http.c -- /atd/v1/, and who may ask over HTTP. */
#include "base/err.h"
#include "base/sha256.h"
#include "feature/tools/tools_http_core.h"
#include "feature/tools/tools_message.h"
#include "http/surface.h"

#include <stdlib.h>

/* Of the protocol, as CURSOR_VERDICTS has it: the result is to be asked for anew. */
#define CODE_EXPIRED 1020

/* ---- who may ask ---- */

int tools_who(const struct tools_http *t, const struct exchange *x, const struct principal **out,
              struct str *challenge)
{
    struct str given = request_header(x->request, STR("Authorization"));
    bool is_token = str_starts(given, STR("Bearer "));
    *out = x->principal;
    if (x->principal->known || (!is_token && !t->require_bearer))
        return 0;
    *challenge = is_token ? STR("Bearer error=\"invalid_token\"") : STR("Bearer");
    return ERR_UNAUTHENTICATED;
}

bool tools_may_ask(struct exchange *x)
{
    exchange_decided(x);
    return access_holds(&x->principal->rights, ACCESS_VERB_TOOL, ACCESS_TOOL) || exchange_deny(x);
}

/* Ids of those that issuers know may be longer than a cursor has room for. */
static struct str caller_id_of(struct arena *a, const struct principal *p)
{
    if (!p->known || p->id.n <= TOOL_CALLER_ATD)
        return p->known ? p->id : STR_NONE;
    char *hex = arena_alloc(a, TOOL_CALLER_ATD);
    _Static_assert(TOOL_CALLER_ATD == 2 * SHA256_SIZE, "a digest in hexadecimal");
    sha256_hex(p->id, hex);
    return str_of(hex, TOOL_CALLER_ATD);
}

void tools_ask_as(struct tool_ask *a, struct exchange *x, const struct principal *p)
{
    a->call.principal = p;
    a->call.caller_id = caller_id_of(&x->arena, p);
    a->call.capabilities = p->capabilities;
    a->call.n_capabilities = p->n_capabilities;
}

bool tools_is_json(const struct exchange *x)
{
    struct str type = request_header(x->request, STR("Content-Type"));
    return str_eq_nocase(str_trim(str_cut(&type, ';')), STR("application/json"));
}

/* ---- answers ---- */

static void tools_refuse(struct exchange *x, int status, const char *message)
{
    struct buf body = {0};
    tools_put_error(&body, str_of_cstr(message), 0, false);
    exchange_send_json(x, status, buf_str(&body));
    buf_deinit(&body);
}

static int status_of(const struct tool_call *c)
{
    switch (c->outcome) {
    case TOOL_SUCCESS:
    case TOOL_EXECUTION_FAILED: return 200;
    case TOOL_INVALID_ARGS: return 400;
    case TOOL_CAPABILITY_DENIED: return 403;
    case TOOL_RATE_LIMITED: return 429;
    case TOOL_TOOL_NOT_FOUND: return 404;
    case TOOL_CURSOR_REFUSED: return c->code == CODE_EXPIRED ? 410 : 400;
    }
    return 500;
}

/* ---- calls ---- */

struct http_call {
    struct tool_ask ask;
    struct exchange *x;
};

static void free_call(struct http_call *c)
{
    struct exchange *x = c->x;
    tools_ask_deinit(&c->ask);
    free(c);
    exchange_release(x);
}

static void tools_on_done(struct tool_ask *a)
{
    struct http_call *c = container_of(a, struct http_call, ask);
    struct buf body = {0};
    c->x->ops = NULL;
    if (a->call.outcome == TOOL_RATE_LIMITED)
        exchange_header(c->x, STR("Retry-After"), STR("1"));
    tools_put_answer(&body, &a->call);
    exchange_send_json(c->x, status_of(&a->call), buf_str(&body));
    buf_deinit(&body);
    free_call(c);
}

static void tools_on_gone(struct exchange *x)
{
    struct http_call *c = x->state;
    tools_ask_cancel(&c->ask);
    free_call(c);
}

static const struct exchange_ops call_ops = {.gone = tools_on_gone};

static void tools_run(struct tools_http *t, struct exchange *x, struct str body,
                      enum tools_request_type type, const struct principal *who)
{
    struct tools_request r;
    const char *why;
    if (tools_request_read_body(body, type, &x->arena, &r, &why) != 0) {
        tools_refuse(x, 400, why);
        return;
    }
    if (!exchange_may(x, ACCESS_VERB_TOOL, ACCESS_TOOL, r.tool_id))
        return;
    struct http_call *c = mem_zalloc(sizeof *c);
    c->x = x;
    c->ask.done = tools_on_done;
    c->ask.call.tool_id = r.tool_id;
    c->ask.call.args = r.args;
    c->ask.call.cursor = r.cursor;
    c->ask.call.dry_run = r.dry_run;
    tools_ask_as(&c->ask, x, who);
    exchange_hold(x);
    x->state = c;
    x->ops = &call_ops;
    x->peer_bound = true;
    tools_ask(t->service, &c->ask);
}

static const struct {
    struct str name;
    enum tools_request_type type;
} paths[] = {
    {STR_INIT("run_tool"), TOOLS_RUN},
    {STR_INIT("run_tool_continue"), TOOLS_CONTINUE},
    {STR_INIT("tools"), TOOLS_LIST},
};

static int find_path(const struct exchange *x)
{
    struct str name = str_skip(x->request->path, sizeof TOOLS_PREFIX - 1);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (str_eq(paths[i].name, name))
            return (int)i;
    return -1;
}

static void tools_on_body(struct exchange *x, struct str body, int err)
{
    struct tools_http *t = x->state;
    const struct principal *who;
    struct str ignored;
    if (err == ERR_TOO_LARGE)
        tools_refuse(x, 413, "the body is too large");
    else if (err != 0)
        exchange_error(x, err);
    else if (tools_who(t, x, &who, &ignored) == 0)
        tools_run(t, x, body, paths[find_path(x)].type, who);
}

static void send_list(struct tools_http *t, struct exchange *x)
{
    struct buf body = {0};
    tools_put_list(&body, tools_service_tools(t->service), x->principal);
    exchange_send_json(x, 200, buf_str(&body));
    buf_deinit(&body);
}

static void refuse_method(struct exchange *x, struct str allowed)
{
    exchange_header(x, STR("Allow"), allowed);
    tools_refuse(x, 405, "this is asked for in another way");
}

static void tools_refuse_token(struct exchange *x, struct str challenge)
{
    exchange_header(x, STR("WWW-Authenticate"), challenge);
    tools_refuse(x, 401, "the token is not known, or none was sent where one is required");
}

static void tools_handle(void *ctx, struct exchange *x)
{
    struct tools_http *t = ctx;
    const struct principal *who;
    struct str challenge;
    enum method method = x->request->method;
    int at = find_path(x);
    if (at < 0)
        tools_refuse(x, 404, "there is nothing of this name");
    else if (tools_who(t, x, &who, &challenge) != 0)
        tools_refuse_token(x, challenge);
    else if (!tools_may_ask(x))
        return;
    else if (paths[at].type == TOOLS_LIST && (method == METHOD_GET || method == METHOD_HEAD))
        send_list(t, x);
    else if (paths[at].type == TOOLS_LIST)
        refuse_method(x, STR("GET, HEAD"));
    else if (method != METHOD_POST)
        refuse_method(x, STR("POST"));
    else if (!tools_is_json(x))
        tools_refuse(x, 415, "the body must be application/json");
    else {
        x->state = t;
        exchange_collect(x, TOOLS_BODY_MAX, tools_on_body);
    }
}

/* Which tool it is stands in the body. */
static const struct surface_rule rules[] = {
    {"tool.run", "POST", "run_tool", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_LATER, NULL},
    {"tool.continue", "POST", "run_tool_continue", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_LATER, NULL},
    {"tool.list", "GET HEAD", "tools", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_LATER, NULL},
    {0},
};

static void tools_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    struct buf body = {0};
    uint16_t code = why->status == 403 && why->challenge.n > 0 ? TOOL_CODE_CAPABILITY : 0;
    tools_put_error(&body, why->message, why->status == 429 ? TOOL_CODE_BUSY : code,
                    why->retry_after_s > 0);
    exchange_send_json(x, why->status, buf_str(&body));
    buf_deinit(&body);
}

const struct surface_share tools_share = {
    .exposed = STR_INIT("WWW-Authenticate, Retry-After"),
    .methods = STR_INIT("GET, POST"),
    .keep_s = STR_INIT("600"),
};
const struct surface tools_surface = {.path = TOOLS_PREFIX,
                                      .rules = rules,
                                      .share = &tools_share,
                                      .strict = true,
                                      .refuse = tools_on_refused};

static const struct surface_rule socket_rules[] = {
    {"tools.socket", "RUN", "{tool...}", ACCESS_VERB_TOOL, ACCESS_TOOL, RULE_PUBLIC, NULL},
    {0},
};
const struct surface tools_socket_surface = {.path = "tools-socket:", .rules = socket_rules};

void tools_http_mount(struct tools_http *t, struct http *http)
{
    http_mount(http, &tools_surface, tools_handle, t);
}
