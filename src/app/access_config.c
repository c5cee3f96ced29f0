// SPDX-License-Identifier: Apache-2.0
#include "app/access_config.h"
#include "access/policy.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/must.h"
#include "base/units.h"

int caller_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._@"))
        return 0;
    snprintf(reason, size, "a caller's name is made of letters, digits and -._@");
    return ERR_SYNTAX;
}

/* ---- checks ---- */

static int access_config_check_digest(struct str value, char *reason, size_t size)
{
    uint8_t ignored[CALLER_DIGEST_N];
    return hex_decode(value, ignored, sizeof ignored) ? 0 : ERR_SYNTAX;
}

/* Names of a tenant stay apart from all others that begin alike. */
static int access_config_check_root(struct str value, char *reason, size_t size)
{
    if (value.n > 1 && value.n <= ROOT_MAX && value.p[value.n - 1] == '/' && value.p[0] != '/')
        return 0;
    snprintf(reason, size, "a root is a name of at most %d bytes that ends in `/`", ROOT_MAX);
    return ERR_SYNTAX;
}

int caller_finish(void *caller, char *reason, size_t size)
{
    struct caller_config *c = caller;
    return hex_decode(str_of_cstr(c->token_text), c->token_sha256, CALLER_DIGEST_N) ? 0
                                                                                    : ERR_SYNTAX;
}

/* ---- the tables ---- */

#define ROW(...) OPTION_ROW(__VA_ARGS__)
#define LIMIT(target, key, field)                                                                  \
    ROW(target, key, OPTION_NUMBER, granted.limits.field), .value = "N", BETWEEN(0, UINT32_MAX)
#define LIMIT_SIZE(target, key, field)                                                             \
    ROW(target, key, OPTION_SIZE, granted.limits.field), .value = "SIZE",                          \
                                                         BETWEEN(0, 1024 * 1024 * GIB)

/* What a section may set beside its grants; each 0 sets no bound. */
#define GRANT_ROWS(target)                                                                         \
    {ROW(target, "grant", OPTION_LIST, granted.grants), .value = "VERB, VERB PATTERN...",          \
     .check = access_grant_check,                                                                  \
     .help = "What may be done, and to what; may be given many times. What nobody grants is "      \
             "forbidden."},                                                                        \
        {LIMIT(target, "rate", rate), .help = "Requests a second. 0 sets no bound."},              \
        {LIMIT_SIZE(target, "append-rate", append_rate), .help = "Bytes appended a second."},      \
        {LIMIT(target, "live", live), .help = "Live readers at the same time."},                   \
        {LIMIT(target, "creates", creates), .help = "Streams created a second."},                  \
        {LIMIT(target, "streams", streams), .help = "Streams that there may be below its root."},  \
        {LIMIT_SIZE(target, "stored", stored), .help = "Bytes that its root may hold."},           \
        {LIMIT(target, "subscriptions", subscriptions), .help = "Subscriptions there may be."},    \
    {                                                                                              \
        LIMIT(target, "generations", generations), .help = "Answers under way at the same time."   \
    }

static const struct option_row caller_rows[] = {
    {ROW(struct caller_config, "token-sha256", OPTION_TEXT, token_text), .value = "64 hex digits",
     .required = true, .secret = true, .check = access_config_check_digest,
     .help = "The SHA-256 digest of the token that the caller presents as `Authorization: Bearer "
             "TOKEN`, as `printf %s TOKEN | sha256sum` prints it. The token itself stands nowhere "
             "on the server."},
    {ROW(struct caller_config, "capabilities", OPTION_LIST, capabilities),
     .value = "worker|tool|admin|NAME:NAME", .commas = true, .check = principal_check_capability,
     .help = "What the caller may do, one word or several with commas between them. One with a `:` "
             "is for a tool that asks for it."},
    {ROW(struct caller_config, "root", OPTION_TEXT, root), .value = "NAME/",
     .check = access_config_check_root,
     .help = "Confines the caller: this stands before every name that it uses, and it sees no "
             "others."},
    GRANT_ROWS(struct caller_config),
};
const struct options caller_options = {caller_rows, sizeof caller_rows / sizeof *caller_rows};

