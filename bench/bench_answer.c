// SPDX-License-Identifier: Apache-2.0
#include "bench_answer.h"

#include "base/num.h"

static const struct str head_end = STR_INIT("\r\n\r\n");

void answer_deinit(struct answer *a)
{
    buf_deinit(&a->head);
}

static const char *take_length(struct answer *a, struct str value)
{
    if (num_parse(value, UINT64_MAX, &a->left) != 0)
        return "Content-Length is not a number";
    return NULL;
}

static const char *take_header(struct answer *a, struct str line)
{
    struct str value = line;
    struct str name = str_cut(&value, ':');
    value = str_trim(value);

    if (str_eq_nocase(name, STR("content-length")))
        return take_length(a, value);
    if (str_eq_nocase(name, STR("transfer-encoding")))
        a->chunked = str_eq_nocase(value, STR("chunked"));
    else if (str_eq_nocase(name, STR("stream-up-to-date")))
        a->up_to_date = str_eq_nocase(value, STR("true"));
    else if (str_eq_nocase(name, STR("stream-next-offset"))) {
        if (value.n >= ANSWER_OFFSET_MAX)
            return "Stream-Next-Offset is longer than an offset may be";
        memcpy(a->next_offset, value.p, value.n);
        a->next_offset[value.n] = '\0';
    }
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *take_status(struct answer *a, struct str line)
{
    if (!str_starts(line, STR("HTTP/1.1 ")) || line.n < 12 || !is_digit(line.p[9]) ||
        !is_digit(line.p[10]) || !is_digit(line.p[11]))
        return "the answer does not begin with an HTTP/1.1 status line";
    a->status = (line.p[9] - '0') * 100 + (line.p[10] - '0') * 10 + (line.p[11] - '0');
    return NULL;
}

/* The headers we read begin with these letters; most others are skipped unread. */
static bool may_matter(struct str line)
{
    char c = line.n > 0 ? (char)(line.p[0] | 0x20) : '\0';
    return c == 'c' || c == 't' || c == 's';
}

static const char *take_head(struct answer *a, struct str head)
{
    const uint64_t none = UINT64_MAX;
    a->left = none;
    a->chunked = a->up_to_date = false;
    a->next_offset[0] = '\0';

    const char *wrong = NULL;
    for (bool first = true; head.n > 0 && !wrong; first = false) {
        struct str line = str_cut(&head, '\n');
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (first)
            wrong = take_status(a, line);
        else if (may_matter(line))
            wrong = take_header(a, line);
    }
    if (wrong)
        return wrong;
    if (a->chunked && a->left != none)
        return "the answer has both Content-Length and chunks";
    if (a->status == 204 || a->status == 304 || a->to_head) {
        a->left = 0;
        a->chunked = false;
    }
    if (!a->chunked && a->left == none)
        return "the answer has neither Content-Length nor chunks";
    return NULL;
}

static void finish(struct answer *a, const struct answer_sink *sink, void *ctx)
{
    a->state = ANSWER_HEAD;
    if (sink->end)
        sink->end(ctx, a);
}

/* Finds a whole head at the start of *in, or joins *in to the part that came before. */
static bool find_head(struct answer *a, struct str *in, struct str *head)
{
    if (a->head.n == 0) {
        const char *end = memmem(in->p, in->n, head_end.p, head_end.n);
        if (end) {
            *head = str_of(in->p, (size_t)(end - in->p));
            *in = str_skip(*in, head->n + head_end.n);
            return true;
        }
        buf_put(&a->head, *in);
        *in = str_skip(*in, in->n);
        return false;
    }
    size_t before = a->head.n;
    buf_put(&a->head, *in);
    size_t from = before > 3 ? before - 3 : 0; /* the end mark may straddle the two pieces */
    const char *end = memmem(a->head.p + from, a->head.n - from, head_end.p, head_end.n);
    if (!end) {
        *in = str_skip(*in, in->n);
        return false;
    }
    *head = str_of(a->head.p, (size_t)(end - a->head.p));
    *in = str_skip(*in, head->n + head_end.n - before);
    return true;
}

static const char *feed_head(struct answer *a, struct str *in, const struct answer_sink *sink,
                             void *ctx)
{
    struct str head;
    if (!find_head(a, in, &head))
        return a->head.n > ANSWER_HEAD_MAX ? "the head of the answer is too long" : NULL;
    const char *wrong = take_head(a, head);
    a->head.n = 0;
    if (wrong)
        return wrong;
    if (sink->head)
        sink->head(ctx, a);
    if (a->chunked) {
        a->state = ANSWER_CHUNK_SIZE;
        a->left = a->line = 0;
    } else if (a->left > 0) {
        a->state = ANSWER_LENGTH;
    } else {
        finish(a, sink, ctx);
    }
    return NULL;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *feed_size(struct answer *a, struct str *in)
{
    while (in->n > 0 && a->state == ANSWER_CHUNK_SIZE) {
        char c = in->p[0];
        *in = str_skip(*in, 1);
        if (c == '\n') {
            if (a->line == 0)
                return "a chunk has no size";
            a->state = a->left > 0 ? ANSWER_CHUNK_DATA : ANSWER_TRAILER;
            a->line = 0;
        } else if (c != '\r') {
            int v = hex_value(c);
            if (v < 0 || a->line++ >= 15)
                return "a chunk's size is malformed";
            a->left = a->left * 16 + (uint64_t)v;
        }
    }
    return NULL;
}

static const char *feed_chunk_end(struct answer *a, struct str *in)
{
    char want = a->state == ANSWER_CHUNK_CR ? '\r' : '\n';
    if (in->p[0] != want)
        return "a chunk is longer than its size says";
    *in = str_skip(*in, 1);
    a->state = want == '\r' ? ANSWER_CHUNK_LF : ANSWER_CHUNK_SIZE;
    a->left = a->line = 0;
    return NULL;
}

static void feed_trailer(struct answer *a, struct str *in, const struct answer_sink *sink,
                         void *ctx)
{
    char c = in->p[0];
    *in = str_skip(*in, 1);
    if (c == '\n' && a->line == 0)
        finish(a, sink, ctx);
    else if (c == '\n')
        a->line = 0;
    else if (c != '\r')
        a->line++;
}

static void feed_bytes(struct answer *a, struct str *in, const struct answer_sink *sink, void *ctx)
{
    size_t n = a->left < in->n ? (size_t)a->left : in->n;
    if (sink->body)
        sink->body(ctx, str_of(in->p, n));
    *in = str_skip(*in, n);
    a->left -= n;
    if (a->left > 0)
        return;
    if (a->state == ANSWER_CHUNK_DATA)
        a->state = ANSWER_CHUNK_CR;
    else
        finish(a, sink, ctx);
}

const char *answer_feed(struct answer *a, struct str in, const struct answer_sink *sink, void *ctx)
{
    const char *wrong = NULL;
    while (in.n > 0 && !wrong) {
        switch (a->state) {
        case ANSWER_HEAD: wrong = feed_head(a, &in, sink, ctx); break;
        case ANSWER_LENGTH:
        case ANSWER_CHUNK_DATA: feed_bytes(a, &in, sink, ctx); break;
        case ANSWER_CHUNK_SIZE: wrong = feed_size(a, &in); break;
        case ANSWER_CHUNK_CR:
        case ANSWER_CHUNK_LF: wrong = feed_chunk_end(a, &in); break;
        case ANSWER_TRAILER: feed_trailer(a, &in, sink, ctx); break;
        }
    }
    return wrong;
}
