// SPDX-License-Identifier: Apache-2.0
/* fuzz_resume.c -- no bytes are a resume token but those that were issued. An input is taken four
 * times: as a token; as a change to what a good token encodes; as a claim that is then rightly
 * signed, so that what lies behind the signature is reached too, and compared with a plainer way
 * of reading it; and as the payload of a token to issue. */
#include "base/arena.h"
#include "base/b64.h"
#include "token/mac.h"
#include "token/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX (RESUME_TOKEN_MAX + 64)
#define CURRENT   STR("test-resume-secret-for-unit-tests")
#define PREVIOUS  STR("fallback-hmac-secret")

/* The tokens that exist; the corpus holds them. */
static const struct str issued[] = {
    STR_INIT("cmVxLTEyMzpEUkFGVElORzo0MjoxMjM0NTY3ODkwMDAwOmYwNWJjMGIwNjc3ZGRlNDc3M2I4MmM3NDUyNjY4"
             "Mzg4MmIzMTAzYTk1ODIzOGIwMjJkYzYyN2E1Y2Q5MWZhNmU"),
    STR_INIT(
        "NTUwZTg0MDAtZTI5Yi00MWQ0LWE3MTYtNDQ2NjU1NDQwMDAwOkRSQUZUSU5HOjE6MTc2MjAwMDAwMDAwMDo2"
        "NzU2OTJiYjNiMWI1NTQ3MzVmNmFhOTY0OTUwZTQzYmVkZDE4MzM1ODI4MzA1MWUyMTE0YjVhMzNlYjQxYTk2"),
};

struct world {
    struct resume_keys keys;
    struct arena arena;
};

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_resume: %s\n", what);
    abort();
}

static void fuzz_token(struct world *w, struct str token)
{
    struct resume_payload p;
    bool right = str_eq(token, issued[0]) || str_eq(token, issued[1]);
    enum resume_verdict v = resume_verify(&w->keys, &w->arena, token, 0, &p);
    check((v == RESUME_OK) == right, "what was issued, and nothing else, is a token");
    check(v != RESUME_NO_SECRET && v != RESUME_TOKEN_EXPIRED, "a verdict it cannot have");
    v = resume_verify(&w->keys, &w->arena, token, INT64_MAX, &p);
    check((v == RESUME_TOKEN_EXPIRED) == right, "only a good token can expire");
    check(resume_verify(&(struct resume_keys){0}, &w->arena, token, 0, &p) == RESUME_NO_SECRET,
          "verified without a secret");
}

/* The first byte says where the others are laid over the text, by exclusive or. */
static void fuzz_change(struct world *w, struct str input)
{
    if (input.n == 0)
        return;
    struct buf text = {0}, token = {0};
    check(b64url_take(&text, issued[input.n % 2]) == 0, "base64url");
    size_t at = (unsigned char)input.p[0];
    for (size_t i = 1; i < input.n && at + i - 1 < text.n; i++)
        text.p[at + i - 1] = (char)(text.p[at + i - 1] ^ input.p[i]);
    b64url_put(&token, buf_str(&text));
    fuzz_token(w, buf_str(&token));
    buf_deinit(&text);
    buf_deinit(&token);
}

/* ---- behind the signature ---- */

static void put_signed(struct buf *out, struct mac *m, struct str claim)
{
    struct buf text = {0};
    uint8_t tag[MAC_SIZE];
    mac_sign(m, &claim, 1, tag);
    buf_put(&text, claim);
    buf_putc(&text, ':');
    for (size_t i = 0; i < sizeof tag; i++)
        buf_printf(&text, "%02x", tag[i]);
    b64url_put(out, buf_str(&text));
    buf_deinit(&text);
}

