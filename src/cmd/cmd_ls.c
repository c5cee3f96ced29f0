// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "cmd/pages.h"
#include "cmd/table.h"

struct ls_flags {
    char *server, *token_file;
    bool json;
};

#define ROW(...) OPTION_ROW(struct ls_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct ls_flags),
    {ROW("json", OPTION_BOOL, json),
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

struct listing {
    const struct ls_flags *flags;
    struct table table;
};

static void cmd_ls_put_json(struct buf *out, const json_t *stream)
{
    buf_put(out, STR("{\"name\":"));
    json_put_string(out, str_of_cstr(pages_text(stream, "name")));
    buf_put(out, STR(",\"contentType\":"));
    json_put_string(out, str_of_cstr(pages_text(stream, "contentType")));
    buf_put(out, STR(",\"nextOffset\":"));
    json_put_string(out, str_of_cstr(pages_text(stream, "nextOffset")));
    buf_printf(out, ",\"closed\":%s}\n", pages_truth(stream, "closed") ? "true" : "false");
}

static bool cmd_ls_take_stream(void *user, const json_t *stream)
{
    struct listing *l = user;
    if (l->flags->json) {
        cmd_ls_put_json(table_line(&l->table), stream);
    } else {
        table_cell(&l->table, pages_text(stream, "name"));
        table_cell(&l->table, pages_text(stream, "contentType"));
        table_cell(&l->table, pages_text(stream, "nextOffset"));
        table_cell(&l->table, pages_truth(stream, "closed") ? "closed" : "open");
    }
    return l->table.failed == 0;
}

static int cmd_ls_list(struct tm_client *c, const struct ls_flags *flags, const char *prefix)
{
    struct listing l = {.flags = flags, .table = {.columns = 4}};
    struct pages pages = {.path = "/v1/stream/",
                          .member = "streams",
                          .prefix = prefix,
                          .user = &l,
                          .item = cmd_ls_take_stream};
    char why[PAGES_WHY];
    int err = pages_walk(c, &pages, why);
    table_end(&l.table);
    if (err == TM_E_NOT_FOUND)
        return common_fail(&command, "%s does not list its streams", flags->server);
    if (err && *why)
        return common_fail(&command, "%s %s", flags->server, why);
    return err ? common_client_failed(&command, flags->server, c, err)
               : common_written(&command, l.table.failed);
}

int cmd_ls(int argc, char **argv)
{
    struct ls_flags flags = {0};
    struct tm_client *c = NULL;
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status))
        status = common_connect(&command, flags.server, flags.token_file, false, &c);
    if (c)
        status = cmd_ls_list(c, &flags, n > 0 ? argv[1] : NULL);
    tm_close(c);
    options_free(&command.flags, &flags);
    return status;
}
