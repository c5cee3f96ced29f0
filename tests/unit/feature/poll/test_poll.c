// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "feature/poll/poll_changes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

struct scene {
    struct poll_rules rules;
    struct poll_position place;
    struct buf events, ends;
    char why[160];
};

static void end_scene(struct scene *s)
{
    poll_position_deinit(&s->place);
    buf_deinit(&s->events);
    buf_deinit(&s->ends);
}

static int take(struct scene *s, const char *body)
{
    s->events.n = s->ends.n = 0;
    return poll_take(&s->rules, &s->place, str_of_cstr(body), &s->events, &s->ends, s->why,
                     sizeof s->why);
}

static size_t n_events(const struct scene *s)
{
    return s->ends.n / sizeof(uint32_t);
}

/* The body is taken, and exactly these events come of it, and end where it is said. */
static void expect(struct scene *s, const char *body, const char *events, size_t n)
{
    assert_int_equal(take(s, body), 0);
    assert_int_equal(s->events.n, strlen(events));
    assert_memory_equal(s->events.p, events, s->events.n);
    assert_int_equal(n_events(s), n);
    const uint32_t *ends = (const uint32_t *)(const void *)s->ends.p;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(s->events.p[ends[i] - 1], ',');
    if (n > 0)
        assert_int_equal(ends[n - 1], s->events.n);
}

static void appended_text_comes_once(void **state)
{
    struct scene s = {.rules.mode = POLL_APPEND};
    expect(&s, "", "", 0);
    expect(&s, "one\n", "{\"text\":\"one\\n\"},", 1);
    expect(&s, "one\n", "", 0);
    expect(&s, "one\ntwo\n", "{\"text\":\"two\\n\"},", 1);
    end_scene(&s);
}

static void a_rewrite_is_told_with_all_of_it(void **state)
{
    struct scene s = {.rules.mode = POLL_APPEND};
    expect(&s, "one two", "{\"text\":\"one two\"},", 1);
    expect(&s, "One two three", "{\"rewrite\":\"One two three\"},", 1);
    expect(&s, "One two three four", "{\"text\":\" four\"},", 1);
    expect(&s, "One", "{\"rewrite\":\"One\"},", 1);
    expect(&s, "", "{\"rewrite\":\"\"},", 1);
    expect(&s, "x", "{\"text\":\"x\"},", 1);
    end_scene(&s);
}

static void half_a_character_waits(void **state)
{
    struct scene s = {.rules.mode = POLL_APPEND};
    expect(&s, "a\xe2\x82", "{\"text\":\"a\"},", 1);
    expect(&s, "a\xe2\x82\xac!", "{\"text\":\"\xe2\x82\xac!\"},", 1);
    end_scene(&s);
}

static void versions_come_with_their_digest(void **state)
{
    struct scene s = {.rules.mode = POLL_REPLACE};
    expect(&s, "{}",
           "{\"digest\":\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\","
           "\"body\":{}},",
           1);
    expect(&s, "{}", "", 0);
    expect(&s, "no JSON",
           "{\"digest\":\"29ecbeb830e3244605e5a88493e4088424a71780e5cf59bb3475f278f294335b\","
           "\"body\":\"no JSON\"},",
           1);
    end_scene(&s);
}

static void items_come_once_by_their_key(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES, .key = STR("/id")}};
    expect(&s, "[{\"id\":1,\"v\":\"a\"},{\"id\":2}]", "{\"id\":1,\"v\":\"a\"},{\"id\":2},", 2);
    expect(&s, "[{\"id\":2},{\"id\":1,\"v\":\"changed\"},{\"id\":3}]", "{\"id\":3},", 1);
    expect(&s, "[{\"id\":3},{\"id\":3}]", "", 0);
    expect(&s, "[]", "", 0);
    expect(&s, "[{\"id\":1},{\"id\":\"1\"}]", "{\"id\":\"1\"},", 1);
    end_scene(&s);
}

static void without_a_key_the_whole_item_counts(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES}};
    expect(&s, "[1,2]", "1,2,", 2);
    expect(&s, "[2,3,{\"a\":\n1}]", "3,{\"a\":1},", 2);
    end_scene(&s);
}

