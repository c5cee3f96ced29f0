// SPDX-License-Identifier: Apache-2.0
/* Cursors of pages, in the form of token/cursor_form.h. Only tm_cursor_fingerprint needs memory. */
#include "client/client_canonical.h"
#include "base/ascii.h"
#include "client/codec.h"
#include "client/session_mac.h"
#include "client/stream.h"
#include "token/cursor_form.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY_VARIABLE "ATD_CURSOR_SIGNING_KEY"
#define KEY_FILE_MAX 1024 /* bytes; no key has as many */

_Static_assert(TM_CURSOR_SIZE == CURSOR_MAX + 1 && TM_CURSOR_STATE_MAX == CURSOR_STATE_MAX &&
                   TM_CURSOR_ARGS_SIZE == CURSOR_ARGS_SIZE && MAC_SIZE == CURSOR_TAG_SIZE &&
                   TM_CURSOR_ROOM >= CURSOR_BODY_MAX + 2,
               "the header says what the form says");

static int client_cursor_error_of(enum cursor_verdict v)
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
static int client_cursor_sign(const struct tm_cursor_key *k, struct str body, uint8_t tag[MAC_SIZE])
{
    uint8_t subkey[MAC_SIZE];
    int err = smac_hkdf(k->key, STR_NONE, STR("tidemark/cursor"), subkey);
    if (err == 0)
        err = smac_sign(subkey, body, tag);
    OPENSSL_cleanse(subkey, sizeof subkey);
    return err;
}

static struct str client_cursor_text_of(const char *text)
{
    return text != NULL ? str_of_cstr(text) : STR_NONE;
}

/* ---- keys ---- */

static int draw(uint8_t *to, size_t n)
{
    return RAND_bytes(to, (int)n) == 1 ? 0 : TM_E_NOMEM;
}

int tm_cursor_key_random(struct tm_cursor_key *k)
{
    return tm_cursor_key_take(NULL, NULL, k);
}

/* n bytes, in base64 of either kind. */
static int take_secret(struct str text, uint8_t *to, size_t n)
{
    char padded[64];
    size_t got = 0;
    text = ascii_trim(text);
    if (text.n == 0)
        return draw(to, n);
    if (codec_take_base64url(text, to, n) == 0)
        return 0;
    bool fits = b64_bytes_max(text.n) <= sizeof padded &&
                codec_take_base64(text, padded, &got) == 0 && got == n;
    if (fits)
        memcpy(to, padded, n);
    OPENSSL_cleanse(padded, sizeof padded);
    return fits ? 0 : TM_E_INVALID;
}

int tm_cursor_key_take(const char *key, const char *session, struct tm_cursor_key *k)
{
    struct tm_cursor_key taken;
    int err = take_secret(client_cursor_text_of(key), taken.key, sizeof taken.key);
    if (err == 0)
        err = take_secret(client_cursor_text_of(session), taken.session, sizeof taken.session);
    if (err == 0)
        *k = taken;
    OPENSSL_cleanse(&taken, sizeof taken);
    return err;
}

/* All of a file and a NUL. */
static int client_cursor_read_key(const char *path, char out[KEY_FILE_MAX + 1])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;
    size_t n = 0;
    if (fd < 0)
        return TM_E_IO;
    while (got > 0 && n < KEY_FILE_MAX) {
        got = read(fd, out + n, KEY_FILE_MAX - n);
        n += got > 0 ? (size_t)got : 0;
        if (got < 0 && errno == EINTR)
            got = 1;
    }
    close(fd);
    out[n] = '\0';
    if (got < 0)
        return TM_E_IO;
    /* Empty is no key, and neither is what goes on. */
    return n < KEY_FILE_MAX && ascii_trim(str_of_cstr(out)).n > 0 && strlen(out) == n
               ? 0
               : TM_E_INVALID;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

int tm_cursor_key_environment(const char *session, struct tm_cursor_key *k)
{
    const char *key = variable(KEY_VARIABLE), *path = variable(KEY_VARIABLE "_FILE");
    char text[KEY_FILE_MAX + 1];
    if (path == NULL) {
        int err = tm_cursor_key_take(key, session, k);
        return err ? err : key != NULL && ascii_trim(str_of_cstr(key)).n > 0;
    }
    if (key != NULL)
        return TM_E_INVALID; /* which of them? */
    int err = client_cursor_read_key(path, text);
    if (err == 0)
        err = tm_cursor_key_take(text, session, k);
    OPENSSL_cleanse(text, sizeof text);
    return err ? err : 1;
}

