// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/b64.h"
#include "model/seeds.h"
#include "token/mac.h"
#include "token/resume.h"

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define SECRET     STR("test-resume-secret-for-unit-tests")
#define OTHER      STR("fallback-hmac-secret")
#define EXPIRES_MS 1234567890000

static const struct vector {
    struct str secret, request_id;
    uint64_t seq;
    int64_t expires_at_ms;
    struct str token;
} vectors[] = {
    {STR_INIT("test-resume-secret-for-unit-tests"), STR_INIT("req-123"), 42, EXPIRES_MS,
     STR_INIT("cmVxLTEyMzpEUkFGVElORzo0MjoxMjM0NTY3ODkwMDAwOmYwNWJjMGIwNjc3ZGRlNDc3M2I4MmM3NDUyNj"
              "Y4Mzg4MmIzMTAzYTk1ODIzOGIwMjJkYzYyN2E1Y2Q5MWZhNmU")},
    {STR_INIT("fallback-hmac-secret"), STR_INIT("550e8400-e29b-41d4-a716-446655440000"), 1,
     1762000000000,
     STR_INIT("NTUwZTg0MDAtZTI5Yi00MWQ0LWE3MTYtNDQ2NjU1NDQwMDAwOkRSQUZUSU5HOjE6MTc2MjAwMDAwMDAwMD"
              "o2NzU2OTJiYjNiMWI1NTQ3MzVmNmFhOTY0OTUwZTQzYmVkZDE4MzM1ODI4MzA1MWUyMTE0YjVhMzNlYjQx"
              "YTk2")},
};
#define TOKEN (vectors[0].token)
#define CLAIM STR("req-123:DRAFTING:42:1234567890000")

static const struct resume_payload sample = {
    .request_id = STR_INIT("req-123"),
    .step = STR_INIT("DRAFTING"),
    .seq = 42,
    .expires_at_ms = EXPIRES_MS,
};

/* What verify says at now_ms. What it must leave alone unless it says OK is looked at, and an OK
 * must come with the one spelling that its payload has. */
static enum resume_verdict verify_at(const struct resume_keys *k, struct str token, int64_t now_ms)
{
    struct arena a = {0};
    struct resume_payload p = {.seq = 7777, .expires_at_ms = -7};
    enum resume_verdict v = resume_verify(k, &a, token, now_ms, &p);
    if (v != RESUME_OK) {
        assert_true(p.request_id.p == NULL && p.step.p == NULL);
        assert_true(p.seq == 7777 && p.expires_at_ms == -7);
    } else {
        struct resume_keys swapped = {k->previous, k->current};
        struct buf again = {0}, previously = {0};
        resume_issue(k, &p, &again);
        resume_issue(&swapped, &p, &previously);
        assert_true(str_eq(buf_str(&again), token) || str_eq(buf_str(&previously), token));
        buf_deinit(&again);
        buf_deinit(&previously);
    }
    arena_deinit(&a);
    return v;
}

static enum resume_verdict verify(struct str token)
{
    struct resume_keys k;
    resume_keys_init(&k, SECRET, STR_NONE);
    enum resume_verdict v = verify_at(&k, token, EXPIRES_MS);
    resume_keys_deinit(&k);
    return v;
}

/* A token of any claim, rightly signed: what only a holder of the secret can make. */
static void put_signed(struct buf *out, struct str secret, struct str claim)
{
    struct mac *m = mac_new(secret);
    struct buf text = {0};
    uint8_t tag[MAC_SIZE];
    mac_sign(m, &claim, 1, tag);
    buf_put(&text, claim);
    buf_putc(&text, ':');
    for (size_t i = 0; i < sizeof tag; i++)
        buf_printf(&text, "%02x", tag[i]);
    b64url_put(out, buf_str(&text));
    buf_deinit(&text);
    mac_free(m);
}

static enum resume_verdict verify_signed(struct str claim)
{
    struct buf token = {0};
    put_signed(&token, SECRET, claim);
    enum resume_verdict v = verify(buf_str(&token));
    buf_deinit(&token);
    return v;
}

