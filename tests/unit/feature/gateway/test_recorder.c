// SPDX-License-Identifier: Apache-2.0
/* The recorder over the store in memory, through a front that refuses or holds writes as told, and
 * through the one that delays; and over the embedded store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/recorder.h"
#include "model/delay.c"
#include "model/engines.h"
#include "model/seeds.h"
#include "store/mem/mem_store.h"

#define NAME       "gen/1"
#define SNAPSHOT   NAME RECORDER_SNAPSHOT_SUFFIX
#define START_MONO 5000
#define START_WALL 1700000000000
#define TURNS_MAX  20000

/* ---- a store that refuses and holds ---- */

struct moody {
    struct store store;
    struct store *inner;
    int refuse;          /* 0: nothing is refused */
    int64_t refuse_left; /* writes */
    bool data_only;      /* ... only those that store something */
    bool open_only;      /* ... only those that do not close */
    bool hold;
    struct link held;
    struct rng *rng;   /* draws refusals, if given */
    unsigned n_writes; /* that came */
    char names[4096];  /* of those that went on, each with a space behind it */
};

static struct moody *moody_of(struct store *s)
{
    return container_of(s, struct moody, store);
}

static void answer(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    w->done(w, w->call.result);
}

static void pass_write(struct moody *m, struct store_write *w)
{
    size_t n = strlen(m->names);
    snprintf(m->names + n, sizeof m->names - n, "%.*s ", (int)w->name.n, w->name.p);
    store_write(m->inner, w);
}

static bool is_refused(struct moody *m, const struct store_write *w)
{
    if (m->rng != NULL && w->docs == NULL && rng_percent(m->rng, 20)) {
        m->refuse = rng_one_in(m->rng, 2) ? ERR_BUSY : ERR_FULL;
        return true;
    }
    return m->refuse_left > 0 && (w->data.n > 0 || !m->data_only) && !(w->close && m->open_only);
}

static void moody_write(struct store *s, struct store_write *w)
{
    struct moody *m = moody_of(s);
    m->n_writes++;
    if (is_refused(m, w)) {
        m->refuse_left--;
        w->call.result = m->refuse;
        task_init(&w->call.task, answer);
        sched_post(s->sched, &w->call.task);
    } else if (m->hold) {
        list_init(&w->call.link);
        list_push(&m->held, &w->call.link);
    } else {
        pass_write(m, w);
    }
}

static void moody_remove(struct store *s, struct store_remove *r)
{
    store_remove(moody_of(s)->inner, r);
}

static void moody_stat(struct store *s, struct store_stat *st)
{
    store_stat(moody_of(s)->inner, st);
}

static void moody_read(struct store *s, struct store_read *r)
{
    store_read(moody_of(s)->inner, r);
}

static void moody_docs(struct store *s, struct store_docs *d)
{
    store_docs(moody_of(s)->inner, d);
}

static void moody_free(struct store *s)
{
    struct moody *m = moody_of(s);
    store_free(m->inner);
    free(m);
}

static const struct store_ops moody_ops = {.write = moody_write,
                                           .remove = moody_remove,
                                           .stat = moody_stat,
                                           .read = moody_read,
                                           .docs = moody_docs,
                                           .free = moody_free};

static struct moody *moody_new(struct sched *sched, struct store *inner)
{
    struct moody *m = mem_zalloc(sizeof *m);
    m->store = (struct store){.ops = &moody_ops, .sched = sched};
    m->inner = inner;
    list_init(&m->held);
    return m;
}

static void moody_let_go(struct moody *m)
{
    m->hold = false;
    while (!list_empty(&m->held)) {
        struct store_call *c = list_item(m->held.next, struct store_call, link);
        list_remove(&c->link);
        pass_write(m, container_of(c, struct store_write, call));
    }
}

/* ---- a recorder and what it tells ---- */

enum told {
    TOLD_STARTED,
    TOLD_RECORDED,
    TOLD_ROOM,
    TOLD_TRIMMED,
    TOLD_SNAPSHOT,
    TOLD_ENDED,
    TOLDS
};

struct rig {
    struct sched sched;
    struct moody *moody;
    struct store *delay; /* NULL: none */
    struct recorder_config config;
    struct recorder *r;
    unsigned told[TOLDS];
    int started_err, ended_err;
    enum end_reason end;
    uint64_t recorded, trimmed, trimmed_bytes, snapshot_bytes;
    struct recorder_trim trim;
    bool in_call; /* of a function of the recorder: no callback may come */
    bool stopped; /* the store */
    int free_in;  /* the callback that lets go of the recorder; -1: none */
};

static void note_told(struct rig *g, enum told what)
{
    assert_false(g->in_call);
    assert_non_null(g->r); /* it has not been let go of */
    assert_int_equal(g->told[TOLD_ENDED], 0);
    assert_true(what == TOLD_STARTED || (g->told[TOLD_STARTED] == 1 && g->started_err == 0));
    g->told[what]++;
    if (g->free_in != (int)what)
        return;
    recorder_free(g->r);
    g->r = NULL;
}

static void on_started(void *ctx, int err)
{
    struct rig *g = ctx;
    g->started_err = err;
    note_told(g, TOLD_STARTED);
}

static void on_events(void *ctx, uint64_t n_events, uint64_t bytes, uint64_t took_ms)
{
    struct rig *g = ctx;
    g->recorded += n_events;
    assert_true(n_events > 0 && bytes > n_events);
    assert_int_equal(recorder_seq(g->r), g->recorded);
    note_told(g, TOLD_RECORDED);
}

static void on_room(void *ctx)
{
    note_told(ctx, TOLD_ROOM);
}

static void on_trimmed(void *ctx, const struct recorder_trim *t)
{
    struct rig *g = ctx;
    g->trim = *t;
    g->trimmed += t->events;
    g->trimmed_bytes += t->bytes;
    note_told(g, TOLD_TRIMMED);
}

static void on_snapshot_told(void *ctx, uint64_t bytes)
{
    struct rig *g = ctx;
    g->snapshot_bytes = bytes;
    note_told(g, TOLD_SNAPSHOT);
}

static void on_ended(void *ctx, enum end_reason end, int err)
{
    struct rig *g = ctx;
    g->end = end;
    g->ended_err = err;
    note_told(g, TOLD_ENDED);
}

