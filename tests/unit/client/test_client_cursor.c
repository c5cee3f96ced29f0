// SPDX-License-Identifier: Apache-2.0
/* Cursors as a program issues and verifies them. That the server takes them is for
 * tests/unit/token/test_cursor_lib.c. */
#include "client/client_canonical.h"
#include "unit/client/failing_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define ISSUED 1762000000

static const uint8_t args[TM_CURSOR_ARGS_SIZE] = {1, 2, 3};

static struct tm_cursor_key key(void)
{
    struct tm_cursor_key k;
    memset(k.key, 7, sizeof k.key);
    memcpy(k.session, "\1\2\3\4\5\6\7\10", sizeof k.session);
    return k;
}

static struct tm_cursor payload(void)
{
    struct tm_cursor c = TM_CURSOR_INIT;
    c.tool_id = "orders";
    c.caller_id = "ci";
    c.args = args;
    c.page = 2;
    c.issued_at_s = ISSUED;
    c.state = "\0\1";
    c.n = 2;
    return c;
}

static int verify(const struct tm_cursor_key *k, const char *cursor, const struct tm_cursor *asked)
{
    struct tm_cursor out = TM_CURSOR_INIT;
    char room[TM_CURSOR_ROOM];
    return tm_cursor_verify(k, cursor, asked, ISSUED, 300, &out, room);
}

static void there_and_back(void **state)
{
    struct tm_cursor_key k = key();
    struct tm_cursor c = payload(), out = TM_CURSOR_INIT;
    char cursor[TM_CURSOR_SIZE], room[TM_CURSOR_ROOM];
    (void)state;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), 0);
    assert_int_equal(strspn(cursor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                    "-_"),
                     strlen(cursor));
    assert_int_equal(tm_cursor_verify(&k, cursor, &c, ISSUED + 300, 300, &out, room), 0);
    assert_string_equal(out.tool_id, "orders");
    assert_string_equal(out.caller_id, "ci");
    assert_memory_equal(out.args, args, sizeof args);
    assert_int_equal(out.page, 2);
    assert_int_equal(out.issued_at_s, ISSUED);
    assert_int_equal(out.n, 2);
    assert_memory_equal(out.state, "\0\1", 2);
    c.caller_id = NULL;
    c.state = NULL;
    c.n = 0;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), 0);
    c.args = NULL; /* none were sent along */
    assert_int_equal(tm_cursor_verify(&k, cursor, &c, 0, 0, &out, room), 0);
    assert_null(out.caller_id);
    assert_int_equal(out.n, 0);
    /* A program that was built with a shorter struct gets no more than that. */
    struct tm_cursor old = TM_CURSOR_INIT;
    old.size = offsetof(struct tm_cursor, page);
    old.page = 99;
    assert_int_equal(tm_cursor_verify(&k, cursor, &c, 0, 0, &old, room), 0);
    assert_string_equal(old.tool_id, "orders");
    assert_int_equal(old.page, 99);
}

static void each_refusal(void **state)
{
    static const uint8_t others[TM_CURSOR_ARGS_SIZE] = {9};
    struct tm_cursor_key k = key(), other = key();
    struct tm_cursor c = payload(), asked = payload(), out = TM_CURSOR_INIT;
    char cursor[TM_CURSOR_SIZE], room[TM_CURSOR_ROOM];
    (void)state;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), 0);
    assert_int_equal(verify(&k, cursor, &c), 0);
    asked.tool_id = "other";
    assert_int_equal(verify(&k, cursor, &asked), TM_E_CONFLICT);
    asked = payload();
    asked.caller_id = NULL;
    assert_int_equal(verify(&k, cursor, &asked), TM_E_CONFLICT);
    asked.caller_id = "";
    assert_int_equal(verify(&k, cursor, &asked), TM_E_CONFLICT);
    asked = payload();
    asked.args = others;
    assert_int_equal(tm_cursor_verify(&k, cursor, &asked, ISSUED, 300, &out, room), TM_E_CONFLICT);
    assert_memory_equal(out.args, args, sizeof args); /* what it was for */
    assert_int_equal(tm_cursor_verify(&k, cursor, &c, ISSUED + 301, 300, &out, room), TM_E_EXPIRED);
    other.session[0]++;
    assert_int_equal(verify(&other, cursor, &c), TM_E_EXPIRED);
    other.key[0]++;
    assert_int_equal(verify(&other, cursor, &c), TM_E_EXPIRED);
    other.session[0]--;
    assert_int_equal(verify(&other, cursor, &c), TM_E_TAMPERED);
    assert_int_equal(verify(&k, NULL, &c), TM_E_INVALID);
    assert_int_equal(verify(&k, "", &c), TM_E_INVALID);
    assert_int_equal(verify(&k, "not!base64!", &c), TM_E_INVALID);
    char long_one[TM_CURSOR_SIZE + 1];
    memset(long_one, 'A', TM_CURSOR_SIZE);
    long_one[TM_CURSOR_SIZE] = '\0';
    assert_int_equal(verify(&k, long_one, &c), TM_E_TOO_LARGE);
    assert_int_equal(tm_cursor_code(0), 0);
    assert_int_equal(tm_cursor_code(TM_E_EXPIRED), 1020);
    assert_int_equal(tm_cursor_code(TM_E_TAMPERED), 1021);
    assert_int_equal(tm_cursor_code(TM_E_CONFLICT), 1021);
    assert_int_equal(tm_cursor_code(TM_E_INVALID), 1021);
}

