// SPDX-License-Identifier: Apache-2.0
#include "cmd/cmd_common.h"
#include "base/ascii.h"
#include "base/err.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define TURN_FDS   32
#define CROWDED_MS 50

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

int common_no_subcommand(const char *name, const char *expected, const char *usage,
                         const char *what)
{
    bool help = strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0;
    if (!help && *what)
        fprintf(stderr, "tidemark %s: expected %s, not %s\n", name, expected, what);
    fputs(usage, help ? stdout : stderr);
    return help ? CMD_OK : CMD_USAGE;
}

static void cmd_common_print_notice(void *user, const char *text)
{
    const struct common_command *command = user;
    fprintf(stderr, "tidemark %s: %s\n", command->name, text);
}

/* ---- the token ---- */

static const char *token_of_environment(void)
{
    const char *token = getenv("TIDEMARK_TOKEN");
    return token && *token ? token : NULL; /* empty is as good as unset, as with settings */
}

bool common_has_token(const char *token_file)
{
    return token_file != NULL || token_of_environment() != NULL;
}

/* Up to its end, or more than a token may have. */
static int read_up_to(const char *path, char *room, size_t size, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 1;
    *n = 0;
    while (got > 0 && *n < size) {
        got = read(fd, room + *n, size - *n);
        if (got > 0)
            *n += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    int error = got < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* What can stand in a header behind `Bearer`. */
static bool cmd_common_is_token(struct str text)
{
    return ascii_is_visible(text) && text.n < COMMON_TOKEN_SIZE;
}

/* Without the end of line that editors put there. */
static struct str without_end(struct str text)
{
    while (text.n > 0 && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r'))
        text.n--;
    return text;
}

/* Errors do not repeat what is no token, for it may be one with a slip in it. */
int common_token(const struct common_command *command, const char *file,
                 char token[COMMON_TOKEN_SIZE])
{
    char room[COMMON_TOKEN_SIZE + 2];
    struct str text = STR_NONE;
    const char *where = file ? file : "TIDEMARK_TOKEN";
    *token = '\0';
    if (file) {
        int error = read_up_to(file, room, sizeof room, &text.n);
        if (error)
            return common_fail(command, "cannot read the token in %s: %s", file, strerror(error));
        text.p = room;
    } else if (token_of_environment()) {
        text = str_of_cstr(token_of_environment());
    } else {
        return 0;
    }
    text = without_end(text);
    if (!cmd_common_is_token(text))
        return common_fail(command,
                           "%s holds no token: expected one line of 1 to %d visible characters",
                           where, COMMON_TOKEN_SIZE - 1);
    memcpy(token, text.p, text.n);
    token[text.n] = '\0';
    return 0;
}

/* ---- the client ---- */

int common_connect(const struct common_command *command, const char *server, const char *token_file,
                   bool verbose, struct tm_client **out)
{
    char token[COMMON_TOKEN_SIZE];
    int status = common_token(command, token_file, token);
    if (status)
        return status;
    struct tm_options options = TM_OPTIONS_INIT;
    options.server = server;
    options.token = *token ? token : NULL;
    options.notice_ctx = (void *)command;
    options.notice = verbose ? cmd_common_print_notice : NULL;
    signal(SIGPIPE, SIG_IGN);
    int err = tm_open(&options, out);
    OPENSSL_cleanse(token, sizeof token);
    if (err == 0)
        return 0;
    if (err != TM_E_INVALID)
        return common_fail(command, "%s", tm_error_text(err));
    common_fail(command,
                "%s is no address of a server; expected http(s)://HOST:PORT or "
                "unix:PATH",
                server);
    return CMD_USAGE;
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

int common_client_failed(const struct common_command *command, const char *server,
                         const struct tm_client *c, int err)
{
    if (err == TM_E_NETWORK)
        return common_fail(command,
                           "cannot reach %s: is `tidemark serve` running? --server URL or "
                           "TIDEMARK_SERVER names another server. (%s)",
                           server, tm_error(c));
    return common_fail(command, "%s", tm_error(c));
}

/* ---- calls and turns ---- */

int common_call(int started, struct tm_call *call)
{
    return started ? started : tm_call_wait(call, TM_FOREVER);
}

int common_head(struct tm_client *c, const char *name, struct tm_call **out)
{
    int err = tm_head(c, name, out);
    err = common_call(err, *out);
    return err == 0 && *tm_call_result(*out)->next_offset == '\0' ? TM_E_PROTOCOL : err;
}

void common_turn(struct tm_client *c, struct pollfd *others, size_t n)
{
    struct tm_descriptor ours[TURN_FDS];
    struct pollfd fds[TURN_FDS];
    size_t n_ours = tm_descriptors(c, ours, TURN_FDS - n), n_fds = 0;
    int timeout_ms = tm_deadline_ms(c);
    if (n_ours > TURN_FDS - n) {
        /* More than a command ever has: those that do not fit are looked at soon. */
        n_ours = TURN_FDS - n;
        timeout_ms = timeout_ms < 0 || timeout_ms > CROWDED_MS ? CROWDED_MS : timeout_ms;
    }
    for (; n_fds < n_ours; n_fds++)
        fds[n_fds] = (struct pollfd){.fd = ours[n_fds].fd,
                                     .events = (short)((ours[n_fds].readable ? POLLIN : 0) |
                                                       (ours[n_fds].writable ? POLLOUT : 0))};
    memcpy(fds + n_fds, others, n * sizeof *others);
    if (poll(fds, (nfds_t)(n_fds + n), timeout_ms) < 0)
        for (size_t i = 0; i < n; i++) /* a signal: nothing is known of any of them */
            fds[n_fds + i].revents = 0;
    memcpy(others, fds + n_fds, n * sizeof *others);
    tm_turn(c);
}

void common_block_ending(void)
{
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    sigprocmask(SIG_BLOCK, &ending, NULL);
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

int common_written(const struct common_command *command, int error)
{
    if (error == 0 || error == EPIPE)
        return CMD_OK;
    return common_fail(command, "cannot write: %s", strerror(error));
}
