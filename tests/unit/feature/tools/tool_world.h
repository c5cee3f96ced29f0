// SPDX-License-Identifier: Apache-2.0
/* tool_world.h -- what the tests of tools share: a store in memory that refuses and holds writes as
 * told, makers that do what the test says, and calls that are looked at when they are done. To be
 * included after cmocka.h. */
#ifndef UNIT_TOOL_WORLD_H
#define UNIT_TOOL_WORLD_H

#include "base/err.h"
#include "base/mem.h"
#include "feature/builtin.h"
#include "feature/tools/tool_core.h"
#include "feature/tools/tool_rows.h"
#include "feature/tools/tools.h"
#include "store/mem/mem_store.h"
#include "store/store.h"
#include "token/cursor.h"

#include <jansson.h>
#include <stdlib.h>

/* Each test uses a part of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define START_WALL_MS 1800000000000
#define RUNS_MAX      16
#define TTL_S         300

static const uint8_t key[CURSOR_KEY_SIZE] = {1, 2, 3}, session[CURSOR_SESSION_SIZE] = {9};

/* What the fake maker was asked for. */
struct made {
    struct tool_run *run;
    char args[256];
    int rooms;
    bool stopped;
};

struct world {
    struct sched sched;
    struct store *store;
    struct store_ops ops; /* the store's, but for writes */
    void (*write)(struct store *s, struct store_write *w);
    int refuse; /* with this, so many writes */
    int refuse_left;
    int n_writes;
    bool hold; /* writes */
    struct link held;
    struct cursor_issuer *issuer;
    struct tool_spec specs[4];
    struct builtin_offer offers[4];
    struct tools_setup setup;
    struct tools *tools;
    struct made made[RUNS_MAX];
    size_t n_made;
    bool stopped;
};

/* ---- the store ---- */

static struct world *the_world; /* of the test that runs */

static void run_refusal(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    w->done(w, w->call.result);
}

static void moody_write(struct store *s, struct store_write *w)
{
    struct world *world = the_world;
    world->n_writes++;
    if (world->refuse_left > 0) {
        world->refuse_left--;
        w->call.result = world->refuse;
        task_init(&w->call.task, run_refusal);
        sched_post(s->sched, &w->call.task);
    } else if (world->hold) {
        list_init(&w->call.link);
        list_push(&world->held, &w->call.link);
    } else {
        world->write(s, w);
    }
}

static void release(struct world *w)
{
    w->hold = false;
    while (!list_empty(&w->held)) {
        struct link *l = w->held.next;
        list_remove(l);
        w->write(w->store, container_of(l, struct store_write, call.link));
    }
    sched_drain(&w->sched);
}

/* ---- makers ---- */

static void fake_start(void *ctx, struct tool_run *run)
{
    struct world *w = ctx;
    assert_true(w->n_made < RUNS_MAX);
    struct made *m = &w->made[w->n_made++];
    *m = (struct made){.run = run};
    snprintf(m->args, sizeof m->args, "%.*s", (int)run->args.n, run->args.p);
    run->state = m;
}

static void fake_stop(void *ctx, struct tool_run *run)
{
    struct made *m = run->state;
    assert_false(m->stopped);
    m->stopped = true;
}

static void fake_room(void *ctx, struct tool_run *run)
{
    struct made *m = run->state;
    assert_false(m->stopped);
    m->rooms++;
}

static const struct tool_maker fake_maker = {fake_start, fake_stop, fake_room};

/* ---- the world ---- */

static void open_tools(struct world *w)
{
    char why[256] = "";
    w->tools = tools_new(&w->setup, why, sizeof why);
    assert_string_equal(why, "");
    assert_non_null(w->tools);
}

static struct tool_spec fake_spec(struct world *w, struct str id)
{
    return (struct tool_spec){.id = id,
                              .input_schema = STR("{}"),
                              .timeout_ms = 1000,
                              .max_output = 1 << 20,
                              .page_rows = 3,
                              .page_bytes = 1024,
                              .parallel = 4,
                              .maker = &fake_maker,
                              .ctx = w};
}

