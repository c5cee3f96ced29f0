// SPDX-License-Identifier: Apache-2.0
#include "http/limits.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/sched.h"
#include "base/units.h"
#include "http/account.h"
#include "http/audit.h"
#include "http/exchange.h"
#include "http/front.h"
#include "http/refuse.h"
#include "http/http.h"
#include "http/surface.h"
#include "telemetry/metrics.h"

#include <stdlib.h>
#include <string.h>

#define USAGE_SERIES_MAX 1000

/* What was refused: X(kind, label). */
#define LIMITED(X)                                                                                 \
    X(CONNECTIONS, "connections")                                                                  \
    X(CREDENTIALS, "credentials")                                                                  \
    X(REQUESTS, "requests")                                                                        \
    X(LIVE, "live")                                                                                \
    X(BYTES, "append-rate")                                                                        \
    X(CREATES, "creates")                                                                          \
    X(GENERATIONS, "generations")                                                                  \
    X(QUOTA, "quota")

enum limited {
#define X(kind, label) LIMITED_##kind,
    LIMITED(X)
#undef X
        LIMITED_KINDS,
};

static const struct str limited_labels[LIMITED_KINDS] = {
#define X(kind, label) STR_INIT(label),
    LIMITED(X)
#undef X
};

struct limits {
    struct sched *sched;
    struct limits_settings settings;
    struct accounts addresses, subjects;
    uint64_t blocked_until_ms; /* of the last address; later, nobody is looked up */
    struct metric_family *usage[ACCOUNT_USES];
    struct counter *limited[LIMITED_KINDS];
};

static const struct metric_info limited_info = {
    .name = "limited",
    .help = "Requests and connections that were refused because a limit was reached",
    .labels = {"limit"},
    .series_max = LIMITED_KINDS};

static const struct metric_info usage_infos[ACCOUNT_USES] = {
    [ACCOUNT_USED_REQUESTS] = {.name = "usage_requests",
                               .help = "Requests of each subject",
                               .labels = {"issuer", "subject", "root"},
                               .series_max = USAGE_SERIES_MAX},
    [ACCOUNT_USED_BYTES] = {.name = "usage_appended_bytes",
                            .help = "Bytes that each subject has appended",
                            .labels = {"issuer", "subject", "root"},
                            .series_max = USAGE_SERIES_MAX},
    [ACCOUNT_USED_EVENTS] = {.name = "usage_delivered_events",
                             .help = "Events that each subject was given",
                             .labels = {"issuer", "subject", "root"},
                             .series_max = USAGE_SERIES_MAX},
};

/* Of token holders and strangers. */
static const struct access_limits defaults = {
    .rate = 100,
    .append_rate = 4 * MIB,
    .live = 50,
    .creates = 10,
    .streams = 1000,
    .stored = GIB,
    .subscriptions = 100,
    .generations = 20,
};

/* ---- the whole ---- */

static void limits_register(struct limits *l, struct metrics *metrics)
{
    struct metric_family *limited = NULL;
    int err = metrics_add_family(metrics, STR("tidemark"), &limited_info, METRIC_COUNTER, &limited);
    for (int i = 0; i < ACCOUNT_USES && err == 0; i++)
        err = metrics_add_family(metrics, STR("tidemark"), &usage_infos[i], METRIC_COUNTER,
                                 &l->usage[i]);
    must(err == 0);
    for (int i = 0; i < LIMITED_KINDS; i++)
        l->limited[i] = metric_family_counter(limited, &limited_labels[i]);
}

struct limits *limits_new(struct sched *sched, struct metrics *metrics)
{
    struct limits *l = mem_zalloc(sizeof *l);
    l->sched = sched;
    accounts_init(&l->addresses, LIMITS_ADDRESSES_MAX);
    accounts_init(&l->subjects, LIMITS_SUBJECTS_MAX);
    limits_register(l, metrics);
    return l;
}

void limits_free(struct limits *l)
{
    if (l == NULL)
        return;
    accounts_deinit(&l->addresses);
    accounts_deinit(&l->subjects);
    free(l);
}

