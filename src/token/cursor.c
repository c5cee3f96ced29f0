// SPDX-License-Identifier: Apache-2.0
#include "token/cursor.h"
#include "base/arena.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/json_canonical.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "token/cbor.h"
#include "token/mac.h"

#include <openssl/crypto.h>
#include <stdlib.h>

enum { KEY_TOOL = 1, KEY_CALLER, KEY_ARGS, KEY_PAGE, KEY_ISSUED, KEY_SESSION, KEY_STATE };

#define MEMBERS    7
#define BYTES_MAX  (CURSOR_MAX / 4 * 3)
#define BODY_MAX   (BYTES_MAX - MAC_SIZE)
#define TEXT_LEAST ((CURSOR_BYTES_LEAST * 4 + 2) / 3)

struct cursor_issuer {
    struct mac *mac;
    uint8_t session[CURSOR_SESSION_SIZE];
};

int cursor_verdict_code(enum cursor_verdict v)
{
    static const int codes[] = {
#define X(name, code, text) code,
        CURSOR_VERDICTS(X)
#undef X
    };
    return codes[v];
}

const char *cursor_verdict_text(enum cursor_verdict v)
{
    static const char *const texts[] = {
#define X(name, code, text) text,
        CURSOR_VERDICTS(X)
#undef X
    };
    return texts[v];
}

struct cursor_issuer *cursor_issuer_new(const uint8_t key[CURSOR_KEY_SIZE],
                                        const uint8_t session[CURSOR_SESSION_SIZE])
{
    _Static_assert(CURSOR_KEY_SIZE == MAC_KEY_SIZE, "the key is the root of a subkey");
    struct cursor_issuer *i = mem_alloc(sizeof *i);
    uint8_t subkey[MAC_KEY_SIZE];
    mac_subkey(key, "cursor", subkey);
    i->mac = mac_new(str_of((const char *)subkey, sizeof subkey));
    OPENSSL_cleanse(subkey, sizeof subkey);
    memcpy(i->session, session, sizeof i->session);
    return i;
}

void cursor_issuer_free(struct cursor_issuer *i)
{
    if (i == NULL)
        return;
    mac_free(i->mac);
    free(i);
}

/* ---- issue ---- */

static size_t string_size(size_t n)
{
    return cbor_head_size(n) + n;
}

/* Of the body, but for the state's value. */
static size_t fixed_size(const struct cursor_payload *p)
{
    size_t n = 1 + 1 + string_size(p->tool_id.n);
    if (p->caller_id.p != NULL)
        n += 1 + string_size(p->caller_id.n);
    n += 1 + string_size(SHA256_SIZE) + 1 + cbor_head_size(p->page);
    n += 1 + cbor_head_size((uint64_t)p->issued_at_s);
    return n + 1 + string_size(CURSOR_SESSION_SIZE) + 1;
}

int cursor_room(const struct cursor_payload *p)
{
    size_t fixed = fixed_size(p);
    if (fixed >= BODY_MAX)
        return -1;
    size_t left = BODY_MAX - fixed, room = left - 1;
    while (string_size(room) > left) /* its length may take two bytes more */
        room--;
    return room < CURSOR_STATE_MAX ? (int)room : CURSOR_STATE_MAX;
}

static enum cursor_verdict can_issue(const struct cursor_payload *p)
{
    if (p->state.n > CURSOR_STATE_MAX)
        return CURSOR_STATE_TOO_LARGE;
    if (p->issued_at_s < 0)
        return CURSOR_FORMAT;
    if (p->tool_id.n > BODY_MAX || p->caller_id.n > BODY_MAX || cursor_room(p) < (int)p->state.n)
        return CURSOR_TOO_LARGE;
    return utf8_valid(p->tool_id) && utf8_valid(p->caller_id) ? CURSOR_OK : CURSOR_FORMAT;
}

static void put_body(struct buf *out, const struct cursor_payload *p, struct str session)
{
    bool named = p->caller_id.p != NULL;
    cbor_put_map(out, named ? MEMBERS : MEMBERS - 1);
    cbor_put_uint(out, KEY_TOOL);
    cbor_put_text(out, p->tool_id);
    if (named) {
        cbor_put_uint(out, KEY_CALLER);
        cbor_put_text(out, p->caller_id);
    }
    cbor_put_uint(out, KEY_ARGS);
    cbor_put_bytes(out, str_of((const char *)p->args, sizeof p->args));
    cbor_put_uint(out, KEY_PAGE);
    cbor_put_uint(out, p->page);
    cbor_put_uint(out, KEY_ISSUED);
    cbor_put_uint(out, (uint64_t)p->issued_at_s);
    cbor_put_uint(out, KEY_SESSION);
    cbor_put_bytes(out, session);
    cbor_put_uint(out, KEY_STATE);
    cbor_put_bytes(out, p->state);
}

static struct str session_of(const struct cursor_issuer *i)
{
    return str_of((const char *)i->session, sizeof i->session);
}

enum cursor_verdict cursor_issue(const struct cursor_issuer *i, const struct cursor_payload *p,
                                 struct buf *out)
{
    enum cursor_verdict v = can_issue(p);
    if (v != CURSOR_OK)
        return v;
    struct buf bytes = {0};
    buf_reserve(&bytes, BYTES_MAX + CBOR_HEAD_MAX);
    put_body(&bytes, p, session_of(i));
    uint8_t tag[MAC_SIZE];
    mac_sign(i->mac, (struct str[]){buf_str(&bytes)}, 1, tag);
    buf_put(&bytes, str_of((const char *)tag, sizeof tag));
    b64url_put(out, buf_str(&bytes));
    buf_deinit(&bytes);
    return CURSOR_OK;
}

