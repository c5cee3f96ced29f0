// SPDX-License-Identifier: Apache-2.0
/* What is written is also read by protoc itself (--decode), with the files in proto/ that clients
 * have: another implementation, and the proof that those files say what the server does. Run at the
 * root of the tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "feature/sessions/session_messages.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- help ---- */

/* Hex with spaces, appended as bytes. */
static void put_hex(struct buf *out, const char *hex)
{
    unsigned v;
    int n;
    for (; sscanf(hex, " %2x%n", &v, &n) == 1; hex += n)
        buf_putc(out, (char)v);
}

static void assert_hex(struct str got, const char *hex)
{
    struct buf want = {0};
    put_hex(&want, hex);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
    buf_deinit(&want);
}

static void assert_str(struct str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void put_varint(struct buf *out, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        buf_putc(out, (char)(v | 128));
    buf_putc(out, (char)v);
}

/* One field of bytes. */
static void put_field(struct buf *out, uint32_t tag, struct str value)
{
    put_varint(out, (uint64_t)tag << 3 | 2);
    put_varint(out, value.n);
    buf_put(out, value);
}

/* The bytes as protoc reads them, in its text format. */
static void protoc(const char *file, const char *type, struct str bytes, struct buf *out)
{
    char path[] = "/tmp/tidemark-message-XXXXXX", command[512];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes.p, bytes.n), bytes.n);
    close(fd);
    snprintf(command, sizeof command, "protoc -Iproto --decode=%s %s <%s 2>&1", type, file, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        buf_putc(out, (char)c);
    int status = pclose(f);
    unlink(path);
    if (status != 0)
        fprintf(stderr, "%.*s\n", (int)out->n, out->p);
    assert_int_equal(status, 0);
    buf_putc(out, '\0');
}

static void assert_protoc(const char *file, const char *type, struct str bytes, const char *want)
{
    struct buf text = {0};
    protoc(file, type, bytes, &text);
    assert_string_equal(text.p, want);
    buf_deinit(&text);
}

#define SESSION_PROTO "tidemark/v1/session.proto"
#define CHAT_PROTO    "aiserver/v1/chat.proto"
#define BIDI_PROTO    "aiserver/v1/bidi.proto"
#define CHAT_RESPONSE "aiserver.v1.StreamUnifiedChatResponseWithToolsIdempotent"

/* ---- requests ---- */

static int read_request(struct arena *a, const char *hex, struct session_request *out)
{
    struct buf bytes = {0};
    put_hex(&bytes, hex);
    int err = session_request_read(a, buf_str(&bytes), out);
    buf_deinit(&bytes); /* what was read must not point there */
    return err;
}

static void requests_are_read(void **state)
{
    struct arena a = {0};
    struct session_request q;

    assert_int_equal(read_request(&a, "12 00", &q), 0);
    assert_true(q.kind == SESSION_ABORT && !q.has_seqno && q.key.p == NULL);
    assert_int_equal(read_request(&a, "1a 00", &q), 0);
    assert_true(q.kind == SESSION_CLOSE && !q.has_seqno && q.key.p == NULL);

    assert_int_equal(read_request(&a, "0a 00 28 00", &q), 0);
    assert_true(q.kind == SESSION_CHUNK && q.chunk.n == 0);
    assert_true(q.has_seqno && q.seqno == 0 && q.key.p == NULL);

    assert_int_equal(read_request(&a, "0a 03 610062 22 03 6b 2d 31 28 ac02", &q), 0);
    assert_true(q.kind == SESSION_CHUNK);
    assert_hex(q.chunk, "61 00 62");
    assert_str(q.key, "k-1");
    assert_true(q.has_seqno && q.seqno == 300);

    assert_int_equal(read_request(&a, "28 ffffffff0f 0a 01 78", &q), 0);
    assert_true(q.seqno == UINT32_MAX);
    arena_deinit(&a);
}

static void a_key_is_there_or_not(void **state)
{
    struct arena a = {0};
    struct session_request q;
    assert_int_equal(read_request(&a, "0a 00 22 00", &q), 0);
    assert_true(q.key.p != NULL && q.key.n == 0);
    /* A NUL does not end it. */
    assert_int_equal(read_request(&a, "0a 00 22 03 61 00 62", &q), 0);
    assert_hex(q.key, "61 00 62");
    assert_int_equal(read_request(&a, "0a 00 22 01 ff", &q), ERR_SYNTAX);
    arena_deinit(&a);
}

