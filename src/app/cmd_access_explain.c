// SPDX-License-Identifier: Apache-2.0
#include "access/policy.h"
#include "app/access_commands.h"
#include "app/access_token.h"
#include "app/config.h"
#include "app/surfaces.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "http/exchange.h"
#include "http/h1_parse.h"
#include "http/http.h"
#include "http/rules.h"
#include "http/surface.h"

#include <stdlib.h>
#include <unistd.h>

#define HEADERS_MAX 64

struct explain_flags {
    char *config, *token, *caller;
    bool anonymous, body;
    struct option_list headers;
};

static int check_header(struct str value, char *reason, size_t size)
{
    struct str name = str_cut(&value, ':');
    return value.p != NULL && ascii_is_word(name, "!#$%&'*+-.^_`|~") ? 0 : ERR_SYNTAX;
}

#define ROW(...) OPTION_ROW(struct explain_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("config", OPTION_TEXT, config), .value = "FILE", .help = "The server's config file."},
    {ROW("token", OPTION_TEXT, token), .value = "FILE",
     .help = "Who asks: whoever shows the token in this file."},
    {ROW("caller", OPTION_TEXT, caller), .value = "NAME",
     .help = "Who asks: the caller of this name."},
    {ROW("anonymous", OPTION_BOOL, anonymous), .help = "Who asks: somebody without a credential."},
    {ROW("header", OPTION_LIST, headers), .value = "'NAME: VALUE'", .check = check_header,
     .help = "A header of the request; may be given many times. -H is the same."},
    {ROW("body", OPTION_BOOL, body), .help = "The request has a body."},
};

