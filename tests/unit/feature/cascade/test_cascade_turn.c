// SPDX-License-Identifier: Apache-2.0
/* Turns under a clock that the test moves: each poll comes when the turn asked for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/cascade/cascade_transcript.h"
#include "feature/cascade/cascade_turn.h"
#include "model/seeds.h"

#include <stdio.h>
#include <stdlib.h>

#define USER         "=== MESSAGE 0 - User ===\nhi\n\n"
#define ASSISTANT(n) "=== MESSAGE " #n " - Assistant ===\n"
#define TOOL(n)      "=== MESSAGE " #n " - Tool ===\n"
#define SYSTEM(n)    "=== MESSAGE " #n " - System ===\n"
#define CHECKPOINT   "[CORTEX_STEP_TYPE_CHECKPOINT]\n\n"

/* ---- a turn that is polled ---- */

struct world {
    struct cascade_turn *turn;
    struct cascade_turn_step step;
    uint64_t now_ms;
    struct buf said; /* since the last assert_said */
};

static void begin_with(struct world *w, const struct cascade_turn_rules *rules)
{
    *w = (struct world){.now_ms = 1000000};
    w->turn = cascade_turn_new(rules, w->now_ms);
    w->step.wait_ms = cascade_turn_first_wait_ms(w->turn);
}

static void begin(struct world *w)
{
    begin_with(w, &cascade_turn_defaults);
}

static void end(struct world *w)
{
    cascade_turn_free(w->turn);
    buf_deinit(&w->said);
}

/* `+1 text` is a delta, `/1 text` one that stands apart, `=1 text` a rewrite. */
static void note(struct world *w)
{
    for (size_t i = 0; i < w->step.n_events; i++) {
        const struct cascade_turn_event *e = &w->step.events[i];
        buf_printf(&w->said, "%c%llu %.*s;",
                   e->kind == CASCADE_REWRITE ? '='
                   : e->apart                 ? '/'
                                              : '+',
                   (unsigned long long)e->index, (int)e->text.n, e->text.p);
    }
}

static enum cascade_turn_state poll(struct world *w, const char *text, uint64_t steps)
{
    w->now_ms += w->step.wait_ms;
    cascade_turn_polled(w->turn, w->now_ms, str_of_cstr(text), steps, &w->step);
    note(w);
    return w->step.state;
}

static enum cascade_turn_state fail_poll(struct world *w)
{
    w->now_ms += w->step.wait_ms;
    cascade_turn_poll_failed(w->turn, w->now_ms, &w->step);
    assert_int_equal(w->step.n_events, 0);
    return w->step.state;
}

static void assert_said(struct world *w, const char *want)
{
    buf_putc(&w->said, '\0');
    assert_string_equal(w->said.p, want);
    w->said.n = 0;
}

static void assert_going(enum cascade_turn_state state)
{
    assert_int_equal(state, CASCADE_TURN_GOING);
}

/* Polls the same until it is over; how long that took. */
static uint64_t poll_to_end(struct world *w, const char *text, uint64_t steps)
{
    uint64_t start = w->now_ms;
    for (int i = 0; i < 10000; i++)
        if (poll(w, text, steps) != CASCADE_TURN_GOING)
            return w->now_ms - start;
    fail_msg("it never ends");
    return 0;
}

/* ---- text ---- */

static void text_grows_in_place(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER, 1));
    assert_said(&w, "");
    assert_going(poll(&w, USER ASSISTANT(1) "Hel", 2));
    assert_said(&w, "+1 Hel;");
    assert_going(poll(&w, USER ASSISTANT(1) "Hello \n\n", 2));
    assert_said(&w, "+1 lo;"); /* white space at the end waits for what follows */
    assert_going(poll(&w, USER ASSISTANT(1) "Hello \n\nworld\n\n", 2));
    assert_said(&w, "+1  \n\nworld;");
    assert_going(poll(&w, USER ASSISTANT(1) "Hello \n\nworld\n\n", 2));
    assert_said(&w, "");
    end(&w);
}

