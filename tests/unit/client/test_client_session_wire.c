// SPDX-License-Identifier: Apache-2.0
/* Messages, envelopes, ends of streams, MACs, and the texts that they are made of. */
#include "client/codec.h"
#include "client/session_mac.h"
#include "client/client_session_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct tm_client *open_client(void)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c;
    o.server = "http://127.0.0.1:1";
    assert_int_equal(tm_open(&o, &c), 0);
    return c;
}

/* Bytes out of hex with spaces in it, of exactly their size, so that reading beyond is noticed. */
static struct str unhex(const char *hex)
{
    char *p = malloc(strlen(hex) + 1);
    size_t n = 0;
    for (; *hex != '\0'; hex++) {
        unsigned byte;
        if (*hex == ' ')
            continue;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        p[n++] = (char)byte;
        hex++;
    }
    return str_of(realloc(p, n > 0 ? n : 1), n);
}

static void assert_hex(struct bytes *b, const char *hex)
{
    struct str right = unhex(hex);
    assert_int_equal(b->n, right.n);
    assert_memory_equal(b->p, right.p, right.n);
    free((char *)right.p);
    b->n = 0;
}

static void test_requests(void **state)
{
    struct tm_client *c = open_client();
    struct bytes b = {0};
    size_t at;
    assert_int_equal(swire_put_abort(c, &b), 0);
    assert_hex(&b, "12 00");
    assert_int_equal(swire_put_close(c, &b), 0);
    assert_hex(&b, "1a 00");
    assert_int_equal(swire_put_chunk(c, &b, STR(""), 0), 0);
    assert_hex(&b, "0a 00 28 00");
    assert_int_equal(swire_put_chunk(c, &b, STR("hi"), 300), 0);
    assert_hex(&b, "0a 02 68 69 28 ac 02");
    assert_int_equal(swire_open_envelope(c, &b, &at), 0);
    assert_int_equal(swire_put_chunk(c, &b, STR(""), 0), 0);
    swire_close_envelope(&b, at);
    assert_hex(&b, "00 00000004 0a002800");
    assert_int_equal(swire_put_request_id(c, &b, STR("rid")), 0);
    assert_hex(&b, "0a 03 726964");
    bytes_free(c, &b);
    tm_close(c);
}

static void test_appends(void **state)
{
    struct tm_client *c = open_client();
    struct bytes b = {0};
    struct str message = unhex("0a002800");
    assert_int_equal(swire_put_append(c, &b, message, true, STR("rid"), 0), 0);
    assert_hex(&b, "0a083061303032383030 12050a03726964");
    assert_int_equal(swire_put_append(c, &b, message, true, STR("rid"), 1), 0);
    assert_hex(&b, "0a083061303032383030 12050a03726964 1801");
    assert_int_equal(swire_put_append(c, &b, message, false, STR("rid"), 2), 0);
    assert_hex(&b, "12050a03726964 1802 2204 0a002800");
    free((char *)message.p);
    bytes_free(c, &b);
    tm_close(c);
}

static struct swire_response response(const char *hex)
{
    struct swire_response r;
    struct str bytes = unhex(hex);
    assert_int_equal(swire_read_response(bytes, &r), 0);
    /* Not looked into below, but for its length. */
    free((char *)bytes.p);
    return r;
}

static void test_responses(void **state)
{
    static const struct {
        const char *hex;
        uint32_t seqno;
    } acks[] = {{"20 00", 0}, {"20 01", 1}, {"20 ac 02", 300}, {"20 ffffffff0f", UINT32_MAX}};
    for (size_t i = 0; i < COUNT(acks); i++) {
        struct swire_response r = response(acks[i].hex);
        assert_int_equal(r.kind, SWIRE_ACK);
        assert_int_equal(r.seqno, acks[i].seqno);
    }
    struct swire_response r = response("1a 02 10 01");
    assert_int_equal(r.kind, SWIRE_WELCOME);
    assert_true(r.degraded);
    r = response("1a 09 0a 07 77656c636f6d65");
    assert_int_equal(r.kind, SWIRE_WELCOME);
    assert_false(r.degraded);
    assert_int_equal(r.message.n, 7);
    assert_int_equal(response("").kind, SWIRE_NOTHING);
    assert_int_equal(response("12 00").kind, SWIRE_NOTHING);     /* field 2 does not exist */
    assert_int_equal(response("20 01 0a 00").kind, SWIRE_CHUNK); /* the last one counts */
    assert_int_equal(response("0a 00 20 01").kind, SWIRE_ACK);
    /* Unknown fields of every type are passed over. */
    assert_int_equal(response("30 05 39 0000000000000000 42 01 61 4d 00000000 20 07").seqno, 7);
}

