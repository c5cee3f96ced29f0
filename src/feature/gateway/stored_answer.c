// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/stored_answer.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/num.h"

#define BEGIN      STR("HTTP ")
#define STATUS_LEN 3
#define SEPARATOR  STR(": ")

static bool is_value(struct str value)
{
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == '\r' || value.p[i] == '\n' || value.p[i] == '\0')
            return false;
    return true;
}

static bool is_header(const struct header *h)
{
    return ascii_is_token(h->name) && is_value(h->value);
}

void stored_answer_put_head(struct buf *out, int status, const struct header *headers, size_t n)
{
    buf_put(out, BEGIN);
    buf_put_u64(out, (uint64_t)status);
    buf_putc(out, '\n');
    for (size_t i = 0; i < n; i++) {
        if (!is_header(&headers[i]))
            continue;
        buf_put(out, headers[i].name);
        buf_put(out, SEPARATOR);
        buf_put(out, headers[i].value);
        buf_putc(out, '\n');
    }
    buf_putc(out, '\n');
}

bool stored_answer_is(struct str stored)
{
    return str_starts(stored, BEGIN);
}

/* A line with its end, off *rest. False: it has none. */
static bool take_line(struct str *rest, struct str *line)
{
    if (rest->n == 0 || memchr(rest->p, '\n', rest->n) == NULL)
        return false;
    *line = str_cut(rest, '\n');
    return true;
}

static bool take_status(struct str *rest, int *status)
{
    struct str line;
    uint64_t n;
    if (!stored_answer_is(*rest) || !take_line(rest, &line))
        return false;
    line = str_skip(line, BEGIN.n);
    if (line.n != STATUS_LEN || num_parse_canonical(line, 299, &n) != 0 || n < 200)
        return false;
    *status = (int)n;
    return true;
}

static bool parse_header(struct str line, struct header *h)
{
    const char *colon = line.n > 0 ? memchr(line.p, ':', line.n) : NULL;
    if (colon == NULL)
        return false;
    h->name = str_of(line.p, (size_t)(colon - line.p));
    struct str rest = str_skip(line, h->name.n);
    if (!str_starts(rest, SEPARATOR))
        return false;
    h->value = str_skip(rest, SEPARATOR.n);
    return is_header(h);
}

int stored_answer_take(struct str stored, struct stored_answer *a)
{
    struct str rest = stored, line;
    struct header ignored;
    int status;
    if (!take_status(&rest, &status))
        return ERR_CORRUPT;
    struct str headers = rest;
    while (take_line(&rest, &line)) {
        if (line.n > 0 && parse_header(line, &ignored))
            continue;
        if (line.n > 0)
            return ERR_CORRUPT;
        headers.n = (size_t)(line.p - headers.p);
        struct str body = str_skip(stored, (size_t)(line.p + 1 - stored.p));
        *a = (struct stored_answer){.status = status, .headers = headers, .body = body};
        return 0;
    }
    return ERR_CORRUPT;
}

bool stored_answer_next(struct str *headers, struct header *h)
{
    struct str line;
    return take_line(headers, &line) && parse_header(line, h);
}
