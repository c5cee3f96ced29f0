// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "feature/subscriptions/subscription_doc.h"
#include "feature/subscriptions/subscription_token.h"
#include "store/store.h"
#include "token/mac.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static struct str fill(char *to, size_t n, char c)
{
    memset(to, c, n);
    return str_of(to, n);
}

/* Everything as long as it may be, and of characters that take the most room as JSON. */
static void test_largest_head(void **state)
{
    static char pattern[SUBSCRIPTION_PATTERN_MAX], url[SUBSCRIPTION_URL_MAX], wake[STORE_NAME_MAX],
        description[SUBSCRIPTION_DESCRIPTION_MAX], holder[SUBSCRIPTION_WORKER_MAX], base[512],
        path[STORE_NAME_MAX];
    struct subscription_head h = {
        .phase = SUBSCRIPTION_ACTIVE,
        .birth = UINT64_MAX,
        .edits = INT64_MAX,
        .config = {.type = SUBSCRIPTION_PULL,
                   .pattern = fill(pattern, sizeof pattern, '"'),
                   .webhook_url = fill(url, sizeof url, '"'),
                   .wake_stream = fill(wake, sizeof wake, '\\'),
                   .lease_ttl_ms = SUBSCRIPTION_LEASE_MAX_MS,
                   .description = fill(description, sizeof description, '\x01'),
                   .public_url = fill(base, sizeof base, 'u')},
        .created_ms = INT64_MAX,
        .state = SUBSCRIPTION_HELD,
        .generation = INT64_MAX,
        .wake_id = STR("w_0123456789abcdef01234567"),
        .holder = fill(holder, sizeof holder, '\x01'),
        .until_ms = INT64_MAX,
        .attempts = UINT32_MAX,
    };
    memset(h.hash, 'f', sizeof h.hash);
    struct subscription_stream s = {.path = fill(path, sizeof path, '\\'),
                                    .acked = {OFFSET_PART_MAX, OFFSET_PART_MAX},
                                    .tail = {OFFSET_PART_MAX, OFFSET_PART_MAX}};
    struct subscription_stream streams[100];
    size_t bytes = subscription_stream_cost(&s);
    while (bytes <= SUBSCRIPTION_WAKE_BYTES) {
        streams[h.n_streams++] = s;
        bytes += subscription_stream_cost(&s);
    }
    assert_true(h.n_streams > 30);
    h.streams = streams;
    struct buf doc = {0};
    subscription_head_put(&doc, &h);
    assert_true(doc.n <= DOC_VALUE_MAX);

    struct arena a = {0};
    struct subscription_head back;
    assert_int_equal(subscription_head_parse(&a, buf_str(&doc), &back), 0);
    struct buf again = {0};
    subscription_head_put(&again, &back);
    assert_true(str_eq(buf_str(&doc), buf_str(&again)));
    assert_int_equal(back.birth, UINT64_MAX);
    assert_int_equal(back.generation, INT64_MAX);
    assert_true(str_eq(back.holder, h.holder));
    arena_deinit(&a);
    buf_deinit(&doc);
    buf_deinit(&again);
}

static void test_broken_heads(void **state)
{
    struct subscription_head h = {.config = {.pattern = STR("a")}}, out = {.generation = 77};
    memset(h.hash, 'f', sizeof h.hash);
    struct buf doc = {0};
    subscription_head_put(&doc, &h);
    struct arena a = {0};
    for (size_t n = 0; n < doc.n; n++) /* cut short anywhere */
        assert_int_equal(subscription_head_parse(&a, str_of(doc.p, n), &out), ERR_CORRUPT);
    assert_int_equal(out.generation, 77);
    assert_int_equal(subscription_head_parse(&a, STR("{}"), &out), ERR_CORRUPT);
    assert_int_equal(subscription_head_parse(&a, STR("[]"), &out), ERR_CORRUPT);
    memcpy(memmem(doc.p, doc.n, "webhook", 7), "weekook", 7);
    assert_int_equal(subscription_head_parse(&a, buf_str(&doc), &out), ERR_CORRUPT);
    arena_deinit(&a);
    buf_deinit(&doc);
}

static void test_links(void **state)
{
    struct subscription_link l = {true, UINT64_MAX, 12, {12, 345}}, back = {0};
    char text[SUBSCRIPTION_LINK_TEXT];
    subscription_link_format(&l, text);
    assert_memory_equal(text,
                        "e ffffffffffffffff 0000000000000012 0000000000000012_0000000000000345",
                        SUBSCRIPTION_LINK_TEXT);
    assert_int_equal(subscription_link_parse(str_of(text, sizeof text), &back), 0);
    assert_true(back.is_explicit && back.birth == l.birth && back.life == 12);
    assert_int_equal(back.acked.pos, 345);
    l = (struct subscription_link){.birth = 1};
    subscription_link_format(&l, text);
    assert_int_equal(subscription_link_parse(str_of(text, sizeof text), &back), 0);
    assert_true(!back.is_explicit && back.life == 0 && offset_is_zero(back.acked));
    assert_int_equal(subscription_link_parse(str_of(text, sizeof text - 1), &back), ERR_CORRUPT);
    text[0] = 'x';
    assert_int_equal(subscription_link_parse(str_of(text, sizeof text), &back), ERR_CORRUPT);
}

