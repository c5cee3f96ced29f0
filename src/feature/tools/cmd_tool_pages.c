// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/cmd_tool_pages.h"
#include "base/err.h"
#include "base/json_view.h"

#define FIELD "field:"

int tool_merge_parse(struct str text, enum tool_merge *merge, struct str *field)
{
    *field = STR_NONE;
    if (str_eq(text, STR("concat"))) {
        *merge = TOOL_MERGE_CONCAT;
    } else if (str_eq(text, STR("first"))) {
        *merge = TOOL_MERGE_FIRST;
    } else if (str_starts(text, STR(FIELD)) && text.n > sizeof FIELD - 1) {
        *merge = TOOL_MERGE_FIELD;
        *field = str_skip(text, sizeof FIELD - 1);
    } else {
        return ERR_SYNTAX;
    }
    return 0;
}

/* Bytes of a JSON text without the white space between its tokens. */
static uint64_t compact_size(struct str json)
{
    bool inside = false;
    uint64_t n = 0;
    for (size_t i = 0; i < json.n; i++) {
        char c = json.p[i];
        n += inside || (c != ' ' && c != '\t' && c != '\n' && c != '\r');
        if (inside && c == '\\' && i + 1 < json.n) {
            n++;
            i++;
        } else if (c == '"') {
            inside = !inside;
        }
    }
    return n;
}

static int add_rows(struct tool_pages *p, struct str array)
{
    struct str rest, row;
    if (view_type(array) != VIEW_ARRAY)
        return ERR_TYPE_MISMATCH;
    rest = view_inside(array);
    while (view_element(&rest, &row)) {
        if (p->rows.n > 0)
            buf_putc(&p->rows, ',');
        buf_put(&p->rows, row);
    }
    return 0;
}

static void cmd_tool_pages_keep(struct tool_pages *p, struct str page)
{
    p->last.n = 0;
    buf_put(&p->last, page);
}

static int add_field(struct tool_pages *p, struct str page)
{
    struct view_want field = {.name = p->field};
    if (view_type(page) != VIEW_OBJECT)
        return ERR_TYPE_MISMATCH;
    view_pick(page, &field, 1);
    cmd_tool_pages_keep(p, page);
    return add_rows(p, field.value);
}

int tool_pages_add(struct tool_pages *p, struct str page, bool more)
{
    page = view_trim(page);
    p->pages++;
    p->bytes += compact_size(page);
    if (p->bytes > p->max_bytes || (more && p->pages >= p->max_pages))
        return ERR_LIMIT;
    if (p->merge == TOOL_MERGE_FIELD)
        return add_field(p, page);
    if (p->merge == TOOL_MERGE_CONCAT)
        return add_rows(p, page);
    if (p->pages == 1)
        cmd_tool_pages_keep(p, page);
    return 0;
}

static void put_rows(const struct tool_pages *p, struct buf *out)
{
    buf_putc(out, '[');
    buf_put(out, buf_str(&p->rows));
    buf_putc(out, ']');
}

/* The page with all rows where its own were. */
static void put_with_rows(const struct tool_pages *p, struct buf *out)
{
    struct str rest = view_inside(buf_str(&p->last)), name, value;
    struct view_want field = {.name = p->field};
    bool first = true;
    view_pick(buf_str(&p->last), &field, 1);
    buf_putc(out, '{');
    while (view_member(&rest, &name, &value)) {
        buf_printf(out, "%s\"", first ? "" : ",");
        buf_put(out, name);
        buf_put(out, STR("\":"));
        if (value.p == field.value.p)
            put_rows(p, out);
        else
            buf_put(out, value);
        first = false;
    }
    buf_putc(out, '}');
}

void tool_pages_put(const struct tool_pages *p, struct buf *out)
{
    if (p->merge == TOOL_MERGE_FIELD) {
        put_with_rows(p, out);
    } else if (p->merge == TOOL_MERGE_FIRST) {
        buf_put(out, buf_str(&p->last));
    } else {
        put_rows(p, out);
    }
}

void tool_pages_deinit(struct tool_pages *p)
{
    buf_deinit(&p->rows);
    buf_deinit(&p->last);
}