static const struct common_command command = {
    .name = "access explain",
    .arguments = "METHOD PATH",
    .min_args = 2,
    .max_args = 2,
    .about =
        "Says why a request is allowed or refused, without a server: which rules it comes under,\n"
        "and for each which grant allows it, or what is missing. It reads the config file and\n"
        "decides with the same code as the server. The exit status is 1 if the request is "
        "refused,\n"
        "or if nothing is served there.\n",
    .examples =
        "  tidemark access explain --config tidemark.conf --caller app GET /v1/stream/chats/1\n"
        "  tidemark access explain --config tidemark.conf --token token.txt POST /v1/stream/a\n"
        "  tidemark access explain --config tidemark.conf --anonymous \\\n"
        "      -H 'Stream-Closed: true' POST /v1/stream/a\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

/* ---- who asks ---- */

static int by_token(const struct policy *policy, const char *file, const struct principal **out)
{
    char text[COMMON_TOKEN_SIZE];
    struct access_token token;
    int status = common_token(&command, file, text);
    if (status != CMD_OK)
        return status;
    access_token_read(policy, str_of_cstr(text), clock_wall_ms() / 1000, &token);
    explicit_bzero(text, sizeof text);
    *out = token.principal;
    if (token.principal == NULL)
        return common_fail(&command, "the token in %s is answered 401: %s", file, token.why);
    if (token.unchecked != NULL)
        fprintf(stderr, "The signature was not checked: %s.\n", token.unchecked);
    return CMD_OK;
}

/* With a reference. */
static int find_principal(const struct policy *policy, const struct explain_flags *f,
                          const struct principal **out)
{
    if (f->token != NULL)
        return by_token(policy, f->token, out);
    *out = f->caller != NULL ? policy_find_name(policy, str_of_cstr(f->caller)) : policy->anonymous;
    if (*out != NULL) {
        principal_ref(*out);
        return CMD_OK;
    }
    common_fail(&command, "%s has no [caller %s]", f->config, f->caller);
    return CMD_USAGE;
}

/* ---- the request ---- */

static void fill_headers(struct request *req, const struct option_list *from,
                         struct header headers[HEADERS_MAX])
{
    size_t n = from->n < HEADERS_MAX ? from->n : HEADERS_MAX;
    for (size_t i = 0; i < n; i++) {
        struct str value = str_of_cstr(from->items[i]);
        headers[i].name = str_cut(&value, ':');
        headers[i].value = str_trim(value);
    }
    req->headers = headers;
    req->n_headers = (uint8_t)n;
}

/* ---- what it needs ---- */

/* The worst of what its rules say is what happens. */
enum outcome { ALLOWED, DEPENDS, NOT_SERVED, REFUSED };

static void put_thing(struct buf *out, enum access_verb verb, enum access_kind kind,
                      struct str name)
{
    buf_printf(out, "%s ", access_verb_text(verb).p);
    access_put_pattern(out, kind, name);
}

/* The first grant of a layer that allows it; NULL: none does. */
static const struct access_grant *grant_for(const struct access_grants *layer,
                                            const struct need *need)
{
    for (size_t i = 0; i < layer->n; i++) {
        struct access_grants one = {&layer->items[i], 1};
        if (access_grants_allow(&one, need->rule->verb, need->rule->kind, need->name))
            return &layer->items[i];
    }
    return NULL;
}

static enum outcome explain_grants(struct buf *out, const struct principal *p,
                                   const struct need *need)
{
    bool all = true;
    for (size_t i = 0; i < p->rights.n; i++) {
        const struct access_grant *g = grant_for(p->rights.layers[i], need);
        all = all && g != NULL;
        buf_put(out, g != NULL ? STR("\n      allowed by `grant = ") : STR("\n      refused: "));
        if (g == NULL) {
            buf_put(out, STR("this would allow it: `grant = "));
            put_thing(out, need->rule->verb, need->rule->kind, need->name);
        } else {
            access_put_verbs(out, g->verbs);
            buf_putc(out, ' ');
            access_put_pattern(out, g->kind, g->pattern);
        }
        buf_putc(out, '`');
    }
    return all ? ALLOWED : REFUSED;
}

/* What the handler decides by: what is granted of that verb at all. */
static enum outcome explain_later(struct buf *out, const struct principal *p,
                                  const struct surface_rule *r)
{
    buf_printf(out, "\n      depends on names in the request; `%s` is granted on:",
               access_verb_text(r->verb).p);
    size_t before = out->n;
    for (size_t i = 0; p->rights.n > 0 && i < p->rights.layers[0]->n; i++) {
        const struct access_grant *g = &p->rights.layers[0]->items[i];
        if (g->kind != r->kind || (g->verbs & ACCESS_BIT(r->verb)) == 0)
            continue;
        buf_putc(out, ' ');
        access_put_pattern(out, g->kind, g->pattern);
    }
    if (out->n > before)
        return DEPENDS;
    buf_put(out, STR(" nothing"));
    return REFUSED;
}

static enum outcome explain_need(struct buf *out, const struct principal *p,
                                 const struct need *need)
{
    const struct surface_rule *r = need->rule;
    buf_printf(out, "  %s: ", r->id);
    if ((r->how & RULE_PUBLIC) != 0) {
        bool ticket = (r->how & RULE_TICKET) != 0;
        buf_put(out, ticket ? STR("needs a ticket of its own in Authorization\n")
                            : STR("everybody may\n"));
        return ticket ? DEPENDS : ALLOWED;
    }
    if (need->malformed) {
        buf_put(out, STR("refused: the name in the path is not well encoded\n"));
        return REFUSED;
    }
    bool later = (r->how & RULE_LATER) != 0;
    buf_put(out, STR("needs `"));
    put_thing(out, r->verb, r->kind, later ? STR("...") : need->name);
    buf_putc(out, '`');
    enum outcome o = later ? explain_later(out, p, r) : explain_grants(out, p, need);
    buf_putc(out, '\n');
    return o;
}

static enum outcome explain_all(struct buf *out, struct exchange *x, const struct http_route *route)
{
    struct need need = {0};
    enum outcome worst = ALLOWED;
    bool any = false;
    while (rules_next(x, route, &need)) {
        enum outcome o = explain_need(out, x->principal, &need);
        any = true;
        worst = o > worst ? o : worst;
    }
    if (any)
        return worst;
    buf_put(out, STR("  no rule allows this method on this path\n"));
    return REFUSED;
}

static const char *verdict(enum outcome o, const struct principal *p)
{
    static const char *const texts[] = {"allowed", "depends on the names in the request",
                                        "nothing is served under this path: 404"};
    return o != REFUSED ? texts[o]
           : p->known   ? "refused: 403 FORBIDDEN"
                        : "refused: 401 UNAUTHENTICATED";
}

/* ---- the command ---- */

static enum outcome explain_request(struct buf *out, const struct http *http, bool on,
                                    struct exchange *x)
{
    const struct http_route *route = http_route_of(http, x->request->path);
    if (route == NULL)
        return NOT_SERVED;
    if (on)
        return explain_all(out, x, route);
    buf_put(out, STR("  nothing is granted in this file, so access is off\n"));
    return ALLOWED;
}

static int explain_to(const struct config *c, const struct policy *policy, struct exchange *x)
{
    const struct principal *p = x->principal;
    struct http *http = mem_zalloc(sizeof *http);
    struct buf out = {0};
    surfaces_mount(http, c);
    buf_printf(&out, "%.*s asks", (int)p->name.n, p->name.p);
    if (p->root.n > 0)
        buf_printf(&out, ", whose names are below %.*s", (int)p->root.n, p->root.p);
    buf_putc(&out, '\n');
    enum outcome o = explain_request(&out, http, policy->on, x);
    buf_printf(&out, "%s\n", verdict(o, p));
    int error = common_write(STDOUT_FILENO, buf_str(&out));
    buf_deinit(&out);
    surfaces_unmount(http);
    free(http);
    return o <= DEPENDS ? common_written(&command, error) : CMD_FAILED;
}

/* A request that nobody sends. */
static int explain_as(const struct config *c, const struct explain_flags *f,
                      const struct policy *policy, const struct principal *p, char **args)
{
    struct header headers[HEADERS_MAX];
    struct str target = str_of_cstr(args[1]);
    struct str method = str_of_cstr(args[0]);
    struct request req = {.method = h1_method(method), .method_text = method, .version = 11};
    req.path = str_cut(&target, '?');
    req.query = target;
    fill_headers(&req, &f->headers, headers);
    struct exchange *x = mem_zalloc(sizeof *x);
    x->request = &req;
    x->principal = p;
    x->has_body = f->body;
    int status = explain_to(c, policy, x);
    arena_deinit(&x->arena);
    free(x);
    return status;
}

static int explain_with(const struct explain_flags *f, char **args)
{
    struct config c;
    const struct principal *p = NULL;
    char why[512];
    int status = access_load(&command, f->config, &c);
    if (status != CMD_OK)
        return status;
    struct policy *policy = access_config_policy(&c.access, why, sizeof why);
    if (policy == NULL)
        status = common_fail(&command, "%s", why);
    else
        status = find_principal(policy, f, &p);
    if (status == CMD_OK)
        status = explain_as(&c, f, policy, p, args);
    principal_unref(p);
    policy_unref(policy);
    config_deinit(&c);
    return status;
}

/* As curl has it. */
static void spell_out(int argc, char **argv)
{
    static char header[] = "--header";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-H") == 0)
            argv[i] = header;
}

int access_explain(int argc, char **argv)
{
    struct explain_flags f = {0};
    int status = CMD_USAGE, n;
    spell_out(argc, argv);
    if (common_read(&command, &f, argc, argv, &n, &status)) {
        int who = (f.token != NULL) + (f.caller != NULL) + f.anonymous;
        if (f.config == NULL)
            common_fail(&command, "--config FILE is missing");
        else if (who != 1)
            common_fail(&command, "say who asks: one of --token FILE, --caller NAME, --anonymous");
        else
            status = explain_with(&f, argv + 1);
    }
    options_free(&command.flags, &f);
    return status;
}
