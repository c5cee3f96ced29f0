// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/err.h"
#include "store/redis/client/resp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX 4096

/* ---- commands ---- */

static void test_encode(void **state)
{
    const struct str head[] = {STR("SET"), STR("")}, args[] = {STR("a\r\n\0b")};
    struct block *b = resp_encode(head, 2, args, 1);
    struct str expected = STR("*3\r\n$3\r\nSET\r\n$0\r\n\r\n$5\r\na\r\n\0b\r\n");
    assert_int_equal(b->n, expected.n);
    assert_memory_equal(b->bytes, expected.p, expected.n);
    assert_int_equal(resp_size(head, 2, args, 1), expected.n);
    block_unref(b);
}

static void test_what_is_encoded_is_read_back(void **state)
{
    struct resp *r = resp_new(1 << 20);
    for (size_t n = 0; n < 300; n += 7) {
        char text[300];
        memset(text, 'x', sizeof text);
        const struct str args[] = {STR("word"), str_of(text, n)};
        struct block *b = resp_encode(args, 1, args, 2);
        const struct redisReply *reply;
        assert_int_equal(resp_feed(r, str_of(b->bytes, b->n)), 0);
        assert_int_equal(resp_next(r, &reply), 1);
        assert_int_equal(reply->elements, 3);
        assert_true(str_eq(resp_text(reply->element[2]), args[1]));
        assert_int_equal(resp_next(r, &reply), 0);
        block_unref(b);
    }
    resp_free(r);
}

/* ---- replies ---- */

/* The tree in one line. */
static void show(struct buf *out, const struct redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        buf_printf(out, "%lld ", reply->integer);
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        buf_putc(out, '[');
        for (size_t i = 0; i < reply->elements; i++)
            show(out, reply->element[i]);
        buf_putc(out, ']');
    } else if (reply->type == REDIS_REPLY_NIL) {
        buf_put(out, STR("nil "));
    } else {
        buf_printf(out, "%d:", reply->type);
        buf_put(out, resp_text(reply));
        buf_putc(out, ' ');
    }
}

/* Feeds it in pieces; what comes out, and `!` when it was refused. */
static void decode(struct buf *out, struct str bytes, size_t piece)
{
    struct resp *r = resp_new(MAX);
    const struct redisReply *reply;
    int got = 0;
    while (bytes.n > 0 && got >= 0) {
        size_t n = piece < bytes.n ? piece : bytes.n;
        got = resp_feed(r, str_of(bytes.p, n));
        bytes = str_skip(bytes, n);
        while (got >= 0 && (got = resp_next(r, &reply)) == 1)
            show(out, reply);
    }
    if (got < 0) {
        assert_int_equal(got, ERR_SYNTAX);
        assert_non_null(resp_why(r));
        assert_int_equal(resp_next(r, &reply), ERR_SYNTAX); /* and stays so */
        assert_int_equal(resp_feed(r, STR("+OK\r\n")), ERR_SYNTAX);
        buf_putc(out, '!');
    }
    resp_free(r);
}

static void assert_decodes(struct str bytes, const char *expected)
{
    for (size_t piece = 1; piece <= bytes.n; piece++) {
        struct buf out = {0};
        decode(&out, bytes, piece);
        buf_putc(&out, '\0');
        assert_string_equal(out.p, expected);
        buf_deinit(&out);
    }
}

static void test_decode(void **state)
{
    assert_decodes(STR("+OK\r\n-ERR no\r\n:-42\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"),
                   "5:OK 6:ERR no -42 1:a\r\n 1: nil nil []");
    assert_decodes(STR("*3\r\n:1\r\n*2\r\n$1\r\nx\r\n*-1\r\n*1\r\n-E\r\n+next\r\n"),
                   "[1 [1:x nil ][6:E ]]5:next ");
}

static void test_refused(void **state)
{
    assert_decodes(STR("+fine\r\nHTTP/1.1 200 OK\r\n"), "5:fine !");
    assert_decodes(STR("$4097\r\n"), "!");
    assert_decodes(STR("$99999999999999\r\n"), "!");
    assert_decodes(STR("*600\r\n"), "!"); /* 600 pointers alone are too much */
    assert_decodes(STR("*2147483647\r\n"), "!");
    assert_decodes(STR("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), "!");
    assert_decodes(STR("*2\r\n+a\r\n$-2\r\n"), "!");
}

static void test_many_small_ones_are_counted_together(void **state)
{
    struct buf in = {0}, out = {0};
    buf_put(&in, STR("*300\r\n"));
    for (int i = 0; i < 300; i++)
        buf_put(&in, STR(":1\r\n")); /* 4 bytes, but a whole object each */
    decode(&out, buf_str(&in), in.n);
    assert_true(str_eq(buf_str(&out), STR("!")));
    buf_deinit(&in);
    buf_deinit(&out);
}

static void test_one_after_another_are_not(void **state)
{
    struct resp *r = resp_new(MAX);
    const struct redisReply *reply;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(resp_feed(r, STR("*2\r\n$2\r\nab\r\n:3\r\n")), 0);
        assert_int_equal(resp_next(r, &reply), 1);
        assert_int_equal(reply->element[1]->integer, 3);
    }
    resp_free(r);
}

static void test_a_line_without_end(void **state)
{
    struct resp *r = resp_new((size_t)1 << 30);
    const struct redisReply *reply;
    char chunk[4096];
    int got = resp_feed(r, STR("+"));
    memset(chunk, 'x', sizeof chunk);
    size_t fed = 0;
    while (got == 0 && fed < 1 << 20) {
        got = resp_feed(r, str_of(chunk, sizeof chunk));
        if (got == 0)
            got = resp_next(r, &reply);
        fed += sizeof chunk;
    }
    assert_int_equal(got, ERR_SYNTAX);
    assert_true(fed <= 1 << 17);
    resp_free(r);
}

static void test_errors_by_their_word(void **state)
{
    struct resp *r = resp_new(MAX);
    const struct redisReply *reply;
    assert_int_equal(resp_feed(r, STR("-MOVED 1 a:1\r\n-ASK\r\n+MOVED 1\r\n")), 0);
    assert_int_equal(resp_next(r, &reply), 1);
    assert_true(resp_is_error(reply, STR("MOVED")));
    assert_false(resp_is_error(reply, STR("MOVE")));
    assert_int_equal(resp_next(r, &reply), 1);
    assert_true(resp_is_error(reply, STR("ASK")));
    assert_int_equal(resp_next(r, &reply), 1);
    assert_false(resp_is_error(reply, STR("MOVED")));
    resp_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_what_is_encoded_is_read_back),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_small_ones_are_counted_together),
        cmocka_unit_test(test_one_after_another_are_not),
        cmocka_unit_test(test_a_line_without_end),
        cmocka_unit_test(test_errors_by_their_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