static void the_last_of_a_kind_counts(void **state)
{
    struct arena a = {0};
    struct session_request q;
    assert_int_equal(read_request(&a, "0a 01 61 0a 01 62 28 01 28 02 22 01 78 22 01 79", &q), 0);
    assert_str(q.chunk, "b");
    assert_str(q.key, "y");
    assert_true(q.seqno == 2);
    assert_int_equal(read_request(&a, "0a 01 61 1a 00", &q), 0);
    assert_true(q.kind == SESSION_CLOSE && q.chunk.n == 0);
    assert_int_equal(read_request(&a, "12 00 1a 00 0a 00", &q), 0);
    assert_true(q.kind == SESSION_CHUNK && q.chunk.n == 0);
    arena_deinit(&a);
}

static void unknown_fields_are_skipped(void **state)
{
    struct arena a = {0};
    struct session_request q;
    assert_int_equal(
        read_request(&a, "30 07 3a 02 7878 41 0102030405060708 4d 01020304 0a 01 61 f87f 01", &q),
        0);
    assert_str(q.chunk, "a");
    assert_int_equal(read_request(&a, "12 03 0a 01 61", &q), 0); /* Empty is not, some day */
    assert_true(q.kind == SESSION_ABORT);
    arena_deinit(&a);
}

static void what_is_no_request_is_refused(void **state)
{
    static const char *const bad[] = {
        "",                                /* says nothing */
        "28 00",                           /* a number, of nothing */
        "22 01 6b",                        /* a key alone */
        "30 01",                           /* something unknown alone */
        "0a",                              /* no length */
        "0a 05 61",                        /* too short */
        "0a ffffffff07",                   /* 2 GiB */
        "0a ffffffffffffffffff01",         /* 16 EiB */
        "0a ffffffffffffffffffff01",       /* no number */
        "08 01",                           /* a number for bytes */
        "0a 00 2a 00",                     /* bytes for a number */
        "0a 00 28 ffffffffffffffffffff01", /* eleven bytes of number */
        "0b 0c",                           /* a group */
        "0e 00",                           /* no wire type */
        "0a 00 ff",                        /* half a tag */
        "0a 00 ffffffffffffffffffffff 01", /* too much of a tag */
        "0a 00 41 01020304",               /* half of 64 bits */
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct arena a = {0};
        struct session_request q = {.seqno = 7777};
        int err = read_request(&a, bad[i], &q);
        if (err != ERR_SYNTAX)
            fprintf(stderr, "%s: %d\n", bad[i], err);
        assert_int_equal(err, ERR_SYNTAX);
        assert_true(q.seqno == 7777);
        arena_deinit(&a);
    }
}

/* Cut anywhere, a message is either refused or one of the shorter ones that it begins with. */
static void a_request_cut_short(void **state)
{
    struct buf whole = {0};
    put_hex(&whole, "0a 03 616263 22 03 6b2d31 28 ac02");
    for (size_t n = 0; n < whole.n; n++) {
        struct arena a = {0};
        struct session_request q;
        char *copy = malloc(n + 1); /* so that reading on is noticed */
        memcpy(copy, whole.p, n);
        copy = realloc(copy, n > 0 ? n : 1);
        int err = session_request_read(&a, str_of(copy, n), &q);
        bool between_fields = n == 5 || n == 10;
        assert_int_equal(err, between_fields ? 0 : ERR_SYNTAX);
        if (err == 0)
            assert_str(q.chunk, "abc");
        free(copy);
        arena_deinit(&a);
    }
    buf_deinit(&whole);
}

/* ---- memory ---- */

/* Bytes of the heap in use. The sanitizer's allocator, where it is linked, has its own count. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
static size_t heap(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What the header promises, and what the arena's pieces cost beside. */
static size_t budget(size_t message_size)
{
    return 8 * message_size + (64 << 10) + (16 << 10);
}