/* ---- verify ---- */

static void expect_key(struct cbor_in *in, uint64_t key)
{
    if (cbor_take_uint(in) != key)
        *in = (struct cbor_in){.err = ERR_SYNTAX};
}

static struct str take_exactly(struct cbor_in *in, size_t n)
{
    struct str s = cbor_take_bytes(in);
    if (s.n != n)
        *in = (struct cbor_in){.err = ERR_SYNTAX};
    return s;
}

/* What the body says, signed or not; the strings point into it. */
static bool read_body(struct str body, struct cursor_payload *p, struct str *session)
{
    struct cbor_in in = {.rest = body};
    uint64_t members = cbor_take_map(&in);
    if (members != MEMBERS && members != MEMBERS - 1)
        return false;
    expect_key(&in, KEY_TOOL);
    p->tool_id = cbor_take_text(&in);
    p->caller_id = STR_NONE;
    if (members == MEMBERS) {
        expect_key(&in, KEY_CALLER);
        p->caller_id = cbor_take_text(&in);
    }
    expect_key(&in, KEY_ARGS);
    struct str args = take_exactly(&in, sizeof p->args);
    expect_key(&in, KEY_PAGE);
    p->page = cbor_take_uint(&in);
    expect_key(&in, KEY_ISSUED);
    uint64_t issued_at_s = cbor_take_uint(&in);
    expect_key(&in, KEY_SESSION);
    *session = take_exactly(&in, CURSOR_SESSION_SIZE);
    expect_key(&in, KEY_STATE);
    p->state = cbor_take_bytes(&in);
    if (cbor_end(&in) != 0 || issued_at_s > INT64_MAX || p->state.n > CURSOR_STATE_MAX)
        return false;
    p->issued_at_s = (int64_t)issued_at_s;
    memcpy(p->args, args.p, sizeof p->args);
    return true;
}

/* Nothing here has to take the same time always: a cursor that is rightly signed has no secrets
 * from whoever sends it. */
static enum cursor_verdict compare(const struct cursor_payload *p, const struct cursor_asked *asked)
{
    if (!str_eq(p->tool_id, asked->tool_id))
        return CURSOR_TOOL;
    if ((p->caller_id.p == NULL) != (asked->caller_id.p == NULL) ||
        !str_eq(p->caller_id, asked->caller_id))
        return CURSOR_CALLER;
    if (asked->args != NULL && memcmp(p->args, asked->args, sizeof p->args) != 0)
        return CURSOR_ARGS;
    return CURSOR_OK;
}

static bool is_over(int64_t issued_at_s, int64_t now_s, uint64_t ttl_s)
{
    return now_s > issued_at_s && (uint64_t)(now_s - issued_at_s) > ttl_s;
}

/* Whether the bytes are signed, by us and in time; *p then points into them. */
static enum cursor_verdict verify_bytes(const struct cursor_issuer *i, struct str bytes,
                                        int64_t now_s, uint64_t ttl_s, struct cursor_payload *p)
{
    struct str body = str_of(bytes.p, bytes.n - MAC_SIZE), session;
    bool ours = mac_check(i->mac, &body, 1, str_skip(bytes, body.n));
    bool formed = read_body(body, p, &session);
    if (formed && !str_eq(session, session_of(i)))
        return CURSOR_SESSION;
    if (!ours)
        return CURSOR_SIGNATURE;
    if (!formed)
        return CURSOR_FORMAT;
    return is_over(p->issued_at_s, now_s, ttl_s) ? CURSOR_EXPIRED : CURSOR_OK;
}

/* An empty string stays one that is there. */
static struct str keep(struct arena *a, struct str s)
{
    return s.n == 0 && s.p != NULL ? STR("") : arena_dup(a, s);
}

enum cursor_verdict cursor_verify(const struct cursor_issuer *i, struct arena *a, struct str cursor,
                                  const struct cursor_asked *asked, int64_t now_s, uint64_t ttl_s,
                                  struct cursor_payload *out)
{
    if (cursor.n > CURSOR_MAX)
        return CURSOR_TOO_LARGE;
    if (cursor.n < TEXT_LEAST)
        return CURSOR_NO_CURSOR;
    struct buf bytes = {0};
    struct cursor_payload p;
    enum cursor_verdict v = CURSOR_NO_CURSOR;
    if (b64url_take(&bytes, cursor) == 0)
        v = verify_bytes(i, buf_str(&bytes), now_s, ttl_s, &p);
    if (v == CURSOR_OK) {
        v = compare(&p, asked);
        p.tool_id = keep(a, p.tool_id);
        p.caller_id = keep(a, p.caller_id);
        p.state = keep(a, p.state);
        *out = p;
    }
    buf_deinit(&bytes);
    return v;
}

/* ---- what goes into one ---- */

int cursor_fingerprint(struct str args, struct str without, uint8_t out[SHA256_SIZE])
{
    struct buf text = {0};
    int err = json_canonical(args, without, &text);
    if (err == 0)
        sha256(buf_str(&text), out);
    buf_deinit(&text);
    return err;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct str trim(struct str s)
{
    while (s.n > 0 && is_space(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

int cursor_secret_take(struct str text, uint8_t *out, size_t n, size_t *got)
{
    struct buf bytes = {0};
    text = trim(text);
    *got = 0;
    if (b64url_take(&bytes, text) == 0 || b64_take(&bytes, text) == 0)
        *got = bytes.n;
    bool fits = *got == n;
    if (fits)
        memcpy(out, bytes.p, n);
    if (bytes.p != NULL)
        OPENSSL_cleanse(bytes.p, bytes.cap);
    buf_deinit(&bytes);
    return fits ? 0 : ERR_SYNTAX;
}
