// SPDX-License-Identifier: Apache-2.0
/* fuzz_h1.c -- our HTTP/1 reader against llhttp, built strict, message by message.
 *
 * It stops when we accept what llhttp rejects; when the two see another end of a head, other body
 * bytes or another end of a message; when we overlook that the connection is to be closed; and
 * when our own verdict depends on how the bytes were cut up. What we refuse is not compared:
 * we mean to be the stricter one.
 *
 * What we accept and llhttp rejects, all of it:
 *  - methods it has no name for, or knows from other protocols only (RTSP, ICE, HTTP/2's preface).
 *    It is given POST in their place.
 *  - a chunk extension behind one with a token for its value, as in `5;a=b;c`. The grammar has it;
 *    llhttp 8 reads the second `;` and then wants another. The rest of such a message is not
 *    compared.
 *
 * And it takes Proxy-Connection, which no standard knows, for Connection: a close it sees in a
 * message with one is not compared. */
#include "http/h1_parse.h"
#include "base/mem.h"

#include <llhttp.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define BYTEWISE_MAX 384 /* longer inputs are only cut in two */
#define BYTEWISE_ONE 16  /* of so many of the others: it costs as much as ten executions */

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_h1: %s\n", what);
    abort();
}

static void check(bool ok, const char *what)
{
    if (!ok)
        fail(what);
}

/* ---- our side ---- */

struct message {
    int head; /* its length, 0 or a refusal */
    int body; /* 1 complete, 0 not, or a refusal; with head > 0 */
    const char *why;
    struct h1_framing framing;
    struct request req;
    struct header *headers; /* room for H1_HEADERS_MAX */
    char *payload;          /* room for the whole input */
    size_t payload_n;
    size_t used; /* bytes of the message so far */
};

/* How bytes arrive: all at once (cut == 0), in two parts, or one by one (cut == 1 is both). What
 * has not arrived must not be read, and ASan sees to that. */
struct arrival {
    const char *bytes;
    size_t n, cut, here;
    bool bytewise;
};

static void arrive(struct arrival *a)
{
    size_t more = a->bytewise ? a->here + 1 : a->here < a->cut ? a->cut : a->n;
    ASAN_UNPOISON_MEMORY_REGION(a->bytes, more);
    a->here = more;
}

static void read_head(struct arrival *a, struct message *m)
{
    struct h1_head_state state = {0};
    do {
        arrive(a);
        m->head = h1_parse_head(&state, a->bytes, a->here, &m->req, &m->framing, &m->why);
    } while (m->head == 0 && a->here < a->n);
    check(m->head <= 0 || (size_t)m->head <= a->here, "a head longer than its input");
    check(m->head >= 0 || m->why != NULL, "a refusal without a reason");
}

static void read_chunks(struct arrival *a, struct message *m)
{
    struct h1_chunked c = {0};
    while (m->body == 0) {
        if (m->used == a->here) {
            if (a->here == a->n)
                return;
            arrive(a);
        }
        size_t used;
        struct str data;
        m->body = h1_chunked_decode(&c, a->bytes + m->used, a->here - m->used, &used, &data);
        check(used > 0 && used <= a->here - m->used, "the decoder stands still or runs away");
        check(data.n <= used, "more data than input");
        if (data.n > 0)
            memcpy(m->payload + m->payload_n, data.p, data.n);
        m->payload_n += data.n;
        m->used += used;
    }
}

static void read_length(struct arrival *a, struct message *m)
{
    size_t rest = a->n - m->used;
    if (m->framing.content_length < rest)
        rest = (size_t)m->framing.content_length;
    memcpy(m->payload, a->bytes + m->used, rest);
    m->payload_n = rest;
    m->used += rest;
    m->body = rest == m->framing.content_length;
}

static void read_message(struct arrival a, struct message *m)
{
    *m = (struct message){.payload = m->payload, .headers = m->headers};
    m->req.headers = m->headers;
    if (a.cut > 0 || a.bytewise)
        ASAN_POISON_MEMORY_REGION(a.bytes, a.n);
    read_head(&a, m);
    m->used = m->head > 0 ? (size_t)m->head : 0;
    if (m->head > 0 && m->framing.chunked)
        read_chunks(&a, m);
    ASAN_UNPOISON_MEMORY_REGION(a.bytes, a.n);
    if (m->head > 0 && !m->framing.chunked)
        read_length(&a, m);
}

static bool same_slice(struct str a, struct str b)
{
    return a.p == b.p && a.n == b.n;
}

static void check_same_request(const struct request *a, const struct request *b)
{
    check(a->method == b->method && a->version == b->version && a->n_headers == b->n_headers &&
              same_slice(a->method_text, b->method_text) && same_slice(a->path, b->path) &&
              same_slice(a->query, b->query) && same_slice(a->host, b->host),
          "cut up, it is another request");
    for (int i = 0; i < a->n_headers; i++)
        check(same_slice(a->headers[i].name, b->headers[i].name) &&
                  same_slice(a->headers[i].value, b->headers[i].value),
              "cut up, it has other headers");
}

static void check_same(const struct message *a, const struct message *b)
{
    check(a->head == b->head, "cut up, its head is judged otherwise");
    check(a->head >= 0 || a->why == b->why, "cut up, it is refused for another reason");
    if (a->head <= 0)
        return;
    const struct h1_framing *f = &a->framing, *g = &b->framing;
    check(f->content_length == g->content_length && f->has_length == g->has_length &&
              f->chunked == g->chunked && f->keep_alive == g->keep_alive &&
              f->expect_continue == g->expect_continue && f->upgrade == g->upgrade,
          "cut up, it is framed otherwise");
    check_same_request(&a->req, &b->req);
    check(a->body == b->body && a->used == b->used, "cut up, its body is judged otherwise");
    check(a->payload_n == b->payload_n && memcmp(a->payload, b->payload, a->payload_n) == 0,
          "cut up, its body is another");
}

