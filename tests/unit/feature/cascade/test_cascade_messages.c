// SPDX-License-Identifier: Apache-2.0
/* Bytes are given as they stand on the wire, written down by hand and not by protobuf-c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "feature/cascade/cascade_messages.h"
#include "feature/cascade/cascade_transcript.h"
#include "http/rpc_frame.h"

#include <stdio.h>
#include <stdlib.h>

#define SESSION_ID "00000000-0000-4000-8000-000000000001"
#define TRIGGER_ID "00000000-0000-4000-8000-000000000002"
#define OPUS       "claude-opus-4-7-medium"
#define OPUS_HEX   "636c617564652d6f7075732d342d372d6d656469756d"

static const char metadata_hex[] =
    "0a0877696e64737572661205322e302e301a0a736b2d77732d30312d782202656e2a056c696e75783a05322e302e30"
    "48fba889fba333522430303030303030302d303030302d343030302d383030302d303030303030303030303031"
    "620877696e647375726682010b0880f997c80610c0a9d33a8a0100c20100ca012430303030303030302d303030302d"
    "343030302d383030302d303030303030303030303032d20105556e736574e2010877696e6473757266";
#define METADATA_SIZE 180

static struct cascade_metadata sample(void)
{
    return (struct cascade_metadata){
        .version = STR("2.0.0"),
        .api_key = STR("sk-ws-01-x"),
        .os = STR("linux"),
        .request_id = 1762000000123,
        .session_id = STR(SESSION_ID),
        .trigger_id = STR(TRIGGER_ID),
        .wall_ms = 1762000000123,
    };
}

/* ---- help ---- */

static void put_hex(struct buf *out, const char *hex)
{
    unsigned v;
    int n;
    for (; sscanf(hex, " %2x%n", &v, &n) == 1; hex += n)
        buf_putc(out, (char)v);
}

