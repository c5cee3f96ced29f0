// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "store/content.h"
#include "store/names.h"
#include "store/store.h"

#include <unistd.h>

struct tail_flags {
    char *server, *token_file, *from;
    bool follow, verbose;
};

#define ROW(...) OPTION_ROW(struct tail_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct tail_flags),
    {ROW("from", OPTION_TEXT, from), .fallback = "start", .value = "start|now|OFFSET",
     .help = "Where to begin: at the first event, at the next one to come, or at an offset."},
    {ROW("follow", OPTION_BOOL, follow), .fallback = "yes",
     .help = "Stay and print what comes; --no-follow ends at the last event there is."},
    {ROW("verbose", OPTION_BOOL, verbose),
     .help = "Say on standard error when the connection is lost and made again."},
};

static const struct common_command command = {
    .name = "tail",
    .arguments = "NAME",
    .min_args = 1,
    .max_args = 1,
    .about = "Prints a stream and follows it as it grows. A lost connection is made again, and\n"
             "nothing is printed twice or left out. Ends when the stream is closed. Of a JSON\n"
             "stream each value is a line; other streams are printed byte for byte.\n",
    .examples = "  tidemark tail greetings\n"
                "  tidemark tail greetings --no-follow > greetings.txt\n"
                "  tidemark tail chats/1 --from now | jq .text\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

#define OUT_BYTES (64 * 1024)
/* Whether the client of a sealed session comes back, nobody knows: only who follows can wait. */
#define SEALED_MS 2000

struct tail {
    struct tm_client *client;
    struct tm_follower *follower;
    const struct tail_flags *flags;
    const char *name;
    struct buf position; /* a text: where a new follower would go on */
    bool json;           /* each value a line */
    struct buf out;      /* JSON values that are not written yet */
    int failed;          /* errno of writing */
    bool left;           /* nobody reads what we write */
};

static void write_out(struct tail *t, struct str bytes)
{
    t->failed = common_write(STDOUT_FILENO, bytes);
}

static void cmd_tail_flush(struct tail *t)
{
    if (t->failed == 0)
        write_out(t, buf_str(&t->out));
    t->out.n = 0;
}

static void keep_position(struct tail *t, const char *offset)
{
    t->position.n = 0;
    buf_put(&t->position, str_of(offset, strlen(offset) + 1));
}

static void cmd_tail_take(struct tail *t, const struct tm_batch *b)
{
    if (b->n > 0 && t->json) {
        buf_put(&t->out, str_of(b->data, b->n));
        buf_putc(&t->out, '\n');
    } else if (b->n > 0) {
        write_out(t, str_of(b->data, b->n));
    }
    if (t->out.n >= OUT_BYTES)
        cmd_tail_flush(t);
    keep_position(t, b->next_offset);
    if (b->closed && t->flags->verbose)
        fprintf(stderr, "tidemark tail: %s is closed%s%s\n", t->name, *b->end_reason ? ": " : "",
                b->end_reason);
}

/* What the follower only says in a sentence, a read tells in its parts. */
static int report_gap(struct tail *t)
{
    struct tm_call *call = NULL;
    int err = tm_read(t->client, t->name, t->position.p, TM_LIVE_NO, &call);
    err = common_call(err, call);
    int status = CMD_FAILED;
    if (err == TM_E_GAP) {
        const struct tm_result *r = tm_call_result(call);
        common_fail(&command,
                    "what stood at %s can no longer be read (%s); `--from %s` begins with the "
                    "earliest there is",
                    r->gap_requested, r->gap_reason, r->gap_earliest);
    } else {
        common_fail(&command, "%s", tm_error_text(TM_E_GAP));
    }
    tm_call_free(call);
    return status;
}

static int cmd_tail_report(struct tail *t, int err)
{
    if (t->failed || t->left)
        return common_written(&command, t->failed);
    switch (err) {
    case TM_E_GAP: return report_gap(t);
    case TM_E_NOT_FOUND:
        return common_fail(&command, "%s is gone: it was deleted or has expired", t->name);
    case TM_E_OFFSET:
        return common_fail(&command,
                           "%s is not an offset of %s; --from takes start, now, or an "
                           "offset that the server gave",
                           t->flags->from, t->name);
    default: return common_client_failed(&command, t->flags->server, t->client, err);
    }
}

static int not_there(const struct tail *t)
{
    if (store_sealed(str_of_cstr(t->name)))
        return common_fail(&command,
                           "no stream named %s, or none that this caller is shown: streams of "
                           "sessions are shown to workers, by their token (--token-file)",
                           t->name);
    return common_fail(&command,
                       "no stream named %s; `tidemark append %s` makes one, `tidemark ls` "
                       "lists what is there",
                       t->name, t->name);
}

/* The stream must be there now: a server that comes up later, or a stream, is not waited for. */
static int cmd_tail_look(struct tail *t)
{
    struct tm_call *call = NULL;
    int err = common_head(t->client, t->name, &call), status = CMD_OK;
    if (err == TM_E_NOT_FOUND)
        status = not_there(t);
    else if (err == TM_E_PROTOCOL)
        status =
            common_fail(&command, "%s does not answer as a stream server does", t->flags->server);
    else if (err)
        status = cmd_tail_report(t, err);
    else
        t->json = content_kind(str_of_cstr(tm_call_result(call)->content_type)) == CONTENT_JSON;
    tm_call_free(call);
    return status;
}

/* Returns what the follower ended with, or 0 when nobody reads what we write. */
static int print_all(struct tail *t)
{
    struct pollfd out = {.fd = STDOUT_FILENO}; /* says when the other side is gone */
    struct tm_batch batch;
    while (t->failed == 0 && !t->left) {
        int got = tm_follower_next(t->follower, &batch);
        if (got < 0)
            return got;
        if (got > 0) {
            cmd_tail_take(t, &batch);
            continue;
        }
        cmd_tail_flush(t);
        if (t->failed == 0)
            common_turn(t->client, &out, 1);
        t->left = out.revents & (POLLERR | POLLHUP | POLLNVAL);
    }
    return 0;
}

static int cmd_tail_follow(struct tail *t)
{
    struct tm_follow_options options = TM_FOLLOW_INIT;
    const char *from = strcmp(t->flags->from, "start") == 0 ? "-1" : t->flags->from;
    options.offset = from;
    options.live = t->flags->follow ? TM_LIVE_AUTO : TM_LIVE_NO;
    options.json_values = t->json;
    if (!t->flags->follow && store_sealed(str_of_cstr(t->name)))
        options.retry_for_ms = SEALED_MS;
    keep_position(t, from);
    int err = tm_follower_new(t->client, t->name, &options, &t->follower);
    if (err == 0)
        err = print_all(t);
    cmd_tail_flush(t); /* what came before a failure is good */
    return t->failed || (err && err != TM_E_CLOSED) ? cmd_tail_report(t, err) : CMD_OK;
}

int cmd_tail(int argc, char **argv)
{
    struct tail_flags flags = {0};
    struct tail t = {.flags = &flags};
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status))
        status = common_connect(&command, flags.server, flags.token_file, flags.verbose, &t.client);
    if (t.client) {
        t.name = argv[1];
        status = cmd_tail_look(&t);
        if (status == CMD_OK)
            status = cmd_tail_follow(&t);
    }
    buf_deinit(&t.out);
    buf_deinit(&t.position);
    tm_follower_free(t.follower);
    tm_close(t.client);
    options_free(&command.flags, &flags);
    return status;
}
