// SPDX-License-Identifier: Apache-2.0
#include "token/cursor_form.h"
#include "base/err.h"
#include "base/utf8.h"
#include "token/cbor.h"

enum { KEY_TOOL = 1, KEY_CALLER, KEY_ARGS, KEY_PAGE, KEY_ISSUED, KEY_SESSION, KEY_STATE };

/* The same in the format `atd`. */
static const struct str names[] = {
    [KEY_TOOL] = STR_INIT("tool_id"),          [KEY_CALLER] = STR_INIT("caller_id"),
    [KEY_ARGS] = STR_INIT("args_fingerprint"), [KEY_PAGE] = STR_INIT("page_index"),
    [KEY_ISSUED] = STR_INIT("issued_at_unix"), [KEY_SESSION] = STR_INIT("server_session"),
    [KEY_STATE] = STR_INIT("opaque_state")};

#define MEMBERS 7

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

/* ---- writing ---- */

static size_t string_size(size_t n)
{
    return cbor_head_size(n) + n;
}

static size_t key_size(enum cursor_format format, int key)
{
    return format == CURSOR_ATD ? string_size(names[key].n) : 1;
}

/* Of bytes of which nobody knows yet how long they are as numbers. */
static size_t fixed_bytes_size(enum cursor_format format, size_t n)
{
    return format == CURSOR_ATD ? cbor_head_size(n) + 2 * n : string_size(n);
}

/* Of the body, but for the state's value. */
static size_t fixed_size(const struct cursor_payload *p)
{
    enum cursor_format f = p->format;
    size_t n = 1 + string_size(p->tool_id.n) + cbor_head_size(p->page) +
               cbor_head_size((uint64_t)p->issued_at_s);
    for (int key = KEY_TOOL; key <= KEY_STATE; key++)
        n += key_size(f, key);
    n += fixed_bytes_size(f, CURSOR_ARGS_SIZE) + fixed_bytes_size(f, CURSOR_SESSION_SIZE);
    return p->caller_id.p != NULL ? n + string_size(p->caller_id.n) : n - key_size(f, KEY_CALLER);
}

int cursor_room(const struct cursor_payload *p)
{
    size_t fixed = fixed_size(p);
    if (fixed >= CURSOR_BODY_MAX)
        return -1;
    size_t left = CURSOR_BODY_MAX - fixed, room = left - 1;
    while (string_size(room) > left) /* its length may take two bytes more */
        room--;
    return room < CURSOR_STATE_MAX ? (int)room : CURSOR_STATE_MAX;
}

enum cursor_verdict cursor_form_check(const struct cursor_payload *p)
{
    if (p->state.n > CURSOR_STATE_MAX)
        return CURSOR_STATE_TOO_LARGE;
    if (p->issued_at_s < 0)
        return CURSOR_FORMAT;
    if (p->tool_id.n > CURSOR_BODY_MAX || p->caller_id.n > CURSOR_BODY_MAX ||
        cursor_room(p) < (int)p->state.n)
        return CURSOR_TOO_LARGE;
    return utf8_valid(p->tool_id) && utf8_valid(p->caller_id) ? CURSOR_OK : CURSOR_FORMAT;
}

static void cursor_form_put_key(struct cbor_out *out, enum cursor_format format, int key)
{
    if (format == CURSOR_ATD)
        cbor_put_text(out, names[key]);
    else
        cbor_put_uint(out, (uint64_t)key);
}

static void put_fixed(struct cbor_out *out, enum cursor_format format, struct str bytes)
{
    if (format != CURSOR_ATD) {
        cbor_put_bytes(out, bytes);
        return;
    }
    cbor_put_array(out, bytes.n);
    for (size_t i = 0; i < bytes.n; i++)
        cbor_put_uint(out, (unsigned char)bytes.p[i]);
}

static void cursor_form_put_body(struct cbor_out *out, const struct cursor_payload *p,
                                 struct str session)
{
    enum cursor_format f = p->format;
    bool named = p->caller_id.p != NULL;
    cbor_put_map(out, named ? MEMBERS : MEMBERS - 1);
    cursor_form_put_key(out, f, KEY_TOOL);
    cbor_put_text(out, p->tool_id);
    if (named) {
        cursor_form_put_key(out, f, KEY_CALLER);
        cbor_put_text(out, p->caller_id);
    }
    cursor_form_put_key(out, f, KEY_ARGS);
    put_fixed(out, f, str_of((const char *)p->args, sizeof p->args));
    cursor_form_put_key(out, f, KEY_PAGE);
    cbor_put_uint(out, p->page);
    cursor_form_put_key(out, f, KEY_ISSUED);
    cbor_put_uint(out, (uint64_t)p->issued_at_s);
    cursor_form_put_key(out, f, KEY_SESSION);
    put_fixed(out, f, session);
    cursor_form_put_key(out, f, KEY_STATE);
    cbor_put_bytes(out, p->state);
}

