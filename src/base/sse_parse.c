// SPDX-License-Identifier: Apache-2.0
#include "base/sse_parse.h"
#include "base/num.h"

static const char bom[3] = {'\xEF', '\xBB', '\xBF'};

void sse_parser_init(struct sse_parser *p, const struct sse_host *host, void *memory, size_t max,
                     void *user, sse_event_fn *on_event)
{
    *p = (struct sse_parser){
        .host = host, .memory = memory, .max = max, .on_event = on_event, .user = user};
}

static void drop_text(struct sse_parser *p, struct sse_text *t)
{
    if (t->p != NULL)
        p->host->resize(p->memory, t->p, 0);
    *t = (struct sse_text){0};
}

void sse_parser_deinit(struct sse_parser *p)
{
    drop_text(p, &p->line);
    drop_text(p, &p->data);
}

static int grow_text(struct sse_parser *p, struct sse_text *t, size_t n)
{
    size_t cap = t->cap > 0 ? t->cap : 64;
    if (n > SIZE_MAX / 4 - t->n) /* or doubling would wrap */
        return p->host->no_memory;
    while (cap - t->n < n)
        cap *= 2;
    char *bytes = p->host->resize(p->memory, t->p, cap);
    if (bytes == NULL)
        return p->host->no_memory;
    t->p = bytes;
    t->cap = cap;
    return 0;
}

/* All or nothing, within the limit. */
static int keep_text(struct sse_parser *p, struct sse_text *t, struct str s)
{
    if (s.n > p->max - t->n)
        return p->host->too_large;
    int err = s.n > t->cap - t->n ? grow_text(p, t, s.n) : 0;
    if (err != 0 || s.n == 0)
        return err;
    memcpy(t->p + t->n, s.p, s.n);
    t->n += s.n;
    return 0;
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

static int sse_parse_take_name(struct sse_parser *p, char *to, uint8_t *n, struct str value)
{
    if (value.n > SSE_NAME_MAX)
        return p->host->too_large;
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    *n = (uint8_t)value.n;
    return 0;
}

static int sse_parse_take_data(struct sse_parser *p, struct str value)
{
    int err = p->has_data ? keep_text(p, &p->data, STR("\n")) : 0;
    p->has_data = true;
    return err != 0 ? err : keep_text(p, &p->data, value);
}

static int take_field(struct sse_parser *p, struct str name, struct str value)
{
    if (str_eq(name, STR("data")))
        return sse_parse_take_data(p, value);
    if (str_eq(name, STR("event")))
        return sse_parse_take_name(p, p->type, &p->n_type, value);
    if (str_eq(name, STR("id"))) {
        bool has_nul = value.n > 0 && memchr(value.p, '\0', value.n) != NULL;
        return has_nul ? 0 : sse_parse_take_name(p, p->id, &p->n_id, value);
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
            .data = str_of(p->data.p, p->data.n),
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
        return p->host->too_large;
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
    int err = keep_text(p, &p->line, rest);
    if (err != 0)
        return err;
    struct str line = str_of(p->line.p, p->line.n);
    p->line.n = 0; /* the bytes stay until the next put, which is after this line */
    return sse_parse_take_line(p, line);
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
            int err = keep_text(p, &p->line, str_of(bom, p->n_bom));
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
            return keep_text(p, &p->line, bytes);
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
