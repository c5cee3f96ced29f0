// SPDX-License-Identifier: Apache-2.0
#include "unit/scripted.h"

struct notes {
    struct buf data, positions;
    bool values;     /* put a | behind each piece */
    const char *end; /* stop at this piece */
    int gap;         /* what the gap callback returns */
    struct buf gaps;
};

static int note_data(void *user, const void *data, size_t n)
{
    struct notes *t = user;
    buf_put(&t->data, str_of(data, n));
    if (t->values)
        buf_putc(&t->data, '|');
    return t->end && str_eq(str_of(data, n), str_of_cstr(t->end));
}

static int note_position(void *user, const char *next, bool up_to_date)
{
    struct notes *t = user;
    buf_printf(&t->positions, "%s%s;", next, up_to_date ? "!" : "");
    return 0;
}

static int note_gap(void *user, const struct client_gap *g)
{
    struct notes *t = user;
    buf_printf(&t->gaps, "%s,%s,%s,%s;", g->requested, g->earliest, g->reason,
               g->snapshot ? g->snapshot : "none");
    return t->gap;
}

static void assert_notes(struct buf *b, const char *expected)
{
    buf_putc(b, '\0');
    assert_string_equal(b->p, expected);
    b->n--;
}

static void notes_deinit(struct notes *t)
{
    buf_deinit(&t->data);
    buf_deinit(&t->positions);
    buf_deinit(&t->gaps);
}

static struct client_follow_options noting(struct notes *t)
{
    return (struct client_follow_options){
        .user = t, .data = note_data, .position = note_position, .gap = note_gap};
}

/* Plays the turns to a follower made with these options and returns what its run returned. */
static int follow(struct script *s, const struct client_follow_options *options,
                  struct client_state *end)
{
    struct client *c = client_of(s);
    struct client_follower *f = client_follower_new(c, "a", options);
    int err = client_follower_run(f);
    if (end)
        *end = *client_follower_state(f);
    client_follower_free(f);
    client_free(c);
    script_end(s);
    return err;
}

