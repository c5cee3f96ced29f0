// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "stream/payload.h"
#include "feature/sessions/session_seal.h"
#include "feature/sessions/session_view.h"
#include "store/mem/mem_store.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define PENDING  1
#define TYPE     "application/x-tidemark-session"
#define IN       "sessions/chat/in"
#define OUT      "sessions/chat/out"

/* A real store, the view on it, and what stands for the engine: it holds one session's keys, and
 * writes what it is given. */
struct world {
    struct sched sched;
    struct store *real, *view;
    struct session_keys *keys;
    bool held;
    int writes;          /* that reached the engine */
    struct buf contents; /* of the last */
    bool stopped;
};

static struct session_keys *give_keys(void *ctx, struct str key)
{
    struct world *w = ctx;
    return w->held && str_eq(key, STR("chat")) ? w->keys : NULL;
}

/* ---- the engine's part: seals, and writes with the preconditions that were asked for ---- */

struct sealing {
    struct store_write write;
    struct store_stat stat;
    struct store_write *asked;
    struct world *world;
    struct str contents;
    struct buf sealed, ends;
};

static void on_sealed(struct store_write *write, int err)
{
    struct sealing *s = container_of(write, struct sealing, write);
    struct store_write *asked = s->asked;
    asked->info = write->info;
    asked->duplicate = write->duplicate;
    asked->producer = write->producer;
    asked->expected_seq = write->expected_seq;
    asked->done(asked, err);
    buf_deinit(&s->sealed);
    buf_deinit(&s->ends);
    free(s);
}

static void on_tail(struct store_stat *stat, int err)
{
    struct sealing *s = container_of(stat, struct sealing, stat);
    assert_int_equal(err, 0);
    struct str content;
    bool is_text;
    uint64_t ordinal = stat->info.events;
    while (session_content_cut(&s->contents, &is_text, &content)) {
        struct buf event = {0};
        buf_putc(&event, 0);
        buf_put(&event, is_text ? STR("text:") : STR("data:"));
        buf_put(&event, content);
        session_seal(s->world->keys, SESSION_OUT, ordinal++, SESSION_RECORD_EVENT, 0,
                     buf_str(&event), &s->sealed);
        uint32_t end = (uint32_t)s->sealed.n;
        buf_put(&s->ends, str_of((char *)&end, sizeof end));
        buf_deinit(&event);
    }
    assert_int_equal(s->contents.n, 0);
    s->write.data = buf_str(&s->sealed);
    s->write.ends = (const uint32_t *)(const void *)s->ends.p;
    s->write.n_events = (uint32_t)(s->ends.n / sizeof(uint32_t));
    store_write(s->world->real, &s->write);
}

static void seal_out(void *ctx, struct str key, struct store_write *w, struct str contents)
{
    struct world *world = ctx;
    assert_true(str_eq(key, STR("chat")));
    assert_int_equal(w->data_err, 0);
    assert_null(w->create);
    world->writes++;
    world->contents.n = 0;
    buf_put(&world->contents, contents);
    struct sealing *s = mem_zalloc(sizeof *s);
    s->write = *w;
    s->write.done = on_sealed;
    s->asked = w;
    s->world = world;
    s->contents = contents; /* lives until done() */
    s->stat = (struct store_stat){.name = w->name, .done = on_tail};
    store_stat(world->real, &s->stat);
}

static const struct session_view_ops view_ops = {.keys = give_keys, .write_out = seal_out};

/* ---- operations, one at a time ---- */

struct writing {
    struct store_write op;
    int err;
};

static void on_written(struct store_write *w, int err)
{
    struct writing *wr = container_of(w, struct writing, op);
    assert_int_equal(wr->err, PENDING);
    wr->err = err;
}

static int run_write(struct world *w, struct store *s, struct writing *wr)
{
    wr->err = PENDING;
    wr->op.done = on_written;
    store_write(s, &wr->op);
    assert_int_equal(wr->err, PENDING); /* never from within the call */
    sched_drain(&w->sched);
    assert_int_not_equal(wr->err, PENDING);
    return wr->err;
}

