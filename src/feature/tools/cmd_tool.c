// SPDX-License-Identifier: Apache-2.0
/* cmd_tool.c -- `tidemark tool`: calls a server's tools, page by page or all pages at once. */
#include "base/err.h"
#include "base/json.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "feature/tools/tools_commands.h"
#include "cmd/cmd_common.h"
#include "cmd/pages.h"
#include "cmd/table.h"
#include "feature/tools/cmd_tool_pages.h"
#include "base/json_view.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#define LS_COLUMNS        3
#define INPUT_MAX         (1024 * 1024)
#define ANSWER_TIMEOUT_MS (24 * 60 * 60 * 1000) /* a tool may take as long as it is allowed to */

struct tool_flags {
    char *server, *token_file;
    bool json, dry_run;
    uint64_t max_pages, max_bytes;
    char *merge;
};

#define ROW(...) OPTION_ROW(struct tool_flags, __VA_ARGS__)

static const struct option_row ls_rows[] = {
    COMMON_SERVER_ROWS(struct tool_flags),
    {ROW("json", OPTION_BOOL, json),
     .help = "One JSON object a line: id, description, input_schema, capability, paginated."},
};

static const struct option_row run_rows[] = {
    COMMON_SERVER_ROWS(struct tool_flags),
    {ROW("json", OPTION_BOOL, json), .help = "Print the whole answer instead of its result."},
    {ROW("dry-run", OPTION_BOOL, dry_run),
     .help = "Look whether it could be called, and call nothing."},
};

static const struct option_row continue_rows[] = {
    COMMON_SERVER_ROWS(struct tool_flags),
    {ROW("json", OPTION_BOOL, json), .help = "Print the whole answer instead of its result."},
};

static int cmd_tool_check_merge(struct str value, char *reason, size_t size)
{
    enum tool_merge merge;
    struct str field;
    return tool_merge_parse(value, &merge, &field);
}

static const struct option_row all_rows[] = {
    COMMON_SERVER_ROWS(struct tool_flags),
    {ROW("max-pages", OPTION_NUMBER, max_pages), .fallback = "100", .value = "N", .min = 1,
     .max = 1000000, .help = "Fail when there are more pages."},
    {ROW("max-bytes", OPTION_SIZE, max_bytes), .fallback = "32m", .value = "SIZE", .min = 1,
     .max = 1024 * MIB, .help = "Fail when they have more bytes in all."},
    {ROW("merge", OPTION_TEXT, merge), .fallback = "concat", .value = "concat|field:NAME|first",
     .check = cmd_tool_check_merge,
     .help = "How pages become one result. concat: each is an array. field: the member NAME of "
             "each is one; the other members are those of the last page. first: only the first "
             "is kept, though all are asked for."},
};

#define COUNTED(a)                                                                                 \
    {                                                                                              \
        a, sizeof a / sizeof *(a)                                                                  \
    }

static const struct common_command ls_command = {
    .name = "tool ls",
    .arguments = "",
    .about = "Lists the tools of a server: name, whether its results come in pages, and what it\n"
             "does.\n",
    .examples = "  tidemark tool ls\n"
                "  tidemark tool ls --json | jq -r .id\n",
    .flags = COUNTED(ls_rows),
};

static const struct common_command run_command = {
    .name = "tool run",
    .arguments = "NAME [ARGS|-]",
    .min_args = 1,
    .max_args = 2,
    .about =
        "Calls a tool and prints its result, or the first page of it. ARGS is a JSON object; -\n"
        "reads it from standard input. If there is more, the cursor of the next page is told\n"
        "on standard error.\n",
    .examples = "  tidemark tool run stream:list\n"
                "  tidemark tool run stream:read '{\"name\":\"greetings\"}'\n"
                "  tidemark tool run stream:list --json | jq -r .next_cursor\n",
    .flags = COUNTED(run_rows),
};

static const struct common_command continue_command = {
    .name = "tool continue",
    .arguments = "NAME CURSOR",
    .min_args = 2,
    .max_args = 2,
    .about = "Prints the page of a result that a cursor leads to.\n",
    .examples = "  tidemark tool continue stream:list p2d0b29s...\n",
    .flags = COUNTED(continue_rows),
};

