// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/grant.h"
#include "base/err.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct bench {
    struct arena arena;
    struct access_grants grants;
    struct access_limits limits;
};

static int add(struct bench *b, const char *line)
{
    char why[256];
    return access_grants_add_line(&b->grants, &b->arena, str_of_cstr(line), why, sizeof why);
}

static int add_json(struct bench *b, const char *text, bool *found)
{
    json_t *details = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(details);
    int err = access_grants_add_json(&b->grants, &b->limits, &b->arena, details, found);
    json_decref(details);
    return err;
}

static bool may(struct bench *b, enum access_verb verb, enum access_kind kind, const char *name)
{
    return access_grants_allow(&b->grants, verb, kind, str_of_cstr(name));
}

static void test_lines(void **state)
{
    struct bench b = {0};
    assert_int_equal(add(&b, "read, append chats/** notes/*"), 0);
    assert_int_equal(add(&b, "generate,stop route:/v1/chat"), 0);
    assert_int_equal(add(&b, "metrics server"), 0);
    assert_int_equal(add(&b, "lab"), 0);
    assert_int_equal(add(&b, "read log:app"), 0);
    assert_int_equal(add(&b, "read server"), 0); /* a stream of that name */
    assert_true(may(&b, ACCESS_VERB_READ, ACCESS_STREAM, "chats/1/2"));
    assert_true(may(&b, ACCESS_VERB_APPEND, ACCESS_STREAM, "notes/1"));
    assert_false(may(&b, ACCESS_VERB_DELETE, ACCESS_STREAM, "notes/1"));
    assert_true(may(&b, ACCESS_VERB_GENERATE, ACCESS_ROUTE, "/v1/chat"));
    assert_false(may(&b, ACCESS_VERB_GENERATE, ACCESS_ROUTE, "/v1/other"));
    assert_true(may(&b, ACCESS_VERB_METRICS, ACCESS_SERVER, ""));
    assert_false(may(&b, ACCESS_VERB_ADMIN, ACCESS_SERVER, ""));
    assert_true(may(&b, ACCESS_VERB_LAB, ACCESS_LAB, ""));
    assert_true(may(&b, ACCESS_VERB_READ, ACCESS_LOG, "app"));
    assert_false(may(&b, ACCESS_VERB_READ, ACCESS_STREAM, "app"));
    assert_true(may(&b, ACCESS_VERB_READ, ACCESS_STREAM, "server"));
    arena_deinit(&b.arena);
}

static void test_lines_that_are_refused(void **state)
{
    static const char *const lines[] = {
        "",          "read",         "reed x",           "read, x",
        "read,, a",  "generate a/b", "read route:/x",    "read a/**/b",
        "metrics a", "tool server",  "read /a",          ", read a",
        "read log:", "lab a",        "admin route:/x/y",
    };
    char why[256];
    for (size_t i = 0; i < COUNT(lines); i++) {
        why[0] = '\0';
        if (access_grant_check(str_of_cstr(lines[i]), why, sizeof why) == 0 || why[0] == '\0')
            fail_msg("%s: %s", lines[i], why);
    }
}

static void test_entries(void **state)
{
    struct bench b = {0};
    bool found;
    assert_int_equal(add_json(&b,
                              "[{\"type\":\"other\",\"actions\":3},"
                              "{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a/**\"],"
                              "\"limits\":{\"live\":5,\"rate\":7}},"
                              "{\"type\":\"tidemark\",\"actions\":[\"tool\"],\"on\":[\"tool:x\"],"
                              "\"limits\":{\"live\":3}}]",
                              &found),
                     0);
    assert_true(found);
    assert_true(may(&b, ACCESS_VERB_READ, ACCESS_STREAM, "a/b"));
    assert_true(may(&b, ACCESS_VERB_TOOL, ACCESS_TOOL, "x"));
    assert_int_equal(b.limits.live, 3);
    assert_int_equal(b.limits.rate, 7);
    arena_deinit(&b.arena);
}

/* They are multiplied by milliseconds later. */
static void test_limits_are_bounded(void **state)
{
    struct bench b = {0};
    bool found;
    assert_int_equal(add_json(&b,
                              "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a\"],"
                              "\"limits\":{\"max-ttl\":9223372036854775807}}]",
                              &found),
                     0);
    assert_int_equal(b.limits.max_ttl, ACCESS_LIMIT_MAX);
    arena_deinit(&b.arena);
}

