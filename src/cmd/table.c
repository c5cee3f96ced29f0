// SPDX-License-Identifier: Apache-2.0
#include "cmd/table.h"
#include "cmd/cmd_common.h"

#include <unistd.h>

/* Columns are as wide as the widest of so many rows; a longer list is not kept in memory. */
#define HELD_ROWS 1000
#define HELD_OUT  (64 * 1024)

static void table_flush(struct table *t)
{
    if (t->failed == 0)
        t->failed = common_write(STDOUT_FILENO, buf_str(&t->out));
    t->out.n = 0;
}

/* In characters of UTF-8, near enough for names. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void put_cells(struct table *t)
{
    const char *cell = t->cells.p;
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->columns;
        buf_put(&t->out, str_of_cstr(cell));
        if (column < t->columns - 1)
            buf_printf(&t->out, "%*s", (int)(t->width[column] - width_of(cell)) + 2, "");
        else
            buf_putc(&t->out, '\n');
        cell += strlen(cell) + 1;
    }
    t->cells.n = t->n = 0;
    table_flush(t);
}

void table_cell(struct table *t, const char *text)
{
    size_t width = width_of(text), column = t->n % t->columns;
    if (t->n == HELD_ROWS * t->columns)
        put_cells(t);
    for (; *text; text++)
        buf_putc(&t->cells, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    buf_putc(&t->cells, '\0');
    if (width > t->width[column])
        t->width[column] = width;
    t->n++;
}

struct buf *table_line(struct table *t)
{
    if (t->out.n > HELD_OUT)
        table_flush(t);
    return &t->out;
}

void table_end(struct table *t)
{
    put_cells(t);
    buf_deinit(&t->cells);
    buf_deinit(&t->out);
}