static void create(struct world *w, const char *name)
{
    struct stream_config config = {
        .content_type = STR(TYPE), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct writing wr = {.op = {.name = str_of_cstr(name), .create = &config}};
    assert_int_equal(run_write(w, w->real, &wr), 0);
}

/* Puts a record into the real stream, as the engine would. */
static void put_record(struct world *w, const char *name, uint64_t ordinal,
                       enum session_record_type type, uint64_t a, struct str content)
{
    enum session_direction direction =
        str_eq(str_of_cstr(name), STR(OUT)) ? SESSION_OUT : SESSION_IN;
    struct buf sealed = {0};
    session_seal(w->keys, direction, ordinal, type, a, content, &sealed);
    struct writing wr = {
        .op = {.name = str_of_cstr(name), .data = buf_str(&sealed), .n_events = 1}};
    assert_int_equal(run_write(w, w->real, &wr), 0);
    buf_deinit(&sealed);
}

struct reading {
    struct store_read op;
    struct buf text; /* NUL-terminated */
    struct str type;
    int err;
};

static void on_read(struct store_read *r, int err)
{
    struct reading *rd = container_of(r, struct reading, op);
    assert_int_equal(rd->err, PENDING);
    rd->err = err;
    rd->type = r->info.content_type;
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_slices; i++) {
        buf_put(&rd->text, r->slices[i].bytes);
        n += r->slices[i].bytes.n;
    }
    assert_true(err == 0 || n == 0);
    if (err == 0)
        assert_int_equal(n > 0, r->next > r->start);
    buf_putc(&rd->text, '\0');
    rd->text.n--;
    store_read_release(r);
}

static int run_read(struct world *w, struct reading *rd)
{
    rd->err = PENDING;
    rd->op.done = on_read;
    rd->text.n = 0;
    if (rd->op.max_bytes == 0)
        rd->op.max_bytes = 1 << 20;
    store_read(w->view, &rd->op);
    assert_int_equal(rd->err, PENDING);
    sched_drain(&w->sched);
    assert_int_not_equal(rd->err, PENDING);
    return rd->err;
}

static void assert_reads(struct world *w, const char *name, const char *text)
{
    struct reading rd = {.op = {.name = str_of_cstr(name), .from = READ_START}};
    assert_int_equal(run_read(w, &rd), 0);
    assert_string_equal(rd.text.p, text);
    assert_true(str_eq(rd.type, STR("application/json")));
    buf_deinit(&rd.text);
}

static int read_err(struct world *w, const char *name, enum read_from from)
{
    struct reading rd = {.op = {.name = str_of_cstr(name), .from = from}};
    int err = run_read(w, &rd);
    buf_deinit(&rd.text);
    return err;
}

/* A JSON body to `out`, split as a surface does. */
static int post(struct world *w, const char *body, struct writing *wr)
{
    struct payload p = {0};
    wr->op.name = STR(OUT);
    if (body[0] != '\0') {
        wr->op.content_type = STR("application/json");
        payload_prepare(&p, &wr->op, wr->op.content_type, str_of_cstr(body), false);
    }
    int err = run_write(w, w->view, wr);
    payload_deinit(&p);
    return err;
}

static uint64_t events_of(struct world *w, const char *name);

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    uint8_t secret[SESSION_SECRET_SIZE] = {1, 2, 3}, salt[SESSION_SALT_SIZE] = {4, 5, 6};
    sched_init(&w->sched, 1000, 1800000000000);
    w->real = mem_store_new(&w->sched);
    w->view = session_view_new(&w->sched, w->real, &view_ops, w);
    w->keys = session_keys_new(secret, salt, STR("chat"));
    w->held = true;
    create(w, IN);
    create(w, OUT);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    sched_drain(&w->sched);
    store_free(w->view);
    store_free(w->real);
    session_keys_free(w->keys);
    buf_deinit(&w->contents);
    free(w);
    return 0;
}

/* ---- stat ---- */

struct statting {
    struct store_stat op;
    struct stream_info info;
    int err;
};

static void on_stat(struct store_stat *st, int err)
{
    struct statting *s = container_of(st, struct statting, op);
    s->info = st->info;
    s->err = err;
}

static int run_stat(struct world *w, struct store *s, const char *name, struct stream_info *info)
{
    struct statting st = {.op = {.name = str_of_cstr(name), .done = on_stat}, .err = PENDING};
    store_stat(s, &st.op);
    assert_int_equal(st.err, PENDING);
    sched_drain(&w->sched);
    *info = st.info;
    return st.err;
}

