// SPDX-License-Identifier: Apache-2.0
/* The public client suite drives clients of any language through a program like this one: a command
 * a line on standard input, its result a line on standard output, both JSON. Everything is done by
 * tidemark.h alone; a stream's path is its name behind stream_path "/". */
#include "tidemark.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MAX          64
#define READ_TIMEOUT_MS    5000
#define COMMAND_TIMEOUT_MS 25000

static void *must(void *p)
{
    if (p == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

/* -- text that grows -------------------------------------------------------------------------- */

struct text {
    char *p;
    size_t n, cap;
};

static void put(struct text *t, const void *p, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = 2 * (t->n + n + 1);
        t->p = must(realloc(t->p, t->cap));
    }
    memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void puts_to(struct text *t, const char *z)
{
    put(t, z, strlen(z));
}

static void printf_to(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void printf_to(struct text *t, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    puts_to(t, line);
}

/* -- JSON in ---------------------------------------------------------------------------------- */

enum node_kind {
    NODE_NULL,
    NODE_FALSE,
    NODE_TRUE,
    NODE_NUMBER,
    NODE_STRING,
    NODE_ARRAY,
    NODE_OBJECT
};

struct node {
    enum node_kind kind;
    char *name; /* as a member */
    char *text; /* of a string or number */
    size_t n;   /* of a string */
    struct node *first, *next;
};

struct parser {
    const char *p;
    bool bad;
};

static void free_node(struct node *n)
{
    while (n) {
        struct node *next = n->next;
        free_node(n->first);
        free(n->name);
        free(n->text);
        free(n);
        n = next;
    }
}

static void skip_space(struct parser *s)
{
    s->p += strspn(s->p, " \t\r\n");
}

static void put_utf8(struct text *t, unsigned c)
{
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        b[i] = (char)(0x80 | (c & 0x3f));
    b[0] = (char)(lead[n] | c);
    put(t, b, n);
}

static unsigned take_hex(struct parser *s)
{
    unsigned v = 0;
    int used = 0;
    if (sscanf(s->p, "%4x%n", &v, &used) != 1 || used != 4) {
        s->bad = true;
        return 0;
    }
    s->p += 4;
    return v;
}

static void take_escape(struct parser *s, struct text *t)
{
    static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
    char c = *s->p++;
    if (c == 'u') {
        unsigned v = take_hex(s);
        if (v >= 0xd800 && v < 0xdc00 && s->p[0] == '\\' && s->p[1] == 'u') {
            s->p += 2;
            v = 0x10000 + ((v - 0xd800) << 10) + (take_hex(s) - 0xdc00);
        }
        put_utf8(t, v);
        return;
    }
    const char *at = c ? strchr(from, c) : NULL;
    if (at)
        put(t, &to[at - from], 1);
    else
        s->bad = true;
}

static char *take_string(struct parser *s, size_t *n)
{
    struct text t = {0};
    put(&t, "", 0);
    s->p++;
    while (*s->p && *s->p != '"' && !s->bad) {
        if (*s->p == '\\') {
            s->p++;
            take_escape(s, &t);
        } else {
            put(&t, s->p++, 1);
        }
    }
    s->bad = s->bad || *s->p != '"';
    if (!s->bad)
        s->p++;
    *n = t.n;
    return t.p;
}

static struct node *take_value(struct parser *s, int depth);

static void take_members(struct parser *s, struct node *parent, int depth)
{
    char close = parent->kind == NODE_OBJECT ? '}' : ']';
    struct node **to = &parent->first;
    s->p++;
    skip_space(s);
    while (!s->bad && *s->p != close) {
        char *name = NULL;
        size_t n;
        skip_space(s);
        if (parent->kind == NODE_OBJECT) {
            s->bad = *s->p != '"';
            if (s->bad)
                return;
            name = take_string(s, &n);
            skip_space(s);
            s->bad = s->bad || *s->p++ != ':';
        }
        struct node *child = take_value(s, depth + 1);
        child->name = name;
        *to = child;
        to = &child->next;
        skip_space(s);
        if (*s->p == ',')
            s->p++;
        else
            s->bad = s->bad || *s->p != close;
        skip_space(s);
    }
    if (!s->bad)
        s->p++;
}

static bool take_word(struct parser *s, const char *word)
{
    if (strncmp(s->p, word, strlen(word)) != 0)
        return false;
    s->p += strlen(word);
    return true;
}

static struct node *take_value(struct parser *s, int depth)
{
    struct node *n = must(calloc(1, sizeof *n));
    skip_space(s);
    if (depth > DEPTH_MAX) {
        s->bad = true;
    } else if (*s->p == '"') {
        n->kind = NODE_STRING;
        n->text = take_string(s, &n->n);
    } else if (*s->p == '{' || *s->p == '[') {
        n->kind = *s->p == '{' ? NODE_OBJECT : NODE_ARRAY;
        take_members(s, n, depth);
    } else if (take_word(s, "true")) {
        n->kind = NODE_TRUE;
    } else if (take_word(s, "false")) {
        n->kind = NODE_FALSE;
    } else if (!take_word(s, "null")) {
        size_t length = strspn(s->p, "+-0123456789.eE");
        n->kind = NODE_NUMBER;
        n->text = must(strndup(s->p, length));
        s->p += length;
        s->bad = s->bad || length == 0;
    }
    return n;
}

static const struct node *member(const struct node *object, const char *name)
{
    for (const struct node *n = object ? object->first : NULL; n; n = n->next)
        if (n->name && strcmp(n->name, name) == 0 && n->kind != NODE_NULL)
            return n;
    return NULL;
}

static const char *text_of(const struct node *object, const char *name, const char *otherwise)
{
    const struct node *n = member(object, name);
    return n && n->text ? n->text : otherwise;
}

static long long number_of(const struct node *object, const char *name, long long otherwise)
{
    const struct node *n = member(object, name);
    return n && n->kind == NODE_NUMBER ? strtoll(n->text, NULL, 10) : otherwise;
}

static bool is_true(const struct node *object, const char *name)
{
    const struct node *n = member(object, name);
    return n && n->kind == NODE_TRUE;
}

/* -- JSON out --------------------------------------------------------------------------------- */

/* The length of the UTF-8 character at p; 0: there is none. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    size_t n = p[0] < 0x80                   ? 1
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                                             : 4;
    if (p[0] > 0xf4 || (p[0] >= 0x80 && p[0] < 0xc2) || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

static void put_quoted(struct text *t, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    puts_to(t, "\"");
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(p + i, n - i);
        if (length == 0)
            puts_to(t, "\\ufffd");
        else if (p[i] == '"' || p[i] == '\\' || p[i] < 0x20)
            printf_to(t, "\\u%04x", p[i]);
        else
            put(t, p + i, length);
        i += length ? length : 1;
    }
    puts_to(t, "\"");
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_base64(struct text *t, const unsigned char *p, size_t n)
{
    puts_to(t, "\"");
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned word = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        left > 1 ? digits[word >> 6 & 63] : '=',
                        left > 2 ? digits[word & 63] : '='};
        put(t, four, 4);
    }
    puts_to(t, "\"");
}

static bool is_utf8(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(p + i, n - i);
        if (length == 0)
            return false;
        i += length;
    }
    return true;
}

static void put_member(struct text *t, const char *name, const char *value)
{
    printf_to(t, ",\"%s\":", name);
    put_quoted(t, value, strlen(value));
}

static void put_flag(struct text *t, const char *name, bool value)
{
    printf_to(t, ",\"%s\":%s", name, value ? "true" : "false");
}

/* -- the adapter ------------------------------------------------------------------------------ */

#define STREAMS_MAX   4096 /* known content types; the oldest is forgotten */
#define PRODUCERS_MAX 256
#define DYNAMIC_MAX   8
#define VALUE_SIZE    256

struct known {
    char *path, *type;
};

struct kept_producer {
    char *key;
    struct tm_producer *producer;
};

/* A header or parameter that is made anew for each request. */
struct dynamic {
    bool is_param;
    char *name, *kind, *token;
    unsigned long long count;
    char sent[VALUE_SIZE]; /* with the last request */
};

struct adapter {
    struct tm_client *client;
    struct dynamic dynamics[DYNAMIC_MAX];
    size_t n_dynamics;
    struct known streams[STREAMS_MAX];
    size_t n_streams;
    struct kept_producer producers[PRODUCERS_MAX];
    size_t n_producers;
    struct text out;
};

static char *copy(const char *z)
{
    return must(strdup(z));
}

static void begin(struct adapter *a, const char *type)
{
    a->out.n = 0;
    printf_to(&a->out, "{\"type\":\"%s\",\"success\":true", type);
}

struct error_row {
    int err, status;
    const char *code;
};

/* What each error is called there, and the status it stands for where the call has none. */
static const struct error_row rows[] = {
    {TM_E_NETWORK, 0, "NETWORK_ERROR"},
    {TM_E_TIMEOUT, 0, "TIMEOUT"},
    {TM_E_EXISTS, 409, "CONFLICT"},
    {TM_E_CONFLICT, 409, "SEQUENCE_CONFLICT"},
    {TM_E_NOT_FOUND, 404, "NOT_FOUND"},
    {TM_E_CLOSED, 409, "STREAM_CLOSED"},
    {TM_E_OFFSET, 400, "INVALID_OFFSET"},
    {TM_E_GAP, 410, "INVALID_OFFSET"},
    {TM_E_PROTOCOL, 0, "PARSE_ERROR"},
    {TM_E_INVALID, 400, "INVALID_ARGUMENT"},
    {TM_E_FENCED, 403, "UNEXPECTED_STATUS"},
    {TM_E_DENIED, 403, "UNEXPECTED_STATUS"},
    {TM_E_REFUSED, 0, "UNEXPECTED_STATUS"},
    {TM_E_BUSY, 503, "UNEXPECTED_STATUS"},
    {TM_E_TOO_LARGE, 413, "UNEXPECTED_STATUS"},
    {0, 0, "INTERNAL_ERROR"},
};

static void fail_as(struct adapter *a, const char *command, const char *code, int status,
                    const char *message)
{
    a->out.n = 0;
    printf_to(&a->out, "{\"type\":\"error\",\"success\":false,\"commandType\":\"%s\"", command);
    if (status)
        printf_to(&a->out, ",\"status\":%d", status);
    put_member(&a->out, "errorCode", code);
    put_member(&a->out, "message", message);
}

static void fail(struct adapter *a, const char *command, int err, int status, const char *message)
{
    const struct error_row *row = rows;
    while (row->err && row->err != err)
        row++;
    const char *code = row->code;
    /* A conflict is one of sequences, or of anything else. */
    if (err == TM_E_CONFLICT && strstr(message, "equence") == NULL &&
        strstr(message, "Seq") == NULL)
        code = "CONFLICT";
    if (err == TM_E_INVALID && status == 400)
        code = "UNEXPECTED_STATUS"; /* the server's word, not the library's */
    fail_as(a, command, code, status ? status : row->status, message);
}

/* A path is a name behind "/". */
static const char *name_of(const struct node *command)
{
    const char *path = text_of(command, "path", "");
    return *path == '/' ? path + 1 : path;
}

static void know_type(struct adapter *a, const struct node *command, const char *type)
{
    const char *path = text_of(command, "path", "");
    struct known *k = NULL;
    for (size_t i = 0; i < a->n_streams && k == NULL; i++)
        if (strcmp(a->streams[i].path, path) == 0)
            k = &a->streams[i];
    if (k == NULL) {
        k = &a->streams[a->n_streams < STREAMS_MAX ? a->n_streams++ : 0];
        free(k->path);
        k->path = copy(path);
    }
    free(k->type);
    k->type = copy(type);
}

static const char *type_of(const struct adapter *a, const struct node *command)
{
    const char *path = text_of(command, "path", "");
    for (size_t i = 0; i < a->n_streams; i++)
        if (strcmp(a->streams[i].path, path) == 0)
            return a->streams[i].type;
    return "application/octet-stream";
}

/* -- what changes with each request ------------------------------------------------------------ */

static long long wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void forget_dynamics(struct adapter *a)
{
    while (a->n_dynamics) {
        struct dynamic *d = &a->dynamics[--a->n_dynamics];
        free(d->name);
        free(d->kind);
        free(d->token);
    }
}

static void set_dynamic(struct adapter *a, const struct node *command, bool is_param)
{
    const char *type = text_of(command, "type", ""), *name = text_of(command, "name", "");
    struct dynamic *d = a->dynamics, *end = a->dynamics + a->n_dynamics;
    while (d < end && (d->is_param != is_param || strcmp(d->name, name) != 0))
        d++;
    if (d == a->dynamics + DYNAMIC_MAX) {
        fail_as(a, type, "INTERNAL_ERROR", 0, "that is too many of them");
        return;
    }
    if (d < end) {
        free(d->name);
        free(d->kind);
        free(d->token);
    } else {
        a->n_dynamics++;
    }
    *d = (struct dynamic){.is_param = is_param,
                          .name = copy(name),
                          .kind = copy(text_of(command, "valueType", "")),
                          .token = copy(text_of(command, "initialValue", ""))};
    begin(a, type);
}

static void do_set_header(struct adapter *a, const struct node *command)
{
    set_dynamic(a, command, false);
}

static void do_set_param(struct adapter *a, const struct node *command)
{
    set_dynamic(a, command, true);
}

static void do_clear_dynamic(struct adapter *a, const struct node *command)
{
    forget_dynamics(a);
    begin(a, text_of(command, "type", ""));
}

static int prepare(void *ctx, struct tm_request *r)
{
    struct adapter *a = ctx;
    int err = 0;
    for (struct dynamic *d = a->dynamics; d < a->dynamics + a->n_dynamics && err == 0; d++) {
        if (strcmp(d->kind, "counter") == 0)
            snprintf(d->sent, sizeof d->sent, "%llu", ++d->count);
        else if (strcmp(d->kind, "timestamp") == 0)
            snprintf(d->sent, sizeof d->sent, "%lld", wall_ms());
        else
            snprintf(d->sent, sizeof d->sent, "%s", d->token);
        err = d->is_param ? tm_request_param(r, d->name, d->sent)
                          : tm_request_header(r, d->name, d->sent);
        if (err == TM_E_CONFLICT)
            err = 0; /* a header of the command goes before it */
    }
    return err;
}

static void put_sent(struct adapter *a, const char *member_name, bool params)
{
    bool any = false;
    printf_to(&a->out, ",\"%s\":{", member_name);
    for (struct dynamic *d = a->dynamics; d < a->dynamics + a->n_dynamics; d++) {
        if (d->is_param != params)
            continue;
        puts_to(&a->out, any ? "," : "");
        put_quoted(&a->out, d->name, strlen(d->name));
        puts_to(&a->out, ":");
        put_quoted(&a->out, d->sent, strlen(d->sent));
        any = true;
    }
    puts_to(&a->out, "}");
}

static void put_dynamics(struct adapter *a)
{
    put_sent(a, "headersSent", false);
    put_sent(a, "paramsSent", true);
}

/* -- calls ------------------------------------------------------------------------------------ */

static int put_headers(struct tm_call *call, const struct node *command)
{
    const struct node *headers = member(command, "headers");
    int err = 0;
    for (const struct node *h = headers ? headers->first : NULL; h && err == 0; h = h->next)
        if (h->text)
            err = tm_call_header(call, h->name, h->text);
    return err;
}

/* Waits for a call that was started; false: it failed, and the result says so. */
static bool finish(struct adapter *a, int err, struct tm_call **started, const struct node *command)
{
    const char *type = text_of(command, "type", "");
    if (err) {
        fail(a, type, err, 0, tm_error(a->client));
        return false;
    }
    struct tm_call *call = *started;
    err = put_headers(call, command);
    if (err == 0)
        err = tm_call_wait(call, COMMAND_TIMEOUT_MS);
    if (err)
        fail(a, type, err, tm_call_result(call)->status, tm_error(a->client));
    return err == 0;
}

static void do_create(struct adapter *a, const struct node *command)
{
    struct tm_create_options o = TM_CREATE_INIT;
    struct tm_call *call = NULL;
    const struct node *data = member(command, "data");
    o.content_type = text_of(command, "contentType", "application/octet-stream");
    o.ttl_s = number_of(command, "ttlSeconds", 0);
    o.expires_at = text_of(command, "expiresAt", NULL);
    o.closed = is_true(command, "closed");
    if (data && data->kind == NODE_STRING) {
        o.data = data->text;
        o.n = data->n;
    }
    if (finish(a, tm_create(a->client, name_of(command), &o, &call), &call, command)) {
        const struct tm_result *r = tm_call_result(call);
        know_type(a, command, o.content_type);
        begin(a, "create");
        printf_to(&a->out, ",\"status\":%d", r->status);
        put_member(&a->out, "offset", r->next_offset);
    }
    tm_call_free(call);
}

static void do_head(struct adapter *a, const struct node *command)
{
    const char *type = text_of(command, "type", "");
    struct tm_call *call = NULL;
    if (finish(a, tm_head(a->client, name_of(command), &call), &call, command)) {
        const struct tm_result *r = tm_call_result(call);
        know_type(a, command, r->content_type);
        begin(a, type);
        printf_to(&a->out, ",\"status\":%d", r->status);
        put_member(&a->out, "offset", r->next_offset);
        put_member(&a->out, "contentType", r->content_type);
        put_flag(&a->out, "streamClosed", r->closed);
        if (r->ttl_s >= 0)
            printf_to(&a->out, ",\"ttlSeconds\":%lld", (long long)r->ttl_s);
        if (*r->expires_at)
            put_member(&a->out, "expiresAt", r->expires_at);
    }
    tm_call_free(call);
}

static void do_delete(struct adapter *a, const struct node *command)
{
    struct tm_call *call = NULL;
    if (finish(a, tm_delete(a->client, name_of(command), &call), &call, command)) {
        begin(a, "delete");
        puts_to(&a->out, ",\"status\":200");
    }
    tm_call_free(call);
}

static size_t decode(const char *text, char *to)
{
    unsigned word = 0, bits = 0;
    size_t n = 0;
    for (; *text && *text != '='; text++) {
        const char *at = strchr(digits, *text);
        if (at == NULL)
            continue;
        word = word << 6 | (unsigned)(at - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            to[n++] = (char)(word >> bits);
        }
    }
    return n;
}

/* The library sends a plain append once; the suite wants it to be sent again. */
static void do_append(struct adapter *a, const struct node *command)
{
    struct tm_append_options o = TM_APPEND_INIT;
    struct tm_call *call = NULL;
    const struct node *data = member(command, "data");
    char *bytes = copy(data && data->text ? data->text : "");
    o.content_type = type_of(a, command);
    o.data = data ? data->text : NULL;
    o.n = data ? data->n : 0;
    if (is_true(command, "binary")) {
        o.n = decode(o.data, bytes);
        o.data = bytes;
    }
    o.seq = text_of(command, "seq", NULL);
    o.at_least_once = 1;
    o.producer_id = text_of(command, "producerId", NULL);
    o.producer_epoch = (uint64_t)number_of(command, "producerEpoch", 0);
    o.producer_seq = (uint64_t)number_of(command, "producerSeq", 0);
    if (finish(a, tm_append(a->client, name_of(command), &o, &call), &call, command)) {
        const struct tm_result *r = tm_call_result(call);
        begin(a, "append");
        printf_to(&a->out, ",\"status\":%d", o.producer_id ? r->status : 200);
        put_member(&a->out, "offset", r->next_offset);
        put_flag(&a->out, "duplicate", r->duplicate);
        put_dynamics(a);
    }
    tm_call_free(call);
    free(bytes);
}

static void do_close(struct adapter *a, const struct node *command)
{
    struct tm_append_options o = TM_APPEND_INIT;
    struct tm_call *call = NULL;
    const struct node *data = member(command, "data");
    o.content_type = text_of(command, "contentType", type_of(a, command));
    o.data = data ? data->text : NULL;
    o.n = data ? data->n : 0;
    o.close = 1;
    if (finish(a, tm_append(a->client, name_of(command), &o, &call), &call, command)) {
        begin(a, "close");
        puts_to(&a->out, ",\"status\":200");
        put_member(&a->out, "finalOffset", tm_call_result(call)->next_offset);
    }
    tm_call_free(call);
}

/* -- reads ------------------------------------------------------------------------------------ */

struct reading {
    struct text chunks;   /* JSON objects with commas between them */
    struct text together; /* without live, all is one chunk */
    long long n_chunks;
    char offset[256];
    bool up_to_date, closed;
};

static void put_chunk(struct reading *r, const void *data, size_t n)
{
    puts_to(&r->chunks, r->n_chunks++ ? ",{\"data\":" : "{\"data\":");
    if (is_utf8(data, n)) {
        put_quoted(&r->chunks, data, n);
    } else {
        put_base64(&r->chunks, data, n);
        put_flag(&r->chunks, "binary", true);
    }
    puts_to(&r->chunks, ",\"offset\":");
    put_quoted(&r->chunks, r->offset, strlen(r->offset));
    puts_to(&r->chunks, "}");
}

static void note(struct reading *r, const struct tm_batch *b, bool live)
{
    snprintf(r->offset, sizeof r->offset, "%s", b->next_offset);
    r->up_to_date = b->up_to_date;
    r->closed = b->closed;
    if (b->n && live)
        put_chunk(r, b->data, b->n);
    else if (b->n)
        put(&r->together, b->data, b->n);
}

/* Until there is enough, the end, or no more time; 0 or an error. */
static int follow(struct tm_follower *f, struct reading *r, const struct node *command, bool live)
{
    long long end = wall_ms() + number_of(command, "timeoutMs", live ? READ_TIMEOUT_MS : 20000);
    long long max = number_of(command, "maxChunks", 100);
    bool until_tail = is_true(command, "waitForUpToDate");
    for (;;) {
        struct tm_batch b;
        long long left = end - wall_ms();
        int got = tm_follower_wait(f, &b, left > 0 ? (int)left : 0);
        if (got == TM_E_CLOSED)
            return 0;
        if (got < 0)
            return got;
        if (got == 0 && left <= 0) {
            r->up_to_date = true;
            return live ? 0 : TM_E_TIMEOUT;
        }
        if (got == 1)
            note(r, &b, live);
        if (live && (r->n_chunks >= max || (until_tail && r->up_to_date)))
            return 0;
    }
}

static enum tm_live live_of(const struct node *command)
{
    const struct node *live = member(command, "live");
    if (live == NULL || live->kind == NODE_FALSE)
        return TM_LIVE_NO;
    if (live->kind == NODE_TRUE)
        return TM_LIVE_AUTO;
    if (live->text && strcmp(live->text, "sse") == 0)
        return TM_LIVE_SSE;
    return live->text && strcmp(live->text, "auto") == 0 ? TM_LIVE_AUTO : TM_LIVE_LONG_POLL;
}

static void do_read(struct adapter *a, const struct node *command)
{
    struct tm_follow_options o = TM_FOLLOW_INIT;
    struct tm_follower *f = NULL;
    struct reading r = {0};
    o.offset = text_of(command, "offset", NULL);
    o.live = live_of(command);
    snprintf(r.offset, sizeof r.offset, "%s", o.offset ? o.offset : "-1");
    int err = tm_follower_new(a->client, name_of(command), &o, &f);
    if (err == 0)
        err = follow(f, &r, command, o.live != TM_LIVE_NO);
    if (err == 0) {
        if (r.together.n)
            put_chunk(&r, r.together.p, r.together.n);
        begin(a, "read");
        printf_to(&a->out, ",\"status\":%d,\"chunks\":[", r.n_chunks ? 200 : tm_follower_status(f));
        put(&a->out, r.chunks.p ? r.chunks.p : "", r.chunks.n);
        puts_to(&a->out, "]");
        put_member(&a->out, "offset", r.offset);
        put_flag(&a->out, "upToDate", r.up_to_date);
        put_flag(&a->out, "streamClosed", r.closed);
        put_dynamics(a);
    } else {
        fail(a, "read", err, 0, tm_error(a->client));
    }
    tm_follower_free(f);
    free(r.chunks.p);
    free(r.together.p);
}

/* -- producers -------------------------------------------------------------------------------- */

static void key_of(const struct node *command, struct text *key)
{
    printf_to(key, "%lld|%.200s|", number_of(command, "epoch", 0),
              text_of(command, "producerId", ""));
    puts_to(key, text_of(command, "path", ""));
}

static struct kept_producer *find_producer(struct adapter *a, const struct node *command)
{
    struct text key = {0};
    struct kept_producer *found = NULL;
    key_of(command, &key);
    for (size_t i = 0; i < a->n_producers && found == NULL; i++)
        if (strcmp(a->producers[i].key, key.p) == 0)
            found = &a->producers[i];
    free(key.p);
    return found;
}

static void forget_producer(struct adapter *a, struct kept_producer *k)
{
    tm_producer_free(k->producer);
    free(k->key);
    *k = a->producers[--a->n_producers];
}

static int new_producer(struct adapter *a, const struct node *command,
                        struct tm_producer_options *o, struct tm_producer **out)
{
    o->content_type = type_of(a, command);
    o->id = text_of(command, "producerId", NULL);
    o->epoch = (uint64_t)number_of(command, "epoch", 0);
    o->claim = is_true(command, "autoClaim");
    return tm_producer_new(a->client, name_of(command), o, out);
}

/* A producer goes on from one command to the next, with its numbers. */
static int keep_producer(struct adapter *a, const struct node *command, struct tm_producer **out)
{
    struct kept_producer *k = find_producer(a, command);
    if (k && tm_producer_error(k->producer)) {
        forget_producer(a, k);
        k = NULL;
    }
    if (k == NULL) {
        struct tm_producer_options o = TM_PRODUCER_INIT;
        struct text key = {0};
        o.linger_ms = TM_FOREVER;
        int err = new_producer(a, command, &o, out);
        if (err)
            return err;
        if (a->n_producers == PRODUCERS_MAX)
            forget_producer(a, &a->producers[0]);
        key_of(command, &key);
        k = &a->producers[a->n_producers++];
        *k = (struct kept_producer){key.p, *out};
    }
    *out = k->producer;
    return 0;
}

static void end_produce(struct adapter *a, const struct node *command, int err, const char *offset)
{
    const char *type = text_of(command, "type", "");
    if (err) {
        fail(a, type, err, 0, tm_error(a->client));
        return;
    }
    begin(a, type);
    puts_to(&a->out, ",\"status\":200");
    if (offset && *offset) {
        put_member(&a->out, "offset", offset);
        put_member(&a->out, "finalOffset", offset);
    }
}

static int append_text(struct tm_producer *p, const struct node *data, bool binary)
{
    if (data == NULL || data->text == NULL)
        return tm_producer_append(p, "", 0);
    if (!binary)
        return tm_producer_append(p, data->text, data->n);
    char *bytes = copy(data->text);
    int err = tm_producer_append(p, bytes, decode(data->text, bytes));
    free(bytes);
    return err;
}

static void do_idempotent_append(struct adapter *a, const struct node *command)
{
    struct tm_producer *p = NULL;
    int err = keep_producer(a, command, &p);
    if (err == 0)
        err = append_text(p, member(command, "data"), is_true(command, "binary"));
    if (err == 0)
        err = tm_producer_flush(p, COMMAND_TIMEOUT_MS);
    end_produce(a, command, err, err == 0 ? tm_producer_offset(p) : NULL);
}

/* Several in flight: a batch for each item. Otherwise all go as one. */
static void do_idempotent_batch(struct adapter *a, const struct node *command)
{
    struct tm_producer_options o = TM_PRODUCER_INIT;
    struct tm_producer *p = NULL;
    const struct node *items = member(command, "items");
    o.in_flight = (int)number_of(command, "maxInFlight", 1);
    o.linger_ms = TM_FOREVER;
    if (o.in_flight > 1)
        o.batch_bytes = 1;
    int err = new_producer(a, command, &o, &p);
    for (const struct node *n = items ? items->first : NULL; n && err == 0; n = n->next)
        err = append_text(p, n, false);
    if (err == 0)
        err = tm_producer_flush(p, COMMAND_TIMEOUT_MS);
    end_produce(a, command, err, err == 0 ? tm_producer_offset(p) : NULL);
    tm_producer_free(p);
}

static void do_idempotent_close(struct adapter *a, const struct node *command)
{
    struct tm_producer *p = NULL;
    const struct node *data = member(command, "data");
    int err = keep_producer(a, command, &p);
    if (err == 0)
        err =
            tm_producer_close(p, data ? data->text : NULL, data ? data->n : 0, COMMAND_TIMEOUT_MS);
    end_produce(a, command, err, err == 0 ? tm_producer_offset(p) : NULL);
}

static void do_idempotent_detach(struct adapter *a, const struct node *command)
{
    struct kept_producer *k = find_producer(a, command);
    int err = k ? tm_producer_flush(k->producer, COMMAND_TIMEOUT_MS) : 0;
    if (k)
        forget_producer(a, k);
    end_produce(a, command, err, NULL);
}

/* -- the rest --------------------------------------------------------------------------------- */

static void clear(struct adapter *a)
{
    while (a->n_producers)
        forget_producer(a, &a->producers[0]);
    while (a->n_streams) {
        struct known *k = &a->streams[--a->n_streams];
        free(k->path);
        free(k->type);
        *k = (struct known){0};
    }
    forget_dynamics(a);
    tm_close(a->client);
    a->client = NULL;
}

#define TOLD_SIZE 256

static void remember(void *ctx, const char *text)
{
    snprintf(ctx, TOLD_SIZE, "%s", text);
}

static void do_init(struct adapter *a, const struct node *command)
{
    struct tm_options o = TM_OPTIONS_INIT;
    clear(a);
    o.server = text_of(command, "serverUrl", "");
    o.stream_path = "/";
    o.prepare = prepare;
    o.prepare_ctx = a;
    int err = tm_open(&o, &a->client);
    if (err) {
        fail(a, "init", err, 0, tm_error_text(err));
        return;
    }
    begin(a, "init");
    put_member(&a->out, "clientName", "libtidemark");
    put_member(&a->out, "clientVersion", tm_version());
    puts_to(&a->out,
            ",\"features\":{\"batching\":true,\"sse\":true,\"longPoll\":true,\"auto\":true,"
            "\"streaming\":true,\"retryOptions\":true,\"batchItems\":true,"
            "\"strictZeroValidation\":true,\"dynamicHeaders\":true}");
}

/* The library's own checks, in which no zero stands for a default. */

static int open_with_retries(const struct node *target, char *told)
{
    struct tm_options o = TM_OPTIONS_STRICT_INIT;
    struct tm_client *c = NULL;
    o.server = "http://127.0.0.1:1";
    o.notice = remember;
    o.notice_ctx = told;
    o.retries = (int)number_of(target, "maxRetries", o.retries);
    o.retry_first_ms = (int)number_of(target, "initialDelayMs", o.retry_first_ms);
    o.retry_max_ms = (int)number_of(target, "maxDelayMs", o.retry_max_ms);
    o.retry_multiplier = strtod(text_of(target, "multiplier", "1.5"), NULL);
    int err = tm_open(&o, &c);
    tm_close(c);
    return err;
}

static int make_producer(struct adapter *a, const struct node *target, char *told)
{
    struct tm_producer_options o = TM_PRODUCER_STRICT_INIT;
    struct tm_producer *p = NULL;
    o.id = text_of(target, "producerId", "test-producer");
    o.epoch = (uint64_t)number_of(target, "epoch", 0);
    o.batch_bytes = (size_t)number_of(target, "maxBatchBytes", (long long)o.batch_bytes);
    o.batch_items = (size_t)number_of(target, "maxBatchItems", (long long)o.batch_items);
    int err = tm_producer_new(a->client, "validate", &o, &p);
    if (err)
        remember(told, tm_error(a->client));
    tm_producer_free(p);
    return err;
}

/* A sentence about a setting begins with its name; what the suite calls it. */
static const char *suite_name(const char *sentence)
{
    static const char *const names[][2] = {
        {"retries ", "maxRetries"},        {"retry_first_ms ", "initialDelayMs"},
        {"retry_max_ms ", "maxDelayMs"},   {"retry_multiplier ", "multiplier"},
        {"batch_bytes ", "maxBatchBytes"}, {"batch_items ", "maxBatchItems"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(sentence, names[i][0], strlen(names[i][0])) == 0)
            return names[i][1];
    return "settings";
}

static void do_validate(struct adapter *a, const struct node *command)
{
    const struct node *target = member(command, "target");
    const char *what = text_of(target, "target", "");
    char told[TOLD_SIZE] = "", message[TOLD_SIZE + 40];
    int err = 0;
    if (strcmp(what, "retry-options") == 0) {
        err = open_with_retries(target, told);
    } else if (strcmp(what, "idempotent-producer") == 0) {
        err = make_producer(a, target, told);
    } else {
        fail_as(a, "validate", "NOT_SUPPORTED", 0, "there is no such thing to validate");
        return;
    }
    if (err) {
        snprintf(message, sizeof message, "%s: %s", suite_name(told), told);
        fail_as(a, "validate", "INVALID_ARGUMENT", 0, message);
    } else {
        begin(a, "validate");
    }
}

static void do_shutdown(struct adapter *a, const struct node *command)
{
    (void)command;
    begin(a, "shutdown");
}

static const struct handler {
    const char *type;
    void (*run)(struct adapter *a, const struct node *command);
} handlers[] = {
    {"init", do_init},
    {"create", do_create},
    {"connect", do_head},
    {"head", do_head},
    {"append", do_append},
    {"close", do_close},
    {"read", do_read},
    {"delete", do_delete},
    {"idempotent-append", do_idempotent_append},
    {"idempotent-append-batch", do_idempotent_batch},
    {"idempotent-close", do_idempotent_close},
    {"idempotent-detach", do_idempotent_detach},
    {"set-dynamic-header", do_set_header},
    {"set-dynamic-param", do_set_param},
    {"clear-dynamic", do_clear_dynamic},
    {"validate", do_validate},
    {"shutdown", do_shutdown},
};

static void handle(struct adapter *a, const struct node *command)
{
    const char *type = text_of(command, "type", "");
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        if (strcmp(handlers[i].type, type) == 0) {
            if (a->client || handlers[i].run == do_init || handlers[i].run == do_shutdown)
                handlers[i].run(a, command);
            else
                fail_as(a, type, "INTERNAL_ERROR", 0, "init comes first");
            return;
        }
    fail_as(a, type, "NOT_SUPPORTED", 0, "there is no such command");
}

int main(void)
{
    struct adapter *a = must(calloc(1, sizeof *a));
    char *line = NULL;
    size_t cap = 0;
    bool over = false;
    while (!over && getline(&line, &cap, stdin) > 0) {
        struct parser s = {.p = line};
        if (line[strspn(line, " \t\r\n")] == '\0')
            continue;
        struct node *command = take_value(&s, 0);
        if (s.bad)
            fail_as(a, "init", "PARSE_ERROR", 0, "this is not a command");
        else
            handle(a, command);
        puts_to(&a->out, "}\n");
        fwrite(a->out.p, 1, a->out.n, stdout);
        fflush(stdout);
        over = !s.bad && strcmp(text_of(command, "type", ""), "shutdown") == 0;
        free_node(command);
    }
    clear(a);
    free(a->out.p);
    free(line);
    free(a);
    return 0;
}
