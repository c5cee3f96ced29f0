// SPDX-License-Identifier: Apache-2.0
/* Limits of addresses and principals, with exchanges whose transport only notes their status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "http/account.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/front.h"
#include "http/limits.h"
#include "http/surface.h"
#include "telemetry/metrics.h"

#define START_MS 1000000

struct site {
    struct sched sched;
    struct metrics metrics;
    struct http http;
    int status;           /* of the last answer; 0: none since somebody looked */
    uint64_t retry_after; /* of it */
};

static void note_begin(struct exchange *x, int64_t length)
{
    struct site *s = x->transport;
    s->status = x->status;
    s->retry_after = 0;
    for (const struct exchange_header *h = x->headers; h != NULL; h = h->next)
        if (str_eq(h->header.name, STR("Retry-After")))
            s->retry_after = strtoull(h->header.value.p, NULL, 10);
}

static void note_put(struct exchange *x, struct slice s)
{
}

static void note_end(struct exchange *x)
{
}

static const struct transport_ops via = {.begin = note_begin, .put = note_put, .end = note_end};

static int set_up(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    sched_init(&s->sched, START_MS, 0);
    metrics_init(&s->metrics);
    http_init(&s->http, NULL, NULL, &(struct http_limits){.connections = 100});
    s->http.per_client = limits_new(&s->sched, &s->metrics);
    limits_set(s->http.per_client,
               &(struct limits_settings){
                   .connections = 100, .connection_rate = 30, .rate = 20, .failures = 10});
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    limits_free(s->http.per_client);
    http_deinit(&s->http);
    metrics_deinit(&s->metrics);
    free(s);
    return 0;
}

static const uint8_t home[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1};
static const uint8_t away[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 2};

/* In place of the one that asks the kernel. */
void front_client(const struct exchange *x, uint8_t key[ADDR_IP_N])
{
    memcpy(key, x->state, ADDR_IP_N);
}

static struct exchange *ask(struct site *s, const struct principal *p, const uint8_t *address)
{
    struct exchange *x = exchange_new(&s->http, &via, s);
    exchange_set_principal(x, p);
    x->state = (void *)address;
    return x;
}

static int status_of(struct site *s)
{
    int status = s->status;
    s->status = 0;
    return status;
}

static struct access_grants nothing;

static struct principal *new_principal(const char *issuer, const char *sub)
{
    struct principal *p = principal_new();
    p->issuer = str_of_cstr(issuer);
    p->id = p->sub = p->name = str_of_cstr(sub);
    p->known = true;
    p->rights = (struct access_rights){.layers = {&nothing}, .n = 1};
    return p;
}

static struct principal *stranger(void)
{
    struct principal *p = new_principal("", "");
    p->known = false;
    return p;
}

/* How many requests are let in at this moment, each over when the next comes. */
static unsigned burst(struct site *s, const struct principal *p, const uint8_t *address)
{
    unsigned n = 0;
    bool in = true;
    while (in && n < 100000) {
        struct exchange *x = ask(s, p, address);
        in = limits_admit(x);
        n += in;
        exchange_finish(x, false);
    }
    return n;
}

/* ---- connections ---- */

static void test_connections(void **state)
{
    struct site *s = *state;
    struct limits *l = s->http.per_client;
    struct account *a[100], *over[LIMITS_SURPLUS], *none, *other;
    for (int i = 0; i < 100; i++)
        assert_int_equal(limits_connect(l, home, &a[i]), LIMITS_IN);
    for (int i = 0; i < LIMITS_SURPLUS; i++)
        assert_int_equal(limits_connect(l, home, &over[i]), LIMITS_OVER);
    assert_int_equal(limits_connect(l, home, &none), LIMITS_CLOSED);
    assert_null(none);
    assert_int_equal(limits_connect(l, away, &other), LIMITS_IN); /* others do not notice */
    account_disconnect(other, false);

    account_disconnect(over[0], true);
    assert_int_equal(limits_connect(l, home, &over[0]), LIMITS_OVER);
    account_disconnect(a[0], false);
    assert_int_equal(limits_connect(l, home, &none), LIMITS_CLOSED); /* 100 new ones in no time */
    s->sched.now_ms += 34;
    assert_int_equal(limits_connect(l, home, &a[0]), LIMITS_IN);
    for (int i = 0; i < 100; i++)
        account_disconnect(a[i], false);
    for (int i = 0; i < LIMITS_SURPLUS; i++)
        account_disconnect(over[i], true);
}