static uint64_t events_of(struct world *w, const char *name)
{
    struct stream_info info;
    assert_int_equal(run_stat(w, w->real, name, &info), 0);
    return info.events;
}

/* ---- reading ---- */

static void put_dialogue(struct world *w)
{
    put_record(w, IN, 0, SESSION_RECORD_CHUNK, 0, STR("hello"));
    put_record(w, IN, 1, SESSION_RECORD_CHUNK, UINT32_MAX, STR(""));
    put_record(w, IN, 2, SESSION_RECORD_ABORT, 0, STR(""));
    put_record(w, IN, 3, SESSION_RECORD_CLOSE, 0, STR(""));
    put_record(w, IN, 4, SESSION_RECORD_MOVED, 0, STR(""));
    put_record(w, OUT, 0, SESSION_RECORD_EVENT, 0, STR("\0one"));
    put_record(w, OUT, 1, SESSION_RECORD_EVENT, 0, STR("\3idxtwo"));
    put_record(w, OUT, 2, SESSION_RECORD_EVENT, 1, STR("\3idx"));
}

static void test_read(void **state)
{
    struct world *w = *state;
    assert_reads(w, IN, "");
    put_dialogue(w);
    assert_reads(w, IN,
                 "{\"type\":\"chunk\",\"seqno\":0,\"data\":\"aGVsbG8=\"},"
                 "{\"type\":\"chunk\",\"seqno\":4294967295,\"data\":\"\"},"
                 "{\"type\":\"abort\"},{\"type\":\"close\"},{\"type\":\"moved\"},");
    assert_reads(w, OUT,
                 "{\"id\":\"1\",\"data\":\"b25l\"},{\"id\":\"2\",\"data\":\"dHdv\"},"
                 "{\"id\":\"3\",\"data\":\"\"},");
}

/* Positions are those of the sealed stream, and a reader can begin at any of them. */
static void test_positions(void **state)
{
    struct world *w = *state;
    struct stream_info info;
    put_dialogue(w);
    assert_int_equal(run_stat(w, w->real, OUT, &info), 0);
    static const char *const rests[] = {
        "{\"id\":\"1\",\"data\":\"b25l\"},",
        "{\"id\":\"2\",\"data\":\"dHdv\"},",
        "{\"id\":\"3\",\"data\":\"\"},",
    };
    struct reading rd = {
        .op = {.name = STR(OUT), .from = READ_AT, .at = {info.life, 0}, .max_bytes = 1}};
    for (size_t i = 0; i < COUNT(rests); i++) {
        assert_int_equal(run_read(w, &rd), 0);
        assert_string_equal(rd.text.p, rests[i]);
        assert_int_equal(rd.op.ordinal, i);
        assert_int_equal(rd.op.start, rd.op.at.pos);
        assert_int_equal(rd.op.last, rd.op.start);
        rd.op.at.pos = rd.op.next;
    }
    assert_int_equal(rd.op.next, info.tail);
    rd.op.from = READ_EVENT;
    rd.op.event = 2;
    assert_int_equal(run_read(w, &rd), 0);
    assert_string_equal(rd.text.p, rests[2]);
    rd.op.from = READ_AT;
    rd.op.at.pos = 1; /* within a record */
    assert_int_equal(run_read(w, &rd), ERR_OFFSET);
    rd.op.at = (struct offset){info.life + 7, 0};
    assert_int_equal(run_read(w, &rd), ERR_GAP);
    assert_int_equal(rd.op.gap.earliest.life, info.life);
    buf_deinit(&rd.text);
}

/* So much that the store has it in several runs of memory. */
static void test_many_slices(void **state)
{
    struct world *w = *state;
    enum { EVENTS = 12, SIZE = 30000 };
    char *content = mem_zalloc(1 + SIZE);
    struct buf right = {0};
    for (uint64_t i = 0; i < EVENTS; i++) {
        put_record(w, OUT, i, SESSION_RECORD_EVENT, 0, str_of(content, 1 + SIZE));
        buf_printf(&right, "{\"id\":\"%d\",\"data\":\"", (int)i + 1);
        memset(buf_reserve(&right, SIZE / 3 * 4), 'A', SIZE / 3 * 4);
        right.n += SIZE / 3 * 4;
        buf_put(&right, STR("\"},"));
    }
    buf_putc(&right, '\0');
    assert_reads(w, OUT, right.p);
    buf_deinit(&right);
    free(content);
}