static void rig_prepare(struct rig *g, struct store *(*wrap)(struct rig *g, struct store *inner))
{
    *g = (struct rig){.free_in = -1};
    sched_init(&g->sched, START_MONO, START_WALL);
    struct store *inner = mem_store_new(&g->sched);
    g->moody = moody_new(&g->sched, wrap != NULL ? wrap(g, inner) : inner);
    g->config = (struct recorder_config){.name = STR(NAME),
                                         .ttl_s = 900,
                                         .snapshot_ttl_s = 60,
                                         .on = {.started = on_started,
                                                .recorded = on_events,
                                                .room = on_room,
                                                .trimmed = on_trimmed,
                                                .snapshot = on_snapshot_told,
                                                .ended = on_ended},
                                         .ctx = g};
}

static void pass(struct rig *g, uint64_t ms)
{
    sched_turn(&g->sched, g->sched.now_ms + ms, g->sched.wall_ms + (int64_t)ms);
}

static void begin(struct rig *g)
{
    g->in_call = true;
    g->r = recorder_new(&g->sched, &g->moody->store, &g->config);
    g->in_call = false;
}

static void rig_init(struct rig *g)
{
    rig_prepare(g, NULL);
    begin(g);
    sched_drain(&g->sched);
    assert_int_equal(g->told[TOLD_STARTED], 1);
    assert_int_equal(g->started_err, 0);
}

static void drop(struct rig *g)
{
    recorder_free(g->r);
    g->r = NULL;
}

static void rig_deinit(struct rig *g)
{
    if (g->r != NULL)
        drop(g);
    sched_drain(&g->sched);
    store_free(&g->moody->store);
}

static int event_of(struct rig *g, struct str type, struct str data)
{
    g->in_call = true;
    int result = recorder_event(g->r, type, data);
    g->in_call = false;
    return result;
}

static int event(struct rig *g, const char *type, const char *data)
{
    return event_of(g, str_of_cstr(type), str_of_cstr(data));
}

static void end(struct rig *g, enum end_reason reason, const char *message)
{
    g->in_call = true;
    recorder_end(g->r, reason, str_of_cstr(message));
    g->in_call = false;
}

static void refuse(struct rig *g, int err, int64_t writes)
{
    g->moody->refuse = err;
    g->moody->refuse_left = writes;
}

/* ---- the store behind its back ---- */

struct seen {
    struct stream_info info;
    int err;
    char text[64 * 1024];
};

static void on_read(struct store_read *r, int err)
{
    r->call.result = err;
}

static void on_stat(struct store_stat *st, int err)
{
    st->call.result = err;
}

/* All of the stream from one ordinal on; static, until the next call. */
static const struct seen *look_from(struct rig *g, const char *name, uint64_t ordinal)
{
    static struct seen seen;
    struct store_read r = {.name = str_of_cstr(name),
                           .from = READ_EVENT,
                           .event = ordinal,
                           .max_bytes = sizeof seen.text,
                           .done = on_read};
    seen = (struct seen){0};
    store_read(&g->moody->store, &r);
    sched_drain(&g->sched);
    size_t n = 0;
    for (uint32_t i = 0; i < r.n_slices; i++) {
        assert_true(n + r.slices[i].bytes.n < sizeof seen.text);
        memcpy(seen.text + n, r.slices[i].bytes.p, r.slices[i].bytes.n);
        n += r.slices[i].bytes.n;
    }
    seen.err = r.call.result;
    seen.info = r.info;
    store_read_release(&r);
    return &seen;
}

static const struct seen *look(struct rig *g, const char *name)
{
    return look_from(g, name, 0);
}

static struct stream_info info_of(struct rig *g, const char *name)
{
    struct store_stat st = {.name = str_of_cstr(name), .done = on_stat};
    store_stat(&g->moody->store, &st);
    sched_drain(&g->sched);
    assert_int_equal(st.call.result, 0);
    return st.info;
}

static void on_other(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
}

static void other_write(struct rig *g, struct store_write w)
{
    w.name = STR(NAME);
    w.done = on_other;
    store_write(g->moody->inner, &w);
    sched_drain(&g->sched);
}

static void on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, 0);
}

static void other_remove(struct rig *g)
{
    struct store_remove r = {.name = STR(NAME), .done = on_removed};
    store_remove(g->moody->inner, &r);
    sched_drain(&g->sched);
}

static void assert_ended(struct rig *g, enum end_reason reason, int err)
{
    assert_int_equal(g->told[TOLD_ENDED], 1);
    assert_int_equal(g->end, reason);
    assert_int_equal(g->ended_err, err);
}

/* ---- a whole answer ---- */

static void take_whole(struct rig *g, const char *text)
{
    struct buf bytes = {0};
    buf_put(&bytes, str_of_cstr(text));
    g->in_call = true;
    recorder_take_whole(g->r, &bytes);
    g->in_call = false;
    buf_deinit(&bytes);
}

/* In one write with the end, as it is; it is no event that could be folded. */
static void test_a_whole_answer(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    g.config.retain = (struct retain){.events = 1, .bytes = 4}; /* the newest stays all the same */
    begin(&g);
    sched_drain(&g.sched);
    take_whole(&g, "HTTP 200\n\n{\"a\":1}");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_ended(&g, END_COMPLETED, 0);
    assert_int_equal(g.told[TOLD_RECORDED], 1);
    assert_int_equal(g.told[TOLD_SNAPSHOT], 0);
    const struct seen *s = look(&g, NAME);
    assert_string_equal(s->text, "HTTP 200\n\n{\"a\":1}");
    assert_int_equal(s->info.events, 1);
    assert_int_equal(s->info.end, END_COMPLETED);
    rig_deinit(&g);
}

/* The store takes nothing for a while: there is all of it afterwards, or nothing. */
static void test_a_whole_answer_and_a_moody_store(void **state)
{
    for (int patient = 0; patient < 2; patient++) {
        struct rig g;
        rig_init(&g);
        take_whole(&g, "HTTP 200\n\nbody");
        end(&g, END_COMPLETED, "");
        refuse(&g, ERR_BUSY, INT64_MAX);
        sched_drain(&g.sched);
        for (uint64_t ms = 0;
             ms < (patient ? RECORDER_RETRY_FOR_MS / 2 : 2 * RECORDER_RETRY_FOR_MS); ms += 500)
            pass(&g, 500);
        refuse(&g, 0, 0);
        for (int i = 0; i < 100; i++)
            pass(&g, 500);
        bool whole = strcmp(look(&g, NAME)->text, "HTTP 200\n\nbody") == 0;
        assert_int_equal(whole, patient);
        assert_int_equal(g.told[TOLD_RECORDED], patient);
        assert_int_equal(g.told[TOLD_ENDED], 1);
        if (patient)
            assert_ended(&g, END_COMPLETED, 0);
        rig_deinit(&g);
    }
}

