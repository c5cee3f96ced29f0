// SPDX-License-Identifier: Apache-2.0
#include "stream/revocations.h"
#include "access/principal.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/units.h"
#include "store/store.h"
#include "telemetry/trace.h"

#include <jansson.h>
#include <stdlib.h>

#define PREFIX_LEN   (sizeof REVOCATION_DOCUMENTS - 1)
#define KEY_LEN      (PREFIX_LEN + 2 * HEX_U64)
#define PAGE         1000
#define OVERLAP_MS   (10 * MINUTE_MS) /* clocks of servers may differ by that */
#define FULL_LOOKS   150              /* every so many looks begin at the first entry */
#define SWEEP_MS     (10 * SECOND_MS)
#define SWEEP_SLICE  64
#define MARGIN_MS    DAY_MS
#define RETRY_MS     1000
#define SELECTOR_MAX (4 * (REVOCATION_TEXT_MAX + 1))

/* Entries of the same selector are one; the later `before` counts. */
struct deny {
    int64_t before_s; /* INT64_MAX: whenever it was issued */
    int64_t until_ms;
    uint32_t selector_n;
    char selector[];
};

/* ---- selectors ---- */

/* Kind, scope, issuer, subject: with a NUL between them, which no text has. */
struct selector {
    size_t n;
    char text[SELECTOR_MAX];
};

static void put_part(struct selector *s, struct str part)
{
    if (part.n > REVOCATION_TEXT_MAX)
        part.n = REVOCATION_TEXT_MAX;
    if (part.n > 0)
        memcpy(s->text + s->n, part.p, part.n);
    s->n += part.n;
    s->text[s->n++] = '\0';
}

static struct str selector_of(struct selector *s, char kind, struct str scope, struct str issuer,
                              struct str what)
{
    s->n = 0;
    s->text[s->n++] = kind;
    put_part(s, scope);
    put_part(s, issuer);
    put_part(s, what);
    return str_of(s->text, s->n);
}

static struct str selector_of_entry(struct selector *s, const struct revocation *v)
{
    if (v->jti.n > 0)
        return selector_of(s, 'j', v->scope, STR_NONE, v->jti);
    if (v->sub.n > 0)
        return selector_of(s, 's', v->scope, v->issuer, v->sub);
    return selector_of(s, 'r', v->root, STR_NONE, STR_NONE);
}

/* ---- the whole ---- */

struct revocations {
    struct revocations_setup setup;
    struct map entries; /* by their selectors */
    size_t n_adding;    /* that are being written: they have their places */
    bool ready;
    struct gate calls;
    bool stopping;

    /* looking */
    struct timer look;
    struct store_docs docs;
    char after[KEY_LEN]; /* of the page that is being read */
    char newest[KEY_LEN];
    size_t after_n, newest_n;
    uint64_t n_looks;
    bool found; /* something new in this page */

    /* those that are over */
    struct timer sweep;
    struct store_docs oldest;
    struct store_put put;
    struct doc_put gone;
    char gone_key[KEY_LEN];
};

/* ---- who is denied ---- */

static bool denies(const struct revocations *r, struct str selector, int64_t issued_s)
{
    const struct deny *d = map_get(&r->entries, selector);
    return d != NULL && issued_s <= d->before_s;
}

static bool denied_by_jti(const struct revocations *r, const struct principal *p, struct str scope)
{
    struct selector s;
    if (p->jti.n > 0 && denies(r, selector_of(&s, 'j', scope, STR_NONE, p->jti), 0))
        return true;
    for (struct str rest = p->parent_jti; rest.n > 0;)
        if (denies(r, selector_of(&s, 'j', scope, STR_NONE, str_cut(&rest, '\0')), 0))
            return true;
    return false;
}

static bool denied_by_subject(const struct revocations *r, const struct principal *p,
                              struct str scope, struct str issuer, struct str sub)
{
    struct selector s;
    return sub.n > 0 && (denies(r, selector_of(&s, 's', scope, STR_NONE, sub), p->issued_s) ||
                         denies(r, selector_of(&s, 's', scope, issuer, sub), p->issued_s));
}

/* The issuer of a caller's users is the caller. */
static bool denied_within(const struct revocations *r, const struct principal *p, struct str scope)
{
    struct selector s;
    if (denied_by_jti(r, p, scope) || denied_by_subject(r, p, scope, p->issuer, p->sub) ||
        denied_by_subject(r, p, scope, p->issuer.n > 0 ? p->issuer : p->sub, p->user))
        return true;
    return scope.n > 0 && denies(r, selector_of(&s, 'r', scope, STR_NONE, STR_NONE), p->issued_s);
}