static void test_key_absent(void **state)
{
    struct world *w = *state;
    w->held = false;
    assert_int_equal(read_err(w, IN, READ_START), 0); /* there is nothing to be opened */
    put_dialogue(w);
    assert_int_equal(read_err(w, IN, READ_START), ERR_KEY_ABSENT);
    assert_int_equal(read_err(w, IN, READ_TAIL), 0);
    w->held = true;
    assert_int_equal(read_err(w, IN, READ_START), 0);
}

static void test_no_such_names(void **state)
{
    struct world *w = *state;
    static const char *const names[] = {
        "plain",           "sessions/",          "sessions/chat",      "sessions/chat/",
        "sessions//in",    "sessions/chat/inn",  "sessions/chat/in/x", "sessions/chat/ou",
        ".route/chat/one", "sessions/other/out", "session/chat/in",
    };
    struct stream_info info;
    create(w, "plain");
    create(w, ".route/chat/one");
    create(w, "sessions/chat/inn");
    create(w, "sessions//in");
    for (size_t i = 0; i < COUNT(names); i++) {
        struct writing wr = {
            .op = {.name = str_of_cstr(names[i]), .close = true, .end = END_COMPLETED}};
        assert_int_equal(read_err(w, names[i], READ_START), ERR_NOT_FOUND);
        assert_int_equal(run_stat(w, w->view, names[i], &info), ERR_NOT_FOUND);
        assert_int_equal(run_write(w, w->view, &wr), ERR_NOT_FOUND);
    }
    assert_int_equal(w->writes, 0);
}

static void test_corrupt(void **state)
{
    struct world *w = *state;
    put_record(w, IN, 7, SESSION_RECORD_CHUNK, 0, STR("sealed for another place"));
    assert_int_equal(read_err(w, IN, READ_START), ERR_CORRUPT);
    put_record(w, OUT, 0, SESSION_RECORD_CHUNK, 0, STR("of the other direction"));
    assert_int_equal(read_err(w, OUT, READ_START), ERR_CORRUPT);
}

/* An event whose content ends within the backend's id. */
static void test_corrupt_id(void **state)
{
    struct world *w = *state;
    put_record(w, OUT, 0, SESSION_RECORD_EVENT, 0, STR("\4abc"));
    assert_int_equal(read_err(w, OUT, READ_START), ERR_CORRUPT);
}

static void test_corrupt_empty(void **state)
{
    struct world *w = *state;
    put_record(w, OUT, 0, SESSION_RECORD_EVENT, 0, STR_NONE);
    assert_int_equal(read_err(w, OUT, READ_START), ERR_CORRUPT);
}

/* ---- writing ---- */

static void test_write(void **state)
{
    struct world *w = *state;
    struct writing one = {0}, two = {0};
    assert_int_equal(post(w, "{\"text\":\"gr\\u00fc\\u00df\"}", &one), 0);
    assert_true(str_eq(buf_str(&w->contents), STR("\1\6\0\0\0gr\xc3\xbc\xc3\x9f")));
    assert_int_equal(
        post(w, " [ {\"data\":\"aGk=\"}, {\"text\" : \"\"},{\"data\":\"\\/+\\/+\"}]", &two), 0);
    assert_int_equal(w->writes, 2);
    assert_int_equal(events_of(w, OUT), 4);
    assert_reads(
        w, OUT,
        "{\"id\":\"1\",\"data\":\"dGV4dDpncsO8w58=\"},{\"id\":\"2\",\"data\":\"ZGF0YTpoaQ==\"},"
        "{\"id\":\"3\",\"data\":\"dGV4dDo=\"},{\"id\":\"4\",\"data\":\"ZGF0YTr/7/4=\"},");
    struct stream_info info;
    assert_int_equal(run_stat(w, w->real, OUT, &info), 0);
    assert_int_equal(two.op.info.tail, info.tail);
    assert_true(two.op.info.tail > one.op.info.tail);
}