/* ---- format ---- */

static void test_stored_form(void **state)
{
    struct rig g;
    rig_init(&g);
    assert_int_equal(event(&g, "message", "one"), 1);
    assert_int_equal(event(&g, "", " two"), 1);
    assert_int_equal(event(&g, "stage", "a\nb\r\nc\rd"), 1);
    assert_int_equal(event(&g, " odd", ""), 1);
    assert_int_equal(event(&g, "t", "end\n"), 1);
    assert_int_equal(event(&g, "t", "\r\n\r"), 1);
    assert_int_equal(event_of(&g, STR_NONE, STR("nul\0nul")), 1);
    sched_drain(&g.sched);
    assert_int_equal(recorder_seq(g.r), 7);
    const struct seen *s = look(&g, NAME);
    assert_string_equal(s->text, "id: 1\ndata: one\n\n"
                                 "id: 2\ndata:  two\n\n"
                                 "id: 3\nevent: stage\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
                                 "id: 4\nevent:  odd\ndata: \n\n"
                                 "id: 5\nevent: t\ndata: end\ndata: \n\n"
                                 "id: 6\nevent: t\ndata: \ndata: \ndata: \n\n"
                                 "id: 7\ndata: nul");
    assert_memory_equal(s->text + strlen(s->text), "\0nul\n\n", 7);
    assert_true(str_eq(info_of(&g, NAME).content_type, STR("text/event-stream")));
    assert_int_equal(info_of(&g, NAME).ttl_s, 900);
    assert_int_equal(info_of(&g, NAME).end, END_NONE);
    rig_deinit(&g);
}

/* Settled once the dialect is known: what is stored, and what the snapshot makes of it. */
static void test_other_forms(void **state)
{
    static const struct {
        struct recorder_form form;
        enum fold_kind fold;
        const char *stored, *snapshot;
    } rows[] = {
        {{.generation = STR_INIT("gen")},
         FOLD_LAST,
         "id: gen:1\nevent: t\ndata: {\"response\":\"a\",\ndata: \"x\":1}\n\n"
         "id: gen:2\nevent: t\ndata: {\"response\":\"b\"}\n\n",
         "{\"response\":\"b\"},"},
        {{.bare = true, .generation = STR_INIT("gen")},
         FOLD_LAST,
         "event: t\ndata: {\"response\":\"a\",\ndata: \"x\":1}\n\n"
         "event: t\ndata: {\"response\":\"b\"}\n\n",
         "{\"response\":\"b\"},"},
        {{.lines = true, .generation = STR_INIT("gen")},
         FOLD_NDJSON,
         "{\"response\":\"a\", \"x\":1}\n{\"response\":\"b\"}\n",
         "{\"response\":\"ab\",\"x\":1},"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig g;
        rig_prepare(&g, NULL);
        g.config.folds = true;
        begin(&g);
        sched_drain(&g.sched);
        recorder_settle(g.r, &rows[i].form, rows[i].fold);
        event(&g, "t", "{\"response\":\"a\",\n\"x\":1}");
        event(&g, "t", "{\"response\":\"b\"}");
        sched_drain(&g.sched);
        assert_string_equal(look(&g, NAME)->text, rows[i].stored);
        end(&g, END_FAILED, "cut");
        sched_drain(&g.sched);
        assert_string_equal(look_from(&g, NAME, 2)->text, ": cut\n\n");
        assert_string_equal(look(&g, SNAPSHOT)->text, rows[i].snapshot);
        rig_deinit(&g);
    }
}

static void test_refused(void **state)
{
    struct rig g;
    char type[RECORDER_TYPE_MAX + 1];
    memset(type, 't', sizeof type);
    rig_prepare(&g, NULL);
    g.config.event_max = 1000;
    begin(&g);
    assert_int_equal(event(&g, "a\nb", "x"), ERR_SYNTAX);
    assert_int_equal(event(&g, "a\rb", "x"), ERR_SYNTAX);
    assert_int_equal(event_of(&g, STR("a\0b"), STR("x")), ERR_SYNTAX);
    assert_int_equal(event_of(&g, str_of(type, sizeof type), STR("x")), ERR_TOO_LARGE);
    assert_int_equal(event_of(&g, str_of(type, sizeof type - 1), STR("x")), 1);
    /* It is the stored size that counts: each line costs seven bytes more. */
    char data[1000];
    memset(data, '\n', sizeof data);
    assert_int_equal(event_of(&g, STR("m"), str_of(data, 999)), ERR_TOO_LARGE);
    assert_int_equal(event_of(&g, STR("m"), str_of(data, 200)), ERR_TOO_LARGE);
    assert_int_equal(event_of(&g, STR("m"), str_of(data, 100)), 1);
    memset(data, 'd', sizeof data);
    assert_int_equal(event_of(&g, STR("m"), str_of(data, 900)), 1);
    end(&g, END_COMPLETED, "");
    assert_int_equal(event(&g, "m", "late"), ERR_CLOSED);
    sched_drain(&g.sched);
    assert_ended(&g, END_COMPLETED, 0);
    assert_int_equal(event(&g, "m", "later"), ERR_CLOSED);
    assert_int_equal(info_of(&g, NAME).events, 3); /* and the refused took no number */
    assert_true(str_starts(str_of_cstr(look_from(&g, NAME, 2)->text), STR("id: 3\n")));
    rig_deinit(&g);
}

static void test_notice(void **state)
{
    struct str none = recorder_notice(STR("id: 1\ndata: : x\n\n"));
    assert_int_equal(none.n, 0);
    assert_true(str_eq(recorder_notice(STR(": it broke\n\n")), STR("it broke")));

    struct rig g;
    rig_init(&g);
    event(&g, "", "x");
    char message[RECORDER_MESSAGE_MAX + 10];
    memset(message, 'm', sizeof message);
    memcpy(message, "a\r\nb\tc\x01\x7f", 8);
    memcpy(message + RECORDER_MESSAGE_MAX - 1, "\xc3\xa4", 2); /* the bound falls within */
    recorder_end(g.r, END_FAILED, str_of(message, sizeof message));
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, 0);
    assert_int_equal(recorder_seq(g.r), 1);
    assert_int_equal(info_of(&g, NAME).events, 2);
    struct str text = recorder_notice(str_of_cstr(look_from(&g, NAME, 1)->text));
    assert_int_equal(text.n, RECORDER_MESSAGE_MAX - 1);
    assert_memory_equal(text.p, "a  b c  m", 9);
    assert_int_equal(text.p[text.n - 1], 'm');
    assert_memory_equal(text.p + text.n, "\n\n", 3);
    rig_deinit(&g);
}

