// SPDX-License-Identifier: Apache-2.0
/* cmd_mcp.c -- `tidemark mcp`: tools for whoever starts this program and speaks MCP with it, one
 * message a line. Each is handed on to a server's /mcp, and its answer back. With --config the
 * server is one of our own, in a thread of this process, that nobody else can reach. */
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/list.h"
#include "cmd/cmd.h"
#include "feature/tools/tools_commands.h"
#include "cmd/cmd_common.h"
#include "cmd/private_server.h"
#include "base/json_view.h"
#include "feature/tools/mcp_message.h"
#include "feature/tools/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_MAX_BYTES    (TOOL_ARGS_MAX + 64 * 1024)
#define READ_STEP         (64 * 1024)
#define CALLS_MAX         64                    /* at a time; more wait in the pipe */
#define ANSWER_TIMEOUT_MS (24 * 60 * 60 * 1000) /* a tool may take as long as it is allowed to */

struct mcp_flags {
    char *server, *token_file, *config;
};

#define ROW(...) OPTION_ROW(struct mcp_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct mcp_flags),
    {ROW("config", OPTION_TEXT, config), .value = "FILE",
     .help = "Ask no server: run the tools of this file's settings in this process, which serves "
             "nobody else. Results are kept in memory unless the file says with data where."},
};