static void test_malformed(void **state)
{
    static const char *const wrong[] = {
        "20",                        /* nothing behind the tag */
        "20 80",                     /* a number that does not end */
        "20 ffffffffffffffffffff01", /* ... or is too long */
        "20 ffffffffffffffffff02",   /* 65 bits */
        "0a 02 61",                  /* more is promised */
        "0a ffffffffffffffffff01",   /* much more */
        "00 00",                     /* field 0 */
        "08 01",                     /* a chunk that is a number */
        "22 01 61",                  /* an ack that is text */
        "1a 02 0a 05",               /* a welcome that is cut */
        "1a 03 0a 01 ff",            /* a message that is no UTF-8 */
        "0b 0c",                     /* a group */
        "1d 000000",                 /* four bytes of which there are three */
        "f8ffffff7f 01",             /* a field number of 32 bits */
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct str bytes = unhex(wrong[i]);
        struct swire_response r;
        if (swire_read_response(bytes, &r) != TM_E_PROTOCOL)
            fail_msg("%s was read", wrong[i]);
        free((char *)bytes.p);
    }
}

/* Reads one and checks what is in it; moves < 0: it cannot be read. */
static void check_chunk(enum tm_service service, const char *hex, int moves, const char *id,
                        const char *text, const char *thinking, const char *tool)
{
    struct str bytes = unhex(hex);
    struct swire_chunk w;
    int err = swire_read_chunk(service, bytes, &w);
    assert_int_equal(err, moves < 0 ? TM_E_PROTOCOL : 0);
    if (moves >= 0) {
        assert_int_equal(w.moves, moves);
        assert_true(str_eq(w.event_id, str_of_cstr(id)));
        assert_true(str_eq(w.text, str_of_cstr(text)));
        assert_true(str_eq(w.thinking, str_of_cstr(thinking)));
        assert_true(str_eq(w.tool_call_id, str_of_cstr(tool)));
        assert_false(w.has_mac);
    }
    free((char *)bytes.p);
}

static void test_chat_chunks(void **state)
{
    const enum tm_service ai = TM_SERVICE_AISERVER;
    check_chunk(ai, "12070a0548656c6c6f 3a0131", 1, "1", "Hello", "", "");
    check_chunk(ai, "1207ca01040a02686d 3a0132", 1, "2", "", "hm", "");
    check_chunk(ai, "1203ca0100 3a0133", 1, "3", "", "", ""); /* a thinking, though empty */
    check_chunk(ai, "1200 3a0134", 0, "4", "", "", "");
    check_chunk(ai, "12020a00 3a0134", 0, "4", "", "", "");
    check_chunk(ai, "0a041a026331 3a0135", 0, "5", "", "", "c1");  /* a tool call */
    check_chunk(ai, "1a00 3a0136", 0, "6", "", "", "");            /* a summary */
    check_chunk(ai, "12030a0161 2a00 3a0137", 0, "7", "", "", ""); /* the last one counts */
    check_chunk(ai, "0a041a026331 12030a0161 3a0138", 1, "8", "a", "", "");
    check_chunk(ai, "12030a0161", 1, "", "a", "", "");
    check_chunk(ai, "12030a01ff 3a0131", -1, "", "", "", "");   /* no UTF-8 */
    check_chunk(ai, "1003 3a0131", -1, "", "", "", "");         /* a number */
    check_chunk(ai, "12030a0161 3a020d0a", -1, "", "", "", ""); /* an id that splits headers */
    check_chunk(ai, "12030a0161 3a0120", -1, "", "", "", "");
}

static void test_tidemark_chunks(void **state)
{
    struct swire_chunk w;
    char bytes[64];
    memcpy(bytes,
           "\x0a\x02hi\x3a\x01"
           "7\x42\x20",
           9);
    memset(bytes + 9, 'm', 32);
    assert_int_equal(swire_read_chunk(TM_SERVICE_TIDEMARK, str_of(bytes, 41), &w), 0);
    assert_true(w.moves);
    assert_true(w.has_mac);
    assert_true(str_eq(w.payload, STR("hi")));
    assert_true(str_eq(w.event_id, STR("7")));
    assert_int_equal(w.covered.n, 7);
    assert_int_equal(w.mac[31], 'm');
    /* A MAC must be whole, and the last field. */
    memcpy(bytes + 41, "\x3a\x00", 2);
    assert_int_equal(swire_read_chunk(TM_SERVICE_TIDEMARK, str_of(bytes, 43), &w), TM_E_PROTOCOL);
    bytes[8] = 31;
    assert_int_equal(swire_read_chunk(TM_SERVICE_TIDEMARK, str_of(bytes, 40), &w), TM_E_PROTOCOL);
    /* Without one. */
    assert_int_equal(swire_read_chunk(TM_SERVICE_TIDEMARK, str_of(bytes, 7), &w), 0);
    assert_false(w.has_mac);
}

