// SPDX-License-Identifier: Apache-2.0
#include "stream/access_http.h"
#include "access/minted.h"
#include "access/pattern.h"
#include "access/policy.h"
#include "base/clock.h"
#include "base/date.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/json.h"
#include "base/mem.h"
#include "http/answers.h"
#include "http/audit.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"
#include "stream/access_key.h"
#include "stream/erasures.h"
#include "stream/revocations.h"
#include "store/store.h"

#include <jansson.h>
#include <stdlib.h>

#define BODY_MAX      (16 * 1024)
#define ERASE_WAIT_MS 1000

struct access_http {
    struct access_http_setup setup;
    uint64_t longest_s;
    struct guard *guard; /* these: NULL until it begins */
    struct revocations *revocations;
    struct erasures *erasures;
    struct access_key key;
    struct gate parts; /* being stopped */
};

/* ---- answers ---- */

static void refuse_syntax(struct exchange *x, const char *why)
{
    exchange_problem(x, 400, STR("SYNTAX"), str_of_cstr(why));
}

/* He has the verb, but not what he asks for. */
static void refuse_more(struct access_http *a, struct exchange *x)
{
    audit_note(a->setup.audit, AUDIT_DENIED, x, STR("more than the credential grants"));
    exchange_problem(x, 403, STR("FORBIDDEN"),
                     STR("this is more than the credential itself grants"));
}

/* What is answered when it is in the audit. In the exchange's arena. */
struct told {
    struct audit_wait wait;
    struct exchange *x; /* held */
    int status;
    struct str body; /* n == 0: none */
};

static void answer(struct told *t, int err)
{
    struct exchange *x = t->x;
    if (err != 0) {
        exchange_error(x, err);
    } else if (t->body.n > 0) {
        exchange_send_json(x, t->status, t->body);
    } else {
        exchange_status(x, t->status);
        exchange_send(x, STR_NONE);
    }
    exchange_release(x);
}

static void access_http_on_told(struct audit_wait *w, int err)
{
    answer(container_of(w, struct told, wait), err);
}

/* Takes over the caller's hold. */
static void tell(struct access_http *a, struct exchange *x, const struct audit_fact *fact,
                 int status, struct str body)
{
    struct told *t = arena_alloc(&x->arena, sizeof *t);
    *t = (struct told){
        .wait = {.done = access_http_on_told}, .x = x, .status = status, .body = body};
    audit_tell(a->setup.audit, x, fact);
    if (a->setup.audit == NULL)
        answer(t, 0);
    else
        audit_sync(a->setup.audit, &t->wait);
}

/* ---- requests ---- */

static struct str text_of(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}

/* NULL: answered. */
static json_t *parse(struct exchange *x, struct str body, int err)
{
    json_t *o = err == 0
                    ? json_loadb(body.p != NULL ? body.p : "", body.n, JSON_REJECT_DUPLICATES, NULL)
                    : NULL;
    if (err == 0 && json_is_object(o))
        return o;
    json_decref(o);
    exchange_error(x, err != 0 ? err : ERR_JSON);
    return NULL;
}

static bool knows_all(const json_t *o, const char *const *names)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o, key, value)
    {
        const char *const *n = names;
        while (*n != NULL && strcmp(*n, key) != 0)
            n++;
        if (*n == NULL)
            return false;
    }
    return true;
}

/* ---- POST grants ---- */

struct order {
    struct access_grants grants;
    struct access_limits limits;
    struct minted minted;
};

