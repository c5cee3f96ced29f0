// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/pack.h"
#include "stream/payload.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define JSON     STR_INIT("application/json")
#define TEXT     STR_INIT("text/plain")

struct row {
    struct str type, body;
    bool empty_allowed;
    int err;
    struct str data;
    uint32_t n_events; /* 0: one, without a list of ends */
    uint32_t ends[3];
};

static const struct row rows[] = {
    /* each JSON element with a comma behind it */
    {JSON, STR_INIT("1"), false, 0, STR_INIT("1,"), 1, {2}},
    {JSON, STR_INIT("[1,\"b\",[3]]"), false, 0, STR_INIT("1,\"b\",[3],"), 3, {2, 6, 10}},
    {JSON, STR_INIT(" [ {\"a\": 1} , 2 ] "), false, 0, STR_INIT("{\"a\": 1},2,"), 2, {9, 11}},
    {STR_INIT("Application/JSON; charset=utf-8"),
     STR_INIT("[1,2]"),
     false,
     0,
     STR_INIT("1,2,"),
     2,
     {2, 4}},
    /* nothing in it */
    {JSON, STR_INIT("[]"), false, ERR_EMPTY, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT("[]"), true, 0, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT(""), false, ERR_EMPTY, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT(""), true, 0, STR_INIT(""), 0, {0}},
    {TEXT, STR_INIT(""), false, ERR_EMPTY, STR_INIT(""), 0, {0}},
    {TEXT, STR_INIT(""), true, 0, STR_INIT(""), 0, {0}},
    /* not JSON: also where nothing would be allowed */
    {JSON, STR_INIT("[1,"), false, ERR_JSON, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT("{oops"), true, ERR_JSON, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT(" "), true, ERR_JSON, STR_INIT(""), 0, {0}},
    {JSON, STR_INIT("\xff"), false, ERR_JSON, STR_INIT(""), 0, {0}},
    /* all else is one event, whatever it looks like */
    {TEXT, STR_INIT("[1,2]"), false, 0, STR_INIT("[1,2]"), 0, {0}},
    {STR_INIT("application/octet-stream"),
     STR_INIT("\0\xff"),
     false,
     0,
     STR_INIT("\0\xff"),
     0,
     {0}},
    {STR_INIT(""), STR_INIT("x"), false, 0, STR_INIT("x"), 0, {0}},
};

static void check(size_t i, const struct store_write *w)
{
    const struct row *r = &rows[i];
    if (w->data_err != r->err)
        fail_msg("row %zu: %s", i, err_name(w->data_err));
    if (!str_eq(w->data, r->data))
        fail_msg("row %zu: '%.*s'", i, (int)w->data.n, w->data.p);
    if (r->n_events == 0) {
        if (w->ends != NULL && w->n_events != 0)
            fail_msg("row %zu has a list of ends", i);
        return;
    }
    if (w->n_events != r->n_events)
        fail_msg("row %zu: %u events", i, w->n_events);
    for (uint32_t k = 0; k < w->n_events; k++)
        if (w->ends[k] != r->ends[k])
            fail_msg("row %zu: event %u ends at %u", i, k, w->ends[k]);
}

static void test_bodies(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct payload p = {0};
        struct store_write w = {0};
        payload_prepare(&p, &w, rows[i].type, rows[i].body, rows[i].empty_allowed);
        check(i, &w);
        payload_deinit(&p);
    }
}

/* "Sets data, ends, n_events and data_err": also in a struct that was used before. */
static void test_nothing_is_left_of_an_earlier_use(void **state)
{
    static const uint32_t old_ends[] = {1, 2, 3};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct payload p = {0};
        struct store_write w = {.data = STR("old"),
                                .ends = old_ends,
                                .ends_in = &p.ends,
                                .steps = STR("old"),
                                .n_events = 3,
                                .data_err = ERR_TOO_LARGE};
        payload_prepare(&p, &w, rows[i].type, rows[i].body, rows[i].empty_allowed);
        check(i, &w);
        assert_null(w.ends_in);
        assert_int_equal(w.steps.n, 0);
        payload_deinit(&p);
    }
}

/* The same of a body that is given away, and the way it came makes no difference. */
static void test_bodies_given_away(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct payload p = {0};
        struct store_write w = {0};
        struct buf body = {0};
        buf_put(&body, rows[i].body);
        payload_prepare_large(&p, &w, rows[i].type, &body, rows[i].empty_allowed);
        check(i, &w);
        assert_null(w.block);
        assert_null(body.p);
        payload_deinit(&p);
    }
}

/* Large data lies in a block that has no room for more; an engine may keep it. */
static void check_large(struct str type, const char *piece, uint32_t n, uint32_t n_events)
{
    struct payload small = {0}, p = {0};
    struct store_write expected = {0}, w = {0};
    struct buf body = {0}, same = {0};
    buf_putc(&body, '[');
    for (uint32_t i = 0; i < n; i++)
        buf_put(&body, str_of_cstr(piece));
    body.p[body.n - 1] = ']';
    buf_put(&same, buf_str(&body));
    payload_prepare(&small, &expected, type, buf_str(&same), false);
    payload_prepare_large(&p, &w, type, &body, false);
    assert_int_equal(w.data_err, 0);
    assert_null(body.p);
    assert_true(str_eq(w.data, expected.data));
    assert_int_equal(w.n_events, expected.n_events);
    assert_int_equal(w.n_events, n_events);
    if (n_events > 0) {
        struct buf steps = {0};
        pack_steps(&steps, expected.ends, n_events - 1);
        assert_memory_equal(w.ends, expected.ends, n_events * sizeof *w.ends);
        assert_ptr_equal(w.ends_in->p, w.ends);
        assert_true(str_eq(w.steps, buf_str(&steps)));
        buf_deinit(&steps);
    }
    assert_int_equal(w.ends_in != NULL, n_events > 0);
    assert_non_null(w.block);
    assert_ptr_equal(w.data.p, w.block->bytes);
    assert_int_equal(w.block->n, w.data.n);
    assert_int_equal(w.block->n, w.block->cap);
    assert_null(p.bytes.p);
    payload_deinit(&p);
    payload_deinit(&small);
    buf_deinit(&same);
}

static void test_large_data_has_a_block(void **state)
{
    check_large(STR("text/plain"), "0123456789", 10000, 0);
    check_large(STR("application/json"), "{\"n\": 12345},", 10000, 10000);
    check_large(STR("application/json"), "[1,\n2],\n3 ,", 20000, 40000);
}

/* White space takes no memory once it has been split off. */
static void test_white_space_is_not_kept(void **state)
{
    struct payload p = {0};
    struct store_write w = {0};
    struct buf body = {0};
    memset(buf_reserve(&body, 1 << 20), ' ', 1 << 20);
    body.n = 1 << 20;
    buf_putc(&body, '7');
    payload_prepare_large(&p, &w, STR("application/json"), &body, false);
    assert_true(str_eq(w.data, STR("7,")));
    assert_null(w.block);
    payload_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_nothing_is_left_of_an_earlier_use),
        cmocka_unit_test(test_bodies_given_away),
        cmocka_unit_test(test_large_data_has_a_block),
        cmocka_unit_test(test_white_space_is_not_kept),
    };
    return cmocka_run_group_tests_name("unit/payload", tests, NULL, NULL);
}
