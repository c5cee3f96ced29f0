// SPDX-License-Identifier: Apache-2.0
/* The library's cursors and the server's are the same, byte for byte. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/rand.h"
#include "tidemark.h"
#include "token/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define ROUNDS 300

struct pair {
    struct tm_cursor_key key;
    struct cursor_issuer *issuer;
    struct arena arena;
};

static void make(struct pair *p)
{
    rand_bytes(&p->key, sizeof p->key);
    p->issuer = cursor_issuer_new(p->key.key, p->key.session);
    p->arena = (struct arena){0};
}

static void drop(struct pair *p)
{
    cursor_issuer_free(p->issuer);
    arena_deinit(&p->arena);
}

static void fill(char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        name[i] = (char)('a' + rand_u64() % 26);
    name[n] = '\0';
}

static void both_issue_the_same(void **state)
{
    struct pair p;
    make(&p);
    for (int i = 0; i < ROUNDS; i++) {
        char tool[200], caller[200], theirs[TM_CURSOR_SIZE];
        uint8_t bytes[260], args[SHA256_SIZE];
        struct tm_cursor c = TM_CURSOR_INIT;
        struct buf ours = {0};
        rand_bytes(bytes, sizeof bytes);
        rand_bytes(args, sizeof args);
        fill(tool, rand_u64() % 150);
        fill(caller, rand_u64() % 150);
        c.tool_id = tool;
        c.caller_id = rand_u64() % 2 ? caller : NULL;
        c.args = args;
        c.page = rand_u64() >> rand_u64() % 64;
        c.issued_at_s = (int64_t)(rand_u64() >> (1 + rand_u64() % 60));
        c.state = bytes;
        c.n = rand_u64() % sizeof bytes;
        struct cursor_payload said = {.tool_id = str_of_cstr(tool),
                                      .caller_id = c.caller_id ? str_of_cstr(caller) : STR_NONE,
                                      .page = c.page,
                                      .issued_at_s = c.issued_at_s,
                                      .state = str_of((char *)bytes, c.n)};
        memcpy(said.args, args, sizeof args);
        int err = tm_cursor_issue(&p.key, &c, theirs);
        enum cursor_verdict v = cursor_issue(p.issuer, &said, &ours);
        assert_int_equal(err == 0, v == CURSOR_OK);
        if (err == 0) {
            assert_true(str_eq(buf_str(&ours), str_of_cstr(theirs)));
            struct tm_cursor out = TM_CURSOR_INIT;
            char room[TM_CURSOR_ROOM];
            assert_int_equal(tm_cursor_verify(&p.key, theirs, &c, c.issued_at_s, 0, &out, room), 0);
            assert_string_equal(out.tool_id, tool);
            assert_memory_equal(out.state, bytes, c.n);
        } else {
            assert_int_equal(err, TM_E_TOO_LARGE);
        }
        buf_deinit(&ours);
    }
    drop(&p);
}

/* Bytes of a good cursor changed at random: both say the same of it. */
static void both_judge_the_same(void **state)
{
    static const uint8_t args[SHA256_SIZE] = {5};
    struct pair p;
    make(&p);
    struct tm_cursor c = TM_CURSOR_INIT;
    c.tool_id = "t";
    c.args = args;
    c.page = 2;
    c.issued_at_s = 1000;
    char good[TM_CURSOR_SIZE];
    assert_int_equal(tm_cursor_issue(&p.key, &c, good), 0);
    for (int i = 0; i < 20 * ROUNDS; i++) {
        char changed[TM_CURSOR_SIZE], room[TM_CURSOR_ROOM];
        struct tm_cursor out = TM_CURSOR_INIT;
        struct cursor_payload said;
        struct cursor_asked asked = {.tool_id = STR("t"), .args = args};
        memcpy(changed, good, sizeof changed);
        size_t at = rand_u64() % strlen(changed);
        changed[at] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[rand_u64() % 64];
        if (i % 7 == 0)
            changed[rand_u64() % strlen(changed)] = '\0';
        int64_t now_s = i % 2 ? 1000 : 5000;
        int err = tm_cursor_verify(&p.key, changed, &c, now_s, 300, &out, room);
        enum cursor_verdict v =
            cursor_verify(p.issuer, &p.arena, str_of_cstr(changed), &asked, now_s, 300, &said);
        assert_int_equal(tm_cursor_code(err), cursor_verdict_code(v));
        assert_int_equal(err == TM_E_TAMPERED, v == CURSOR_SIGNATURE);
    }
    drop(&p);
}

/* ---- arguments ---- */

static void compare(struct str text)
{
    uint8_t ours[SHA256_SIZE] = {0}, theirs[TM_CURSOR_ARGS_SIZE] = {0};
    int err = cursor_fingerprint(text, STR_NONE, ours);
    int lib = tm_cursor_fingerprint(text.p, text.n, theirs);
    int expected = err == 0 ? 0 : err == ERR_TOO_LARGE ? TM_E_TOO_LARGE : TM_E_INVALID;
    if (lib != expected || memcmp(ours, theirs, sizeof ours) != 0)
        fail_msg("%d %d: %.*s", err, lib, (int)(text.n < 400 ? text.n : 400), text.p);
}