static void another_message_stands_apart(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER ASSISTANT(1) "a\n" TOOL(2) "x\n" ASSISTANT(3) "b\n", 4));
    assert_said(&w, "+1 a;/3 b;");
    assert_going(poll(&w, USER ASSISTANT(1) "a\n" TOOL(2) "x\n" ASSISTANT(3) "bc\n", 4));
    assert_said(&w, "+3 c;");
    assert_going(poll(&w, USER ASSISTANT(1) "aa\n" TOOL(2) "x\n" ASSISTANT(3) "bcd\n", 4));
    assert_said(&w, "/1 a;/3 d;");
    end(&w);
}

static void indices_count_and_not_places(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER ASSISTANT(7) "seven\n" ASSISTANT(3) "three\n", 2));
    assert_said(&w, "+3 three;/7 seven;");
    /* A smaller one comes later, and others change places. */
    assert_going(poll(&w, ASSISTANT(3) "three\n" ASSISTANT(7) "seven!\n" ASSISTANT(1) "one", 3));
    assert_said(&w, "/1 one;/7 !;");
    end(&w);
}

static void a_rewrite_is_said(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "the secret is 42", 1));
    assert_going(poll(&w, ASSISTANT(1) "the secret is gone", 1));
    assert_said(&w, "+1 the secret is 42;=1 the secret is gone;");
    /* It grows on from the new text. */
    assert_going(poll(&w, ASSISTANT(1) "the secret is gone, sorry", 1));
    assert_said(&w, "+1 , sorry;");
    /* Shorter, longer without the old beginning, of the same length, nothing at all. */
    assert_going(poll(&w, ASSISTANT(1) "the", 1));
    assert_said(&w, "=1 the;");
    assert_going(poll(&w, ASSISTANT(1) "another text that is longer", 1));
    assert_said(&w, "=1 another text that is longer;");
    assert_going(poll(&w, ASSISTANT(1) "another text that is LONGER", 1));
    assert_said(&w, "=1 another text that is LONGER;");
    assert_going(poll(&w, ASSISTANT(1) "", 1));
    assert_said(&w, "=1 ;");
    assert_going(poll(&w, ASSISTANT(1) "anew", 1));
    assert_said(&w, "+1 anew;");
    end(&w);
}

static void a_rewrite_of_an_earlier_message_leaves_the_others(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "one\n" ASSISTANT(2) "two", 1));
    assert_going(poll(&w, ASSISTANT(1) "uno\n" ASSISTANT(2) "two and", 1));
    assert_said(&w, "+1 one;/2 two;=1 uno;+2  and;");
    end(&w);
}

static void a_message_that_is_missing_is_left_alone(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "one\n" ASSISTANT(2) "two", 1));
    assert_going(poll(&w, "", 1));
    assert_going(poll(&w, ASSISTANT(2) "two", 1));
    assert_going(poll(&w, ASSISTANT(1) "one\n" ASSISTANT(2) "two", 1));
    assert_said(&w, "+1 one;/2 two;");
    assert_going(poll(&w, ASSISTANT(1) "one.\n" ASSISTANT(2) "two", 1));
    assert_said(&w, "/1 .;");
    end(&w);
}

/* A body that quotes a header of its own index would flap between its halves otherwise. */
static void parts_of_one_index_are_one_message(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "it says", 1));
    assert_going(poll(&w, ASSISTANT(1) "it says\n" TOOL(2) "x\n" ASSISTANT(1) "hi", 1));
    assert_going(poll(&w, ASSISTANT(1) "it says\n" TOOL(2) "x\n" ASSISTANT(1) "hi there", 1));
    assert_going(poll(&w, ASSISTANT(1) "it says\n" TOOL(2) "x\n" ASSISTANT(1) "hi there", 1));
    assert_said(&w, "+1 it says;+1 \n\nhi;+1  there;");
    end(&w);
}

