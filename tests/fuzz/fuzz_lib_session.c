// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_session.c -- what a server says in a session: envelopes, the messages in them, the
 * chunks in those, and its last word. All that is found lies in what was read, and does not depend
 * on how it was cut. The first byte says how. */
#include "fuzz/lib_client.h"
#include "client/client_session_wire.h"

static void check_inside(struct str part, struct str whole)
{
    check(part.n == 0 || (part.p >= whole.p && part.p + part.n <= whole.p + whole.n), "outside");
}

static void hear_chunk(struct tm_client *c, struct str bytes, struct bytes *record)
{
    for (int service = 0; service <= TM_SERVICE_AISERVER; service++) {
        struct swire_chunk w;
        int err = swire_read_chunk((enum tm_service)service, bytes, &w);
        note_number(c, record, err);
        if (err != 0)
            continue;
        const struct str parts[] = {w.payload,  w.event_id,     w.text,
                                    w.thinking, w.tool_call_id, w.has_mac ? w.covered : STR_NONE};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            check_inside(parts[i], bytes);
            note(c, record, parts[i]);
        }
        check(w.event_id.n <= SWIRE_EVENT_ID_MAX, "an id that is too long");
        check(!w.has_mac || (w.covered.p == bytes.p && w.covered.n < bytes.n - MAC_SIZE),
              "the MAC covers something else");
        note_number(c, record, w.moves);
    }
}

static void hear(struct tm_client *c, struct str payload, bool end, struct bytes *record)
{
    struct swire_response r;
    struct swire_end e;
    int err = end ? swire_read_end(payload, &e) : swire_read_response(payload, &r);
    note_number(c, record, err);
    if (err != 0)
        return;
    if (end) {
        check(strlen(e.code) < sizeof e.code && strlen(e.message) < sizeof e.message, "too long");
        note(c, record, str_of_cstr(e.code));
        note(c, record, str_of_cstr(e.message));
        note_number(c, record, swire_error_code(e.code));
        return;
    }
    note_number(c, record, r.kind);
    check_inside(r.chunk, payload);
    check_inside(r.message, payload);
    if (r.kind == SWIRE_CHUNK)
        hear_chunk(c, r.chunk, record);
}

static void run(struct tm_client *c, struct str bytes, size_t size, struct bytes *record)
{
    struct swire_frames f = {.max = 4096};
    struct cutter k = {bytes, size, 0};
    struct str piece, payload;
    int more = 0;
    bool end;
    while (more >= 0 && cut(&k, &piece)) {
        check(swire_frames_put(c, &f, piece) == 0, "no memory");
        free((char *)piece.p);
        while ((more = swire_frames_next(&f, &payload, &end)) > 0) {
            check(payload.n <= f.max, "too large");
            hear(c, payload, end, record);
        }
    }
    note_number(c, record, more);
    swire_frames_free(c, &f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    struct tm_client *c = fuzz_client();
    struct bytes whole = {0}, pieces = {0};
    struct str bytes = str_of((const char *)data + 1, n - 1);
    run(c, bytes, 0, &whole);
    run(c, bytes, 1 + data[0] / 8, &pieces);
    check(str_eq(bytes_str(&whole), bytes_str(&pieces)), "it depends on how the bytes were cut");
    bytes_free(c, &whole);
    bytes_free(c, &pieces);
    tm_close(c);
    return 0;
}
