// SPDX-License-Identifier: Apache-2.0
#include "app/access_config.h"
#include "access/minted.h"
#include "access/pattern.h"
#include "access/policy.h"
#include "app/issuer_keys.h"
#include "base/ascii.h"
#include "base/buf.h"
#include "base/date.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/must.h"
#include "base/sha256.h"
#include "base/units.h"
#include "feature/feature.h"

int caller_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._@") && !str_eq(name, principal_anonymous.name))
        return 0;
    snprintf(reason, size,
             "a caller's name is made of letters, digits and -._@, and is not anonymous");
    return ERR_SYNTAX;
}

#define CERTIFICATE_MAX 256 /* bytes of a name in one */
#define VARIABLE_MAX    48

int issuer_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._@") && !str_eq(name, STR(MINTED_ISSUER)))
        return 0;
    snprintf(reason, size, "an issuer's name is made of letters, digits and -._@, and not %s",
             MINTED_ISSUER);
    return ERR_SYNTAX;
}

/* ---- checks ---- */

static int access_config_check_digest(struct str value, char *reason, size_t size)
{
    uint8_t ignored[CALLER_DIGEST_N];
    return hex_decode(value, ignored, sizeof ignored) ? 0 : ERR_SYNTAX;
}

/* Names of a tenant stay apart from all others that begin alike. */
static int check_root(struct str value, bool templates, char *reason, size_t size)
{
    if (access_root_valid(value, templates))
        return 0;
    snprintf(reason, size,
             "a root is a name of at most %d bytes that ends in `/`; no segment is empty, `.` or "
             "`..` or has `*`, `%%`, `?`, `#` or a brace in it%s, and the first is none that the "
             "server keeps for itself",
             ACCESS_ROOT_MAX, templates ? " unless it is a whole `{claim}`" : "");
    return ERR_SYNTAX;
}

static int access_config_check_root(struct str value, char *reason, size_t size)
{
    return check_root(value, false, reason, size);
}

static int access_config_check_root_template(struct str value, char *reason, size_t size)
{
    return check_root(value, true, reason, size);
}

/* A URI has a colon; everything else is a DNS name, and one name of it. */
static int access_config_check_certificate(struct str value, char *reason, size_t size)
{
    bool uri = memchr(value.p, ':', value.n) != NULL;
    if (value.n <= CERTIFICATE_MAX && (uri ? ascii_is_visible(value) : ascii_is_word(value, "-._")))
        return 0;
    snprintf(reason, size, "expected a URI, or a DNS name without a wildcard");
    return ERR_SYNTAX;
}

static int access_config_check_typ(struct str value, char *reason, size_t size)
{
    if (str_eq(value, JWT_TYP_LINK)) {
        snprintf(reason, size, "links are signed by this server alone");
        return ERR_SYNTAX;
    }
    return value.n <= JWT_TYP_MAX && ascii_is_word(value, "+-./") ? 0 : ERR_SYNTAX;
}

static int access_config_check_alg(struct str value, char *reason, size_t size)
{
    enum jwk_alg alg;
    return jwk_alg_find(value, &alg) && alg != JWK_HS256 ? 0 : ERR_SYNTAX;
}

static int access_config_check_date(struct str value, char *reason, size_t size)
{
    int64_t ignored;
    return date_parse_rfc3339(value, &ignored);
}

static int access_config_check_iss(struct str value, char *reason, size_t size)
{
    if (str_eq(value, STR(MINTED_ISSUER))) {
        snprintf(reason, size, "this is what the server calls itself");
        return ERR_SYNTAX;
    }
    return value.n <= JWT_ISS_MAX && ascii_is_visible(value) ? 0 : ERR_SYNTAX;
}

static int access_config_check_variable(struct str value, char *reason, size_t size)
{
    return value.n <= VARIABLE_MAX && ascii_is_word(value, "_") ? 0 : ERR_SYNTAX;
}