static void only_the_assistant_is_heard(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER TOOL(1) "t\n" SYSTEM(2) "s\n=== MESSAGE 3 - assistant ===\nx", 4));
    assert_said(&w, "");
    end(&w);
}

static void lines_may_end_with_cr_lf(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, "=== MESSAGE 1 - Assistant ===\r\na\r\nb\r\n", 1));
    assert_going(poll(&w, ASSISTANT(1) "a\nb\nc", 1));
    assert_said(&w, "+1 a\nb;+1 \nc;");
    end(&w);
}

/* ---- the end ---- */

static void a_checkpoint_and_quiet_end_it(void **state)
{
    static const char done[] = USER ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT;
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER ASSISTANT(1) "po", 2));
    assert_going(poll(&w, done, 3)); /* not by the checkpoint alone */
    uint64_t took = poll_to_end(&w, done, 3);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    assert_in_range(took, cascade_turn_defaults.quiet_ms, 2 * cascade_turn_defaults.quiet_ms);
    assert_said(&w, "+1 po;+1 ng;");
    end(&w);
}

/* Four polls must be steady, however slow they are. */
static void quiet_is_polls_and_time(void **state)
{
    static const char done[] = ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT;
    struct world w;
    begin(&w);
    assert_going(poll(&w, done, 2));
    for (int i = 1; i <= 4; i++) {
        w.now_ms += 10 * SECOND_MS;
        assert_int_equal(poll(&w, done, 2), i < 4 ? CASCADE_TURN_GOING : CASCADE_TURN_ENDED);
    }
    end(&w);
    struct cascade_turn_rules rules = cascade_turn_defaults;
    rules.steady_polls = 1;
    begin_with(&w, &rules);
    assert_going(poll(&w, done, 2));
    assert_true(poll_to_end(&w, done, 2) >= rules.quiet_ms);
    end(&w);
}

static void any_change_starts_the_quiet_anew(void **state)
{
    static const char done[] = ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT;
    static const char rewritten[] = ASSISTANT(1) "ping\n\n" TOOL(2) CHECKPOINT;
    struct world w;
    begin(&w);
    assert_going(poll(&w, done, 2));
    for (uint64_t i = 0; i < 30; i++)
        assert_going(poll(&w, done, 3 + i / 3)); /* steps */
    for (uint64_t i = 0; i < 30; i++)
        assert_going(poll(&w, i / 3 % 2 ? done : rewritten, 12)); /* a text that is another */
    for (uint64_t i = 0; i < 3; i++) {
        assert_going(poll(&w, rewritten, 12));
        assert_going(fail_poll(&w)); /* whoever did not see it does not know */
        assert_going(poll(&w, rewritten, 12));
        assert_going(poll(&w, rewritten, 12));
    }
    poll_to_end(&w, rewritten, 12);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    end(&w);
}

static void a_rewrite_after_the_checkpoint_is_not_missed(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT, 2));
    assert_going(poll(&w, ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT, 2));
    assert_going(poll(&w, ASSISTANT(1) "PONG\n\n" TOOL(2) CHECKPOINT, 2));
    poll_to_end(&w, ASSISTANT(1) "PONG\n\n" TOOL(2) CHECKPOINT, 2);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    assert_said(&w, "+1 pong;=1 PONG;");
    end(&w);
}

static void a_turn_may_be_of_tools_alone(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER TOOL(1) "[CORTEX_STEP_TYPE_MEMORY]\n", 2));
    uint64_t took = poll_to_end(&w, USER TOOL(1) "done: " CHECKPOINT, 3);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    assert_true(took < 2 * cascade_turn_defaults.quiet_ms);
    assert_said(&w, "");
    end(&w);
}

/* Tools that come before the planner has begun are no answer, and quiet is none either. */
static void tools_without_a_checkpoint_do_not_end_it(void **state)
{
    static const char start[] =
        USER TOOL(1) "[CORTEX_STEP_TYPE_RETRIEVE_MEMORY]\n" TOOL(2) "[CORTEX_STEP_TYPE_MEMORY]\n";
    struct world w;
    begin(&w);
    uint64_t took = poll_to_end(&w, start, 3);
    assert_int_equal(w.step.state, CASCADE_TURN_TIMED_OUT);
    assert_in_range(took, cascade_turn_defaults.timeout_ms,
                    cascade_turn_defaults.timeout_ms + cascade_turn_defaults.slow_ms);
    end(&w);
}