void limits_set(struct limits *l, const struct limits_settings *settings)
{
    l->settings = *settings;
}

/* ---- who ---- */

/* What of an address tells clients apart: of IPv6, its network. n == 0: there is none. */
static struct str address_key(const uint8_t address[LIMITS_ADDRESS])
{
    static const uint8_t none[LIMITS_ADDRESS];
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(address, none, sizeof none) == 0)
        return STR_NONE;
    bool v4 = memcmp(address, mapped, sizeof mapped) == 0;
    return str_of((const char *)address, v4 ? LIMITS_ADDRESS : LIMITS_ADDRESS / 2);
}

struct str limits_key(struct exchange *x)
{
    if (x->principal->known)
        return principal_counts_as(x->principal);
    uint8_t client[LIMITS_ADDRESS];
    front_client(x, client);
    struct str address = address_key(client);
    char *key = arena_alloc(&x->arena, address.n + 1);
    key[0] = '\0'; /* no id of a principal begins so */
    if (address.n > 0)
        memcpy(key + 1, address.p, address.n);
    return str_of(key, address.n + 1);
}

/* Whom the settings name, and whom nothing bounds at all, has no limits but those given. */
static bool is_trusted(const struct principal *p)
{
    return p->rights.n == 0 || (p->known && p->issuer.n == 0 && !p->apart);
}

/* What is stored is the minter's, not his users'. */
struct access_limits limits_of(const struct principal *p)
{
    struct access_limits own = p->limits;
    if (is_trusted(p) || p->apart)
        return own;
#define X(name, word, what)                                                                        \
    if (own.name == 0)                                                                             \
        own.name = defaults.name;
    ACCESS_LIMITS(X)
#undef X
    return own;
}

#define LIMIT_OF(p, name) ((p)->limits.name > 0 || is_trusted(p) ? (p)->limits.name : defaults.name)

static struct limits *limits_at(const struct exchange *x)
{
    return x->http->per_client;
}

static uint64_t now_of(const struct exchange *x)
{
    return limits_at(x)->sched->now_ms;
}

/* NULL: it has no address. */
static struct account *address_account(struct limits *l, const uint8_t address[LIMITS_ADDRESS])
{
    struct str key = address_key(address);
    return key.n > 0 ? accounts_get(&l->addresses, key, l->sched->now_ms) : NULL;
}

static void find_usage(struct limits *l, struct account *a, const struct principal *p)
{
    struct str who = p->known ? (p->sub.n > 0 ? p->sub : p->name) : STR("");
    struct str values[] = {p->issuer.n > 0 ? p->issuer : STR(""), who,
                           p->root.n > 0 ? p->root : STR("")};
    if (p->apart) { /* a caller is the issuer of his users */
        values[0] = p->sub;
        values[1] = p->user;
    }
    if (a == l->subjects.crowd) /* it is nobody's in particular */
        values[0] = values[1] = values[2] = STR("other");
    for (int i = 0; i < ACCOUNT_USES; i++)
        a->used[i] = metric_family_counter(l->usage[i], values);
}

/* By its id, and by its root, if it has one: what it uses of another one is not the same. */
static struct account *subject_account(struct limits *l, const struct principal *p)
{
    char text[ACCOUNT_KEY_MAX];
    struct str key = principal_counts_as(p);
    if (p->root.n > 0 && key.n + p->root.n < sizeof text) {
        memcpy(text, key.p, key.n);
        text[key.n] = '\n';
        memcpy(text + key.n + 1, p->root.p, p->root.n);
        key = str_of(text, key.n + 1 + p->root.n);
    }
    return accounts_get(&l->subjects, key, l->sched->now_ms);
}

static struct account *client_account(struct limits *l, const struct exchange *x)
{
    uint8_t client[LIMITS_ADDRESS];
    front_client(x, client);
    return address_account(l, client);
}

/* Remembering it is no change of a principal that anybody sees. */
static void remember_account(const struct limits *l, const struct principal *shared,
                             struct account *a)
{
    struct principal *p = (struct principal *)shared;
    if (p->refs == 0 || a == l->subjects.crowd) /* it is static; there may be room later */
        return;
    p->account = a;
    p->account_era = l->subjects.era;
}