static void lines_are_items_too(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES, .key = STR("/id")}};
    expect(&s, "{\"id\":1}\n", "{\"id\":1},", 1);
    expect(&s, "{\"id\":1}\n\r\n{\"id\":2}\r\n{\"id\":3}", "{\"id\":2},{\"id\":3},", 2);
    expect(&s, "", "", 0);
    assert_int_equal(take(&s, "{\"id\":4}\n{\"id\""), ERR_JSON);
    assert_int_equal(n_events(&s), 0);
    expect(&s, "{\"id\":4}\n{\"id\":5}", "{\"id\":4},{\"id\":5},", 2);
    end_scene(&s);
}

static void the_newest_may_come_first(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES, .newest_first = true, .cursor = STR("")}};
    expect(&s, "[3,2,1]", "1,2,3,", 3);
    assert_memory_equal(s.place.cursor.p, "3", 1);
    expect(&s, "[55,4,3]", "4,55,", 2);
    assert_int_equal(s.place.cursor.n, 2);
    assert_memory_equal(s.place.cursor.p, "55", 2);
    end_scene(&s);
}

static void items_lie_deeper(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES,
                                .items = STR("/da~1ta/0/rows"),
                                .key = STR("/k~0ey"),
                                .cursor = STR("/next"),
                                .cursor_of_answer = true}};
    expect(&s, "{\"next\":\"p\\u0032\",\"da/ta\":[{\"rows\":[{\"k~ey\":1}]}]}", "{\"k~ey\":1},", 1);
    assert_int_equal(s.place.cursor.n, 2);
    assert_memory_equal(s.place.cursor.p, "p2", 2);
    expect(&s, "{\"next\":null,\"da/ta\":[{\"rows\":[]}]}", "", 0);
    assert_int_equal(s.place.cursor.n, 2);
    assert_int_equal(take(&s, "{\"da/ta\":[]}"), ERR_SYNTAX);
    assert_non_null(strstr(s.why, "/da~1ta/0/rows"));
    assert_int_equal(take(&s, "{\"da/ta\":[{\"rows\":[{\"k~ey\":2},{}]}]}"), ERR_SYNTAX);
    assert_int_equal(n_events(&s), 0);
    assert_int_equal(take(&s, "{\"next\":[],\"da/ta\":[{\"rows\":[{\"k~ey\":2}]}]}"), ERR_SYNTAX);
    assert_int_equal(n_events(&s), 0);
    end_scene(&s);
}

static void too_many_items_are_refused(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES}};
    struct buf body = {0};
    for (int i = 0; i <= POLL_SEEN_MAX; i++)
        buf_printf(&body, "%c%d", i == 0 ? '[' : ',', i);
    buf_printf(&body, "]%c", '\0');
    assert_int_equal(take(&s, body.p), ERR_TOO_LARGE);
    assert_int_equal(n_events(&s), 0);
    assert_false(s.place.begun);
    buf_deinit(&body);
    end_scene(&s);
}

/* One stays in the list while thousands pass by. */
static void an_item_that_stays_is_not_forgotten(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES}};
    expect(&s, "[\"pinned\"]", "\"pinned\",", 1);
    for (int round = 0; round < 3 * POLL_SEEN_MAX / 100; round++) {
        struct buf body = {0};
        buf_printf(&body, "[\"pinned\"");
        for (int i = 0; i < 100; i++)
            buf_printf(&body, ",%d", round * 100 + i);
        buf_printf(&body, "]%c", '\0');
        assert_int_equal(take(&s, body.p), 0);
        assert_int_equal(n_events(&s), 100);
        assert_true(s.place.seen.n <= (size_t)POLL_SEEN_MAX * POLL_KEY_SIZE);
        buf_deinit(&body);
    }
    end_scene(&s);
}

