// SPDX-License-Identifier: Apache-2.0
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"

struct rm_flags {
    char *server, *token_file;
};

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct rm_flags),
};

static const struct common_command command = {
    .name = "rm",
    .arguments = "NAME...",
    .min_args = 1,
    .about = "Deletes streams with all their data, at once and for good. Readers that follow one\n"
             "are told that it is gone.\n",
    .examples = "  tidemark rm greetings\n"
                "  tidemark rm chats/1 chats/2\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

static int remove_one(struct tm_client *c, const char *server, const char *name)
{
    struct tm_call *call = NULL;
    int err = tm_delete(c, name, &call), status = CMD_OK;
    err = common_call(err, call);
    if (err == TM_E_NOT_FOUND)
        status =
            common_fail(&command, "no stream named %s; `tidemark ls` lists what is there", name);
    else if (err)
        status = common_client_failed(&command, server, c, err);
    tm_call_free(call);
    return status;
}

int cmd_rm(int argc, char **argv)
{
    struct rm_flags flags = {0};
    struct tm_client *c = NULL;
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status))
        status = common_connect(&command, flags.server, flags.token_file, false, &c);
    for (int i = 1; c && i <= n; i++)
        if (remove_one(c, flags.server, argv[i]) != CMD_OK)
            status = CMD_FAILED;
    tm_close(c);
    options_free(&command.flags, &flags);
    return status;
}