/* Only a Tool can say that it is the end. */
static void others_may_speak_of_checkpoints(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER ASSISTANT(1) CHECKPOINT, 2));
    for (uint64_t waited = 0; waited < 2 * cascade_turn_defaults.quiet_ms; waited += w.step.wait_ms)
        assert_going(poll(&w, USER ASSISTANT(1) CHECKPOINT, 2));
    end(&w);
}

/* A slow tool behind some text: all stands still for as long as the tool takes. */
static void a_slow_planner_is_waited_for(void **state)
{
    static const char looking[] = USER ASSISTANT(1) "let me look\n\n" TOOL(2) "[RUN]\n\n";
    struct world w;
    begin(&w);
    uint64_t start = w.now_ms;
    while (w.now_ms - start < 4 * MINUTE_MS)
        assert_going(poll(&w, looking, 3));
    static const char found[] =
        USER ASSISTANT(1) "let me look\n\n" TOOL(2) "[RUN]\n\n" ASSISTANT(3) "found\n\n" TOOL(4)
            CHECKPOINT;
    assert_going(poll(&w, found, 5));
    poll_to_end(&w, found, 5);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    assert_said(&w, "+1 let me look;/3 found;");
    end(&w);
}

/* What may be half an answer is never given as a whole one. */
static void text_without_a_checkpoint_times_out(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER ASSISTANT(1) "pong", 2));
    uint64_t took = poll_to_end(&w, USER ASSISTANT(1) "pong", 2);
    assert_int_equal(w.step.state, CASCADE_TURN_TIMED_OUT);
    assert_in_range(took, cascade_turn_defaults.timeout_ms - cascade_turn_defaults.fast_ms,
                    cascade_turn_defaults.timeout_ms + cascade_turn_defaults.slow_ms);
    assert_said(&w, "+1 pong;");
    end(&w);
}

/* A reader that is slow for longer than an answer may take does not make it fail. */
static void the_time_that_it_is_held_does_not_count(void **state)
{
    static const char all[] = USER ASSISTANT(1) "pong\n\n" TOOL(2) CHECKPOINT;
    struct world w;
    begin(&w);
    for (int i = 0; i < 3; i++) {
        assert_going(poll(&w, all, 3));
        cascade_turn_held(w.turn, cascade_turn_defaults.timeout_ms);
        w.now_ms += cascade_turn_defaults.timeout_ms;
    }
    assert_going(poll(&w, all, 3)); /* it is no quiet either */
    poll_to_end(&w, all, 3);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    end(&w);
}

/* ---- errors ---- */

static void the_system_may_refuse(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER SYSTEM(1) "you are kind\n" ASSISTANT(2) "a", 3));
    assert_int_equal(poll(&w,
                          USER SYSTEM(1) "you are kind\n" ASSISTANT(2) "ab\n" SYSTEM(
                              3) "failed_precondition: update your editor\n",
                          4),
                     CASCADE_TURN_FAILED);
    assert_int_equal(w.step.error.code, GRPC_FAILED_PRECONDITION);
    assert_true(str_eq(w.step.error.text, STR("update your editor")));
    assert_said(&w, "+2 a;+2 b;"); /* what came with it is not lost */
    end(&w);
}

static void only_the_system_can_refuse(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, "=== MESSAGE 0 - User ===\ninternal: x\n" ASSISTANT(1) "internal: y", 2));
    assert_said(&w, "+1 internal: y;");
    end(&w);
}