/* ---- writes ---- */

static void test_one_turn_one_write(void **state)
{
    struct rig g;
    rig_init(&g);
    unsigned before = g.moody->n_writes;
    for (int i = 0; i < 5; i++)
        event(&g, "", "x");
    sched_drain(&g.sched);
    assert_int_equal(g.moody->n_writes, before + 1);
    assert_int_equal(g.told[TOLD_RECORDED], 1);
    assert_int_equal(info_of(&g, NAME).events, 5);
    assert_string_equal(look_from(&g, NAME, 4)->text, "id: 5\ndata: x\n\n");
    rig_deinit(&g);
}

static void test_one_write_at_a_time(void **state)
{
    struct rig g;
    rig_init(&g);
    unsigned before = g.moody->n_writes;
    g.moody->hold = true;
    event(&g, "", "1");
    sched_drain(&g.sched);
    for (int i = 0; i < 10; i++) {
        event(&g, "", "more");
        sched_drain(&g.sched);
    }
    assert_int_equal(g.moody->n_writes, before + 1);
    assert_int_equal(recorder_seq(g.r), 0); /* nothing is durable yet */
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    assert_int_equal(g.moody->n_writes, before + 2);
    assert_int_equal(recorder_seq(g.r), 11);
    assert_int_equal(info_of(&g, NAME).events, 11);
    rig_deinit(&g);
}

static void test_back_pressure(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.pending_max = 100;
    begin(&g);
    sched_drain(&g.sched);
    g.moody->hold = true;
    assert_int_equal(event(&g, "", "first"), 1);
    sched_drain(&g.sched); /* on its way: the bound is for what waits behind it */
    int n = 0;
    while (event(&g, "", "0123456789") == 1)
        n++;
    assert_int_equal(n, 4); /* of 24 bytes each */
    assert_int_equal(event(&g, "", "taken all the same"), 0);
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_ROOM], 0);
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_ROOM], 1);
    assert_int_equal(recorder_seq(g.r), 7);
    assert_int_equal(event(&g, "", "x"), 1);
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_ROOM], 1);
    rig_deinit(&g);
}

static void test_no_room_in_trouble(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.pending_max = 100;
    begin(&g);
    sched_drain(&g.sched);
    refuse(&g, ERR_BUSY, 3);
    event(&g, "", "x");
    sched_drain(&g.sched);
    for (int i = 0; i < 20; i++)
        event(&g, "", "0123456789");
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_ROOM], 0);
    for (int i = 0; i < 20; i++)
        pass(&g, 100);
    assert_int_equal(g.told[TOLD_ROOM], 1);
    assert_int_equal(recorder_seq(g.r), 21);
    rig_deinit(&g);
}

static void test_no_room_after_the_end(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.pending_max = 10;
    begin(&g);
    sched_drain(&g.sched);
    assert_int_equal(event(&g, "", "0123456789"), 0);
    end(&g, END_CANCELLED, "");
    sched_drain(&g.sched);
    assert_ended(&g, END_CANCELLED, 0);
    assert_int_equal(g.told[TOLD_ROOM], 0);
    rig_deinit(&g);

    rig_prepare(&g, NULL);
    g.config.pending_max = 24; /* the second event, not the first */
    begin(&g);
    sched_drain(&g.sched);
    g.moody->hold = true;
    event(&g, "", "x");
    sched_drain(&g.sched);
    assert_int_equal(event(&g, "", "0123456789"), 0);
    other_remove(&g);
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, ERR_NOT_FOUND);
    assert_int_equal(g.told[TOLD_ROOM], 0);
    rig_deinit(&g);
}

/* ---- start ---- */

static void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    d->call.result = d->n_rows == 1 ? (int)d->rows[0].value.n : -1;
}

/* Bytes of the document's value; -1: there is none. */
static int doc_size(struct rig *g, const char *key)
{
    struct store_docs d = {.prefix = str_of_cstr(key), .limit = 1, .done = on_docs};
    store_docs(&g->moody->store, &d);
    sched_drain(&g->sched);
    return d.call.result;
}

static void test_documents(void **state)
{
    struct rig g;
    char key[] = "key", value[] = "value";
    struct doc_put put = {.key = str_of_cstr(key), .value = str_of_cstr(value)};
    rig_prepare(&g, NULL);
    g.config.docs = &put;
    g.config.n_docs = 1;
    begin(&g);
    memset(key, 'x', 3); /* ours again: it was copied */
    memset(value, 'x', 5);
    put = (struct doc_put){0};
    sched_drain(&g.sched);
    assert_int_equal(g.started_err, 0);
    assert_int_equal(doc_size(&g, "key"), 5);
    drop(&g);

    put = (struct doc_put){.key = STR("key"), .value = STR("other")};
    g.config.name = STR("gen/2");
    g.told[TOLD_STARTED] = 0;
    begin(&g);
    event(&g, "", "never stored");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_STARTED], 1);
    assert_int_equal(g.started_err, ERR_VERSION);
    assert_int_equal(g.told[TOLD_ENDED], 0);
    assert_int_equal(event(&g, "", "x"), ERR_CLOSED);
    assert_int_equal(look(&g, "gen/2")->err, ERR_NOT_FOUND);
    rig_deinit(&g);
}

static void test_name_is_taken(void **state)
{
    struct rig g;
    rig_init(&g);
    drop(&g);
    g.told[TOLD_STARTED] = 0;
    begin(&g); /* alike in all, but not the one that made it */
    sched_drain(&g.sched);
    assert_int_equal(g.started_err, ERR_EXISTS);
    drop(&g);
    g.told[TOLD_STARTED] = 0;
    g.config.ttl_s = 1;
    begin(&g);
    sched_drain(&g.sched);
    assert_int_equal(g.started_err, ERR_EXISTS);
    assert_int_equal(g.told[TOLD_STARTED], 1);
    rig_deinit(&g);
}

