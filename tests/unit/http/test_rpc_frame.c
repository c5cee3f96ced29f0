// SPDX-License-Identifier: Apache-2.0
/* Envelopes, and gzip within them: byte by byte, cut anywhere, and hostile. */
#include "base/mem.h"
#include "http/rpc_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define MAX 1000

static void assert_bytes(struct str got, struct str expected)
{
    assert_int_equal(got.n, expected.n);
    if (got.n > 0)
        assert_memory_equal(got.p, expected.p, got.n);
}

static void put_gzip(struct buf *out, struct str plain)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, plain.n);
    z.next_in = (unsigned char *)(uintptr_t)plain.p;
    z.avail_in = (unsigned)plain.n;
    z.next_out = (unsigned char *)buf_reserve(out, room);
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->n += room - z.avail_out;
    deflateEnd(&z);
}

static void put_envelope(struct buf *out, uint8_t flags, struct str payload)
{
    rpc_envelope(buf_reserve(out, RPC_ENVELOPE), flags, payload.n);
    out->n += RPC_ENVELOPE;
    buf_put(out, payload);
}

/* All of the messages, each with a bar behind it, then the result that ended it. */
static enum rpc_frame take_all(struct rpc_frames *f, struct buf *log)
{
    struct str message;
    enum rpc_frame result;
    while ((result = rpc_frames_next(f, &message)) == RPC_FRAME_MESSAGE) {
        buf_put(log, message);
        buf_putc(log, '|');
        rpc_frames_trim(f);
    }
    return result;
}

/* What a body is read as, in pieces of so many bytes (0: in one), each of them in memory of its own
 * so that nothing can be read beyond it. */
static enum rpc_frame read_all(struct str body, size_t piece, enum rpc_framing framing, bool gzip,
                               struct buf *log)
{
    struct rpc_frames f;
    enum rpc_frame result = RPC_FRAME_MORE;
    rpc_frames_init(&f, MAX, framing, gzip);
    while (body.n > 0 && result == RPC_FRAME_MORE) {
        size_t n = piece == 0 || piece > body.n ? body.n : piece;
        char *copy = mem_alloc(n);
        memcpy(copy, body.p, n);
        rpc_frames_put(&f, str_of(copy, n));
        free(copy);
        body = str_skip(body, n);
        result = take_all(&f, log);
    }
    if (result == RPC_FRAME_MORE) {
        rpc_frames_end(&f);
        result = take_all(&f, log);
    }
    rpc_frames_deinit(&f);
    return result;
}

static void check(struct str body, enum rpc_framing framing, bool gzip, enum rpc_frame expected,
                  struct str messages)
{
    for (size_t piece = 0; piece <= body.n; piece++) {
        struct buf log = {0};
        enum rpc_frame got = read_all(body, piece, framing, gzip, &log);
        if (got != expected)
            fail_msg("in pieces of %zu: %d, not %d", piece, got, expected);
        assert_bytes(buf_str(&log), messages);
        buf_deinit(&log);
    }
}

static void test_envelopes(void **state)
{
    check(STR("\x00\x00\x00\x00\x04\x0a\x00\x28\x00"), RPC_FRAMES_MANY, false, RPC_FRAME_END,
          STR("\x0a\x00\x28\x00|"));
    check(STR("\0\0\0\0\3abc\0\0\0\0\0\0\0\0\0\1d"), RPC_FRAMES_MANY, false, RPC_FRAME_END,
          STR("abc||d|"));
    check(STR(""), RPC_FRAMES_MANY, false, RPC_FRAME_END, STR(""));
}

static void test_envelope_of_a_message(void **state)
{
    char head[RPC_ENVELOPE];
    rpc_envelope(head, 2, 0x01020304);
    assert_memory_equal(head, "\2\1\2\3\4", RPC_ENVELOPE);
}

static void test_only_one_message(void **state)
{
    check(STR("\0\0\0\0\3abc"), RPC_FRAMES_ONE, false, RPC_FRAME_END, STR("abc|"));
    check(STR("\0\0\0\0\0"), RPC_FRAMES_ONE, false, RPC_FRAME_END, STR("|"));
    check(STR(""), RPC_FRAMES_ONE, false, RPC_FRAME_COUNT, STR(""));
    check(STR("\0\0\0\0\3abc\0\0\0\0\1d"), RPC_FRAMES_ONE, false, RPC_FRAME_COUNT, STR(""));
    check(STR("\0\0\0\0\3abc\0"), RPC_FRAMES_ONE, false, RPC_FRAME_COUNT, STR(""));
}