static const char *read_user(const json_t *o, struct arena *a, struct minted *m)
{
    const json_t *sub = json_object_get(o, "sub");
    struct str user = text_of(o, "sub");
    if (sub != NULL && !access_claim_is_valid(user))
        return "sub is 1 to 128 letters, digits and -._~@:+";
    m->user = arena_dup(a, user);
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *read_life(const json_t *o, const struct principal *p, int64_t now_s,
                             struct minted *m)
{
    const json_t *link = json_object_get(o, "link"), *in = json_object_get(o, "expires_in");
    if ((link != NULL && !json_is_boolean(link)) || (in != NULL && !json_is_integer(in)))
        return "expires_in is a whole number of seconds, link is true or false";
    m->link = json_is_true(link);
    int64_t most_s = m->link ? MINTED_LINK_S : MINTED_LIFETIME_S;
    int64_t life_s = in != NULL ? json_integer_value(in) : GRANT_DEFAULT_S;
    if (life_s < 1 || life_s > most_s)
        return m->link ? "expires_in of a link is 1 to 1800 seconds"
                       : "expires_in is 1 to 3600 seconds";
    m->issued_s = now_s;
    m->expires_s = now_s + life_s;
    if (in == NULL && m->expires_s > p->expires_ms / 1000)
        m->expires_s = p->expires_ms / 1000;
    return NULL;
}

/* The same as an entry of a token has. */
static int read_grants(const json_t *o, struct arena *a, struct order *out)
{
    json_t *entry = json_object(), *details = json_array();
    bool found;
    static const char *const parts[] = {"actions", "on", "limits"};
    json_object_set_new(entry, "type", json_string(ACCESS_DETAIL_TYPE));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (json_object_get(o, parts[i]) != NULL)
            json_object_set(entry, parts[i], json_object_get(o, parts[i]));
    json_array_append_new(details, entry);
    int err = access_grants_add_json(&out->grants, &out->limits, a, details, &found);
    json_decref(details);
    return err == 0 && out->grants.n == 0 ? ERR_SYNTAX : err;
}

static const char *read_order(const json_t *o, struct exchange *x, int64_t now_s, struct order *out)
{
    static const char *const names[] = {"actions", "on",  "limits", "expires_in",
                                        "link",    "sub", NULL};
    *out = (struct order){.minted = {.grants = &out->grants, .limits = &out->limits}};
    if (!knows_all(o, names))
        return "a grant has actions, on, limits, expires_in, link and sub";
    if (read_grants(o, &x->arena, out) != 0)
        return "actions are verbs and on are patterns of names, each such that the verb is for it";
    const char *why = read_user(o, &x->arena, &out->minted);
    return why != NULL ? why : read_life(o, x->principal, now_s, &out->minted);
}

static struct str grant_json(struct exchange *x, const struct buf *token, int64_t expires_s)
{
    char at[DATE_RFC3339_TEXT];
    date_format_rfc3339(expires_s * 1000, at);
    return arena_printf(&x->arena, "{\"token\":\"%.*s\",\"expires_at\":\"%.*s\"}\n", (int)token->n,
                        token->p, DATE_RFC3339_TEXT, at);
}

static void mint(struct access_http *a, struct exchange *x, const struct order *o)
{
    struct buf token = {0};
    char jti[MINTED_JTI + 1];
    int err = minted_sign(a->key.keys, x->principal, &o->minted, &token, jti);
    if (err == ERR_DENIED) {
        refuse_more(a, x);
    } else if (err != 0) {
        exchange_error(x, err);
    } else {
        struct str id = arena_dup(&x->arena, str_of(jti, MINTED_JTI));
        struct audit_fact fact = {.event = AUDIT_MINTED,
                                  .jti = id,
                                  .user = o->minted.user,
                                  .kind = o->minted.link ? STR("link") : STR("token"),
                                  .name = o->grants.items[0].pattern};
        exchange_hold(x);
        tell(a, x, &fact, 201, grant_json(x, &token, o->minted.expires_s));
    }
    buf_deinit(&token);
}

static void access_http_on_order(struct exchange *x, struct str body, int err)
{
    struct access_http *a = x->state;
    struct order o;
    json_t *json = parse(x, body, err);
    if (json == NULL)
        return;
    const char *why = read_order(json, x, clock_wall_ms() / 1000, &o);
    if (why != NULL)
        refuse_syntax(x, why);
    else if (a->key.keys == NULL)
        exchange_error(x, ERR_BUSY);
    else if (o.minted.expires_s <= o.minted.issued_s)
        refuse_more(a, x);
    else
        mint(a, x, &o);
    json_decref(json);
}

/* ---- POST revocations ---- */

struct revoking {
    struct revocation entry;
    struct access_http *all;
    struct exchange *x; /* held */
};

static void access_http_on_revoked(struct revocation *v, int err)
{
    struct revoking *r = container_of(v, struct revoking, entry);
    struct exchange *x = r->x;
    struct audit_fact fact = {.event = AUDIT_REVOKED,
                              .jti = v->jti,
                              .kind = v->jti.n > 0   ? STR("jti")
                                      : v->sub.n > 0 ? STR("sub")
                                                     : STR("root"),
                              .name = v->sub.n > 0 ? v->sub : v->root};
    if (err == 0) {
        tell(r->all, x, &fact, 204, STR_NONE);
        return;
    }
    if (err == ERR_FULL)
        exchange_problem(x, 507, STR("QUOTA"),
                         STR("the deny list is full; entries leave it when "
                             "the tokens they are about have expired"));
    else
        exchange_error(x, err);
    exchange_release(x);
}

/* `t/acme` is `t/acme/`: a tenant's names begin so, and no other's do. */
static struct str root_of(struct exchange *x, struct str root)
{
    if (root.n > 0 && root.p[root.n - 1] == '/')
        root.n--;
    return arena_printf(&x->arena, "%.*s%.*s/", (int)x->principal->root.n, x->principal->root.p,
                        (int)root.n, root.p);
}

static bool fits(struct str s)
{
    return s.n <= REVOCATION_TEXT_MAX;
}

static const char *read_revocation(const json_t *o, struct exchange *x, int64_t now_s,
                                   struct revocation *v)
{
    static const char *const names[] = {"jti", "sub", "issuer", "before", "root", NULL};
    const json_t *before = json_object_get(o, "before");
    struct str jti = text_of(o, "jti"), sub = text_of(o, "sub"), root = text_of(o, "root");
    if (!knows_all(o, names) || (jti.n > 0) + (sub.n > 0) + (root.n > 0) != 1)
        return "revoke one jti, sub or root; a sub may have an issuer and a time before";
    if (before != NULL && (!json_is_integer(before) || json_integer_value(before) < 0))
        return "before is a time in whole seconds since 1970";
    if (!fits(jti) || !fits(sub) || !fits(root) || !fits(text_of(o, "issuer")))
        return "this is longer than any token has it";
    v->jti = arena_dup(&x->arena, jti);
    v->sub = arena_dup(&x->arena, sub);
    v->issuer = arena_dup(&x->arena, text_of(o, "issuer"));
    v->root = root.n > 0 ? root_of(x, root) : STR_NONE;
    v->scope = x->principal->root;
    v->before_s = before != NULL ? json_integer_value(before) : now_s;
    return v->before_s > now_s ? "before is a time that has come" : NULL;
}

static void access_http_on_revocation(struct exchange *x, struct str body, int err)
{
    struct access_http *a = x->state;
    json_t *json = parse(x, body, err);
    if (json == NULL)
        return;
    struct revoking *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct revoking){.entry = {.done = access_http_on_revoked}, .all = a, .x = x};
    const char *why = read_revocation(json, x, clock_wall_ms() / 1000, &r->entry);
    json_decref(json);
    if (why != NULL) {
        refuse_syntax(x, why);
        return;
    }
    exchange_hold(x);
    revocations_add(a->revocations, &r->entry);
}

