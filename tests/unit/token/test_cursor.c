// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/b64.h"
#include "base/err.h"
#include "model/seeds.h"
#include "token/cbor.h"
#include "token/cursor.h"
#include "token/mac.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ISSUED_S 1762000000
#define TTL_S    300

static const uint8_t key[CURSOR_KEY_SIZE] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                             7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
static const uint8_t session[CURSOR_SESSION_SIZE] = {1, 2, 3, 4, 5, 6, 7, 8};

struct world {
    struct cursor_issuer *issuer;
    struct arena arena;
    struct cursor_payload sample;
    struct cursor_asked asked;
    struct buf cursor;         /* of the sample */
    struct buf bytes, text;    /* scratch */
    struct cursor_payload got; /* by the last cursor_verify */
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->issuer = cursor_issuer_new(key, session);
    w->sample = (struct cursor_payload){.tool_id = STR("celia:fhir.list_observations"),
                                        .caller_id = STR("test-caller"),
                                        .page = 2,
                                        .issued_at_s = ISSUED_S,
                                        .state = STR("\0\0\0\2")};
    assert_int_equal(cursor_fingerprint(STR("{\"patient\":\"p1\"}"), STR_NONE, w->sample.args), 0);
    w->asked = (struct cursor_asked){
        .tool_id = w->sample.tool_id, .caller_id = w->sample.caller_id, .args = w->sample.args};
    assert_int_equal(cursor_issue(w->issuer, &w->sample, &w->cursor), CURSOR_OK);
    *state = w;
    return 0;
}

static void world_free(struct world *w)
{
    cursor_issuer_free(w->issuer);
    arena_deinit(&w->arena);
    buf_deinit(&w->cursor);
    buf_deinit(&w->bytes);
    buf_deinit(&w->text);
    free(w);
}

static int tear_down(void **state)
{
    world_free(*state);
    return seeds_teardown(state);
}

static enum cursor_verdict verify_by(struct world *w, const struct cursor_issuer *i,
                                     struct str cursor, int64_t now_s)
{
    return cursor_verify(i, &w->arena, cursor, &w->asked, now_s, TTL_S, &w->got);
}

static enum cursor_verdict verify(struct world *w, struct str cursor)
{
    return verify_by(w, w->issuer, cursor, ISSUED_S);
}

static bool same_name(struct str a, struct str b)
{
    return (a.p == NULL) == (b.p == NULL) && str_eq(a, b);
}

static void assert_same(const struct cursor_payload *a, const struct cursor_payload *b)
{
    assert_true(str_eq(a->tool_id, b->tool_id));
    assert_true(same_name(a->caller_id, b->caller_id));
    assert_memory_equal(a->args, b->args, sizeof a->args);
    assert_true(a->page == b->page);
    assert_true(a->issued_at_s == b->issued_at_s);
    assert_true(str_eq(a->state, b->state));
}

/* Issues what p says and has it verified for whoever p names; what comes back is p. */
static void round_trip(struct world *w, const struct cursor_payload *p)
{
    w->text.n = 0;
    assert_int_equal(cursor_issue(w->issuer, p, &w->text), CURSOR_OK);
    assert_true(w->text.n <= CURSOR_MAX);
    struct cursor_asked asked = {.tool_id = p->tool_id, .caller_id = p->caller_id, .args = p->args};
    assert_int_equal(cursor_verify(w->issuer, &w->arena, buf_str(&w->text), &asked, p->issued_at_s,
                                   TTL_S, &w->got),
                     CURSOR_OK);
    memset(w->text.p, 0, w->text.n); /* what came back must not live in the cursor */
    assert_same(&w->got, p);
}

/* The cursor of any body, rightly signed: what only a holder of the key can make. */
static struct str signed_by_key(struct world *w, struct str body)
{
    uint8_t subkey[MAC_KEY_SIZE], tag[MAC_SIZE];
    mac_subkey(key, "cursor", subkey);
    struct mac *m = mac_new(str_of((const char *)subkey, sizeof subkey));
    struct buf bytes = {0};
    mac_sign(m, &body, 1, tag);
    buf_put(&bytes, body);
    buf_put(&bytes, str_of((const char *)tag, sizeof tag));
    w->text.n = 0;
    b64url_put(&w->text, buf_str(&bytes));
    buf_deinit(&bytes);
    mac_free(m);
    return buf_str(&w->text);
}

static struct str body_of(struct world *w, struct str cursor)
{
    w->bytes.n = 0;
    assert_int_equal(b64url_take(&w->bytes, cursor), 0);
    return str_of(w->bytes.p, w->bytes.n - MAC_SIZE);
}

static uint8_t *filled(size_t n, uint8_t byte, uint8_t *to)
{
    memset(to, byte, n);
    return to;
}

static void put_hex(struct buf *out, const char *hex)
{
    for (; *hex != '\0'; hex += 2) {
        char pair[3] = {hex[0], hex[1], '\0'};
        buf_putc(out, (char)strtoul(pair, NULL, 16));
    }
}