/* A caller of the settings has no token that could be told from others of its name. */
bool revocations_deny(const struct revocations *r, const struct principal *p)
{
    if (r->entries.n == 0 || (p->jti.n == 0 && p->issuer.n == 0))
        return false;
    if (denied_within(r, p, STR_NONE))
        return true;
    for (size_t i = 0; i < p->root.n; i++)
        if (p->root.p[i] == '/' && denied_within(r, p, str_of(p->root.p, i + 1)))
            return true;
    return false;
}

/* ---- entries ---- */

/* True: it says something new. */
static bool take(struct revocations *r, const struct revocation *v, int64_t until_ms)
{
    struct selector s;
    struct str selector = selector_of_entry(&s, v);
    int64_t before_s = v->jti.n > 0 ? INT64_MAX : v->before_s;
    struct deny *d = map_get(&r->entries, selector);
    if (d != NULL && d->before_s >= before_s)
        return false;
    if (d == NULL) {
        d = mem_zalloc(sizeof *d + selector.n);
        memcpy(d->selector, selector.p, selector.n);
        d->selector_n = (uint32_t)selector.n;
        map_put(&r->entries, str_of(d->selector, d->selector_n), d);
    }
    d->before_s = before_s;
    d->until_ms = until_ms;
    return true;
}

static struct str member(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}

static void take_row(struct revocations *r, const struct doc_row *row)
{
    json_t *o = row->key.n == KEY_LEN ? json_loadb(row->value.p, row->value.n, 0, NULL) : NULL;
    if (o == NULL)
        return;
    struct revocation v = {.jti = member(o, "jti"),
                           .issuer = member(o, "issuer"),
                           .sub = member(o, "sub"),
                           .root = member(o, "root"),
                           .scope = member(o, "scope"),
                           .before_s = json_integer_value(json_object_get(o, "before"))};
    if (v.jti.n + v.sub.n + v.root.n > 0 &&
        take(r, &v, json_integer_value(json_object_get(o, "until"))))
        r->found = true;
    json_decref(o);
    if (r->newest_n == 0 || memcmp(row->key.p, r->newest, KEY_LEN) > 0) {
        memcpy(r->newest, row->key.p, KEY_LEN);
        r->newest_n = KEY_LEN;
    }
}

/* ---- looking for them ---- */

static void read_page(struct revocations *r);

static void look_again(struct revocations *r, uint64_t in_ms)
{
    if (!r->stopping)
        sched_start(r->setup.sched, &r->look, in_ms);
}

/* Of each page: whoever is denied from now on is told before anybody asks again. */
static void tell_found(struct revocations *r)
{
    if (r->found && r->setup.changed != NULL)
        r->setup.changed(r->setup.ctx);
    r->found = false;
}

static void end_look(struct revocations *r, int err)
{
    if (err != 0) {
        if (!r->ready)
            trace(r->setup.trace, ACCESS_LATE, TRACE_STR("error", str_of_cstr(err_text(err))));
        look_again(r, RETRY_MS);
        return;
    }
    r->ready = true;
    r->n_looks++;
    if (r->setup.store->shared)
        look_again(r, REVOCATIONS_POLL_MS);
}

static void revocations_on_page(struct store_docs *d, int err)
{
    struct revocations *r = container_of(d, struct revocations, docs);
    for (size_t i = 0; err == 0 && i < d->n_rows; i++)
        take_row(r, &d->rows[i]);
    tell_found(r);
    bool more = err == 0 && d->more && d->n_rows > 0 && !r->stopping;
    if (more) {
        struct str last = d->rows[d->n_rows - 1].key;
        r->after_n = last.n < KEY_LEN ? last.n : KEY_LEN;
        memcpy(r->after, last.p, r->after_n);
        read_page(r);
    } else {
        end_look(r, err);
    }
    gate_leave(&r->calls);
}

static void read_page(struct revocations *r)
{
    r->docs = (struct store_docs){.prefix = STR(REVOCATION_DOCUMENTS),
                                  .after = str_of(r->after, r->after_n),
                                  .limit = PAGE,
                                  .done = revocations_on_page};
    gate_enter(&r->calls);
    store_docs(r->setup.store, &r->docs);
}