/* Every character of a cursor counts: another in its place is never the same cursor. */
static void no_change_passes(void **state)
{
    struct tm_cursor_key k = key();
    struct tm_cursor c = payload();
    char cursor[TM_CURSOR_SIZE];
    (void)state;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), 0);
    for (size_t i = 0; cursor[i] != '\0'; i++) {
        char was = cursor[i];
        for (int bit = 0; bit < 8; bit++) {
            cursor[i] = (char)(was ^ 1 << bit);
            assert_int_not_equal(verify(&k, cursor, &c), 0);
        }
        cursor[i] = was;
    }
    assert_int_equal(verify(&k, cursor, &c), 0);
}

static void what_cannot_be_issued(void **state)
{
    struct tm_cursor_key k = key();
    struct tm_cursor c = payload();
    char cursor[TM_CURSOR_SIZE], name[402], large[257] = "";
    (void)state;
    c.tool_id = NULL;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_INVALID);
    c = payload(), c.args = NULL;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_INVALID);
    c = payload(), c.state = NULL;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_INVALID);
    c = payload(), c.tool_id = "\xff";
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_INVALID);
    c = payload(), c.issued_at_s = -1;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_INVALID);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    c = payload(), c.tool_id = name;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_TOO_LARGE);
    c = payload(), c.state = large, c.n = 257;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), TM_E_TOO_LARGE);
    c.n = 256;
    assert_int_equal(tm_cursor_issue(&k, &c, cursor), 0);
    assert_true(strlen(cursor) <= TM_CURSOR_SIZE - 1);
    assert_int_equal(verify(&k, cursor, &c), 0);
}

/* ---- keys and arguments ---- */

static void keys_are_random(void **state)
{
    struct tm_cursor_key a = {.key = {0}}, b = {.key = {0}};
    (void)state;
    assert_int_equal(tm_cursor_key_random(&a), 0);
    assert_int_equal(tm_cursor_key_random(&b), 0);
    assert_memory_not_equal(a.key, b.key, sizeof a.key);
    assert_memory_not_equal(a.session, b.session, sizeof a.session);
}

#define KEY "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"

static void a_key_comes_as_text(void **state)
{
    struct tm_cursor_key k = {.key = {0}}, before, expected = key();
    (void)state;
    assert_int_equal(tm_cursor_key_take(KEY, "AQIDBAUGBwg", &k), 0);
    assert_memory_equal(&k, &expected, sizeof k);
    before = k;
    assert_int_equal(tm_cursor_key_take(KEY "BwcH", NULL, &k), TM_E_INVALID);
    assert_int_equal(tm_cursor_key_take(KEY, "AQIDBAUGBw", &k), TM_E_INVALID);
    assert_memory_equal(&k, &before, sizeof k);
    /* A session of its own. */
    assert_int_equal(tm_cursor_key_take(KEY, "", &k), 0);
    assert_memory_equal(k.key, expected.key, sizeof k.key);
    assert_memory_not_equal(k.session, expected.session, sizeof k.session);
}

