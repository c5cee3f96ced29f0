// SPDX-License-Identifier: Apache-2.0
/* Each message here is read whole, cut in two at every place, and byte by byte, always from memory
 * that ends where the bytes do; the outcome must be one and the same. Each row of the tables below
 * is a test of its own. */
#include "http/h1_parse.h"
#include "base/buf.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* ---- heads ---- */

struct outcome {
    int rc;
    const char *why;
    struct h1_framing framing;
    struct request req;
    struct header headers[H1_HEADERS_MAX];
};

static int parse(struct h1_head_state *state, const char *bytes, size_t n, struct outcome *o)
{
    o->req.headers = o->headers;
    o->rc = h1_parse_head(state, bytes, n, &o->req, &o->framing, &o->why);
    return o->rc;
}

static void assert_slice(struct str s, const char *base, struct str t, const char *other)
{
    assert_int_equal(s.n, t.n);
    assert_int_equal(s.p == NULL, t.p == NULL);
    if (s.p != NULL)
        assert_int_equal(s.p - base, t.p - other);
}

static void assert_same(const struct outcome *a, const char *base, const struct outcome *b,
                        const char *other)
{
    assert_int_equal(a->rc, b->rc);
    if (a->rc < 0)
        assert_string_equal(a->why, b->why);
    if (a->rc <= 0)
        return;
    assert_int_equal(a->framing.content_length, b->framing.content_length);
    assert_int_equal(a->framing.has_length, b->framing.has_length);
    assert_int_equal(a->framing.chunked, b->framing.chunked);
    assert_int_equal(a->framing.keep_alive, b->framing.keep_alive);
    assert_int_equal(a->framing.expect_continue, b->framing.expect_continue);
    assert_int_equal(a->framing.upgrade, b->framing.upgrade);
    assert_int_equal(a->req.method, b->req.method);
    assert_int_equal(a->req.version, b->req.version);
    assert_slice(a->req.method_text, base, b->req.method_text, other);
    assert_slice(a->req.path, base, b->req.path, other);
    assert_slice(a->req.query, base, b->req.query, other);
    assert_slice(a->req.host, base, b->req.host, other);
    assert_int_equal(a->req.n_headers, b->req.n_headers);
    for (int i = 0; i < a->req.n_headers; i++) {
        assert_slice(a->headers[i].name, base, b->headers[i].name, other);
        assert_slice(a->headers[i].value, base, b->headers[i].value, other);
    }
}

static char *copy_of(struct str s)
{
    char *copy = mem_alloc(s.n);
    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    return copy;
}

static void assert_same_when_cut(struct str bytes, size_t cut, const struct outcome *whole)
{
    struct h1_head_state state = {0};
    struct outcome o = {0};
    char *first = copy_of(str_of(bytes.p, cut));
    if (parse(&state, first, cut, &o) != 0) {
        assert_same(whole, bytes.p, &o, first);
    } else {
        char *both = copy_of(bytes); /* elsewhere than the first part was */
        parse(&state, both, bytes.n, &o);
        assert_same(whole, bytes.p, &o, both);
        free(both);
    }
    free(first);
}

static void assert_same_bytewise(struct str bytes, const struct outcome *whole)
{
    struct h1_head_state state = {0};
    struct outcome o = {0};
    for (size_t n = 0; n <= bytes.n && o.rc == 0; n++)
        parse(&state, bytes.p, n, &o);
    assert_same(whole, bytes.p, &o, bytes.p);
}

/* The slices of *o point into bytes. */
static void judge(struct str bytes, struct outcome *o)
{
    struct h1_head_state state = {0};
    memset(o, 0, sizeof *o);
    char *copy = copy_of(bytes);
    struct outcome exact = {0};
    parse(&state, copy, bytes.n, &exact);
    state = (struct h1_head_state){0};
    parse(&state, bytes.p, bytes.n, o);
    assert_same(o, bytes.p, &exact, copy);
    free(copy);

    assert_same_bytewise(bytes, o);
    for (size_t cut = 0; cut <= bytes.n; cut += bytes.n < 1024 ? 1 : 61)
        assert_same_when_cut(bytes, cut, o);
}

static void assert_text(struct str s, const char *text)
{
    if (s.n != strlen(text) || memcmp(s.p, text, s.n) != 0)
        fail_msg("`%.*s` is not `%s`", (int)s.n, s.p, text);
}

struct row {
    const char *name;
    int status;       /* that it is refused with; 0 and 1: none */
    const char *text; /* part of the reason given; of a good body, its payload */
    struct str bytes;
};

#define GET     "GET / HTTP/1.1\r\n"
#define POST    "POST / HTTP/1.1\r\nHost: a\r\n"
#define LENGTH  "Content-Length"
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define END     "\r\n"

#define ROW(name, status, why, bytes)                                                              \
    {                                                                                              \
        name, status, why, STR_INIT(bytes)                                                         \
    }
#define WITH_LENGTH(name, value)                                                                   \
    ROW("length: " name, 400, "Content-Length is not", POST LENGTH ": " value "\r\n" END)
#define WITH_ENCODING(name, status, why, value)                                                    \
    ROW("encoding: " name, status, why, POST "Transfer-Encoding: " value "\r\n" END)
#define WITH_HOST(name, value) ROW("host: " name, 400, "Host is not", GET "Host: " value "\r\n" END)
#define WITH_TARGET(name, why, target)                                                             \
    ROW("target: " name, 400, why, "GET " target " HTTP/1.1\r\nHost: a\r\n" END)
#define WITH_VERSION(name, status, why, version)                                                   \
    ROW("version: " name, status, why, "GET /" version "\r\nHost: a\r\n" END)