static void many_small_fields(void **state)
{
    static const char *const fields[] = {"0a 00", "12 00", "28 00", "32 00", "30 00", "f8 7f 00"};
    for (size_t i = 0; i < COUNT(fields); i++) {
        struct buf bytes = {0};
        for (int k = 0; k < 100000; k++)
            put_hex(&bytes, fields[i]);
        put_hex(&bytes, "0a 00");
        struct arena a = {0};
        struct session_request q;
        size_t before = heap();
        assert_int_equal(session_request_read(&a, buf_str(&bytes), &q), ERR_TOO_LARGE);
        assert_true(heap() > before && heap() - before <= budget(bytes.n));
        arena_deinit(&a);
        buf_deinit(&bytes);
    }
}

/* All conversation messages but the last, and all their fields, are tiny. */
static void many_small_messages(void **state)
{
    struct buf request = {0}, chunk = {0};
    for (int k = 0; k < 100000; k++)
        put_hex(&request, "0a 00");
    put_field(&chunk, 1, buf_str(&request));
    struct arena a = {0};
    struct str text;
    size_t before = heap();
    assert_int_equal(session_chunk_text(&a, SESSION_AISERVER, buf_str(&chunk), &text),
                     ERR_TOO_LARGE);
    assert_true(heap() > before && heap() - before <= budget(chunk.n));
    arena_deinit(&a);

    struct buf out = {0};
    size_t covered = 7777;
    assert_int_equal(
        session_put_chunk(&out, SESSION_AISERVER, buf_str(&request), false, 1, &covered),
        ERR_TOO_LARGE);
    assert_true(out.n == 0 && covered == 7777);
    buf_deinit(&out);
    buf_deinit(&request);
    buf_deinit(&chunk);
}

/* What is long but sane passes: 20,000 turns of conversation, and a chunk of 8 MiB. */
static void long_conversations_pass(void **state)
{
    struct buf message = {0}, request = {0}, chunk = {0};
    put_field(&message, 1, STR("Yes, go on."));
    put_hex(&message, "10 01");
    put_field(&message, 13, STR("0b4b6d6e-52a5-4c1e-b5a5-1b0e7d1d3a41"));
    for (int k = 0; k < 20000; k++)
        put_field(&request, 1, buf_str(&message));
    for (int k = 0; k < 93; k++)
        put_hex(&request, "b0 01 01");
    put_field(&chunk, 1, buf_str(&request));
    struct arena a = {0};
    struct str text;
    assert_int_equal(session_chunk_text(&a, SESSION_AISERVER, buf_str(&chunk), &text), 0);
    assert_str(text, "Yes, go on.");
    arena_deinit(&a);

    size_t n = 8 << 20;
    struct buf big = {0};
    chunk.n = 0;
    memset(buf_reserve(&big, n), 'x', n);
    big.n = n;
    put_field(&chunk, 1, buf_str(&big));
    struct session_request q;
    assert_int_equal(session_request_read(&a, buf_str(&chunk), &q), 0);
    assert_int_equal(q.chunk.n, n);
    arena_deinit(&a);
    buf_deinit(&big);
    buf_deinit(&message);
    buf_deinit(&request);
    buf_deinit(&chunk);
}

/* Nothing is followed deeper than it has to be. */
static void deep_nesting_is_only_bytes(void **state)
{
    struct buf inner = {0}, outer = {0};
    for (int k = 0; k < 2000; k++) {
        outer.n = 0;
        put_field(&outer, k < 1997 ? 9 : 1, buf_str(&inner));
        struct buf swap = inner;
        inner = outer;
        outer = swap;
    }
    struct arena a = {0};
    struct session_request q;
    struct str text;
    assert_int_equal(session_request_read(&a, buf_str(&inner), &q), 0);
    assert_true(q.kind == SESSION_CHUNK && q.chunk.n < inner.n);
    assert_int_equal(session_chunk_text(&a, SESSION_AISERVER, q.chunk, &text), 0);
    assert_int_equal(text.n, 0);
    outer.n = 0;
    size_t covered;
    assert_int_equal(
        session_put_chunk(&outer, SESSION_AISERVER, buf_str(&inner), false, 1, &covered), 0);
    assert_memory_equal(outer.p, inner.p, inner.n);
    arena_deinit(&a);
    buf_deinit(&inner);
    buf_deinit(&outer);
}