static void a_long_refusal_is_cut_between_characters(void **state)
{
    struct world w;
    struct buf text = {0};
    begin(&w);
    buf_put(&text, STR(SYSTEM(0) "internal: a"));
    for (int i = 0; i < 5000; i++)
        buf_put(&text, STR("\xc3\xa4"));
    buf_putc(&text, '\0');
    assert_int_equal(poll(&w, text.p, 1), CASCADE_TURN_FAILED);
    assert_int_equal(w.step.error.text.n, 4095);
    buf_deinit(&text);
    end(&w);
}

/* ---- failing polls ---- */

static void three_failures_in_a_row_lose_it(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, USER, 1));
    assert_going(fail_poll(&w));
    assert_going(fail_poll(&w));
    assert_going(poll(&w, USER, 1));
    assert_going(fail_poll(&w));
    assert_going(fail_poll(&w));
    assert_int_equal(fail_poll(&w), CASCADE_TURN_LOST);
    end(&w);
}

static void five_failures_among_fifteen_lose_it(void **state)
{
    struct world w;
    begin(&w);
    for (int i = 0; i < 4; i++) { /* 1, 4, 7 and 10 fail */
        assert_going(fail_poll(&w));
        assert_going(poll(&w, USER, 1));
        assert_going(poll(&w, USER, 1));
    }
    assert_int_equal(fail_poll(&w), CASCADE_TURN_LOST); /* the 13th */
    end(&w);
    begin(&w);
    for (int i = 0; i < 30; i++) { /* every fourth: four at most among fifteen */
        assert_going(fail_poll(&w));
        for (int k = 0; k < 3; k++)
            assert_going(poll(&w, USER, 1));
    }
    end(&w);
}

static void what_was_sent_outlives_failures(void **state)
{
    struct world w;
    begin(&w);
    assert_going(poll(&w, ASSISTANT(1) "a", 1));
    assert_going(fail_poll(&w));
    assert_going(poll(&w, ASSISTANT(1) "ab", 1));
    assert_said(&w, "+1 a;+1 b;");
    end(&w);
}

/* ---- the interval ---- */

static void polls_are_fast_while_text_grows(void **state)
{
    const struct cascade_turn_rules *r = &cascade_turn_defaults;
    struct world w;
    char text[128] = ASSISTANT(1);
    begin(&w);
    assert_int_equal(w.step.wait_ms, r->fast_ms); /* before the first one, too */
    for (int i = 0; i < 20; i++) {
        strcat(text, "x");
        assert_going(poll(&w, text, 1));
        assert_int_equal(w.step.wait_ms, r->fast_ms);
    }
    uint64_t last = w.step.wait_ms;
    while (last < r->slow_ms) {
        assert_going(poll(&w, text, 1));
        assert_true(w.step.wait_ms > last && w.step.wait_ms <= r->slow_ms);
        last = w.step.wait_ms;
    }
    assert_going(poll(&w, text, 1));
    assert_int_equal(w.step.wait_ms, r->slow_ms);
    assert_going(poll(&w, text, 2)); /* a step is a sign of life */
    assert_int_equal(w.step.wait_ms, r->fast_ms);
    end(&w);
}

static void the_end_is_not_waited_for_slowly(void **state)
{
    struct world w;
    begin(&w);
    for (int i = 0; i < 10; i++)
        assert_going(poll(&w, USER, 1));
    assert_int_equal(w.step.wait_ms, cascade_turn_defaults.slow_ms);
    while (poll(&w, USER TOOL(1) CHECKPOINT, 1) == CASCADE_TURN_GOING)
        assert_true(w.step.wait_ms <= cascade_turn_defaults.checkpoint_ms);
    assert_int_equal(w.step.state, CASCADE_TURN_ENDED);
    end(&w);
}