/* By the C library: what it reads must be written in the same way again. */
static bool plain_read(struct str claim, struct resume_payload *p, struct arena *a)
{
    char id[257], step[65], seq[20], expires[20];
    const char *z = arena_printf(a, "%.*s", (int)claim.n, claim.p).p;
    int n = 0;
    if (sscanf(z, "%256[!-9;-~]:%64[!-9;-~]:%19[0-9]:%19[0-9]%n", id, step, seq, expires, &n) < 4 ||
        (size_t)n != claim.n)
        return false;
    *p = (struct resume_payload){arena_dup(a, str_of_cstr(id)), arena_dup(a, str_of_cstr(step)),
                                 strtoull(seq, NULL, 10), (int64_t)strtoull(expires, NULL, 10)};
    if (p->seq > INT64_MAX || p->expires_at_ms < 0)
        return false;
    struct str again =
        arena_printf(a, "%s:%s:%" PRIu64 ":%" PRId64, id, step, p->seq, p->expires_at_ms);
    return str_eq(again, claim);
}

static bool same(const struct resume_payload *a, const struct resume_payload *b)
{
    return str_eq(a->request_id, b->request_id) && str_eq(a->step, b->step) && a->seq == b->seq &&
           a->expires_at_ms == b->expires_at_ms;
}

static void fuzz_claim(struct world *w, struct str claim)
{
    struct buf token = {0};
    struct resume_payload p, plain;
    bool previous = claim.n % 2;
    put_signed(&token, previous ? w->keys.previous : w->keys.current, claim);
    enum resume_verdict v = resume_verify(&w->keys, &w->arena, buf_str(&token), 0, &p);
    if (!plain_read(claim, &plain, &w->arena)) {
        check(v == RESUME_INVALID_FORMAT, "a malformed claim");
    } else {
        check(v == RESUME_OK && same(&p, &plain), "a well-formed claim");
        v = resume_verify(&w->keys, &w->arena, buf_str(&token), p.expires_at_ms, &p);
        check(v == RESUME_OK, "expired too early");
        if (p.expires_at_ms < INT64_MAX) {
            v = resume_verify(&w->keys, &w->arena, buf_str(&token), p.expires_at_ms + 1, &p);
            check(v == RESUME_TOKEN_EXPIRED, "expired too late");
        }
    }
    buf_deinit(&token);
}

/* ---- issue ---- */

static void fuzz_payload(struct world *w, struct str input)
{
    uint64_t numbers[2] = {0};
    if (input.n < sizeof numbers)
        return;
    memcpy(numbers, input.p, sizeof numbers);
    struct str rest = str_skip(input, sizeof numbers);
    struct resume_payload p = {.seq = numbers[0], .expires_at_ms = (int64_t)numbers[1]}, back;
    p.request_id = str_of(rest.p, rest.n / 2);
    p.step = str_skip(rest, rest.n / 2);
    struct buf token = {0};
    enum resume_verdict v = resume_issue(&w->keys, &p, &token);
    if (v != RESUME_OK) {
        check(v == RESUME_INVALID_FORMAT && token.n == 0, "not issued");
        return;
    }
    check(token.n <= RESUME_TOKEN_MAX, "a token longer than tokens are");
    v = resume_verify(&w->keys, &w->arena, buf_str(&token), p.expires_at_ms, &back);
    check(v == RESUME_OK && same(&p, &back), "issued, but not verified");
    struct resume_keys other = {.previous = w->keys.previous};
    v = resume_verify(&other, &w->arena, buf_str(&token), 0, &back);
    check(v == RESUME_INVALID_SIGNATURE, "verified with another secret");
    buf_deinit(&token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > INPUT_MAX)
        return 0;
    struct str input = str_of((const char *)data, n);
    struct world w = {0};
    resume_keys_init(&w.keys, CURRENT, PREVIOUS);
    fuzz_token(&w, input);
    fuzz_change(&w, input);
    fuzz_claim(&w, input);
    fuzz_payload(&w, input);
    resume_keys_deinit(&w.keys);
    arena_deinit(&w.arena);
    return 0;
}
