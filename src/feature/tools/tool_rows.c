// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool_rows.h"
#include "base/ascii.h"
#include "base/json.h"
#include "base/must.h"

#define KEEP_BYTES (64 * 1024) /* of a buffer that is empty */

/* ---- rows ---- */

void tool_rows_deinit(struct tool_rows *r)
{
    buf_deinit(&r->bytes);
    buf_deinit(&r->ends);
}

void tool_rows_clear(struct tool_rows *r)
{
    r->bytes.n = r->ends.n = 0;
    if (r->bytes.cap > KEEP_BYTES)
        buf_deinit(&r->bytes);
}

static uint32_t end_of(const struct tool_rows *r, size_t i)
{
    uint32_t end;
    memcpy(&end, r->ends.p + i * sizeof end, sizeof end);
    return end;
}

struct str tool_rows_at(const struct tool_rows *r, size_t i)
{
    uint32_t from = i > 0 ? end_of(r, i - 1) : 0;
    return str_of(r->bytes.p + from, end_of(r, i) - from);
}

void tool_rows_add(struct tool_rows *r, struct str row)
{
    buf_put(&r->bytes, row);
    buf_putc(&r->bytes, ',');
    must(r->bytes.n <= UINT32_MAX);
    uint32_t end = (uint32_t)r->bytes.n;
    buf_put(&r->ends, str_of((const char *)&end, sizeof end));
}

size_t tool_rows_page(const struct tool_rows *r, uint64_t rows, uint64_t bytes)
{
    size_t n = 0, count = tool_rows_count(r);
    while (n < count && n < rows && (n == 0 || end_of(r, n) <= bytes))
        n++;
    return n;
}

void tool_rows_put(const struct tool_rows *r, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    if (n > 0)
        buf_put(out, str_of(r->bytes.p, end_of(r, n - 1) - 1));
    buf_putc(out, ']');
}

/* ---- the splitter ---- */

void tool_splitter_deinit(struct tool_splitter *s)
{
    buf_deinit(&s->row);
}

/* Follows strings and brackets as far as it takes to find the end of a row; whether the row is
 * valid is seen when it is whole. */
static void tool_rows_follow(struct tool_splitter *s, char c)
{
    if (s->in_string) {
        bool ends = c == '"' && !s->escaped;
        s->escaped = c == '\\' && !s->escaped;
        s->in_string = !ends;
    } else if (c == '"') {
        s->in_string = true;
    } else if (c == '[' || c == '{') {
        s->depth++;
    } else if ((c == ']' || c == '}') && s->depth > 0) {
        s->depth--;
    }
}

static enum tool_rows_fault end_row(struct tool_splitter *s, struct tool_rows *out)
{
    struct str row = str_trim(buf_str(&s->row));
    size_t at;
    if (json_check(row, &at) != 0)
        return TOOL_ROWS_JSON;
    tool_rows_add(out, row);
    s->rows++;
    s->row.n = 0;
    s->expects = false;
    return TOOL_ROWS_FINE;
}

static bool has_row(const struct tool_splitter *s)
{
    return str_trim(buf_str(&s->row)).n > 0;
}

static enum tool_rows_fault tool_rows_begin(struct tool_splitter *s, char c)
{
    if (ascii_is_space(c))
        return TOOL_ROWS_FINE;
    s->form = c == '[' ? SPLIT_ARRAY : SPLIT_LINES;
    if (c == '[')
        return TOOL_ROWS_FINE;
    tool_rows_follow(s, c);
    buf_putc(&s->row, c);
    return TOOL_ROWS_FINE;
}

/* c stands where a row can end. True: it does, or c is the array's end, and *fault says how that
 * went. */
static bool ends_row(struct tool_splitter *s, char c, struct tool_rows *out,
                     enum tool_rows_fault *fault)
{
    *fault = TOOL_ROWS_FINE;
    if (s->form == SPLIT_LINES) {
        if (c == '\n' && has_row(s))
            *fault = end_row(s, out);
        return c == '\n';
    }
    if (c != ',' && c != ']')
        return false;
    /* [] has no row; otherwise there is one before each comma and before the end */
    if (c == ',' || s->expects || has_row(s))
        *fault = end_row(s, out);
    s->expects = c == ',';
    if (c == ']')
        s->form = SPLIT_AFTER;
    return true;
}

static enum tool_rows_fault tool_rows_take(struct tool_splitter *s, char c, struct tool_rows *out)
{
    enum tool_rows_fault fault;
    if (s->form == SPLIT_START)
        return tool_rows_begin(s, c);
    if (s->form == SPLIT_AFTER)
        return ascii_is_space(c) ? TOOL_ROWS_FINE : TOOL_ROWS_AFTER;
    if (!s->in_string && s->depth == 0 && ends_row(s, c, out, &fault))
        return fault;
    if (!s->in_string && (c == '\r' || c == '\n'))
        c = ' '; /* white space, which must not end a line once it is stored */
    if (s->row.n >= s->row_max)
        return TOOL_ROWS_LARGE;
    tool_rows_follow(s, c);
    buf_putc(&s->row, c);
    return TOOL_ROWS_FINE;
}

enum tool_rows_fault tool_splitter_feed(struct tool_splitter *s, struct str bytes,
                                        struct tool_rows *out)
{
    enum tool_rows_fault fault = TOOL_ROWS_FINE;
    for (size_t i = 0; fault == TOOL_ROWS_FINE && i < bytes.n; i++)
        fault = tool_rows_take(s, bytes.p[i], out);
    return fault;
}

enum tool_rows_fault tool_splitter_end(struct tool_splitter *s, struct tool_rows *out)
{
    if (s->form == SPLIT_ARRAY)
        return TOOL_ROWS_CUT;
    return s->form == SPLIT_LINES && has_row(s) ? end_row(s, out) : TOOL_ROWS_FINE;
}

bool tool_rows_cut(struct str *stored, struct str *row)
{
    struct tool_splitter s = {0};
    for (size_t i = 0; i < stored->n; i++) {
        if (!s.in_string && s.depth == 0 && stored->p[i] == ',') {
            *row = str_of(stored->p, i);
            *stored = str_skip(*stored, i + 1);
            return true;
        }
        tool_rows_follow(&s, stored->p[i]);
    }
    return false;
}
