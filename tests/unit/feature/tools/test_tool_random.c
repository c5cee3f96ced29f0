// SPDX-License-Identifier: Apache-2.0
/* test_tool_random.c -- clients that follow cursors through results that are being made, over a
 * store that is never in a hurry. Whatever is cut, late, cancelled or asked twice: a client sees
 * the rows that were made, each once and in order, and then the end or the failure, never one for
 * the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "model/delay.c"
#include "model/seeds.h"
#include "store/mem/mem_store.h"
#include "tool_world.h"

#define CLIENTS   3
#define TURNS_MAX 20000

struct client {
    struct asked asked;
    struct tool_run *run; /* NULL: not begun, or over */
    struct str text;      /* what is left to be given */
    struct buf all;       /* all of it */
    size_t rows;          /* in it */
    size_t seen;
    char cursor[CURSOR_MAX + 1]; /* to go on with; empty: the first page */
    bool fails;                  /* at the end */
    bool held, asking, finished;
};

struct play {
    struct sched sched;
    struct store *store;
    struct tools *tools;
    struct tool_spec spec;
    struct client clients[CLIENTS];
    struct rng *rng;
    bool cancels; /* calls are cancelled; otherwise one that is not woken is never answered */
    bool stopped;
};

static struct play *the_play;

static void play_start(void *ctx, struct tool_run *run)
{
    uint64_t which;
    assert_int_equal(sscanf(run->args.p, "{\"client\":%lu", &which), 1);
    struct client *c = &the_play->clients[which];
    assert_null(c->run);
    c->run = run;
    run->state = c;
    c->text = buf_str(&c->all);
    c->held = false;
}

static void play_stop(void *ctx, struct tool_run *run)
{
    struct client *c = run->state;
    assert_ptr_equal(c->run, run);
    c->run = NULL;
}

static void play_room(void *ctx, struct tool_run *run)
{
    struct client *c = run->state;
    assert_true(c->held);
    c->held = false;
}

static const struct tool_maker play_maker = {play_start, play_stop, play_room};

static void make_text(struct client *c, struct rng *rng)
{
    bool array = rng_one_in(rng, 2);
    c->rows = rng_one_in(rng, 4) ? 0 : rng_below(rng, 40);
    if (array)
        buf_putc(&c->all, '[');
    for (size_t i = 0; i < c->rows; i++) {
        if (array && i > 0)
            buf_putc(&c->all, ',');
        buf_printf(&c->all, "{\"n\":%zu,\"x\":\"%0*d\"}", i, (int)rng_between(rng, 1, 60), 0);
        if (!array)
            buf_putc(&c->all, '\n');
    }
    if (array)
        buf_putc(&c->all, ']');
    c->fails = rng_one_in(rng, 3);
}

static void make_more(struct client *c, struct rng *rng)
{
    if (c->run == NULL || c->held)
        return;
    if (c->text.n == 0) {
        struct tool_run *run = c->run;
        c->run = NULL;
        tool_run_end(run, c->fails ? STR("on purpose") : STR_NONE, false);
        return;
    }
    size_t n = rng_between(rng, 1, c->text.n < 200 ? c->text.n : 200);
    struct str piece = str_of(c->text.p, n);
    c->text = str_skip(c->text, n);
    c->held = !tool_run_output(c->run, piece);
}

static void check_rows(struct client *c, const struct tool_call *call)
{
    json_t *rows = json_loadb(call->result.p, call->result.n, 0, NULL), *row;
    size_t i;
    assert_true(json_is_array(rows));
    assert_true(json_array_size(rows) <= the_play->spec.page_rows);
    json_array_foreach(rows, i, row)
        assert_int_equal(json_integer_value(json_object_get(row, "n")), c->seen++);
    json_decref(rows);
}