static void test_ids(void **state)
{
    static const char *const ids[] = {"a", "a/b", "../x", "a%b", "\xc3\xa9", "sub-1_2.3~ *"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct buf text = {0};
        struct arena a = {0};
        struct str back;
        subscription_id_put(&text, str_of_cstr(ids[i]));
        assert_null(memchr(text.p, '/', text.n)); /* where the id ends in a key */
        assert_int_equal(subscription_id_parse(&a, buf_str(&text), &back), 0);
        assert_true(str_eq(back, str_of_cstr(ids[i])));
        arena_deinit(&a);
        buf_deinit(&text);
    }
    struct arena a = {0};
    struct str back;
    assert_int_equal(subscription_id_parse(&a, STR(""), &back), ERR_CORRUPT);
    assert_int_equal(subscription_id_parse(&a, STR("a%4"), &back), ERR_CORRUPT);
    arena_deinit(&a);
}

static bool same_hash(const struct subscription_config *a, const struct subscription_config *b)
{
    char x[SUBSCRIPTION_HASH_TEXT], y[SUBSCRIPTION_HASH_TEXT];
    subscription_config_hash(a, x);
    subscription_config_hash(b, y);
    return memcmp(x, y, sizeof x) == 0;
}

static void test_hash(void **state)
{
    struct str ab[] = {STR("a"), STR("b")}, ba[] = {STR("b"), STR("a"), STR("b")},
               c[] = {STR("ab")};
    struct subscription_config one = {.pattern = STR("p"), .streams = ab, .n_streams = 2};
    struct subscription_config two = one;
    two.streams = ba;
    two.n_streams = 3;
    two.public_url = STR("http://x");
    assert_true(same_hash(&one, &two));
    two.streams = c;
    two.n_streams = 1;
    assert_false(same_hash(&one, &two));
    two = one;
    two.lease_ttl_ms = 1;
    assert_false(same_hash(&one, &two));
    two = one;
    two.type = SUBSCRIPTION_PULL;
    assert_false(same_hash(&one, &two));
    two = one;
    two.description = STR("d");
    assert_false(same_hash(&one, &two));
    two = one; /* what moves from one field to the next is another */
    two.pattern = STR("");
    two.webhook_url = STR("p");
    assert_false(same_hash(&one, &two));
}

static void test_tokens(void **state)
{
    struct mac *key = mac_new(STR("0123456789abcdef")), *other = mac_new(STR("another"));
    struct arena a = {0};
    struct str token = subscription_token_make(key, &a, STR("s"), STR_NONE, 42, STR("w_1")), wake;
    uint64_t generation = 0;
    assert_int_equal(subscription_token_check(key, STR("s"), token, &generation, &wake), 0);
    assert_int_equal(generation, 42);
    assert_true(str_eq(wake, STR("w_1")));
    assert_int_equal(subscription_token_check(other, STR("s"), token, &generation, &wake),
                     ERR_SYNTAX);
    assert_int_equal(subscription_token_check(key, STR("t"), token, &generation, &wake),
                     ERR_SYNTAX);
    for (size_t n = 0; n < token.n; n++)
        assert_int_equal(
            subscription_token_check(key, STR("s"), str_of(token.p, n), &generation, &wake),
            ERR_SYNTAX);
    static const char *const bad[] = {"",         ".",        "..",       "...",
                                      "42",       "42.w_1",   "42.w_1.",  "042.w_1.AAAA",
                                      "x.w_1.AA", "42.w_1.=", "-1.w_1.AA"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(
            subscription_token_check(key, STR("s"), str_of_cstr(bad[i]), &generation, &wake),
            ERR_SYNTAX);
    /* the id and what follows it cannot be told apart otherwise than as they were */
    struct str one = subscription_token_make(key, &a, STR("s1"), STR_NONE, 2, STR("w"));
    assert_int_equal(subscription_token_check(key, STR("s"), one, &generation, &wake), ERR_SYNTAX);
    /* a tenant's says whose it is, and is good for no other */
    struct str own = subscription_token_make(key, &a, STR("t/1/s"), STR("t/1/"), 2, STR("w"));
    assert_true(str_eq(subscription_token_root(&a, own), STR("t/1/")));
    assert_int_equal(subscription_token_root(&a, one).n, 0);
    assert_int_equal(subscription_token_check(key, STR("t/1/s"), own, &generation, &wake), 0);
    assert_int_equal(subscription_token_check(key, STR("t/2/s"), own, &generation, &wake),
                     ERR_SYNTAX);
    arena_deinit(&a);
    mac_free(key);
    mac_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_head), cmocka_unit_test(test_broken_heads),
        cmocka_unit_test(test_links),        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_hash),         cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