static void test_start_is_not_tried_again(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    refuse(&g, ERR_BUSY, 1);
    begin(&g);
    sched_drain(&g.sched);
    assert_int_equal(g.started_err, ERR_BUSY);
    pass(&g, RECORDER_RETRY_FOR_MS);
    assert_int_equal(g.moody->n_writes, 1);
    rig_deinit(&g);
}

/* ---- end ---- */

static void test_completed(void **state)
{
    struct rig g;
    rig_init(&g);
    g.moody->hold = true;
    event(&g, "", "1");
    sched_drain(&g.sched);
    event(&g, "", "2");
    end(&g, END_COMPLETED, "not said");
    end(&g, END_FAILED, "too late");
    sched_drain(&g.sched);
    assert_int_equal(g.told[TOLD_ENDED], 0);
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    assert_ended(&g, END_COMPLETED, 0);
    end(&g, END_FAILED, "too late");
    sched_drain(&g.sched);
    const struct seen *s = look(&g, NAME);
    assert_string_equal(s->text, "id: 1\ndata: 1\n\nid: 2\ndata: 2\n\n");
    assert_int_equal(s->info.end, END_COMPLETED);
    assert_int_equal(look(&g, SNAPSHOT)->err, ERR_NOT_FOUND);
    assert_int_equal(g.moody->n_writes, 3); /* the last event and the end are one */
    rig_deinit(&g);
}

static void test_ends_without_events(void **state)
{
    static const enum end_reason reasons[] = {END_COMPLETED, END_CANCELLED, END_FAILED,
                                              END_ORPHANED};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        struct rig g;
        rig_prepare(&g, NULL);
        g.config.folds = true;
        begin(&g);
        end(&g, reasons[i], ""); /* before it has started */
        sched_drain(&g.sched);
        assert_int_equal(g.started_err, 0);
        assert_ended(&g, reasons[i], 0);
        assert_int_equal(info_of(&g, NAME).end, reasons[i]);
        assert_int_equal(info_of(&g, NAME).events, reasons[i] == END_FAILED);
        assert_int_equal(look(&g, SNAPSHOT)->err, ERR_NOT_FOUND);
        assert_int_equal(recorder_seq(g.r), 0);
        rig_deinit(&g);
    }
}

/* ---- snapshots ---- */

static void test_snapshot(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    g.config.fold = FOLD_LAST;
    begin(&g);
    event(&g, "stage", "{\"stage\":\"DRAFTING\"}");
    sched_drain(&g.sched);
    event(&g, "stage", "{\"stage\":\"COMPLETE\",\n\"payload\":{\"a\":\n[1]}}");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_ended(&g, END_COMPLETED, 0);
    const struct seen *s = look(&g, SNAPSHOT);
    assert_string_equal(s->text, "{\"a\":[1]},");
    assert_int_equal(g.told[TOLD_SNAPSHOT], 1);
    assert_int_equal(g.snapshot_bytes, strlen("{\"a\":[1]}"));
    assert_int_equal(s->info.end, END_COMPLETED);
    assert_int_equal(s->info.events, 1);
    assert_int_equal(s->info.ttl_s, 960);
    assert_true(str_eq(info_of(&g, SNAPSHOT).content_type, STR("application/json")));
    assert_string_equal(g.moody->names, NAME " " NAME " " NAME " " SNAPSHOT " " NAME " ");
    rig_deinit(&g);
}

static void test_snapshot_of_a_failure(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    event(&g, "", "plain\ntext");
    end(&g, END_FAILED, "cut");
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, 0);
    assert_string_equal(look(&g, SNAPSHOT)->text, "\"plain\\ntext\",");
    assert_int_equal(info_of(&g, SNAPSHOT).end, END_FAILED);
    assert_string_equal(look(&g, NAME)->text, "id: 1\ndata: plain\ndata: text\n\n: cut\n\n");
    rig_deinit(&g);
}

static void test_snapshot_so_far(void **state)
{
    struct rig g;
    struct buf out = {0};
    uint64_t seq = 99;
    rig_init(&g);
    assert_int_equal(recorder_snapshot(g.r, &out, &seq), ERR_NOT_FOUND);
    rig_deinit(&g);

    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    sched_drain(&g.sched);
    assert_int_equal(recorder_snapshot(g.r, &out, &seq), ERR_EMPTY);
    assert_int_equal(seq, 99);
    event(&g, "", "1");
    sched_drain(&g.sched);
    g.moody->hold = true;
    event(&g, "", "2");
    sched_drain(&g.sched);
    event(&g, "", "3");
    assert_int_equal(recorder_snapshot(g.r, &out, &seq), 0); /* of what is durable */
    assert_int_equal(seq, 1);
    assert_true(str_eq(buf_str(&out), STR("1")));
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    out.n = 0;
    assert_int_equal(recorder_snapshot(g.r, &out, &seq), 0);
    assert_int_equal(seq, 3);
    assert_true(str_eq(buf_str(&out), STR("3")));
    buf_deinit(&out);
    rig_deinit(&g);
}

static void test_fold_too_large(void **state)
{
    struct rig g;
    struct buf out = {0};
    uint64_t seq;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    g.config.fold_max = 10;
    begin(&g);
    event(&g, "", "\"much more than ten bytes\"");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_ended(&g, END_COMPLETED, 0);
    assert_int_equal(recorder_snapshot(g.r, &out, &seq), ERR_TOO_LARGE);
    assert_int_equal(look(&g, SNAPSHOT)->err, ERR_NOT_FOUND);
    assert_int_equal(info_of(&g, NAME).events, 1);
    buf_deinit(&out);
    rig_deinit(&g);
}

/* ---- a store in trouble ---- */

static void test_tried_again(void **state)
{
    struct rig g;
    rig_init(&g);
    unsigned before = g.moody->n_writes;
    refuse(&g, ERR_FULL, 4);
    event(&g, "", "1");
    sched_drain(&g.sched);
    event(&g, "", "2");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_int_equal(g.moody->n_writes, before + 1); /* not at once */
    unsigned turns = 0;
    while (g.told[TOLD_ENDED] == 0) {
        pass(&g, 10);
        assert_true(++turns < 1000);
    }
    assert_ended(&g, END_COMPLETED, 0);
    assert_int_equal(g.moody->n_writes, before + 6);
    assert_string_equal(look(&g, NAME)->text, "id: 1\ndata: 1\n\nid: 2\ndata: 2\n\n");
    rig_deinit(&g);
}