/* From a while before the newest on: who was slow, or whose clock is, writes there. */
static void begin_at_newest(struct revocations *r)
{
    uint64_t ms;
    struct str time = str_of(r->newest + PREFIX_LEN, HEX_U64);
    r->after_n = 0;
    if (r->newest_n == 0 || r->n_looks % FULL_LOOKS == 0 || !hex_decode_u64(time, &ms))
        return;
    memcpy(r->after, REVOCATION_DOCUMENTS, PREFIX_LEN);
    hex_encode_u64(ms > OVERLAP_MS ? ms - OVERLAP_MS : 0, r->after + PREFIX_LEN);
    r->after_n = PREFIX_LEN + HEX_U64;
}

static void revocations_on_look(struct timer *t)
{
    struct revocations *r = container_of(t, struct revocations, look);
    begin_at_newest(r);
    read_page(r);
}

/* ---- adding one ---- */

struct addition {
    struct revocations *all;
    struct revocation *entry;
    struct store_put put;
    struct doc_put doc;
    struct buf value;
    struct task over; /* nothing is to be written */
    int64_t until_ms;
    int err;
    char key[KEY_LEN];
};

static void end_addition(struct addition *a, int err)
{
    struct revocations *r = a->all;
    struct revocation *v = a->entry;
    bool news = err == 0 && a->value.n > 0 && take(r, v, a->until_ms);
    r->n_adding -= a->value.n > 0;
    buf_deinit(&a->value);
    free(a);
    if (news && r->setup.changed != NULL)
        r->setup.changed(r->setup.ctx);
    v->done(v, err);
    gate_leave(&r->calls);
}

static void revocations_on_put(struct store_put *p, int err)
{
    end_addition(container_of(p, struct addition, put), err);
}

static void revocations_run_over(struct task *t)
{
    struct addition *a = container_of(t, struct addition, over);
    end_addition(a, a->err);
}

static void put_member(struct buf *out, const char *name, struct str value)
{
    if (value.n == 0)
        return;
    buf_printf(out, "\"%s\":", name);
    json_put_string(out, value);
    buf_putc(out, ',');
}

static void put_entry(struct addition *a)
{
    const struct revocation *v = a->entry;
    struct buf *out = &a->value;
    buf_putc(out, '{');
    put_member(out, "jti", v->jti);
    put_member(out, "issuer", v->issuer);
    put_member(out, "sub", v->sub);
    put_member(out, "root", v->root);
    put_member(out, "scope", v->scope);
    if (v->jti.n == 0)
        buf_printf(out, "\"before\":%lld,", (long long)v->before_s);
    buf_printf(out, "\"until\":%lld}", (long long)a->until_ms);
}

/* Those that are issued just before `before` live for the longest. */
static int64_t until_of(const struct revocations *r, const struct revocation *v)
{
    int64_t now_ms = r->setup.sched->wall_ms;
    int64_t from_ms = v->jti.n == 0 && v->before_s * 1000 > now_ms ? v->before_s * 1000 : now_ms;
    return from_ms + (int64_t)r->setup.longest_s * 1000 + MARGIN_MS;
}

static bool is_known(const struct revocations *r, const struct revocation *v)
{
    struct selector s;
    const struct deny *d = map_get(&r->entries, selector_of_entry(&s, v));
    return d != NULL && (v->jti.n > 0 || d->before_s >= v->before_s);
}

void revocations_add(struct revocations *r, struct revocation *v)
{
    struct addition *a = mem_zalloc(sizeof *a);
    struct store *store = r->setup.store;
    a->all = r;
    a->entry = v;
    gate_enter(&r->calls);
    bool known = is_known(r, v);
    bool full = r->entries.n + r->n_adding >= r->setup.max;
    a->err = known ? 0 : !r->ready ? ERR_BUSY : full ? ERR_FULL : 0;
    if (known || a->err != 0) {
        task_init(&a->over, revocations_run_over);
        sched_post(r->setup.sched, &a->over);
        return;
    }
    a->until_ms = until_of(r, v);
    put_entry(a);
    r->n_adding++;
    memcpy(a->key, REVOCATION_DOCUMENTS, PREFIX_LEN);
    hex_encode_u64((uint64_t)r->setup.sched->wall_ms, a->key + PREFIX_LEN);
    hex_encode_u64(rand_u64(), a->key + PREFIX_LEN + HEX_U64);
    a->doc = (struct doc_put){.key = str_of(a->key, KEY_LEN), .value = buf_str(&a->value)};
    a->put = (struct store_put){.docs = &a->doc, .n_docs = 1, .done = revocations_on_put};
    store_put(store, &a->put);
}