/* ---- the text of a chunk ---- */

static int chunk_text(struct arena *a, const char *hex, struct str *out)
{
    struct buf chunk = {0};
    put_hex(&chunk, hex);
    int err = session_chunk_text(a, SESSION_AISERVER, buf_str(&chunk), out);
    buf_deinit(&chunk);
    return err;
}

static void the_last_conversation_message_is_the_text(void **state)
{
    struct arena a = {0};
    struct str text;
    assert_int_equal(chunk_text(&a, "0a 0e 0a 04 0a 02 6869 0a 06 0a 02 796f 10 01", &text), 0);
    assert_str(text, "yo");
    /* Fields of other kinds, between and behind. */
    assert_int_equal(chunk_text(&a, "0a 0d 0a 04 0a 02 6869 2a 02 7878 b0 01 01", &text), 0);
    assert_str(text, "hi");
    assert_int_equal(chunk_text(&a, "0a 07 0a 05 0a 03 61 00 62", &text), 0);
    assert_hex(text, "61 00 62");
    arena_deinit(&a);
}

static void a_chunk_without_text(void **state)
{
    struct arena a = {0};
    static const char *const none[] = {"", "0a 00", "12 04 9a 02 01 78", "0a 02 0a 00",
                                       "0a 04 0a 02 10 01"};
    for (size_t i = 0; i < COUNT(none); i++) {
        struct str text = STR("before");
        assert_int_equal(chunk_text(&a, none[i], &text), 0);
        assert_int_equal(text.n, 0);
    }
    static const char *const bad[] = {"0a", "0a 02 0a 05", "0a 04 0a 02 0a 05", "08 01",
                                      "0a 05 0a 03 0a 01 ff"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct str text = STR("before");
        assert_int_equal(chunk_text(&a, bad[i], &text), ERR_SYNTAX);
        assert_str(text, "before");
    }
    arena_deinit(&a);
}

static void a_chunk_of_tidemark_is_its_text(void **state)
{
    struct arena a = {0};
    struct str text;
    assert_int_equal(session_chunk_text(&a, SESSION_TIDEMARK, STR("\xff\x00z"), &text), 0);
    assert_hex(text, "ff 00 7a");
    arena_deinit(&a);
}

/* ---- responses ---- */

static void welcomes_and_acks(void **state)
{
    struct buf out = {0};
    session_put_welcome(&out, STR_NONE, true);
    assert_hex(buf_str(&out), "1a 02 10 01");
    assert_protoc(SESSION_PROTO, "tidemark.v1.StreamResponse", buf_str(&out),
                  "welcome_message {\n  is_degraded_mode: true\n}\n");
    out.n = 0;
    session_put_welcome(&out, STR("welcome"), false);
    assert_hex(buf_str(&out), "1a 09 0a 07 77656c636f6d65");
    assert_protoc(CHAT_PROTO, CHAT_RESPONSE, buf_str(&out),
                  "welcome_message {\n  message: \"welcome\"\n}\n");

    static const struct {
        uint32_t seqno;
        const char *hex, *text;
    } acks[] = {
        {0, "20 00", "seqno_ack: 0\n"},
        {1, "20 01", "seqno_ack: 1\n"},
        {300, "20 ac 02", "seqno_ack: 300\n"},
        {UINT32_MAX, "20 ffffffff0f", "seqno_ack: 4294967295\n"},
    };
    for (size_t i = 0; i < COUNT(acks); i++) {
        out.n = 0;
        session_put_ack(&out, acks[i].seqno);
        assert_hex(buf_str(&out), acks[i].hex);
        assert_protoc(SESSION_PROTO, "tidemark.v1.StreamResponse", buf_str(&out), acks[i].text);
        assert_protoc(CHAT_PROTO, CHAT_RESPONSE, buf_str(&out), acks[i].text);
    }
    buf_deinit(&out);
}

