// SPDX-License-Identifier: Apache-2.0
#include "http/h1_parse.h"
#include "base/must.h"
#include "base/num.h"

#include <endian.h>

/* A head is read line by line, and a line is judged when its CRLF is there: syntax first, line by
 * line, and then, with the empty line, what the lines mean together. So a verdict depends on the
 * bytes alone and not on how they were cut up on their way here. */

enum {
    TOKEN = 1,   /* methods and header names */
    TARGET = 2,  /* visible, but for the fragment's `#`, which no client sends */
    HOST = 4,    /* a name; without `,`, which is what two Host headers joined look like */
    HEX = 8,     /* digits of a chunk's size */
    QUOTED = 16, /* within the quotes of a chunk extension; no escapes */
    TEXT = 32,   /* header values */
    ALPHANUM = TOKEN | TARGET | HOST | QUOTED | TEXT,
    VISIBLE = TARGET | QUOTED | TEXT,
};

static const uint8_t classes[256] = {
    ['\t'] = TEXT,
    [' '] = QUOTED | TEXT,
    ['!'] = VISIBLE | TOKEN | HOST,
    ['"'] = TARGET | TEXT,
    ['#'] = QUOTED | TEXT | TOKEN,
    ['$'] = VISIBLE | TOKEN | HOST,
    ['%'] = VISIBLE | TOKEN | HOST,
    ['&'] = VISIBLE | TOKEN | HOST,
    ['\''] = VISIBLE | TOKEN | HOST,
    ['('] = VISIBLE | HOST,
    [')'] = VISIBLE | HOST,
    ['*'] = VISIBLE | TOKEN | HOST,
    ['+'] = VISIBLE | TOKEN | HOST,
    [','] = VISIBLE,
    ['-'] = VISIBLE | TOKEN | HOST,
    ['.'] = VISIBLE | TOKEN | HOST,
    ['/'] = VISIBLE,
    ['0' ... '9'] = ALPHANUM | HEX,
    [':'] = VISIBLE,
    [';'] = VISIBLE | HOST,
    ['<'] = VISIBLE,
    ['='] = VISIBLE | HOST,
    ['>'] = VISIBLE,
    ['?'] = VISIBLE,
    ['@'] = VISIBLE,
    ['A' ... 'F'] = ALPHANUM | HEX,
    ['G' ... 'Z'] = ALPHANUM,
    ['['] = VISIBLE,
    ['\\'] = TARGET | TEXT,
    [']'] = VISIBLE,
    ['^'] = VISIBLE | TOKEN,
    ['_'] = VISIBLE | TOKEN | HOST,
    ['`'] = VISIBLE | TOKEN,
    ['a' ... 'f'] = ALPHANUM | HEX,
    ['g' ... 'z'] = ALPHANUM,
    ['{'] = VISIBLE,
    ['|'] = VISIBLE | TOKEN,
    ['}'] = VISIBLE,
    ['~'] = VISIBLE | TOKEN | HOST,
    [0x80 ... 0xff] = TEXT,
};

static bool is(char c, uint8_t class)
{
    return (classes[(uint8_t)c] & class) != 0;
}

/* How many bytes from p on are of that class. The run must end before the buffer does; within a
 * line it does so at its CR, which is of no class. */
static size_t span(const char *p, uint8_t class)
{
    const char *end = p;
    while (is(*end, class))
        end++;
    return (size_t)(end - p);
}

/* A head while it is read: the results so far, and what must be judged together. */
struct head {
    struct request *req;
    const char **why;
    struct str authority; /* of an absolute target; n == 0: none */
    struct str host, length, encoding;
    uint8_t hosts, lengths, encodings, authorizations; /* how often each was given */
    uint64_t names;                                    /* header_bit of all */
    bool close, keep_alive, upgrade;
    bool expect_continue, expect_other;
};

static int h1_parse_refuse(const struct head *h, int status, const char *why)
{
    *h->why = why;
    return -status;
}

