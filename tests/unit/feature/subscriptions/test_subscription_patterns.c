// SPDX-License-Identifier: Apache-2.0
/* The index of patterns against the matcher that asks one of them, and what it visits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "feature/subscriptions/subscription_patterns.h"

struct member {
    struct link link;
    struct sub_pattern *pattern; /* NULL: not there */
    char text[128];
};

#define MEMBERS 300

struct forest {
    struct sub_patterns ps;
    struct member members[MEMBERS];
    uint64_t x;
};

static int setup(void **state)
{
    struct forest *f = mem_zalloc(sizeof *f);
    sub_patterns_init(&f->ps);
    f->x = 88172645463325252u;
    for (int i = 0; i < MEMBERS; i++)
        list_init(&f->members[i].link);
    *state = f;
    return 0;
}

static void drop(struct forest *f, struct member *m)
{
    if (m->pattern != NULL)
        sub_patterns_remove(&f->ps, m->pattern, &m->link);
    m->pattern = NULL;
}

static int teardown(void **state)
{
    struct forest *f = *state;
    for (int i = 0; i < MEMBERS; i++)
        drop(f, &f->members[i]);
    assert_int_equal(f->ps.by_text.n, 0);
    assert_int_equal(f->ps.literals.n, 0);
    sub_patterns_deinit(&f->ps);
    free(f);
    return 0;
}

static uint64_t draw(struct forest *f, uint64_t below)
{
    f->x ^= f->x << 13, f->x ^= f->x >> 7, f->x ^= f->x << 17;
    return (f->x >> 11) % below;
}

/* Few words, so that much matches; now and then more segments than the trie is deep. */
static void random_path(struct forest *f, char *out, const char *const *words, size_t n_words)
{
    uint64_t n = 1 + draw(f, draw(f, 8) == 0 ? 14 : 4);
    *out = '\0';
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0)
            strcat(out, "/");
        strcat(out, words[draw(f, n_words)]);
    }
}

static void random_pattern(struct forest *f, char *out)
{
    static const char *const words[] = {"a", "b", "*", "**", "%2A", "a*", "%2a%2A", "c", "*", "**"};
    random_path(f, out, words, sizeof words / sizeof *words);
    assert_true(subscription_pattern_valid(str_of_cstr(out)));
}

static void random_name(struct forest *f, char *out)
{
    static const char *const words[] = {"a", "b", "*", "**", "a*", "c", "a", "b", ""};
    random_path(f, out, words, sizeof words / sizeof *words);
}

static void add(struct forest *f, struct member *m, const char *pattern)
{
    snprintf(m->text, sizeof m->text, "%s", pattern);
    m->pattern = sub_patterns_add(&f->ps, str_of_cstr(m->text), &m->link);
}

static bool is_found(const struct forest *f, const struct sub_pattern *p)
{
    size_t times = 0;
    for (size_t i = 0; i < f->ps.n_found; i++)
        times += f->ps.found[i] == p;
    assert_true(times <= 1);
    return times == 1;
}

/* All that match, and no others: those that were there from the beginning of the walk to its end.
 */
static void check(struct forest *f, const bool *whole, const char *name)
{
    for (int i = 0; i < MEMBERS; i++) {
        struct member *m = &f->members[i];
        if (m->pattern == NULL || !whole[i])
            continue;
        bool want = subscription_pattern_match(str_of_cstr(m->text), str_of_cstr(name));
        if (is_found(f, m->pattern) != want)
            fail_msg("%s against %s: %d", m->text, name, want);
    }
    for (size_t i = 0; i < f->ps.n_found; i++) {
        const struct sub_pattern *p = f->ps.found[i];
        assert_true(subscription_pattern_match(str_of(p->text, p->n), str_of_cstr(name)));
    }
}