/* The chunk of such a content, with a MAC of which each byte is 0x4d ('M'). */
static struct str make_chunk(struct buf *out, enum session_service service, struct str content,
                             bool is_text, uint64_t id)
{
    size_t covered, mac_field = service == SESSION_AISERVER ? 36 : 34;
    uint8_t mac[SESSION_MAC_SIZE], got[SESSION_MAC_SIZE];
    out->n = 0;
    buf_put(out, STR("before")); /* which must not matter */
    assert_int_equal(session_put_chunk(out, service, content, is_text, id, &covered), 0);
    struct str chunk = str_skip(buf_str(out), 6);
    assert_int_equal(chunk.n, covered + mac_field);
    static const uint8_t zeros[SESSION_MAC_SIZE];
    assert_memory_equal(chunk.p + chunk.n - sizeof zeros, zeros, sizeof zeros);
    memset(mac, 'M', sizeof mac);
    session_set_mac(out, mac);
    assert_int_equal(session_get_mac(chunk, got), 0);
    assert_memory_equal(got, mac, sizeof mac);
    return chunk;
}

#define MAC_TEXT "\"MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM\""

static void chunks_of_tidemark(void **state)
{
    struct buf out = {0}, event = {0};
    for (int is_text = 0; is_text < 2; is_text++) {
        struct str chunk = make_chunk(&out, SESSION_TIDEMARK, STR("Hello"), is_text, 1);
        assert_memory_equal(chunk.p, "\x0a\x05Hello\x3a\x01\x31\x42\x20M", 13);
        event.n = 0;
        session_put_event(&event, chunk);
        assert_protoc(SESSION_PROTO, "tidemark.v1.StreamResponse", buf_str(&event),
                      "server_chunk {\n  payload: \"Hello\"\n  event_id: \"1\"\n  mac: " MAC_TEXT
                      "\n}\n");
    }
    assert_protoc(SESSION_PROTO, "tidemark.v1.ServerChunk",
                  make_chunk(&out, SESSION_TIDEMARK, STR("\xff\x00\xfe"), true, UINT64_MAX),
                  "payload: \"\\377\\000\\376\"\nevent_id: \"18446744073709551615\"\nmac: " MAC_TEXT
                  "\n");
    assert_protoc(SESSION_PROTO, "tidemark.v1.ServerChunk",
                  make_chunk(&out, SESSION_TIDEMARK, STR_NONE, false, 2),
                  "event_id: \"2\"\nmac: " MAC_TEXT "\n");
    buf_deinit(&out);
    buf_deinit(&event);
}

static void texts_of_aiserver(void **state)
{
    struct buf out = {0}, event = {0};
    struct str chunk = make_chunk(&out, SESSION_AISERVER, STR("Hello"), true, 1);
    assert_hex(str_of(chunk.p, chunk.n - SESSION_MAC_SIZE), "12070a0548656c6c6f 3a0131 828001 20");
    session_put_event(&event, chunk);
    assert_protoc(CHAT_PROTO, CHAT_RESPONSE, buf_str(&event),
                  "server_chunk {\n  stream_unified_chat_response {\n    text: \"Hello\"\n  }\n"
                  "  event_id: \"1\"\n  tidemark_mac: " MAC_TEXT "\n}\n");
    assert_protoc(CHAT_PROTO, "aiserver.v1.StreamUnifiedChatResponseWithTools",
                  make_chunk(&out, SESSION_AISERVER, STR_NONE, true, 10),
                  "stream_unified_chat_response {\n}\nevent_id: \"10\"\ntidemark_mac: " MAC_TEXT
                  "\n");
    out.n = 0;
    size_t covered = 7777;
    assert_int_equal(session_put_chunk(&out, SESSION_AISERVER, STR("\xc3"), true, 1, &covered),
                     ERR_SYNTAX);
    assert_true(out.n == 0 && covered == 7777);
    buf_deinit(&out);
    buf_deinit(&event);
}

