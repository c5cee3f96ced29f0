// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "client/client.h"
#include "cmd/cmd.h"
#include "cmd/common.h"
#include "store/content.h"
#include "store/store.h"

#include <unistd.h>

struct tail_flags {
    char *server, *token_file, *from;
    bool follow, verbose;
};

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct tail_flags),
    {.name = "from",
     .type = OPTION_TEXT,
     .field = offsetof(struct tail_flags, from),
     .fallback = "start",
     .value = "start|now|OFFSET",
     .help = "Where to begin: at the first event, at the next one to come, or at an offset."},
    {.name = "follow",
     .type = OPTION_BOOL,
     .field = offsetof(struct tail_flags, follow),
     .fallback = "yes",
     .help = "Stay and print what comes; --no-follow ends at the last event there is."},
    {.name = "verbose",
     .type = OPTION_BOOL,
     .field = offsetof(struct tail_flags, verbose),
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

struct tail {
    struct client *client;
    const struct tail_flags *flags;
    const char *name;
    bool json;      /* each value a line */
    struct buf out; /* JSON values that are not written yet */
    int failed;     /* errno of writing */
    bool gap;       /* reported */
};

static int write_out(struct tail *t, struct str bytes)
{
    t->failed = common_write(STDOUT_FILENO, bytes);
    return t->failed;
}

static int flush(struct tail *t)
{
    int err = write_out(t, buf_str(&t->out));
    t->out.n = 0;
    return err;
}

static int take_data(void *user, const void *data, size_t n)
{
    struct tail *t = user;
    if (!t->json)
        return write_out(t, str_of(data, n));
    buf_put(&t->out, str_of(data, n));
    buf_putc(&t->out, '\n');
    return t->out.n >= OUT_BYTES ? flush(t) : 0;
}

static int take_position(void *user, const char *next_offset, bool up_to_date)
{
    return flush(user);
}

static int take_gap(void *user, const struct client_gap *gap)
{
    struct tail *t = user;
    t->gap = true;
    common_fail(&command,
                "what stood at %s can no longer be read (%s); `--from %s` begins with the "
                "earliest there is",
                gap->requested, gap->reason, gap->earliest);
    return ERR_GAP;
}

static int report(struct tail *t, int err)
{
    if (t->failed || (err == ERR_CANCELLED && !t->gap))
        return common_written(&command, t->failed);
    if (t->gap)
        return CMD_FAILED;
    if (err == ERR_NOT_FOUND)
        return common_fail(&command, "%s is gone: it was deleted or has expired", t->name);
    if (err == ERR_OFFSET)
        return common_fail(&command,
                           "%s is not an offset of %s; --from takes start, now, or an "
                           "offset that the server gave",
                           t->flags->from, t->name);
    return common_client_failed(&command, t->flags->server, t->client, err);
}

/* The stream must be there now: a server that comes up later, or a stream, is not waited for. */
static int look(struct tail *t)
{
    struct client_state state;
    int err = client_head(t->client, t->name, &state);
    if (err == ERR_NOT_FOUND && store_is_session(str_of_cstr(t->name)))
        return common_fail(&command,
                           "no stream named %s, or none that this caller is shown: streams of "
                           "sessions are shown to workers, by their token (--token-file)",
                           t->name);
    if (err == ERR_NOT_FOUND)
        return common_fail(&command,
                           "no stream named %s; `tidemark append %s` makes one, `tidemark ls` "
                           "lists what is there",
                           t->name, t->name);
    if (err)
        return report(t, err);
    t->json = content_kind(str_of_cstr(state.content_type)) == CONTENT_JSON;
    return CMD_OK;
}

static int follow(struct tail *t)
{
    struct client_follow_options options = {
        .from = t->flags->from,
        .stop_at_tail = !t->flags->follow,
        .user = t,
        .data = take_data,
        .position = take_position,
        .gap = take_gap,
    };
    struct client_follower *f = client_follower_new(t->client, t->name, &options);
    int err = client_follower_run(f);
    if (t->failed == 0)
        flush(t); /* what came before a failure is good */
    const struct client_state *state = client_follower_state(f);
    if (err == 0 && state->closed && t->flags->verbose)
        fprintf(stderr, "tidemark tail: %s is closed%s%s\n", t->name,
                *state->end_reason ? ": " : "", state->end_reason);
    int status = err || t->failed ? report(t, err) : CMD_OK;
    client_follower_free(f);
    return status;
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
        client_watch(t.client, STDOUT_FILENO);
        status = look(&t);
        if (status == CMD_OK)
            status = follow(&t);
    }
    buf_deinit(&t.out);
    client_free(t.client);
    options_free(&command.flags, &flags);
    return status;
}
