// SPDX-License-Identifier: Apache-2.0
/* fuzz_cursor.c -- no bytes are a cursor but those that were issued. An input is taken four times,
 * in each format: as a cursor; as a change to the bytes of a good one; as a body that is then
 * rightly signed, so that the decoder behind the signature is reached too, and has to accept one
 * spelling only; and as a payload to issue. */
#include "base/arena.h"
#include "base/b64.h"
#include "base/utf8.h"
#include "token/cursor.h"
#include "token/mac.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX (CURSOR_MAX + 64)
#define ISSUED_S  1762000000

static const uint8_t key[CURSOR_KEY_SIZE] = {7}, session[CURSOR_SESSION_SIZE] = {1, 2, 3};

struct world {
    struct cursor_issuer *issuer;
    struct mac *mac; /* as the issuer has it */
    struct arena arena;
    struct cursor_asked asked;
    struct buf good;
};

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_cursor: %s\n", what);
    abort();
}

static void set_up(struct world *w, enum cursor_format format)
{
    uint8_t subkey[MAC_KEY_SIZE];
    struct cursor_payload p = {.tool_id = STR("conformance:page_gen"),
                               .page = 2,
                               .issued_at_s = ISSUED_S,
                               .state = STR("\0\0\0\2")};
    *w = (struct world){.issuer = cursor_issuer_new_as(format, key, session)};
    mac_subkey(key, "cursor", subkey);
    w->mac = mac_new(str_of((const char *)(format == CURSOR_ATD ? key : subkey), sizeof subkey));
    w->asked = (struct cursor_asked){.tool_id = p.tool_id};
    check(cursor_issue(w->issuer, &p, &w->good) == CURSOR_OK, "not issued");
}

static enum cursor_verdict verify(struct world *w, struct str cursor, int64_t now_s,
                                  struct cursor_payload *p)
{
    return cursor_verify(w->issuer, &w->arena, cursor, &w->asked, now_s, CURSOR_TTL_S, p);
}

static void fuzz_text(struct world *w, struct str cursor)
{
    struct cursor_payload p;
    bool right = str_eq(cursor, buf_str(&w->good));
    enum cursor_verdict v = verify(w, cursor, 0, &p);
    check((v == CURSOR_OK) == right, "what was issued, and nothing else, is a cursor");
    check(right || v == CURSOR_TOO_LARGE || v == CURSOR_NO_CURSOR || v == CURSOR_SIGNATURE ||
              v == CURSOR_SESSION,
          "a verdict it cannot have");
    v = verify(w, cursor, INT64_MAX, &p);
    check((v == CURSOR_EXPIRED) == right, "only a good cursor can expire");
}

/* The first byte says where the others are laid over the bytes, by exclusive or. */
static void fuzz_change(struct world *w, struct str input)
{
    if (input.n == 0)
        return;
    struct buf bytes = {0}, cursor = {0};
    check(b64url_take(&bytes, buf_str(&w->good)) == 0, "base64url");
    size_t at = (unsigned char)input.p[0];
    for (size_t i = 1; i < input.n && at + i - 1 < bytes.n; i++)
        bytes.p[at + i - 1] = (char)(bytes.p[at + i - 1] ^ input.p[i]);
    b64url_put(&cursor, buf_str(&bytes));
    fuzz_text(w, buf_str(&cursor));
    buf_deinit(&bytes);
    buf_deinit(&cursor);
}

/* ---- behind the signature ---- */

static void put_signed(struct world *w, struct str body, struct buf *out)
{
    struct buf bytes = {0};
    uint8_t tag[MAC_SIZE];
    mac_sign(w->mac, &body, 1, tag);
    buf_put(&bytes, body);
    buf_put(&bytes, str_of((const char *)tag, sizeof tag));
    b64url_put(out, buf_str(&bytes));
    buf_deinit(&bytes);
}

