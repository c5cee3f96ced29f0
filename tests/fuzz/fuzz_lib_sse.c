// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_sse.c -- the events that a follower hears and the verdict do not depend on how the bytes
 * were cut, and nothing is larger than was allowed. The first byte says how small the limit is and
 * how the pieces are cut. */
#include "fuzz/lib_client.h"
#include "base/sse_parse.h"

struct heard {
    struct tm_client *c;
    struct bytes record;
    size_t max;
};

static int on_event(void *ctx, const struct sse_event *e)
{
    struct heard *h = ctx;
    check(e->data.n <= h->max && e->type.n <= SSE_NAME_MAX && e->id.n <= SSE_NAME_MAX, "too large");
    note(h->c, &h->record, e->type);
    note(h->c, &h->record, e->data);
    note(h->c, &h->record, e->id);
    return str_eq(e->type, STR("stop")) ? TM_E_CANCELLED : 0;
}

static struct heard run(struct tm_client *c, struct str bytes, size_t max, size_t size)
{
    struct heard h = {.c = c, .max = max};
    struct cutter k = {bytes, size, 0};
    struct str piece;
    struct sse_parser s;
    int err = 0;
    sse_parser_init(&s, &client_sse_host, c, max, &h, on_event);
    while (err == 0 && cut(&k, &piece)) {
        err = sse_parser_feed(&s, piece);
        free((char *)piece.p);
    }
    note_number(c, &h.record, err);
    sse_parser_deinit(&s);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    struct tm_client *c = fuzz_client();
    struct str bytes = str_of((const char *)data + 1, n - 1);
    size_t max = (size_t)16 << data[0] % 8;
    struct heard whole = run(c, bytes, max, 0), pieces = run(c, bytes, max, 1 + data[0] / 8);
    check(str_eq(bytes_str(&whole.record), bytes_str(&pieces.record)),
          "it depends on how the bytes were cut");
    bytes_free(c, &whole.record);
    bytes_free(c, &pieces.record);
    tm_close(c);
    return 0;
}