static void test_write_strict(void **state)
{
    struct world *w = *state;
    static const char *const bad[] = {
        "1",
        "\"text\"",
        "null",
        "[[]]",
        "{}",
        "{\"text\":1}",
        "{\"text\":null}",
        "{\"text\":[\"a\"]}",
        "{\"data\":{}}",
        "{\"other\":\"a\"}",
        "{\"Text\":\"a\"}",
        "{\"text\":\"a\",\"data\":\"\"}",
        "{\"text\":\"a\",\"text\":\"b\"}",
        "{\"text\":\"a\",\"more\":1}",
        "{\"text\":\"\\ud800\"}",
        "{\"data\":\"aGk\"}",
        "{\"data\":\"aGk= \"}",
        "{\"data\":\"aGl=\"}",
        "{\"data\":\"-_-_\"}",
        "[{\"text\":\"good\"},{\"text\":2}]",
        "[{\"text\":\"good\"},{\"data\":\"?\"}]",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct writing wr = {0};
        if (post(w, bad[i], &wr) != ERR_SYNTAX)
            fail_msg("%s: %d", bad[i], wr.err);
    }
    struct writing wr = {0};
    assert_int_equal(post(w, "{\"text\":", &wr), ERR_JSON);
    assert_int_equal(post(w, "[]", &wr), ERR_EMPTY);
    wr = (struct writing){
        .op = {
            .name = STR(OUT), .content_type = STR("text/plain"), .data = STR("a"), .n_events = 1}};
    assert_int_equal(run_write(w, w->view, &wr), ERR_TYPE_MISMATCH);
    wr.op.content_type = STR(TYPE); /* what it is sealed as is nobody's to write */
    assert_int_equal(run_write(w, w->view, &wr), ERR_TYPE_MISMATCH);
    assert_int_equal(w->writes, 0);
    assert_int_equal(events_of(w, OUT), 0);
}

static void test_preconditions(void **state)
{
    struct world *w = *state;
    struct producer_claim first = {STR("p"), 0, 0}, third = {STR("p"), 0, 2};
    struct writing wr = {.op = {.claim = first, .seq = STR("b")}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), 0);
    assert_false(wr.op.duplicate);
    wr = (struct writing){.op = {.claim = first}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), 0);
    assert_true(wr.op.duplicate);
    wr = (struct writing){.op = {.claim = third}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), ERR_SEQ_GAP);
    assert_int_equal(wr.op.expected_seq, 1);
    wr = (struct writing){.op = {.seq = STR("a")}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), ERR_SEQ_ORDER);
    wr = (struct writing){.op = {.if_match = true}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), ERR_TAIL_MOVED);
    assert_int_equal(events_of(w, OUT), 1);
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "{\"text\":\"z\"}", &wr), 0);
    assert_int_equal(wr.op.info.end, END_COMPLETED);
    assert_int_equal(events_of(w, OUT), 2);
    wr = (struct writing){0};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), ERR_CLOSED);
}

/* Bad data does not hide what comes before it. */
static void test_bad_data_comes_last(void **state)
{
    struct world *w = *state;
    struct producer_claim first = {STR("p"), 0, 0}, third = {STR("p"), 0, 2};
    struct writing wr = {.op = {.claim = first}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), 0);
    wr = (struct writing){.op = {.claim = third}};
    assert_int_equal(post(w, "{\"text\":1}", &wr), ERR_SEQ_GAP);
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "", &wr), 0);
    wr = (struct writing){0};
    assert_int_equal(post(w, "{\"text\":1}", &wr), ERR_CLOSED);
}