static void failures_back_off(void **state)
{
    struct cascade_turn_rules rules = cascade_turn_defaults;
    struct world w;
    rules.failures_max = rules.recent_max = 100;
    begin_with(&w, &rules);
    uint64_t last = w.step.wait_ms;
    while (last < rules.failed_ms) {
        assert_going(fail_poll(&w));
        assert_true(w.step.wait_ms > last && w.step.wait_ms <= rules.failed_ms);
        last = w.step.wait_ms;
    }
    assert_going(fail_poll(&w));
    assert_int_equal(w.step.wait_ms, rules.failed_ms);
    assert_going(poll(&w, "", 0)); /* nothing new: back to what is slow */
    assert_int_equal(w.step.wait_ms, rules.slow_ms);
    assert_going(fail_poll(&w));
    assert_going(poll(&w, ASSISTANT(1) "x", 0));
    assert_int_equal(w.step.wait_ms, rules.fast_ms);
    end(&w);
}

/* ---- bounds ---- */

static void a_turn_has_its_time(void **state)
{
    struct world w;
    char text[4096] = ASSISTANT(1);
    begin(&w);
    uint64_t start = w.now_ms;
    while (poll(&w, text, 1) == CASCADE_TURN_GOING)
        if (strlen(text) < sizeof text - 1)
            strcat(text, "x"); /* however lively it is */
    assert_int_equal(w.step.state, CASCADE_TURN_TIMED_OUT);
    assert_in_range(w.now_ms - start, cascade_turn_defaults.timeout_ms,
                    cascade_turn_defaults.timeout_ms + cascade_turn_defaults.fast_ms);
    assert_int_equal(w.step.n_events, 1);
    end(&w);
    begin(&w);
    w.now_ms += cascade_turn_defaults.timeout_ms;
    assert_int_equal(fail_poll(&w), CASCADE_TURN_TIMED_OUT);
    end(&w);
}

static void a_transcript_is_bounded(void **state)
{
    struct world w;
    struct buf text = {0};
    begin(&w);
    memset(buf_reserve(&text, CASCADE_TRANSCRIPT_MAX + 2), 'x', CASCADE_TRANSCRIPT_MAX + 1);
    text.p[CASCADE_TRANSCRIPT_MAX] = '\0';
    assert_going(poll(&w, text.p, 1));
    text.p[CASCADE_TRANSCRIPT_MAX] = 'x';
    text.p[CASCADE_TRANSCRIPT_MAX + 1] = '\0';
    assert_int_equal(poll(&w, text.p, 1), CASCADE_TURN_TOO_LARGE);
    buf_deinit(&text);
    end(&w);
}

static void put_messages(struct buf *out, size_t from, size_t n)
{
    out->n = 0;
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "=== MESSAGE %zu - Assistant ===\nx\n", from + i);
    buf_putc(out, '\0');
}

static void messages_are_counted(void **state)
{
    struct world w;
    struct buf text = {0};
    begin(&w);
    put_messages(&text, 0, CASCADE_TURN_MESSAGES_MAX);
    assert_going(poll(&w, text.p, 1));
    assert_int_equal(w.step.n_events, CASCADE_TURN_MESSAGES_MAX);
    put_messages(&text, 1, CASCADE_TURN_MESSAGES_MAX); /* one that is new */
    assert_int_equal(poll(&w, text.p, 1), CASCADE_TURN_TOO_LARGE);
    end(&w);
    begin(&w);
    put_messages(&text, 0, CASCADE_TURN_MESSAGES_MAX + 1);
    assert_int_equal(poll(&w, text.p, 1), CASCADE_TURN_TOO_LARGE);
    assert_int_equal(w.step.n_events, 0);
    buf_deinit(&text);
    end(&w);
}

/* Messages that vanish are remembered, so that their texts are bounded together. */
static void texts_are_bounded_together(void **state)
{
    struct world w;
    struct buf text = {0};
    size_t body = 12 << 20;
    begin(&w);
    for (int i = 0; i < 3; i++) {
        text.n = 0;
        buf_printf(&text, "=== MESSAGE %d - Assistant ===\n", i);
        memset(buf_reserve(&text, body), 'x', body);
        text.n += body;
        buf_putc(&text, '\0');
        w.now_ms += w.step.wait_ms;
        cascade_turn_polled(w.turn, w.now_ms, str_of(text.p, text.n - 1), 1, &w.step);
        assert_int_equal(w.step.state, i < 2 ? CASCADE_TURN_GOING : CASCADE_TURN_TOO_LARGE);
        assert_int_equal(w.step.n_events, i < 2);
    }
    buf_deinit(&text);
    end(&w);
}