static const struct option_row anonymous_rows[] = {GRANT_ROWS(struct anonymous_config)};
const struct options anonymous_options = {anonymous_rows,
                                          sizeof anonymous_rows / sizeof *anonymous_rows};

/* ---- all together ---- */

/* A token has to tell who calls. */
int access_config_check(const struct access_config *c, char *why, size_t size)
{
    const struct caller_config *callers = c->callers.items;
    for (size_t i = 0; i < c->callers.n; i++)
        for (size_t j = 0; j < i; j++)
            if (memcmp(callers[i].token_sha256, callers[j].token_sha256, CALLER_DIGEST_N) == 0) {
                snprintf(why, size, "the callers %s and %s have the same token-sha256",
                         callers[j].name, callers[i].name);
                return ERR_SYNTAX;
            }
    return 0;
}

bool access_config_on(const struct access_config *c)
{
    const struct caller_config *callers = c->callers.items;
    for (size_t i = 0; i < c->callers.n; i++)
        if (callers[i].granted.grants.n > 0)
            return true;
    return c->anonymous.n > 0;
}

/* ---- the policy ---- */

/* What the words of `capabilities` stand for. */
static const struct {
    struct str word;
    const char *grant;
} implied[] = {
    {STR_INIT("worker"), "work session:**"},
    {STR_INIT("worker"), "read, list .route/** .tool/** sessions/**"},
    {STR_INIT("worker"), "append, close, subscribe sessions/**"},
    {STR_INIT("tool"), "tool tool:**"},
    {STR_INIT("admin"), "admin, metrics server"},
};

static void add_line(struct access_grants *g, struct arena *a, const char *line)
{
    char ignored[256];
    must(access_grants_add_line(g, a, str_of_cstr(line), ignored, sizeof ignored) == 0);
}

/* One layer: what is not in it is forbidden. */
static void set_rights(struct principal *p, const struct grant_config *granted)
{
    struct access_grants *g = arena_alloc(&p->arena, sizeof *g);
    *g = (struct access_grants){0};
    for (size_t i = 0; i < granted->grants.n; i++)
        add_line(g, &p->arena, granted->grants.items[i]);
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (principal_can(p, implied[i].word))
            add_line(g, &p->arena, implied[i].grant);
    p->rights = (struct access_rights){.layers = {g}, .n = 1};
    p->limits = granted->limits;
}

static void set_capabilities(struct principal *p, const struct option_list *words)
{
    struct str *texts = arena_alloc(&p->arena, (words->n + 1) * sizeof *texts);
    for (size_t i = 0; i < words->n; i++)
        texts[i] = arena_dup(&p->arena, str_of_cstr(words->items[i]));
    p->capabilities = texts;
    p->n_capabilities = words->n;
}

static struct principal *caller_principal(const struct caller_config *c, bool on)
{
    struct principal *p = principal_new();
    p->known = true;
    p->name = p->sub = p->id = arena_dup(&p->arena, str_of_cstr(c->name));
    if (c->root != NULL)
        p->root = arena_dup(&p->arena, str_of_cstr(c->root));
    set_capabilities(p, &c->capabilities);
    if (on)
        set_rights(p, &c->granted);
    return p;
}

static struct principal *anonymous_principal(const struct access_config *c)
{
    static const struct grant_config nothing;
    const struct anonymous_config *section = c->anonymous.items;
    struct principal *p = principal_new();
    p->name = p->id = STR("anonymous");
    set_rights(p, c->anonymous.n > 0 ? &section->granted : &nothing);
    return p;
}

struct policy *access_config_policy(const struct access_config *c)
{
    const struct caller_config *callers = c->callers.items;
    struct policy *policy = policy_new();
    bool on = access_config_on(c);
    for (size_t i = 0; i < c->callers.n; i++)
        policy_add_caller(policy, callers[i].token_sha256, caller_principal(&callers[i], on));
    if (on)
        policy_set_anonymous(policy, anonymous_principal(c));
    return policy;
}
