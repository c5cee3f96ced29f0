// SPDX-License-Identifier: Apache-2.0
#include "http/sse_parse.h"
#include "base/err.h"
#include "base/num.h"

static const char bom[3] = {'\xEF', '\xBB', '\xBF'};

void sse_parser_init(struct sse_parser *p, size_t max, void *user, sse_event_fn *on_event)
{
    *p = (struct sse_parser){.max = max, .on_event = on_event, .user = user};
}

void sse_parser_deinit(struct sse_parser *p)
{
    buf_deinit(&p->line);
    buf_deinit(&p->data);
}

static void forget_event(struct sse_parser *p)
{
    p->data.n = 0;
    p->n_type = 0;
    p->has_data = false;
}

void sse_parser_reset(struct sse_parser *p)
{
    forget_event(p);
    p->line.n = 0;
    p->n_bom = 0;
    p->after_cr = false;
    p->failed = 0;
}

static int sse_parse_take_name(char *to, uint8_t *n, struct str value)
{
    if (value.n > SSE_NAME_MAX)
        return ERR_TOO_LARGE;
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    *n = (uint8_t)value.n;
    return 0;
}

static int sse_parse_take_data(struct sse_parser *p, struct str value)
{
    size_t joint = p->has_data ? 1 : 0;
    if (value.n + joint > p->max - p->data.n)
        return ERR_TOO_LARGE;
    if (joint)
        buf_putc(&p->data, '\n');
    buf_put(&p->data, value);
    p->has_data = true;
    return 0;
}

static int take_field(struct sse_parser *p, struct str name, struct str value)
{
    if (str_eq(name, STR("data")))
        return sse_parse_take_data(p, value);
    if (str_eq(name, STR("event")))
        return sse_parse_take_name(p->type, &p->n_type, value);
    if (str_eq(name, STR("id"))) {
        bool has_nul = value.n > 0 && memchr(value.p, '\0', value.n) != NULL;
        return has_nul ? 0 : sse_parse_take_name(p->id, &p->n_id, value);
    }
    if (str_eq(name, STR("retry")) && num_parse(value, NUM_SAFE_MAX, &p->retry_ms) == 0)
        p->has_retry = true;
    return 0;
}

static int dispatch(struct sse_parser *p)
{
    int err = 0;
    if (p->has_data) {
        struct sse_event event = {
            .type = p->n_type ? str_of(p->type, p->n_type) : STR("message"),
            .data = buf_str(&p->data),
            .id = str_of(p->id, p->n_id),
        };
        err = p->on_event(p->user, &event);
    }
    forget_event(p);
    return err;
}

static int sse_parse_take_line(struct sse_parser *p, struct str line)
{
    if (line.n > p->max)
        return ERR_TOO_LARGE;
    if (line.n == 0)
        return dispatch(p);
    if (line.p[0] == ':')
        return 0;
    struct str value = line;
    struct str name = str_cut(&value, ':');
    if (value.n > 0 && value.p[0] == ' ')
        value = str_skip(value, 1);
    return take_field(p, name, value);
}

/* What was held back of a line and its rest make one line; a line in one piece is not copied. */
static int end_line(struct sse_parser *p, struct str rest)
{
    if (p->line.n == 0)
        return sse_parse_take_line(p, rest);
    if (rest.n > p->max - p->line.n)
        return ERR_TOO_LARGE;
    buf_put(&p->line, rest);
    struct str line = buf_str(&p->line);
    p->line.n = 0; /* the bytes stay until the next put, which is after this line */
    return sse_parse_take_line(p, line);
}

static int hold_line(struct sse_parser *p, struct str piece)
{
    if (piece.n > p->max - p->line.n)
        return ERR_TOO_LARGE;
    buf_put(&p->line, piece);
    return 0;
}

static size_t line_length(struct str s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] != '\n' && s.p[n] != '\r')
        n++;
    return n;
}

/* Passes over a BOM that may itself come in pieces. Bytes that only began like one are a line's. */
static int skip_bom(struct sse_parser *p, struct str *bytes)
{
    while (p->n_bom < sizeof bom && bytes->n > 0) {
        if (bytes->p[0] != bom[p->n_bom]) {
            int err = hold_line(p, str_of(bom, p->n_bom));
            p->n_bom = sizeof bom;
            return err;
        }
        p->n_bom++;
        *bytes = str_skip(*bytes, 1);
    }
    return 0;
}

static int sse_parse_feed(struct sse_parser *p, struct str bytes)
{
    int err = skip_bom(p, &bytes);
    while (err == 0 && bytes.n > 0) {
        if (p->after_cr && bytes.p[0] == '\n') {
            p->after_cr = false;
            bytes = str_skip(bytes, 1);
            continue;
        }
        p->after_cr = false;
        size_t n = line_length(bytes);
        if (n == bytes.n)
            return hold_line(p, bytes);
        p->after_cr = bytes.p[n] == '\r';
        err = end_line(p, str_of(bytes.p, n));
        bytes = str_skip(bytes, n + 1);
    }
    return err;
}

int sse_parser_feed(struct sse_parser *p, struct str bytes)
{
    if (p->failed == 0)
        p->failed = sse_parse_feed(p, bytes);
    return p->failed;
}