int caller_finish(void *caller, char *reason, size_t size)
{
    struct caller_config *c = caller;
    if (c->token_text == NULL && c->certificates.n == 0) {
        snprintf(reason, size, "needs token-sha256 or certificate");
        return ERR_SYNTAX;
    }
    if (c->token_text == NULL)
        return 0;
    return hex_decode(str_of_cstr(c->token_text), c->token_sha256, CALLER_DIGEST_N) ? 0
                                                                                    : ERR_SYNTAX;
}

int issuer_finish(void *issuer, char *reason, size_t size)
{
    const struct issuer_config *c = issuer;
    if ((c->jwks == NULL) == (c->secret_env == NULL)) {
        snprintf(reason, size, "needs jwks or secret-env, and not both");
        return ERR_SYNTAX;
    }
    if (c->secret_env != NULL && c->alg.n > 0) {
        snprintf(reason, size, "alg is for jwks; a secret is for HS256");
        return ERR_SYNTAX;
    }
    return 0;
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
        {LIMIT(target, "connections", connections),                                                \
         .help = "Requests under way at the same time."},                                          \
        {LIMIT_SIZE(target, "max-append", max_append), .help = "Bytes of one append."},            \
        {LIMIT(target, "max-ttl", max_ttl),                                                        \
         .help = "Seconds that a stream it creates may live: Stream-TTL is needed then."},         \
        {LIMIT(target, "creates", creates), .help = "Streams created a second."},                  \
        {LIMIT(target, "streams", streams), .help = "Streams that there may be below its root."},  \
        {LIMIT_SIZE(target, "stored", stored), .help = "Bytes that its root may hold."},           \
        {LIMIT(target, "subscriptions", subscriptions), .help = "Subscriptions there may be."},    \
    {                                                                                              \
        LIMIT(target, "generations", generations), .help = "Answers under way at the same time."   \
    }

static const struct option_row caller_rows[] = {
    {ROW(struct caller_config, "token-sha256", OPTION_TEXT, token_text), .value = "64 hex digits",
     .secret = true, .check = access_config_check_digest,
     .help = "The SHA-256 digest of the token that the caller presents as `Authorization: Bearer "
             "TOKEN`, as `printf %s TOKEN | sha256sum` prints it. The token itself stands nowhere "
             "on the server."},
    {ROW(struct caller_config, "certificate", OPTION_LIST, certificates), .value = "URI|DNS-NAME",
     .check = access_config_check_certificate,
     .help = "A name in the certificate that the caller shows: a URI or a DNS name of its "
             "subjectAltName, never its CN. Counts for requests without another credential; needs "
             "tls-client-ca. May be given many times."},
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

static const struct option_row issuer_rows[] = {
    {ROW(struct issuer_config, "iss", OPTION_TEXT, iss), .value = "TEXT", .required = true,
     .check = access_config_check_iss, .help = "The claim `iss` of its tokens, byte for byte."},
    {ROW(struct issuer_config, "aud", OPTION_LIST, aud), .value = "TEXT", .commas = true,
     .help = "What the claim `aud` has to contain, one of several. Without it: public-url."},
    {ROW(struct issuer_config, "jwks", OPTION_TEXT, jwks), .value = "https://URL|FILE",
     .check = issuer_keys_check,
     .help =
         "Its public keys: a JWKS at a URL, or a JWKS or a public key in PEM in a file. The URL "
         "may be one of a private network; without TLS it has to be on this machine."},
    {ROW(struct issuer_config, "secret-env", OPTION_TEXT, secret_env), .value = "VARIABLE",
     .check = access_config_check_variable,
     .help = "Instead of jwks, for tokens signed with HS256: the variable of the environment that "
             "holds the secret, or with _FILE behind its name the file that does; at least 32 "
             "bytes. What VARIABLE_PREVIOUS holds is good as well."},
    {ROW(struct issuer_config, "typ", OPTION_LIST, typ), .value = "TYPE|none", .commas = true,
     .fallback = "at+jwt", .check = access_config_check_typ,
     .help = "The types that its tokens may have. With JWT, which many issuers use, ID tokens are "
             "taken as well: then aud has to be one that they do not have. none: a token without "
             "a type."},
    {ROW(struct issuer_config, "max-lifetime", OPTION_DURATION, max_lifetime_ms), .fallback = "1h",
     .value = "TIME", BETWEEN(1000, 365 * DAY_MS),
     .help = "Tokens that live longer, from iat to exp, are not taken."},
    {ROW(struct issuer_config, "alg", OPTION_LIST, alg), .value = "RS256|PS256|ES256|EdDSA",
     .commas = true, .check = access_config_check_alg,
     .help = "The only algorithms that its keys are used for. Without it all of these, and RS256 "
             "for RSA keys that do not say."},
    {ROW(struct issuer_config, "not-before", OPTION_TEXT, not_before),
     .value = "2026-01-31T12:00:00Z", .check = access_config_check_date,
     .help = "Tokens that were issued before are not taken any more."},
    {ROW(struct issuer_config, "root", OPTION_TEXT, root), .value = "NAME/{claim}/",
     .check = access_config_check_root_template,
     .help = "Confines its tokens: this stands before every name that they are used for, with each "
             "`{claim}` filled in from the token. A token without that claim is not taken."},
    GRANT_ROWS(struct issuer_config),
};
const struct options issuer_options = {issuer_rows, sizeof issuer_rows / sizeof *issuer_rows};

static const struct option_row anonymous_rows[] = {GRANT_ROWS(struct anonymous_config)};
const struct options anonymous_options = {anonymous_rows,
                                          sizeof anonymous_rows / sizeof *anonymous_rows};

/* ---- all together ---- */

static struct issuer_source source_of(const struct issuer_config *c)
{
    return (struct issuer_source){c->jwks, c->secret_env, &c->alg};
}

/* A token has to tell who calls, and so has a name in a certificate. */
static bool same_token(const struct caller_config *a, const struct caller_config *b)
{
    return a->token_text != NULL && b->token_text != NULL &&
           memcmp(a->token_sha256, b->token_sha256, CALLER_DIGEST_N) == 0;
}

static bool same_certificate(const struct caller_config *a, const struct caller_config *b)
{
    for (size_t i = 0; i < a->certificates.n; i++)
        for (size_t j = 0; j < (a == b ? i : b->certificates.n); j++)
            if (str_eq_nocase(str_of_cstr(a->certificates.items[i]),
                              str_of_cstr(b->certificates.items[j])))
                return true;
    return false;
}

static int check_callers(const struct access_config *c, char *why, size_t size)
{
    const struct caller_config *callers = c->callers.items;
    for (size_t i = 0; i < c->callers.n; i++)
        for (size_t j = 0; j <= i; j++) {
            bool token = i != j && same_token(&callers[i], &callers[j]);
            if (token || same_certificate(&callers[i], &callers[j])) {
                snprintf(why, size, "the callers %s and %s have the same %s", callers[j].name,
                         callers[i].name, token ? "token-sha256" : "certificate");
                return ERR_SYNTAX;
            }
        }
    return 0;
}

static int check_issuer(const struct access_config *c, const struct issuer_config *one, char *why,
                        size_t size)
{
    const struct issuer_config *issuers = c->issuers.items;
    char reason[300];
    struct jwk_set *keys = NULL;
    for (const struct issuer_config *other = issuers; other < one; other++)
        if (strcmp(other->iss, one->iss) == 0) {
            snprintf(why, size, "the issuers %s and %s have the same iss", other->name, one->name);
            return ERR_SYNTAX;
        }
    if (one->aud.n == 0 && c->public_url == NULL) {
        snprintf(why, size, "[issuer %s] needs aud, since there is no public-url", one->name);
        return ERR_SYNTAX;
    }
    struct issuer_source source = source_of(one);
    int err = issuer_keys_load(&source, &keys, reason, sizeof reason);
    jwk_set_free(keys);
    if (err != 0)
        snprintf(why, size, "[issuer %s]: %s", one->name, reason);
    return err;
}

int access_config_check(const struct access_config *c, char *why, size_t size)
{
    const struct issuer_config *issuers = c->issuers.items;
    int err = check_callers(c, why, size);
    for (size_t i = 0; err == 0 && i < c->issuers.n; i++)
        err = check_issuer(c, &issuers[i], why, size);
    return err;
}

bool access_config_on(const struct access_config *c)
{
    const struct caller_config *callers = c->callers.items;
    for (size_t i = 0; i < c->callers.n; i++)
        if (callers[i].granted.grants.n > 0)
            return true;
    return c->anonymous.n > 0 || c->issuers.n > 0;
}

const char *access_config_idle_issuer(const struct access_config *c)
{
    const struct issuer_config *issuers = c->issuers.items;
    for (size_t i = 0; i < c->issuers.n; i++)
        if (issuers[i].granted.grants.n == 0)
            return issuers[i].name;
    return NULL;
}

bool access_config_has_secrets(const struct access_config *c)
{
    const struct issuer_config *issuers = c->issuers.items;
    for (size_t i = 0; i < c->issuers.n; i++)
        if (issuers[i].secret_env != NULL)
            return true;
    return false;
}

void access_config_hide_secrets(const struct access_config *c)
{
    const struct issuer_config *issuers = c->issuers.items;
    for (size_t i = 0; i < c->issuers.n; i++)
        if (issuers[i].secret_env != NULL) {
            struct issuer_source source = source_of(&issuers[i]);
            issuer_keys_hide(&source);
        }
}

uint64_t access_config_longest_s(const struct access_config *c)
{
    const struct issuer_config *issuers = c->issuers.items;
    uint64_t longest_ms = 0;
    for (size_t i = 0; i < c->issuers.n; i++)
        if (issuers[i].max_lifetime_ms > longest_ms)
            longest_ms = issuers[i].max_lifetime_ms;
    return (longest_ms + SECOND_MS - 1) / SECOND_MS;
}

/* What is stored is counted by the names below a root. */
void access_config_warnings(const struct access_config *c, struct feature_warnings *out)
{
    static const char rootless[] = "of a caller does not hold without its root: what is stored is "
                                   "counted there";
    static const char rootless_issuer[] = "of an issuer does not hold without its root: what is "
                                          "stored is counted there";
    static const char nobody[] = "of [anonymous] does not hold: what is stored is counted by root";
    const struct caller_config *callers = c->callers.items;
    const struct issuer_config *issuers = c->issuers.items;
    const struct anonymous_config *anonymous = c->anonymous.items;
    for (size_t i = 0; i < c->callers.n; i++) {
        const struct access_limits *l = &callers[i].granted.limits;
        if (callers[i].root == NULL && (l->streams > 0 || l->stored > 0))
            feature_warn(out, l->streams > 0 ? "streams" : "stored", rootless);
    }
    for (size_t i = 0; i < c->issuers.n; i++) {
        const struct access_limits *l = &issuers[i].granted.limits;
        if (issuers[i].root == NULL && (l->streams > 0 || l->stored > 0))
            feature_warn(out, l->streams > 0 ? "streams" : "stored", rootless_issuer);
    }
    for (size_t i = 0; i < c->anonymous.n; i++) {
        const struct access_limits *l = &anonymous[i].granted.limits;
        if (l->streams > 0 || l->stored > 0)
            feature_warn(out, l->streams > 0 ? "streams" : "stored", nobody);
    }
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

static void print_text(struct buf *to, const char *text)
{
    buf_put(to, text != NULL ? str_of_cstr(text) : STR_NONE);
    buf_putc(to, '\0');
}

static void print_list(struct buf *to, const struct option_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        print_text(to, list->items[i]);
    buf_putc(to, '\0');
}

static uint64_t print_end(struct buf *text)
{
    uint8_t digest[SHA256_SIZE];
    uint64_t print;
    sha256(buf_str(text), digest);
    buf_deinit(text);
    memcpy(&print, digest, sizeof print);
    return print;
}

/* What tells sections apart, limits aside, which hold for what comes. */
static uint64_t caller_print(const struct caller_config *c, bool on)
{
    struct buf text = {0};
    buf_putc(&text, on ? '1' : '0');
    print_text(&text, c->token_text);
    print_list(&text, &c->certificates);
    print_list(&text, &c->capabilities);
    print_text(&text, c->root);
    print_list(&text, &c->granted.grants);
    return print_end(&text);
}

/* Its keys are looked at one by one, and not-before for each token. */
static uint64_t issuer_print(const struct issuer_config *c)
{
    struct buf text = {0};
    print_text(&text, c->iss);
    print_list(&text, &c->aud);
    print_list(&text, &c->typ);
    print_list(&text, &c->alg);
    print_text(&text, c->root);
    print_list(&text, &c->granted.grants);
    return print_end(&text);
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
    p->section = caller_print(c, on);
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

static void add_caller(struct policy *policy, const struct caller_config *c, bool on)
{
    struct principal *p = caller_principal(c, on);
    policy_add_caller(policy, c->token_text != NULL ? c->token_sha256 : NULL, p);
    for (size_t i = 0; i < c->certificates.n; i++)
        policy_add_certificate(policy, p, str_of_cstr(c->certificates.items[i]));
}

static const struct str *copy_list(struct arena *a, const struct option_list *list, size_t *n)
{
    struct str *texts = arena_alloc(a, (list->n + 1) * sizeof *texts);
    *n = list->n;
    for (size_t i = 0; i < list->n; i++)
        texts[i] = arena_dup(a, str_of_cstr(list->items[i]));
    return texts;
}

/* `none` is the empty text. */
static const struct str *types_of(struct arena *a, const struct option_list *list, size_t *n)
{
    struct str *texts = (struct str *)copy_list(a, list, n);
    for (size_t i = 0; i < *n; i++)
        if (str_eq(texts[i], STR("none")))
            texts[i] = STR("");
    return texts;
}

static const struct str *audience_of(struct arena *a, const struct access_config *c,
                                     const struct issuer_config *one, size_t *n)
{
    if (one->aud.n > 0)
        return copy_list(a, &one->aud, n);
    struct str *aud = arena_alloc(a, sizeof *aud);
    *aud = arena_dup(a, str_of_cstr(c->public_url));
    *n = 1;
    return aud;
}

static int add_issuer(struct policy *policy, const struct access_config *c,
                      const struct issuer_config *one, char *why, size_t size)
{
    struct arena *a = &policy->arena;
    struct issuer_source source = source_of(one);
    struct issuer i = {.name = arena_dup(a, str_of_cstr(one->name)),
                       .iss = arena_dup(a, str_of_cstr(one->iss)),
                       .max_lifetime_s = (int64_t)(one->max_lifetime_ms / 1000),
                       .limits = one->granted.limits,
                       .section = issuer_print(one),
                       .algs = issuer_keys_algs(&source)};
    int64_t cut_ms = 0;
    int err = issuer_keys_load(&source, &i.keys, why, size);
    if (err != 0)
        return err;
    i.aud = audience_of(a, c, one, &i.n_aud);
    i.typ = types_of(a, &one->typ, &i.n_typ);
    if (i.keys == NULL)
        i.jwks_url = arena_dup(a, str_of_cstr(one->jwks));
    if (one->root != NULL)
        i.root = arena_dup(a, str_of_cstr(one->root));
    if (one->not_before != NULL)
        must(date_parse_rfc3339(str_of_cstr(one->not_before), &cut_ms) == 0);
    i.not_before_s = cut_ms / 1000;
    for (size_t g = 0; g < one->granted.grants.n; g++)
        add_line(&i.grants, a, one->granted.grants.items[g]);
    policy_add_issuer(policy, &i);
    return 0;
}

struct policy *access_config_policy(const struct access_config *c, char *why, size_t size)
{
    const struct caller_config *callers = c->callers.items;
    const struct issuer_config *issuers = c->issuers.items;
    struct policy *policy = policy_new();
    bool on = access_config_on(c);
    int err = 0;
    for (size_t i = 0; i < c->callers.n; i++)
        add_caller(policy, &callers[i], on);
    for (size_t i = 0; err == 0 && i < c->issuers.n; i++)
        err = add_issuer(policy, c, &issuers[i], why, size);
    if (err != 0) {
        policy_unref(policy);
        return NULL;
    }
    if (on)
        policy_set_anonymous(policy, anonymous_principal(c));
    return policy;
}