/* Done once for a principal that is known, and for each request of others. */
__attribute__((noinline)) static struct account *find_account(struct limits *l,
                                                              const struct exchange *x)
{
    const struct principal *p = x->principal;
    struct account *a = p->known ? subject_account(l, p) : client_account(l, x);
    if (a != NULL && a->used[0] == NULL)
        find_usage(l, a, p);
    if (p->known)
        remember_account(l, p, a);
    return a;
}

static struct account *account_of(struct limits *l, const struct exchange *x)
{
    const struct principal *p = x->principal;
    return p->account_era == l->subjects.era ? p->account : find_account(l, x);
}

/* ---- refusals ---- */

static void limits_answer(struct exchange *x, enum limited what, const struct surface_refusal *why)
{
    struct limits *l = limits_at(x);
    if (l != NULL)
        counter_inc(l->limited[what]);
    audit_note(x->http->audit, what == LIMITED_QUOTA ? AUDIT_QUOTA : AUDIT_LIMITED, x,
               limited_labels[what]);
    refuse(x, why);
}

static bool limits_refuse(struct exchange *x, enum limited what, uint64_t wait_ms)
{
    struct surface_refusal why = {.status = 429,
                                  .code = STR("RATE_LIMITED"),
                                  .message =
                                      STR("too much at once; wait as long as Retry-After says"),
                                  .retry_after_s = wait_ms / SECOND_MS + (wait_ms % SECOND_MS > 0)};
    limits_answer(x, what, &why);
    return false;
}

#define WAIT_FOR_ROOM_MS SECOND_MS /* nobody knows when something that is under way ends */

void limits_refuse_quota(struct exchange *x, struct str message)
{
    struct surface_refusal why = {.status = 507, .code = STR("QUOTA"), .message = message};
    limits_answer(x, LIMITED_QUOTA, &why);
}

/* ---- connections ---- */

enum limits_entry limits_connect(struct limits *l, const uint8_t address[LIMITS_ADDRESS],
                                 struct account **account)
{
    const struct limits_settings *s = &l->settings;
    uint64_t ignored;
    struct account *a = *account = address_account(l, address);
    if (a == NULL)
        return LIMITS_IN;
    struct rate rate = {s->connection_rate, SECOND_MS,
                        s->connections > s->connection_rate ? s->connections : s->connection_rate};
    bool room = s->connections == 0 || a->counts[ACCOUNT_CONNECTIONS] < s->connections;
    if (room && account_take(a, ACCOUNT_CONNECTS, &rate, 1, l->sched->now_ms, &ignored)) {
        account_enter(a, ACCOUNT_CONNECTIONS, 0);
        return LIMITS_IN;
    }
    counter_inc(l->limited[LIMITED_CONNECTIONS]);
    if (account_enter(a, ACCOUNT_SURPLUS, LIMITS_SURPLUS))
        return LIMITS_OVER;
    *account = NULL;
    return LIMITS_CLOSED;
}

/* ---- credentials ---- */

bool limits_try_credential(struct exchange *x)
{
    struct limits *l = limits_at(x);
    if (l == NULL || l->blocked_until_ms <= l->sched->now_ms)
        return true;
    struct account *a = client_account(l, x);
    if (a == NULL || a->blocked_until_ms <= l->sched->now_ms)
        return true;
    return limits_refuse(x, LIMITED_CREDENTIALS, a->blocked_until_ms - l->sched->now_ms);
}

void limits_note_bad_credential(struct exchange *x)
{
    struct limits *l = limits_at(x);
    struct account *a = l != NULL ? client_account(l, x) : NULL;
    if (a == NULL || l->settings.failures == 0)
        return;
    uint64_t ignored, now_ms = l->sched->now_ms;
    struct rate rate = {l->settings.failures, MINUTE_MS, l->settings.failures};
    account_take(a, ACCOUNT_FAILURES, &rate, 1, now_ms, &ignored);
    if (account_wait_ms(a, ACCOUNT_FAILURES, &rate, 1, now_ms) > 0)
        l->blocked_until_ms = a->blocked_until_ms = now_ms + LIMITS_BLOCK_MS;
}