static void test_one_bad_entry_voids_all(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[{\"type\":\"tidemark\"}]",
        "[{\"type\":\"tidemark\",\"actions\":[],\"on\":[\"a\"]}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[]}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"fly\"],\"on\":[\"a\"]}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a/{sub}\"]}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[3]}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":\"a\"}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a\"],\"limits\":{\"x\":1}}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a\"],\"limits\":{\"live\":0}}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a\"],\"limits\":{\"live\":-1}}]",
        "[{\"type\":\"tidemark\",\"actions\":[\"read\"],\"on\":[\"a\"],\"limits\":{\"live\":\"1\"}}"
        "]",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct bench b = {0};
        bool found;
        if (add_json(&b, texts[i], &found) != ERR_SYNTAX)
            fail_msg("%s", texts[i]);
        arena_deinit(&b.arena);
    }
}

static void test_templates(void **state)
{
    static const struct {
        const char *claims;
        bool allowed;
    } rows[] = {
        {"{\"sub\":\"42\"}", true},
        {"{\"sub\":\"*\"}", false},
        {"{\"sub\":\"**\"}", false},
        {"{\"sub\":\"a/b\"}", false},
        {"{\"sub\":\"..\"}", false},
        {"{\"sub\":\"\"}", false},
        {"{\"sub\":42}", false},
        {"{}", false},
        {"{\"sub\":\"42\\u0000\"}", false},
    };
    struct bench b = {0};
    assert_int_equal(add(&b, "read chats/{sub}/**"), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct access_grants out = {0};
        json_t *claims = json_loads(rows[i].claims, JSON_ALLOW_NUL, NULL);
        access_grants_expand(&b.grants, claims, &b.arena, &out);
        assert_int_equal(out.n, rows[i].allowed ? 1 : 0);
        assert_int_equal(
            access_grants_allow(&out, ACCESS_VERB_READ, ACCESS_STREAM, STR("chats/42/x")),
            rows[i].allowed);
        json_decref(claims);
    }
    struct str root;
    json_t *claims = json_pack("{s:s, s:s}", "tenant", "acme", "own", ".route");
    assert_true(access_expand(STR("t/{tenant}/"), claims, &b.arena, &root));
    assert_true(str_eq(root, STR("t/acme/")));
    assert_false(access_expand(STR("{own}/"), claims, &b.arena, &root));
    json_decref(claims);
    arena_deinit(&b.arena);
}

static void test_each_layer_has_to_allow(void **state)
{
    struct bench ceiling = {0}, token = {0}, wider = {0};
    assert_int_equal(add(&ceiling, "read, list t/**"), 0);
    assert_int_equal(add(&token, "read, append t/1 u/1"), 0);
    struct access_rights r = {.layers = {&ceiling.grants, &token.grants}, .n = 2};
    assert_true(access_allows(&r, ACCESS_VERB_READ, ACCESS_STREAM, STR("t/1")));
    assert_false(access_allows(&r, ACCESS_VERB_READ, ACCESS_STREAM, STR("t/2")));
    assert_false(access_allows(&r, ACCESS_VERB_READ, ACCESS_STREAM, STR("u/1")));
    assert_false(access_allows(&r, ACCESS_VERB_APPEND, ACCESS_STREAM, STR("t/1")));
    assert_int_equal(add(&wider, "read t/1"), 0);
    assert_true(access_covers(&r, &wider.grants));
    assert_int_equal(add(&wider, "read t/*"), 0);
    assert_false(access_covers(&r, &wider.grants));
    arena_deinit(&ceiling.arena);
    arena_deinit(&token.arena);
    arena_deinit(&wider.arena);
}

static void test_entries_come_back(void **state)
{
    struct bench b = {0}, again = {0};
    bool found;
    assert_int_equal(add(&b, "read, append a/** log:x"), 0);
    assert_int_equal(add(&b, "metrics"), 0);
    b.limits.live = 4;
    json_t *entries = access_grants_json(&b.grants, &b.limits);
    assert_int_equal(
        access_grants_add_json(&again.grants, &again.limits, &again.arena, entries, &found), 0);
    assert_int_equal(again.grants.n, b.grants.n);
    for (size_t i = 0; i < b.grants.n; i++) {
        assert_int_equal(again.grants.items[i].verbs, b.grants.items[i].verbs);
        assert_int_equal(again.grants.items[i].kind, b.grants.items[i].kind);
        assert_true(str_eq(again.grants.items[i].pattern, b.grants.items[i].pattern));
    }
    assert_int_equal(again.limits.live, 4);
    json_decref(entries);
    arena_deinit(&b.arena);
    arena_deinit(&again.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_lines_that_are_refused),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_limits_are_bounded),
        cmocka_unit_test(test_one_bad_entry_voids_all),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_each_layer_has_to_allow),
        cmocka_unit_test(test_entries_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