static void send_count(struct access_http *a, struct exchange *x)
{
    exchange_send_json(x, 200,
                       arena_printf(&x->arena, "{\"entries\":%zu,\"limit\":%d}\n",
                                    revocations_count(a->revocations), REVOCATIONS_MAX));
}

/* ---- DELETE roots ---- */

struct erasing {
    struct erasure_wait wait;
    struct access_http *all;
    struct exchange *x; /* held */
};

static void access_http_on_erased(struct erasure_wait *w, int err)
{
    struct erasing *e = container_of(w, struct erasing, wait);
    struct exchange *x = e->x;
    if (err != 0)
        exchange_error(x, err);
    else
        exchange_send_json(x, w->finished ? 200 : 202,
                           arena_printf(&x->arena, "{\"removed\":%llu,\"done\":%s}\n",
                                        (unsigned long long)w->removed,
                                        w->finished ? "true" : "false"));
    exchange_release(x);
}

static void begin_erasure(struct told *t, int err);

static void access_http_on_erasure_told(struct audit_wait *w, int err)
{
    begin_erasure(container_of(w, struct told, wait), err);
}

static void begin_erasure(struct told *t, int err)
{
    struct exchange *x = t->x;
    struct access_http *a = x->state;
    if (err != 0) {
        exchange_error(x, err);
        exchange_release(x);
        return;
    }
    struct erasing *e = arena_alloc(&x->arena, sizeof *e);
    *e = (struct erasing){
        .wait = {.prefix = t->body, .wait_ms = ERASE_WAIT_MS, .done = access_http_on_erased},
        .all = a,
        .x = x};
    erasures_begin(a->erasures, &e->wait);
}