static void messages_of_aiserver(void **state)
{
    static const struct {
        const char *content, *covered, *text;
    } cases[] = {
        {"1207ca01040a02686d", "1207ca01040a02686d 3a0137",
         "stream_unified_chat_response {\n  thinking {\n    text: \"hm\"\n  }\n}\n"},
        {"12070a0548656c6c6f", "12070a0548656c6c6f 3a0137",
         "stream_unified_chat_response {\n  text: \"Hello\"\n}\n"},
        {"", "3a0137", ""},
        {"2a 00", "2a 00 3a0137", "stream_start {\n}\n"},
        /* Ids and MACs of others, whether in front, between, behind, or more than one. */
        {"3a023939 0a051a03743131 3a023938 8280010178", "0a051a03743131 3a0137",
         "client_side_tool_v2_call {\n  tool_call_id: \"t11\"\n}\n"},
        {"828001 00 8280010178 3a00 2a 00 8280010179", "2a 00 3a0137", "stream_start {\n}\n"},
        /* Fields that we do not know stay, in their order. */
        {"c03e05 2a 00 c03e06 3a00", "c03e05 2a 00 c03e06 3a0137",
         "stream_start {\n}\n1000: 5\n1000: 6\n"},
    };
    struct buf out = {0}, content = {0}, want = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        content.n = want.n = 0;
        put_hex(&content, cases[i].content);
        struct str chunk = make_chunk(&out, SESSION_AISERVER, buf_str(&content), false, 7);
        assert_hex(str_of(chunk.p, chunk.n - 36), cases[i].covered);
        /* protoc prints unknown fields last. */
        const char *unknown = strstr(cases[i].text, "1000:");
        size_t known = unknown ? (size_t)(unknown - cases[i].text) : strlen(cases[i].text);
        buf_printf(&want, "%.*sevent_id: \"7\"\ntidemark_mac: " MAC_TEXT "\n%s%c", (int)known,
                   cases[i].text, unknown ? unknown : "", '\0');
        assert_protoc(CHAT_PROTO, "aiserver.v1.StreamUnifiedChatResponseWithTools", chunk, want.p);
    }
    buf_deinit(&out);
    buf_deinit(&content);
    buf_deinit(&want);
}

static void what_is_no_message_of_aiserver(void **state)
{
    static const char *const bad[] = {
        "12",             /* no length */
        "12 05 0a",       /* too short */
        "10 01",          /* a number where a message must be */
        "12 02 0a 05",    /* a response that is none */
        "12 03 0a 01 ff", /* its text is none */
        "12 02 08 01",    /* its text is a number */
        "38 01",          /* an event id that is a number */
        "00 01",
        "02 00",          /* no field has the number 0 */
        "e0ffffff27 01",  /* nor one of 2^29 and more */
        "48 65 6c 6c 6f", /* "Hello" */
        "13 14",          /* a group */
    };
    struct buf content = {0}, out = {0};
    for (size_t i = 0; i < COUNT(bad); i++) {
        content.n = 0;
        put_hex(&content, bad[i]);
        size_t covered = 7777;
        int err = session_put_chunk(&out, SESSION_AISERVER, buf_str(&content), false, 1, &covered);
        if (err != ERR_SYNTAX)
            fprintf(stderr, "%s: %d\n", bad[i], err);
        assert_int_equal(err, ERR_SYNTAX);
        assert_true(out.n == 0 && covered == 7777);
    }
    buf_deinit(&content);
    buf_deinit(&out);
}

/* The two vectors that also stand for what other servers send: without a MAC. */
static void events_are_wrapped_as_they_are(void **state)
{
    struct buf chunk = {0}, out = {0};
    put_hex(&chunk, "12070a0548656c6c6f 3a0131");
    session_put_event(&out, buf_str(&chunk));
    assert_hex(buf_str(&out), "0a0c 12070a0548656c6c6f 3a0131");
    chunk.n = out.n = 0;
    put_hex(&chunk, "1207ca01040a02686d 3a0132");
    session_put_event(&out, buf_str(&chunk));
    assert_hex(buf_str(&out), "0a0c 1207ca01040a02686d 3a0132");
    buf_deinit(&chunk);
    buf_deinit(&out);
}

static void a_chunk_too_short_for_a_mac(void **state)
{
    uint8_t mac[SESSION_MAC_SIZE] = {7};
    char bytes[34] = {0x42, 0x20};
    assert_int_equal(session_get_mac(str_of(bytes, 33), mac), ERR_CORRUPT);
    assert_int_equal(mac[0], 7);
    assert_int_equal(session_get_mac(str_of(bytes, 34), mac), 0);
    assert_int_equal(session_get_mac(STR_NONE, mac), ERR_CORRUPT);
}

