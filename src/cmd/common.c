// SPDX-License-Identifier: Apache-2.0
#include "cmd/common.h"
#include "base/err.h"
#include "client/client.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

static void print_help(const struct common_command *command)
{
    printf("Usage: tidemark %s [flags] %s\n\n%s\nFlags:\n", command->name, command->arguments,
           command->about);
    options_help(&command->flags, stdout);
    printf("\nExamples:\n%s", command->examples);
}

static int wrong_line(const struct common_command *command, const char *why)
{
    fprintf(stderr, "tidemark %s: %s\n`tidemark %s --help` explains it.\n", command->name, why,
            command->name);
    return CMD_USAGE;
}

static int read_sources(const struct common_command *command, void *target, int argc, char **argv,
                        int *n_args, char *why, size_t size)
{
    const struct options *flags = &command->flags;
    struct options environment = {.rows = flags->rows, .n = command->takes_no_environment ? 0 : 1};
    int err = options_defaults(flags, target, why, size);
    if (err == 0)
        err = options_env(&environment, target, why, size);
    if (err == 0)
        err = options_args(flags, target, argc - 1, argv + 1, n_args, why, size);
    return err;
}

bool common_read(const struct common_command *command, void *target, int argc, char **argv,
                 int *n_args, int *status)
{
    char why[512] = "";
    int err = read_sources(command, target, argc, argv, n_args, why, sizeof why);
    if (err == ERR_CANCELLED) {
        print_help(command);
        *status = CMD_OK;
        return false;
    }
    if (err == 0 && *n_args >= command->min_args &&
        (command->max_args == 0 || *n_args <= command->max_args))
        return true;
    if (err == 0)
        snprintf(why, sizeof why, "%s; it is called as `tidemark %s %s`",
                 *n_args < command->min_args ? "an argument is missing" : "too many arguments",
                 command->name, command->arguments);
    *status = wrong_line(command, why);
    return false;
}

static void print_notice(void *user, const char *text)
{
    const struct common_command *command = user;
    fprintf(stderr, "tidemark %s: %s\n", command->name, text);
}

int common_connect(const struct common_command *command, const char *server, bool verbose,
                   struct client **out)
{
    struct client_options options = {
        .user = (void *)command,
        .notice = verbose ? print_notice : NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    int err = client_new(server, &options, out);
    if (err)
        common_fail(command,
                    "%s is no address of a server; expected http(s)://HOST:PORT or "
                    "unix:PATH",
                    server);
    return err;
}

int common_fail(const struct common_command *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "tidemark %s: ", command->name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return CMD_FAILED;
}

/* The reason alone, out of `cannot reach SERVER: reason`. */
static const char *reason_of(const char *error, const char *server)
{
    static const char begin[] = "cannot reach ";
    size_t n = sizeof begin - 1 + strlen(server);
    bool has_both = strncmp(error, begin, sizeof begin - 1) == 0 && strlen(error) > n + 2;
    return has_both ? error + n + 2 : error;
}

int common_client_failed(const struct common_command *command, const char *server,
                         const struct client *c, int err)
{
    if (err == ERR_REFUSED)
        return common_fail(command,
                           "cannot reach %s: is `tidemark serve` running? --server URL or "
                           "TIDEMARK_SERVER names another server. (%s)",
                           server, reason_of(client_error(c), server));
    return common_fail(command, "%s", client_error(c));
}

int common_write(int fd, struct str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n >= 0) {
            bytes = str_skip(bytes, (size_t)n);
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}
