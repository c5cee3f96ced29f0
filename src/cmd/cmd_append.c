// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "store/content.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

struct append_flags {
    char *server, *token_file, *content_type;
    bool json, whole, create, close, verbose;
    uint64_t retry_for_ms;
};

#define ROW(...) OPTION_ROW(struct append_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct append_flags),
    {ROW("json", OPTION_BOOL, json),
     .help = "Each line is a JSON value; empty lines are passed over."},
    {ROW("whole", OPTION_BOOL, whole), .help = "All of standard input is one event."},
    {ROW("content-type", OPTION_TEXT, content_type), .value = "TYPE",
     .help = "What the stream holds. Unless given: what it holds already, or for a new one "
             "text/plain, application/json with --json, application/octet-stream with --whole."},
    {ROW("create", OPTION_BOOL, create), .fallback = "yes",
     .help = "Make the stream if it is missing; --no-create fails instead."},
    {ROW("close", OPTION_BOOL, close),
     .help = "Close the stream at the end of input: nothing can be added then, and readers know "
             "that they have all of it."},
    {ROW("retry-for", OPTION_DURATION, retry_for_ms), .fallback = "5m", .value = "TIME",
     .help = "How long to go on trying when the server is lost in the middle; 0 is for ever."},
    {ROW("verbose", OPTION_BOOL, verbose),
     .help = "Print the offset behind the last event at the end, and say on standard error what "
             "is tried again."},
};

static const struct common_command command = {
    .name = "append",
    .arguments = "NAME",
    .min_args = 1,
    .max_args = 1,
    .about = "Adds standard input to a stream, line by line, as the lines come. A line is stored\n"
             "exactly once: after a lost connection it is sent again, and the server recognises\n"
             "what it has. Lines that come faster than the server takes them travel together.\n",
    .examples = "  echo hello | tidemark append greetings\n"
                "  tail -f /var/log/syslog | tidemark append logs/syslog\n"
                "  echo '{\"text\":\"hi\"}' | tidemark append chats/1 --json --close\n"
                "  tidemark append photos/1 --whole --content-type image/png < photo.png\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

#define READ_BYTES  (64 * 1024)
#define BATCH_BYTES (1024 * 1024)
#define AHEAD_BYTES (16 * 1024 * 1024)   /* read, and not yet stored */
#define PIECE_MAX   (1024 * 1024 * 1024) /* of --whole, and one line of JSON */
/* A slow trickle that never pauses is still sent this often. */
#define LINGER_MS   20

struct append {
    struct tm_client *client;
    struct tm_producer *producer;
    const struct append_flags *flags;
    const char *name;
    struct tm_call *head; /* the stream as it was when we came */
    bool json;
    struct buf held; /* a line, or all, that has not ended */
    uint64_t line;   /* number of the line that held begins */
};

/* -- the stream ------------------------------------------------------------------------------- */

static int client_failed(const struct append *a, int err)
{
    if (err == TM_E_NOT_FOUND)
        return common_fail(&command, "%s is gone: it was deleted or has expired", a->name);
    if (err == TM_E_PROTOCOL)
        return common_fail(&command, "%s does not answer as a stream server does",
                           a->flags->server);
    return common_client_failed(&command, a->flags->server, a->client, err);
}

static const char *type_of_new(const struct append_flags *f)
{
    if (f->content_type)
        return f->content_type;
    return f->json ? "application/json" : f->whole ? "application/octet-stream" : "text/plain";
}

static int cmd_append_create(struct append *a)
{
    if (!a->flags->create)
        return common_fail(&command, "no stream named %s, and --no-create was given", a->name);
    struct tm_create_options options = TM_CREATE_INIT;
    options.content_type = type_of_new(a->flags);
    struct tm_call *call = NULL;
    int err = tm_create(a->client, a->name, &options, &call);
    err = common_call(err, call);
    tm_call_free(call);
    /* Somebody else made it just now: it will do if it suits. */
    return err && err != TM_E_EXISTS ? client_failed(a, err) : CMD_OK;
}

static int suits(struct append *a, const struct tm_result *head)
{
    const char *wanted = a->flags->content_type;
    struct str type = str_of_cstr(head->content_type);
    if (head->closed)
        return common_fail(&command, "%s is closed: nothing can be added to it", a->name);
    if (wanted && !content_same(str_of_cstr(wanted), type))
        return common_fail(&command, "%s holds %s, not %s", a->name, head->content_type, wanted);
    a->json = content_kind(type) == CONTENT_JSON;
    if (a->json && !a->flags->json && !a->flags->whole)
        return common_fail(&command, "%s holds JSON: add --json, and give one value a line",
                           a->name);
    if (!a->json && a->flags->json)
        return common_fail(&command, "%s holds %s, and --json is for streams of application/json",
                           a->name, head->content_type);
    return CMD_OK;
}

static int open_stream(struct append *a)
{
    int err = common_head(a->client, a->name, &a->head);
    if (err == TM_E_NOT_FOUND) {
        int status = cmd_append_create(a);
        if (status != CMD_OK)
            return status;
        tm_call_free(a->head);
        a->head = NULL;
        err = common_head(a->client, a->name, &a->head);
    }
    return err ? client_failed(a, err) : suits(a, tm_call_result(a->head));
}

/* -- input ------------------------------------------------------------------------------------ */

static int not_json(struct append *a)
{
    tm_producer_flush(a->producer, TM_FOREVER); /* the lines before it are good */
    if (a->flags->whole)
        return common_fail(&command, "the input is not one JSON value");
    return common_fail(&command, "line %" PRIu64 " is not a JSON value; those before it are stored",
                       a->line);
}

static int cmd_append_put(struct append *a, struct str piece)
{
    size_t at;
    if (a->json && json_check(piece, &at) != 0)
        return not_json(a);
    while (tm_producer_pending(a->producer) > AHEAD_BYTES && tm_producer_error(a->producer) == 0)
        tm_wait(a->client, TM_FOREVER);
    int err = tm_producer_append(a->producer, piece.p, piece.n);
    return err ? client_failed(a, err) : CMD_OK;
}

static bool cmd_append_is_blank(struct str line)
{
    for (size_t i = 0; i < line.n; i++)
        if (!strchr(" \t\r\n", line.p[i]))
            return false;
    return true;
}

/* A line with its end, if it has one. */
static int put_line(struct append *a, struct str line)
{
    a->line++;
    return a->json && cmd_append_is_blank(line) ? CMD_OK : cmd_append_put(a, line);
}

static int cmd_append_hold(struct append *a, struct str bytes)
{
    if (bytes.n > PIECE_MAX - a->held.n)
        return common_fail(&command, "the input has more than %d bytes without an end", PIECE_MAX);
    buf_put(&a->held, bytes);
    return CMD_OK;
}

static int put_held(struct append *a)
{
    int status = a->held.n == 0    ? CMD_OK
                 : a->flags->whole ? cmd_append_put(a, buf_str(&a->held))
                                   : put_line(a, buf_str(&a->held));
    a->held.n = 0;
    return status;
}

static int cmd_append_take_lines(struct append *a, struct str bytes)
{
    int status = CMD_OK;
    while (status == CMD_OK && bytes.n > 0) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        size_t n = end ? (size_t)(end - bytes.p) + 1 : bytes.n;
        struct str line = str_of(bytes.p, n);
        bytes = str_skip(bytes, n);
        if (end && a->held.n == 0) {
            status = put_line(a, line);
        } else {
            status = cmd_append_hold(a, line);
            if (status == CMD_OK && end)
                status = put_held(a);
        }
    }
    return status;
}

