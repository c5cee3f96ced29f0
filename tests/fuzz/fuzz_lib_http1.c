// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_http1.c -- an answer of HTTP/1.1, read by the library: it is over exactly once, with the
 * same result however its bytes were cut. The first byte says which request it answers and how it
 * is cut. */
#include "fuzz/lib_client.h"
#include "client/client_http_core.h"

struct asked {
    struct http_request r;
    struct bytes *record;
    unsigned overs;
    size_t body_n;
};

static void on_head(struct http_request *r)
{
    struct asked *a = container_of(r, struct asked, r);
    check(r->status >= 200 && r->status <= 599, "a status that is none");
    note_number(r->client, a->record, r->status);
    note(r->client, a->record, http_answer_header(r, STR("content-type")));
}

static int on_data(struct http_request *r, struct str bytes)
{
    struct asked *a = container_of(r, struct asked, r);
    check(bytes.n > 0 && a->overs == 0, "data that is none");
    a->body_n += bytes.n;
    check(bytes_put(r->client, a->record, bytes) == 0, "no memory");
    return 0;
}

static void on_over(struct http_request *r, int err)
{
    struct asked *a = container_of(r, struct asked, r);
    a->overs++;
    note_number(r->client, a->record, err);
    note_number(r->client, a->record, r->framed);
    note(r->client, a->record, http_answer_header(r, STR("x-trailer")));
}

/* Without a socket: the wire is told that it is open, and what came. */
static void run(struct tm_client *c, struct str answer, bool head, size_t size,
                struct bytes *record)
{
    struct asked a = {.record = record,
                      .r = {.client = c,
                            .method = head ? STR("HEAD") : STR("GET"),
                            .path = STR("/x"),
                            .head = on_head,
                            .data = on_data,
                            .over = on_over}};
    struct cutter k = {answer, size, 0};
    struct str piece;
    check(http_start(&a.r) == 0, "cannot start");
    struct wire *w = a.r.exchange->wire;
    task_cancel(&w->connect);
    w->state = WIRE_OPEN;
    w->speaker->opened(w);
    w->speaker->fill(w);
    while (w->state == WIRE_OPEN && a.overs == 0 && cut(&k, &piece)) {
        w->speaker->bytes(w, piece);
        free((char *)piece.p);
    }
    wire_fail(w, 0, "the end");
    check(a.overs == 1, "not over once");
    check(a.body_n <= answer.n, "more than came");
    http_flush(c); /* sweeps it away */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    struct tm_client *c = fuzz_client();
    struct bytes whole = {0}, pieces = {0};
    struct str answer = str_of((const char *)data + 1, n - 1);
    bool head = data[0] % 8 == 7;
    run(c, answer, head, 0, &whole);
    run(c, answer, head, 1 + data[0] / 8, &pieces);
    check(str_eq(bytes_str(&whole), bytes_str(&pieces)), "it depends on how the bytes were cut");
    bytes_free(c, &whole);
    bytes_free(c, &pieces);
    tm_close(c);
    return 0;
}