/* ---- whatever happens ---- */

#define MESSAGES 6

/* What a language server does to its transcript, and what a reader makes of the events. */
struct script {
    struct rng *rng;
    uint64_t indices[MESSAGES];
    struct buf texts[MESSAGES]; /* as the server has them */
    struct buf folded[MESSAGES];
    size_t n;
    uint64_t steps;
    bool any;
    uint64_t last_index;
};

static void put_word(struct rng *rng, struct buf *out)
{
    static const char *const words[] = {
        "a",    "b", "ab",           " ",          "\n", "\n\n", "ä", "\t x",
        "日本", "=", "=== MESSAGE ", "failed_x: ", "\r", "0"};
    for (uint64_t n = rng_between(rng, 1, 4); n > 0; n--)
        buf_put(out, str_of_cstr(words[rng_below(rng, sizeof words / sizeof *words)]));
}

static void change(struct script *s)
{
    if (s->n < MESSAGES && (s->n == 0 || rng_one_in(s->rng, 6))) {
        s->indices[s->n] = (s->n * 7 + 3) % 10; /* 3 0 7 4 1 8: in no order */
        s->n++;
    }
    struct buf *text = &s->texts[rng_below(s->rng, s->n)];
    if (rng_one_in(s->rng, 5))
        text->n = rng_below(s->rng, text->n + 1); /* cut; may be within a character */
    while (text->n > 0 && ((uint8_t)text->p[text->n - 1] & 0x80))
        text->n--;
    if (rng_one_in(s->rng, 10) && text->n > 0)
        text->p[rng_below(s->rng, text->n)] = '#';
    put_word(s->rng, text);
    s->steps += rng_one_in(s->rng, 3);
}

static void print(const struct script *s, struct buf *out)
{
    size_t first = rng_below(s->rng, s->n);
    bool crlf = rng_one_in(s->rng, 4);
    buf_put(out, STR("=== MESSAGE 99 - User ===\nhi\n\n"));
    for (size_t i = 0; i < s->n; i++) {
        size_t k = (first + i) % s->n;
        buf_printf(out, "=== MESSAGE %llu - Assistant ===%s", (unsigned long long)s->indices[k],
                   crlf ? "\r\n" : "\n");
        buf_put(out, buf_str(&s->texts[k]));
        buf_put(out, crlf ? STR("\r\n\r\n") : STR("\n\n"));
    }
}

static void fold(struct script *s, const struct cascade_turn_event *e)
{
    size_t k = 0;
    while (k < s->n && s->indices[k] != e->index)
        k++;
    assert_true(k < s->n);
    if (e->kind == CASCADE_REWRITE) {
        assert_false(str_eq(e->text, buf_str(&s->folded[k])));
        s->folded[k].n = 0;
    } else {
        assert_true(e->text.n > 0);
        assert_int_equal(e->apart, s->any && s->last_index != e->index);
        s->any = true;
        s->last_index = e->index;
    }
    buf_put(&s->folded[k], e->text);
}

/* As a line's end is \r\n or \n, the server's text is what a reader may find. */
static void put_readable(struct buf *out, struct str text)
{
    static const char spaces[] = " \t\n\v\f\r";
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '\r' || i + 1 == text.n || text.p[i + 1] != '\n')
            buf_putc(out, text.p[i]);
    size_t start = 0;
    while (start < out->n && strchr(spaces, out->p[start]) != NULL)
        start++;
    while (out->n > start && strchr(spaces, out->p[out->n - 1]) != NULL)
        out->n--;
    if (start > 0)
        memmove(out->p, out->p + start, out->n - start);
    out->n -= start;
}