static void write_key(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_key_comes_from_the_environment(void **state)
{
    struct tm_cursor_key k = {.key = {0}}, expected = key(), before;
    char path[] = "/tmp/tidemark-cursor-key-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unsetenv("ATD_CURSOR_SIGNING_KEY");
    unsetenv("ATD_CURSOR_SIGNING_KEY_FILE");
    assert_int_equal(tm_cursor_key_environment("AQIDBAUGBwg", &k), 0);
    assert_memory_equal(k.session, expected.session, sizeof k.session);
    assert_memory_not_equal(k.key, expected.key, sizeof k.key);
    setenv("ATD_CURSOR_SIGNING_KEY", " " KEY "=\n", 1);
    assert_int_equal(tm_cursor_key_environment("AQIDBAUGBwg", &k), 1);
    assert_memory_equal(&k, &expected, sizeof k);
    before = k;
    setenv("ATD_CURSOR_SIGNING_KEY", "secret", 1);
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_INVALID);
    /* Both: nobody knows which is meant. */
    setenv("ATD_CURSOR_SIGNING_KEY_FILE", path, 1);
    setenv("ATD_CURSOR_SIGNING_KEY", KEY, 1);
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_INVALID);
    unsetenv("ATD_CURSOR_SIGNING_KEY");
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_INVALID); /* it is empty */
    write_key(path, "too short\n");
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_INVALID);
    assert_memory_equal(&k, &before, sizeof k);
    write_key(path, KEY "\n");
    memset(&k, 0, sizeof k);
    assert_int_equal(tm_cursor_key_environment("AQIDBAUGBwg", &k), 1);
    assert_memory_equal(&k, &expected, sizeof k);
    setenv("ATD_CURSOR_SIGNING_KEY_FILE", "/nowhere/key", 1);
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_IO);
    setenv("ATD_CURSOR_SIGNING_KEY_FILE", "/dev/zero", 1);
    assert_int_equal(tm_cursor_key_environment(NULL, &k), TM_E_INVALID);
    unsetenv("ATD_CURSOR_SIGNING_KEY_FILE");
    unlink(path);
}

static void expect_hash(const char *json, const char *hex)
{
    uint8_t hash[TM_CURSOR_ARGS_SIZE];
    char text[2 * sizeof hash + 1];
    assert_int_equal(tm_cursor_fingerprint(json, strlen(json), hash), 0);
    for (size_t i = 0; i < sizeof hash; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(text, hex);
}

static void arguments_have_a_fingerprint(void **state)
{
    static const char x_y[] = "b837c857b5318bf17ecf9d8571ff1ba555173cc2e5959751498da8070d7d614a";
    uint8_t hash[TM_CURSOR_ARGS_SIZE];
    (void)state;
    expect_hash("null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b");
    expect_hash("{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    expect_hash("{\"patient\":\"p1\"}",
                "8f5e1d132344c74374e917ce961c358fc43f9b2e32c3f305ca36b7562da17aea");
    expect_hash("{\"x\":1,\"y\":[2,3]}", x_y);
    expect_hash(" { \"y\" : [2.0, 30e-1], \"\\u0078\": 1e0 }", x_y);
    assert_int_equal(tm_cursor_fingerprint("{", 1, hash), TM_E_INVALID);
    assert_int_equal(tm_cursor_fingerprint("{\"a\":1,\"a\":1}", 13, hash), TM_E_INVALID);
    assert_int_equal(tm_cursor_fingerprint("", 0, hash), TM_E_INVALID);
    assert_int_equal(tm_cursor_fingerprint(NULL, 0, hash), TM_E_INVALID);
}

static const char unordered[] = "{\"b\":[{\"d\":\"\\n\",\"c\":1.50}],\"a\":null}";

static void every_allocation_of_it_may_fail(void **state)
{
    size_t nth = 0;
    int err;
    (void)state;
    do {
        struct failing_memory mem;
        struct bytes out = {0};
        failing_init(&mem);
        mem.fail_at = ++nth;
        struct tm_client c = {.mem = mem.allocator};
        err = canonical_put(&c, str_of_cstr(unordered), &out);
        if (err == 0)
            assert_string_equal(out.p, "{\"a\":null,\"b\":[{\"c\":1.5,\"d\":\"\\n\"}]}");
        else
            assert_int_equal(err, TM_E_NOMEM);
        bytes_free(&c, &out);
        assert_int_equal(mem.held, 0);
    } while (err != 0);
    assert_true(nth > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(each_refusal),
        cmocka_unit_test(no_change_passes),
        cmocka_unit_test(what_cannot_be_issued),
        cmocka_unit_test(keys_are_random),
        cmocka_unit_test(a_key_comes_as_text),
        cmocka_unit_test(a_key_comes_from_the_environment),
        cmocka_unit_test(arguments_have_a_fingerprint),
        cmocka_unit_test(every_allocation_of_it_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
