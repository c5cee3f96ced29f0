// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/json.h"
#include "client/client.h"
#include "cmd/cmd.h"
#include "cmd/common.h"

#include <unistd.h>

struct ls_flags {
    char *server;
    bool json;
};

static const struct option_row rows[] = {
    COMMON_SERVER_ROW(struct ls_flags),
    {.name = "json",
     .type = OPTION_BOOL,
     .field = offsetof(struct ls_flags, json),
     .help = "One JSON object a line: name, contentType, nextOffset, closed."},
};

static const struct common_command command = {
    .name = "ls",
    .arguments = "[PREFIX]",
    .max_args = 1,
    .about = "Lists the streams of a server, or those whose names begin with PREFIX, in order of\n"
             "names: name, content type, offset of the next event, and whether it is still open.\n",
    .examples = "  tidemark ls\n"
                "  tidemark ls chats/\n"
                "  tidemark ls --json | jq -r .name\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

/* Columns are as wide as the widest of so many rows; a longer list is not kept in memory. */
#define TABLE_ROWS 1000
enum { COLUMN_NAME, COLUMN_TYPE, COLUMN_OFFSET, COLUMN_STATE, COLUMNS };

struct table {
    bool json;
    struct buf cells;      /* each with a NUL behind it, row after row */
    size_t n;              /* rows in cells */
    size_t width[COLUMNS]; /* only grows, so that later rows stay aligned where they can */
    struct buf out;
    int failed; /* errno of writing */
};

static void flush(struct table *t)
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

static void put_row(struct table *t, const char **cell)
{
    for (int i = 0; i < COLUMNS; i++) {
        buf_put(&t->out, str_of_cstr(*cell));
        if (i < COLUMNS - 1)
            buf_printf(&t->out, "%*s", (int)(t->width[i] - width_of(*cell)) + 2, "");
        *cell += strlen(*cell) + 1;
    }
    buf_putc(&t->out, '\n');
}

static void put_rows(struct table *t)
{
    const char *cell = t->cells.p;
    for (size_t i = 0; i < t->n; i++)
        put_row(t, &cell);
    t->cells.n = t->n = 0;
    flush(t);
}

/* Names are anybody's bytes, and a terminal takes some of them for orders. */
static void keep_cell(struct table *t, int column, const char *text)
{
    size_t width = width_of(text);
    for (; *text; text++)
        buf_putc(&t->cells, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    buf_putc(&t->cells, '\0');
    if (width > t->width[column])
        t->width[column] = width;
}

static void put_json(struct table *t, const struct client_row *row)
{
    buf_put(&t->out, STR("{\"name\":"));
    json_put_string(&t->out, str_of_cstr(row->name));
    buf_put(&t->out, STR(",\"contentType\":"));
    json_put_string(&t->out, str_of_cstr(row->content_type));
    buf_put(&t->out, STR(",\"nextOffset\":"));
    json_put_string(&t->out, str_of_cstr(row->next_offset));
    buf_printf(&t->out, ",\"closed\":%s}\n", row->closed ? "true" : "false");
    if (t->out.n > 64 * 1024)
        flush(t);
}

static bool take_row(void *user, const struct client_row *row)
{
    struct table *t = user;
    if (t->json) {
        put_json(t, row);
    } else {
        keep_cell(t, COLUMN_NAME, row->name);
        keep_cell(t, COLUMN_TYPE, row->content_type);
        keep_cell(t, COLUMN_OFFSET, row->next_offset);
        keep_cell(t, COLUMN_STATE, row->closed ? "closed" : "open");
        if (++t->n == TABLE_ROWS)
            put_rows(t);
    }
    return t->failed == 0;
}

static int list(struct client *c, const struct ls_flags *flags, const char *prefix)
{
    struct table t = {.json = flags->json};
    int err = client_list(c, prefix, NULL, 0, &t, take_row);
    put_rows(&t);
    buf_deinit(&t.cells);
    buf_deinit(&t.out);
    if (err == ERR_NOT_FOUND)
        return common_fail(&command, "%s does not list its streams", flags->server);
    return err ? common_client_failed(&command, flags->server, c, err) : CMD_OK;
}

int cmd_ls(int argc, char **argv)
{
    struct ls_flags flags = {0};
    struct client *c = NULL;
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status) &&
        common_connect(&command, flags.server, false, &c) == 0)
        status = list(c, &flags, n > 0 ? argv[1] : NULL);
    client_free(c);
    options_free(&command.flags, &flags);
    return status;
}