/* ---- lines ---- */

/* The high bit of each byte below 0x20 and of each 0x7f. None is missed; above the lowest one
 * found, and above a 0xff, some may be false, since carries and borrows run upwards. */
static uint64_t control_bits(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    return ((word - ones * 0x20) | (word + ones)) & ~word & (ones * 0x80);
}

/* The first byte of bytes[from..to) that a line cannot hold; `to` if there is none. */
static size_t find_line_end(const char *bytes, size_t from, size_t to)
{
    while (to - from >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + from, sizeof word);
        uint64_t found = control_bits(le64toh(word));
        if (found == 0) {
            from += sizeof word;
            continue;
        }
        from += (size_t)__builtin_ctzll(found) / 8;
        if (!is(bytes[from], TEXT))
            return from;
        from++;
    }
    while (from < to && is(bytes[from], TEXT))
        from++;
    return from;
}

#define REQUEST_LINE_MAX (H1_METHOD_MAX + 1 + H1_TARGET_MAX + 1 + 8)

/* The next line without its CRLF, which stands behind it. 1, 0 when it is incomplete, or a
 * refusal. */
static int next_line(const struct head *h, struct h1_head_state *state, const char *bytes, size_t n,
                     struct str *line)
{
    size_t max = state->line == 0 ? REQUEST_LINE_MAX : H1_LINE_MAX;
    size_t stop = state->line + max + 1;
    if (stop > n)
        stop = n;
    size_t at = find_line_end(bytes, state->scanned, stop);
    state->scanned = (uint16_t)at;
    if (at - state->line > max)
        return state->line == 0 ? h1_parse_refuse(h, 414, "the request line is too long")
                                : h1_parse_refuse(h, 431, "a header line is too long");
    if (at == stop || (bytes[at] == '\r' && at + 1 == n))
        return 0;
    if (bytes[at] == '\n')
        return h1_parse_refuse(h, 400, "a line ends with LF alone; lines end with CR LF");
    if (bytes[at] != '\r')
        return h1_parse_refuse(h, 400, "the request head holds a control character");
    if (bytes[at + 1] != '\n')
        return h1_parse_refuse(h, 400, "the request head holds a CR without LF");
    *line = str_of(bytes + state->line, at - state->line);
    state->line = state->scanned = (uint16_t)(at + 2);
    return 1;
}

/* ---- the request line ---- */

enum method h1_method(struct str text)
{
    static const struct {
        struct str text;
        enum method method;
    } known[] = {
        {STR_INIT("POST"), METHOD_POST},       {STR_INIT("GET"), METHOD_GET},
        {STR_INIT("PUT"), METHOD_PUT},         {STR_INIT("HEAD"), METHOD_HEAD},
        {STR_INIT("DELETE"), METHOD_DELETE},   {STR_INIT("PATCH"), METHOD_PATCH},
        {STR_INIT("OPTIONS"), METHOD_OPTIONS},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_eq(text, known[i].text))
            return known[i].method;
    return METHOD_OTHER;
}