static void assert_folded(const struct script *s)
{
    for (size_t k = 0; k < s->n; k++) {
        struct buf want = {0};
        put_readable(&want, buf_str(&s->texts[k]));
        assert_true(str_eq(buf_str(&s->folded[k]), buf_str(&want)));
        buf_deinit(&want);
    }
}

static void run_script(struct rng *rng)
{
    struct cascade_turn_rules rules = cascade_turn_defaults;
    struct script s = {.rng = rng};
    struct world w;
    struct buf text = {0};
    rules.timeout_ms = DAY_MS;
    begin_with(&w, &rules);
    for (int polls = 0; polls < 40; polls++) {
        for (uint64_t n = rng_below(rng, 4); n > 0 || s.n == 0; n -= n > 0)
            change(&s);
        if (rng_one_in(rng, 10)) {
            assert_true(fail_poll(&w) != CASCADE_TURN_ENDED);
            if (w.step.state == CASCADE_TURN_LOST)
                break;
            assert_in_range(w.step.wait_ms, rules.fast_ms, rules.failed_ms);
            continue;
        }
        text.n = 0;
        print(&s, &text);
        w.now_ms += w.step.wait_ms;
        cascade_turn_polled(w.turn, w.now_ms, buf_str(&text), s.steps, &w.step);
        for (size_t i = 0; i < w.step.n_events; i++)
            fold(&s, &w.step.events[i]);
        assert_folded(&s);
        assert_int_equal(w.step.state, CASCADE_TURN_GOING);
        assert_in_range(w.step.wait_ms, rules.fast_ms, rules.slow_ms);
    }
    for (size_t k = 0; k < MESSAGES; k++) {
        buf_deinit(&s.texts[k]);
        buf_deinit(&s.folded[k]);
    }
    buf_deinit(&text);
    end(&w);
}

static void events_fold_to_the_text(void **state)
{
    seeds_run(2000, run_script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_in_place),
        cmocka_unit_test(another_message_stands_apart),
        cmocka_unit_test(indices_count_and_not_places),
        cmocka_unit_test(a_rewrite_is_said),
        cmocka_unit_test(a_rewrite_of_an_earlier_message_leaves_the_others),
        cmocka_unit_test(a_message_that_is_missing_is_left_alone),
        cmocka_unit_test(parts_of_one_index_are_one_message),
        cmocka_unit_test(only_the_assistant_is_heard),
        cmocka_unit_test(lines_may_end_with_cr_lf),
        cmocka_unit_test(a_checkpoint_and_quiet_end_it),
        cmocka_unit_test(quiet_is_polls_and_time),
        cmocka_unit_test(any_change_starts_the_quiet_anew),
        cmocka_unit_test(a_rewrite_after_the_checkpoint_is_not_missed),
        cmocka_unit_test(a_turn_may_be_of_tools_alone),
        cmocka_unit_test(tools_without_a_checkpoint_do_not_end_it),
        cmocka_unit_test(others_may_speak_of_checkpoints),
        cmocka_unit_test(a_slow_planner_is_waited_for),
        cmocka_unit_test(text_without_a_checkpoint_times_out),
        cmocka_unit_test(the_time_that_it_is_held_does_not_count),
        cmocka_unit_test(the_system_may_refuse),
        cmocka_unit_test(only_the_system_can_refuse),
        cmocka_unit_test(a_long_refusal_is_cut_between_characters),
        cmocka_unit_test(three_failures_in_a_row_lose_it),
        cmocka_unit_test(five_failures_among_fifteen_lose_it),
        cmocka_unit_test(what_was_sent_outlives_failures),
        cmocka_unit_test(polls_are_fast_while_text_grows),
        cmocka_unit_test(the_end_is_not_waited_for_slowly),
        cmocka_unit_test(failures_back_off),
        cmocka_unit_test(a_turn_has_its_time),
        cmocka_unit_test(a_transcript_is_bounded),
        cmocka_unit_test(messages_are_counted),
        cmocka_unit_test(texts_are_bounded_together),
        cmocka_unit_test_teardown(events_fold_to_the_text, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