/* ---- arguments ---- */

int tm_cursor_fingerprint(const char *args, size_t n, uint8_t out[TM_CURSOR_ARGS_SIZE])
{
    struct tm_client c = {.mem = client_system_memory}; /* for its memory alone */
    struct bytes text = {0};
    size_t size = TM_CURSOR_ARGS_SIZE;
    if (args == NULL)
        return TM_E_INVALID;
    int err = canonical_put(&c, str_of(args, n), &text);
    if (err == 0 && EVP_Q_digest(NULL, "SHA256", NULL, text.p, text.n, out, &size) != 1)
        err = TM_E_NOMEM;
    bytes_free_secret(&c, &text);
    return err;
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
    struct cursor_payload p = {.tool_id = client_cursor_text_of(c.tool_id),
                               .caller_id = client_cursor_text_of(c.caller_id),
                               .page = c.page,
                               .issued_at_s = c.issued_at_s,
                               .state = str_of(c.state, c.n)};
    memcpy(p.args, c.args, sizeof p.args);
    int err = client_cursor_error_of(cursor_form_check(&p));
    if (err)
        return err;
    size_t n = cursor_form_write(&p, k->session, bytes);
    err = client_cursor_sign(k, str_of(bytes, n), (uint8_t *)bytes + n);
    if (err == 0)
        out[b64url_encode(str_of(bytes, n + MAC_SIZE), out)] = '\0';
    return err;
}

/* ---- verify ---- */

/* How many bytes so many characters stand for; 0: no number of bytes has so many. */
static size_t bytes_of(size_t n)
{
    return n % 4 == 1 ? 0 : n / 4 * 3 + (n % 4 == 0 ? 0 : n % 4 - 1);
}

static char *client_cursor_keep(char **room, struct str s)
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
static void client_cursor_tell(const struct cursor_payload *p, struct tm_cursor *out, char *room)
{
    struct tm_cursor c = TM_CURSOR_INIT;
    c.tool_id = client_cursor_keep(&room, p->tool_id);
    c.caller_id = p->caller_id.p != NULL ? client_cursor_keep(&room, p->caller_id) : NULL;
    c.args = memcpy(room, p->args, sizeof p->args);
    room += sizeof p->args;
    c.page = p->page;
    c.issued_at_s = p->issued_at_s;
    c.state = client_cursor_keep(&room, p->state);
    c.n = p->state.n;
    size_t size = out->size < sizeof c ? out->size : sizeof c;
    c.size = out->size;
    memcpy(out, &c, size);
}

static int client_cursor_judge(const struct tm_cursor_key *k, struct str bytes,
                               const struct tm_cursor *asked, int64_t now_s, uint64_t ttl_s,
                               struct tm_cursor *out, char *room)
{
    struct cursor_asked a = {.tool_id = client_cursor_text_of(asked->tool_id),
                             .caller_id = client_cursor_text_of(asked->caller_id),
                             .args = asked->args};
    struct str body = str_of(bytes.p, bytes.n - MAC_SIZE);
    struct cursor_payload p;
    uint8_t tag[MAC_SIZE];
    int err = client_cursor_sign(k, body, tag);
    if (err)
        return err;
    bool ours = smac_same(tag, (const uint8_t *)bytes.p + body.n);
    OPENSSL_cleanse(tag, sizeof tag); /* it would let a forger in */
    err = client_cursor_error_of(cursor_form_judge(body, ours, k->session, &a, now_s, ttl_s, &p));
    if (err == 0 || err == TM_E_CONFLICT)
        client_cursor_tell(&p, out, room);
    return err;
}

int tm_cursor_verify(const struct tm_cursor_key *k, const char *cursor,
                     const struct tm_cursor *given, int64_t now_s, uint64_t ttl_s,
                     struct tm_cursor *out, char room[TM_CURSOR_ROOM])
{
    struct tm_cursor asked = TM_CURSOR_INIT;
    uint8_t bytes[CURSOR_BYTES_MAX];
    STREAM_OPTIONS(asked, given);
    struct str text = client_cursor_text_of(cursor);
    if (text.n > CURSOR_MAX)
        return TM_E_TOO_LARGE;
    size_t n = bytes_of(text.n);
    if (n < CURSOR_BYTES_LEAST || codec_take_base64url(text, bytes, n) != 0)
        return TM_E_INVALID;
    return client_cursor_judge(k, str_of((const char *)bytes, n), &asked, now_s, ttl_s, out, room);
}