static void test_same_as_one_by_one(void **state)
{
    struct forest *f = *state;
    char text[128], name[128];
    for (int round = 0; round < 20000; round++) {
        struct member *m = &f->members[draw(f, MEMBERS)];
        bool whole[MEMBERS];
        drop(f, m);
        random_pattern(f, text);
        if (draw(f, 4) > 0)
            add(f, m, text);
        if (round % 5 > 0)
            continue;
        for (int i = 0; i < MEMBERS; i++)
            whole[i] = true;
        random_name(f, name);
        sub_patterns_walk(&f->ps, str_of_cstr(name));
        while (!sub_patterns_step(&f->ps, 1 + draw(f, 20))) {
            uint64_t i = draw(f, MEMBERS); /* somebody comes or goes meanwhile */
            if (draw(f, 3) > 0)
                continue;
            whole[i] = false;
            drop(f, &f->members[i]);
            if (draw(f, 2) > 0)
                add(f, &f->members[i], text);
        }
        check(f, whole, name);
        sub_patterns_walked(&f->ps);
    }
}

/* Of ten thousand patterns those are visited that can match. */
static void test_visits(void **state)
{
    struct forest *f = *state;
    enum { MANY = 10000 };
    struct member *many = mem_zalloc(MANY * sizeof *many);
    for (size_t k = 0; k < 5; k++) {
        for (int i = 0; i < MANY; i++) {
            char text[64];
            switch (k) {
            case 0: snprintf(text, sizeof text, "users/%d/inbox", i); break;
            case 1: snprintf(text, sizeof text, "users/*/mail-%d", i); break;
            case 2: snprintf(text, sizeof text, "**/room-%d/x", i); break;
            case 3: snprintf(text, sizeof text, "%d/**", i); break;
            default: snprintf(text, sizeof text, "a/b/c/%d/e/f/g/h/i", i); break;
            }
            list_init(&many[i].link);
            add(f, &many[i], text);
        }
        static const char *const names[] = {"users/77/inbox", "users/x/mail-77", "p/q/room-77/x",
                                            "77/a/b", "a/b/c/77/e/f/g/h/i"};
        f->ps.visited = 0;
        sub_patterns_walk(&f->ps, str_of_cstr(names[k]));
        assert_true(sub_patterns_step(&f->ps, 100));
        assert_int_equal(f->ps.n_found, 1);
        assert_ptr_equal(f->ps.found[0], many[77].pattern);
        assert_true(f->ps.visited <= 20);
        sub_patterns_walked(&f->ps);
        for (int i = 0; i < MANY; i++)
            drop(f, &many[i]);
    }
    free(many);
}

/* Patterns that are made to cost much: each step is short, and there are as many as it takes. */
static void test_steps_are_short(void **state)
{
    struct forest *f = *state;
    char text[128], name[480];
    for (int i = 0; i < MEMBERS; i++) {
        *text = '\0';
        for (int k = 0; k < 12; k++)
            strcat(text, draw(f, 2) ? "**/" : draw(f, 2) ? "*/" : "a/");
        strcat(text, draw(f, 2) ? "a" : "b");
        add(f, &f->members[i], text);
    }
    for (size_t i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "a/", 2);
    struct str path = str_of(name, sizeof name - 1);
    sub_patterns_walk(&f->ps, path);
    for (bool through = false; !through;) {
        uint64_t before = f->ps.visited;
        through = sub_patterns_step(&f->ps, 64);
        assert_true(f->ps.visited - before <= 64);
    }
    for (int i = 0; i < MEMBERS; i++)
        assert_int_equal(is_found(f, f->members[i].pattern),
                         subscription_pattern_match(str_of_cstr(f->members[i].text), path));
    sub_patterns_walked(&f->ps);
}

static void test_equal_patterns_are_one(void **state)
{
    struct forest *f = *state;
    for (int i = 0; i < MEMBERS; i++)
        add(f, &f->members[i], "**/*");
    f->ps.visited = 0;
    sub_patterns_walk(&f->ps, STR("a/b"));
    assert_true(sub_patterns_step(&f->ps, 100));
    assert_int_equal(f->ps.n_found, 1);
    assert_int_equal(f->ps.found[0]->n_members, MEMBERS);
    assert_true(f->ps.visited <= 12);
    for (int i = 0; i < MEMBERS; i++) /* all go while it is in use, and one comes back */
        drop(f, &f->members[i]);
    assert_int_equal(f->ps.found[0]->n_members, 0);
    add(f, &f->members[0], "**/*");
    assert_ptr_equal(f->members[0].pattern, f->ps.found[0]);
    sub_patterns_walked(&f->ps);
    assert_int_equal(f->ps.by_text.n, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_same_as_one_by_one),
        T(test_visits),
        T(test_steps_are_short),
        T(test_equal_patterns_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