/* Any prefix is either read or refused, and nothing behind it is looked at. */
static void test_cut_anywhere(void **state)
{
    struct str whole = unhex("0a041a026331 12070a0548656c6c6f 1207ca01040a02686d 3a0131 82800120"
                             "0000000000000000000000000000000000000000000000000000000000000000");
    for (size_t n = 0; n <= whole.n; n++) {
        char *part = malloc(n > 0 ? n : 1);
        struct swire_chunk w;
        struct swire_response r;
        memcpy(part, whole.p, n);
        int err = swire_read_chunk(TM_SERVICE_AISERVER, str_of(part, n), &w);
        assert_true(err == 0 || err == TM_E_PROTOCOL);
        assert_int_equal(err == 0 && w.has_mac, n == whole.n);
        (void)swire_read_response(str_of(part, n), &r);
        free(part);
    }
    free((char *)whole.p);
}

static void test_envelopes(void **state)
{
    struct tm_client *c = open_client();
    struct str all = unhex("00 00000004 0a002800 00 00000000 02 00000002 7b7d");
    for (size_t piece = 1; piece <= all.n; piece++) {
        struct swire_frames f = {.max = 4};
        struct str payload;
        bool end = false;
        size_t frames = 0, bytes = 0;
        for (size_t at = 0; at < all.n; at += piece) {
            size_t n = all.n - at < piece ? all.n - at : piece;
            assert_int_equal(swire_frames_put(c, &f, str_of(all.p + at, n)), 0);
            while (swire_frames_next(&f, &payload, &end) == 1) {
                frames++;
                bytes += payload.n;
                assert_int_equal(end, frames == 3);
            }
        }
        assert_int_equal(frames, 3);
        assert_int_equal(bytes, 6);
        assert_true(str_eq(payload, STR("{}")));
        swire_frames_free(c, &f);
    }
    free((char *)all.p);
    tm_close(c);
}

static void test_bad_envelopes(void **state)
{
    static const struct {
        const char *hex;
        int err;
    } wrong[] = {
        {"01 00000001 00", TM_E_PROTOCOL},                                  /* compressed */
        {"04 00000000", TM_E_PROTOCOL},    {"00 00000005", TM_E_TOO_LARGE}, /* before it has come */
        {"02 ffffffff", TM_E_TOO_LARGE},   {"00 00000004 0a0028", 0},
    };
    struct tm_client *c = open_client();
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct swire_frames f = {.max = 4};
        struct str bytes = unhex(wrong[i].hex), payload;
        bool end;
        assert_int_equal(swire_frames_put(c, &f, bytes), 0);
        assert_int_equal(swire_frames_next(&f, &payload, &end), wrong[i].err);
        free((char *)bytes.p);
        swire_frames_free(c, &f);
    }
    tm_close(c);
}