static const struct common_command all_command = {
    .name = "tool all",
    .arguments = "NAME [ARGS|-]",
    .min_args = 1,
    .max_args = 2,
    .about = "Calls a tool and prints all pages of its result as one.\n",
    .examples = "  tidemark tool all stream:list\n"
                "  tidemark tool all orders --merge field:items --max-pages 1000\n",
    .flags = COUNTED(all_rows),
};

/* ---- asking ---- */

struct ask {
    const struct common_command *command;
    const struct tool_flags *flags;
    struct tm_client *client;
    struct tm_call *call; /* the last one, which the answer is of */
    struct str answer;    /* a JSON object */
    struct str result, cursor;
    bool success;
};

static int take_error(struct ask *a, struct str message, struct str code)
{
    struct buf text = {0};
    view_decode(view_inside(message), &text);
    if (code.n > 0)
        common_fail(a->command, "%.*s (%.*s)", (int)text.n, text.p, (int)code.n, code.p);
    else
        common_fail(a->command, "%.*s", (int)text.n, text.p);
    buf_deinit(&text);
    return CMD_FAILED;
}

/* What a server of tools says; anything else is reported. */
static int take_answer(struct ask *a)
{
    const struct tm_result *r = tm_call_result(a->call);
    struct view_want m[] = {{.name = STR("type")},    {.name = STR("result")},
                            {.name = STR("success")}, {.name = STR("next_cursor")},
                            {.name = STR("message")}, {.name = STR("code")}};
    size_t at;
    a->answer = str_of(r->data, r->n);
    if (json_check(a->answer, &at) == 0)
        a->answer = view_trim(a->answer);
    if (view_type(a->answer) == VIEW_OBJECT)
        view_pick(a->answer, m, sizeof m / sizeof *m);
    if (view_text_is(m[0].value, STR("error")) && view_type(m[4].value) == VIEW_STRING)
        return take_error(a, m[4].value, m[5].value);
    if (!view_text_is(m[0].value, STR("tool_result")))
        return common_fail(a->command, "%s has no tools (it answered %d)", a->flags->server,
                           r->status);
    a->result = m[1].value;
    a->success = str_eq(m[2].value, STR("true"));
    a->cursor = view_type(m[3].value) == VIEW_STRING ? view_inside(m[3].value) : STR_NONE;
    return CMD_OK;
}

static int cmd_tool_post(struct ask *a, const char *path, const struct buf *body)
{
    struct tm_post_options o = TM_POST_INIT;
    o.content_type = "application/json";
    o.data = body->p;
    o.n = body->n;
    o.answer_timeout_ms = ANSWER_TIMEOUT_MS;
    tm_call_free(a->call);
    a->call = NULL;
    int err = tm_post(a->client, path, &o, &a->call);
    err = common_call(err, a->call);
    if (err)
        return common_client_failed(a->command, a->flags->server, a->client, err);
    return take_answer(a);
}

/* args: n == 0: none. */
static int run_tool(struct ask *a, const char *name, struct str args)
{
    struct buf body = {0};
    buf_put(&body, STR("{\"tool_id\":"));
    json_put_string(&body, str_of_cstr(name));
    buf_put(&body, STR(",\"args\":"));
    buf_put(&body, args.n > 0 ? args : STR("{}"));
    buf_printf(&body, ",\"dry_run\":%s}", a->flags->dry_run ? "true" : "false");
    int status = cmd_tool_post(a, "/atd/v1/run_tool", &body);
    buf_deinit(&body);
    return status;
}

static int cmd_tool_continue(struct ask *a, const char *name, struct str cursor)
{
    struct buf body = {0};
    buf_put(&body, STR("{\"tool_id\":"));
    json_put_string(&body, str_of_cstr(name));
    buf_put(&body, STR(",\"cursor\":"));
    json_put_string(&body, cursor);
    buf_putc(&body, '}');
    int status = cmd_tool_post(a, "/atd/v1/run_tool_continue", &body);
    buf_deinit(&body);
    return status;
}

/* ---- arguments ---- */