static void test_networks(void **state)
{
    struct site *s = *state;
    struct principal *p = stranger();
    uint8_t a[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, b[16], c[16];
    static const uint8_t none[16];
    memcpy(b, a, sizeof b);
    b[8] = 7; /* of the same /64 */
    memcpy(c, a, sizeof c);
    c[7] = 7;
    assert_int_equal(burst(s, p, a), 40);
    assert_int_equal(burst(s, p, b), 0);
    assert_int_equal(burst(s, p, c), 40);
    assert_int_equal(burst(s, p, none), 100000); /* a Unix socket's */
    principal_unref(p);
}

/* ---- requests ---- */

static void test_strangers_by_address(void **state)
{
    struct site *s = *state;
    struct principal *p = stranger();
    assert_int_equal(burst(s, p, home), 40);
    assert_int_equal(status_of(s), 429);
    assert_int_equal(s->retry_after, 1);
    assert_int_equal(burst(s, p, away), 40);
    s->sched.now_ms += 1000;
    assert_int_equal(burst(s, p, home), 20);
    p->limits.rate = 5; /* of [anonymous] */
    s->sched.now_ms += 100000;
    assert_int_equal(burst(s, p, home), 10);
    principal_unref(p);
}

static void test_subjects_whatever_their_token_and_address(void **state)
{
    struct site *s = *state;
    struct principal *one = new_principal("idp", "u1"), *two = new_principal("idp", "u1"),
                     *other = new_principal("idp", "u2"), *caller = new_principal("", "backend");
    assert_int_equal(burst(s, one, home), 200);
    assert_int_equal(burst(s, two, away), 0);
    assert_int_equal(burst(s, other, home), 200);
    assert_int_equal(burst(s, caller, home), 100000); /* nobody has given it a limit */
    caller->limits.rate = 1;
    assert_int_equal(burst(s, caller, home), 2);
    s->sched.now_ms += 1000;
    assert_int_equal(burst(s, two, away), 100);
    two->limits.rate = 10; /* the smaller one holds */
    s->sched.now_ms += 100000;
    assert_int_equal(burst(s, two, home), 20);
    principal_unref(one);
    principal_unref(two);
    principal_unref(other);
    principal_unref(caller);
}

static void test_probes_are_free(void **state)
{
    struct site *s = *state;
    static const struct surface surface = {.unlimited = true};
    struct http_route route = {.surface = &surface};
    struct principal *p = stranger();
    assert_int_equal(burst(s, p, home), 40);
    struct exchange *x = ask(s, p, home);
    x->route = &route;
    assert_true(limits_admit(x));
    exchange_finish(x, false);
    principal_unref(p);
}

static void test_open_servers_have_none(void **state)
{
    struct site *s = *state;
    struct exchange *x = ask(s, &principal_anonymous, home);
    struct limits *l = s->http.per_client;
    struct account *lease;
    s->http.per_client = NULL;
    assert_true(limits_try_credential(x));
    limits_note_bad_credential(x);
    assert_true(limits_admit(x));
    assert_true(limits_take_live(x));
    assert_true(limits_take_bytes(x, UINT64_MAX / 1000000));
    assert_true(limits_take_create(x));
    assert_true(limits_take_generation(x, &lease));
    assert_null(lease);
    limits_end_lease(&lease);
    limits_count_bytes(x, 1);
    exchange_finish(x, false);
    s->http.per_client = l;
}

/* ---- credentials ---- */

static void test_bad_credentials(void **state)
{
    struct site *s = *state;
    struct exchange *x = ask(s, &principal_anonymous, home), *y;
    for (int i = 0; i < 10; i++) {
        assert_true(limits_try_credential(x));
        limits_note_bad_credential(x);
    }
    assert_int_equal(status_of(s), 0);
    assert_false(limits_try_credential(x));
    assert_int_equal(status_of(s), 429);
    assert_int_equal(s->retry_after, 60);
    exchange_finish(x, false);
    y = ask(s, &principal_anonymous, away);
    assert_true(limits_try_credential(y));
    exchange_finish(y, false);

    s->sched.now_ms += LIMITS_BLOCK_MS - 1;
    x = ask(s, &principal_anonymous, home);
    assert_false(limits_try_credential(x));
    exchange_finish(x, false);
    s->sched.now_ms++;
    x = ask(s, &principal_anonymous, home);
    assert_true(limits_try_credential(x));
    exchange_finish(x, false);
}

/* ---- what handlers take ---- */

static void test_live_readers_end_however(void **state)
{
    struct site *s = *state;
    struct principal *p = new_principal("idp", "u1");
    struct exchange *live[50], *x;
    for (int i = 0; i < 50; i++) {
        live[i] = ask(s, p, home);
        assert_true(limits_admit(live[i]));
        assert_true(limits_take_live(live[i]));
        assert_true(limits_take_live(live[i])); /* it is one already */
    }
    x = ask(s, p, home);
    assert_true(limits_admit(x));
    assert_false(limits_take_live(x));
    assert_int_equal(status_of(s), 429);
    exchange_finish(x, false);

    struct exchange *worked_on = live[0];
    exchange_hold(worked_on); /* it reads no more */
    exchange_finish(worked_on, true);
    exchange_finish(live[1], false);
    for (int i = 0; i < 2; i++) {
        live[i] = ask(s, p, home);
        assert_true(limits_admit(live[i]));
        assert_true(limits_take_live(live[i]));
    }
    x = ask(s, p, home);
    assert_true(limits_admit(x));
    assert_false(limits_take_live(x));
    exchange_finish(x, false);
    exchange_release(worked_on);
    for (int i = 0; i < 50; i++)
        exchange_finish(live[i], true);
    principal_unref(p);
}

static void test_bytes_and_creates(void **state)
{
    struct site *s = *state;
    struct principal *p = new_principal("idp", "u1");
    struct exchange *x = ask(s, p, home);
    assert_true(limits_admit(x));
    assert_true(limits_take_bytes(x, 8 << 20));
    assert_true(limits_take_bytes(x, 0));
    for (int i = 0; i < 20; i++)
        assert_true(limits_take_create(x));
    limits_give_back_create(x);
    assert_true(limits_take_create(x));
    assert_false(limits_take_create(x));
    assert_int_equal(status_of(s), 429);
    exchange_finish(x, false);
    x = ask(s, p, home);
    assert_true(limits_admit(x));
    assert_false(limits_take_bytes(x, 4 << 20));
    assert_int_equal(status_of(s), 429);
    assert_int_equal(s->retry_after, 1);
    exchange_finish(x, false);
    s->sched.now_ms += 1000;
    x = ask(s, p, home);
    assert_true(limits_admit(x));
    assert_true(limits_take_bytes(x, 4 << 20));
    exchange_finish(x, false);
    principal_unref(p);
}

static void test_generations_outlive_exchanges(void **state)
{
    struct site *s = *state;
    struct principal *p = new_principal("idp", "u1");
    struct account *leases[20], *more;
    for (int i = 0; i < 20; i++) {
        struct exchange *x = ask(s, p, home);
        assert_true(limits_admit(x));
        assert_true(limits_take_generation(x, &leases[i]));
        exchange_finish(x, true);
    }
    for (int i = 0; i < 2; i++) {
        struct exchange *x = ask(s, p, home);
        assert_true(limits_admit(x));
        assert_int_equal(limits_take_generation(x, &more), i == 1);
        exchange_finish(x, false);
        limits_end_lease(&more);
        limits_end_lease(&leases[i]);
    }
    for (int i = 0; i < 20; i++)
        limits_end_lease(&leases[i]);
    principal_unref(p);
}

static void test_what_holds_for_whom(void **state)
{
    struct principal *p = new_principal("idp", "u1");
    p->limits.live = 3;
    struct access_limits l = limits_of(p);
    assert_int_equal(l.live, 3);
    assert_int_equal(l.streams, 1000);
    assert_int_equal(l.stored, 1 << 30);
    assert_int_equal(l.subscriptions, 100);
    assert_int_equal(l.max_append, 0);
    p->issuer = STR_NONE;
    l = limits_of(p);
    assert_int_equal(l.live, 3);
    assert_int_equal(l.streams, 0);
    l = limits_of(&principal_anonymous);
    assert_int_equal(l.live, 0);
    principal_unref(p);
}

static void test_keys(void **state)
{
    struct site *s = *state;
    struct principal *p = new_principal("idp", "u1"), *nobody = stranger();
    struct exchange *x = ask(s, p, home), *y = ask(s, nobody, home), *z = ask(s, nobody, away);
    assert_true(str_eq(limits_key(x), STR("u1")));
    assert_false(str_eq(limits_key(y), limits_key(z)));
    assert_int_equal(limits_key(y).n, 17);
    exchange_finish(x, false);
    exchange_finish(y, false);
    exchange_finish(z, false);
    principal_unref(p);
    principal_unref(nobody);
}

/* ---- usage ---- */

static void test_usage(void **state)
{
    struct site *s = *state;
    struct principal *a = new_principal("idp", "u1"), *b = new_principal("idp", "u1");
    b->root = STR("t/b/");
    for (int i = 0; i < 3; i++) {
        struct exchange *x = ask(s, i < 2 ? a : b, home);
        assert_true(limits_admit(x));
        limits_count_bytes(x, 10);
        limits_count_events(x, 4);
        exchange_hold(x);
        exchange_finish(x, true);
        limits_count_bytes(x, 1); /* the client is gone, and its append is done */
        exchange_release(x);
    }
    struct buf out = {0};
    metrics_put(&s->metrics, &out);
    buf_putc(&out, '\0');
#define LINE(name, root, n)                                                                        \
    assert_non_null(strstr(out.p,                                                                  \
                           "tidemark_usage_" name                                                  \
                           "_total{issuer=\"idp\",subject=\"u1\",root=\"" root "\"} " n "\n"))
    LINE("requests", "", "2");
    LINE("appended_bytes", "", "22");
    LINE("delivered_events", "", "8");
    LINE("requests", "t/b/", "1");
    LINE("appended_bytes", "t/b/", "11");
    buf_deinit(&out);
    principal_unref(a);
    principal_unref(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_connections),
        TEST(test_networks),
        TEST(test_strangers_by_address),
        TEST(test_subjects_whatever_their_token_and_address),
        TEST(test_probes_are_free),
        TEST(test_open_servers_have_none),
        TEST(test_bad_credentials),
        TEST(test_live_readers_end_however),
        TEST(test_bytes_and_creates),
        TEST(test_generations_outlive_exchanges),
        TEST(test_what_holds_for_whom),
        TEST(test_keys),
        TEST(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