static void pass_patience(struct rig *g)
{
    for (int i = 0; i < RECORDER_RETRY_FOR_MS / 500 + 10; i++)
        pass(g, 500);
}

static void test_full_for_good(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    event(&g, "", "1");
    sched_drain(&g.sched);
    refuse(&g, ERR_FULL, INT64_MAX);
    g.moody->data_only = true; /* as a disk does: a close stores nothing */
    event(&g, "", "2");
    sched_drain(&g.sched);
    event(&g, "", "3");
    pass(&g, RECORDER_RETRY_FOR_MS / 2);
    assert_int_equal(g.told[TOLD_ENDED], 0);
    pass_patience(&g);
    assert_ended(&g, END_ORPHANED, 0);
    assert_int_equal(recorder_seq(g.r), 1);
    assert_int_equal(info_of(&g, NAME).end, END_ORPHANED);
    assert_string_equal(look(&g, NAME)->text, "id: 1\ndata: 1\n\n");
    assert_int_equal(event(&g, "", "4"), ERR_CLOSED);
    rig_deinit(&g);
}

static void test_full_until_events_are_lost(void **state)
{
    struct rig g;
    rig_init(&g);
    event(&g, "", "1");
    sched_drain(&g.sched);
    refuse(&g, ERR_BUSY, INT64_MAX);
    g.moody->open_only = true;
    event(&g, "", "2");
    sched_drain(&g.sched);
    end(&g, END_COMPLETED, "");
    pass_patience(&g);
    assert_in_range(g.moody->n_writes, 20, 50);
    assert_ended(&g, END_FAILED, 0);
    assert_int_equal(info_of(&g, NAME).events, 2);
    const struct seen *s = look(&g, NAME);
    assert_string_equal(s->text, "id: 1\ndata: 1\n\n: the store did not answer for 30 s\n\n");
    rig_deinit(&g);
}

static void test_never_closed(void **state)
{
    struct rig g;
    rig_init(&g);
    refuse(&g, ERR_FULL, INT64_MAX);
    end(&g, END_COMPLETED, "");
    pass_patience(&g);
    assert_ended(&g, END_FAILED, ERR_FULL);
    unsigned n = g.moody->n_writes;
    pass_patience(&g);
    assert_int_equal(g.moody->n_writes, n);
    refuse(&g, 0, 0);
    assert_int_equal(info_of(&g, NAME).end, END_NONE);
    rig_deinit(&g);
}

static void test_snapshot_finds_no_room(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    event(&g, "", "1");
    sched_drain(&g.sched);
    refuse(&g, ERR_FULL, INT64_MAX);
    g.moody->data_only = true;
    end(&g, END_COMPLETED, "");
    pass_patience(&g);
    assert_ended(&g, END_COMPLETED, 0); /* no event is missing */
    assert_int_equal(g.told[TOLD_SNAPSHOT], 0);
    assert_int_equal(look(&g, SNAPSHOT)->err, ERR_NOT_FOUND);
    rig_deinit(&g);
}

static void test_store_broken(void **state)
{
    struct rig g;
    rig_init(&g);
    refuse(&g, ERR_IO, INT64_MAX);
    event(&g, "", "x");
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, ERR_IO);
    assert_int_equal(recorder_seq(g.r), 0);
    assert_int_equal(event(&g, "", "x"), ERR_CLOSED);
    rig_deinit(&g);
}

/* ---- others at the same stream ---- */

static void test_removed(void **state)
{
    struct rig g;
    rig_init(&g);
    event(&g, "", "x");
    sched_drain(&g.sched);
    other_remove(&g);
    event(&g, "", "y");
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, ERR_NOT_FOUND);
    assert_int_equal(recorder_seq(g.r), 1);
    rig_deinit(&g);
}

static void test_reborn(void **state)
{
    struct rig g;
    rig_init(&g);
    struct stream_config config = {.content_type = STR("text/event-stream"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE};
    other_remove(&g);
    other_write(&g, (struct store_write){.create = &config});
    event(&g, "", "y");
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, ERR_NOT_FOUND);
    assert_int_equal(info_of(&g, NAME).events, 0);
    assert_int_equal(info_of(&g, NAME).end, END_NONE);
    rig_deinit(&g);
}

static void test_closed_by_another(void **state)
{
    struct rig g;
    rig_init(&g);
    other_write(&g, (struct store_write){.close = true, .end = END_CANCELLED});
    event(&g, "", "y");
    sched_drain(&g.sched);
    assert_ended(&g, END_CANCELLED, ERR_CLOSED);
    rig_deinit(&g);

    rig_init(&g);
    other_write(&g, (struct store_write){.close = true, .end = END_CANCELLED});
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_ended(&g, END_CANCELLED, 0);
    rig_deinit(&g);
}

/* What it had is folded all the same, and nothing of what came too late. */
static void test_closed_by_another_has_a_snapshot(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    event(&g, "", "x");
    sched_drain(&g.sched);
    other_write(&g, (struct store_write){.close = true, .end = END_CANCELLED});
    event(&g, "", "y");
    sched_drain(&g.sched);
    assert_ended(&g, END_CANCELLED, 0);
    assert_string_equal(look(&g, NAME)->text, "id: 1\ndata: x\n\n");
    assert_string_equal(look(&g, SNAPSHOT)->text, "\"x\",");
    assert_int_equal(info_of(&g, SNAPSHOT).end, END_CANCELLED);
    assert_int_equal(event(&g, "", "z"), ERR_CLOSED);
    rig_deinit(&g);
}

static void test_written_by_another(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.folds = true;
    begin(&g);
    event(&g, "", "x");
    sched_drain(&g.sched);
    other_write(&g, (struct store_write){.data = STR("data: mine\n\n"), .n_events = 1});
    event(&g, "", "y");
    sched_drain(&g.sched);
    assert_ended(&g, END_FAILED, 0);
    assert_string_equal(look(&g, NAME)->text,
                        "id: 1\ndata: x\n\ndata: mine\n\n"
                        ": somebody else has written to the stream of this generation\n\n");
    assert_int_equal(look(&g, SNAPSHOT)->err, ERR_NOT_FOUND);
    rig_deinit(&g);
}