static void test_ends(void **state)
{
    static const struct {
        const char *json;
        int err, failed, final;
        const char *code, *message;
    } rows[] = {
        {"{}", 0, 0, 0, "", ""},
        {" { \"metadata\" : {\"a\":[\"b\",1.5e3,null,{}]} } ", 0, 0, 0, "", ""},
        {"{\"error\":{\"code\":\"aborted\"}}", 0, 1, 0, "aborted", ""},
        {"{\"error\":{\"code\":\"internal\",\"message\":\"a\\u00e9\\ud83d\\ude00\\n\"}}", 0, 1, 0,
         "internal", "a\xc3\xa9\xf0\x9f\x98\x80\n"},
        {"{\"error\":{\"details\":[{\"type\":\"x.Y\",\"value\":\"\"},{\"value\":\"CA\",\"type\":"
         "\"aiserver.v1.ErrorDetails\",\"debug\":{\"error\":[]}}],\"code\":\"canceled\"}}",
         0, 1, 1, "canceled", ""},
        {"{\"error\":{\"details\":[{\"type\":\"tidemark.v1.Gap\"}],\"code\":\"not_found\"}}", 0, 1,
         0, "not_found", ""},
        {"", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{}x", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{\"error\":{\"code\":\"\\ud800\"}}", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{\"error\":{\"code\":\"a\nb\"}}", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{\"error\":{\"code\":3}}", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{\"error\":{\"code\":\"a\" \"message\":\"b\"}}", TM_E_PROTOCOL, 0, 0, "", ""},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", TM_E_PROTOCOL, 0, 0, "", ""},
    };
    struct tm_client *c = open_client();
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct swire_end end = {0};
        int err = swire_read_end(str_of_cstr(rows[i].json), &end);
        if (err != rows[i].err)
            fail_msg("%s: %d", rows[i].json, err);
        assert_int_equal(end.failed, rows[i].failed);
        assert_int_equal(end.final, rows[i].final);
        assert_string_equal(end.code, rows[i].code);
        assert_string_equal(end.message, rows[i].message);
    }
    struct swire_end end;
    assert_int_equal(swire_read_error(STR("{\"code\":\"unavailable\",\"message\":\"soon\"}"), &end),
                     0);
    assert_true(end.failed);
    assert_false(end.final);
    assert_string_equal(end.message, "soon");
    tm_close(c);
}

/* A message is cut between characters. */
static void test_long_message(void **state)
{
    struct tm_client *c = open_client();
    struct bytes json = {0};
    struct swire_end end;
    assert_int_equal(bytes_put(c, &json, STR("{\"error\":{\"message\":\"")), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(bytes_put(c, &json, STR("\xe2\x82\xac")), 0);
    assert_int_equal(bytes_put(c, &json, STR("\"}}")), 0);
    assert_int_equal(swire_read_end(bytes_str(&json), &end), 0);
    assert_int_equal(strlen(end.message), 255);
    assert_int_equal((unsigned char)end.message[254], 0xac);
    bytes_free(c, &json);
    tm_close(c);
}

/* The same as in the server's tests: node's crypto made them. */
static void test_chain_vector(void **state)
{
    uint8_t secret[SECRET_SIZE], key[MAC_SIZE], mac[MAC_SIZE] = {0}, right[MAC_SIZE];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)i;
    assert_int_equal(smac_derive(secret, STR("chat-1"), key), 0);
    assert_int_equal(smac_chain(key, mac, STR("first"), mac), 0);
    assert_int_equal(
        codec_take_hex(STR("f20cce18aa9d3ebb7c47f2b59fc8094d8841e0e68678c7b1b24ceb818bcb0caf"),
                       right, MAC_SIZE),
        0);
    assert_true(smac_same(mac, right));
    assert_int_equal(smac_chain(key, mac, STR("second"), mac), 0);
    assert_false(smac_same(mac, right));
    assert_int_equal(
        codec_take_hex(STR("2dd4f5ccbc2f38bd401e638a8df7b2968ad6d464d097e5f2ca3057cc7b628cea"),
                       right, MAC_SIZE),
        0);
    assert_true(smac_same(mac, right));
}

static void test_base64(void **state)
{
    static const struct {
        const char *bytes, *padded, *url;
    } rows[] = {{"", "", ""},
                {"f", "Zg==", "Zg"},
                {"fo", "Zm8=", "Zm8"},
                {"foo", "Zm9v", "Zm9v"},
                {"foob", "Zm9vYg==", "Zm9vYg"},
                {"\xfb\xff\xbf", "+/+/", "-_-_"}};
    struct tm_client *c = open_client();
    struct bytes b = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct str s = str_of_cstr(rows[i].bytes), padded = str_of_cstr(rows[i].padded);
        char out[16];
        size_t n;
        assert_int_equal(codec_put_base64(c, &b, s), 0);
        assert_string_equal(b.p, rows[i].padded);
        b.n = 0;
        assert_int_equal(codec_put_base64url(c, &b, s), 0);
        assert_string_equal(b.p, rows[i].url);
        b.n = 0;
        assert_int_equal(codec_take_base64(padded, out, &n), 0);
        assert_true(str_eq(str_of(out, n), s));
        assert_int_equal(codec_take_base64url(str_of_cstr(rows[i].url), (uint8_t *)out, s.n), 0);
        assert_memory_equal(out, s.p, s.n);
    }
    static const char *const wrong[] = {
        "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z g=", "====", "Zm9v=", "-_-_", "Zg=g"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char out[16];
        size_t n;
        if (codec_take_base64(str_of_cstr(wrong[i]), out, &n) != TM_E_PROTOCOL)
            fail_msg("%s was read", wrong[i]);
    }
    bytes_free(c, &b);
    tm_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_appends),
        cmocka_unit_test(test_responses),     cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_chat_chunks),   cmocka_unit_test(test_tidemark_chunks),
        cmocka_unit_test(test_cut_anywhere),  cmocka_unit_test(test_envelopes),
        cmocka_unit_test(test_bad_envelopes), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_long_message),  cmocka_unit_test(test_chain_vector),
        cmocka_unit_test(test_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