static bool has_input(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

/* All that is there is gathered; when there is nothing more at the moment, it is sent. */
static int take_input(struct append *a, char *room)
{
    for (;;) {
        ssize_t n = read(STDIN_FILENO, room, READ_BYTES);
        if (n == 0)
            return put_held(a);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return common_fail(&command, "cannot read standard input: %s", strerror(errno));
        struct str bytes = str_of(room, (size_t)n);
        int status = a->flags->whole ? cmd_append_hold(a, bytes) : cmd_append_take_lines(a, bytes);
        if (status != CMD_OK)
            return status;
        tm_turn(a->client);
        int err = has_input() ? 0 : tm_producer_flush(a->producer, TM_FOREVER);
        if (err)
            return client_failed(a, err);
    }
}

static int cmd_append_run(struct append *a)
{
    int status = open_stream(a);
    if (status != CMD_OK)
        return status;
    struct tm_producer_options options = TM_PRODUCER_INIT;
    options.content_type = tm_call_result(a->head)->content_type;
    options.linger_ms = LINGER_MS;
    options.batch_bytes = BATCH_BYTES;
    options.pending_max = (size_t)PIECE_MAX + AHEAD_BYTES;
    options.retry_for_ms = a->flags->retry_for_ms < INT_MAX ? (int)a->flags->retry_for_ms : INT_MAX;
    int err = tm_producer_new(a->client, a->name, &options, &a->producer);
    if (err)
        return client_failed(a, err);
    char *room = mem_alloc(READ_BYTES);
    status = take_input(a, room);
    free(room);
    if (status != CMD_OK)
        return status;
    err = a->flags->close ? tm_producer_close(a->producer, NULL, 0, TM_FOREVER)
                          : tm_producer_flush(a->producer, TM_FOREVER);
    if (err)
        return client_failed(a, err);
    const char *offset = tm_producer_offset(a->producer);
    if (a->flags->verbose)
        puts(*offset ? offset : tm_call_result(a->head)->next_offset);
    return CMD_OK;
}

int cmd_append(int argc, char **argv)
{
    struct append_flags flags = {0};
    struct append a = {.flags = &flags};
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status))
        status = common_connect(&command, flags.server, flags.token_file, flags.verbose, &a.client);
    if (a.client) {
        a.name = argv[1];
        status = cmd_append_run(&a);
    }
    tm_producer_free(a.producer);
    tm_call_free(a.head);
    buf_deinit(&a.held);
    tm_close(a.client);
    options_free(&command.flags, &flags);
    return status;
}
