// SPDX-License-Identifier: Apache-2.0
/* fuzz_tool_rows.c -- what a tool gives, cut into rows.
 *
 * The first byte says how the rest is cut. It stops when the cutting makes a difference; when a row
 * is no JSON, has a line break in it, or is not cut out again of what is stored; when one array
 * gives other rows than json_split finds in it; and when it is taken though json_check says no. */
#include "base/json.h"
#include "base/json_canonical.h"
#include "feature/tools/tool_rows.h"

#include <stdio.h>
#include <stdlib.h>

#define ROW_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_tool_rows: %s\n", what);
    abort();
}

static enum tool_rows_fault split(struct str text, size_t step, struct tool_rows *out)
{
    struct tool_splitter s = {.row_max = ROW_MAX};
    enum tool_rows_fault fault = TOOL_ROWS_FINE;
    while (fault == TOOL_ROWS_FINE && text.n > 0) {
        size_t n = text.n < step ? text.n : step;
        fault = tool_splitter_feed(&s, str_of(text.p, n), out);
        text = str_skip(text, n);
    }
    if (fault == TOOL_ROWS_FINE)
        fault = tool_splitter_end(&s, out);
    check(s.rows == tool_rows_count(out), "rows are miscounted");
    tool_splitter_deinit(&s);
    return fault;
}

static void check_rows(const struct tool_rows *r)
{
    struct str rest = buf_str(&r->bytes), row;
    size_t at;
    for (size_t i = 0; i < tool_rows_count(r); i++) {
        struct str stored = tool_rows_at(r, i);
        check(tool_rows_cut(&rest, &row), "a stored row is not found again");
        check(row.n + 1 == stored.n && row.p == stored.p, "a stored row is cut elsewhere");
        check(json_check(row, &at) == 0, "a row is no JSON");
        check(memchr(row.p, '\n', row.n) == NULL && memchr(row.p, '\r', row.n) == NULL,
              "a row has a line break");
    }
    check(rest.n == 0 && !tool_rows_cut(&rest, &row), "something is left behind the rows");
}

/* Both as arrays in canonical form; what has none is left out of it. */
static void check_same(const struct tool_rows *r, struct str events)
{
    struct buf ours = {0}, theirs = {0}, array = {0};
    tool_rows_put(r, tool_rows_count(r), &array);
    int err = json_canonical(buf_str(&array), STR_NONE, &ours);
    array.n = 0;
    buf_putc(&array, '[');
    buf_put(&array, str_of(events.p, events.n > 0 ? events.n - 1 : 0));
    buf_putc(&array, ']');
    check(json_canonical(buf_str(&array), STR_NONE, &theirs) == err, "one of them is no JSON");
    check(str_eq(buf_str(&ours), buf_str(&theirs)), "the rows of an array differ");
    buf_deinit(&ours);
    buf_deinit(&theirs);
    buf_deinit(&array);
}

static void check_array(struct str text, enum tool_rows_fault fault, const struct tool_rows *r)
{
    struct buf events = {0}, ends = {0};
    size_t at;
    int err = json_split(text, &events, &ends, &at);
    if (fault == TOOL_ROWS_FINE)
        check(err == 0, "an array was taken that is no JSON");
    if (err == 0 && fault != TOOL_ROWS_LARGE) {
        check(fault == TOOL_ROWS_FINE, "an array was refused");
        check(ends.n / sizeof(uint32_t) == tool_rows_count(r), "an array has other rows");
        check_same(r, buf_str(&events));
    }
    buf_deinit(&events);
    buf_deinit(&ends);
}

static bool is_array(struct str text)
{
    while (text.n > 0 && memchr(" \t\r\n", text.p[0], 4) != NULL)
        text = str_skip(text, 1);
    return text.n > 0 && text.p[0] == '[';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tool_rows whole = {0}, pieces = {0};
    if (n == 0)
        return 0;
    struct str text = str_of((const char *)data + 1, n - 1);
    enum tool_rows_fault fault = split(text, text.n + 1, &whole);
    check(split(text, data[0] % 16 + 1, &pieces) == fault, "cutting changes the verdict");
    check(str_eq(buf_str(&whole.bytes), buf_str(&pieces.bytes)) &&
              str_eq(buf_str(&whole.ends), buf_str(&pieces.ends)),
          "cutting changes the rows");
    check_rows(&whole);
    if (is_array(text))
        check_array(text, fault, &whole);
    tool_rows_deinit(&whole);
    tool_rows_deinit(&pieces);
    return 0;
}