static void test_trimmed(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.config.retain.events = 10;
    begin(&g);
    for (int i = 0; i < 100; i++) {
        event(&g, "", "x");
        sched_drain(&g.sched);
    }
    struct stream_info info = info_of(&g, NAME);
    assert_true(info.first_event >= 88);
    assert_int_equal(g.trim.first_event, info.first_event);
    assert_int_equal(g.trimmed, info.first_event);
    assert_int_equal(g.trimmed_bytes, info.first);
    assert_int_equal(g.trim.kept_events, 100 - info.first_event);
    assert_int_equal(g.trim.kept_bytes, info.tail - info.first);
    assert_int_equal(recorder_seq(g.r), 100);
    rig_deinit(&g);
}

/* ---- letting go ---- */

static void test_free_while_under_way(void **state)
{
    struct rig g;
    recorder_free(NULL);
    rig_prepare(&g, NULL);
    begin(&g);
    drop(&g); /* the stream is about to be made, and nobody is told */
    sched_drain(&g.sched);
    assert_int_equal(info_of(&g, NAME).end, END_NONE);
    rig_deinit(&g);

    rig_init(&g);
    g.moody->hold = true;
    event(&g, "", "1");
    sched_drain(&g.sched);
    event(&g, "", "2"); /* this one is not on its way */
    drop(&g);
    moody_let_go(g.moody);
    sched_drain(&g.sched);
    assert_string_equal(look(&g, NAME)->text, "id: 1\ndata: 1\n\n");
    rig_deinit(&g);
}

static void test_free_while_it_waits(void **state)
{
    struct rig g;
    rig_init(&g);
    refuse(&g, ERR_BUSY, 1);
    event(&g, "", "1");
    sched_drain(&g.sched);
    drop(&g);
    pass_patience(&g);
    assert_int_equal(info_of(&g, NAME).events, 0);
    rig_deinit(&g);

    rig_init(&g);
    event(&g, "", "1"); /* the write is for later in this turn */
    drop(&g);
    sched_drain(&g.sched);
    assert_int_equal(info_of(&g, NAME).events, 0);
    rig_deinit(&g);
}

static void test_free_in_each_callback(void **state)
{
    for (int what = 0; what < TOLDS; what++) {
        struct rig g;
        rig_prepare(&g, NULL);
        g.free_in = what;
        g.config.folds = true;
        g.config.pending_max = 10;
        g.config.retain.events = 1;
        begin(&g);
        for (int i = 0; g.r != NULL && i < 50; i++) {
            event(&g, "", "0123456789");
            sched_drain(&g.sched);
        }
        if (g.r != NULL)
            end(&g, END_COMPLETED, "");
        sched_drain(&g.sched);
        assert_null(g.r);
        assert_int_equal(g.told[what], 1);
        rig_deinit(&g);
    }
}

/* Of several that one write gives rise to, the first; the rest is not told. */
static void test_free_in_the_first_of_many(void **state)
{
    struct rig g;
    rig_prepare(&g, NULL);
    g.free_in = TOLD_RECORDED;
    g.config.retain.events = 1;
    begin(&g);
    for (int i = 0; i < 50; i++)
        event(&g, "", "x");
    end(&g, END_COMPLETED, "");
    sched_drain(&g.sched);
    assert_null(g.r);
    assert_int_equal(info_of(&g, NAME).end, END_COMPLETED);
    assert_true(info_of(&g, NAME).first_event > 0);
    assert_int_equal(g.told[TOLD_TRIMMED], 0);
    assert_int_equal(g.told[TOLD_ENDED], 0);
    rig_deinit(&g);
}

static void test_free_in_the_end_of_trouble(void **state)
{
    struct rig g;
    rig_init(&g);
    g.free_in = TOLD_ENDED;
    refuse(&g, ERR_FULL, INT64_MAX);
    event(&g, "", "x");
    pass_patience(&g);
    assert_ended(&g, END_FAILED, ERR_FULL);
    assert_null(g.r);
    rig_deinit(&g);

    rig_prepare(&g, NULL);
    g.free_in = TOLD_STARTED;
    refuse(&g, ERR_BUSY, 1);
    begin(&g);
    sched_drain(&g.sched);
    assert_null(g.r);
    rig_deinit(&g);
}

/* ---- at random ---- */

static uint64_t wrap_seed;

static struct store *wrap_delay(struct rig *g, struct store *inner)
{
    return g->delay = delay_store_new(inner, wrap_seed, 5);
}

/* Waits when told to, as an upstream does; returns what the stream must hold. */
static void random_events(struct rig *g, struct rng *r, struct buf *want)
{
    uint64_t n = rng_below(r, 200), number = 0;
    bool wait = false;
    unsigned turns = 0, rooms = 0;
    while (number < n) {
        assert_true(turns++ < TURNS_MAX);
        for (uint64_t k = rng_below(r, 8); k > 0 && !wait && number < n; k--) {
            char text[300];
            memset(text, 'a' + (int)(number % 26), sizeof text);
            struct str data = str_of(text, rng_below(r, sizeof text));
            buf_printf(want, "id: %llu\ndata: ", (unsigned long long)++number);
            buf_put(want, data);
            buf_put(want, STR("\n\n"));
            rooms = g->told[TOLD_ROOM];
            wait = event_of(g, STR_NONE, data) == 0;
        }
        pass(g, SCHED_TICK_MS);
        wait = wait && g->told[TOLD_ROOM] == rooms;
    }
}

/* A whole generation, with its end; *want is what must be stored. */
static enum end_reason random_generation(struct rig *g, struct rng *r, struct buf *want)
{
    struct doc_put doc = {.key = STR("key"), .value = STR("v")};
    g->moody->rng = r;
    g->config.docs = &doc;
    g->config.n_docs = 1;
    g->config.pending_max = rng_between(r, 1, 2000);
    g->config.folds = rng_one_in(r, 2);
    begin(g);
    random_events(g, r, want);
    enum end_reason reason = rng_one_in(r, 2) ? END_FAILED : END_COMPLETED;
    end(g, reason, "it broke");
    for (unsigned turns = 0; g->told[TOLD_ENDED] == 0; turns++) {
        assert_true(turns < TURNS_MAX);
        pass(g, SCHED_TICK_MS);
    }
    assert_ended(g, reason, 0);
    if (reason == END_FAILED)
        buf_put(want, STR(": it broke\n\n"));
    drop(g);
    return reason;
}

