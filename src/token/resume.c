// SPDX-License-Identifier: Apache-2.0
#include "token/resume.h"
#include "base/arena.h"
#include "base/ascii.h"
#include "base/b64.h"
#include "base/hex.h"
#include "base/num.h"
#include "token/mac.h"

#define SIGNATURE_TEXT (MAC_SIZE * 2)

enum { PART_REQUEST_ID, PART_STEP, PART_SEQ, PART_EXPIRES, PART_SIGNATURE, PARTS };

void resume_keys_init(struct resume_keys *k, struct str current, struct str previous)
{
    k->current = current.n > 0 ? mac_new(current) : NULL;
    k->previous = previous.n > 0 ? mac_new(previous) : NULL;
}

void resume_keys_deinit(struct resume_keys *k)
{
    mac_free(k->current);
    mac_free(k->previous);
    *k = (struct resume_keys){0};
}

const char *resume_verdict_text(enum resume_verdict v)
{
    static const char *const names[] = {
#define X(name) #name,
        RESUME_VERDICTS(X)
#undef X
    };
    return names[v];
}

static bool resume_is_word(struct str s, size_t max)
{
    return s.n <= max && ascii_is_visible(s) && memchr(s.p, ':', s.n) == NULL;
}

/* ---- issue ---- */

static bool can_issue(const struct resume_payload *p)
{
    return resume_is_word(p->request_id, RESUME_REQUEST_ID_MAX) &&
           resume_is_word(p->step, RESUME_STEP_MAX) && p->seq <= RESUME_NUMBER_MAX &&
           p->expires_at_ms >= 0;
}

static void put_claim(struct buf *out, const struct resume_payload *p)
{
    buf_put(out, p->request_id);
    buf_putc(out, ':');
    buf_put(out, p->step);
    buf_putc(out, ':');
    buf_put_u64(out, p->seq);
    buf_putc(out, ':');
    buf_put_u64(out, (uint64_t)p->expires_at_ms);
}

enum resume_verdict resume_issue(const struct resume_keys *k, const struct resume_payload *p,
                                 struct buf *out)
{
    if (k->current == NULL)
        return RESUME_NO_SECRET;
    if (!can_issue(p))
        return RESUME_INVALID_FORMAT;
    struct buf text = {0};
    uint8_t tag[MAC_SIZE];
    put_claim(&text, p);
    mac_sign(k->current, (struct str[]){buf_str(&text)}, 1, tag);
    buf_putc(&text, ':');
    hex_put(&text, str_of((const char *)tag, sizeof tag));
    b64url_put(out, buf_str(&text));
    buf_deinit(&text);
    return RESUME_OK;
}

/* ---- verify ---- */

/* Exactly PARTS of them, empty ones included. */
static bool split(struct str text, struct str parts[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        if (text.p == NULL)
            return false;
        parts[i] = str_cut(&text, ':');
    }
    return text.p == NULL;
}

static bool is_signed(const struct resume_keys *k, struct str claim, struct str signature)
{
    uint8_t bytes[MAC_SIZE];
    if (!hex_decode_lower(signature, bytes, sizeof bytes))
        return false;
    struct str tag = str_of((const char *)bytes, sizeof bytes);
    return (k->current != NULL && mac_check(k->current, &claim, 1, tag)) ||
           (k->previous != NULL && mac_check(k->previous, &claim, 1, tag));
}

/* A secret shared with another program may have signed what we would not. */
static bool take_payload(const struct str parts[PARTS], struct resume_payload *out)
{
    uint64_t seq, expires_at_ms;
    if (!resume_is_word(parts[PART_REQUEST_ID], RESUME_REQUEST_ID_MAX) ||
        !resume_is_word(parts[PART_STEP], RESUME_STEP_MAX) ||
        num_parse_canonical(parts[PART_SEQ], RESUME_NUMBER_MAX, &seq) ||
        num_parse_canonical(parts[PART_EXPIRES], RESUME_NUMBER_MAX, &expires_at_ms))
        return false;
    *out = (struct resume_payload){
        .request_id = parts[PART_REQUEST_ID],
        .step = parts[PART_STEP],
        .seq = seq,
        .expires_at_ms = (int64_t)expires_at_ms,
    };
    return true;
}

/* *out points into text, and is set when this is RESUME_OK. */
static enum resume_verdict verify_text(const struct resume_keys *k, struct str text, int64_t now_ms,
                                       struct resume_payload *out)
{
    struct str parts[PARTS];
    if (!split(text, parts))
        return RESUME_INVALID_FORMAT;
    struct str signature = parts[PART_SIGNATURE];
    struct str claim = str_of(text.p, text.n - signature.n - 1);
    if (!is_signed(k, claim, signature))
        return RESUME_INVALID_SIGNATURE;
    if (!take_payload(parts, out))
        return RESUME_INVALID_FORMAT;
    return now_ms > out->expires_at_ms ? RESUME_TOKEN_EXPIRED : RESUME_OK;
}

enum resume_verdict resume_verify(const struct resume_keys *k, struct arena *a, struct str token,
                                  int64_t now_ms, struct resume_payload *out)
{
    if (k->current == NULL && k->previous == NULL)
        return RESUME_NO_SECRET;
    if (token.n > RESUME_TOKEN_MAX)
        return RESUME_INVALID_FORMAT;
    struct buf text = {0};
    struct resume_payload found = {0};
    enum resume_verdict v = RESUME_DECODE_ERROR;
    if (b64url_take(&text, token) == 0)
        v = verify_text(k, buf_str(&text), now_ms, &found);
    if (v == RESUME_OK) {
        *out = found;
        out->request_id = arena_dup(a, found.request_id);
        out->step = arena_dup(a, found.step);
    }
    buf_deinit(&text);
    return v;
}