/* ---- what is right ---- */

/* The format, byte for byte: cursors in the hands of clients depend on it. */
static void test_body(void **state)
{
    struct world *w = *state;
    struct buf expected = {0};
    put_hex(&expected, "a7"
                       "01781c63656c69613a666869722e6c6973745f6f62736572766174696f6e73"
                       "026b746573742d63616c6c6572"
                       "0358208f5e1d132344c74374e917ce961c358fc43f9b2e32c3f305ca36b7562da17aea"
                       "0402"
                       "051a6905fc80"
                       "06480102030405060708"
                       "074400000002");
    assert_true(str_eq(body_of(w, buf_str(&w->cursor)), buf_str(&expected)));
    assert_true(str_eq(signed_by_key(w, buf_str(&expected)), buf_str(&w->cursor)));
    buf_deinit(&expected);
}

static void test_round_trips(void **state)
{
    static const uint64_t numbers[] = {0,     1,     23,         24,         255,      256,
                                       65535, 65536, 4294967295, 4294967296, INT64_MAX};
    struct world *w = *state;
    round_trip(w, &w->sample);
    for (size_t i = 0; i < COUNT(numbers); i++) {
        struct cursor_payload p = w->sample;
        p.page = numbers[i];
        p.issued_at_s = (int64_t)numbers[COUNT(numbers) - 1 - i];
        round_trip(w, &p);
    }
    struct cursor_payload p = w->sample;
    p.page = UINT64_MAX;
    round_trip(w, &p);
    p.caller_id = STR_NONE;
    round_trip(w, &p);
    p.caller_id = STR("");
    round_trip(w, &p);
    p.tool_id = STR("");
    p.state = STR_NONE;
    round_trip(w, &p);
    p.tool_id = STR("\xc3\xa9\xf0\x9f\x98\x80");
    round_trip(w, &p);
}

static void random_round_trip(struct rng *r)
{
    void *state;
    uint8_t tool[64], caller[64], opaque[CURSOR_STATE_MAX];
    set_up(&state);
    struct world *w = state;
    for (size_t i = 0; i < sizeof opaque; i++)
        opaque[i] = (uint8_t)rng_next(r);
    struct cursor_payload p = {
        .tool_id = str_of((char *)filled(sizeof tool, 't', tool), rng_below(r, sizeof tool)),
        .caller_id = str_of((char *)filled(sizeof caller, 'c', caller), rng_below(r, 64)),
        .page = rng_next(r) >> rng_below(r, 64),
        .issued_at_s = (int64_t)(rng_next(r) >> rng_between(r, 1, 63)),
    };
    if (rng_one_in(r, 4))
        p.caller_id = STR_NONE;
    memcpy(p.args, opaque, sizeof p.args);
    p.state = str_of((char *)opaque, rng_below(r, (uint64_t)cursor_room(&p) + 1));
    round_trip(w, &p);
    world_free(w);
}

static void test_random_round_trips(void **state)
{
    seeds_run(300, random_round_trip);
}

static void test_verdicts(void **state)
{
    assert_int_equal(cursor_verdict_code(CURSOR_OK), 0);
    assert_int_equal(cursor_verdict_code(CURSOR_EXPIRED), 1020);
    assert_int_equal(cursor_verdict_code(CURSOR_SESSION), 1020);
    for (int v = CURSOR_STATE_TOO_LARGE; v <= CURSOR_ARGS; v++)
        if (v != CURSOR_EXPIRED && v != CURSOR_SESSION)
            assert_int_equal(cursor_verdict_code(v), 1021);
    assert_string_equal(cursor_verdict_text(CURSOR_EXPIRED), "cursor expired");
    assert_string_equal(cursor_verdict_text(CURSOR_SIGNATURE), "cursor signature invalid");
}

/* ---- what it is bound to ---- */

static void test_tool(void **state)
{
    struct world *w = *state;
    w->asked.tool_id = STR("other:not_page_gen");
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_TOOL);
    assert_same(&w->got, &w->sample); /* so that it can be said what differs */
    w->asked.tool_id = str_of(w->sample.tool_id.p, w->sample.tool_id.n - 1);
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_TOOL);
}

static void test_caller(void **state)
{
    static const struct str others[] = {STR_INIT("test-calles"),
                                        STR_INIT("test-calle"),
                                        STR_INIT("test-callers"),
                                        STR_INIT(""),
                                        {NULL, 0}};
    struct world *w = *state;
    for (size_t i = 0; i < COUNT(others); i++) {
        w->asked.caller_id = others[i];
        assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_CALLER);
        assert_same(&w->got, &w->sample);
    }
}

/* Nobody is not somebody without a name, nor the other way round. */
static void test_nobody(void **state)
{
    static const struct str names[] = {{NULL, 0}, STR_INIT(""), STR_INIT("somebody")};
    struct world *w = *state;
    for (size_t i = 0; i < COUNT(names); i++) {
        w->sample.caller_id = names[i];
        w->cursor.n = 0;
        assert_int_equal(cursor_issue(w->issuer, &w->sample, &w->cursor), CURSOR_OK);
        for (size_t k = 0; k < COUNT(names); k++) {
            w->asked.caller_id = names[k];
            assert_int_equal(verify(w, buf_str(&w->cursor)), i == k ? CURSOR_OK : CURSOR_CALLER);
        }
    }
}

