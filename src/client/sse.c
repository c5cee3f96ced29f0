// SPDX-License-Identifier: Apache-2.0
#include "client/sse.h"

static const char bom[3] = {'\xEF', '\xBB', '\xBF'};

void sse_init(struct sse *s, struct tm_client *c, size_t max, void *ctx,
              int (*event)(void *ctx, const struct sse_event *event))
{
    *s = (struct sse){.client = c, .max = max, .ctx = ctx, .event = event};
}

void sse_deinit(struct sse *s)
{
    bytes_free(s->client, &s->line);
    bytes_free(s->client, &s->data);
}

static void forget_event(struct sse *s)
{
    s->data.n = 0;
    s->n_type = 0;
    s->has_data = false;
}

void sse_reset(struct sse *s)
{
    forget_event(s);
    s->line.n = 0;
    s->n_bom = 0;
    s->after_cr = false;
    s->failed = 0;
}

static int sse_take_name(char *to, uint8_t *n, struct str value)
{
    if (value.n > SSE_NAME_MAX)
        return TM_E_TOO_LARGE;
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    *n = (uint8_t)value.n;
    return 0;
}

static int sse_take_data(struct sse *s, struct str value)
{
    size_t joint = s->has_data ? 1 : 0;
    if (value.n + joint > s->max - s->data.n)
        return TM_E_TOO_LARGE;
    int err = joint ? bytes_put(s->client, &s->data, STR("\n")) : 0;
    if (err == 0 && value.n > 0)
        err = bytes_put(s->client, &s->data, value);
    s->has_data = true;
    return err;
}

static int take_field(struct sse *s, struct str name, struct str value)
{
    if (str_eq(name, STR("data")))
        return sse_take_data(s, value);
    if (str_eq(name, STR("event")))
        return sse_take_name(s->type, &s->n_type, value);
    if (str_eq(name, STR("id"))) {
        bool has_nul = value.n > 0 && memchr(value.p, '\0', value.n) != NULL;
        return has_nul ? 0 : sse_take_name(s->id, &s->n_id, value);
    }
    return 0;
}

static int dispatch(struct sse *s)
{
    int err = 0;
    if (s->has_data) {
        struct sse_event event = {
            .type = s->n_type ? str_of(s->type, s->n_type) : STR("message"),
            .data = bytes_str(&s->data),
            .id = str_of(s->id, s->n_id),
        };
        err = s->event(s->ctx, &event);
    }
    forget_event(s);
    return err;
}

static int sse_take_line(struct sse *s, struct str line)
{
    if (line.n > s->max)
        return TM_E_TOO_LARGE;
    if (line.n == 0)
        return dispatch(s);
    if (line.p[0] == ':')
        return 0;
    struct str value = line;
    struct str name = str_cut(&value, ':');
    if (value.n > 0 && value.p[0] == ' ')
        value = str_skip(value, 1);
    return take_field(s, name, value);
}

static int hold_line(struct sse *s, struct str piece)
{
    if (piece.n > s->max - s->line.n)
        return TM_E_TOO_LARGE;
    return piece.n > 0 ? bytes_put(s->client, &s->line, piece) : 0;
}

/* What was held back of a line and its rest make one line; a line in one piece is not copied. */
static int end_line(struct sse *s, struct str rest)
{
    if (s->line.n == 0)
        return sse_take_line(s, rest);
    int err = hold_line(s, rest);
    if (err)
        return err;
    struct str line = bytes_str(&s->line);
    s->line.n = 0; /* the bytes stay until the next put, which is after this line */
    return sse_take_line(s, line);
}

static size_t line_length(struct str s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] != '\n' && s.p[n] != '\r')
        n++;
    return n;
}

/* Passes over a mark that may itself come in pieces. Bytes that only began like one are a line's.
 */
static int skip_bom(struct sse *s, struct str *bytes)
{
    while (s->n_bom < sizeof bom && bytes->n > 0) {
        if (bytes->p[0] != bom[s->n_bom]) {
            int err = hold_line(s, str_of(bom, s->n_bom));
            s->n_bom = sizeof bom;
            return err;
        }
        s->n_bom++;
        *bytes = str_skip(*bytes, 1);
    }
    return 0;
}

static int sse_feed_lines(struct sse *s, struct str bytes)
{
    int err = skip_bom(s, &bytes);
    while (err == 0 && bytes.n > 0) {
        if (s->after_cr && bytes.p[0] == '\n') {
            s->after_cr = false;
            bytes = str_skip(bytes, 1);
            continue;
        }
        s->after_cr = false;
        size_t n = line_length(bytes);
        if (n == bytes.n)
            return hold_line(s, bytes);
        s->after_cr = bytes.p[n] == '\r';
        err = end_line(s, str_of(bytes.p, n));
        bytes = str_skip(bytes, n + 1);
    }
    return err;
}

int sse_feed(struct sse *s, struct str bytes)
{
    if (s->failed == 0)
        s->failed = sse_feed_lines(s, bytes);
    return s->failed;
}