/* ---- llhttp ---- */

struct oracle {
    bool head_done, done, close;
    size_t head, end; /* positions in its input, once done */
    llhttp_errno_t err;
    bool second_extension; /* rejected by its mistake about `;a=b;c` */
    char *payload;
    size_t payload_n;
};

static int on_headers_complete(llhttp_t *p)
{
    struct oracle *o = p->data;
    o->head_done = true;
    o->close = p->flags & F_CONNECTION_CLOSE; /* later, trailers would have their say */
    return HPE_PAUSED;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    struct oracle *o = p->data;
    memcpy(o->payload + o->payload_n, at, n);
    o->payload_n += n;
    return 0;
}

static int on_message_complete(llhttp_t *p)
{
    ((struct oracle *)p->data)->done = true;
    return HPE_PAUSED;
}

static void ask_llhttp(const char *bytes, size_t n, struct oracle *o)
{
    static const llhttp_settings_t settings = {
        .on_headers_complete = on_headers_complete,
        .on_body = on_body,
        .on_message_complete = on_message_complete,
    };
    llhttp_t p;
    llhttp_init(&p, HTTP_REQUEST, &settings);
    p.data = o;
    o->err = llhttp_execute(&p, bytes, n);
    if (!o->head_done || o->err != HPE_PAUSED)
        return;
    o->head = (size_t)(llhttp_get_error_pos(&p) - bytes);
    llhttp_resume(&p);
    o->err = llhttp_execute(&p, bytes + o->head, n - o->head);
    if (o->done && o->err == HPE_PAUSED)
        o->end = (size_t)(llhttp_get_error_pos(&p) - bytes);
    if (o->err == HPE_INVALID_CHUNK_SIZE)
        o->second_extension = llhttp_get_error_pos(&p)[-1] == ';';
}

/* ---- both ---- */

/* The bytes with POST for their method. */
static char *with_post(struct str bytes, struct str method, size_t *length)
{
    *length = 4 + bytes.n - method.n;
    char *copy = mem_alloc(*length);
    memcpy(copy, "POST", 4);
    memcpy(copy + 4, bytes.p + method.n, bytes.n - method.n);
    return copy;
}

/* NULL, or how the two differ. longer: by how much our bytes are longer than llhttp's. */
static const char *difference(const struct message *m, const struct oracle *o, size_t longer)
{
    if (m->head == 0)
        return o->head_done ? "llhttp sees a whole head and we do not" : NULL;
    if (!o->head_done)
        return "we accept a head that llhttp rejects";
    if (o->head + longer != (size_t)m->head)
        return "the head ends elsewhere";
    if (m->body < 0 || o->second_extension)
        return NULL;
    if (o->payload_n != m->payload_n || memcmp(o->payload, m->payload, m->payload_n) != 0)
        return "the body is another";
    if (m->body == 0)
        return o->done            ? "llhttp sees a whole message and we do not"
               : o->err != HPE_OK ? "we go on in a body that llhttp rejects"
                                  : NULL;
    if (!o->done)
        return "we accept a body that llhttp rejects";
    if (o->end + longer != m->used)
        return "the message ends elsewhere";
    if (m->framing.keep_alive && o->close &&
        request_header(&m->req, STR("Proxy-Connection")).p == NULL)
        return "we overlook a close";
    return NULL;
}

static void compare(const char *bytes, size_t n, const struct message *m)
{
    struct oracle o = {.payload = mem_alloc(n + 1)};
    size_t length = n;
    char *copy = NULL;
    if (m->head > 0 && m->req.method == METHOD_OTHER)
        copy = with_post(str_of(bytes, n), m->req.method_text, &length);
    ask_llhttp(copy != NULL ? copy : bytes, length, &o);
    const char *differs = difference(m, &o, n - length);
    if (differs != NULL) {
        fprintf(stderr, "we: head %d, body %d, %zu bytes\n", m->head, m->body, m->used);
        fprintf(stderr, "llhttp: head %zu, end %zu, of %zu for our %zu bytes, %s\n", o.head, o.end,
                length, n, llhttp_errno_name(o.err));
        fail(differs);
    }
    free(copy);
    free(o.payload);
}

/* The input itself decides where it is cut, so that a crash file is all it takes. */
static uint32_t hash_of(const uint8_t *data, size_t n)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct header headers[2][H1_HEADERS_MAX];
    struct message whole = {.payload = mem_alloc(n + 1), .headers = headers[0]};
    struct message cut = {.payload = mem_alloc(n + 1), .headers = headers[1]};
    uint32_t hash = hash_of(data, n);
    for (size_t at = 0; at < n; hash *= 16777619u) {
        struct arrival a = {.bytes = (const char *)data + at, .n = n - at};
        read_message(a, &whole);
        a.cut = (hash >> 8) % a.n;
        read_message(a, &cut);
        check_same(&whole, &cut);
        a.bytewise = a.n <= BYTEWISE_MAX && hash % BYTEWISE_ONE == 0;
        if (a.bytewise) {
            read_message(a, &cut);
            check_same(&whole, &cut);
        }
        if (whole.head < 0)
            break;
        compare(a.bytes, a.n, &whole);
        if (whole.head == 0 || whole.body != 1 || !whole.framing.keep_alive)
            break;
        at += whole.used;
    }
    free(whole.payload);
    free(cut.payload);
    return 0;
}