static int cmd_tool_read_input(struct ask *a, struct buf *out)
{
    ssize_t n = 1;
    while (n != 0 && out->n <= INPUT_MAX) {
        n = read(STDIN_FILENO, buf_reserve(out, 65536), 65536);
        if (n > 0)
            out->n += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return common_fail(a->command, "cannot read: %s", strerror(errno));
    }
    return CMD_OK;
}

/* text: NULL, none were given. */
static int take_args(struct ask *a, const char *text, struct buf *out)
{
    size_t at;
    int status = CMD_OK;
    if (text == NULL)
        return CMD_OK;
    if (strcmp(text, "-") == 0)
        status = cmd_tool_read_input(a, out);
    else
        buf_put(out, str_of_cstr(text));
    if (status != CMD_OK)
        return status;
    if (out->n <= INPUT_MAX && json_check(buf_str(out), &at) == 0 &&
        view_type(view_trim(buf_str(out))) == VIEW_OBJECT)
        return CMD_OK;
    common_fail(a->command, "ARGS must be a JSON object of at most 1 MB");
    return CMD_USAGE;
}

/* ---- printing ---- */

static int print_line(const struct ask *a, struct str json)
{
    struct buf line = {0};
    view_put_unbroken(&line, json);
    buf_putc(&line, '\n');
    int error = common_write(STDOUT_FILENO, buf_str(&line));
    buf_deinit(&line);
    return common_written(a->command, error);
}

/* The tool ran and failed. What a program reads as the result is not for that. */
static int fail_tool(const struct ask *a, const char *where)
{
    struct view_want message = {.name = STR("message")};
    struct buf text = {0};
    if (view_type(a->result) == VIEW_OBJECT)
        view_pick(a->result, &message, 1);
    if (view_type(message.value) == VIEW_STRING)
        view_decode(view_inside(message.value), &text);
    int status = common_fail(a->command, "the tool failed%s: %.*s", where, (int)text.n,
                             text.n > 0 ? text.p : "");
    buf_deinit(&text);
    return status;
}

static int print_page(const struct ask *a, const char *name)
{
    if (!a->success && !a->flags->json)
        return fail_tool(a, "");
    int status = print_line(a, a->flags->json ? a->answer : a->result);
    if (status == CMD_OK && a->cursor.n > 0 && !a->flags->json)
        fprintf(stderr, "There is more: tidemark tool continue %s %.*s\n", name, (int)a->cursor.n,
                a->cursor.p);
    return status != CMD_OK ? status : a->success ? CMD_OK : CMD_FAILED;
}

/* ---- the commands ---- */

static int cmd_tool_act_run(struct ask *a, char **args, int n)
{
    struct buf text = {0};
    int status = take_args(a, n > 1 ? args[1] : NULL, &text);
    if (status == CMD_OK)
        status = run_tool(a, args[0], buf_str(&text));
    if (status == CMD_OK)
        status = print_page(a, args[0]);
    buf_deinit(&text);
    return status;
}

static int cmd_tool_act_continue(struct ask *a, char **args, int n)
{
    int status = cmd_tool_continue(a, args[0], str_of_cstr(args[1]));
    return status == CMD_OK ? print_page(a, args[0]) : status;
}

static int fail_page(const struct ask *a, const struct tool_pages *p, int err)
{
    if (err == ERR_LIMIT)
        return common_fail(a->command,
                           "more than was asked for: %" PRIu64 " pages with %" PRIu64
                           " bytes came; --max-pages and --max-bytes allow more",
                           p->pages, p->bytes);
    return common_fail(a->command, "page %" PRIu64 " cannot be put to the others by --merge %s",
                       p->pages, a->flags->merge);
}

static int add_page(struct ask *a, struct tool_pages *p)
{
    if (!a->success) {
        char where[64];
        snprintf(where, sizeof where, " at page %" PRIu64, p->pages + 1);
        return fail_tool(a, where);
    }
    int err = tool_pages_add(p, a->result, a->cursor.n > 0);
    return err == 0 ? CMD_OK : fail_page(a, p, err);
}