static int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    sched_init(&w->sched, 1000, START_WALL_MS);
    w->store = mem_store_new(&w->sched);
    w->ops = *w->store->ops;
    w->write = w->ops.write;
    w->ops.write = moody_write;
    w->store->ops = &w->ops;
    list_init(&w->held);
    the_world = w;
    w->issuer = cursor_issuer_new(key, session);
    w->specs[0] = fake_spec(w, STR("mine"));
    w->setup = (struct tools_setup){.sched = &w->sched,
                                    .store = w->store,
                                    .issuer = w->issuer,
                                    .cursor_ttl_s = TTL_S,
                                    .keep_max = UINT64_MAX,
                                    .offers = w->offers,
                                    .n_offers = 1,
                                    .specs = w->specs,
                                    .n_specs = 1};
    w->offers[0] = (struct builtin_offer){tools_builtins, NULL};
    open_tools(w);
    *state = w;
    return 0;
}

static void on_stopped(void *ctx)
{
    ((struct world *)ctx)->stopped = true;
}

static void close_tools(struct world *w)
{
    w->stopped = false;
    tools_stop(w->tools, on_stopped, w);
    assert_false(w->stopped);
    sched_drain(&w->sched);
    for (int i = 0; i < 100 && !w->stopped; i++)
        sched_turn(&w->sched, w->sched.now_ms + 16, w->sched.wall_ms + 16);
    assert_true(w->stopped);
    tools_free(w->tools);
    w->tools = NULL;
}

/* What another feature offers is there, too. */
static void offer(struct world *w, const struct builtin_tool *tools, void *feature)
{
    close_tools(w);
    w->offers[w->setup.n_offers++] = (struct builtin_offer){tools, feature};
    open_tools(w);
}

static int world_teardown(void **state)
{
    struct world *w = *state;
    if (w->tools != NULL)
        close_tools(w);
    cursor_issuer_free(w->issuer);
    store_free(w->store);
    free(w);
    return 0;
}

static void pass_ms(struct world *w, uint64_t ms)
{
    for (uint64_t end = w->sched.now_ms + ms; w->sched.now_ms < end;)
        sched_turn(&w->sched, w->sched.now_ms + 16, w->sched.wall_ms + 16);
}

/* ---- calls ---- */

struct asked {
    struct tool_call call;
    int done;
    char cursor[CURSOR_MAX + 1];
};

static void on_done(struct tool_call *c)
{
    struct asked *a = container_of(c, struct asked, call);
    a->done++;
    if (c->next_cursor.n > 0) {
        assert_true(c->next_cursor.n <= CURSOR_MAX);
        memcpy(a->cursor, c->next_cursor.p, c->next_cursor.n);
        a->cursor[c->next_cursor.n] = '\0';
    }
}

/* What was answered before is forgotten; the cursor stays and may be asked with. */
static void begin(struct world *w, struct asked *a, const char *tool, const char *args,
                  const char *cursor)
{
    tool_call_deinit(&a->call);
    struct tool_call c = a->call;
    a->call = (struct tool_call){.tool_id = str_of_cstr(tool),
                                 .args = args != NULL ? str_of_cstr(args) : STR_NONE,
                                 .cursor = cursor != NULL ? str_of_cstr(cursor) : STR_NONE,
                                 .cursor_loose = c.cursor_loose,
                                 .dry_run = c.dry_run,
                                 .caller_id = c.caller_id,
                                 .capabilities = c.capabilities,
                                 .n_capabilities = c.n_capabilities,
                                 .done = on_done};
    a->done = 0;
    tools_call(w->tools, &a->call);
    assert_int_equal(a->done, 0);
    sched_drain(&w->sched);
}

static void ask(struct world *w, struct asked *a, const char *tool, const char *args,
                const char *cursor)
{
    begin(w, a, tool, args, cursor);
    assert_int_equal(a->done, 1);
}

static void forget(struct asked *a)
{
    tool_call_deinit(&a->call);
}

