// SPDX-License-Identifier: Apache-2.0
/* Cursors of pages, in the form of token/cursor_form.h, with no memory but the caller's. */
#include "client/codec.h"
#include "client/session_mac.h"
#include "client/stream.h"
#include "token/cursor_form.h"

#include <openssl/crypto.h>

_Static_assert(TM_CURSOR_SIZE == CURSOR_MAX + 1 && TM_CURSOR_STATE_MAX == CURSOR_STATE_MAX &&
                   TM_CURSOR_ARGS_SIZE == CURSOR_ARGS_SIZE && MAC_SIZE == CURSOR_TAG_SIZE &&
                   TM_CURSOR_ROOM >= CURSOR_BODY_MAX + 2,
               "the header says what the form says");

static int error_of(enum cursor_verdict v)
{
    switch (v) {
    case CURSOR_OK: return 0;
    case CURSOR_STATE_TOO_LARGE:
    case CURSOR_TOO_LARGE: return TM_E_TOO_LARGE;
    case CURSOR_SIGNATURE: return TM_E_TAMPERED;
    case CURSOR_EXPIRED:
    case CURSOR_SESSION: return TM_E_EXPIRED;
    case CURSOR_TOOL:
    case CURSOR_CALLER:
    case CURSOR_ARGS: return TM_E_CONFLICT;
    case CURSOR_NO_CURSOR:
    case CURSOR_FORMAT: break;
    }
    return TM_E_INVALID;
}

int tm_cursor_code(int err)
{
    return err == 0 ? 0 : cursor_verdict_code(err == TM_E_EXPIRED ? CURSOR_EXPIRED : CURSOR_FORMAT);
}

/* As token/mac.h's mac_subkey derives it. */
static int sign(const struct tm_cursor_key *k, struct str body, uint8_t tag[MAC_SIZE])
{
    uint8_t subkey[MAC_SIZE];
    int err = smac_hkdf(k->key, STR_NONE, STR("tidemark/cursor"), subkey);
    if (err == 0)
        err = smac_sign(subkey, body, tag);
    OPENSSL_cleanse(subkey, sizeof subkey);
    return err;
}

static struct str text_of(const char *text)
{
    return text != NULL ? str_of_cstr(text) : STR_NONE;
}

/* ---- issue ---- */

int tm_cursor_issue(const struct tm_cursor_key *k, const struct tm_cursor *given,
                    char out[TM_CURSOR_SIZE])
{
    struct tm_cursor c = TM_CURSOR_INIT;
    char bytes[CURSOR_BYTES_MAX];
    STREAM_OPTIONS(c, given);
    if (c.tool_id == NULL || c.args == NULL || (c.state == NULL && c.n > 0))
        return TM_E_INVALID;
    struct cursor_payload p = {.tool_id = text_of(c.tool_id),
                               .caller_id = text_of(c.caller_id),
                               .page = c.page,
                               .issued_at_s = c.issued_at_s,
                               .state = str_of(c.state, c.n)};
    memcpy(p.args, c.args, sizeof p.args);
    int err = error_of(cursor_form_check(&p));
    if (err)
        return err;
    size_t n = cursor_form_write(&p, k->session, bytes);
    err = sign(k, str_of(bytes, n), (uint8_t *)bytes + n);
    if (err == 0)
        out[codec_write_base64url(str_of(bytes, n + MAC_SIZE), out)] = '\0';
    return err;
}

/* ---- verify ---- */

/* How many bytes so many characters stand for; 0: no number of bytes has so many. */
static size_t bytes_of(size_t n)
{
    return n % 4 == 1 ? 0 : n / 4 * 3 + (n % 4 == 0 ? 0 : n % 4 - 1);
}

static char *keep(char **room, struct str s)
{
    char *at = *room;
    if (s.n > 0)
        memcpy(at, s.p, s.n);
    at[s.n] = '\0';
    *room += s.n + 1;
    return at;
}

/* What stands between the names and the state (keys, lengths, the session) is more than their
 * NULs take. */
static void tell(const struct cursor_payload *p, struct tm_cursor *out, char *room)
{
    struct tm_cursor c = TM_CURSOR_INIT;
    c.tool_id = keep(&room, p->tool_id);
    c.caller_id = p->caller_id.p != NULL ? keep(&room, p->caller_id) : NULL;
    c.args = memcpy(room, p->args, sizeof p->args);
    room += sizeof p->args;
    c.page = p->page;
    c.issued_at_s = p->issued_at_s;
    c.state = keep(&room, p->state);
    c.n = p->state.n;
    size_t size = out->size < sizeof c ? out->size : sizeof c;
    c.size = out->size;
    memcpy(out, &c, size);
}

static int judge(const struct tm_cursor_key *k, struct str bytes, const struct tm_cursor *asked,
                 int64_t now_s, uint64_t ttl_s, struct tm_cursor *out, char *room)
{
    struct cursor_asked a = {.tool_id = text_of(asked->tool_id),
                             .caller_id = text_of(asked->caller_id),
                             .args = asked->args};
    struct str body = str_of(bytes.p, bytes.n - MAC_SIZE);
    struct cursor_payload p;
    uint8_t tag[MAC_SIZE];
    int err = sign(k, body, tag);
    if (err)
        return err;
    bool ours = smac_same(tag, (const uint8_t *)bytes.p + body.n);
    OPENSSL_cleanse(tag, sizeof tag); /* it would let a forger in */
    err = error_of(cursor_form_judge(body, ours, k->session, &a, now_s, ttl_s, &p));
    if (err == 0 || err == TM_E_CONFLICT)
        tell(&p, out, room);
    return err;
}

int tm_cursor_verify(const struct tm_cursor_key *k, const char *cursor,
                     const struct tm_cursor *given, int64_t now_s, uint64_t ttl_s,
                     struct tm_cursor *out, char room[TM_CURSOR_ROOM])
{
    struct tm_cursor asked = TM_CURSOR_INIT;
    uint8_t bytes[CURSOR_BYTES_MAX];
    STREAM_OPTIONS(asked, given);
    struct str text = text_of(cursor);
    if (text.n > CURSOR_MAX)
        return TM_E_TOO_LARGE;
    size_t n = bytes_of(text.n);
    if (n < CURSOR_BYTES_LEAST || codec_take_base64url(text, bytes, n) != 0)
        return TM_E_INVALID;
    return judge(k, str_of((const char *)bytes, n), &asked, now_s, ttl_s, out, room);
}