static void follower_polls_text(void **state)
{
    static const struct turn turns[] = {
        {200, TEXT NEXT("1_4"), "one\r", WHOLE},
        {200, TEXT NEXT("1_8") UP_TO_DATE, "\ntwo", WHOLE},
        {204, NEXT("1_8") UP_TO_DATE "Stream-Cursor: 77\r\n", NULL, WHOLE},
        {200, TEXT NEXT("1_9") UP_TO_DATE "Stream-Cursor: 78\r\n", "\r", WHOLE},
        {204, NEXT("1_9") UP_TO_DATE CLOSED "Stream-End-Reason: failed\r\n", NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    struct client_state end;
    assert_int_equal(follow(s, &options, &end), 0);
    assert_notes(&t.data, "one\r\ntwo\r");
    assert_notes(&t.positions, "1_4;1_8!;1_8!;1_9!;1_9!;");
    assert_true(end.closed);
    assert_string_equal(end.end_reason, "failed");
    assert_string_equal(end.next_offset, "1_9");
    assert_string_equal(end.content_type, "text/plain");
    assert_begins(s, 0, "GET /v1/stream/a?offset=-1");
    assert_begins(s, 1, "GET /v1/stream/a?offset=1_4");
    assert_begins(s, 2, "GET /v1/stream/a?offset=1_8&live=long-poll");
    assert_begins(s, 3, "GET /v1/stream/a?offset=1_8&live=long-poll&cursor=77");
    assert_begins(s, 4, "GET /v1/stream/a?offset=1_9&live=long-poll&cursor=78");
    notes_deinit(&t);
    script_free(s);
}

#define DATA(text)       "event: data\ndata:" text "\n\n"
#define CONTROL(members) "event: control\ndata:{" members "}\n\n"
#define AT(offset)       "\"streamNextOffset\":\"" offset "\",\"streamCursor\":\"5\""

static void follower_takes_json_by_sse(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_4") UP_TO_DATE, "[1,\n{\"a\": 2}]", WHOLE},
        {200, SSE,
         CONTROL(AT("1_4") ",\"upToDate\":true") ": heartbeat\n\n" DATA("[3]")
             CONTROL(AT("1_6") ",\"upToDate\":true"),
         TO_CLOSE},
        {200, SSE,
         DATA("[\"four\",[5]]") CONTROL("\"streamNextOffset\":\"1_9\",\"streamClosed\":true,"
                                        "\"endReason\":\"completed\"") DATA("[\"never\"]"),
         STUCK},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {.values = true};
    struct client_follow_options options = noting(&t);
    struct client_state end;
    assert_int_equal(follow(s, &options, &end), 0);
    assert_notes(&t.data, "1|{\"a\": 2}|3|\"four\"|[5]|");
    assert_notes(&t.positions, "1_4!;1_4!;1_6!;1_9!;");
    assert_string_equal(end.end_reason, "completed");
    assert_begins(s, 1, "GET /v1/stream/a?offset=1_4&live=sse");
    assert_begins(s, 2, "GET /v1/stream/a?offset=1_6&live=sse&cursor=5");
    notes_deinit(&t);
    script_free(s);
}

static void follower_decodes_binary(void **state)
{
    static const struct turn turns[] = {
        {200, BINARY NEXT("1_1") UP_TO_DATE, "a", WHOLE},
        {200, SSE BASE64,
         DATA("/+8=") CONTROL(AT("1_3")) DATA("YmNk\ndata:ZQ==")
             CONTROL(AT("1_7") ",\"streamClosed\":true"),
         TO_CLOSE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "a\xff\xef"
                          "bcde");
    notes_deinit(&t);
    script_free(s);
}

#define BINARY_HEAD                                                                                \
    {                                                                                              \
        200, BINARY NEXT("1_1") UP_TO_DATE, NULL, WHOLE                                            \
    }
#define JSON_HEAD                                                                                  \
    {                                                                                              \
        200, JSON NEXT("1_1") UP_TO_DATE, "[]", WHOLE                                              \
    }

static void follower_refuses_what_is_broken(void **state)
{
    static const struct {
        struct turn turns[2];
        int err;
    } cases[] = {
        {{BINARY_HEAD, {200, SSE BASE64, DATA("YQ"), TO_CLOSE}}, ERR_SYNTAX},
        {{BINARY_HEAD, {200, SSE BASE64, DATA("Y-=="), TO_CLOSE}}, ERR_SYNTAX},
        {{BINARY_HEAD, {200, SSE BASE64, CONTROL("\"upToDate\":true"), TO_CLOSE}}, ERR_SYNTAX},
        {{BINARY_HEAD, {200, SSE BASE64, "event: control\ndata:nonsense\n\n", TO_CLOSE}},
         ERR_SYNTAX},
        {{JSON_HEAD, {200, SSE, DATA("[1"), TO_CLOSE}}, ERR_JSON},
        {{JSON_HEAD, {200, SSE, DATA("{}"), TO_CLOSE}}, ERR_JSON},
        {{JSON_HEAD, {200, SSE, "event: gap\ndata:{}\n\n", TO_CLOSE}}, ERR_GAP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script *s = SCRIPT(cases[i].turns);
        struct notes t = {0};
        struct client_follow_options options = noting(&t);
        assert_int_equal(follow(s, &options, NULL), cases[i].err);
        notes_deinit(&t);
        script_free(s);
    }
}

/* Without the header the lines are bare text, and their ends are lost. */
static void follower_polls_where_sse_is_not_exact(void **state)
{
    static const struct turn turns[] = {
        {200, BINARY NEXT("1_1") UP_TO_DATE, "a", WHOLE},
        {200, SSE, DATA("b") CONTROL(AT("1_2")), TO_CLOSE},
        {200, BINARY NEXT("1_2") UP_TO_DATE CLOSED, "\r", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "a\r");
    assert_begins(s, 1, "GET /v1/stream/a?offset=1_1&live=sse");
    assert_begins(s, 2, "GET /v1/stream/a?offset=1_1&live=long-poll");
    notes_deinit(&t);
    script_free(s);
}

/* Half of an answer is handed over at once; the other half comes with the next one, which begins at
 * the same place, and may be cut into other pieces. */
static void follower_goes_on_in_the_middle_of_bytes(void **state)
{
    static const struct turn turns[] = {
        {200, TEXT NEXT("1_9") UP_TO_DATE, "abcde", CUT},
        {0, NULL, NULL, NO_ANSWER},
        {200, TEXT NEXT("1_9") UP_TO_DATE, NULL, HALF_HEAD},
        {200, TEXT NEXT("1_9") UP_TO_DATE, "abc", CUT},
        {200, TEXT NEXT("1_2"), "ab", WHOLE},
        {503, NULL, "later", WHOLE},
        {200, TEXT NEXT("1_9") UP_TO_DATE CLOSED, "cdefghi", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "abcdefghi");
    assert_notes(&t.positions, "1_2;1_9!;");
    assert_begins(s, 4, "GET /v1/stream/a?offset=-1");
    assert_begins(s, 6, "GET /v1/stream/a?offset=1_2");
    notes_deinit(&t);
    script_free(s);
}

static void follower_goes_on_in_the_middle_of_values(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_9") UP_TO_DATE, "[1, 2, 33", CUT},
        {200, JSON NEXT("1_9") UP_TO_DATE, "[1,2,333]", WHOLE},
        {200, SSE, DATA("[4,5]"), TO_CLOSE}, /* no control: the position is still the old one */
        {200, SSE, DATA("[4]") CONTROL(AT("1_11")) DATA("[5,6]"), TO_CLOSE},
        {200, SSE, DATA("[5,6,7]") CONTROL(AT("1_15") ",\"streamClosed\":true"), TO_CLOSE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {.values = true};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "1|2|333|4|5|6|7|");
    assert_begins(s, 3, "GET /v1/stream/a?offset=1_9&live=sse");
    assert_begins(s, 4, "GET /v1/stream/a?offset=1_11&live=sse&cursor=5");
    notes_deinit(&t);
    script_free(s);
}

static void follower_starts_and_stops_where_told(void **state)
{
    static const struct turn turns[] = {
        {200, TEXT NEXT("1_4") UP_TO_DATE, NULL, WHOLE},
    };
    static const struct turn open_end[] = {
        {200, TEXT NEXT("1_4"), "abcd", WHOLE},
        {200, TEXT NEXT("1_4"), NULL, WHOLE}, /* nothing more, though it does not say so */
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    options.from = "now";
    options.stop_at_tail = true;
    struct client_state end;
    assert_int_equal(follow(s, &options, &end), 0);
    assert_string_equal(end.next_offset, "1_4");
    assert_false(end.closed);
    assert_begins(s, 0, "GET /v1/stream/a?offset=now");
    script_free(s);
    s = SCRIPT(open_end);
    options.from = "1_&0";
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "abcd");
    assert_begins(s, 0, "GET /v1/stream/a?offset=1_%260");
    notes_deinit(&t);
    script_free(s);
}

#define GAP                                                                                        \
    "{\"gap\":{\"requested\":\"1_2\",\"earliest\":\"1_5\",\"reason\":\"trimmed\","                 \
    "\"snapshot\":null}}"

static void follower_reports_gaps(void **state)
{
    static const struct turn turns[] = {
        {410, JSON, GAP, WHOLE},
        {200, JSON NEXT("1_6") UP_TO_DATE, "[1]", WHOLE},
        {200, SSE, DATA("[2]") "event: gap\ndata:" GAP "\n\n" DATA("[3]"), STUCK},
        {200, JSON NEXT("1_6") UP_TO_DATE CLOSED, "[4]", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {.values = true};
    struct client_follow_options options = noting(&t);
    options.from = "1_2";
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.gaps, "1_2,1_5,trimmed,none;1_2,1_5,trimmed,none;");
    assert_notes(&t.data, "1|2|4|");
    assert_begins(s, 1, "GET /v1/stream/a?offset=1_5");
    assert_begins(s, 3, "GET /v1/stream/a?offset=1_5");
    notes_deinit(&t);
    script_free(s);
}

static void follower_ends_at_a_gap_unless_told_otherwise(void **state)
{
    static const struct turn gap[] = {{410, JSON, GAP, WHOLE}};
    struct script *s = SCRIPT(gap);
    struct notes t = {.gap = 1};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), ERR_CANCELLED);
    script_free(s);
    s = SCRIPT(gap);
    options.gap = NULL;
    assert_int_equal(follow(s, &options, NULL), ERR_GAP);
    script_free(s);
    s = SCRIPT(gap);
    t.gap = 0;
    options.gap = note_gap;
    options.from = "1_5"; /* which is what the server calls readable */
    assert_int_equal(follow(s, &options, NULL), ERR_GAP);
    notes_deinit(&t);
    script_free(s);
}

/* A session's stream whose key is not there: who follows waits, who wants what there is does not.
 */
static void follower_waits_for_a_key_if_it_follows(void **state)
{
    static const struct turn turns[] = {
        {503, NULL, "{\"error\":{\"code\":\"key-absent\",\"message\":\"sealed\"}}", WHOLE},
        {200, JSON NEXT("1_9") CLOSED UP_TO_DATE, "[7]", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    assert_int_equal(follow(s, &options, NULL), 0);
    assert_notes(&t.data, "7");
    script_free(s);
    s = script_start(turns, 1);
    options.stop_at_tail = true;
    assert_int_equal(follow(s, &options, NULL), ERR_KEY_ABSENT);
    notes_deinit(&t);
    script_free(s);
}

static void follower_reports_what_no_retry_mends(void **state)
{
    static const struct {
        struct turn turn;
        int err;
    } cases[] = {
        {{404, NULL, NULL, WHOLE}, ERR_NOT_FOUND},
        {{410, NULL, "gone", WHOLE}, ERR_DELETED},
        {{400, NULL, "bad offset", WHOLE}, ERR_OFFSET},
        {{200, TEXT, "no offset", WHOLE}, ERR_SYNTAX},
        {{200, TEXT NEXT("1_9"), "where does it end?", TO_CLOSE}, ERR_SYNTAX},
        {{200, JSON NEXT("1_1"), "[1", WHOLE}, ERR_JSON},
        {{200, JSON NEXT("1_1"), "{}", WHOLE}, ERR_JSON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script *s = script_start(&cases[i].turn, 1);
        struct notes t = {0};
        struct client_follow_options options = noting(&t);
        assert_int_equal(follow(s, &options, NULL), cases[i].err);
        notes_deinit(&t);
        script_free(s);
    }
}

static void follower_gives_up_when_told_to(void **state)
{
    static const struct turn turns[] = {
        {503, "Retry-After: 3600\r\n", NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    options.retry_for_ms = 60000;
    assert_int_equal(follow(s, &options, NULL), ERR_BUSY);
    notes_deinit(&t);
    script_free(s);
}

/* Values above the limit are refused before they are stored. */
static void follower_bounds_values(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_4") UP_TO_DATE, "[1234567]", WHOLE},
        {200, SSE, DATA("[12345678]"), STUCK},
    };
    struct script *s = SCRIPT(turns);
    struct client_options limits = {.value_max = 12};
    struct client *c;
    assert_int_equal(client_new(s->url, &limits, &c), 0);
    struct notes t = {0};
    struct client_follow_options options = noting(&t);
    struct client_follower *f = client_follower_new(c, "a", &options);
    assert_int_equal(client_follower_run(f), ERR_TOO_LARGE);
    assert_notes(&t.data, "1234567");
    client_follower_free(f);
    client_free(c);
    script_end(s);
    notes_deinit(&t);
    script_free(s);
}

static void follower_can_be_stopped_and_run_again(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_9") UP_TO_DATE CLOSED, "[1,2,3]", STUCK},
        {200, JSON NEXT("1_9") UP_TO_DATE CLOSED, "[1,2,3]", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct notes t = {.values = true, .end = "2"};
    struct client_follow_options options = noting(&t);
    struct client_follower *f = client_follower_new(c, "a", &options);
    assert_int_equal(client_follower_run(f), ERR_CANCELLED);
    assert_notes(&t.data, "1|2|");
    assert_int_equal(client_follower_run(f), 0);
    assert_notes(&t.data, "1|2|3|");
    client_follower_free(f);
    client_free(c);
    script_end(s);
    notes_deinit(&t);
    script_free(s);
}

/* -- the watched descriptor ------------------------------------------------------------------- */

/* A pipe whose reader goes away when a callback says so. */
struct watched {
    int ends[2];
    size_t positions;
};

static void lose_reader(struct watched *w)
{
    close(w->ends[0]);
    w->ends[0] = -1;
}

static int ignore_data(void *user, const void *data, size_t n)
{
    return 0;
}

static int lose_reader_when_live(void *user, const char *next, bool up_to_date)
{
    struct watched *w = user;
    if (++w->positions == 2)
        lose_reader(w);
    return 0;
}

static void lose_reader_at_notice(void *user, const char *text)
{
    assert_non_null(strstr(text, "trying again"));
    lose_reader(user);
}

static void assert_watched_ends(const struct turn *turns, size_t n)
{
    struct script *s = script_start(turns, n);
    struct watched w = {0};
    assert_int_equal(pipe(w.ends), 0);
    struct client_options options = {.user = &w, .notice = lose_reader_at_notice};
    struct client *c;
    assert_int_equal(client_new(s->url, &options, &c), 0);
    client_watch(c, w.ends[1]);
    struct client_follow_options follow_options = {
        .user = &w, .data = ignore_data, .position = lose_reader_when_live};
    struct client_follower *f = client_follower_new(c, "a", &follow_options);
    assert_int_equal(client_follower_run(f), ERR_CANCELLED);
    assert_int_equal(w.ends[0], -1);
    client_follower_free(f);
    client_free(c);
    close(w.ends[1]);
    script_end(s);
    script_free(s);
}

static void watched_descriptor_ends_a_wait_for_data(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_4") UP_TO_DATE, "[1]", WHOLE},
        {200, SSE, CONTROL(AT("1_4")), STUCK},
    };
    assert_watched_ends(turns, 2);
}

static void watched_descriptor_ends_a_wait_between_retries(void **state)
{
    static const struct turn turns[] = {
        {503, "Retry-After: 3600\r\n", NULL, WHOLE},
    };
    assert_watched_ends(turns, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follower_polls_text),
        cmocka_unit_test(follower_takes_json_by_sse),
        cmocka_unit_test(follower_decodes_binary),
        cmocka_unit_test(follower_refuses_what_is_broken),
        cmocka_unit_test(follower_polls_where_sse_is_not_exact),
        cmocka_unit_test(follower_goes_on_in_the_middle_of_bytes),
        cmocka_unit_test(follower_goes_on_in_the_middle_of_values),
        cmocka_unit_test(follower_starts_and_stops_where_told),
        cmocka_unit_test(follower_reports_gaps),
        cmocka_unit_test(follower_ends_at_a_gap_unless_told_otherwise),
        cmocka_unit_test(follower_waits_for_a_key_if_it_follows),
        cmocka_unit_test(follower_reports_what_no_retry_mends),
        cmocka_unit_test(follower_gives_up_when_told_to),
        cmocka_unit_test(follower_bounds_values),
        cmocka_unit_test(follower_can_be_stopped_and_run_again),
        cmocka_unit_test(watched_descriptor_ends_a_wait_for_data),
        cmocka_unit_test(watched_descriptor_ends_a_wait_between_retries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
