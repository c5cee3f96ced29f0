// SPDX-License-Identifier: Apache-2.0
#include "token/cursor.h"
#include "base/arena.h"
#include "base/ascii.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/json_canonical.h"
#include "base/mem.h"
#include "token/mac.h"

#include <openssl/crypto.h>
#include <stdlib.h>

#define TEXT_LEAST ((CURSOR_BYTES_LEAST * 4 + 2) / 3)

_Static_assert(CURSOR_ARGS_SIZE == SHA256_SIZE && CURSOR_TAG_SIZE == MAC_SIZE, "of one kind");

struct cursor_issuer {
    enum cursor_format format;
    struct mac *mac;
    uint8_t session[CURSOR_SESSION_SIZE];
};

struct cursor_issuer *cursor_issuer_new_as(enum cursor_format format,
                                           const uint8_t key[CURSOR_KEY_SIZE],
                                           const uint8_t session[CURSOR_SESSION_SIZE])
{
    _Static_assert(CURSOR_KEY_SIZE == MAC_KEY_SIZE, "the key is the root of a subkey");
    struct cursor_issuer *i = mem_alloc(sizeof *i);
    uint8_t k[MAC_KEY_SIZE];
    if (format == CURSOR_ATD)
        memcpy(k, key, sizeof k);
    else
        mac_subkey(key, "cursor", k);
    i->format = format;
    i->mac = mac_new(str_of((const char *)k, sizeof k));
    OPENSSL_cleanse(k, sizeof k);
    memcpy(i->session, session, sizeof i->session);
    return i;
}

struct cursor_issuer *cursor_issuer_new(const uint8_t key[CURSOR_KEY_SIZE],
                                        const uint8_t session[CURSOR_SESSION_SIZE])
{
    return cursor_issuer_new_as(CURSOR_TIDEMARK, key, session);
}

enum cursor_format cursor_issuer_format(const struct cursor_issuer *i)
{
    return i->format;
}

void cursor_issuer_free(struct cursor_issuer *i)
{
    if (i == NULL)
        return;
    mac_free(i->mac);
    free(i);
}

enum cursor_verdict cursor_issue(const struct cursor_issuer *i, const struct cursor_payload *given,
                                 struct buf *out)
{
    char bytes[CURSOR_BYTES_MAX];
    struct cursor_payload p = *given;
    p.format = i->format;
    enum cursor_verdict v = cursor_form_check(&p);
    if (v != CURSOR_OK)
        return v;
    size_t n = cursor_form_write(&p, i->session, bytes);
    mac_sign(i->mac, (struct str[]){str_of(bytes, n)}, 1, (uint8_t *)bytes + n);
    b64url_put(out, str_of(bytes, n + MAC_SIZE));
    return CURSOR_OK;
}

/* An empty string stays one that is there. */
static struct str cursor_keep(struct arena *a, struct str s)
{
    return s.n == 0 && s.p != NULL ? STR("") : arena_dup(a, s);
}

static bool is_told(enum cursor_verdict v)
{
    return v == CURSOR_OK || v == CURSOR_TOOL || v == CURSOR_CALLER || v == CURSOR_ARGS;
}

enum cursor_verdict cursor_verify(const struct cursor_issuer *i, struct arena *a, struct str cursor,
                                  const struct cursor_asked *given, int64_t now_s, uint64_t ttl_s,
                                  struct cursor_payload *out)
{
    struct cursor_asked asked = *given;
    asked.format = i->format;
    if (cursor.n > CURSOR_MAX)
        return CURSOR_TOO_LARGE;
    if (cursor.n < TEXT_LEAST)
        return CURSOR_NO_CURSOR;
    struct buf bytes = {0};
    struct cursor_payload p;
    enum cursor_verdict v = CURSOR_NO_CURSOR;
    if (b64url_take(&bytes, cursor) == 0) {
        struct str body = str_of(bytes.p, bytes.n - MAC_SIZE);
        bool ours = mac_check(i->mac, &body, 1, str_skip(buf_str(&bytes), body.n));
        v = cursor_form_judge(body, ours, i->session, &asked, now_s, ttl_s, &p);
    }
    if (is_told(v)) {
        p.tool_id = cursor_keep(a, p.tool_id);
        p.caller_id = cursor_keep(a, p.caller_id);
        p.state = cursor_keep(a, p.state);
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

int cursor_secret_take(struct str text, uint8_t *out, size_t n, size_t *got)
{
    struct buf bytes = {0};
    text = ascii_trim(text);
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