static const char *const texts[] = {
    "null",
    "{}",
    "[]",
    " [ ] ",
    "{\"b\":1,\"a\":2}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,\"\\u0061\":2}",
    "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":"
    "7}",
    "{\"\\\"\":1,\"\\\\\":2,\"!\":3,\"#\":4,\"[\":5,\"]\":6,\"\\u001f\":7,\"\\u0000\":8,\" "
    "\":9,\"\":0}",
    "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f\\/\\\"\\\\\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\xed\xa0\x80\"",
    "\"\xff\"",
    "-0",
    "-0.0",
    "1e400",
    "-1e400",
    "1e-400",
    "0.1",
    "1.0",
    "100e-2",
    "333333333.33333329",
    "1E30",
    "5e-324",
    "2.5e-324",
    "2.4703282292062327e-324",
    "9007199254740993",
    "1e21",
    "1e20",
    "0.000001",
    "0.0000001",
    "123456789012345678901234567890",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "01",
    "1.",
    "+1",
    "tru",
    "[1,]",
    "{\"a\"}",
    "{\"a\":1} x",
    "",
    "{\"z\":{\"y\":{\"b\":[{\"d\":1,\"c\":2}],\"a\":null},\"x\":true},\"w\":[false,{\"q\":\"\","
    "\"p\":{}}]}",
};

/* Values of all kinds, nested, with names that are alike. */
static void put_random(struct buf *b, int depth)
{
    static const char *const scalars[] = {
        "null",
        "true",
        "1",
        "-1.50",
        "1e3",
        "0.1e-7",
        "\"\"",
        "\"a\\u00e9\\n\"",
        "12345678901234567890",
    };
    static const char *const names[] = {
        "a",
        "b",
        "ab",
        "B",
        "\\u00e9",
        "\xc3\xa9"
        "x",
        "\xf0\x9f\x98\x80",
        "\xee\x80\x80",
        "\\n",
        "\\\"",
        "\\\\",
        "[",
        "z",
    };
    unsigned kind = (unsigned)(rand_u64() % 5), n = (unsigned)(rand_u64() % 6);
    if (depth == 0 || kind > 2) {
        buf_put(b, str_of_cstr(scalars[rand_u64() % (sizeof scalars / sizeof *scalars)]));
        return;
    }
    buf_put(b, kind ? STR("{ ") : STR("[\n"));
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            buf_put(b, STR(" ,"));
        if (kind) {
            buf_putc(b, '"');
            buf_put(b, str_of_cstr(names[rand_u64() % (sizeof names / sizeof *names)]));
            buf_put(b, STR("\" :"));
        }
        put_random(b, depth - 1);
    }
    buf_put(b, kind ? STR("}\t") : STR("]"));
}

static void both_hash_the_same(void **state)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        compare(str_of_cstr(texts[i]));
    unsigned good = 0;
    for (int i = 0; i < 60 * ROUNDS; i++) {
        struct buf b = {0};
        uint8_t hash[SHA256_SIZE];
        put_random(&b, 4);
        compare(buf_str(&b));
        good += cursor_fingerprint(buf_str(&b), STR_NONE, hash) == 0 && b.p[0] == '{';
        buf_deinit(&b);
    }
    assert_true(good > ROUNDS); /* most of the others have a name twice */
}

/* As deep, as long and as exact as the server takes it, and not more. */
static void both_have_the_same_bounds(void **state)
{
    for (size_t depth = 510; depth < 515; depth++) {
        struct buf b = {0};
        for (size_t i = 0; i < depth; i++)
            buf_put(&b, i % 2 ? STR("[") : STR("{\"b\":1,\"a\":"));
        buf_put(&b, STR("1"));
        for (size_t i = depth; i-- > 0;)
            buf_put(&b, i % 2 ? STR("]") : STR("}"));
        compare(buf_str(&b));
        buf_deinit(&b);
    }
    struct buf b = {0};
    buf_putc(&b, '"');
    while (b.n < (1u << 20) - 1)
        buf_putc(&b, 'x');
    buf_putc(&b, '"');
    compare(buf_str(&b));
    buf_putc(&b, ' ');
    compare(buf_str(&b));
    /* Halfway between 1 and the next double, and a little more, a thousand digits away. */
    b.n = 0;
    buf_put(&b, STR("1.00000000000000011102230246251565404236316680908203125"));
    compare(buf_str(&b));
    for (int i = 0; i < 1000; i++)
        buf_putc(&b, '0');
    buf_putc(&b, '1');
    compare(buf_str(&b));
    uint8_t more[SHA256_SIZE], next[SHA256_SIZE];
    assert_int_equal(cursor_fingerprint(buf_str(&b), STR_NONE, more), 0);
    assert_int_equal(cursor_fingerprint(STR("1.0000000000000002"), STR_NONE, next), 0);
    assert_memory_equal(more, next, sizeof more);
    buf_deinit(&b);
}

/* ---- keys ---- */

static void both_take_the_same_keys(void **state)
{
    static const char *const keys[] = {
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc",
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        " \tBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n",
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBw",
        "__________________________________________8",
        "//////////////////////////////////////////8=",
        "//////////////////////////////////////////8",
        "__________________________________________8=",
        "__________________________________________9",
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH",
        "not base64",
        "=",
        "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcBwcH"
        "BwcHBwcHBwcHBw==",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint8_t ours[CURSOR_KEY_SIZE];
        struct tm_cursor_key theirs;
        size_t got;
        int err = cursor_secret_take(str_of_cstr(keys[i]), ours, sizeof ours, &got);
        if ((tm_cursor_key_take(keys[i], "AQIDBAUGBwg=", &theirs) == 0) != (err == 0))
            fail_msg("%s: %d", keys[i], err);
        if (err == 0)
            assert_memory_equal(theirs.key, ours, sizeof ours);
        if (err == 0)
            assert_memory_equal(theirs.session, "\1\2\3\4\5\6\7\10", sizeof theirs.session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_issue_the_same),     cmocka_unit_test(both_judge_the_same),
        cmocka_unit_test(both_hash_the_same),      cmocka_unit_test(both_have_the_same_bounds),
        cmocka_unit_test(both_take_the_same_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