static int cmd_tool_act_all(struct ask *a, char **args, int n)
{
    struct tool_pages p = {.max_pages = a->flags->max_pages, .max_bytes = a->flags->max_bytes};
    struct buf text = {0}, whole = {0};
    tool_merge_parse(str_of_cstr(a->flags->merge), &p.merge, &p.field);
    int status = take_args(a, n > 1 ? args[1] : NULL, &text);
    if (status == CMD_OK)
        status = run_tool(a, args[0], buf_str(&text));
    if (status == CMD_OK)
        status = add_page(a, &p);
    while (status == CMD_OK && a->cursor.n > 0) {
        struct buf cursor = {0};
        buf_put(&cursor, a->cursor); /* the answer that it is in goes */
        status = cmd_tool_continue(a, args[0], buf_str(&cursor));
        buf_deinit(&cursor);
        if (status == CMD_OK)
            status = add_page(a, &p);
    }
    if (status == CMD_OK) {
        tool_pages_put(&p, &whole);
        status = print_line(a, buf_str(&whole));
    }
    tool_pages_deinit(&p);
    buf_deinit(&text);
    buf_deinit(&whole);
    return status;
}

static void list_tool(const struct ask *a, struct table *t, const json_t *tool)
{
    if (a->flags->json) {
        char *line = json_dumps(tool, JSON_COMPACT);
        if (line != NULL) {
            buf_put(table_line(t), str_of_cstr(line));
            buf_putc(table_line(t), '\n');
        }
        free(line);
        return;
    }
    table_cell(t, pages_text(tool, "id"));
    table_cell(t, pages_truth(tool, "paginated") ? "pages" : "whole");
    table_cell(t, pages_text(tool, "description"));
}

static int cmd_tool_act_ls(struct ask *a, char **args, int n)
{
    struct table t = {.columns = LS_COLUMNS};
    json_t *answer = NULL;
    int err = pages_get(a->client, "/atd/v1/", "tools", &answer);
    const json_t *tools = json_object_get(answer, "tools");
    int status;
    if (err && err != TM_E_NOT_FOUND) {
        status = common_client_failed(a->command, a->flags->server, a->client, err);
    } else if (!json_is_array(tools)) {
        status = common_fail(a->command, "%s has no tools", a->flags->server);
    } else {
        for (size_t i = 0; i < json_array_size(tools); i++)
            list_tool(a, &t, json_array_get(tools, i));
        table_end(&t);
        status = common_written(a->command, t.failed);
    }
    json_decref(answer);
    return status;
}

static int cmd_tool_run(const struct common_command *command,
                        int (*act)(struct ask *a, char **args, int n), int argc, char **argv)
{
    struct tool_flags flags = {0};
    struct ask a = {.command = command, .flags = &flags};
    int status = CMD_USAGE, n = 0;
    if (common_read(command, &flags, argc, argv, &n, &status))
        status = common_connect(command, flags.server, flags.token_file, false, &a.client);
    if (a.client)
        status = act(&a, argv + 1, n);
    tm_call_free(a.call);
    tm_close(a.client);
    options_free(&command->flags, &flags);
    return status;
}

static const char usage[] =
    "Usage: tidemark tool ls [flags]\n"
    "       tidemark tool run [flags] NAME [ARGS|-]\n"
    "       tidemark tool continue [flags] NAME CURSOR\n"
    "       tidemark tool all [flags] NAME [ARGS|-]\n"
    "\n"
    "Calls the tools of a server: one page of a result, the next, or all of them.\n"
    "`tidemark tool run --help`, and so on, shows the flags.\n";

int cmd_tool(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "ls") == 0)
        return cmd_tool_run(&ls_command, cmd_tool_act_ls, argc - 1, argv + 1);
    if (strcmp(what, "run") == 0)
        return cmd_tool_run(&run_command, cmd_tool_act_run, argc - 1, argv + 1);
    if (strcmp(what, "continue") == 0)
        return cmd_tool_run(&continue_command, cmd_tool_act_continue, argc - 1, argv + 1);
    if (strcmp(what, "all") == 0)
        return cmd_tool_run(&all_command, cmd_tool_act_all, argc - 1, argv + 1);
    return common_no_subcommand("tool", "ls, run, continue or all", usage, what);
}