static void assert_stored(const struct seen *s, enum end_reason reason, const struct buf *want)
{
    assert_int_equal(s->err, 0);
    assert_int_equal(s->info.end, reason);
    assert_int_equal(s->info.tail, want->n);
    if (want->n > 0)
        assert_memory_equal(s->text, want->p, want->n);
}

static void random_delayed(struct rng *r)
{
    struct rig g;
    struct buf want = {0};
    wrap_seed = rng_next(r);
    rig_prepare(&g, wrap_delay);
    enum end_reason reason = random_generation(&g, r, &want);
    g.moody->inner = delay_of(g.delay)->inner; /* to look without delay */
    assert_stored(look(&g, NAME), reason, &want);
    g.moody->inner = g.delay;
    while (delay_pending(g.delay) > 0)
        pass(&g, SCHED_TICK_MS);
    buf_deinit(&want);
    rig_deinit(&g);
}

static void test_random(void **state)
{
    seeds_run(300, random_delayed);
}

static void on_stopped(void *ctx)
{
    ((struct rig *)ctx)->stopped = true;
}

static void stop_store(struct rig *g)
{
    g->stopped = false;
    store_stop(g->moody->inner, on_stopped, g);
    for (unsigned turns = 0; !g->stopped; turns++) {
        assert_true(turns < TURNS_MAX);
        pass(g, SCHED_TICK_MS);
    }
    store_free(g->moody->inner);
}

struct piece {
    struct store_read read;
    struct buf *text;
    bool done;
};

static void on_piece(struct store_read *r, int err)
{
    struct piece *p = container_of(r, struct piece, read);
    assert_int_equal(err, 0);
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(p->text, r->slices[i].bytes);
    p->done = true;
    store_read_release(r);
}

/* In pieces, since a small cache does not give all at once. */
static enum end_reason read_all(struct rig *g, struct buf *text)
{
    struct piece p = {.text = text};
    struct store_read *r = &p.read;
    *r = (struct store_read){
        .name = STR(NAME), .from = READ_START, .max_bytes = 4096, .done = on_piece};
    do {
        p.done = false;
        store_read(g->moody->inner, r);
        for (unsigned turns = 0; !p.done; turns++) {
            assert_true(turns < TURNS_MAX);
            pass(g, SCHED_TICK_MS);
        }
        r->from = READ_AT;
        r->at = (struct offset){r->info.life, r->next};
    } while (r->next < r->info.tail);
    return r->info.end;
}

static void random_embedded(struct rng *r)
{
    struct rig g;
    struct buf want = {0}, text = {0};
    void *ctx;
    rig_prepare(&g, NULL);
    store_free(g.moody->inner);
    g.moody->inner = disk_make(&g.sched, rng_next(r), &ctx);
    enum end_reason reason = random_generation(&g, r, &want);
    stop_store(&g);
    g.moody->inner = disk_reopen(ctx);
    assert_int_equal(read_all(&g, &text), reason);
    assert_int_equal(text.n, want.n);
    if (want.n > 0)
        assert_memory_equal(text.p, want.p, want.n);
    stop_store(&g);
    g.moody->inner = NULL;
    rig_deinit(&g);
    disk_release(ctx);
    buf_deinit(&want);
    buf_deinit(&text);
}

static void test_random_embedded(void **state)
{
    seeds_run(30, random_embedded);
}

/* Whenever it is let go of, nothing is told any more and nothing is left behind. */
static void random_free(struct rng *r)
{
    struct rig g;
    wrap_seed = rng_next(r);
    rig_prepare(&g, wrap_delay);
    struct doc_put doc = {.key = STR("key"), .value = STR("v")};
    g.config.docs = &doc;
    g.config.n_docs = 1;
    g.config.folds = rng_one_in(r, 2);
    g.moody->rng = r;
    begin(&g);
    for (uint64_t turns = rng_below(r, 60); turns > 0; turns--) {
        if (rng_one_in(r, 2))
            event(&g, "", "x");
        if (rng_one_in(r, 30))
            end(&g, END_COMPLETED, "");
        pass(&g, SCHED_TICK_MS);
    }
    drop(&g);
    for (unsigned turns = 0; delay_pending(g.delay) > 0; turns++) {
        assert_true(turns < TURNS_MAX);
        pass(&g, SCHED_TICK_MS);
    }
    rig_deinit(&g);
}

static void test_random_free(void **state)
{
    seeds_run(300, random_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_answer),
        cmocka_unit_test(test_a_whole_answer_and_a_moody_store),
        cmocka_unit_test(test_stored_form),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_notice),
        cmocka_unit_test(test_one_turn_one_write),
        cmocka_unit_test(test_one_write_at_a_time),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_no_room_in_trouble),
        cmocka_unit_test(test_no_room_after_the_end),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_name_is_taken),
        cmocka_unit_test(test_start_is_not_tried_again),
        cmocka_unit_test(test_completed),
        cmocka_unit_test(test_ends_without_events),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_snapshot_of_a_failure),
        cmocka_unit_test(test_snapshot_so_far),
        cmocka_unit_test(test_fold_too_large),
        cmocka_unit_test(test_tried_again),
        cmocka_unit_test(test_full_for_good),
        cmocka_unit_test(test_full_until_events_are_lost),
        cmocka_unit_test(test_never_closed),
        cmocka_unit_test(test_snapshot_finds_no_room),
        cmocka_unit_test(test_store_broken),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_reborn),
        cmocka_unit_test(test_closed_by_another),
        cmocka_unit_test(test_closed_by_another_has_a_snapshot),
        cmocka_unit_test(test_written_by_another),
        cmocka_unit_test(test_trimmed),
        cmocka_unit_test(test_free_while_under_way),
        cmocka_unit_test(test_free_while_it_waits),
        cmocka_unit_test(test_free_in_each_callback),
        cmocka_unit_test(test_free_in_the_first_of_many),
        cmocka_unit_test(test_free_in_the_end_of_trouble),
        cmocka_unit_test_teardown(test_random, seeds_teardown),
        cmocka_unit_test_teardown(test_random_embedded, seeds_teardown),
        cmocka_unit_test_teardown(test_random_free, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
