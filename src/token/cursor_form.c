// SPDX-License-Identifier: Apache-2.0
#include "token/cursor_form.h"
#include "base/err.h"
#include "base/utf8.h"
#include "token/cbor.h"

enum { KEY_TOOL = 1, KEY_CALLER, KEY_ARGS, KEY_PAGE, KEY_ISSUED, KEY_SESSION, KEY_STATE };

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

/* Of the body, but for the state's value. */
static size_t fixed_size(const struct cursor_payload *p)
{
    size_t n = 1 + 1 + string_size(p->tool_id.n);
    if (p->caller_id.p != NULL)
        n += 1 + string_size(p->caller_id.n);
    n += 1 + string_size(CURSOR_ARGS_SIZE) + 1 + cbor_head_size(p->page);
    n += 1 + cbor_head_size((uint64_t)p->issued_at_s);
    return n + 1 + string_size(CURSOR_SESSION_SIZE) + 1;
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

static void put_body(struct cbor_out *out, const struct cursor_payload *p, struct str session)
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

static struct str session_of(const uint8_t session[CURSOR_SESSION_SIZE])
{
    return str_of((const char *)session, CURSOR_SESSION_SIZE);
}

size_t cursor_form_write(const struct cursor_payload *p, const uint8_t session[CURSOR_SESSION_SIZE],
                         char out[CURSOR_BODY_MAX])
{
    struct cbor_out to = {.p = out};
    put_body(&to, p, session_of(session));
    return to.n;
}

/* ---- reading ---- */

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

enum cursor_verdict cursor_form_judge(struct str body, bool ours,
                                      const uint8_t session[CURSOR_SESSION_SIZE],
                                      const struct cursor_asked *asked, int64_t now_s,
                                      uint64_t ttl_s, struct cursor_payload *p)
{
    struct str named;
    bool formed = read_body(body, p, &named);
    if (formed && !str_eq(named, session_of(session)))
        return CURSOR_SESSION;
    if (!ours)
        return CURSOR_SIGNATURE;
    if (!formed)
        return CURSOR_FORMAT;
    return is_over(p->issued_at_s, now_s, ttl_s) ? CURSOR_EXPIRED : compare(p, asked);
}