/* However the place is stored and read back in between, each item comes once. */
static void a_place_survives_being_stored(void **state)
{
    struct scene s = {.rules = {.mode = POLL_JSONLINES, .key = STR("/id"), .cursor = STR("/id")}};
    expect(&s, "[{\"id\":1},{\"id\":2}]", "{\"id\":1},{\"id\":2},", 2);
    buf_put(&s.place.etag, STR("\"tag\""));
    struct buf stored = {0};
    poll_position_put(&stored, &s.place);
    poll_position_deinit(&s.place);
    for (size_t n = 0; n < stored.n; n++) {
        assert_int_equal(poll_position_take(str_of(stored.p, n), &s.place), ERR_CORRUPT);
        assert_int_equal(s.place.seen.n, 0);
    }
    assert_int_equal(poll_position_take(buf_str(&stored), &s.place), 0);
    assert_memory_equal(s.place.etag.p, "\"tag\"", 5);
    assert_memory_equal(s.place.cursor.p, "2", 1);
    expect(&s, "[{\"id\":2},{\"id\":3}]", "{\"id\":3},", 1);
    buf_deinit(&stored);
    end_scene(&s);
}

static void pointers_are_checked(void **state)
{
    assert_true(poll_pointer_ok(STR("")));
    assert_true(poll_pointer_ok(STR("/a/~0~1/0")));
    assert_false(poll_pointer_ok(STR("a")));
    assert_false(poll_pointer_ok(STR("/a~")));
    assert_false(poll_pointer_ok(STR("/~2")));
    assert_false(poll_pointer_ok(STR("/\xff")));
}

#define MIDDLE(ms) ((ms) / 10) /* the random part that changes nothing */

static void the_pace_follows_the_news(void **state)
{
    struct poll_pace p = {.every_ms = 1000, .slowest_ms = 3000};
    assert_int_equal(poll_pause_ms(&p, POLL_CHANGED, 0, MIDDLE(1000)), 1000);
    assert_int_equal(poll_pause_ms(&p, POLL_SAME, 0, MIDDLE(1501)), 1501);
    uint64_t last = 0;
    for (int i = 0; i < 10; i++)
        last = poll_pause_ms(&p, POLL_SAME, 0, MIDDLE(3000));
    assert_int_equal(last, 3000);
    assert_int_equal(poll_pause_ms(&p, POLL_CHANGED, 0, MIDDLE(1000)), 1000);
    assert_int_equal(poll_pause_ms(&p, POLL_CHANGED, 7000, 0), 7000);
}

static void failures_wait_longer_and_longer(void **state)
{
    struct poll_pace p = {.every_ms = 1000, .slowest_ms = 3000};
    assert_int_equal(poll_pause_ms(&p, POLL_FAILED, 0, MIDDLE(2000)), 2000);
    assert_int_equal(poll_pause_ms(&p, POLL_FAILED, 0, MIDDLE(4000)), 4000);
    for (int i = 0; i < 20; i++)
        poll_pause_ms(&p, POLL_FAILED, 0, 0);
    assert_int_equal(poll_pause_ms(&p, POLL_FAILED, 0, MIDDLE(POLL_FAILED_MAX_MS)),
                     POLL_FAILED_MAX_MS);
    assert_int_equal(poll_pause_ms(&p, POLL_CHANGED, 0, MIDDLE(1000)), 1000);
    for (uint64_t random = 0; random < 5000; random += 7) {
        uint64_t ms = poll_pause_ms(&p, POLL_CHANGED, 0, random);
        assert_in_range(ms, 900, 1100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appended_text_comes_once),
        cmocka_unit_test(a_rewrite_is_told_with_all_of_it),
        cmocka_unit_test(half_a_character_waits),
        cmocka_unit_test(versions_come_with_their_digest),
        cmocka_unit_test(items_come_once_by_their_key),
        cmocka_unit_test(without_a_key_the_whole_item_counts),
        cmocka_unit_test(lines_are_items_too),
        cmocka_unit_test(the_newest_may_come_first),
        cmocka_unit_test(items_lie_deeper),
        cmocka_unit_test(too_many_items_are_refused),
        cmocka_unit_test(an_item_that_stays_is_not_forgotten),
        cmocka_unit_test(a_place_survives_being_stored),
        cmocka_unit_test(pointers_are_checked),
        cmocka_unit_test(the_pace_follows_the_news),
        cmocka_unit_test(failures_wait_longer_and_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