static void on_answer(struct tool_call *call)
{
    struct client *c = container_of(call, struct client, asked.call);
    c->asking = false;
    if (call->outcome == TOOL_SUCCESS) {
        size_t before = c->seen;
        check_rows(c, call);
        c->finished = call->next_cursor.n == 0;
        if (c->finished) {
            assert_int_equal(c->seen, c->rows);
            assert_false(c->fails);
        } else if (rng_one_in(the_play->rng, 4)) {
            c->seen = before; /* the answer was lost: the same again */
        } else {
            memcpy(c->cursor, call->next_cursor.p, call->next_cursor.n);
            c->cursor[call->next_cursor.n] = '\0';
        }
    } else {
        assert_int_equal(call->outcome, TOOL_EXECUTION_FAILED);
        assert_true(same((struct buf *)&call->message, "on purpose"));
        assert_true(c->fails);
        if (c->cursor[0] != '\0')
            assert_int_equal(c->seen, c->rows);
        c->finished = true;
    }
    tool_call_deinit(call);
}

static void ask_on(struct play *p, size_t i)
{
    struct client *c = &p->clients[i];
    static char args[CLIENTS][32];
    bool first = c->cursor[0] == '\0';
    if (first && c->run != NULL)
        return; /* the last one is still being made */
    snprintf(args[i], sizeof args[i], "{\"client\":%zu}", i);
    c->asked.call = (struct tool_call){.tool_id = STR("mine"),
                                       .args = first ? str_of_cstr(args[i]) : STR_NONE,
                                       .cursor = first ? STR_NONE : str_of_cstr(c->cursor),
                                       .done = on_answer};
    c->asking = true;
    tools_call(p->tools, &c->asked.call);
}

static void step(struct play *p, size_t i)
{
    struct client *c = &p->clients[i];
    if (rng_one_in(p->rng, 2))
        make_more(c, p->rng);
    if (!c->asking && !c->finished && rng_one_in(p->rng, 3)) {
        ask_on(p, i);
    } else if (c->asking && p->cancels && rng_one_in(p->rng, 60)) {
        tools_cancel(p->tools, &c->asked.call);
        c->asking = false;
    }
}

static bool is_over(const struct play *p)
{
    for (size_t i = 0; i < CLIENTS; i++)
        if (!p->clients[i].finished)
            return false;
    return true;
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void turn(struct play *p)
{
    sched_turn(&p->sched, p->sched.now_ms + SCHED_TICK_MS, p->sched.wall_ms + SCHED_TICK_MS);
}

static void play(struct rng *rng)
{
    struct play *p = calloc(1, sizeof *p);
    char why[128];
    the_play = p;
    p->rng = rng;
    p->cancels = rng_one_in(rng, 2);
    sched_init(&p->sched, 1000, START_WALL_MS);
    p->store = delay_store_new(mem_store_new(&p->sched), rng_next(rng), 6);
    struct cursor_issuer *issuer = cursor_issuer_new(key, session);
    p->spec = (struct tool_spec){.id = STR("mine"),
                                 .input_schema = STR("{}"),
                                 .timeout_ms = 3600000,
                                 .max_output = 1 << 20,
                                 .page_rows = rng_between(rng, 1, 7),
                                 .page_bytes = rng_between(rng, 20, 300),
                                 .parallel = 1000,
                                 .maker = &play_maker};
    p->tools = tools_new(&(struct tools_setup){.sched = &p->sched,
                                               .store = p->store,
                                               .issuer = issuer,
                                               .cursor_ttl_s = 1000000,
                                               .keep_max = UINT64_MAX,
                                               .specs = &p->spec,
                                               .n_specs = 1},
                         why, sizeof why);
    for (size_t i = 0; i < CLIENTS; i++)
        make_text(&p->clients[i], rng);
    for (int t = 0; t < TURNS_MAX && !is_over(p); t++) {
        step(p, rng_below(rng, CLIENTS));
        turn(p);
    }
    assert_true(is_over(p));
    tools_stop(p->tools, note_stopped, &p->stopped);
    for (int t = 0; t < 1000 && (!p->stopped || delay_pending(p->store) > 0); t++)
        turn(p);
    assert_true(p->stopped);
    tools_free(p->tools);
    store_free(p->store);
    cursor_issuer_free(issuer);
    for (size_t i = 0; i < CLIENTS; i++)
        buf_deinit(&p->clients[i].all);
    free(p);
}

static void test_random(void **state)
{
    seeds_run(300, play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