static bool same(struct buf *b, const char *text)
{
    bool is = str_eq(buf_str(b), str_of_cstr(text));
    if (!is)
        print_error("got %.*s\n", (int)b->n, b->p);
    return is;
}

static void assert_page(struct asked *a, const char *result, uint64_t page, bool more)
{
    assert_int_equal(a->done, 1);
    if (a->call.outcome != TOOL_SUCCESS)
        print_error("%.*s\n", (int)a->call.message.n, a->call.message.p);
    assert_int_equal(a->call.outcome, TOOL_SUCCESS);
    assert_true(same(&a->call.result, result));
    assert_int_equal(a->call.page, page);
    assert_int_equal(a->call.next_cursor.n > 0, more);
    assert_int_equal(a->call.message.n, 0);
}

static void assert_refused(struct asked *a, enum tool_outcome outcome, uint16_t code,
                           const char *message)
{
    assert_int_equal(a->done, 1);
    assert_int_equal(a->call.outcome, outcome);
    assert_int_equal(a->call.code, code);
    assert_true(same(&a->call.message, message));
    assert_int_equal(a->call.next_cursor.n, 0);
    assert_int_equal(a->call.retryable, outcome == TOOL_RATE_LIMITED);
}

static void assert_failed(struct asked *a, const char *message, bool retryable)
{
    assert_int_equal(a->done, 1);
    assert_int_equal(a->call.outcome, TOOL_EXECUTION_FAILED);
    assert_int_equal(a->call.code, TOOL_CODE_UNHANDLED);
    assert_true(same(&a->call.message, message));
    assert_int_equal(a->call.retryable, retryable);
    assert_int_equal(a->call.next_cursor.n, 0);
    json_t *f = json_loadb(a->call.result.p, a->call.result.n, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(f, "code")), TOOL_CODE_UNHANDLED);
    assert_string_equal(json_string_value(json_object_get(f, "message")), message);
    assert_int_equal(json_is_true(json_object_get(f, "retryable")), retryable);
    json_decref(f);
}

/* ---- what is kept ---- */

struct looked {
    struct store_list list;
    size_t n;
    struct stream_info last;
    bool done;
};

static void on_looked(struct store_list *l, int err)
{
    struct looked *k = container_of(l, struct looked, list);
    assert_int_equal(err, 0);
    k->n = l->n_rows;
    if (l->n_rows > 0)
        k->last = l->rows[l->n_rows - 1].info;
    k->done = true;
}

static struct looked look(struct world *w)
{
    struct looked k = {
        .list = {.prefix = STR(TOOL_STREAMS), .limit = 100, .reserved = true, .done = on_looked}};
    store_list(w->store, &k.list);
    sched_drain(&w->sched);
    assert_true(k.done);
    return k;
}

static void on_put(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
}

/* rows: as JSON streams store them. */
static void put_stream(struct world *world, struct str name, struct str type, struct str data,
                       const uint32_t *ends, uint32_t n, bool close)
{
    struct stream_config c = {
        .content_type = type, .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct store_write w = {.name = name,
                            .create = &c,
                            .data = data,
                            .ends = ends,
                            .n_events = n,
                            .close = close,
                            .end = close ? END_COMPLETED : END_NONE,
                            .done = on_put};
    store_write(world->store, &w);
    sched_drain(&world->sched);
    if (w.created)
        return;
    w.create = NULL; /* it was there, and has only been confirmed */
    store_write(world->store, &w);
    sched_drain(&world->sched);
}

static void put_json(struct world *w, const char *name, const char *text, bool close)
{
    struct tool_splitter s = {.row_max = 1 << 20};
    struct tool_rows r = {0};
    assert_int_equal(tool_splitter_feed(&s, str_of_cstr(text), &r), TOOL_ROWS_FINE);
    put_stream(w, str_of_cstr(name), STR("application/json"), buf_str(&r.bytes),
               (const uint32_t *)r.ends.p, (uint32_t)tool_rows_count(&r), close);
    tool_splitter_deinit(&s);
    tool_rows_deinit(&r);
}

#endif