static void test_args(void **state)
{
    struct world *w = *state;
    uint8_t args[SHA256_SIZE];
    w->asked.args = args;
    assert_int_equal(cursor_fingerprint(STR(" {\"\\u0070atient\" : \"p1\"} "), STR_NONE, args), 0);
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_OK);
    assert_int_equal(cursor_fingerprint(STR("{\"patient\":\"p2\"}"), STR_NONE, args), 0);
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_ARGS);
    assert_same(&w->got, &w->sample);
    w->asked.args = NULL; /* none were sent */
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_OK);
    assert_memory_equal(w->got.args, w->sample.args, SHA256_SIZE);
}

/* One at a time, and of several that differ the first. */
static void test_order_of_checks(void **state)
{
    struct world *w = *state;
    uint8_t args[SHA256_SIZE] = {0};
    w->asked = (struct cursor_asked){.tool_id = STR("x"), .caller_id = STR("y"), .args = args};
    assert_int_equal(verify_by(w, w->issuer, buf_str(&w->cursor), ISSUED_S + TTL_S + 1),
                     CURSOR_EXPIRED);
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_TOOL);
    w->asked.tool_id = w->sample.tool_id;
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_CALLER);
    w->asked.caller_id = w->sample.caller_id;
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_ARGS);
}

/* Another server: with our key, our session, both or neither. */
static enum cursor_verdict verify_elsewhere(struct world *w, bool same_key, bool same_session)
{
    uint8_t other_key[CURSOR_KEY_SIZE], other_session[CURSOR_SESSION_SIZE];
    memcpy(other_key, key, sizeof key);
    memcpy(other_session, session, sizeof session);
    other_key[31] ^= !same_key;
    other_session[7] ^= !same_session;
    struct cursor_issuer *other = cursor_issuer_new(other_key, other_session);
    enum cursor_verdict v = verify_by(w, other, buf_str(&w->cursor), ISSUED_S);
    cursor_issuer_free(other);
    return v;
}

static void test_other_issuers(void **state)
{
    struct world *w = *state;
    assert_int_equal(verify_elsewhere(w, true, true), CURSOR_OK);
    assert_int_equal(verify_elsewhere(w, true, false), CURSOR_SESSION);
    assert_int_equal(verify_elsewhere(w, false, false), CURSOR_SESSION);
    assert_int_equal(verify_elsewhere(w, false, true), CURSOR_SIGNATURE);
    cursor_issuer_free(NULL);
}

/* ---- time ---- */

static void test_time(void **state)
{
    static const struct {
        int64_t now_s;
        uint64_t ttl_s;
        enum cursor_verdict v;
    } cases[] = {
        {ISSUED_S, 0, CURSOR_OK},
        {ISSUED_S + 1, 0, CURSOR_EXPIRED},
        {ISSUED_S + 300, 300, CURSOR_OK},
        {ISSUED_S + 301, 300, CURSOR_EXPIRED},
        {ISSUED_S + 400, 300, CURSOR_EXPIRED},
        {ISSUED_S - 1000000, 0, CURSOR_OK}, /* from the future: another clock */
        {0, 0, CURSOR_OK},
        {INT64_MAX, UINT64_MAX, CURSOR_OK},
        {INT64_MAX, INT64_MAX - ISSUED_S, CURSOR_OK},
        {INT64_MAX, INT64_MAX - ISSUED_S - 1, CURSOR_EXPIRED},
    };
    struct world *w = *state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(cursor_verify(w->issuer, &w->arena, buf_str(&w->cursor), &w->asked,
                                       cases[i].now_s, cases[i].ttl_s, &w->got),
                         cases[i].v);
}

/* A forger must not learn from the answer which time would do. */
static void test_signature_before_time(void **state)
{
    struct world *w = *state;
    body_of(w, buf_str(&w->cursor));
    w->bytes.p[w->bytes.n - 1] ^= 1;
    b64url_put(&w->text, buf_str(&w->bytes));
    assert_int_equal(verify_by(w, w->issuer, buf_str(&w->text), INT64_MAX), CURSOR_SIGNATURE);
}

/* ---- what is wrong ---- */

static void assert_refused(struct world *w, struct str cursor)
{
    struct cursor_payload before;
    memset(&w->got, 0x5a, sizeof w->got);
    memcpy(&before, &w->got, sizeof before);
    enum cursor_verdict v = verify(w, cursor);
    assert_true(v == CURSOR_NO_CURSOR || v == CURSOR_SIGNATURE || v == CURSOR_SESSION);
    assert_memory_equal(&w->got, &before, sizeof before);
}