/* Nothing is handed over, nor even unpacked, before it is certain that it is all. */
static void test_one_message_waits_for_the_end(void **state)
{
    struct rpc_frames f;
    struct str message;
    rpc_frames_init(&f, MAX, RPC_FRAMES_ONE, false);
    rpc_frames_put(&f, STR("\0\0\0\0\1a"));
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MORE);
    rpc_frames_end(&f);
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MESSAGE);
    assert_bytes(message, STR("a"));
    rpc_frames_deinit(&f);
}

static void test_cut_within_an_envelope(void **state)
{
    struct str body = STR("\0\0\0\0\3abc");
    for (size_t n = 1; n < body.n; n++)
        check(str_of(body.p, n), RPC_FRAMES_MANY, false, RPC_FRAME_CUT, STR(""));
    check(STR("\0\0\0\0\1a\0\0"), RPC_FRAMES_MANY, false, RPC_FRAME_CUT, STR("a|"));
}

static void test_flags(void **state)
{
    char body[] = "\0\0\0\0\0";
    for (int flags = 0; flags < 256; flags++) {
        enum rpc_frame plain = flags == 0   ? RPC_FRAME_END
                               : flags == 1 ? RPC_FRAME_UNANNOUNCED
                               : flags <= 3 ? RPC_FRAME_END_STREAM
                                            : RPC_FRAME_FLAGS;
        body[0] = (char)flags;
        check(str_of(body, 5), RPC_FRAMES_MANY, false, plain, flags == 0 ? STR("|") : STR(""));
        enum rpc_frame zipped = flags == 1 ? RPC_FRAME_END : plain;
        check(str_of(body, 5), RPC_FRAMES_MANY, true, zipped, flags <= 1 ? STR("|") : STR(""));
    }
}

/* The limit is that of a message, to the byte, and is known from the length alone. */
static void test_length(void **state)
{
    struct buf body = {0}, log = {0};
    char most[MAX + 1];
    memset(most, 'x', sizeof most);
    put_envelope(&body, 0, str_of(most, MAX));
    assert_int_equal(read_all(buf_str(&body), 0, RPC_FRAMES_MANY, false, &log), RPC_FRAME_END);
    assert_int_equal(log.n, MAX + 1);
    struct rpc_frames f;
    struct str message;
    rpc_frames_init(&f, MAX, RPC_FRAMES_MANY, false);
    rpc_frames_put(&f, STR("\0\0\0\3\xe9"));
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_TOO_LONG);
    rpc_frames_deinit(&f);
    check(STR("\0\xff\xff\xff\xff"), RPC_FRAMES_MANY, false, RPC_FRAME_TOO_LONG, STR(""));
    buf_deinit(&body);
    buf_deinit(&log);
}

static void test_bare(void **state)
{
    char most[MAX + 1];
    memset(most, 'x', sizeof most);
    check(STR("\x0a\x00"), RPC_FRAMES_BARE, false, RPC_FRAME_END, STR("\x0a\x00|"));
    check(STR(""), RPC_FRAMES_BARE, false, RPC_FRAME_END, STR("|"));
    check(STR(""), RPC_FRAMES_BARE, true, RPC_FRAME_END, STR("|"));
    check(STR("not gzip"), RPC_FRAMES_BARE, true, RPC_FRAME_CORRUPT_GZIP, STR(""));
    check(str_of(most, MAX + 1), RPC_FRAMES_BARE, false, RPC_FRAME_TOO_LONG, STR(""));
    struct buf log = {0};
    assert_int_equal(read_all(str_of(most, MAX), 7, RPC_FRAMES_BARE, false, &log), RPC_FRAME_END);
    assert_int_equal(log.n, MAX + 1);
    buf_deinit(&log);
}

static void test_gzip(void **state)
{
    struct buf zipped = {0}, body = {0};
    put_gzip(&zipped, STR("some text, some text, some text"));
    put_envelope(&body, 1, buf_str(&zipped));
    put_envelope(&body, 0, STR("plain"));
    put_envelope(&body, 1, buf_str(&zipped));
    check(buf_str(&body), RPC_FRAMES_MANY, true, RPC_FRAME_END,
          STR("some text, some text, some text|plain|some text, some text, some text|"));
    check(buf_str(&zipped), RPC_FRAMES_BARE, true, RPC_FRAME_END,
          STR("some text, some text, some text|"));
    buf_deinit(&zipped);
    buf_deinit(&body);
}

static void test_gzip_of_several_members(void **state)
{
    struct buf zipped = {0};
    put_gzip(&zipped, STR("one,"));
    put_gzip(&zipped, STR(""));
    put_gzip(&zipped, STR("two"));
    check(buf_str(&zipped), RPC_FRAMES_BARE, true, RPC_FRAME_END, STR("one,two|"));
    buf_putc(&zipped, 'x');
    check(buf_str(&zipped), RPC_FRAMES_BARE, true, RPC_FRAME_CORRUPT_GZIP, STR(""));
    buf_deinit(&zipped);
}