static enum resume_verdict verify_encoded(struct str text)
{
    struct buf token = {0};
    b64url_put(&token, text);
    enum resume_verdict v = verify(buf_str(&token));
    buf_deinit(&token);
    return v;
}

static enum resume_verdict issue(const struct resume_payload *p)
{
    struct resume_keys k;
    struct buf out = {0};
    resume_keys_init(&k, SECRET, STR_NONE);
    buf_putc(&out, '!');
    enum resume_verdict v = resume_issue(&k, p, &out);
    assert_int_equal(out.p[0], '!'); /* what was there stays */
    assert_true(v == RESUME_OK ? out.n > 1 && out.n - 1 <= RESUME_TOKEN_MAX : out.n == 1);
    buf_deinit(&out);
    resume_keys_deinit(&k);
    return v;
}

/* ---- what is right ---- */

static void test_vectors(void **state)
{
    for (size_t i = 0; i < COUNT(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct resume_payload p = {v->request_id, STR("DRAFTING"), v->seq, v->expires_at_ms}, back;
        struct resume_keys k;
        struct arena a = {0};
        struct buf out = {0};
        resume_keys_init(&k, v->secret, STR_NONE);
        assert_int_equal(resume_issue(&k, &p, &out), RESUME_OK);
        assert_true(str_eq(buf_str(&out), v->token));
        assert_int_equal(resume_verify(&k, &a, buf_str(&out), v->expires_at_ms, &back), RESUME_OK);
        buf_deinit(&out); /* the payload must not live in the token */
        assert_true(str_eq(back.request_id, p.request_id));
        assert_true(str_eq(back.step, p.step));
        assert_int_equal(back.seq, p.seq);
        assert_int_equal(back.expires_at_ms, p.expires_at_ms);
        arena_deinit(&a);
        resume_keys_deinit(&k);
    }
}

static void test_numbers(void **state)
{
    static const uint64_t seqs[] = {0, 1, 42, 100, 1000, (1ull << 53) + 1, INT64_MAX};
    struct resume_keys k;
    resume_keys_init(&k, SECRET, STR_NONE);
    for (size_t i = 0; i < COUNT(seqs); i++) {
        struct resume_payload p = sample, back;
        struct arena a = {0};
        struct buf out = {0};
        p.seq = seqs[i];
        p.expires_at_ms = (int64_t)seqs[COUNT(seqs) - 1 - i];
        assert_int_equal(resume_issue(&k, &p, &out), RESUME_OK);
        assert_int_equal(resume_verify(&k, &a, buf_str(&out), 0, &back), RESUME_OK);
        assert_true(back.seq == p.seq && back.expires_at_ms == p.expires_at_ms);
        buf_deinit(&out);
        arena_deinit(&a);
    }
    resume_keys_deinit(&k);
}

static void test_longest(void **state)
{
    char id[RESUME_REQUEST_ID_MAX + 1], step[RESUME_STEP_MAX + 1];
    memset(id, '~', sizeof id);
    memset(step, '!', sizeof step);
    struct resume_payload p = {str_of(id, sizeof id - 1), str_of(step, sizeof step - 1), INT64_MAX,
                               INT64_MAX};
    struct resume_keys k;
    struct buf out = {0};
    resume_keys_init(&k, SECRET, STR_NONE);
    assert_int_equal(resume_issue(&k, &p, &out), RESUME_OK);
    assert_int_equal(out.n, RESUME_TOKEN_MAX);
    assert_int_equal(verify_at(&k, buf_str(&out), INT64_MAX), RESUME_OK);
    buf_putc(&out, 'A');
    assert_int_equal(verify_at(&k, buf_str(&out), 0), RESUME_INVALID_FORMAT);
    buf_deinit(&out);
    resume_keys_deinit(&k);

    p.request_id.n++;
    assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
    p.request_id.n--;
    p.step.n++;
    assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
}

static void test_texts(void **state)
{
    assert_string_equal(resume_verdict_text(RESUME_OK), "OK");
    assert_string_equal(resume_verdict_text(RESUME_NO_SECRET), "NO_SECRET");
    assert_string_equal(resume_verdict_text(RESUME_INVALID_FORMAT), "INVALID_FORMAT");
    assert_string_equal(resume_verdict_text(RESUME_INVALID_SIGNATURE), "INVALID_SIGNATURE");
    assert_string_equal(resume_verdict_text(RESUME_TOKEN_EXPIRED), "TOKEN_EXPIRED");
    assert_string_equal(resume_verdict_text(RESUME_DECODE_ERROR), "DECODE_ERROR");
}

/* ---- time ---- */

static void test_expiry(void **state)
{
    struct resume_keys k;
    resume_keys_init(&k, SECRET, STR_NONE);
    assert_int_equal(verify_at(&k, TOKEN, 0), RESUME_OK);
    assert_int_equal(verify_at(&k, TOKEN, EXPIRES_MS - 1), RESUME_OK);
    assert_int_equal(verify_at(&k, TOKEN, EXPIRES_MS), RESUME_OK);
    assert_int_equal(verify_at(&k, TOKEN, EXPIRES_MS + 1), RESUME_TOKEN_EXPIRED);
    assert_int_equal(verify_at(&k, TOKEN, INT64_MAX), RESUME_TOKEN_EXPIRED);
    resume_keys_deinit(&k);
}

/* A forger must not learn from the answer which time would do. */
static void test_signature_before_expiry(void **state)
{
    struct resume_keys k;
    resume_keys_init(&k, OTHER, STR_NONE);
    assert_int_equal(verify_at(&k, TOKEN, EXPIRES_MS + 1), RESUME_INVALID_SIGNATURE);
    resume_keys_deinit(&k);
}

/* ---- secrets ---- */

static void test_rotation(void **state)
{
    struct resume_keys before, during, after;
    struct buf fresh = {0};
    resume_keys_init(&before, SECRET, STR_NONE);
    resume_keys_init(&during, OTHER, SECRET);
    resume_keys_init(&after, STR("a third secret"), OTHER);
    assert_int_equal(verify_at(&before, TOKEN, 0), RESUME_OK);
    assert_int_equal(verify_at(&during, TOKEN, 0), RESUME_OK);
    assert_int_equal(verify_at(&during, TOKEN, EXPIRES_MS + 1), RESUME_TOKEN_EXPIRED);
    assert_int_equal(verify_at(&after, TOKEN, 0), RESUME_INVALID_SIGNATURE);

    assert_int_equal(resume_issue(&during, &sample, &fresh), RESUME_OK);
    assert_false(str_eq(buf_str(&fresh), TOKEN)); /* signed with the current secret */
    assert_int_equal(verify_at(&before, buf_str(&fresh), 0), RESUME_INVALID_SIGNATURE);
    assert_int_equal(verify_at(&during, buf_str(&fresh), 0), RESUME_OK);
    assert_int_equal(verify_at(&after, buf_str(&fresh), 0), RESUME_OK);
    buf_deinit(&fresh);
    resume_keys_deinit(&before);
    resume_keys_deinit(&during);
    resume_keys_deinit(&after);
}

static void test_only_a_previous_secret(void **state)
{
    struct resume_keys k;
    struct buf out = {0};
    resume_keys_init(&k, STR_NONE, SECRET);
    assert_int_equal(resume_issue(&k, &sample, &out), RESUME_NO_SECRET);
    assert_int_equal(out.n, 0);
    assert_int_equal(verify_at(&k, TOKEN, 0), RESUME_OK);
    assert_int_equal(verify_at(&k, vectors[1].token, 0), RESUME_INVALID_SIGNATURE);
    buf_deinit(&out);
    resume_keys_deinit(&k);
}

/* An empty secret is none; what is signed with it must not pass. */
static void test_no_secret(void **state)
{
    struct resume_keys none = {0}, empty;
    struct buf out = {0}, forged = {0};
    put_signed(&forged, STR(""), CLAIM);
    resume_keys_init(&empty, STR(""), STR(""));
    const struct resume_keys *keys[] = {&none, &empty};
    for (size_t i = 0; i < COUNT(keys); i++) {
        assert_int_equal(resume_issue(keys[i], &sample, &out), RESUME_NO_SECRET);
        assert_int_equal(out.n, 0);
        assert_int_equal(verify_at(keys[i], TOKEN, 0), RESUME_NO_SECRET);
        assert_int_equal(verify_at(keys[i], buf_str(&forged), 0), RESUME_NO_SECRET);
        assert_int_equal(verify_at(keys[i], STR_NONE, 0), RESUME_NO_SECRET);
    }
    assert_int_equal(verify(buf_str(&forged)), RESUME_INVALID_SIGNATURE);
    buf_deinit(&out);
    buf_deinit(&forged);
    resume_keys_deinit(&empty);
    resume_keys_deinit(&none);
}

/* ---- what is wrong ---- */

static void test_payloads_that_cannot_be_issued(void **state)
{
    static const struct str words[] = {STR_INIT(""),     STR_INIT("a:b"),     STR_INIT(":"),
                                       STR_INIT("a b"),  STR_INIT("a\n"),     STR_INIT("\0"),
                                       STR_INIT("\x7f"), STR_INIT("\xc3\xa9")};
    for (size_t i = 0; i < COUNT(words); i++) {
        struct resume_payload p = sample;
        p.request_id = words[i];
        assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
        p = sample;
        p.step = words[i];
        assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
    }
    struct resume_payload p = sample;
    assert_int_equal(issue(&p), RESUME_OK);
    p.seq = (uint64_t)INT64_MAX + 1;
    assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
    p = sample;
    p.expires_at_ms = -1;
    assert_int_equal(issue(&p), RESUME_INVALID_FORMAT);
}

static void test_no_token_at_all(void **state)
{
    assert_int_equal(verify(STR_NONE), RESUME_INVALID_FORMAT);
    assert_int_equal(verify(STR("")), RESUME_INVALID_FORMAT);
    assert_int_equal(verify(STR("not-a-valid-token")), RESUME_DECODE_ERROR);
    assert_int_equal(verify(STR("fake-token-value")), RESUME_INVALID_FORMAT);
    assert_int_equal(verify(STR("payload.signature")), RESUME_DECODE_ERROR);
    assert_int_equal(verify(str_of("\0\0\0\0", 4)), RESUME_DECODE_ERROR);
}

static void test_parts(void **state)
{
    static const struct {
        struct str text;
        enum resume_verdict v;
    } cases[] = {
        {STR_INIT("req-123"), RESUME_INVALID_FORMAT},
        {STR_INIT("req-123:DRAFTING:42:1234567890000"), RESUME_INVALID_FORMAT},
        {STR_INIT("req-123:DRAFTING:42:1234567890000:"), RESUME_INVALID_SIGNATURE},
        {STR_INIT("req-123:DRAFTING:42:1234567890000:00"), RESUME_INVALID_SIGNATURE},
        {STR_INIT("::::"), RESUME_INVALID_SIGNATURE},
        {STR_INIT(":::"), RESUME_INVALID_FORMAT},
        {STR_INIT(":::::"), RESUME_INVALID_FORMAT},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(verify_encoded(cases[i].text), cases[i].v);
}

/* Rightly signed, but not what we would have issued. */
static void test_signed_but_not_canonical(void **state)
{
    static const struct str claims[] = {
        STR_INIT("req-123:DRAFTING:042:1234567890000"),
        STR_INIT("req-123:DRAFTING:42:01234567890000"),
        STR_INIT("req-123:DRAFTING:00:1234567890000"),
        STR_INIT("req-123:DRAFTING:+42:1234567890000"),
        STR_INIT("req-123:DRAFTING:-42:1234567890000"),
        STR_INIT("req-123:DRAFTING:-0:1234567890000"),
        STR_INIT("req-123:DRAFTING: 42:1234567890000"),
        STR_INIT("req-123:DRAFTING:42 :1234567890000"),
        STR_INIT("req-123:DRAFTING:42\n:1234567890000"),
        STR_INIT("req-123:DRAFTING:42.0:1234567890000"),
        STR_INIT("req-123:DRAFTING:4e1:1234567890000"),
        STR_INIT("req-123:DRAFTING:0x2a:1234567890000"),
        STR_INIT("req-123:DRAFTING::1234567890000"),
        STR_INIT("req-123:DRAFTING:42:"),
        STR_INIT("req-123:DRAFTING:NaN:1234567890000"),
        STR_INIT("req-123:DRAFTING:9223372036854775808:1234567890000"),
        STR_INIT("req-123:DRAFTING:42:9223372036854775808"),
        STR_INIT("req-123:DRAFTING:42:18446744073709551616"),
        STR_INIT("req-123:DRAFTING:42:99999999999999999999999999"),
        STR_INIT(":DRAFTING:42:1234567890000"),
        STR_INIT("req-123::42:1234567890000"),
        STR_INIT("req 123:DRAFTING:42:1234567890000"),
        STR_INIT("req-123\r\nX:DRAFTING:42:1234567890000"),
        STR_INIT("req-123:DR\0FTING:42:1234567890000"),
        STR_INIT("req-123:DRAFTING:42"),
        STR_INIT("req-123:DRAFTING:42:1234567890000:"),
        STR_INIT("a:req-123:DRAFTING:42:1234567890000"),
    };
    for (size_t i = 0; i < COUNT(claims); i++)
        assert_int_equal(verify_signed(claims[i]), RESUME_INVALID_FORMAT);
    assert_int_equal(verify_signed(CLAIM), RESUME_OK);
    assert_int_equal(verify_signed(STR("r:s:9223372036854775807:9223372036854775807")), RESUME_OK);
}

/* Each part has its bound, whatever room the others leave in a token. */
static void test_signed_but_too_long(void **state)
{
    struct buf claim = {0};
    for (int i = 0; i <= RESUME_REQUEST_ID_MAX; i++)
        buf_putc(&claim, 'r');
    buf_put(&claim, STR(":s:1:1234567890000"));
    assert_int_equal(verify_signed(str_skip(buf_str(&claim), 1)), RESUME_OK);
    assert_int_equal(verify_signed(buf_str(&claim)), RESUME_INVALID_FORMAT);
    claim.n = 0;
    buf_put(&claim, STR("r:"));
    for (int i = 0; i <= RESUME_STEP_MAX; i++)
        buf_putc(&claim, 's');
    buf_put(&claim, STR(":1:1234567890000"));
    assert_int_equal(verify_signed(buf_str(&claim)), RESUME_INVALID_FORMAT);
    buf_deinit(&claim);
}

static enum resume_verdict verify_around(struct str before, struct str token, struct str behind)
{
    struct buf b = {0};
    buf_put(&b, before);
    buf_put(&b, token);
    buf_put(&b, behind);
    enum resume_verdict v = verify(buf_str(&b));
    buf_deinit(&b);
    return v;
}

/* The same bytes in base64, spelled in other ways that a lenient reader takes. The first token
 * leaves two tail bits over, the second none, the third four; the last has '-' and '_'. */
static void test_other_spellings(void **state)
{
    static const struct str claims[] = {
        STR_INIT("req-123:DRAFTING:42:1234567890000"),
        STR_INIT("req-1234:DRAFTING:42:1234567890000"),
        STR_INIT("req-12:DRAFTING:42:1234567890000"),
        STR_INIT("?>?>?>~~~:DRAFTING:42:1234567890000"),
    };
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    static const struct str tails[] = {STR_INIT("="),  STR_INIT("=="),  STR_INIT("==="),
                                       STR_INIT(" "),  STR_INIT("\n"),  STR_INIT("A"),
                                       STR_INIT("AA"), STR_INIT("AAAA")};
    bool has_minus = false, has_line = false;
    for (size_t i = 0; i < COUNT(claims); i++) {
        struct buf token = {0};
        put_signed(&token, SECRET, claims[i]);
        assert_int_equal(verify(buf_str(&token)), RESUME_OK);
        for (size_t j = 0; j < COUNT(tails); j++) {
            assert_int_not_equal(verify_around(STR(""), buf_str(&token), tails[j]), RESUME_OK);
            assert_int_not_equal(verify_around(tails[j], buf_str(&token), STR("")), RESUME_OK);
        }
        char *last = &token.p[token.n - 1], right = *last;
        for (const char *c = alphabet; *c != '\0'; c++) {
            *last = *c;
            assert_int_equal(verify(buf_str(&token)) == RESUME_OK, *c == right);
        }
        *last = right;
        for (size_t j = 0; j < token.n; j++) {
            char c = token.p[j];
            if (c != '-' && c != '_')
                continue;
            has_minus |= c == '-';
            has_line |= c == '_';
            token.p[j] = c == '-' ? '+' : '/';
            assert_int_equal(verify(buf_str(&token)), RESUME_DECODE_ERROR);
            token.p[j] = c;
        }
        buf_deinit(&token);
    }
    assert_true(has_minus && has_line);
    assert_int_equal(verify_around(STR(""), TOKEN, STR("=")), RESUME_DECODE_ERROR);
}

static void test_upper_case_signature(void **state)
{
    struct buf text = {0};
    assert_int_equal(b64url_take(&text, TOKEN), 0);
    assert_int_equal(verify_encoded(buf_str(&text)), RESUME_OK);
    for (size_t i = text.n - 2 * MAC_SIZE; i < text.n; i++)
        if (text.p[i] >= 'a')
            text.p[i] = (char)(text.p[i] - 'a' + 'A');
    assert_int_equal(verify_encoded(buf_str(&text)), RESUME_INVALID_SIGNATURE);
    buf_deinit(&text);
}

/* In the token, and in what it encodes. */
static void test_every_bit(void **state)
{
    struct buf token = {0}, text = {0};
    buf_put(&token, TOKEN);
    assert_int_equal(b64url_take(&text, TOKEN), 0);
    for (size_t bit = 0; bit < token.n * 8; bit++) {
        token.p[bit / 8] = (char)(token.p[bit / 8] ^ 1 << bit % 8);
        assert_int_not_equal(verify(buf_str(&token)), RESUME_OK);
        token.p[bit / 8] = (char)(token.p[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t bit = 0; bit < text.n * 8; bit++) {
        text.p[bit / 8] = (char)(text.p[bit / 8] ^ 1 << bit % 8);
        enum resume_verdict v = verify_encoded(buf_str(&text));
        assert_true(v == RESUME_INVALID_SIGNATURE || v == RESUME_INVALID_FORMAT);
        text.p[bit / 8] = (char)(text.p[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(verify(buf_str(&token)), RESUME_OK);
    assert_int_equal(verify_encoded(buf_str(&text)), RESUME_OK);
    buf_deinit(&token);
    buf_deinit(&text);
}

static void test_every_truncation(void **state)
{
    struct buf text = {0};
    assert_int_equal(b64url_take(&text, TOKEN), 0);
    for (size_t n = 0; n < TOKEN.n; n++) {
        char *copy = malloc(n + 1); /* its own, so that ASan sees a read past its end */
        memcpy(copy + 1, TOKEN.p, n);
        assert_int_not_equal(verify(str_of(copy + 1, n)), RESUME_OK);
        assert_int_not_equal(verify(str_skip(TOKEN, TOKEN.n - n)), RESUME_OK);
        free(copy);
    }
    for (size_t n = 0; n < text.n; n++) {
        assert_int_not_equal(verify_encoded(str_of(text.p, n)), RESUME_OK);
        assert_int_not_equal(verify_encoded(str_skip(buf_str(&text), text.n - n)), RESUME_OK);
    }
    buf_deinit(&text);
}

/* ---- random changes ---- */

static void remove_at(struct buf *b, size_t at, size_t n)
{
    memmove(b->p + at, b->p + at + n, b->n - at - n);
    b->n -= n;
}

static void insert_at(struct buf *b, size_t at, struct str s)
{
    buf_reserve(b, s.n);
    memmove(b->p + at + s.n, b->p + at, b->n - at);
    memcpy(b->p + at, s.p, s.n);
    b->n += s.n;
}

/* A piece of `other` at any place, in addition or instead. */
static void splice(struct rng *r, struct buf *b, struct str other)
{
    size_t from = rng_below(r, other.n), n = 1 + rng_below(r, other.n - from);
    size_t at = rng_below(r, b->n + 1), over = b->n - at < n ? b->n - at : n;
    if (rng_one_in(r, 2))
        remove_at(b, at, over);
    insert_at(b, at, str_of(other.p + from, n));
}

static void mutate(struct rng *r, struct buf *b, struct str other)
{
    static const char likely[] = ":0129af=+/-_AZaz\n";
    char c = rng_one_in(r, 2) ? likely[rng_below(r, sizeof likely - 1)] : (char)rng_next(r);
    size_t at = b->n > 0 ? rng_below(r, b->n) : 0;
    if (b->n == 0 || rng_one_in(r, 4))
        insert_at(b, at, str_of(&c, 1));
    else if (rng_one_in(r, 4))
        remove_at(b, at, 1 + (rng_one_in(r, 4) ? rng_below(r, b->n - at) : 0));
    else if (rng_one_in(r, 4))
        splice(r, b, other);
    else
        b->p[at] = c;
}

#define MUTATIONS 10000 /* per seed */

/* Both secrets hold, and the pieces come from good tokens of both. */
static void change_at_random(struct rng *r)
{
    struct resume_keys k;
    struct buf texts[2] = {{0}}, b = {0}, token = {0};
    size_t seen[RESUME_DECODE_ERROR + 1] = {0};
    resume_keys_init(&k, SECRET, OTHER);
    for (int i = 0; i < 2; i++)
        assert_int_equal(b64url_take(&texts[i], vectors[i].token), 0);
    for (int i = 0; i < MUTATIONS; i++) {
        size_t which = rng_below(r, 2);
        bool inside = rng_one_in(r, 2); /* of the base64 */
        b.n = token.n = 0;
        buf_put(&b, inside ? buf_str(&texts[which]) : vectors[which].token);
        for (uint64_t n = 1 + rng_below(r, 3); n > 0; n--)
            mutate(r, &b, inside ? buf_str(&texts[1 - which]) : vectors[1 - which].token);
        if (inside)
            b64url_put(&token, buf_str(&b));
        else
            buf_put(&token, buf_str(&b));
        enum resume_verdict v = verify_at(&k, buf_str(&token), 0);
        bool issued =
            str_eq(buf_str(&token), vectors[0].token) || str_eq(buf_str(&token), vectors[1].token);
        assert_int_equal(v == RESUME_OK, issued);
        seen[v]++;
    }
    /* Or the changes would not be what they are meant to be. */
    assert_true(seen[RESUME_OK] < MUTATIONS / 20);
    assert_true(seen[RESUME_INVALID_SIGNATURE] > MUTATIONS / 10);
    assert_true(seen[RESUME_INVALID_FORMAT] > MUTATIONS / 100);
    assert_true(seen[RESUME_DECODE_ERROR] > MUTATIONS / 100);
    for (int i = 0; i < 2; i++)
        buf_deinit(&texts[i]);
    buf_deinit(&b);
    buf_deinit(&token);
    resume_keys_deinit(&k);
}

static void test_random_changes(void **state)
{
    seeds_run(10, change_at_random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_signature_before_expiry),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_only_a_previous_secret),
        cmocka_unit_test(test_no_secret),
        cmocka_unit_test(test_payloads_that_cannot_be_issued),
        cmocka_unit_test(test_no_token_at_all),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_signed_but_not_canonical),
        cmocka_unit_test(test_signed_but_too_long),
        cmocka_unit_test(test_other_spellings),
        cmocka_unit_test(test_upper_case_signature),
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test_teardown(test_random_changes, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