static void test_each_bit_of_the_text(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < w->cursor.n * 8; i++) {
        w->cursor.p[i / 8] ^= (char)(1 << i % 8);
        assert_refused(w, buf_str(&w->cursor));
        w->cursor.p[i / 8] ^= (char)(1 << i % 8);
    }
    assert_int_equal(verify(w, buf_str(&w->cursor)), CURSOR_OK);
}

/* Only a session that was changed passes for that of an earlier life. */
static void test_each_bit_of_the_bytes(void **state)
{
    struct world *w = *state;
    size_t body_n = body_of(w, buf_str(&w->cursor)).n;
    size_t session_end = body_n - 1 - 1 - w->sample.state.n;
    for (size_t i = 0; i < w->bytes.n * 8; i++) {
        w->bytes.p[i / 8] ^= (char)(1 << i % 8);
        w->text.n = 0;
        b64url_put(&w->text, buf_str(&w->bytes));
        assert_refused(w, buf_str(&w->text));
        bool of_session = i / 8 >= session_end - CURSOR_SESSION_SIZE && i / 8 < session_end;
        assert_int_equal(verify(w, buf_str(&w->text)),
                         of_session ? CURSOR_SESSION : CURSOR_SIGNATURE);
        w->bytes.p[i / 8] ^= (char)(1 << i % 8);
    }
}

static void test_each_length(void **state)
{
    struct world *w = *state;
    for (size_t n = 0; n < w->cursor.n; n++)
        assert_refused(w, str_of(w->cursor.p, n));
    struct str alphabet = STR("A-_=+/ \n");
    for (size_t i = 0; i < alphabet.n; i++) {
        buf_putc(&w->cursor, alphabet.p[i]);
        assert_refused(w, buf_str(&w->cursor));
        w->cursor.n--;
    }
}

static void test_no_cursor(void **state)
{
    static const struct str texts[] = {STR_INIT(""),         STR_INIT("0"),
                                       STR_INIT("start"),    STR_INIT("not!base64!"),
                                       STR_INIT("YWJjZGVm"), {NULL, 0}};
    struct world *w = *state;
    uint8_t ones[CURSOR_BYTES_LEAST];
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_int_equal(verify(w, texts[i]), CURSOR_NO_CURSOR);
    filled(sizeof ones, 0xff, ones);
    b64url_put(&w->text, str_of((char *)ones, sizeof ones - 1));
    assert_int_equal(verify(w, buf_str(&w->text)), CURSOR_NO_CURSOR);
    w->text.n = 0;
    b64url_put(&w->text, str_of((char *)ones, sizeof ones));
    assert_int_equal(verify(w, buf_str(&w->text)), CURSOR_SIGNATURE);
}

/* Cursors of the text-keyed encoding that others use, of the same key and session. */
static void test_other_encodings(void **state)
{
    struct world *w = *state;
    static const char first[] =
        "a767746f6f6c5f6964781c63656c69613a666869722e6c6973745f6f62736572766174696f6e736963616c6c"
        "65725f69646b746573742d63616c6c657270617267735f66696e6765727072696e749820188f185e181d1318"
        "23184418c71843187418e91718ce1896181c1835188f18c4183f189b182e183218c318f30518ca183618b718"
        "56182d18a1187a18ea6a706167655f696e646578026e6973737565645f61745f756e69781a6905fc806e7365"
        "727665725f73657373696f6e8801020304050607086c6f70617175655f737461746540";
    struct mac *m = mac_new(str_of((const char *)key, sizeof key));
    struct buf tag = {0};
    put_hex(&w->bytes, first);
    put_hex(&tag, "a6c886b2cf8245cff1b8eee561d4cbbdaaf119bbcb60c9a7b94f1a0fff0e8fae");
    struct str body = buf_str(&w->bytes);
    assert_true(mac_check(m, &body, 1, buf_str(&tag)));
    assert_int_equal(verify(w, signed_by_key(w, body)), CURSOR_FORMAT);
    buf_put(&w->bytes, buf_str(&tag));
    w->text.n = 0;
    b64url_put(&w->text, buf_str(&w->bytes));
    assert_int_equal(verify(w, buf_str(&w->text)), CURSOR_SIGNATURE);
    buf_deinit(&tag);
    mac_free(m);
}

/* ---- one spelling: rightly signed, and refused all the same ---- */

#define TOOL_ID "016161"
#define CALLER  "026162"
#define ARGS    "035820000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define PAGE    "0402"
#define TIME    "051a6905fc80"
#define SESSION "06480102030405060708"
#define OPAQUE  "0740"