static const struct common_command command = {
    .name = "mcp",
    .arguments = "",
    .about = "Speaks the Model Context Protocol on standard input and output: the tools of a\n"
             "server, for an agent that starts this program. A result of several pages names the\n"
             "cursor of the next one in nextCursor and, for models, in a note; the environment\n"
             "variable ATD_MCP_PASSTHROUGH_CURSOR=1 leaves the note out.\n",
    .examples = "  tidemark mcp\n"
                "  tidemark mcp --server https://tides.example.com --token-file agent.token\n"
                "  tidemark mcp --config tools.conf\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

/* ---- the bridge ---- */

struct bridge {
    const char *server;
    struct tm_client *client;
    struct link calls; /* of struct pending */
    size_t n_calls;
    struct buf in;
    bool skipping;   /* the rest of a line that was too long */
    bool ended;      /* no more comes */
    int failed;      /* errno of writing */
    int server_over; /* readable when our own server has ended; -1: it is another's */
};

struct pending {
    struct link link;
    struct tm_call *call;
    struct buf id; /* JSON text; empty: nobody waits */
};

static void write_line(struct bridge *b, struct str json)
{
    struct buf line = {0};
    if (json.n == 0 || b->failed != 0)
        return;
    view_put_unbroken(&line, json);
    buf_putc(&line, '\n');
    b->failed = common_write(STDOUT_FILENO, buf_str(&line));
    buf_deinit(&line);
}

static void answer_error(struct bridge *b, struct str id, int code, struct str message)
{
    struct buf json = {0};
    mcp_put_error(&json, id, code, message);
    write_line(b, buf_str(&json));
    buf_deinit(&json);
}

/* A refusal that came before the message was read does not know whose it is. */
static void answer_as(struct bridge *b, struct str id, struct str error)
{
    struct buf json = {0};
    buf_put(&json, STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    buf_put(&json, id);
    buf_put(&json, STR(",\"error\":"));
    buf_put(&json, error);
    buf_putc(&json, '}');
    write_line(b, buf_str(&json));
    buf_deinit(&json);
}

static void hand_back(struct bridge *b, const struct pending *p)
{
    const struct tm_result *r = tm_call_result(p->call);
    struct str body = str_of(r->data, r->n), id = buf_str(&p->id);
    struct view_want error = {.name = STR("error")};
    char why[512];
    size_t at;
    if (tm_call_error(p->call) != 0) {
        snprintf(why, sizeof why, "cannot reach %.200s: %.200s", b->server,
                 tm_call_message(p->call));
        answer_error(b, id, MCP_INTERNAL, str_of_cstr(why));
    } else if (mcp_id_of(body).n > 0) {
        write_line(b, body);
    } else {
        if (json_check(body, &at) == 0 && view_type(view_trim(body)) == VIEW_OBJECT)
            view_pick(view_trim(body), &error, 1);
        snprintf(why, sizeof why, "%.200s does not speak MCP (it answered %d)", b->server,
                 r->status);
        if (error.value.n > 0)
            answer_as(b, id, error.value);
        else
            answer_error(b, id, MCP_INTERNAL, str_of_cstr(why));
    }
}

static void free_pending(struct bridge *b, struct pending *p)
{
    list_remove(&p->link);
    tm_call_free(p->call);
    buf_deinit(&p->id);
    free(p);
    b->n_calls--;
}

static void look_at_calls(struct bridge *b)
{
    list_each_safe (l, &b->calls) {
        struct pending *p = list_item(l, struct pending, link);
        if (!tm_call_done(p->call))
            continue;
        if (p->id.n > 0)
            hand_back(b, p);
        free_pending(b, p);
    }
}

/* ---- messages ---- */

static void cancel(struct bridge *b, struct str id)
{
    list_each_safe (l, &b->calls) {
        struct pending *p = list_item(l, struct pending, link);
        if (str_eq(buf_str(&p->id), id))
            free_pending(b, p);
    }
}

static int cmd_mcp_put_headers(struct tm_call *call, struct str line)
{
    struct arena a = {0};
    struct mcp_headers h = mcp_headers_of(line, &a);
    const struct {
        const char *name;
        struct str value;
    } all[] = {{"mcp-protocol-version", h.version}, {"mcp-method", h.method}, {"mcp-name", h.name}};
    int err = tm_call_header(call, "accept", "application/json, text/event-stream");
    for (size_t i = 0; err == 0 && i < sizeof all / sizeof *all; i++)
        if (all[i].value.p != NULL)
            err = tm_call_header(
                call, all[i].name,
                arena_printf(&a, "%.*s%c", (int)all[i].value.n, all[i].value.p, 0).p);
    arena_deinit(&a);
    return err;
}

static void hand_on(struct bridge *b, struct str line)
{
    const char *passthrough = getenv("ATD_MCP_PASSTHROUGH_CURSOR");
    bool quiet = passthrough != NULL && strcmp(passthrough, "1") == 0;
    struct tm_post_options o = TM_POST_INIT;
    struct pending *p = mem_zalloc(sizeof *p);
    o.content_type = "application/json";
    o.data = line.p;
    o.n = line.n;
    o.answer_timeout_ms = ANSWER_TIMEOUT_MS;
    buf_put(&p->id, mcp_id_of(line));
    int err = tm_post(b->client, quiet ? "/mcp?bridge=1&quiet=1" : "/mcp?bridge=1", &o, &p->call);
    if (err == 0)
        err = cmd_mcp_put_headers(p->call, line);
    if (err != 0) {
        if (p->id.n > 0)
            answer_error(b, buf_str(&p->id), MCP_INTERNAL, str_of_cstr(tm_error(b->client)));
        tm_call_free(p->call);
        buf_deinit(&p->id);
        free(p);
        return;
    }
    list_push(&b->calls, &p->link);
    b->n_calls++;
}

static void cmd_mcp_take_line(struct bridge *b, struct str line)
{
    size_t at;
    struct str cancelled;
    line = view_trim(line);
    if (line.n == 0)
        return;
    if (json_check(line, &at) != 0) {
        answer_error(b, STR_NONE, MCP_PARSE_ERROR, STR("Parse error"));
        return;
    }
    if (view_type(line) != VIEW_OBJECT) { /* several in an array, say, each of which has an id */
        answer_error(b, STR_NONE, MCP_INVALID_REQUEST, STR("Invalid Request"));
        return;
    }
    cancelled = mcp_cancelled_id(line);
    if (cancelled.n > 0)
        cancel(b, cancelled);
    else
        hand_on(b, line);
}

static void cmd_mcp_take_lines(struct bridge *b)
{
    struct str rest = buf_str(&b->in);
    const char *end;
    while (b->n_calls < CALLS_MAX && rest.n > 0 && (end = memchr(rest.p, '\n', rest.n)) != NULL) {
        size_t n = (size_t)(end - rest.p);
        if (!b->skipping)
            cmd_mcp_take_line(b, str_of(rest.p, n));
        b->skipping = false;
        rest = str_skip(rest, n + 1);
    }
    if (b->n_calls < CALLS_MAX && rest.n > LINE_MAX_BYTES) {
        if (!b->skipping)
            answer_error(b, STR_NONE, MCP_INVALID_REQUEST, STR("the message is too large"));
        b->skipping = true;
        rest.n = 0;
    }
    if (rest.n > 0)
        memmove(b->in.p, rest.p, rest.n);
    b->in.n = rest.n;
}

static void read_more(struct bridge *b)
{
    ssize_t n = read(STDIN_FILENO, buf_reserve(&b->in, READ_STEP), READ_STEP);
    if (n > 0) {
        b->in.n += (size_t)n;
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        b->ended = true;
        if (b->in.n > 0) /* a last line may have no end */
            buf_putc(&b->in, '\n');
    }
}

/* Until nothing more comes and all is answered, or nobody reads the answers. */
static void pass_messages(struct bridge *b)
{
    bool stopped = false;
    while (b->failed == 0 && !stopped && (!b->ended || b->n_calls > 0 || b->in.n > 0)) {
        bool room = b->n_calls < CALLS_MAX;
        struct pollfd fds[] = {{.fd = b->ended || !room ? -1 : STDIN_FILENO, .events = POLLIN},
                               {.fd = b->server_over, .events = POLLIN}};
        common_turn(b->client, fds, 2);
        if (fds[0].revents != 0)
            read_more(b);
        stopped = fds[1].revents != 0;
        look_at_calls(b);
        cmd_mcp_take_lines(b);
    }
    list_each_safe (l, &b->calls)
        free_pending(b, list_item(l, struct pending, link));
    buf_deinit(&b->in);
}

static int bridge(const char *server, const char *token_file, int server_over)
{
    struct bridge b = {.server = server, .server_over = server_over};
    list_init(&b.calls);
    int status = common_connect(&command, server, token_file, false, &b.client);
    if (status != CMD_OK)
        return status;
    pass_messages(&b);
    tm_close(b.client);
    return common_written(&command, b.failed);
}

/* ---- a server of our own ---- */

static int with_own_server(char *file, const char *token_file)
{
    char why[512];
    int status;
    struct private_server *server = private_server_start(file, &status, why, sizeof why);
    if (server == NULL) {
        if (why[0] != '\0')
            common_fail(&command, "%s", why);
        return status;
    }
    status = bridge(private_server_address(server), token_file, private_server_over(server));
    return private_server_stop(server) == 0 ? status : CMD_FAILED;
}

int cmd_mcp(int argc, char **argv)
{
    struct mcp_flags flags = {0};
    int n = 0, status;
    if (common_read(&command, &flags, argc, argv, &n, &status)) {
        if (n > 0) {
            common_fail(&command, "arguments are not taken; see --help");
            status = CMD_USAGE;
        } else if (flags.config != NULL) {
            status = with_own_server(flags.config, flags.token_file);
        } else {
            status = bridge(flags.server, flags.token_file, -1);
        }
    }
    options_free(&command.flags, &flags);
    return status;
}