/* And empties it. */
static void assert_hex(struct buf *got, const char *hex)
{
    struct buf want = {0};
    put_hex(&want, hex);
    assert_int_equal(got->n, want.n);
    assert_memory_equal(got->p, want.p, want.n);
    buf_deinit(&want);
    buf_deinit(got);
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

/* Where the bytes are in the message; NULL: they are not. */
static const char *find_hex(const struct buf *in, const char *hex)
{
    struct buf bytes = {0};
    put_hex(&bytes, hex);
    const char *at = memmem(in->p, in->n, bytes.p, bytes.n);
    buf_deinit(&bytes);
    return at;
}

/* ---- requests ---- */

static void metadata_is_what_a_server_insists_on(void **state)
{
    struct cascade_metadata m = sample();
    struct buf got = {0}, want = {0};
    put_hex(&want, metadata_hex);
    assert_int_equal(want.n, METADATA_SIZE);
    cascade_put_initialize(&got, &m);
    assert_int_equal(got.n, 3 + METADATA_SIZE);
    assert_memory_equal(got.p, "\x0a\xb4\x01", 3);
    assert_memory_equal(got.p + 3, want.p, METADATA_SIZE);
    buf_deinit(&want);

    struct buf status = {0};
    cascade_put_user_status(&status, &m);
    assert_int_equal(status.n, got.n);
    assert_memory_equal(status.p, got.p, got.n);
    buf_deinit(&status);
    buf_deinit(&got);
}

/* Tags of fields from 16 on have two bytes; 17 and 24 are there though they are empty. */
static void fields_have_tags_of_two_bytes(void **state)
{
    static const char *const fields[] = {
        "8201 0b 0880f997c806 10c0a9d33a", /* 16 */
        "8a01 00",                         /* 17 */
        "c201 00",                         /* 24 */
        "ca01 24",                         /* 25 */
        "d201 05 556e736574",              /* 26 */
        "e201 08 77696e6473757266",        /* 28 */
        "48 fba889fba333",                 /* 9, an integer of 64 bits */
    };
    struct cascade_metadata m = sample();
    struct buf got = {0};
    cascade_put_initialize(&got, &m);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_non_null(find_hex(&got, fields[i]));
    buf_deinit(&got);
}

static void times_are_seconds_and_nanoseconds(void **state)
{
    static const struct {
        int64_t wall_ms;
        const char *hex;
    } cases[] = {
        {1762000000123, "8201 0b 0880f997c806 10c0a9d33a 8a01"},
        {1762000000000, "8201 06 0880f997c806 8a01"}, /* no nanos */
        {1762000000999, "8201 0c 0880f997c806 10c08faedc03 8a01"},
        {0, "8201 02 0800 8a01"},
        {-1, "8201 11 08ffffffffffffffffff01 10c08faedc03 8a01"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cascade_metadata m = sample();
        struct buf got = {0};
        m.wall_ms = cases[i].wall_ms;
        cascade_put_initialize(&got, &m);
        assert_non_null(find_hex(&got, cases[i].hex));
        buf_deinit(&got);
    }
}

static void a_cascade_is_started_on_its_own(void **state)
{
    struct buf got = {0};
    cascade_put_start(&got, NULL);
    assert_hex(&got, "0a00 2001 2804");
    struct cascade_metadata m = sample();
    cascade_put_start(&got, &m);
    assert_int_equal(got.n, 3 + METADATA_SIZE + 4);
    assert_memory_equal(got.p + 3 + METADATA_SIZE, "\x20\x01\x28\x04", 4);
    buf_deinit(&got);
}

static void a_message_names_its_model(void **state)
{
    struct buf got = {0};
    cascade_put_send(&got, STR("CID"), STR("hi"), STR(OPUS), NULL);
    assert_non_null(find_hex(&got, "1200 9a0216" OPUS_HEX));
    assert_hex(&got, "0a03434944 12040a026869 1a00 2a1d0a1b12009a0216" OPUS_HEX "4000");
    /* Texts that are empty are there all the same. */
    cascade_put_send(&got, STR_NONE, STR_NONE, STR_NONE, NULL);
    assert_hex(&got, "0a00 1202 0a00 1a00 2a07 0a05 1200 9a0200 4000");
}

static void the_rest_is_an_id(void **state)
{
    struct buf got = {0};
    cascade_put_transcript(&got, STR("CID"));
    assert_hex(&got, "0a03434944");
    struct buf framed = {0};
    cascade_put_archive(&got, STR("CID"));
    rpc_envelope(buf_reserve(&framed, RPC_ENVELOPE), 0, got.n);
    framed.n = RPC_ENVELOPE;
    buf_put(&framed, buf_str(&got));
    assert_hex(&framed, "00 00000005 0a03434944");
    buf_deinit(&got);
}

static void messages_are_appended(void **state)
{
    struct buf got = {0};
    buf_put(&got, STR("\x01\x02"));
    cascade_put_archive(&got, STR("C"));
    assert_hex(&got, "0102 0a0143");
}

static void request_ids_grow_one_by_one_from_the_clock(void **state)
{
    uint64_t last = 0;
    assert_int_equal(cascade_next_request_id(&last, 1762000000123), 1762000000123);
    assert_int_equal(cascade_next_request_id(&last, 1762000000999), 1762000000124);
    assert_int_equal(cascade_next_request_id(&last, 5), 1762000000125); /* the clock was set back */
    last = 0;
    assert_int_equal(cascade_next_request_id(&last, -7), 1);
}

/* ---- answers ---- */

static int read_started(const char *hex, struct buf *id)
{
    struct arena a = {0};
    struct buf bytes = {0};
    struct str got = STR("untouched");
    put_hex(&bytes, hex);
    int err = cascade_started_read(&a, buf_str(&bytes), &got);
    buf_deinit(&bytes); /* what was read must not point there */
    id->n = 0;
    buf_put(id, got);
    arena_deinit(&a);
    return err;
}

static void a_start_has_an_id(void **state)
{
    struct buf id = {0};
    assert_int_equal(read_started("0a03434944", &id), 0);
    assert_str(buf_str(&id), "CID");
    /* Unknown fields of all kinds, of which 1 in an 8-byte field. */
    assert_int_equal(read_started("1001 1d00000000 8a0103616263 0a03434944", &id), 0);
    assert_str(buf_str(&id), "CID");
    assert_int_equal(read_started("0a0141 0a0142", &id), 0);
    assert_str(buf_str(&id), "B"); /* the last one counts */

    assert_int_equal(read_started("", &id), ERR_EMPTY);
    assert_int_equal(read_started("0a00", &id), ERR_EMPTY);
    assert_int_equal(read_started("0a0443", &id), ERR_SYNTAX); /* cut off */
    assert_int_equal(read_started("0a", &id), ERR_SYNTAX);
    assert_int_equal(read_started("0a03432f44", &id), ERR_SYNTAX); /* C/D */
    assert_int_equal(read_started("0a022e2e", &id), ERR_SYNTAX);   /* .. */
    assert_int_equal(read_started("0a03430044", &id), ERR_SYNTAX); /* with a NUL */
    assert_int_equal(read_started("0a03432044", &id), ERR_SYNTAX);
    assert_str(buf_str(&id), "untouched");
    buf_deinit(&id);
}

static void an_id_has_an_end(void **state)
{
    char text[CASCADE_ID_MAX + 1];
    memset(text, 'a', sizeof text);
    for (size_t n = CASCADE_ID_MAX; n <= CASCADE_ID_MAX + 1; n++) {
        struct arena a = {0};
        struct buf bytes = {0};
        struct str id;
        buf_putc(&bytes, 0x0a);
        put_varint(&bytes, n);
        buf_put(&bytes, str_of(text, n));
        assert_int_equal(cascade_started_read(&a, buf_str(&bytes), &id),
                         n <= CASCADE_ID_MAX ? 0 : ERR_SYNTAX);
        buf_deinit(&bytes);
        arena_deinit(&a);
    }
}

static void a_transcript_is_read(void **state)
{
    struct arena a = {0};
    struct buf bytes = {0};
    struct cascade_transcript_answer t;
    put_hex(&bytes, "0a1d3d3d3d204d4553534147452030202d2055736572203d3d3d0a68690a0a1001");
    assert_int_equal(cascade_transcript_answer_read(&a, buf_str(&bytes), &t), 0);
    buf_deinit(&bytes);
    assert_str(t.text, "=== MESSAGE 0 - User ===\nhi\n\n");
    assert_int_equal(t.num_total_steps, 1);

    assert_int_equal(cascade_transcript_answer_read(&a, STR_NONE, &t), 0);
    assert_true(t.text.n == 0 && t.num_total_steps == 0);
    /* A NUL is a character like others. */
    assert_int_equal(cascade_transcript_answer_read(&a, STR("\x0a\x03x\0y"), &t), 0);
    assert_int_equal(t.text.n, 3);

    t.num_total_steps = 99;
    assert_int_equal(cascade_transcript_answer_read(&a, STR("\x0a\x02\xc3\x28"), &t), ERR_SYNTAX);
    assert_int_equal(cascade_transcript_answer_read(&a, STR("\x0a\xff\xff\xff\xff\x0f"), &t),
                     ERR_SYNTAX);
    assert_int_equal(cascade_transcript_answer_read(&a, STR("\x08\x01"), &t), ERR_SYNTAX);
    assert_int_equal(t.num_total_steps, 99);
    arena_deinit(&a);
}

static void a_transcript_has_an_end(void **state)
{
    for (int above = 0; above < 2; above++) {
        struct arena a = {0};
        struct buf bytes = {0};
        struct cascade_transcript_answer t;
        size_t n = CASCADE_TRANSCRIPT_MAX + (size_t)above;
        buf_putc(&bytes, 0x0a);
        put_varint(&bytes, n);
        memset(buf_reserve(&bytes, n), 'x', n);
        bytes.n += n;
        assert_int_equal(cascade_transcript_answer_read(&a, buf_str(&bytes), &t),
                         above ? ERR_TOO_LARGE : 0);
        buf_deinit(&bytes);
        arena_deinit(&a);
    }
}

/* Two bytes a field: what protobuf-c notes of each would be many times that. */
static void a_message_of_many_fields_is_refused(void **state)
{
    struct arena a = {0};
    struct buf bytes = {0};
    struct cascade_transcript_answer t;
    for (int i = 0; i < 1 << 20; i++)
        buf_put(&bytes, STR("\x18\x01"));
    assert_int_equal(cascade_transcript_answer_read(&a, buf_str(&bytes), &t), ERR_TOO_LARGE);
    buf_deinit(&bytes);
    arena_deinit(&a);
}

static void raw_messages_say_whether_they_are_errors(void **state)
{
    struct arena a = {0};
    struct buf bytes = {0};
    struct cascade_raw_message m;
    put_hex(&bytes, "0a 0a 2a026869 3001 3801 1201");
    bytes.n -= 2;
    assert_int_equal(cascade_raw_message_read(&a, buf_str(&bytes), &m), ERR_SYNTAX); /* too short */
    bytes.n = 0;
    put_hex(&bytes, "0a 08 2a026869 3001 3801");
    assert_int_equal(cascade_raw_message_read(&a, buf_str(&bytes), &m), 0);
    assert_str(m.text, "hi");
    assert_true(m.in_progress && m.is_error);
    assert_int_equal(cascade_raw_message_read(&a, STR("\x0a\x04\x2a\x02hi"), &m), 0);
    assert_true(!m.in_progress && !m.is_error);
    assert_int_equal(cascade_raw_message_read(&a, STR_NONE, &m), 0);
    assert_true(m.text.n == 0 && !m.is_error);
    assert_int_equal(cascade_raw_message_read(&a, STR("\x0a\x03\x2a\x01\xff"), &m), ERR_SYNTAX);
    buf_deinit(&bytes);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_is_what_a_server_insists_on),
        cmocka_unit_test(fields_have_tags_of_two_bytes),
        cmocka_unit_test(times_are_seconds_and_nanoseconds),
        cmocka_unit_test(a_cascade_is_started_on_its_own),
        cmocka_unit_test(a_message_names_its_model),
        cmocka_unit_test(the_rest_is_an_id),
        cmocka_unit_test(messages_are_appended),
        cmocka_unit_test(request_ids_grow_one_by_one_from_the_clock),
        cmocka_unit_test(a_start_has_an_id),
        cmocka_unit_test(an_id_has_an_end),
        cmocka_unit_test(a_transcript_is_read),
        cmocka_unit_test(a_transcript_has_an_end),
        cmocka_unit_test(a_message_of_many_fields_is_refused),
        cmocka_unit_test(raw_messages_say_whether_they_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