static const struct {
    const char *what, *hex;
    enum cursor_verdict v;
} bodies[] = {
    {"good", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_OK},
    {"another caller", "a6" TOOL_ID ARGS PAGE TIME SESSION OPAQUE, CURSOR_CALLER},
    {"a byte behind it", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE "00", CURSOR_FORMAT},
    {"a member too many", "a8" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE "0800", CURSOR_FORMAT},
    {"a member too few", "a5" TOOL_ID ARGS PAGE TIME SESSION, CURSOR_FORMAT},
    {"more promised", "a7" TOOL_ID ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"fewer promised", "a6" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"another order", "a7" CALLER TOOL_ID ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"the same twice", "a7" TOOL_ID TOOL_ID ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"no map", "87" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a map's long size", "b807" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"no size", "bf" TOOL_ID CALLER ARGS PAGE TIME SESSION OPAQUE "ff", CURSOR_FORMAT},
    {"a long key", "a718016161" CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a name of bytes", "a7014161" CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a name's long size", "a701780161" CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a name in parts", "a7017f6161ff" CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"no UTF-8", "a70161ff" CALLER ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"no caller: null", "a7" TOOL_ID "02f6" ARGS PAGE TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a long page", "a7" TOOL_ID CALLER ARGS "041802" TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a longer page", "a7" TOOL_ID CALLER ARGS "04190002" TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a negative page", "a7" TOOL_ID CALLER ARGS "0422" TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a page of text", "a7" TOOL_ID CALLER ARGS "046132" TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a reserved size", "a7" TOOL_ID CALLER ARGS "041c" TIME SESSION OPAQUE, CURSOR_FORMAT},
    {"a long time", "a7" TOOL_ID CALLER ARGS PAGE "051b000000006905fc80" SESSION OPAQUE,
     CURSOR_FORMAT},
    {"a time beyond", "a7" TOOL_ID CALLER ARGS PAGE "051b8000000000000000" SESSION OPAQUE,
     CURSOR_FORMAT},
    {"a tagged time", "a7" TOOL_ID CALLER ARGS PAGE "05c11a6905fc80" SESSION OPAQUE, CURSOR_FORMAT},
    {"a short session", "a7" TOOL_ID CALLER ARGS PAGE TIME "064701020304050607" OPAQUE,
     CURSOR_FORMAT},
    {"a long session", "a7" TOOL_ID CALLER ARGS PAGE TIME "0649010203040506070809" OPAQUE,
     CURSOR_FORMAT},
    {"another session", "a7" TOOL_ID CALLER ARGS PAGE TIME "06480000000000000000" OPAQUE,
     CURSOR_SESSION},
    {"short args",
     "a7" TOOL_ID CALLER
     "03581f000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e" PAGE TIME SESSION
         OPAQUE,
     CURSOR_FORMAT},
    {"a state cut off", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION "074201", CURSOR_FORMAT},
    {"a state without end", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION "075bffffffffffffffff",
     CURSOR_FORMAT},
    {"a state of text", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION "0760", CURSOR_FORMAT},
    {"no state", "a7" TOOL_ID CALLER ARGS PAGE TIME SESSION "07", CURSOR_FORMAT},
};

static void test_one_spelling(void **state)
{
    struct world *w = *state;
    w->asked = (struct cursor_asked){.tool_id = STR("a"), .caller_id = STR("b")};
    for (size_t i = 0; i < COUNT(bodies); i++) {
        w->bytes.n = 0;
        put_hex(&w->bytes, bodies[i].hex);
        enum cursor_verdict v = verify(w, signed_by_key(w, buf_str(&w->bytes)));
        if (v != bodies[i].v)
            print_error("%s\n", bodies[i].what);
        assert_int_equal(v, bodies[i].v);
    }
}

/* A prefix of a body is none, and so is any byte instead of one that is not free to choose. */
static void test_prefixes(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    buf_put(&body, body_of(w, buf_str(&w->cursor)));
    for (size_t n = CURSOR_BYTES_LEAST; n < body.n; n++)
        assert_int_equal(verify(w, signed_by_key(w, str_of(body.p, n))), CURSOR_FORMAT);
    buf_deinit(&body);
}

/* ---- sizes ---- */

static enum cursor_verdict issue(struct world *w, const struct cursor_payload *p)
{
    w->text.n = 0;
    buf_putc(&w->text, '!');
    enum cursor_verdict v = cursor_issue(w->issuer, p, &w->text);
    assert_int_equal(w->text.p[0], '!'); /* what was there stays */
    assert_true(v == CURSOR_OK ? w->text.n > 1 && w->text.n - 1 <= CURSOR_MAX : w->text.n == 1);
    return v;
}

/* What cursor.h says. */
static const struct {
    size_t tool_n, caller_n;
    bool named;
    int room;
} rooms[] = {
    {23, 11, true, 256},  {11, 23, true, 256}, {24, 11, true, 255}, {24, 10, true, 255},
    {24, 9, true, 256},   {35, 0, false, 256}, {36, 0, false, 255}, {28, 11, true, 251},
    {64, 64, true, 161},  {0, 0, true, 256},   {100, 189, true, 1}, {100, 190, true, 0},
    {100, 191, true, -1}, {292, 0, false, 0},  {293, 0, false, -1}, {267, 0, false, 24},
    {268, 0, false, 23},  {269, 0, false, 23}, {270, 0, false, 22}, {5000, 0, false, -1},
};

static void test_room(void **state)
{
    struct world *w = *state;
    char name[5000], bytes[CURSOR_STATE_MAX + 1];
    filled(sizeof name, 'n', (uint8_t *)name);
    filled(sizeof bytes, 's', (uint8_t *)bytes);
    for (size_t i = 0; i < COUNT(rooms); i++) {
        struct cursor_payload p = w->sample;
        p.tool_id = str_of(name, rooms[i].tool_n);
        p.caller_id = rooms[i].named ? str_of(name, rooms[i].caller_n) : STR_NONE;
        if (cursor_room(&p) != rooms[i].room)
            print_error("%zu, %zu: %d\n", rooms[i].tool_n, rooms[i].caller_n, cursor_room(&p));
        assert_int_equal(cursor_room(&p), rooms[i].room);
        p.state = str_of(bytes, (size_t)(rooms[i].room + 1));
        assert_int_equal(issue(w, &p), rooms[i].room == CURSOR_STATE_MAX ? CURSOR_STATE_TOO_LARGE
                                                                         : CURSOR_TOO_LARGE);
        if (rooms[i].room < 0)
            continue;
        p.state.n--;
        round_trip(w, &p);
    }
}

/* 512 characters and no more; with one more byte anywhere there would be 514. */
static void test_longest(void **state)
{
    struct world *w = *state;
    char name[64], bytes[CURSOR_STATE_MAX];
    filled(sizeof name, 'n', (uint8_t *)name);
    filled(sizeof bytes, 0xff, (uint8_t *)bytes);
    struct cursor_payload p = w->sample;
    p.tool_id = str_of(name, 23);
    p.caller_id = str_of(name, 11);
    p.state = str_of(bytes, sizeof bytes);
    p.page = 23;
    round_trip(w, &p);
    assert_int_equal(w->text.n, CURSOR_MAX);
    p.page = 24;
    assert_int_equal(issue(w, &p), CURSOR_TOO_LARGE);
    p.page = 23;
    p.caller_id.n++;
    assert_int_equal(issue(w, &p), CURSOR_TOO_LARGE);

    char over[CURSOR_MAX + 1];
    filled(sizeof over, 'A', (uint8_t *)over);
    assert_int_equal(verify(w, str_of(over, sizeof over)), CURSOR_TOO_LARGE);
    assert_int_equal(verify(w, str_of(over, sizeof over - 1)), CURSOR_SIGNATURE);
}

static void test_shortest(void **state)
{
    struct world *w = *state;
    struct cursor_payload p = {.caller_id = STR_NONE};
    round_trip(w, &p);
    assert_int_equal(w->text.n, (86 * 4 + 2) / 3);
}

static void test_cannot_issue(void **state)
{
    struct world *w = *state;
    struct cursor_payload p = w->sample;
    p.tool_id = STR("\xff");
    assert_int_equal(issue(w, &p), CURSOR_FORMAT);
    p = w->sample;
    p.caller_id = STR("\xed\xa0\x80");
    assert_int_equal(issue(w, &p), CURSOR_FORMAT);
    p = w->sample;
    p.issued_at_s = -1;
    assert_int_equal(issue(w, &p), CURSOR_FORMAT);
    p = w->sample;
    p.tool_id.n = SIZE_MAX / 2; /* never looked at */
    assert_int_equal(issue(w, &p), CURSOR_TOO_LARGE);
}

/* ---- what goes into one ---- */

static void test_fingerprints(void **state)
{
    static const struct {
        struct str args;
        const char *hex;
    } cases[] = {
        {STR_INIT("null"), "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},
        {STR_INIT("{}"), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
        {STR_INIT("{\"patient\":\"p1\"}"),
         "8f5e1d132344c74374e917ce961c358fc43f9b2e32c3f305ca36b7562da17aea"},
        {STR_INIT("{\"y\": [2.0, 3], \"x\": 1e0}"),
         "b837c857b5318bf17ecf9d8571ff1ba555173cc2e5959751498da8070d7d614a"},
    };
    uint8_t args[SHA256_SIZE], before[SHA256_SIZE];
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf expected = {0};
        put_hex(&expected, cases[i].hex);
        assert_int_equal(cursor_fingerprint(cases[i].args, STR_NONE, args), 0);
        assert_memory_equal(args, expected.p, sizeof args);
        buf_deinit(&expected);
    }
    memcpy(before, args, sizeof args);
    assert_int_equal(
        cursor_fingerprint(STR("{\"x\":1,\"__cursor\":\"\",\"y\":[2,3]}"), STR("__cursor"), args),
        0);
    assert_memory_equal(args, before, sizeof args);
    assert_int_equal(cursor_fingerprint(STR("{\"a\":1,\"a\":1}"), STR_NONE, args), ERR_JSON);
    assert_int_equal(cursor_fingerprint(STR(""), STR_NONE, args), ERR_JSON);
    assert_memory_equal(args, before, sizeof args);
}

static void test_secrets(void **state)
{
    static const struct {
        struct str text;
        size_t got;
    } cases[] = {
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"), 32},
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="), 32},
        {STR_INIT(" \tBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc\r\n"), 32},
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd"), 0}, /* bits to spare */
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBw"), 31},
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"), 33},
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH+-w="), 0}, /* of both alphabets */
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH+/w"), 0},  /* padding is missing */
        {STR_INIT("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH-_w="), 0}, /* is too much */
        {STR_INIT("secret!"), 0},
        {STR_INIT(""), 0},
        {{NULL, 0}, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint8_t out[CURSOR_KEY_SIZE] = {0};
        size_t got = 99;
        int err = cursor_secret_take(cases[i].text, out, sizeof out, &got);
        assert_int_equal(got, cases[i].got);
        assert_int_equal(err, got == sizeof out ? 0 : ERR_SYNTAX);
        assert_memory_equal(out, err == 0 ? key : (uint8_t[CURSOR_KEY_SIZE]){0}, sizeof out);
    }
    uint8_t both[2][3];
    size_t got;
    assert_int_equal(cursor_secret_take(STR("-_-_"), both[0], 3, &got), 0);
    assert_int_equal(cursor_secret_take(STR("+/+/"), both[1], 3, &got), 0);
    assert_memory_equal(both[0], both[1], 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- the format atd ---- */

/* Vectors made by another program from the format's description. */
static const char vector_a[] =
    "p2d0b29sX2lkeBxjZWxpYTpmaGlyLmxpc3Rfb2JzZXJ2YXRpb25zaWNhbGxlcl9pZGt0ZXN0LWNhbGxlcnBhcmdzX2Zpbm"
    "dlcnByaW50mCAYjxheGB0TGCMYRBjHGEMYdBjpFxjOGJYYHBg1GI8YxBg_GJsYLhgyGMMY8wUYyhg2GLcYVhgtGKEYehjq"
    "anBhZ2VfaW5kZXgCbmlzc3VlZF9hdF91bml4GmkF_IBuc2VydmVyX3Nlc3Npb26IAQIDBAUGBwhsb3BhcXVlX3N0YXRlQK"
    "bIhrLPgkXP8bju5WHUy72q8Rm7y2DJp7lPGg__Do-u";
static const char vector_b[] =
    "pmd0b29sX2lkdGNvbmZvcm1hbmNlOnBhZ2VfZ2VucGFyZ3NfZmluZ2VycHJpbnSYIAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAanBhZ2VfaW5kZXgCbmlzc3VlZF9hdF91bml4GmkF_IBuc2VydmVyX3Nlc3Npb26IABcYGBhkGMgY_wEC"
    "bG9wYXF1ZV9zdGF0ZUQAAAACEq-G_zHn6FfJ_saK97WvB2SIvcxR4RlNmOsfFV_5HHg";

/* The same as a, in our format: with HKDF-SHA256 of the key. */
static const char vector_ours[] =
    "pwF4HGNlbGlhOmZoaXIubGlzdF9vYnNlcnZhdGlvbnMCa3Rlc3QtY2FsbGVyA1ggj14dEyNEx0N06RfOlhw1j8Q_my4yw_"
    "MFyja3Vi2heuoEAgUaaQX8gAZIAQIDBAUGBwgHQFw0UWFjPZ0sIOrqzR8kwzU6DfpnR-f0ufhdzUHlnQ9U";

static void assert_vector(struct world *w, enum cursor_format format,
                          const uint8_t s[CURSOR_SESSION_SIZE], const struct cursor_payload *p,
                          const char *cursor)
{
    struct cursor_issuer *issuer = cursor_issuer_new_as(format, key, s);
    struct cursor_asked asked = {.tool_id = p->tool_id, .caller_id = p->caller_id, .args = p->args};
    w->text.n = 0;
    assert_int_equal(cursor_issue(issuer, p, &w->text), CURSOR_OK);
    assert_int_equal(w->text.n, strlen(cursor));
    assert_memory_equal(w->text.p, cursor, w->text.n);
    assert_int_equal(
        cursor_verify(issuer, &w->arena, str_of_cstr(cursor), &asked, ISSUED_S, TTL_S, &w->got),
        CURSOR_OK);
    assert_int_equal(w->got.page, p->page);
    assert_memory_equal(w->got.args, p->args, sizeof p->args);
    assert_true(str_eq(w->got.state, p->state));
    cursor_issuer_free(issuer);
}

static void test_vectors(void **state)
{
    static const uint8_t session_b[] = {0x00, 0x17, 0x18, 0x64, 0xc8, 0xff, 0x01, 0x02};
    struct world *w = *state;
    struct cursor_payload a = w->sample, b = {.tool_id = STR("conformance:page_gen"),
                                              .page = 2,
                                              .issued_at_s = ISSUED_S,
                                              .state = STR("\0\0\0\2")};
    a.state = STR("");
    assert_vector(w, CURSOR_ATD, session, &a, vector_a);
    assert_vector(w, CURSOR_ATD, session_b, &b, vector_b);
    assert_vector(w, CURSOR_TIDEMARK, session, &a, vector_ours);
}

/* Neither takes those of the other, not even with the same key and session. */
static void test_atd_and_tidemark(void **state)
{
    struct world *w = *state;
    struct cursor_issuer *atd = cursor_issuer_new_as(CURSOR_ATD, key, session);
    assert_int_equal(
        cursor_verify(atd, &w->arena, buf_str(&w->cursor), &w->asked, ISSUED_S, TTL_S, &w->got),
        CURSOR_SIGNATURE);
    assert_int_equal(verify(w, str_of_cstr(vector_a)), CURSOR_SIGNATURE);
    cursor_issuer_free(atd);
}

/* Signs a body with the raw key and asks for the verdict. */
static enum cursor_verdict verify_atd_body(struct world *w, struct str body)
{
    struct cursor_issuer *atd = cursor_issuer_new_as(CURSOR_ATD, key, session);
    struct mac *mac = mac_new(str_of((const char *)key, sizeof key));
    uint8_t tag[MAC_SIZE];
    mac_sign(mac, &body, 1, tag);
    mac_free(mac);
    w->bytes.n = w->text.n = 0;
    buf_put(&w->bytes, body);
    buf_put(&w->bytes, str_of((const char *)tag, sizeof tag));
    b64url_put(&w->text, buf_str(&w->bytes));
    enum cursor_verdict v =
        cursor_verify(atd, &w->arena, buf_str(&w->text), &w->asked, ISSUED_S, TTL_S, &w->got);
    cursor_issuer_free(atd);
    return v;
}

/* Of a body that is rightly signed every byte counts, and none may be missing or added. */
static void test_atd_one_spelling(void **state)
{
    struct world *w = *state;
    struct buf good = {0};
    assert_int_equal(b64url_take(&good, str_of_cstr(vector_a)), 0);
    struct str body = str_of(good.p, good.n - MAC_SIZE);
    assert_int_equal(verify_atd_body(w, body), CURSOR_OK);
    for (size_t n = CURSOR_BYTES_LEAST; n < body.n; n++)
        assert_int_equal(verify_atd_body(w, str_of(body.p, n)), CURSOR_FORMAT);
    for (size_t i = 0; i < body.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            good.p[i] = (char)(good.p[i] ^ (1 << bit));
            enum cursor_verdict v = verify_atd_body(w, body);
            if (v == CURSOR_OK || v == CURSOR_TOOL || v == CURSOR_CALLER || v == CURSOR_ARGS) {
                struct cursor_issuer *atd = cursor_issuer_new_as(CURSOR_ATD, key, session);
                struct buf again = {0};
                assert_int_equal(cursor_issue(atd, &w->got, &again), CURSOR_OK);
                assert_true(str_eq(buf_str(&again), buf_str(&w->text)));
                buf_deinit(&again);
                cursor_issuer_free(atd);
            }
            good.p[i] = (char)(good.p[i] ^ (1 << bit));
        }
    buf_deinit(&good);
}

static void test_atd_room(void **state)
{
    struct world *w = *state;
    struct cursor_issuer *atd = cursor_issuer_new_as(CURSOR_ATD, key, session);
    char bytes[CURSOR_STATE_MAX] = {0};
    struct cursor_payload p = w->sample;
    p.format = CURSOR_ATD;
    memset(p.args, 0xff, sizeof p.args);
    assert_int_equal(cursor_room(&p), 129);
    p.state = str_of(bytes, 129);
    w->text.n = 0;
    assert_int_equal(cursor_issue(atd, &p, &w->text), CURSOR_OK);
    assert_true(w->text.n <= CURSOR_MAX);
    p.state = str_of(bytes, 130);
    assert_int_equal(cursor_issue(atd, &p, &w->text), CURSOR_TOO_LARGE);
    p.state = str_of(bytes, CURSOR_STATE_MAX);
    assert_int_equal(cursor_issue(atd, &p, &w->text), CURSOR_TOO_LARGE);
    cursor_issuer_free(atd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_body),
        TEST(test_round_trips),
        TEST(test_random_round_trips),
        TEST(test_verdicts),
        TEST(test_tool),
        TEST(test_caller),
        TEST(test_nobody),
        TEST(test_args),
        TEST(test_order_of_checks),
        TEST(test_other_issuers),
        TEST(test_time),
        TEST(test_signature_before_time),
        TEST(test_each_bit_of_the_text),
        TEST(test_each_bit_of_the_bytes),
        TEST(test_each_length),
        TEST(test_no_cursor),
        TEST(test_other_encodings),
        TEST(test_one_spelling),
        TEST(test_prefixes),
        TEST(test_room),
        TEST(test_longest),
        TEST(test_shortest),
        TEST(test_cannot_issue),
        TEST(test_fingerprints),
        TEST(test_secrets),
        TEST(test_vectors),
        TEST(test_atd_and_tidemark),
        TEST(test_atd_one_spelling),
        TEST(test_atd_room),
    };
    return cmocka_run_group_tests_name("cursor", tests, NULL, NULL);
}