/* ---- beside HTTP/2 ---- */

static int read_append(struct arena *a, const char *hex, struct session_append *out)
{
    struct buf bytes = {0};
    put_hex(&bytes, hex);
    int err = session_append_read(a, buf_str(&bytes), out);
    buf_deinit(&bytes);
    return err;
}

static void appends_are_read(void **state)
{
    struct arena a = {0};
    struct session_append q;
    assert_int_equal(read_append(&a, "0a083061303032383030 12050a03726964", &q), 0);
    assert_str(q.request_id, "rid");
    assert_hex(q.data, "0a 00 28 00");
    assert_true(q.seqno == 0);
    assert_int_equal(read_append(&a, "0a083041303032383030 12050a03726964 1801", &q), 0);
    assert_hex(q.data, "0a 00 28 00"); /* upper case */
    assert_true(q.seqno == 1);
    assert_int_equal(read_append(&a, "22 04 0a002800 12050a03726964 18 ffffffffffffffff7f", &q), 0);
    assert_hex(q.data, "0a 00 28 00");
    assert_true(q.seqno == INT64_MAX);
    assert_int_equal(read_append(&a, "12050a03726964", &q), 0);
    assert_int_equal(q.data.n, 0);

    static const char *const bad[] = {
        "0a083061303032383030", /* no request id */
        "0a083061303032383030 1200",
        "0a083061303032383030 12020a00",          /* an empty one */
        "12 03 0a 01 ff",                         /* one that is no text */
        "12 02 0a 05",                            /* none at all */
        "0a 03 306130 12050a03726964",            /* half a byte */
        "0a 02 3067 12050a03726964",              /* no hex */
        "0a 02 3020 12050a03726964",              /* a space */
        "0a 02 3061 22 01 0a 12050a03726964",     /* both */
        "12050a03726964 18 ffffffffffffffffff01", /* -1 */
        "12050a03726964 1a 00",                   /* a seqno that is no number */
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        q.seqno = 7777;
        int err = read_append(&a, bad[i], &q);
        if (err != ERR_SYNTAX)
            fprintf(stderr, "%s: %d\n", bad[i], err);
        assert_int_equal(err, ERR_SYNTAX);
        assert_true(q.seqno == 7777);
    }
    arena_deinit(&a);
}

static void request_ids_are_read(void **state)
{
    struct arena a = {0};
    struct str id = STR("before");
    assert_int_equal(session_request_id_read(&a, STR("\x0a\x03rid"), &id), 0);
    assert_str(id, "rid");
    assert_int_equal(session_request_id_read(&a, STR("\x0a\x03r\0d"), &id), 0);
    assert_int_equal(id.n, 3);
    assert_int_equal(session_request_id_read(&a, STR(""), &id), ERR_SYNTAX);
    assert_int_equal(session_request_id_read(&a, STR("\x0a\x00"), &id), ERR_SYNTAX);
    assert_int_equal(session_request_id_read(&a, STR("\x0a\x03ri"), &id), ERR_SYNTAX);
    assert_int_equal(session_request_id_read(&a, STR("\x0a\x01\xc3"), &id), ERR_SYNTAX);
    assert_int_equal(id.n, 3);
    arena_deinit(&a);
}

static void polls(void **state)
{
    struct arena a = {0};
    struct session_poll q;
    assert_int_equal(session_poll_read(&a, STR("\x0a\x05\x0a\x03rid\x10\x01"), &q), 0);
    assert_str(q.request_id, "rid");
    assert_true(q.start);
    assert_int_equal(session_poll_read(&a, STR("\x0a\x05\x0a\x03rid"), &q), 0);
    assert_true(!q.start);
    assert_int_equal(session_poll_read(&a, STR("\x10\x01"), &q), ERR_SYNTAX);
    assert_int_equal(session_poll_read(&a, STR("\x0a\x05\x0a\x03rid\x10"), &q), ERR_SYNTAX);
    arena_deinit(&a);

    struct buf out = {0};
    session_put_poll(&out, 3, STR_NONE, true);
    assert_hex(buf_str(&out), "0803 1801");
    assert_protoc(BIDI_PROTO, "aiserver.v1.BidiPollResponse", buf_str(&out),
                  "seqno: 3\neof: true\n");
    out.n = 0;
    session_put_poll(&out, 0, STR("\x20\xac\x02"), false);
    assert_protoc(SESSION_PROTO, "tidemark.v1.PollResponse", buf_str(&out), "data: \"20ac02\"\n");
    buf_deinit(&out);
}