/* A name and nothing else: patterns are not erased. 0, or ERR_SYNTAX. */
static int read_root(struct exchange *x, struct str path, struct str *name, struct str *pattern)
{
    char ignored[256];
    int err = url_decode(&x->arena, path, false, name);
    if (err == 0 && name->n > 0 && name->p[name->n - 1] == '/')
        name->n--;
    if (err != 0 || name->n == 0 || x->principal->root.n + name->n >= STORE_NAME_MAX)
        return ERR_SYNTAX;
    for (size_t i = 0; i < name->n; i++)
        if (strchr("*{}", name->p[i]) != NULL) /* NUL, too */
            return ERR_SYNTAX;
    *pattern = arena_printf(&x->arena, "%.*s/**", (int)name->n, name->p);
    return access_pattern_check(*pattern, false, ignored, sizeof ignored);
}

static void erase(struct access_http *a, struct exchange *x, struct str path)
{
    struct str name, pattern;
    if (read_root(x, path, &name, &pattern) != 0) {
        refuse_syntax(x, "a root is a name without wildcards");
        return;
    }
    if (!exchange_covers(x, ACCESS_VERB_ERASE, ACCESS_STREAM, pattern)) {
        exchange_deny(x);
        return;
    }
    struct told *t = arena_alloc(&x->arena, sizeof *t);
    *t = (struct told){
        .wait = {.done = access_http_on_erasure_told}, .x = x, .body = root_of(x, name)};
    exchange_hold(x);
    audit_tell(a->setup.audit, x,
               &(struct audit_fact){.event = AUDIT_ERASED,
                                    .verb = access_verb_text(ACCESS_VERB_ERASE),
                                    .kind = access_kind_text(ACCESS_STREAM),
                                    .name = pattern});
    if (a->setup.audit == NULL)
        begin_erasure(t, 0);
    else
        audit_sync(a->setup.audit, &t->wait);
}

static size_t access_http_erase_others(void *ctx, struct str prefix)
{
    struct access_http *a = ctx;
    return a->setup.erase_others != NULL ? a->setup.erase_others(a->setup.ctx, prefix) : 0;
}

static void access_http_on_erased_all(void *ctx, struct str prefix, uint64_t removed)
{
    struct access_http *a = ctx;
    audit_tell(a->setup.audit, NULL,
               &(struct audit_fact){.event = AUDIT_ERASED, .cause = STR("done"), .name = prefix});
}

/* ---- the surface ---- */

static const struct surface_rule access_rules[] = {
    {"access.mint", "POST", "grants", ACCESS_VERB_MINT, ACCESS_SERVER, 0, NULL},
    {"access.revoke", "POST", "revocations", ACCESS_VERB_REVOKE, ACCESS_SERVER, RULE_ADMIN, NULL},
    {"access.revoked", "GET HEAD", "revocations", ACCESS_VERB_REVOKE, ACCESS_SERVER, RULE_ADMIN,
     NULL},
    {"access.erase", "DELETE", "roots/{name...}", ACCESS_VERB_ERASE, ACCESS_STREAM, RULE_LATER,
     NULL},
    {0},
};
const struct surface access_surface = {.path = ACCESS_PATH, .rules = access_rules};

static bool is_on(const struct access_http *a)
{
    return a->guard != NULL && guard_policy(a->guard)->on;
}