static void test_write_without_key(void **state)
{
    struct world *w = *state;
    struct producer_claim first = {STR("p"), 0, 0}, second = {STR("p"), 0, 1};
    struct writing wr = {.op = {.claim = first}};
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), 0);
    w->held = false;
    wr = (struct writing){.op = {.claim = first}}; /* its answer was lost */
    assert_int_equal(post(w, "{\"text\":\"a\"}", &wr), 0);
    assert_true(wr.op.duplicate);
    wr = (struct writing){.op = {.claim = second}};
    assert_int_equal(post(w, "{\"text\":\"b\"}", &wr), ERR_KEY_ABSENT);
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "", &wr), ERR_KEY_ABSENT);
    struct stream_info info;
    assert_int_equal(run_stat(w, w->real, OUT, &info), 0);
    assert_int_equal(info.end, END_NONE);
    w->held = true;
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "", &wr), 0);
    w->held = false; /* as of a session that is over */
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "", &wr), 0);
    assert_true(wr.op.duplicate);
    assert_int_equal(wr.op.info.end, END_COMPLETED);
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED, .claim = second}};
    assert_int_equal(post(w, "", &wr), ERR_CLOSED); /* somebody else closed it */
    wr = (struct writing){.op = {.close = true, .end = END_COMPLETED}};
    assert_int_equal(post(w, "{\"text\":\"b\"}", &wr), ERR_CLOSED);
    assert_int_equal(w->writes, 2);
}

/* ---- what nobody may do ---- */

static void on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, ERR_DENIED);
    r->name = STR("done");
}

static void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, ERR_DENIED);
    assert_int_equal(d->n_rows, 0);
    d->prefix = STR("done");
}

static void on_put(struct store_put *p, int err)
{
    assert_int_equal(err, ERR_DENIED);
    p->n_docs = 77;
}