static int parse_version(const struct head *h, struct str text)
{
    const char *p = text.p;
    if (text.n != 8 || memcmp(p, "HTTP/", 5) != 0 || p[6] != '.' || p[5] < '0' || p[5] > '9' ||
        p[7] < '0' || p[7] > '9')
        return h1_parse_refuse(h, 400,
                               "the request line does not end with a version such as HTTP/1.1");
    if (p[5] != '1' || p[7] > '1')
        return h1_parse_refuse(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    h->req->version = p[7] == '1' ? 11 : 10;
    return 0;
}

bool h1_host_ok(struct str s)
{
    size_t i = 0;
    if (s.n > 0 && s.p[0] == '[') {
        for (i = 1; i < s.n && (is(s.p[i], HOST) || s.p[i] == ':'); i++)
            ;
        if (i == 1 || i == s.n || s.p[i] != ']')
            return false;
        i++;
    } else {
        while (i < s.n && is(s.p[i], HOST))
            i++;
    }
    if (i == 0 || i == s.n)
        return i > 0;
    if (s.p[i] != ':' || s.n - i > sizeof ":65535" - 1)
        return false;
    for (i++; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

bool h1_target_ok(struct str s)
{
    size_t i = 0;
    while (i < s.n && is(s.p[i], TARGET))
        i++;
    return i > 0 && i == s.n;
}

static void split_query(struct request *req, struct str target)
{
    struct str rest = target;
    req->path = str_cut(&rest, '?');
    req->query = rest;
}

/* The authority and what follows it: `host:port/path?query`, the last two optional. */
static int parse_absolute(struct head *h, struct str rest)
{
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
        n++;
    h->authority = str_of(rest.p, n);
    if (!h1_host_ok(h->authority))
        return h1_parse_refuse(h, 400, "the request target names no valid host");
    split_query(h->req, str_skip(rest, n));
    /* No path means `/`. There is one at hand: the last of the `//` before the host. */
    if (h->req->path.n == 0)
        h->req->path = str_of(rest.p - 1, 1);
    return 0;
}

static int parse_target(struct head *h, struct str target)
{
    if (target.p[0] == '/') {
        split_query(h->req, target);
        return 0;
    }
    if (target.n == 1 && target.p[0] == '*' && h->req->method == METHOD_OPTIONS) {
        h->req->path = target;
        h->req->query = STR_NONE;
        return 0;
    }
    struct str scheme = str_of(target.p, span(target.p, HOST));
    size_t n = scheme.n + sizeof "://" - 1;
    if ((str_eq_nocase(scheme, STR("http")) || str_eq_nocase(scheme, STR("https"))) &&
        n < target.n && memcmp(target.p + scheme.n, "://", 3) == 0)
        return parse_absolute(h, str_skip(target, n));
    return h1_parse_refuse(h, 400, "the request target is neither a path nor an http URL");
}

static int parse_request_line(struct head *h, struct str line)
{
    if (line.n == 0)
        return h1_parse_refuse(h, 400, "an empty line stands where the request line should be");
    struct str method = str_of(line.p, span(line.p, TOKEN));
    if (method.n == 0 || line.p[method.n] != ' ')
        return h1_parse_refuse(h, 400, "the request line does not begin with a method and a space");
    if (method.n > H1_METHOD_MAX)
        return h1_parse_refuse(h, 400, "the method is too long");
    struct str target = str_skip(line, method.n + 1);
    target.n = span(target.p, TARGET);
    if (target.n > H1_TARGET_MAX)
        return h1_parse_refuse(h, 414, "the request target is too long");
    if (target.n == 0 || target.p[target.n] != ' ')
        return h1_parse_refuse(h, 400,
                               "the request target is missing or holds a forbidden character");
    h->req->method_text = method;
    h->req->method = h1_method(method);
    int err = parse_version(h, str_skip(line, method.n + 1 + target.n + 1));
    if (err < 0)
        return err;
    /* Its target is a host, and its success turns the connection into a tunnel. */
    if (str_eq(method, STR("CONNECT")))
        return h1_parse_refuse(h, 400, "CONNECT is for proxies, and this is none");
    return parse_target(h, target);
}

/* ---- header lines ---- */

static void note_connection(struct head *h, struct str list)
{
    while (list.p != NULL) {
        struct str option = str_trim(str_cut(&list, ','));
        h->close |= str_eq_nocase(option, STR("close"));
        h->keep_alive |= str_eq_nocase(option, STR("keep-alive"));
        h->upgrade |= str_eq_nocase(option, STR("upgrade"));
    }
}

/* Do eight bytes of a token become these when bit 0x20 of each is set? */
static inline bool word_is(const char *token, const char *lower)
{
    uint64_t t, l;
    memcpy(&t, token, sizeof t);
    memcpy(&l, lower, sizeof l);
    return (t | UINT64_C(0x2020202020202020)) == l;
}

static inline bool half_word_is(const char *token, const char *lower)
{
    uint32_t t, l;
    memcpy(&t, token, sizeof t);
    memcpy(&l, lower, sizeof l);
    return (t | 0x20202020u) == l;
}

/* Whether a token is `lower`, in any case. lower is made of 4 to 24 small letters and `-`; of the
 * bytes of a token, none but these and the capitals become such when bit 0x20 is set. Words that
 * overlap: most requests have several of those that are asked for. */
static inline bool token_is(struct str token, struct str lower)
{
    size_t n = lower.n;
    if (token.n != n)
        return false;
    if (n < 8)
        return half_word_is(token.p, lower.p) && half_word_is(token.p + n - 4, lower.p + n - 4);
    return word_is(token.p, lower.p) && word_is(token.p + n - 8, lower.p + n - 8) &&
           (n <= 16 || word_is(token.p + n - 16, lower.p + n - 16));
}

/* Tabs are white space to some readers and part of the value to others (llhttp 8 is both). Where a
 * message ends must not depend on that: around these values they stay, and make them wrong. */
static struct str trim_spaces(struct str s)
{
    while (s.n > 0 && s.p[0] == ' ')
        s = str_skip(s, 1);
    while (s.n > 0 && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

static void note_expect(struct head *h, struct str value)
{
    bool known = str_eq_nocase(value, STR("100-continue"));
    h->expect_continue |= known;
    h->expect_other |= !known;
}

/* Keeps what framing, routing and the guard need. raw: the value as it came. */
static void note_header(struct head *h, const struct header *header, struct str raw)
{
    struct str name = header->name;
    switch (name.n) {
    case 4:
        if (token_is(name, STR("host"))) {
            h->host = header->value;
            h->hosts++;
        }
        break;
    case 6:
        if (token_is(name, STR("expect")))
            note_expect(h, header->value);
        break;
    case 10:
        if (token_is(name, STR("connection")))
            note_connection(h, header->value);
        break;
    case 13:
        if (token_is(name, STR("authorization"))) {
            h->req->authorization = h->req->n_headers;
            h->authorizations++;
        }
        break;
    case 14:
        if (token_is(name, STR("content-length"))) {
            h->length = trim_spaces(raw);
            h->lengths++;
        }
        break;
    case 17:
        if (token_is(name, STR("transfer-encoding"))) {
            h->encoding = trim_spaces(raw);
            h->encodings++;
        }
        break;
    default: break;
    }
}

/* Why a header line whose first n bytes are a token does not begin with a name and a colon. */
static int refuse_name(const struct head *h, struct str line, size_t n)
{
    char c = line.p[n];
    if (n == 0 && (c == ' ' || c == '\t'))
        return h1_parse_refuse(h, 400,
                               "a header line begins with white space; folded lines are refused");
    if (n == 0 && c == ':')
        return h1_parse_refuse(h, 400, "a header has no name");
    if (c == ' ' || c == '\t')
        return h1_parse_refuse(h, 400,
                               "a header name is followed by white space and not by its colon");
    if (n == line.n)
        return h1_parse_refuse(h, 400, "a header line has no colon");
    return h1_parse_refuse(h, 400, "a header name holds a forbidden character");
}

/* As str_trim, whose calls would take a tenth of the time. The line's CR ends the first loop. */
static inline struct str trim_value(const char *p, const char *end)
{
    while (*p == ' ' || *p == '\t')
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return str_of(p, (size_t)(end - p));
}

static int parse_header_line(struct head *h, struct str line)
{
    struct request *req = h->req;
    if (req->n_headers == H1_HEADERS_MAX)
        return h1_parse_refuse(h, 431, "the request has too many headers");
    size_t n = span(line.p, TOKEN);
    if (n == 0 || line.p[n] != ':')
        return refuse_name(h, line, n);
    struct header *header = &req->headers[req->n_headers++];
    header->name = str_of(line.p, n);
    header->value = trim_value(line.p + n + 1, line.p + line.n);
    h->names |= header_bit(header->name);
    note_header(h, header, str_skip(line, n + 1));
    return 0;
}

/* ---- what the lines mean together ---- */

static int judge_host(struct head *h)
{
    if (h->hosts > 1)
        return h1_parse_refuse(h, 400, "Host is given more than once");
    if (h->hosts == 0 && h->req->version == 11)
        return h1_parse_refuse(h, 400, "Host is missing");
    if (h->hosts == 1 && !h1_host_ok(h->host))
        return h1_parse_refuse(h, 400, "Host is not a host name with an optional port");
    h->req->host = h->authority.n > 0 ? h->authority : h->host;
    return 0;
}

/* Transfer-Encoding other than `chunked`: codings we could know and do not, or something that
 * another reader of the same bytes may take for chunked. */
static int refuse_encoding(const struct head *h)
{
    struct str list = h->encoding;
    bool odd = false;
    while (list.p != NULL) {
        struct str rest = str_cut(&list, ',');
        struct str coding = str_trim(str_cut(&rest, ';'));
        odd |= coding.n == 0 || span(coding.p, TOKEN) < coding.n;
        odd |= str_eq_nocase(coding, STR("chunked"));
    }
    if (odd)
        return h1_parse_refuse(h, 400, "Transfer-Encoding is not exactly `chunked`");
    return h1_parse_refuse(h, 501, "Transfer-Encoding names a coding other than `chunked`");
}

static int judge_body(const struct head *h, struct h1_framing *framing)
{
    if (h->lengths > 1)
        return h1_parse_refuse(h, 400, "Content-Length is given more than once");
    if (h->encodings > 1)
        return h1_parse_refuse(h, 400, "Transfer-Encoding is given more than once");
    if (h->lengths > 0 && h->encodings > 0)
        return h1_parse_refuse(h, 400, "both Content-Length and Transfer-Encoding are given");
    if (h->encodings > 0 && h->req->version == 10)
        return h1_parse_refuse(h, 400, "Transfer-Encoding is unknown to HTTP/1.0");
    if (h->encodings > 0 && !str_eq_nocase(h->encoding, STR("chunked")))
        return refuse_encoding(h);
    if (h->lengths > 0 && num_parse(h->length, H1_LENGTH_MAX, &framing->content_length) < 0)
        return h1_parse_refuse(h, 400,
                               "Content-Length is not a number of bytes, or too large a one");
    framing->has_length = h->lengths > 0;
    framing->chunked = h->encodings > 0;
    return 0;
}

static int h1_parse_judge(struct head *h, struct h1_framing *framing)
{
    *framing = (struct h1_framing){0};
    int err = judge_host(h);
    if (err == 0)
        err = judge_body(h, framing);
    if (err < 0)
        return err;
    if (h->expect_other)
        return h1_parse_refuse(h, 417, "Expect asks for something other than `100-continue`");
    h->req->absent = ~h->names;
    if (h->authorizations != 1)
        h->req->authorization = 0;
    bool v11 = h->req->version == 11;
    framing->keep_alive = !h->close && (v11 || h->keep_alive);
    framing->expect_continue = h->expect_continue && v11;
    framing->upgrade = h->upgrade && v11;
    return 0;
}

/* From the line the state is at to the empty line. The head's length, 0 or a refusal. */
static int parse_lines(struct head *h, struct h1_head_state *state, const char *bytes, size_t n)
{
    h->req->n_headers = state->headers;
    for (;;) {
        struct str line;
        bool first = state->line == 0;
        int rc = next_line(h, state, bytes, n, &line);
        if (rc <= 0)
            return rc;
        if (!first && line.n == 0)
            return (int)state->line;
        rc = first ? parse_request_line(h, line) : parse_header_line(h, line);
        if (rc < 0)
            return rc;
        state->headers = h->req->n_headers;
    }
}

int h1_parse_head(struct h1_head_state *state, const char *bytes, size_t n, struct request *req,
                  struct h1_framing *framing, const char **why)
{
    struct head h = {.req = req, .why = why};
    bool resumed = state->line > 0;
    int rc = n == 0 ? 0 : parse_lines(&h, state, bytes, n < H1_HEAD_MAX ? n : H1_HEAD_MAX);
    if (rc == 0 && n >= H1_HEAD_MAX)
        return h1_parse_refuse(&h, 431, "the request head is too long");
    if (rc > 0 && resumed) {
        /* Lines of earlier calls were judged but not kept: the bytes may have moved since. */
        h = (struct head){.req = req, .why = why};
        *state = (struct h1_head_state){0};
        rc = parse_lines(&h, state, bytes, (size_t)rc);
        must(rc > 0);
    }
    if (rc <= 0)
        return rc;
    *state = (struct h1_head_state){0};
    int err = h1_parse_judge(&h, framing);
    return err < 0 ? err : rc;
}

/* ---- the chunked coding ----
 *
 *   *( size *ext CRLF data CRLF )  zero *ext CRLF  *( trailer CRLF )  CRLF
 *
 *   size     1 to 16 hex digits         ext     `;` token [ `=` ( token / quoted ) ]
 *   trailer  a header line              quoted  visible ASCII but `\` and `"`, and spaces, in `"`
 */

enum {
    CHUNK_SIZE, /* zero: a fresh decoder is here */
    CHUNK_EXT,  /* behind `;` */
    CHUNK_EXT_NAME,
    CHUNK_EXT_EQUALS, /* behind `=` */
    CHUNK_EXT_VALUE,
    CHUNK_EXT_QUOTED,
    CHUNK_EXT_CLOSED, /* behind the second quote */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER, /* at the start of a trailer line or of the last empty line */
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
    CHUNK_BAD,
};

#define SIZE_DIGITS_MAX 16

/* What a trailer must not say, whoever else reads it: where messages end and where they go. */
static const struct str barred[] = {
    STR_INIT("content-length"),
    STR_INIT("transfer-encoding"),
    STR_INIT("host"),
};
#define BARRED (sizeof barred / sizeof barred[0])

/* A trailer's name is compared as it passes by: bit k of `left` says that its first `line` bytes
 * are those of barred[k], in the way of token_is. */
static void trailer_name_byte(struct h1_chunked *c, char b)
{
    for (size_t k = 0; k < BARRED; k++)
        if (c->line >= barred[k].n || barred[k].p[c->line] != (b | 0x20))
            c->left &= ~(UINT64_C(1) << k);
    c->line++;
}

static bool trailer_name_ok(const struct h1_chunked *c)
{
    for (size_t k = 0; k < BARRED; k++)
        if ((c->left >> k & 1) && c->line == barred[k].n)
            return false;
    return c->line > 0;
}

static bool size_digit(struct h1_chunked *c, char b)
{
    c->left = c->left << 4 | (uint64_t)((b & 15) + (b > '9' ? 9 : 0));
    return ++c->line <= SIZE_DIGITS_MAX && c->left <= H1_LENGTH_MAX;
}

/* Nobody needs extensions, but a reader that is lax about them may see another line end. */
static uint8_t extension_step(struct h1_chunked *c, char b)
{
    if (++c->line > H1_CHUNK_EXT_MAX + 1) /* the CR is counted too */
        return CHUNK_BAD;
    switch (c->state) {
    case CHUNK_EXT: return is(b, TOKEN) ? CHUNK_EXT_NAME : CHUNK_BAD;
    case CHUNK_EXT_EQUALS:
        if (b == '"')
            return CHUNK_EXT_QUOTED;
        return is(b, TOKEN) ? CHUNK_EXT_VALUE : CHUNK_BAD;
    case CHUNK_EXT_QUOTED:
        if (b == '"')
            return CHUNK_EXT_CLOSED;
        return is(b, QUOTED) ? CHUNK_EXT_QUOTED : CHUNK_BAD;
    case CHUNK_EXT_NAME:
        if (b == '=')
            return CHUNK_EXT_EQUALS;
        /* fall through */
    default:
        if (b == ';')
            return CHUNK_EXT;
        if (b == '\r')
            return CHUNK_SIZE_LF;
        return is(b, TOKEN) && c->state != CHUNK_EXT_CLOSED ? c->state : CHUNK_BAD;
    }
}

/* The state after one byte that is not data. */
static uint8_t chunk_step(struct h1_chunked *c, char b)
{
    switch (c->state) {
    case CHUNK_SIZE:
        if (is(b, HEX))
            return size_digit(c, b) ? CHUNK_SIZE : CHUNK_BAD;
        if (c->line == 0 || (b != '\r' && b != ';'))
            return CHUNK_BAD;
        c->line = 1;
        return b == ';' ? CHUNK_EXT : CHUNK_SIZE_LF;
    case CHUNK_EXT:
    case CHUNK_EXT_NAME:
    case CHUNK_EXT_EQUALS:
    case CHUNK_EXT_VALUE:
    case CHUNK_EXT_QUOTED:
    case CHUNK_EXT_CLOSED: return extension_step(c, b);
    case CHUNK_SIZE_LF:
        c->line = 0;
        if (b != '\n')
            return CHUNK_BAD;
        return c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    case CHUNK_DATA_CR: return b == '\r' ? CHUNK_DATA_LF : CHUNK_BAD;
    case CHUNK_DATA_LF: return b == '\n' ? CHUNK_SIZE : CHUNK_BAD;
    case CHUNK_TRAILER:
        if (b == '\r')
            return CHUNK_END_LF;
        c->left = (UINT64_C(1) << BARRED) - 1;
        c->line = 0;
        /* fall through */
    case CHUNK_TRAILER_NAME:
        if (++c->trailers > H1_TRAILERS_MAX)
            return CHUNK_BAD;
        if (b == ':')
            return trailer_name_ok(c) ? CHUNK_TRAILER_VALUE : CHUNK_BAD;
        if (!is(b, TOKEN))
            return CHUNK_BAD;
        trailer_name_byte(c, b);
        return CHUNK_TRAILER_NAME;
    case CHUNK_TRAILER_VALUE:
        if (++c->trailers > H1_TRAILERS_MAX)
            return CHUNK_BAD;
        if (b == '\r')
            return CHUNK_TRAILER_LF;
        return is(b, TEXT) ? CHUNK_TRAILER_VALUE : CHUNK_BAD;
    case CHUNK_TRAILER_LF:
        return b == '\n' && ++c->trailers <= H1_TRAILERS_MAX ? CHUNK_TRAILER : CHUNK_BAD;
    case CHUNK_END_LF: return b == '\n' ? CHUNK_DONE : CHUNK_BAD;
    default: return c->state;
    }
}

int h1_chunked_decode(struct h1_chunked *c, const char *in, size_t n, size_t *used,
                      struct str *data)
{
    size_t i = 0;
    *data = STR_NONE;
    while (i < n && c->state != CHUNK_DATA && c->state < CHUNK_DONE)
        c->state = chunk_step(c, in[i++]);
    if (c->state == CHUNK_DATA && i < n) {
        *data = str_of(in + i, n - i < c->left ? n - i : (size_t)c->left);
        i += data->n;
        c->left -= data->n;
        if (c->left == 0)
            c->state = CHUNK_DATA_CR;
    }
    *used = i;
    return c->state == CHUNK_BAD ? -400 : c->state == CHUNK_DONE;
}