/* ---- errors ---- */

static void error_details(void **state)
{
    struct buf out = {0};
    session_put_error_details(&out,
                              &(struct session_error_details){
                                  .code = SESSION_ERROR_PROVIDER_ERROR,
                                  .title = STR("No answer"),
                                  .detail = STR("The backend said \xe2\x80\x9cno\xe2\x80\x9d."),
                              });
    assert_protoc(CHAT_PROTO, SESSION_ERROR_DETAILS_TYPE, buf_str(&out),
                  "error: ERROR_PROVIDER_ERROR\ndetails {\n  title: \"No answer\"\n  detail: \"The "
                  "backend said \\342\\200\\234no\\342\\200\\235.\"\n  is_retryable: false\n}\n");
    out.n = 0;
    session_put_error_details(&out, &(struct session_error_details){.is_retryable = true});
    assert_protoc(CHAT_PROTO, SESSION_ERROR_DETAILS_TYPE, buf_str(&out),
                  "details {\n  is_retryable: true\n}\n");

    static const struct {
        enum session_error_code code;
        const char *name;
    } codes[] = {
        {SESSION_ERROR_NOT_HIGH_ENOUGH_PERMISSIONS, "NOT_HIGH_ENOUGH_PERMISSIONS"},
        {SESSION_ERROR_USER_ABORTED_REQUEST, "USER_ABORTED_REQUEST"},
        {SESSION_ERROR_TIMEOUT, "TIMEOUT"},
        {SESSION_ERROR_UNAUTHORIZED, "UNAUTHORIZED"},
        {SESSION_ERROR_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    };
    for (size_t i = 0; i < COUNT(codes); i++) {
        char want[100];
        out.n = 0;
        session_put_error_details(&out, &(struct session_error_details){.code = codes[i].code});
        snprintf(want, sizeof want, "error: ERROR_%s\ndetails {\n  is_retryable: false\n}\n",
                 codes[i].name);
        assert_protoc(CHAT_PROTO, SESSION_ERROR_DETAILS_TYPE, buf_str(&out), want);
    }
    buf_deinit(&out);
}

static void gaps(void **state)
{
    struct buf out = {0};
    session_put_gap(&out, STR("12"), STR("40"), STR("trimmed"));
    assert_protoc(SESSION_PROTO, SESSION_GAP_TYPE, buf_str(&out),
                  "requested: \"12\"\nearliest: \"40\"\nreason: \"trimmed\"\n");
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read),
        cmocka_unit_test(a_key_is_there_or_not),
        cmocka_unit_test(the_last_of_a_kind_counts),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(a_request_cut_short),
        cmocka_unit_test(many_small_fields),
        cmocka_unit_test(many_small_messages),
        cmocka_unit_test(long_conversations_pass),
        cmocka_unit_test(deep_nesting_is_only_bytes),
        cmocka_unit_test(the_last_conversation_message_is_the_text),
        cmocka_unit_test(a_chunk_without_text),
        cmocka_unit_test(a_chunk_of_tidemark_is_its_text),
        cmocka_unit_test(welcomes_and_acks),
        cmocka_unit_test(chunks_of_tidemark),
        cmocka_unit_test(texts_of_aiserver),
        cmocka_unit_test(messages_of_aiserver),
        cmocka_unit_test(what_is_no_message_of_aiserver),
        cmocka_unit_test(events_are_wrapped_as_they_are),
        cmocka_unit_test(a_chunk_too_short_for_a_mac),
        cmocka_unit_test(appends_are_read),
        cmocka_unit_test(request_ids_are_read),
        cmocka_unit_test(polls),
        cmocka_unit_test(error_details),
        cmocka_unit_test(gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