static void test_denied(void **state)
{
    struct world *w = *state;
    struct stream_config config = {.content_type = STR("application/json"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE};
    static const char *const names[] = {IN, OUT, "sessions/new/out", "sessions/new", "plain"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct writing wr = {.op = {.name = str_of_cstr(names[i]), .create = &config}};
        assert_int_equal(run_write(w, w->view, &wr), ERR_DENIED);
    }
    struct writing wr = {.op = {.name = STR(IN), .close = true, .end = END_COMPLETED}};
    assert_int_equal(run_write(w, w->view, &wr), ERR_DENIED);
    struct doc_put doc = {STR("session/chat"), STR("x"), 0};
    wr = (struct writing){.op = {.name = STR(OUT), .docs = &doc, .n_docs = 1}};
    assert_int_equal(run_write(w, w->view, &wr), ERR_DENIED);

    struct store_remove removed = {.name = STR(OUT), .done = on_removed};
    struct store_docs docs = {.prefix = STR("session/"), .limit = 10, .done = on_docs};
    struct store_put put = {.docs = &doc, .n_docs = 1, .done = on_put};
    store_remove(w->view, &removed);
    store_docs(w->view, &docs);
    store_put(w->view, &put);
    sched_drain(&w->sched);
    assert_true(str_eq(removed.name, STR("done")));
    assert_true(str_eq(docs.prefix, STR("done")));
    assert_int_equal(put.n_docs, 77);
    assert_int_equal(w->writes, 0);
    assert_int_equal(events_of(w, IN), 0);
    struct stream_info info;
    assert_int_equal(run_stat(w, w->real, "plain", &info), ERR_NOT_FOUND);
}

/* ---- looking ---- */

static void test_stat(void **state)
{
    struct world *w = *state;
    struct stream_info real, shown;
    put_dialogue(w);
    w->held = false; /* not needed for this */
    assert_int_equal(run_stat(w, w->real, OUT, &real), 0);
    assert_int_equal(run_stat(w, w->view, OUT, &shown), 0);
    assert_true(str_eq(real.content_type, STR(TYPE)));
    assert_true(str_eq(shown.content_type, STR("application/json")));
    assert_int_equal(shown.tail, real.tail);
    assert_int_equal(shown.life, real.life);
    assert_int_equal(shown.events, 3);
}

struct listing {
    struct store_list op;
    char text[512];
};

static void on_listed(struct store_list *l, int err)
{
    struct listing *lg = container_of(l, struct listing, op);
    struct buf text = {0};
    assert_int_equal(err, 0);
    for (size_t i = 0; i < l->n_rows; i++)
        buf_printf(&text, "%.*s %.*s\n", (int)l->rows[i].name.n, l->rows[i].name.p,
                   (int)l->rows[i].info.content_type.n, l->rows[i].info.content_type.p);
    buf_printf(&text, "%s", l->more ? "more" : "");
    buf_putc(&text, '\0');
    assert_true(text.n <= sizeof lg->text);
    memcpy(lg->text, text.p, text.n);
    buf_deinit(&text);
}

static void assert_lists(struct world *w, struct store_list op, const char *text)
{
    struct listing lg = {.op = op};
    lg.op.done = on_listed;
    store_list(w->view, &lg.op);
    sched_drain(&w->sched);
    assert_string_equal(lg.text, text);
}

static void test_list(void **state)
{
    struct world *w = *state;
    create(w, "plain");
    create(w, ".route/chat/one");
    assert_lists(w, (struct store_list){.limit = 10}, "plain " TYPE "\n");
    assert_lists(w, (struct store_list){.limit = 10, .reserved = true},
                 ".route/chat/one " TYPE "\nplain " TYPE "\n" IN " application/json\n" OUT
                 " application/json\n");
    assert_lists(w, (struct store_list){.prefix = STR("sessions/"), .limit = 1, .reserved = true},
                 IN " application/json\nmore");
    assert_lists(w,
                 (struct store_list){
                     .prefix = STR("sessions/"), .after = STR(IN), .limit = 1, .reserved = true},
                 OUT " application/json\n");
}

struct watching {
    struct store_watch op;
    int changes;
};

static void on_changed(struct store_watch *w, struct str name)
{
    container_of(w, struct watching, op)->changes++;
    assert_true(str_eq(name, STR(OUT)));
}

static void test_watch(void **state)
{
    struct world *w = *state;
    struct watching wa = {.op = {.name = STR(OUT), .changed = on_changed}};
    sched_drain(&w->sched);
    store_watch(w->view, &wa.op);
    put_record(w, OUT, 0, SESSION_RECORD_EVENT, 0, STR("\0x"));
    assert_int_equal(wa.changes, 1);
    store_unwatch(w->view, &wa.op);
    put_record(w, OUT, 1, SESSION_RECORD_EVENT, 0, STR("\0y"));
    assert_int_equal(wa.changes, 1);
}

static void note_stopped(void *ctx)
{
    ((struct world *)ctx)->stopped = true;
}

/* It waits for what is under way, and comes from the schedule. */
static void test_stop(void **state)
{
    struct world *w = *state;
    struct reading rd = {.op = {.name = STR(OUT), .from = READ_START, .done = on_read},
                         .err = PENDING};
    store_read(w->view, &rd.op);
    store_stop(w->view, note_stopped, w);
    assert_false(w->stopped);
    sched_drain(&w->sched);
    assert_int_equal(rd.err, 0);
    assert_true(w->stopped);
    w->stopped = false;
    store_stop(w->view, note_stopped, w);
    assert_false(w->stopped);
    sched_drain(&w->sched);
    assert_true(w->stopped);
    buf_deinit(&rd.text);
}

/* ---- contents ---- */

static void test_contents(void **state)
{
    struct buf b = {0};
    struct str content;
    bool is_text;
    session_content_put(&b, true, STR("one"));
    session_content_put(&b, false, STR_NONE);
    assert_true(str_eq(buf_str(&b), STR("\1\3\0\0\0one\0\0\0\0\0")));
    struct str rest = buf_str(&b);
    assert_true(session_content_cut(&rest, &is_text, &content));
    assert_true(is_text && str_eq(content, STR("one")));
    assert_true(session_content_cut(&rest, &is_text, &content));
    assert_true(!is_text && content.n == 0);
    assert_false(session_content_cut(&rest, &is_text, &content));
    for (size_t n = 0; n < 8; n++) {
        rest = str_of(b.p, n);
        assert_false(session_content_cut(&rest, &is_text, &content));
    }
    buf_deinit(&b);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_read),
        TEST(test_positions),
        TEST(test_many_slices),
        TEST(test_key_absent),
        TEST(test_no_such_names),
        TEST(test_corrupt),
        TEST(test_corrupt_id),
        TEST(test_corrupt_empty),
        TEST(test_write),
        TEST(test_write_strict),
        TEST(test_preconditions),
        TEST(test_bad_data_comes_last),
        TEST(test_write_without_key),
        TEST(test_denied),
        TEST(test_stat),
        TEST(test_list),
        TEST(test_watch),
        TEST(test_stop),
        cmocka_unit_test(test_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
