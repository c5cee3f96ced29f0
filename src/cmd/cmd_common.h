// SPDX-License-Identifier: Apache-2.0
/* cmd_common.h -- what the commands that speak to a server share: how they read their command line,
 * how they explain themselves, and how they report a failure. */
#ifndef CMD_CMD_COMMON_H
#define CMD_CMD_COMMON_H

#include "base/options.h"
#include "tidemark.h"

#include <poll.h>
#include <stdbool.h>

/* The first rows of every such command's table. Of all rows only the very first is also taken from
 * the environment (TIDEMARK_SERVER): a variable must not turn `append` into `append --close`. A
 * token is never on the command line, where everybody on the machine can read it. */
#define COMMON_SERVER_ROWS(target)                                                                 \
    {OPTION_ROW(target, "server", OPTION_TEXT, server), .fallback = "http://127.0.0.1:4437",       \
     .value = "URL",                                                                               \
     .help = "The server, as http(s)://HOST:PORT or unix:PATH. TIDEMARK_SERVER says the same."},   \
    {                                                                                              \
        OPTION_ROW(target, "token-file", OPTION_TEXT, token_file),                                 \
            .value = "FILE",                                                                       \
            .help = "Present the token in this file, for what is shown to known callers only. "    \
                    "TIDEMARK_TOKEN may hold the token itself."                                    \
    }

struct common_command {
    const char *name;           /* "tail" */
    const char *arguments;      /* "NAME" */
    int min_args, max_args;     /* max 0: any number */
    const char *about;          /* some lines for somebody new */
    const char *examples;       /* lines */
    const struct options flags; /* begin with COMMON_SERVER_ROWS */
    bool takes_no_environment;  /* ... unless this says that it is a flag like all others */
};

/* Fills target from defaults, environment and flags; the arguments are left at the front of
 * argv + 1, counted in *n_args. False: the command is over (help was asked for, or the line was
 * wrong, both already answered) and *status is its exit status. options_free is due either way. */
bool common_read(const struct common_command *command, void *target, int argc, char **argv,
                 int *n_args, int *status);

/* A client of that server; with verbose, its notices go to standard error. The token is that in
 * token_file, or if that is NULL the one in TIDEMARK_TOKEN; maybe none. Broken pipes no longer end
 * the process. 0, or CMD_USAGE or CMD_FAILED when it has been reported why not. */
int common_connect(const struct common_command *command, const char *server, const char *token_file,
                   bool verbose, struct tm_client **out);

/* The token that common_connect presents, for those who connect by themselves and wipe it then;
 * empty: there is none. 0, or CMD_FAILED when it has been reported why not. */
#define COMMON_TOKEN_SIZE 4096 /* NUL included; a request's head takes more, but not for ever */
int common_token(const struct common_command *command, const char *file,
                 char token[COMMON_TOKEN_SIZE]);

/* Whether common_connect has a token to present. */
bool common_has_token(const char *token_file);

/* One line on standard error, `tidemark NAME: ...`. Returns CMD_FAILED. */
int common_fail(const struct common_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a client's error, with what to do about it where one can tell. */
int common_client_failed(const struct common_command *command, const char *server,
                         const struct tm_client *c, int err);

/* Waits for a call that was started with `started` (what tm_head and its like returned) and returns
 * its error. tm_call_free is due either way. */
int common_call(int started, struct tm_call *call);

/* What tm_head finds out. A server that does not answer as one of streams does is an error. */
int common_head(struct tm_client *c, const char *name, struct tm_call **out);

/* Waits until the client, or one of the others (with revents as poll sets them), has something to
 * do, and turns the client. */
void common_turn(struct tm_client *c, struct pollfd *others, size_t n);

/* For whoever has run a server: a second SIGTERM while the last things are put away must not kill
 * what has ended well. */
void common_block_ending(void);

/* Of a command of several, when `what` is none of them: help was asked for, or it is wrong. Returns
 * the exit status. */
int common_no_subcommand(const char *name, const char *expected, const char *usage,
                         const char *what);

/* Writes all of it to a descriptor. 0, or the errno. */
int common_write(int fd, struct str bytes);

/* The exit status when that is how writing ended, reported if it is a failure; that nobody reads
 * any more is none. */
int common_written(const struct common_command *command, int error);

#endif