static const struct row refused[] = {
    /* which of two framings holds */
    ROW("length, then encoding", 400, "both", POST LENGTH ": 4\r\n" CHUNKED END),
    ROW("encoding, then length", 400, "both", POST CHUNKED LENGTH ": 4\r\n" END),
    ROW("length and an unknown encoding", 400, "both",
        POST LENGTH ": 4\r\nTransfer-Encoding: x\r\n" END),
    ROW("length twice, equal", 400, "Content-Length is given more than once",
        POST LENGTH ": 4\r\n" LENGTH ": 4\r\n" END),
    ROW("length twice, different", 400, "Content-Length is given more than once",
        POST LENGTH ": 4\r\n" LENGTH ": 5\r\n" END),
    ROW("length twice, other case, apart", 400, "Content-Length is given more than once",
        POST LENGTH ": 4\r\nX: y\r\ncONTENT-lENGTH: 0\r\n" END),
    WITH_LENGTH("plus sign", "+4"),
    WITH_LENGTH("minus sign", "-4"),
    WITH_LENGTH("hex", "0x4"),
    WITH_LENGTH("list", "4,4"),
    WITH_LENGTH("list with space", "4, 4"),
    WITH_LENGTH("two numbers", "4 4"),
    WITH_LENGTH("empty", ""),
    WITH_LENGTH("fraction", "4.0"),
    WITH_LENGTH("exponent", "1e3"),
    WITH_LENGTH("trailing letter", "4a"),
    WITH_LENGTH("quoted", "\"4\""),
    WITH_LENGTH("2^53 + 1", "9007199254740993"),
    WITH_LENGTH("2^64", "18446744073709551616"),
    WITH_LENGTH("2^64 + 4", "18446744073709551620"),
    WITH_LENGTH("forty digits", "4444444444444444444444444444444444444444"),
    WITH_LENGTH("no-break space", "4\xa0"),
    WITH_LENGTH("tab before", "\t4"),
    WITH_LENGTH("tab behind", "4 \t"),
    WITH_ENCODING("xchunked", 501, "other than", "xchunked"),
    WITH_ENCODING("chunkedx", 501, "other than", "chunkedx"),
    WITH_ENCODING("identity", 501, "other than", "identity"),
    WITH_ENCODING("gzip", 501, "other than", "gzip"),
    WITH_ENCODING("list of unknown ones", 501, "other than", "gzip, br;q=1"),
    WITH_ENCODING("chunked, identity", 400, "exactly", "chunked, identity"),
    WITH_ENCODING("identity, chunked", 400, "exactly", "identity, chunked"),
    WITH_ENCODING("gzip, chunked", 400, "exactly", "gzip, chunked"),
    WITH_ENCODING("chunked twice in a list", 400, "exactly", "chunked, chunked"),
    WITH_ENCODING("chunked with parameter", 400, "exactly", "chunked;q=1"),
    WITH_ENCODING("chunked in quotes", 400, "exactly", "\"chunked\""),
    WITH_ENCODING("empty", 400, "exactly", ""),
    WITH_ENCODING("comma before", 400, "exactly", ",chunked"),
    WITH_ENCODING("comma behind", 400, "exactly", "chunked,"),
    WITH_ENCODING("comma behind an unknown one", 400, "exactly", "gzip,"),
    WITH_ENCODING("nothing between commas", 400, "exactly", "gzip, ,br"),
    WITH_ENCODING("tab before", 400, "exactly", "\tchunked"),
    WITH_ENCODING("tab behind", 400, "exactly", "chunked\t"),
    WITH_ENCODING("tab and space behind", 400, "exactly", "chunked\t "),
    WITH_ENCODING("space within", 400, "exactly", "chunk ed"),
    WITH_ENCODING("vertical tab", 400, "control", "\vchunked"),
    WITH_ENCODING("no-break space", 400, "exactly",
                  "\xa0"
                  "chunked"),
    ROW("encoding twice", 400, "Transfer-Encoding is given more than once",
        POST CHUNKED CHUNKED END),
    ROW("encoding twice, the second unknown", 400, "Transfer-Encoding is given more than once",
        POST CHUNKED "Transfer-Encoding: identity\r\n" END),
    ROW("encoding twice, the first unknown", 400, "Transfer-Encoding is given more than once",
        POST "Transfer-Encoding: identity\r\n" CHUNKED END),
    ROW("encoding on 1.0", 400, "HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\n" CHUNKED END),
    ROW("encoding on 1.0 with keep-alive", 400, "HTTP/1.0",
        "POST / HTTP/1.0\r\nConnection: keep-alive\r\n" CHUNKED END),

    /* where a line ends */
    ROW("bare CR hides an encoding", 400, "CR without LF",
        POST "X: a\rTransfer-Encoding: chunked\r\n" END),
    ROW("bare CR in a name", 400, "CR without LF", POST "X\rY: a\r\n" END),
    ROW("bare CR in the request line", 400, "CR without LF", "GET /\r HTTP/1.1\r\nHost: a\r\n" END),
    ROW("CR CR LF", 400, "CR without LF", POST "X: a\r\r\n" END),
    ROW("CRLF CR X ends no head", 400, "CR without LF",
        POST "\rXGET /b HTTP/1.1\r\nHost: a\r\n" END),
    ROW("CRLF CR CR LF", 400, "CR without LF", POST "\r\r\n"),
    ROW("LF ends the request line", 400, "LF alone", "GET / HTTP/1.1\nHost: a\r\n" END),
    ROW("LF ends a header", 400, "LF alone", GET "Host: a\nX: b\r\n" END),
    ROW("LF ends the head", 400, "LF alone", POST "\n"),
    ROW("LF only", 400, "LF alone", "GET / HTTP/1.1\nHost: a\n\n"),
    ROW("CRLF before the request line", 400, "empty line", "\r\n" GET "Host: a\r\n" END),
    ROW("LF before the request line", 400, "LF alone", "\n" GET "Host: a\r\n" END),
    ROW("CR before the request line", 400, "CR without LF", "\r" GET "Host: a\r\n" END),
    ROW("nothing but an empty head", 400, "empty line", "\r\n\r\n"),

    /* folded lines */
    ROW("fold in a value", 400, "folded", POST "X: a\r\n b\r\n" END),
    ROW("fold in a value by tab", 400, "folded", POST "X: a\r\n\tb\r\n" END),
    ROW("fold right behind a colon", 400, "folded", POST "X:\r\n a\r\n" END),
    ROW("fold in an encoding", 400, "folded", POST "Transfer-Encoding:\r\n chunked\r\n" END),
    ROW("fold behind an encoding", 400, "folded", POST CHUNKED " , identity\r\n" END),
    ROW("fold in a length", 400, "folded", POST LENGTH ": 4\r\n 2\r\n" END),
    ROW("space before a length", 400, "folded", POST " " LENGTH ": 4\r\n" END),
    ROW("space before the first header", 400, "folded", GET " Host: a\r\n" END),
    ROW("fold of white space alone", 400, "folded", POST "X: a\r\n \r\n" END),
    ROW("fold of white space ends the head", 400, "folded", POST "\t\r\n" END),

    /* names and values */
    ROW("space before the colon", 400, "followed by white space", POST LENGTH " : 4\r\n" END),
    ROW("tab before the colon", 400, "followed by white space", POST LENGTH "\t: 4\r\n" END),
    ROW("space within a name", 400, "followed by white space", POST "Content Length: 4\r\n" END),
    ROW("no name", 400, "no name", POST ": 4\r\n" END),
    ROW("no colon", 400, "no colon", POST "Nothing\r\n" END),
    ROW("colon of another line", 400, "no colon", POST "X\r\nY: z\r\n" END),
    ROW("bracket in a name", 400, "forbidden", POST "X(y): z\r\n" END),
    ROW("quote in a name", 400, "forbidden", POST "\"X\": z\r\n" END),
    ROW("obs-text in a name", 400, "forbidden", POST "X\xff: z\r\n" END),
    ROW("NUL in a name", 400, "control", POST "X\0: z\r\n" END),
    ROW("NUL in a value", 400, "control", POST "X: a\0b\r\n" END),
    ROW("NUL ends a length", 400, "control", POST LENGTH ": 4\0\r\n" END),
    ROW("VT in a value", 400, "control", POST "X: a\vb\r\n" END),
    ROW("FF in a value", 400, "control", POST "X: a\fb\r\n" END),
    ROW("ESC in a value", 400, "control", POST "X: a\x1b[2J\r\n" END),
    ROW("DEL in a value", 400, "control", POST "X: a\x7f\r\n" END),
    ROW("DEL behind 0xff in a value", 400, "control", POST "X: \xff\x7f\xff\xff\x7f\r\n" END),

    /* Host */
    ROW("no Host", 400, "Host is missing", GET "X: y\r\n" END),
    ROW("no headers at all", 400, "Host is missing", GET END),
    ROW("two Hosts", 400, "Host is given more than once", GET "Host: a\r\nHost: b\r\n" END),
    ROW("two equal Hosts", 400, "Host is given more than once", GET "Host: a\r\nhOST: a\r\n" END),
    ROW("two Hosts on 1.0", 400, "Host is given more than once",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n" END),
    ROW("two Hosts and an absolute target", 400, "Host is given more than once",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n" END),
    ROW("no Host but an absolute target", 400, "Host is missing", "GET http://a/ HTTP/1.1\r\n" END),
    WITH_HOST("empty", ""),
    WITH_HOST("space", "a b"),
    WITH_HOST("tab", "a\tb"),
    WITH_HOST("list", "a, b"),
    WITH_HOST("list without space", "a,b"),
    WITH_HOST("path", "a/b"),
    WITH_HOST("user", "u@a"),
    WITH_HOST("query", "a?b"),
    WITH_HOST("fragment", "a#b"),
    WITH_HOST("backslash", "a\\b"),
    WITH_HOST("obs-text", "\xc3\xa4"),
    WITH_HOST("port alone", ":80"),
    WITH_HOST("port of letters", "a:http"),
    WITH_HOST("signed port", "a:+80"),
    WITH_HOST("port too long", "a:000080"),
    WITH_HOST("two ports", "a:80:80"),
    WITH_HOST("address without brackets", "::1"),
    WITH_HOST("open bracket", "[::1"),
    WITH_HOST("empty brackets", "[]"),
    WITH_HOST("text behind brackets", "[::1]a"),
    WITH_HOST("slash in brackets", "[::1/64]"),

    /* the request line */
    WITH_VERSION("HTTP/2.0", 505, "only", " HTTP/2.0"),
    WITH_VERSION("HTTP/1.2", 505, "only", " HTTP/1.2"),
    WITH_VERSION("HTTP/0.9", 505, "only", " HTTP/0.9"),
    WITH_VERSION("HTTP/9.1", 505, "only", " HTTP/9.1"),
    WITH_VERSION("trailing space", 400, "version", " HTTP/1.1 "),
    WITH_VERSION("trailing tab", 400, "version", " HTTP/1.1\t"),
    WITH_VERSION("lower case", 400, "version", " http/1.1"),
    WITH_VERSION("two digits", 400, "version", " HTTP/1.10"),
    WITH_VERSION("no point", 400, "version", " HTTP/1-1"),
    WITH_VERSION("letter for major", 400, "version", " HTTP/x.1"),
    WITH_VERSION("letter for minor", 400, "version", " HTTP/1.x"),
    WITH_VERSION("cut short", 400, "version", " HTTP/1."),
    WITH_VERSION("empty", 400, "version", " "),
    WITH_VERSION("other protocol", 400, "version", " RTSP/1.0"),
    WITH_VERSION("two spaces before", 400, "version", "  HTTP/1.1"),
    WITH_VERSION("tab before", 400, "forbidden", "\tHTTP/1.1"),
    WITH_VERSION("none", 400, "missing", ""),
    WITH_TARGET("none", "missing", ""),
    WITH_TARGET("space within", "version", "/a b"),
    WITH_TARGET("fragment", "forbidden", "/a#b"),
    WITH_TARGET("NUL", "control", "/a\0b"),
    WITH_TARGET("DEL", "control", "/a\x7f"),
    WITH_TARGET("obs-text", "forbidden", "/\xc3\xa4"),
    WITH_TARGET("relative", "neither", "a/b"),
    WITH_TARGET("query alone", "neither", "?a"),
    WITH_TARGET("star", "neither", "*"),
    WITH_TARGET("authority", "neither", "a:80"),
    WITH_TARGET("ftp", "neither", "ftp://a/"),
    WITH_TARGET("httpx", "neither", "httpx://a/"),
    WITH_TARGET("one slash", "neither", "http:/a"),
    WITH_TARGET("scheme alone", "neither", "http://"),
    WITH_TARGET("scheme cut short", "neither", "http:"),
    WITH_TARGET("no host", "no valid host", "http:///a"),
    WITH_TARGET("port for host", "no valid host", "http://:80/"),
    WITH_TARGET("user in host", "no valid host", "http://u@a/"),
    WITH_TARGET("letters in port", "no valid host", "http://a:b/"),
    ROW("star with a query", 400, "neither", "OPTIONS *?a HTTP/1.1\r\nHost: a\r\n" END),
    ROW("CONNECT", 400, "CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n" END),
    ROW("CONNECT with a path", 400, "CONNECT", "CONNECT / HTTP/1.1\r\nHost: a\r\n" END),
    ROW("no method", 400, "method", " / HTTP/1.1\r\nHost: a\r\n" END),
    ROW("method alone", 400, "method", "GET\r\nHost: a\r\n" END),
    ROW("method with a colon", 400, "method", "G:T / HTTP/1.1\r\nHost: a\r\n" END),
    ROW("tab behind the method", 400, "method", "GET\t/ HTTP/1.1\r\nHost: a\r\n" END),
    ROW("two spaces behind the method", 400, "missing", "GET  / HTTP/1.1\r\nHost: a\r\n" END),
    ROW("header for request line", 400, "method", "Host: a\r\n" END),
    ROW("HTTP/2 preface", 505, "only", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ROW("TLS", 400, "control", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),

    /* expectations */
    ROW("another expectation", 417, "Expect", POST "Expect: 200-ok\r\n" END),
    ROW("two expectations in a list", 417, "Expect", POST "Expect: 100-continue, x\r\n" END),
    ROW("two expectations in two lines", 417, "Expect",
        POST "Expect: 100-continue\r\nExpect: x\r\n" END),
    ROW("an empty expectation", 417, "Expect", POST "Expect:\r\n" END),

    /* what comes first decides */
    ROW("bad version before bad header", 505, "only", "GET / HTTP/3.0\r\n: a\r\n" END),
    ROW("bad header before bad line end", 400, "no name", GET ": a\r\nX: b\n" END),
    ROW("syntax before meaning", 400, "folded", GET "Expect: x\r\n y\r\n" END),
};

static void test_refused(void **state)
{
    const struct row *row = *state;
    struct outcome o;
    judge(row->bytes, &o);
    assert_int_equal(o.rc, -row->status);
    if (strstr(o.why, row->text) == NULL)
        fail_msg("refused for another reason: %s", o.why);
}

static const struct row incomplete[] = {
    ROW("nothing", 0, "", ""),
    ROW("half a method", 0, "", "GE"),
    ROW("half a request line", 0, "", "GET / HTTP/1.1"),
    ROW("a request line but for its LF", 0, "", "GET / HTTP/1.1\r"),
    ROW("a request line", 0, "", GET),
    ROW("half a header", 0, "", GET "Host: "),
    ROW("a header but for its LF", 0, "", GET "Host: a\r"),
    ROW("a header", 0, "", GET "Host: a\r\n"),
    ROW("a head but for its LF", 0, "", GET "Host: a\r\n\r"),
};

static void test_incomplete(void **state)
{
    const struct row *row = *state;
    struct outcome o;
    judge(row->bytes, &o);
    assert_int_equal(o.rc, 0);
}

/* Behind each head stands what no head could hold: it must not be looked at. */
static void accept(struct str head, struct outcome *o)
{
    static const char next[] = "\0\r\n \n: HTTP/9.9";
    judge(head, o);
    if (o->rc < 0)
        fail_msg("refused: %s", o->why);
    assert_int_equal(o->rc, head.n);

    char *both = mem_alloc(head.n + sizeof next);
    memcpy(both, head.p, head.n);
    memcpy(both + head.n, next, sizeof next);
    struct outcome pipelined;
    judge(str_of(both, head.n + sizeof next), &pipelined);
    assert_same(o, head.p, &pipelined, both);
    free(both);
}

static void test_simple_request(void **state)
{
    struct outcome o;
    accept(STR("GET /v1/stream/a%20b?live=sse&offset=-1?x HTTP/1.1\r\n"
               "Host: localhost:4437\r\n"
               "Accept:text/event-stream\r\n" END),
           &o);
    assert_int_equal(o.req.method, METHOD_GET);
    assert_int_equal(o.req.version, 11);
    assert_text(o.req.method_text, "GET");
    assert_text(o.req.path, "/v1/stream/a%20b");
    assert_text(o.req.query, "live=sse&offset=-1?x");
    assert_text(o.req.host, "localhost:4437");
    assert_int_equal(o.req.n_headers, 2);
    assert_text(o.headers[0].name, "Host");
    assert_text(o.headers[0].value, "localhost:4437");
    assert_text(o.headers[1].name, "Accept");
    assert_text(o.headers[1].value, "text/event-stream");
    assert_false(o.framing.has_length || o.framing.chunked);
    assert_true(o.framing.keep_alive);
    assert_false(o.framing.expect_continue || o.framing.upgrade);
}

static void test_values_are_trimmed(void **state)
{
    struct outcome o;
    accept(STR(GET "Host: \t a \t\r\nA:\r\nB:  \t \r\nC:c\r\nD: \xff\xe2\x82\xac\x80\t\"d\" ~\t\r\n"
                   "!#$%&'*+-.^_`|~09azAZ:e:\r\n" END),
           &o);
    assert_text(o.req.host, "a");
    assert_int_equal(o.req.n_headers, 6);
    assert_text(o.headers[1].value, "");
    assert_text(o.headers[2].value, "");
    assert_text(o.headers[3].value, "c");
    assert_text(o.headers[4].value, "\xff\xe2\x82\xac\x80\t\"d\" ~");
    assert_text(o.headers[5].name, "!#$%&'*+-.^_`|~09azAZ");
    assert_text(o.headers[5].value, "e:");
}

static void test_query(void **state)
{
    struct outcome o;
    accept(STR("GET /a HTTP/1.1\r\nHost: a\r\n" END), &o);
    assert_null(o.req.query.p);
    accept(STR("GET /a? HTTP/1.1\r\nHost: a\r\n" END), &o);
    assert_non_null(o.req.query.p);
    assert_int_equal(o.req.query.n, 0);
    assert_text(o.req.path, "/a");
}

static void test_methods(void **state)
{
    static const struct {
        const char *text;
        enum method method;
    } rows[] = {
        {"GET", METHOD_GET},         {"HEAD", METHOD_HEAD},   {"POST", METHOD_POST},
        {"PUT", METHOD_PUT},         {"PATCH", METHOD_PATCH}, {"DELETE", METHOD_DELETE},
        {"OPTIONS", METHOD_OPTIONS}, {"get", METHOD_OTHER},   {"GETS", METHOD_OTHER},
        {"M-SEARCH", METHOD_OTHER},  {"P", METHOD_OTHER},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[64];
        int n = snprintf(text, sizeof text, "%s / HTTP/1.1\r\nHost: a\r\n" END, rows[i].text);
        struct outcome o;
        accept(str_of(text, (size_t)n), &o);
        assert_int_equal(o.req.method, rows[i].method);
        assert_text(o.req.method_text, rows[i].text);
    }
}

static void test_absolute_targets(void **state)
{
    static const struct {
        const char *target, *host, *path, *query;
    } rows[] = {
        {"http://b/", "b", "/", NULL},
        {"http://b:80/x/y?q=1", "b:80", "/x/y", "q=1"},
        {"HTTPS://b.example/x", "b.example", "/x", NULL},
        {"http://b", "b", "/", NULL},
        {"http://b:8080", "b:8080", "/", NULL},
        {"http://b?q=/@", "b", "/", "q=/@"},
        {"http://[fe80::1%25eth0]:80//x", "[fe80::1%25eth0]:80", "//x", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n" END, rows[i].target);
        struct outcome o;
        accept(str_of(text, (size_t)n), &o);
        assert_text(o.req.host, rows[i].host);
        assert_text(o.req.path, rows[i].path);
        if (rows[i].query != NULL)
            assert_text(o.req.query, rows[i].query);
        else
            assert_null(o.req.query.p);
        assert_true(o.req.path.p > text && o.req.path.p < text + n);
    }
}

static void test_options_star(void **state)
{
    struct outcome o;
    accept(STR("OPTIONS * HTTP/1.1\r\nHost: a\r\n" END), &o);
    assert_text(o.req.path, "*");
    assert_null(o.req.query.p);
}

static void test_hosts(void **state)
{
    static const char *const hosts[] = {
        "a",  "a.example:1", "127.0.0.1:65535", "[::1]",         "[::ffff:1.2.3.4]:80",
        "a:", "x-y_z",       "%2Frun%2Fs",      "a!$&'()*+;=~.",
    };
    for (size_t i = 0; i < COUNT(hosts); i++) {
        char text[128];
        int n = snprintf(text, sizeof text, GET "Host: %s\r\n" END, hosts[i]);
        struct outcome o;
        accept(str_of(text, (size_t)n), &o);
        assert_text(o.req.host, hosts[i]);
    }
}

static void test_http_1_0(void **state)
{
    struct outcome o;
    accept(STR("GET / HTTP/1.0\r\n" END), &o);
    assert_int_equal(o.req.version, 10);
    assert_int_equal(o.req.host.n, 0);
    assert_int_equal(o.req.n_headers, 0);
    assert_false(o.framing.keep_alive);
    accept(STR("GET / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n"
               "Connection: keep-alive, upgrade\r\nContent-Length: 3\r\n" END),
           &o);
    assert_text(o.req.host, "a");
    assert_true(o.framing.keep_alive);
    assert_true(o.framing.has_length);
    assert_int_equal(o.framing.content_length, 3);
    /* 1.0 knows neither */
    assert_false(o.framing.expect_continue || o.framing.upgrade);
    accept(STR("GET / HTTP/1.0\r\nConnection:Keep-Alive\t\r\n" END), &o);
    assert_true(o.framing.keep_alive);
    accept(STR("GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n" END), &o);
    assert_false(o.framing.keep_alive);
}

static void test_connection(void **state)
{
    static const struct {
        const char *headers;
        bool keep_alive, upgrade;
    } rows[] = {
        {"", true, false},
        {"Connection: close\r\n", false, false},
        {"connection: CLOSE\r\n", false, false},
        {"Connection: keep-alive\r\n", true, false},
        {"Connection: keep-alive, close\r\n", false, false},
        {"Connection: close,keep-alive\r\n", false, false},
        {"Connection: close\r\nConnection: keep-alive\r\n", false, false},
        {"Connection: keep-alive\r\nX: y\r\nConnection: TE ,\tclose\r\n", false, false},
        {"Connection: ,, ,close\r\n", false, false},
        {"Connection:\r\n", true, false},
        {"Connection: closed\r\n", true, false},
        {"Connection: x close\r\n", true, false},
        {"Connection: Upgrade\r\nUpgrade: websocket\r\n", true, true},
        {"Connection: keep-alive, upgrade, close\r\n", false, true},
        {"Upgrade: websocket\r\n", true, false},
        {"Proxy-Connection: close\r\n", true, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[256];
        int n = snprintf(text, sizeof text, GET "Host: a\r\n%s" END, rows[i].headers);
        struct outcome o;
        accept(str_of(text, (size_t)n), &o);
        assert_int_equal(o.framing.keep_alive, rows[i].keep_alive);
        assert_int_equal(o.framing.upgrade, rows[i].upgrade);
    }
}

static void test_expect_continue(void **state)
{
    struct outcome o;
    accept(STR(POST "Expect: 100-Continue\r\nContent-Length: 1\r\n" END), &o);
    assert_true(o.framing.expect_continue);
}

static void test_lengths(void **state)
{
    static const struct {
        const char *text;
        uint64_t length;
    } rows[] = {
        {"0", 0}, {"7", 7}, {"0007", 7}, {"  7 ", 7}, {"9007199254740992", UINT64_C(1) << 53},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[128];
        int n = snprintf(text, sizeof text, POST "content-length:%s\r\n" END, rows[i].text);
        struct outcome o;
        accept(str_of(text, (size_t)n), &o);
        assert_true(o.framing.has_length);
        assert_false(o.framing.chunked);
        assert_int_equal(o.framing.content_length, rows[i].length);
    }
}

static void test_chunked_header(void **state)
{
    struct outcome o;
    accept(STR(POST CHUNKED END), &o);
    assert_true(o.framing.chunked);
    assert_false(o.framing.has_length);
    accept(STR(POST "TRANSFER-encoding:  Chunked \r\n" END), &o);
    assert_true(o.framing.chunked);
    /* no other name is meant, however near */
    accept(STR(POST "Transfer-Encodin: x\r\nTransfer-Encodings: x\r\nContent_Length: x\r\n"
                    "Content-Lengt: x\r\nContent-Length-: x\r\n" END),
           &o);
    assert_false(o.framing.chunked || o.framing.has_length);
}

/* ---- every byte in every place ---- */

static bool is_token(int c)
{
    return c > 0 && c < 128 &&
           (strchr("!#$%&'*+-.^_`|~", c) != NULL || (c >= '0' && c <= '9') ||
            (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'));
}

static int rc_with(const char *before, int c, const char *after)
{
    char text[128];
    int n = snprintf(text, sizeof text, "%s%c%s", before, 'x', after);
    text[strlen(before)] = (char)c;
    struct outcome o;
    judge(str_of(text, (size_t)n), &o);
    return o.rc;
}

static void test_bytes_of_a_method(void **state)
{
    for (int c = 0; c < 256; c++)
        assert_int_equal(rc_with("G", c, "T / HTTP/1.1\r\nHost: a\r\n" END) > 0, is_token(c));
}

static void test_bytes_of_a_target(void **state)
{
    for (int c = 0; c < 256; c++)
        assert_int_equal(rc_with("GET /a", c, "b HTTP/1.1\r\nHost: a\r\n" END) > 0,
                         c > 0x20 && c < 0x7f && c != '#');
}

static void test_bytes_of_a_name(void **state)
{
    for (int c = 0; c < 256; c++) /* a colon there ends the name: a fine header */
        assert_int_equal(rc_with(GET "Host: a\r\nX", c, "Y: b\r\n" END) > 0,
                         is_token(c) || c == ':');
}

static void test_bytes_of_a_value(void **state)
{
    /* long and short, so that both ways of scanning meet each byte at each place in a word */
    for (int c = 0; c < 256; c++) {
        bool ok = c == '\t' || (c >= 0x20 && c != 0x7f);
        assert_int_equal(rc_with(GET "Host: a\r\nX: ", c, "\r\n" END) > 0, ok);
        assert_int_equal(rc_with(GET "Host: a\r\nX: 1", c, "2\r\n" END) > 0, ok);
        assert_int_equal(rc_with(GET "Host: a\r\nX: \xff", c, "\xff~~345678901234567\r\n" END) > 0,
                         ok);
        assert_int_equal(rc_with(GET "Host: a\r\nX: 123456789012\t", c, "345678\r\n" END) > 0, ok);
    }
}

static void test_bytes_of_a_host(void **state)
{
    for (int c = 0; c < 256; c++) {
        bool ok = c < 128 && (is_token(c) || (c > 0 && strchr("();=", c) != NULL)) &&
                  strchr("#^`|", c) == NULL;
        assert_int_equal(rc_with(GET "Host: a", c, "b\r\n" END) > 0, ok);
    }
}

/* ---- limits, at their edge ---- */

static void put_many(struct buf *b, char c, size_t n)
{
    memset(buf_reserve(b, n), c, n);
    b->n += n;
}

static int rc_and_free(struct buf *b)
{
    struct outcome o;
    judge(buf_str(b), &o);
    if (o.rc > 0)
        assert_int_equal(o.rc, b->n);
    buf_deinit(b);
    return o.rc;
}

static int rc_of_request_line(size_t method, size_t target)
{
    struct buf b = {0};
    put_many(&b, 'M', method);
    buf_put(&b, STR(" /"));
    put_many(&b, 't', target - 1);
    buf_put(&b, STR(" HTTP/1.1\r\nHost: a\r\n" END));
    return rc_and_free(&b);
}

static void test_method_limit(void **state)
{
    assert_true(rc_of_request_line(H1_METHOD_MAX, 1) > 0);
    assert_int_equal(rc_of_request_line(H1_METHOD_MAX + 1, 1), -400);
}

static void test_target_limit(void **state)
{
    assert_true(rc_of_request_line(3, H1_TARGET_MAX) > 0);
    assert_true(rc_of_request_line(H1_METHOD_MAX, H1_TARGET_MAX) > 0);
    assert_int_equal(rc_of_request_line(3, H1_TARGET_MAX + 1), -414);
    assert_int_equal(rc_of_request_line(H1_METHOD_MAX, H1_TARGET_MAX + 1), -414);
    assert_int_equal(rc_of_request_line(3, 2 * H1_TARGET_MAX), -414);
}

static int rc_of_line(size_t n)
{
    struct buf b = {0};
    buf_put(&b, STR(GET "Host: a\r\nX:"));
    put_many(&b, 'x', n - 2);
    buf_put(&b, STR("\r\nY: z\r\n" END));
    return rc_and_free(&b);
}

static void test_line_limit(void **state)
{
    assert_true(rc_of_line(H1_LINE_MAX) > 0);
    assert_int_equal(rc_of_line(H1_LINE_MAX + 1), -431);
    assert_int_equal(rc_of_line(2 * H1_LINE_MAX), -431);
}

static int rc_of_head(size_t n)
{
    struct buf b = {0};
    buf_put(&b, STR(GET "Host: a\r\nX:"));
    put_many(&b, 'x', 8180);
    buf_put(&b, STR("\r\nY:"));
    put_many(&b, 'y', n - b.n - 4);
    buf_put(&b, STR("\r\n" END));
    assert_int_equal(b.n, n);
    return rc_and_free(&b);
}

static void test_head_limit(void **state)
{
    assert_true(rc_of_head(H1_HEAD_MAX - 1) > 0);
    assert_int_equal(rc_of_head(H1_HEAD_MAX), H1_HEAD_MAX);
    assert_int_equal(rc_of_head(H1_HEAD_MAX + 1), -431);
    assert_int_equal(rc_of_head(H1_HEAD_MAX + 2), -431);
}

/* The limit is met as soon as no head could end in time. */
static void test_endless_head(void **state)
{
    struct h1_head_state s = {0};
    struct outcome o = {0};
    struct buf b = {0};
    buf_put(&b, STR(GET "Host: a\r\nX:"));
    put_many(&b, 'x', 8180);
    buf_put(&b, STR("\r\nY:"));
    put_many(&b, 'y', H1_HEAD_MAX - b.n);
    assert_int_equal(parse(&s, b.p, H1_HEAD_MAX - 1, &o), 0);
    assert_int_equal(parse(&s, b.p, H1_HEAD_MAX, &o), -431);
    buf_deinit(&b);
}

static int rc_of_headers(int n, const char *last)
{
    struct buf b = {0};
    buf_put(&b, STR(GET "Host: a\r\n"));
    for (int i = 1; i < n; i++)
        buf_printf(&b, "X-%d: y\r\n", i);
    buf_printf(&b, "%s" END, last);
    return rc_and_free(&b);
}

static void test_headers_limit(void **state)
{
    assert_true(rc_of_headers(H1_HEADERS_MAX, "") > 0);
    assert_int_equal(rc_of_headers(H1_HEADERS_MAX + 1, ""), -431);
    /* however it is cut, the first thing wrong is what is answered */
    assert_int_equal(rc_of_headers(H1_HEADERS_MAX + 1, ": x\r\n"), -431);
    assert_int_equal(rc_of_headers(H1_HEADERS_MAX, " x\r\n"), -431);
    assert_int_equal(rc_of_headers(H1_HEADERS_MAX - 1, " x\r\n"), -400);
}

/* ---- what a head's state remembers ---- */

static void test_bytes_are_scanned_once(void **state)
{
    static const char head[] = GET "Host: a\r\nX: abc";
    struct h1_head_state s = {0};
    struct outcome o = {0};
    for (size_t n = 1; n < sizeof head; n++) {
        assert_int_equal(parse(&s, head, n, &o), 0);
        /* a CR may wait for its LF */
        assert_int_equal(s.scanned, head[n - 1] == '\r' ? n - 1 : n);
    }
    assert_int_equal(s.line, sizeof(GET "Host: a\r\n") - 1);
    assert_int_equal(s.headers, 1);
}

static void test_bad_line_is_refused_at_once(void **state)
{
    struct h1_head_state s = {0};
    struct outcome o = {0};
    struct str line = STR("SSH-2.0-OpenSSH\r\n");
    assert_int_equal(parse(&s, line.p, line.n - 1, &o), 0);
    assert_int_equal(parse(&s, line.p, line.n, &o), -400);
}

static void test_pipelined_heads(void **state)
{
    struct str bytes = STR("GET /a HTTP/1.1\r\nHost: a\r\n" END "PUT /b HTTP/1.1\r\nHost: b\r\n" END
                           "DELETE /c HTTP/1.1\r\nHost: c\r\nX: y");
    struct h1_head_state s = {0};
    struct outcome o = {0};
    bytes = str_skip(bytes, (size_t)parse(&s, bytes.p, bytes.n, &o));
    assert_text(o.req.path, "/a");
    assert_int_equal(parse(&s, bytes.p, 20, &o), 0);
    bytes = str_skip(bytes, (size_t)parse(&s, bytes.p, bytes.n, &o));
    assert_int_equal(o.req.method, METHOD_PUT);
    assert_text(o.req.host, "b");
    assert_int_equal(o.req.n_headers, 1);
    assert_int_equal(parse(&s, bytes.p, bytes.n, &o), 0);
}

/* ---- the chunked coding ---- */

struct body {
    int rc;
    size_t used;
    char data[64 * 1024];
    size_t n;
};

/* Feeds bytes[from..to), as a connection would: what was not used comes again. */
static void feed(struct h1_chunked *c, struct str bytes, struct body *b)
{
    char *copy = copy_of(bytes);
    for (size_t at = 0; at < bytes.n && b->rc == 0;) {
        size_t used;
        struct str data;
        b->rc = h1_chunked_decode(c, copy + at, bytes.n - at, &used, &data);
        assert_true(used > 0 && used <= bytes.n - at);
        assert_true(data.n <= used && b->n + data.n <= sizeof b->data);
        assert_true(data.n == 0 || (data.p >= copy + at && data.p + data.n <= copy + bytes.n));
        if (data.n > 0)
            memcpy(b->data + b->n, data.p, data.n);
        b->n += data.n;
        b->used += used;
        at += used;
    }
    free(copy);
}

static void assert_same_body(const struct body *a, const struct body *b)
{
    assert_int_equal(a->rc, b->rc);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->data, b->data, a->n);
}

static void begin(struct h1_chunked *c, struct body *b)
{
    *c = (struct h1_chunked){0};
    b->rc = 0;
    b->n = b->used = 0;
}

static void decode(struct str bytes, struct body *whole)
{
    static struct body cut;
    struct h1_chunked c;
    begin(&c, whole);
    feed(&c, bytes, whole);
    begin(&c, &cut);
    for (size_t i = 0; i < bytes.n; i++)
        feed(&c, str_of(bytes.p + i, 1), &cut);
    assert_same_body(whole, &cut);
    for (size_t at = 1; at < bytes.n; at += bytes.n < 1024 ? 1 : 61) {
        begin(&c, &cut);
        feed(&c, str_of(bytes.p, at), &cut);
        feed(&c, str_skip(bytes, at), &cut);
        assert_same_body(whole, &cut);
    }
}

#define BODY(name, data, bytes)                                                                    \
    {                                                                                              \
        name, 1, data, STR_INIT(bytes)                                                             \
    }
#define LAST "0\r\n\r\n"

static const struct row bodies[] = {
    BODY("empty", "", LAST),
    BODY("one chunk", "hello", "5\r\nhello\r\n" LAST),
    BODY("several chunks", "hello world", "5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n" LAST),
    BODY("hex digits of both cases", "0123456789abcdef012345678",
         "a\r\n0123456789\r\nF\r\nabcdef012345678\r\n" LAST),
    BODY("leading zeros", "hello",
         "0000000000000005\r\nhello\r\n"
         "0000000000000000\r\n\r\n"),
    BODY("data that looks like chunks", "\r\n0\r\n\r\n", "7\r\n\r\n0\r\n\r\n\r\n" LAST),
    BODY("extension", "hello", "5;a\r\nhello\r\n" LAST),
    BODY("extension with value", "hello", "5;a=b\r\nhello\r\n0;c=1\r\n\r\n"),
    BODY("extension with quotes", "hello", "5;a=\"b; c=d\"\r\nhello\r\n" LAST),
    BODY("extension with empty quotes", "hello", "5;a=\"\"\r\nhello\r\n" LAST),
    BODY("several extensions", "hello", "5;a;b=c;d=\"e\";f\r\nhello\r\n" LAST),
    BODY("trailers", "hello", "5\r\nhello\r\n0\r\nX-Sum: \t1 2\xff\r\nDigest:\r\n\r\n"),
    BODY("trailer without a say", "hello", "5\r\nhello\r\n0\r\nConnection: close\r\n\r\n"),
    BODY(
        "trailers with names near barred ones", "",
        "0\r\nHos: a\r\nHosts: a\r\nContent-Lengt: 1\r\nContent-Length-: 1\r\nContent_Length: 1\r\n"
        "Transfer-Encodings: x\r\nontent-Length: 1\r\n\r\n"),
};

static void test_body(void **state)
{
    const struct row *row = *state;
    static struct body b;
    decode(row->bytes, &b);
    assert_int_equal(b.rc, 1);
    assert_int_equal(b.used, row->bytes.n);
    assert_int_equal(b.n, strlen(row->text));
    assert_memory_equal(b.data, row->text, b.n);
}

#define BAD(name, bytes) ROW("chunked: " name, 400, "", bytes)

static const struct row bad_bodies[] = {
    BAD("no size", "\r\nhello\r\n" LAST),
    BAD("no size, and nothing else", "\r\n\r\n"),
    BAD("no size but an extension, and nothing else", ";a\r\n\r\n"),
    BAD("no size but an extension", ";a=b\r\n" LAST),
    BAD("letter for size", "g\r\n"),
    BAD("letter behind size", "5g\r\nhello\r\n" LAST),
    BAD("0x size", "0x5\r\nhello\r\n" LAST),
    BAD("plus sign", "+5\r\nhello\r\n" LAST),
    BAD("minus sign", "-1\r\nhello\r\n" LAST),
    BAD("space before size", " 5\r\nhello\r\n" LAST),
    BAD("space behind size", "5 \r\nhello\r\n" LAST),
    BAD("tab behind size", "5\t\r\nhello\r\n" LAST),
    BAD("NUL behind size", "5\0\r\nhello\r\n" LAST),
    BAD("underscore in size", "1_0\r\n"),
    BAD("size of 17 digits", "00000000000000005\r\nhello\r\n" LAST),
    BAD("size 2^53 + 1", "20000000000001\r\n"),
    BAD("size 2^64 - 1", "ffffffffffffffff\r\n"),
    BAD("size 2^64", "10000000000000000\r\n"),
    BAD("size 2^64 + 5", "10000000000000005\r\nhello\r\n" LAST),
    BAD("LF behind size", "5\nhello\r\n" LAST),
    BAD("CR without LF behind size", "5\rhello\r\n" LAST),
    BAD("CR CR LF behind size", "5\r\r\nhello\r\n" LAST),
    BAD("data too long", "5\r\nhelloX\r\n" LAST),
    BAD("data too short", "5\r\nhell\r\n" LAST),
    BAD("data not followed by CRLF", "5\r\nhello0\r\n\r\n"),
    BAD("data followed by LF", "5\r\nhello\n" LAST),
    BAD("data followed by X LF", "5\r\nhelloX\n" LAST),
    BAD("data followed by CR X", "5\r\nhello\rX" LAST),
    BAD("data followed by two CRLFs", "5\r\nhello\r\n\r\n" LAST),
    BAD("CR in an extension", "5;a\rb\r\nhello\r\n" LAST),
    BAD("CR in quotes", "5;a=\"\r\"\r\nhello\r\n" LAST),
    BAD("CRLF in quotes", "5;a=\"\r\n\"\r\nhello\r\n" LAST),
    BAD("LF in an extension", "5;a\nhello\r\n" LAST),
    BAD("LF in quotes", "5;a=\"\n\"\r\nhello\r\n" LAST),
    BAD("NUL in an extension", "5;a\0\r\nhello\r\n" LAST),
    BAD("tab in quotes", "5;a=\"\t\"\r\nhello\r\n" LAST),
    BAD("DEL in quotes", "5;a=\"\x7f\"\r\nhello\r\n" LAST),
    BAD("obs-text in quotes", "5;a=\"\xff\"\r\nhello\r\n" LAST),
    BAD("escape in quotes", "5;a=\"\\\"\"\r\nhello\r\n" LAST),
    BAD("extension without name", "5;\r\nhello\r\n" LAST),
    BAD("extension with value only", "5;=a\r\nhello\r\n" LAST),
    BAD("extension without value", "5;a=\r\nhello\r\n" LAST),
    BAD("second extension without name", "5;a;\r\nhello\r\n" LAST),
    BAD("extension with two values", "5;a=b=c\r\nhello\r\n" LAST),
    BAD("space before an extension", "5 ;a\r\nhello\r\n" LAST),
    BAD("space in an extension", "5; a\r\nhello\r\n" LAST),
    BAD("space behind an extension", "5;a \r\nhello\r\n" LAST),
    BAD("open quotes", "5;a=\"b\r\nhello\r\n" LAST),
    BAD("text behind quotes", "5;a=\"b\"c\r\nhello\r\n" LAST),
    BAD("value behind quotes", "5;a=\"b\"=c\r\nhello\r\n" LAST),
    BAD("quotes within a value", "5;a=b\"c\"\r\nhello\r\n" LAST),
    BAD("last chunk with data", "0\r\nhello\r\n\r\n"),
    BAD("LF ends the message", "0\r\n\n"),
    BAD("CR X ends the message", "0\r\n\rX"),
    BAD("Content-Length in a trailer", "0\r\nContent-Length: 5\r\n\r\n"),
    BAD("Content-Length in the second trailer", "0\r\nX: y\r\ncontent-LENGTH: 5\r\n\r\n"),
    BAD("Transfer-Encoding in a trailer", "0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD("Host in a trailer", "0\r\nhOsT: a\r\n\r\n"),
    BAD("fold in a trailer", "0\r\nX: y\r\n z\r\n\r\n"),
    BAD("space before a trailer", "0\r\n X: y\r\n\r\n"),
    BAD("space before a trailer's colon", "0\r\nX : y\r\n\r\n"),
    BAD("no name in a trailer", "0\r\n: y\r\n\r\n"),
    BAD("no name in the second trailer", "0\r\nX: y\r\n: y\r\n\r\n"),
    BAD("no colon in a trailer", "0\r\nX\r\n\r\n"),
    BAD("NUL in a trailer", "0\r\nX: \0\r\n\r\n"),
    BAD("DEL in a trailer", "0\r\nX: \x7f\r\n\r\n"),
    BAD("LF ends a trailer", "0\r\nX: y\n\r\n"),
    BAD("CR X in a trailer", "0\r\nX: y\rX\r\n\r\n"),
};

static void test_bad_body(void **state)
{
    const struct row *row = *state;
    static struct body b;
    decode(row->bytes, &b);
    assert_int_equal(b.rc, -400);
}

static void test_unfinished_bodies_wait(void **state)
{
    struct str whole = STR("5;a=\"b\";c\r\nhello\r\n0\r\nX: y\r\n\r\n");
    static struct body b;
    for (size_t n = 0; n < whole.n; n++) {
        decode(str_of(whole.p, n), &b);
        assert_int_equal(b.rc, 0);
        assert_int_equal(b.used, n);
    }
}

static void test_bytes_behind_a_body(void **state)
{
    struct str body = STR("5\r\nhello\r\n" LAST);
    struct str bytes = STR("5\r\nhello\r\n" LAST "GET / HTTP/1.1\r\n");
    static struct body b;
    decode(bytes, &b);
    assert_int_equal(b.rc, 1);
    assert_int_equal(b.used, body.n);
}

static void test_largest_chunk_size(void **state)
{
    struct h1_chunked c = {0};
    struct str in = STR("0020000000000000\r\nxyz"), data;
    size_t used;
    assert_int_equal(h1_chunked_decode(&c, in.p, in.n, &used, &data), 0);
    assert_int_equal(used, in.n);
    assert_text(data, "xyz");
    assert_int_equal(c.left, H1_LENGTH_MAX - 3);
}

static void test_the_end_stays_the_end(void **state)
{
    static const struct str ends[] = {STR_INIT(LAST), STR_INIT("x")};
    static const int results[] = {1, -400};
    for (int i = 0; i < 2; i++) {
        struct h1_chunked c = {0};
        size_t used;
        struct str data;
        assert_int_equal(h1_chunked_decode(&c, ends[i].p, ends[i].n, &used, &data), results[i]);
        assert_int_equal(h1_chunked_decode(&c, LAST, 5, &used, &data), results[i]);
        assert_int_equal(used, 0);
        assert_int_equal(data.n, 0);
    }
}

static int rc_of_extension(size_t n)
{
    static struct body body;
    struct buf b = {0};
    buf_put(&b, STR("5;"));
    put_many(&b, 'a', n - 1);
    buf_put(&b, STR("\r\nhello\r\n" LAST));
    decode(buf_str(&b), &body);
    buf_deinit(&b);
    return body.rc;
}

static void test_extension_limit(void **state)
{
    assert_int_equal(rc_of_extension(H1_CHUNK_EXT_MAX), 1);
    assert_int_equal(rc_of_extension(H1_CHUNK_EXT_MAX + 1), -400);
    assert_int_equal(rc_of_extension(1000), -400);
}

static int rc_of_trailers(size_t n)
{
    static struct body body;
    struct buf b = {0};
    buf_put(&b, STR("0\r\n"));
    for (int i = 0; i < 7; i++)
        buf_printf(&b, "X:%0*d\r\n", 1000 - 4, i);
    n -= 7000;
    buf_printf(&b, "Y:%0*d\r\n\r\n", (int)n - 4, 0);
    decode(buf_str(&b), &body);
    buf_deinit(&b);
    return body.rc;
}

static void test_trailers_limit(void **state)
{
    assert_int_equal(rc_of_trailers(H1_TRAILERS_MAX), 1);
    assert_int_equal(rc_of_trailers(H1_TRAILERS_MAX + 1), -400);
}

static void test_bytes_of_an_extension(void **state)
{
    static struct body b;
    for (int c = 0; c < 256; c++) {
        char name[] = "1;a?b\r\nx\r\n" LAST, value[] = "1;a=b?c\r\nx\r\n" LAST;
        char quoted[] = "1;a=\"?\"\r\nx\r\n" LAST;
        name[3] = value[5] = quoted[5] = (char)c;
        decode(str_of(name, sizeof name - 1), &b);
        assert_int_equal(b.rc == 1, is_token(c) || c == ';' || c == '=');
        decode(str_of(value, sizeof value - 1), &b);
        assert_int_equal(b.rc == 1, is_token(c) || c == ';');
        decode(str_of(quoted, sizeof quoted - 1), &b);
        assert_int_equal(b.rc == 1, c >= 0x20 && c < 0x7f && c != '"' && c != '\\');
    }
}

static void test_bytes_of_a_trailer(void **state)
{
    static struct body b;
    for (int c = 0; c < 256; c++) {
        char name[] = "0\r\nX?Y: z\r\n\r\n", value[] = "0\r\nX: a?b\r\n\r\n";
        name[4] = value[7] = (char)c;
        decode(str_of(name, sizeof name - 1), &b);
        assert_int_equal(b.rc == 1, is_token(c) || c == ':');
        decode(str_of(value, sizeof value - 1), &b);
        assert_int_equal(b.rc == 1, c == '\t' || (c >= 0x20 && c != 0x7f));
    }
}

/* ---- all of it ---- */

static const struct CMUnitTest others[] = {
    cmocka_unit_test(test_simple_request),
    cmocka_unit_test(test_values_are_trimmed),
    cmocka_unit_test(test_query),
    cmocka_unit_test(test_methods),
    cmocka_unit_test(test_absolute_targets),
    cmocka_unit_test(test_options_star),
    cmocka_unit_test(test_hosts),
    cmocka_unit_test(test_http_1_0),
    cmocka_unit_test(test_connection),
    cmocka_unit_test(test_expect_continue),
    cmocka_unit_test(test_lengths),
    cmocka_unit_test(test_chunked_header),
    cmocka_unit_test(test_bytes_of_a_method),
    cmocka_unit_test(test_bytes_of_a_target),
    cmocka_unit_test(test_bytes_of_a_name),
    cmocka_unit_test(test_bytes_of_a_value),
    cmocka_unit_test(test_bytes_of_a_host),
    cmocka_unit_test(test_method_limit),
    cmocka_unit_test(test_target_limit),
    cmocka_unit_test(test_line_limit),
    cmocka_unit_test(test_head_limit),
    cmocka_unit_test(test_endless_head),
    cmocka_unit_test(test_headers_limit),
    cmocka_unit_test(test_bytes_are_scanned_once),
    cmocka_unit_test(test_bad_line_is_refused_at_once),
    cmocka_unit_test(test_pipelined_heads),
    cmocka_unit_test(test_unfinished_bodies_wait),
    cmocka_unit_test(test_bytes_behind_a_body),
    cmocka_unit_test(test_largest_chunk_size),
    cmocka_unit_test(test_the_end_stays_the_end),
    cmocka_unit_test(test_extension_limit),
    cmocka_unit_test(test_trailers_limit),
    cmocka_unit_test(test_bytes_of_an_extension),
    cmocka_unit_test(test_bytes_of_a_trailer),
};

#define TESTS                                                                                      \
    (COUNT(others) + COUNT(refused) + COUNT(incomplete) + COUNT(bodies) + COUNT(bad_bodies))

static size_t add_rows(struct CMUnitTest *tests, size_t at, const struct row *rows, size_t n,
                       CMUnitTestFunction run)
{
    for (size_t i = 0; i < n; i++)
        tests[at++] = (struct CMUnitTest){
            .name = rows[i].name, .test_func = run, .initial_state = (void *)&rows[i]};
    return at;
}

int main(void)
{
    struct CMUnitTest tests[TESTS];
    memcpy(tests, others, sizeof others);
    size_t n = COUNT(others);
    n = add_rows(tests, n, refused, COUNT(refused), test_refused);
    n = add_rows(tests, n, incomplete, COUNT(incomplete), test_incomplete);
    n = add_rows(tests, n, bodies, COUNT(bodies), test_body);
    add_rows(tests, n, bad_bodies, COUNT(bad_bodies), test_bad_body);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