/* Whatever the body says, saying it again gives the same cursor. */
static void fuzz_body(struct world *w, struct str body)
{
    struct buf cursor = {0}, again = {0};
    struct cursor_payload p;
    put_signed(w, body, &cursor);
    enum cursor_verdict v = verify(w, buf_str(&cursor), ISSUED_S, &p);
    check(v != CURSOR_SIGNATURE && v != CURSOR_ARGS, "a verdict it cannot have");
    check((v == CURSOR_TOO_LARGE) == (cursor.n > CURSOR_MAX), "too large or not");
    if (v == CURSOR_OK || v == CURSOR_TOOL || v == CURSOR_CALLER) {
        check(cursor_issue(w->issuer, &p, &again) == CURSOR_OK, "read, but not to be issued");
        check(str_eq(buf_str(&again), buf_str(&cursor)), "two spellings");
    }
    buf_deinit(&cursor);
    buf_deinit(&again);
}

/* ---- issue ---- */

static bool same(const struct cursor_payload *a, const struct cursor_payload *b)
{
    return str_eq(a->tool_id, b->tool_id) && str_eq(a->caller_id, b->caller_id) &&
           (a->caller_id.p == NULL) == (b->caller_id.p == NULL) && a->page == b->page &&
           memcmp(a->args, b->args, sizeof a->args) == 0 && a->issued_at_s == b->issued_at_s &&
           str_eq(a->state, b->state);
}

static struct str take(struct str *rest, size_t n)
{
    n = n < rest->n ? n : rest->n;
    struct str s = str_of(rest->p, n);
    *rest = str_skip(*rest, n);
    return s;
}

static void fuzz_payload(struct world *w, struct str input)
{
    struct {
        uint64_t page;
        int64_t issued_at_s;
        uint8_t tool_n, caller_n, named;
    } head;
    if (input.n < sizeof head)
        return;
    memcpy(&head, input.p, sizeof head);
    struct str rest = str_skip(input, sizeof head);
    struct cursor_payload p = {.format = cursor_issuer_format(w->issuer),
                               .page = head.page,
                               .issued_at_s = head.issued_at_s},
                          back;
    p.tool_id = take(&rest, head.tool_n);
    p.caller_id = head.named % 2 ? take(&rest, head.caller_n) : STR_NONE;
    memcpy(p.args, &head, sizeof head < sizeof p.args ? sizeof head : sizeof p.args);
    p.state = rest;
    struct buf cursor = {0};
    enum cursor_verdict v = cursor_issue(w->issuer, &p, &cursor);
    if (v == CURSOR_OK) {
        struct cursor_asked asked = {
            .tool_id = p.tool_id, .caller_id = p.caller_id, .args = p.args};
        check(cursor.n <= CURSOR_MAX, "a cursor longer than cursors are");
        v = cursor_verify(w->issuer, &w->arena, buf_str(&cursor), &asked, p.issued_at_s, 0, &back);
        check(v == CURSOR_OK && same(&p, &back), "issued, but not verified");
    } else {
        bool sayable = utf8_valid(p.tool_id) && utf8_valid(p.caller_id) && p.issued_at_s >= 0;
        check(cursor.n == 0, "half a cursor");
        check(!sayable || (int)p.state.n > cursor_room(&p), "there was room for it");
    }
    buf_deinit(&cursor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > INPUT_MAX)
        return 0;
    struct str input = str_of((const char *)data, n);
    static struct world worlds[2]; /* deriving a key takes longer than all the rest */
    for (int format = CURSOR_TIDEMARK; format <= CURSOR_ATD; format++) {
        struct world *w = &worlds[format];
        if (w->issuer == NULL)
            set_up(w, (enum cursor_format)format);
        fuzz_text(w, input);
        fuzz_change(w, input);
        fuzz_body(w, input);
        fuzz_payload(w, input);
        arena_deinit(&w->arena);
    }
    return 0;
}