/* Every prefix, and every byte turned around: an error or the same text, never anything else. The
 * head has bytes that mean nothing (time, system), and so a change there may pass. */
static void test_gzip_damaged(void **state)
{
    struct buf zipped = {0};
    put_gzip(&zipped, STR("some text, some text, some text"));
    for (size_t n = 1; n < zipped.n; n++)
        check(str_of(zipped.p, n), RPC_FRAMES_BARE, true, RPC_FRAME_CORRUPT_GZIP, STR(""));
    for (size_t i = 0; i < zipped.n; i++) {
        struct buf log = {0};
        zipped.p[i] ^= (char)0xff;
        enum rpc_frame result = read_all(buf_str(&zipped), 0, RPC_FRAMES_BARE, true, &log);
        zipped.p[i] ^= (char)0xff;
        if (i >= 4 && i < 10)
            assert_bytes(buf_str(&log), STR("some text, some text, some text|"));
        else
            assert_int_equal(result, RPC_FRAME_CORRUPT_GZIP);
        buf_deinit(&log);
    }
    buf_deinit(&zipped);
}

/* A thousand times its size, and the memory that it takes is that of one message. */
static void test_bomb(void **state)
{
    static char zeros[1 << 20];
    struct buf zipped = {0}, body = {0};
    put_gzip(&zipped, str_of(zeros, 700000));
    assert_true(zipped.n < MAX);
    put_envelope(&body, 1, buf_str(&zipped));
    struct rpc_frames f;
    struct str message;
    rpc_frames_init(&f, MAX, RPC_FRAMES_MANY, true);
    rpc_frames_put(&f, buf_str(&body));
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_INFLATES);
    assert_true(f.plain.cap <= 4 * MAX);
    rpc_frames_deinit(&f);
    buf_deinit(&zipped);
    buf_deinit(&body);
}

static void test_gzip_up_to_the_limit(void **state)
{
    static char text[MAX + 1];
    for (size_t n = MAX - 1; n <= MAX + 1; n++) {
        struct buf zipped = {0}, log = {0};
        put_gzip(&zipped, str_of(text, n));
        enum rpc_frame result = read_all(buf_str(&zipped), 0, RPC_FRAMES_BARE, true, &log);
        assert_int_equal(result, n <= MAX ? RPC_FRAME_END : RPC_FRAME_INFLATES);
        assert_int_equal(log.n, n <= MAX ? n + 1 : 0);
        buf_deinit(&zipped);
        buf_deinit(&log);
    }
}

/* A stream that waits for the client's next word keeps nothing of the last. */
static void test_trim_gives_all_back(void **state)
{
    struct rpc_frames f;
    struct str message;
    rpc_frames_init(&f, MAX, RPC_FRAMES_MANY, false);
    rpc_frames_put(&f, STR("\0\0\0\0\1a\0\0\0\0\1b"));
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MESSAGE);
    rpc_frames_trim(&f);
    assert_int_equal(rpc_frames_bytes(&f), 12);
    assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MESSAGE);
    assert_bytes(message, STR("b"));
    rpc_frames_trim(&f);
    assert_int_equal(rpc_frames_bytes(&f), 0);
    assert_null(f.in.p);
    rpc_frames_deinit(&f);
}

/* However long it goes on with each piece ending within a message. */
static void test_memory_of_a_long_stream(void **state)
{
    struct rpc_frames f;
    struct str message;
    rpc_frames_init(&f, MAX, RPC_FRAMES_MANY, false);
    rpc_frames_put(&f, STR("\0\0"));
    for (int i = 0; i < 1000; i++) {
        rpc_frames_put(&f, STR("\0\0\2ab\0\0"));
        assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MESSAGE);
        assert_bytes(message, STR("ab"));
        assert_int_equal(rpc_frames_next(&f, &message), RPC_FRAME_MORE);
        rpc_frames_trim(&f);
        assert_true(rpc_frames_bytes(&f) <= 9);
    }
    rpc_frames_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_envelopes),
        cmocka_unit_test(test_envelope_of_a_message),
        cmocka_unit_test(test_only_one_message),
        cmocka_unit_test(test_one_message_waits_for_the_end),
        cmocka_unit_test(test_cut_within_an_envelope),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_gzip_of_several_members),
        cmocka_unit_test(test_gzip_damaged),
        cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_gzip_up_to_the_limit),
        cmocka_unit_test(test_trim_gives_all_back),
        cmocka_unit_test(test_memory_of_a_long_stream),
    };
    return cmocka_run_group_tests_name("rpc_frame", tests, NULL, NULL);
}