static void access_http_handle(void *access, struct exchange *x)
{
    struct access_http *a = access;
    struct str path = str_skip(x->request->path, sizeof ACCESS_PATH - 1);
    enum method m = x->request->method;
    bool reads = m == METHOD_GET || m == METHOD_HEAD;
    x->state = a;
    if (!is_on(a))
        exchange_problem(x, 404, STR("NO_ROUTE"), STR("no access is configured"));
    else if (m == METHOD_POST && str_eq(path, STR("grants")))
        exchange_collect(x, BODY_MAX, access_http_on_order);
    else if (m == METHOD_POST && str_eq(path, STR("revocations")))
        exchange_collect(x, BODY_MAX, access_http_on_revocation);
    else if (reads && str_eq(path, STR("revocations")))
        send_count(a, x);
    else if (m == METHOD_DELETE && str_starts(path, STR("roots/")))
        erase(a, x, str_skip(path, sizeof "roots/" - 1));
    else
        exchange_problem(x, 404, STR("NO_ROUTE"),
                         STR("there are grants, revocations and roots/NAME here"));
}

/* ---- the whole ---- */

static void access_http_on_key(struct access_key *k)
{
    guard_set_own_keys(container_of(k, struct access_http, key)->guard, k->keys);
}

static void access_http_on_changed(void *ctx)
{
    struct access_http *a = ctx;
    guard_forget_tokens(a->guard);
    answers_look_now(a->setup.answers);
}

void access_http_set_longest(struct access_http *a, uint64_t longest_s)
{
    uint64_t own_s = MINTED_LIFETIME_S;
    a->longest_s = longest_s > own_s ? longest_s : own_s;
    if (a->revocations != NULL)
        revocations_set_longest(a->revocations, a->longest_s);
}

struct bookmark_key *const *access_http_bookmarks(const struct access_http *a)
{
    return &a->key.bookmarks;
}

bool access_http_starting(void *access)
{
    const struct access_http *a = access;
    return a->key.keys == NULL || a->revocations == NULL || !revocations_ready(a->revocations);
}

bool access_http_revoked(void *access, const struct principal *p)
{
    const struct access_http *a = access;
    return a->revocations != NULL && revocations_deny(a->revocations, p);
}

struct access_http *access_http_new(const struct access_http_setup *setup)
{
    struct access_http *a = mem_zalloc(sizeof *a);
    a->setup = *setup;
    a->longest_s = MINTED_LIFETIME_S;
    gate_init(&a->parts, setup->sched);
    return a;
}

void access_http_begin(struct access_http *a, struct guard *guard)
{
    const struct access_http_setup *setup = &a->setup;
    if (a->guard != NULL)
        return;
    a->guard = guard;
    a->key = (struct access_key){.sched = setup->sched,
                                 .store = setup->store,
                                 .trace = setup->trace,
                                 .ready = access_http_on_key};
    access_key_load(&a->key);
    a->revocations = revocations_new(&(struct revocations_setup){.sched = setup->sched,
                                                                 .store = setup->store,
                                                                 .trace = setup->trace,
                                                                 .max = REVOCATIONS_MAX,
                                                                 .longest_s = a->longest_s,
                                                                 .changed = access_http_on_changed,
                                                                 .ctx = a});
    a->erasures = erasures_new(&(struct erasures_setup){.sched = setup->sched,
                                                        .store = setup->store,
                                                        .trace = setup->trace,
                                                        .others = access_http_erase_others,
                                                        .erased = access_http_on_erased_all,
                                                        .ctx = a});
}

void access_http_mount(struct access_http *a, struct http *http)
{
    http_mount(http, &access_surface, access_http_handle, a);
}

static void access_http_on_part_stopped(void *ctx)
{
    gate_leave(&((struct access_http *)ctx)->parts);
}

void access_http_stop(struct access_http *a, void (*stopped)(void *ctx), void *ctx)
{
    for (int i = 0; a->guard != NULL && i < 3; i++)
        gate_enter(&a->parts);
    if (a->guard != NULL) {
        access_key_stop(&a->key, access_http_on_part_stopped, a);
        revocations_stop(a->revocations, access_http_on_part_stopped, a);
        erasures_stop(a->erasures, access_http_on_part_stopped, a);
    }
    gate_shut(&a->parts, stopped, ctx);
}

void access_http_free(struct access_http *a)
{
    if (a == NULL)
        return;
    erasures_free(a->erasures);
    revocations_free(a->revocations);
    if (a->guard != NULL)
        access_key_deinit(&a->key);
    free(a);
}