/* ---- those that are over ---- */

static void forget_over(struct revocations *r)
{
    struct deny *over[SWEEP_SLICE];
    size_t at = 0, n = 0;
    for (struct deny *d; n < SWEEP_SLICE && (d = map_next(&r->entries, &at)) != NULL;)
        if (d->until_ms < r->setup.sched->wall_ms)
            over[n++] = d;
    for (size_t i = 0; i < n; i++) {
        map_remove(&r->entries, str_of(over[i]->selector, over[i]->selector_n));
        free(over[i]);
    }
}

static void sweep_again(struct revocations *r, uint64_t in_ms)
{
    if (!r->stopping)
        sched_start(r->setup.sched, &r->sweep, in_ms);
}

/* Another process may have been first. */
static void revocations_on_gone(struct store_put *p, int err)
{
    struct revocations *r = container_of(p, struct revocations, put);
    sweep_again(r, err == 0 || err == ERR_VERSION ? 0 : SWEEP_MS);
    gate_leave(&r->calls);
}

static void remove_document(struct revocations *r, struct str key)
{
    memcpy(r->gone_key, key.p, KEY_LEN);
    r->gone = (struct doc_put){.key = str_of(r->gone_key, KEY_LEN), .expect_version = DOC_NEXT(0)};
    r->put = (struct store_put){.docs = &r->gone, .n_docs = 1, .done = revocations_on_gone};
    gate_enter(&r->calls);
    store_put(r->setup.store, &r->put);
}

static bool row_is_over(const struct revocations *r, const struct doc_row *row)
{
    json_t *o = row->key.n == KEY_LEN ? json_loadb(row->value.p, row->value.n, 0, NULL) : NULL;
    bool over =
        o != NULL && json_integer_value(json_object_get(o, "until")) < r->setup.sched->wall_ms;
    json_decref(o);
    return over;
}

static void revocations_on_oldest(struct store_docs *d, int err)
{
    struct revocations *r = container_of(d, struct revocations, oldest);
    if (err == 0 && d->n_rows > 0 && !r->stopping && row_is_over(r, &d->rows[0]))
        remove_document(r, d->rows[0].key);
    else
        sweep_again(r, SWEEP_MS);
    gate_leave(&r->calls);
}

/* The oldest documents are over first: one after the other. */
static void revocations_on_sweep(struct timer *t)
{
    struct revocations *r = container_of(t, struct revocations, sweep);
    forget_over(r);
    r->oldest = (struct store_docs){
        .prefix = STR(REVOCATION_DOCUMENTS), .limit = 1, .done = revocations_on_oldest};
    gate_enter(&r->calls);
    store_docs(r->setup.store, &r->oldest);
}

/* ---- from outside ---- */

void revocations_set_longest(struct revocations *r, uint64_t longest_s)
{
    r->setup.longest_s = longest_s;
}

bool revocations_ready(const struct revocations *r)
{
    return r->ready;
}

size_t revocations_count(const struct revocations *r)
{
    return r->entries.n;
}

struct revocations *revocations_new(const struct revocations_setup *setup)
{
    struct revocations *r = mem_zalloc(sizeof *r);
    r->setup = *setup;
    map_init(&r->entries);
    gate_init(&r->calls, setup->sched);
    timer_init(&r->look, revocations_on_look);
    timer_init(&r->sweep, revocations_on_sweep);
    revocations_on_look(&r->look);
    sched_start(setup->sched, &r->sweep, SWEEP_MS);
    return r;
}

void revocations_stop(struct revocations *r, void (*stopped)(void *ctx), void *ctx)
{
    r->stopping = true;
    timer_stop(&r->look);
    timer_stop(&r->sweep);
    gate_shut(&r->calls, stopped, ctx);
}

void revocations_free(struct revocations *r)
{
    if (r == NULL)
        return;
    timer_stop(&r->look);
    timer_stop(&r->sweep);
    size_t at = 0;
    for (struct deny *d; (d = map_next(&r->entries, &at)) != NULL;)
        free(d);
    map_deinit(&r->entries);
    free(r);
}
