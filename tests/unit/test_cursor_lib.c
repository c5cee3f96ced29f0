// SPDX-License-Identifier: Apache-2.0
/* The library's cursors and the server's are the same, byte for byte. */
#include "base/arena.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_issue_the_same),
        cmocka_unit_test(both_judge_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