/* ---- requests ---- */

/* Of whoever is not known, the address's rate holds, too. */
static uint64_t request_rate(const struct limits *l, const struct principal *p)
{
    if (p->known)
        return LIMIT_OF(p, rate);
    uint64_t own = p->limits.rate, address = l->settings.rate;
    return own == 0 || (address > 0 && address < own) ? address : own;
}

static struct rate per_second(uint64_t n)
{
    return (struct rate){n, SECOND_MS, 2 * n};
}

static bool is_probe(const struct exchange *x)
{
    return x->route != NULL && x->route->surface->unlimited;
}

bool limits_admit(struct exchange *x)
{
    struct limits *l = limits_at(x);
    struct account *a = l != NULL && !is_probe(x) ? account_of(l, x) : NULL;
    uint64_t wait_ms;
    must(x->account == NULL);
    if (a == NULL)
        return true;
    struct rate rate = per_second(request_rate(l, x->principal));
    if (!account_take(a, ACCOUNT_REQUESTS, &rate, 1, l->sched->now_ms, &wait_ms))
        return limits_refuse(x, LIMITED_REQUESTS, wait_ms);
    if (!account_enter(a, ACCOUNT_UNDER_WAY, LIMIT_OF(x->principal, connections)))
        return limits_refuse(x, LIMITED_REQUESTS, WAIT_FOR_ROOM_MS);
    x->account = a;
    counter_inc(a->used[ACCOUNT_USED_REQUESTS]);
    return true;
}

/* ---- what handlers take ---- */

bool limits_take_live(struct exchange *x)
{
    if (x->account == NULL || x->is_live || x->over)
        return true;
    if (!account_enter(x->account, ACCOUNT_LIVE, LIMIT_OF(x->principal, live)))
        return limits_refuse(x, LIMITED_LIVE, WAIT_FOR_ROOM_MS);
    x->is_live = true;
    return true;
}

static bool limits_take(struct exchange *x, enum account_rate what, uint64_t limit, uint64_t cost,
                        enum limited word)
{
    struct rate rate = per_second(limit);
    uint64_t wait_ms;
    return x->account == NULL || cost == 0 ||
           account_take(x->account, what, &rate, cost, now_of(x), &wait_ms) ||
           limits_refuse(x, word, wait_ms);
}

bool limits_take_bytes(struct exchange *x, uint64_t bytes)
{
    return limits_take(x, ACCOUNT_BYTES, LIMIT_OF(x->principal, append_rate), bytes, LIMITED_BYTES);
}

bool limits_take_create(struct exchange *x)
{
    return limits_take(x, ACCOUNT_CREATES, LIMIT_OF(x->principal, creates), 1, LIMITED_CREATES);
}

void limits_give_back_create(struct exchange *x)
{
    struct rate rate = per_second(LIMIT_OF(x->principal, creates));
    if (x->account != NULL)
        account_give_back(x->account, ACCOUNT_CREATES, &rate, 1);
}

bool limits_take_generation(struct exchange *x, struct account **lease)
{
    *lease = NULL;
    if (x->account == NULL)
        return true;
    if (!account_enter(x->account, ACCOUNT_GENERATIONS, LIMIT_OF(x->principal, generations)))
        return limits_refuse(x, LIMITED_GENERATIONS, WAIT_FOR_ROOM_MS);
    *lease = x->account;
    return true;
}

void limits_end_lease(struct account **lease)
{
    if (*lease != NULL)
        account_leave(*lease, ACCOUNT_GENERATIONS);
    *lease = NULL;
}

/* ---- usage ---- */

void limits_count_bytes(struct exchange *x, uint64_t appended)
{
    if (x->account != NULL)
        counter_add(x->account->used[ACCOUNT_USED_BYTES], appended);
}

void limits_count_events(struct exchange *x, uint64_t delivered)
{
    if (x->account != NULL)
        counter_add(x->account->used[ACCOUNT_USED_EVENTS], delivered);
}
