// SPDX-License-Identifier: Apache-2.0
/* fuzz_session_messages.c -- whatever a peer sends is read within its budget or refused, and means
 * what a plainer way of reading says. An input is taken as every message that a client can send,
 * and as a chunk that a backend sends: then the result must hold the content's fields, our id and
 * our MAC, and nothing else of that name; and as the content of another chunk it gives the same. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"
#include "feature/sessions/session_messages.h"
#include "fuzz/plain_wire.h"

#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define EVENT_ID  17
#define ID_FIELD  7
#define MAC_FIELD 2048

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_session_messages: %s\n", what);
    abort();
}

/* ---- requests ---- */

static bool plain_request(struct str rest, struct session_request *out)
{
    struct field f;
    bool said = false;
    *out = (struct session_request){0};
    while (rest.n > 0) {
        if (!cut_field(&rest, &f) || (f.tag <= 5 && f.wire != (f.tag == 5 ? 0 : 2)))
            return false;
        if (f.tag <= 3) {
            said = true;
            out->kind = f.tag == 1 ? SESSION_CHUNK : f.tag == 2 ? SESSION_ABORT : SESSION_CLOSE;
            out->chunk = f.tag == 1 ? f.value : STR_NONE;
        } else if (f.tag == 4) {
            out->key = f.value;
        } else if (f.tag == 5) {
            out->has_seqno = true;
            out->seqno = (uint32_t)f.number;
        }
    }
    return said && utf8_valid(out->key);
}

static void fuzz_request(struct arena *a, struct str input)
{
    struct session_request got, want;
    bool plain = plain_request(input, &want);
    int err = session_request_read(a, input, &got);
    if (err == ERR_TOO_LARGE)
        return;
    check(err == 0 || err == ERR_SYNTAX, "an error it cannot have");
    if (err != 0) {
        check(!plain, "a request was refused");
        return;
    }
    if (!plain)
        return; /* protobuf-c takes some odd tags */
    check(got.kind == want.kind && str_eq(got.chunk, want.chunk), "another request");
    check(str_eq(got.key, want.key) && (got.key.p == NULL) == (want.key.p == NULL), "another key");
    check(got.has_seqno == want.has_seqno && got.seqno == want.seqno, "another number");
}

/* ---- chunks ---- */

static bool cut_content(struct str *rest, struct field *f)
{
    while (rest->n > 0) {
        check(cut_field(rest, f), "a chunk is no message");
        if (f->tag != ID_FIELD && f->tag != MAC_FIELD)
            return true;
    }
    return false;
}

/* The same fields but for ids and MACs, in the same order. */
static void check_content(struct str chunk, struct str content)
{
    struct field x, y;
    while (cut_content(&content, &x)) {
        check(cut_content(&chunk, &y), "a field was lost");
        check(x.tag == y.tag && x.wire == y.wire && str_eq(x.bytes, y.bytes),
              "a field was changed");
    }
    check(!cut_content(&chunk, &y), "a field was added");
}

/* One id and one MAC, at the end. */
static void check_ours(struct str chunk, size_t covered)
{
    struct str rest = chunk;
    struct field f;
    size_t ids = 0, macs = 0;
    while (rest.n > 0) {
        size_t at = (size_t)(rest.p - chunk.p);
        check(macs == 0, "something behind the MAC");
        check(cut_field(&rest, &f), "a chunk is no message");
        if (f.tag == ID_FIELD && ++ids)
            check(str_eq(f.value, STR("17")), "another id");
        if (f.tag == MAC_FIELD && ++macs)
            check(at == covered && f.value.n == SESSION_MAC_SIZE, "the MAC is elsewhere");
    }
    check(ids == 1 && macs == 1, "not one id and one MAC");
}

static bool plain_message(struct str rest)
{
    struct field f;
    while (rest.n > 0)
        if (!cut_field(&rest, &f))
            return false;
    return true;
}

static void fuzz_chunk(struct str input, bool is_text)
{
    struct buf first = {0}, second = {0};
    size_t covered, again;
    int err = session_put_chunk(&first, SESSION_AISERVER, input, is_text, EVENT_ID, &covered);
    check(err == 0 || err == ERR_SYNTAX || (err == ERR_TOO_LARGE && !is_text), "a wrong error");
    if (err != 0) {
        check(first.n == 0, "appended in spite of an error");
        check(!is_text || !utf8_valid(input), "a text was refused");
        return;
    }
    check_ours(buf_str(&first), covered);
    if (!is_text && plain_message(input))
        check_content(buf_str(&first), input);
    err = session_put_chunk(&second, SESSION_AISERVER, buf_str(&first), false, EVENT_ID, &again);
    check(err == 0 || err == ERR_TOO_LARGE, "our own chunk was refused");
    check(err != 0 || (again == covered && str_eq(buf_str(&first), buf_str(&second))),
          "our own chunk was changed");
    buf_deinit(&first);
    buf_deinit(&second);
}

/* ---- the rest ---- */

static void fuzz_others(struct arena *a, struct str input)
{
    struct str text = STR_NONE;
    struct session_append append;
    struct session_poll poll;
    if (session_chunk_text(a, SESSION_AISERVER, input, &text) == 0)
        check(utf8_valid(text) && text.n <= input.n, "a text that is none");
    if (session_request_id_read(a, input, &text) == 0)
        check(text.n > 0 && utf8_valid(text), "a request id that is none");
    if (session_append_read(a, input, &append) == 0)
        check(append.request_id.n > 0 && append.seqno >= 0 && append.data.n <= input.n,
              "an append that is none");
    if (session_poll_read(a, input, &poll) == 0)
        check(poll.request_id.n > 0, "a poll that is none");
}

/* What goes out as hex comes back in. The fields of a poll's data and an append's differ. */
static void fuzz_hex(struct arena *a, struct str input)
{
    struct buf poll = {0}, append = {0};
    struct str rest;
    struct field f;
    struct session_append got;
    session_put_poll(&poll, 0, input, false);
    rest = buf_str(&poll);
    if (rest.n > 0) {
        check(cut_field(&rest, &f) && f.tag == 2 && rest.n == 0, "a poll's answer is not data");
        buf_putc(&append, 1 << 3 | 2);
        buf_put(&append, f.bytes);
    }
    buf_put(&append, STR("\x12\x03\x0a\x01r"));
    check(session_append_read(a, buf_str(&append), &got) == 0, "an append was refused");
    check(str_eq(got.data, input) && str_eq(got.request_id, STR("r")), "another append");
    buf_deinit(&poll);
    buf_deinit(&append);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena a = {0};
    struct str input = str_of((const char *)data, n);
    size_t before = __sanitizer_get_current_allocated_bytes();
    fuzz_request(&a, input);
    size_t used = __sanitizer_get_current_allocated_bytes() - before;
    /* The arena's pieces may be half empty. */
    check(used <= 2 * (8 * n + (64 << 10)) + 8192, "over the budget");
    fuzz_others(&a, input);
    fuzz_chunk(input, false);
    fuzz_chunk(input, true);
    fuzz_hex(&a, input);
    arena_deinit(&a);
    return 0;
}