static struct str session_of(const uint8_t session[CURSOR_SESSION_SIZE])
{
    return str_of((const char *)session, CURSOR_SESSION_SIZE);
}

size_t cursor_form_write(const struct cursor_payload *p, const uint8_t session[CURSOR_SESSION_SIZE],
                         char out[CURSOR_BODY_MAX])
{
    struct cbor_out to = {.p = out};
    cursor_form_put_body(&to, p, session_of(session));
    return to.n;
}

/* ---- reading ---- */

static void cursor_form_fail(struct cbor_in *in)
{
    *in = (struct cbor_in){.err = ERR_SYNTAX};
}

static void expect_key(struct cbor_in *in, enum cursor_format format, int key)
{
    bool right = format == CURSOR_ATD ? str_eq(cbor_take_text(in), names[key])
                                      : cbor_take_uint(in) == (uint64_t)key;
    if (!right)
        cursor_form_fail(in);
}

/* n bytes into *out. */
static void take_fixed(struct cbor_in *in, enum cursor_format format, uint8_t *out, size_t n)
{
    if (format != CURSOR_ATD) {
        struct str s = cbor_take_bytes(in);
        if (s.n == n)
            memcpy(out, s.p, n);
        else
            cursor_form_fail(in);
        return;
    }
    if (cbor_take_array(in) != n)
        cursor_form_fail(in);
    for (size_t i = 0; i < n && in->err == 0; i++) {
        uint64_t v = cbor_take_uint(in);
        if (v > UINT8_MAX)
            cursor_form_fail(in);
        out[i] = (uint8_t)v;
    }
}

/* What the body says, signed or not; the strings point into it. */
static bool read_body(struct str body, enum cursor_format f, struct cursor_payload *p,
                      uint8_t session[CURSOR_SESSION_SIZE])
{
    struct cbor_in in = {.rest = body};
    uint64_t members = cbor_take_map(&in);
    if (members != MEMBERS && members != MEMBERS - 1)
        return false;
    p->format = f;
    expect_key(&in, f, KEY_TOOL);
    p->tool_id = cbor_take_text(&in);
    p->caller_id = STR_NONE;
    if (members == MEMBERS) {
        expect_key(&in, f, KEY_CALLER);
        p->caller_id = cbor_take_text(&in);
    }
    expect_key(&in, f, KEY_ARGS);
    take_fixed(&in, f, p->args, sizeof p->args);
    expect_key(&in, f, KEY_PAGE);
    p->page = cbor_take_uint(&in);
    expect_key(&in, f, KEY_ISSUED);
    uint64_t issued_at_s = cbor_take_uint(&in);
    expect_key(&in, f, KEY_SESSION);
    take_fixed(&in, f, session, CURSOR_SESSION_SIZE);
    expect_key(&in, f, KEY_STATE);
    p->state = cbor_take_bytes(&in);
    if (cbor_end(&in) != 0 || issued_at_s > INT64_MAX || p->state.n > CURSOR_STATE_MAX)
        return false;
    p->issued_at_s = (int64_t)issued_at_s;
    return true;
}

/* Nothing here has to take the same time always: a cursor that is rightly signed has no secrets
 * from whoever sends it. */
static enum cursor_verdict cursor_form_compare(const struct cursor_payload *p,
                                               const struct cursor_asked *asked)
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

static bool cursor_form_is_over(int64_t issued_at_s, int64_t now_s, uint64_t ttl_s)
{
    return now_s > issued_at_s && (uint64_t)(now_s - issued_at_s) > ttl_s;
}

enum cursor_verdict cursor_form_judge(struct str body, bool ours,
                                      const uint8_t session[CURSOR_SESSION_SIZE],
                                      const struct cursor_asked *asked, int64_t now_s,
                                      uint64_t ttl_s, struct cursor_payload *p)
{
    uint8_t named[CURSOR_SESSION_SIZE] = {0};
    bool formed = read_body(body, asked->format, p, named);
    if (formed && memcmp(named, session, sizeof named) != 0)
        return CURSOR_SESSION;
    if (!ours)
        return CURSOR_SIGNATURE;
    if (!formed)
        return CURSOR_FORMAT;
    return cursor_form_is_over(p->issued_at_s, now_s, ttl_s) ? CURSOR_EXPIRED
                                                             : cursor_form_compare(p, asked);
}
