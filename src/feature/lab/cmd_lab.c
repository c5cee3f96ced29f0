// SPDX-License-Identifier: Apache-2.0
/* cmd_lab.c -- `tidemark lab`: the Lab as a server of its own. */
#include "base/mem.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "feature/lab/lab_commands.h"
#include "cmd/cmd_common.h"
#include "http/http.h"
#include "feature/lab/lab_config.h"
#include "feature/lab/lab.h"
#include "net/addr.h"
#include "net/listener.h"
#include "net/loop.h"
#include "feature/lab/lab_http.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#define CONNECTIONS_MAX 1000
#define PORT_TRIES      20
#define DRAIN_MS        2000

/* ---- the command line ---- */

struct settings {
    struct lab_config lab; /* first: its rows are those of the section */
    char *host;
    uint64_t port;
    bool allow_external;
};

#define ROW(...) OPTION_ROW(struct settings, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("port", OPTION_NUMBER, port), .fallback = "3939", .value = "N", .max = 65535,
     .help = "The port to listen on; one that is taken is passed over for the next, 20 times at "
             "most. 0 takes any free port."},
    {ROW("host", OPTION_TEXT, host), .fallback = "127.0.0.1", .value = "ADDRESS",
     .help = "The address to listen on."},
    {ROW("allow-external", OPTION_BOOL, allow_external),
     .help = "Listen also where other machines can reach it. Whoever does can read what is "
             "imported, and submit."},
    LAB_CONFIG_ROWS,
};

static const struct common_command command = {
    .name = "lab",
    .arguments = "",
    .about = "The Lab: look at runs in a browser and say what you think of them. Agents poll for\n"
             "it with GET /api/feedback?since=CURSOR. Feedback goes into one file, to which\n"
             "`tidemark feedback` and other programs may append at the same time.\n",
    .examples = "  tidemark lab\n"
                "  tidemark lab --port 0 --allow-root ~/videos\n"
                "  tidemark lab --review output/run-7   ends when that run has been reviewed\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

/* ---- the server ---- */

struct site {
    struct settings settings;
    struct trace trace;
    struct loop loop;
    struct http http;
    struct lab_host host;
    struct listener *listener;
    struct timer drain_limit;
    uv_signal_t on_term, on_int, on_hup;
    bool ending;
};

static void cmd_lab_on_accepted(void *ctx, int fd)
{
    http_accept(&((struct site *)ctx)->http, fd, NULL);
}

static void cmd_lab_on_accept_failed(void *ctx, int error)
{
    struct site *s = ctx;
    trace(&s->trace, ACCEPT_FAILED, TRACE_STR("error", str_of_cstr(strerror(error))));
}

static const struct listener_ops listener_ops = {.accepted = cmd_lab_on_accepted,
                                                 .failed = cmd_lab_on_accept_failed};

static void cmd_lab_on_stopped(void *ctx)
{
    struct site *s = ctx;
    timer_stop(&s->drain_limit);
    uv_close((uv_handle_t *)&s->on_term, NULL);
    uv_close((uv_handle_t *)&s->on_int, NULL);
    uv_close((uv_handle_t *)&s->on_hup, NULL);
}

static void cmd_lab_on_idle(struct http *http)
{
    struct site *s = container_of(http, struct site, http);
    lab_host_stop(&s->host, cmd_lab_on_stopped, s);
}

static void cmd_lab_on_drain_limit(struct timer *t)
{
    http_close_all(&container_of(t, struct site, drain_limit)->http);
}

/* Answers under way are finished, within limits. */
static void cmd_lab_end(void *ctx)
{
    struct site *s = ctx;
    if (s->ending) {
        http_close_all(&s->http);
        return;
    }
    s->ending = true;
    if (s->listener != NULL)
        listener_close(s->listener);
    sched_start(&s->loop.sched, &s->drain_limit, DRAIN_MS);
    http_drain(&s->http);
    if (s->http.n_connections == 0)
        cmd_lab_on_idle(&s->http);
}

static void cmd_lab_on_signal(uv_signal_t *handle, int number)
{
    cmd_lab_end(handle->data);
}

static void cmd_lab_init_signals(struct site *s)
{
    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(&s->loop.uv, &s->on_term);
    uv_signal_init(&s->loop.uv, &s->on_int);
    uv_signal_init(&s->loop.uv, &s->on_hup);
    s->on_term.data = s->on_int.data = s->on_hup.data = s;
    uv_signal_start(&s->on_term, cmd_lab_on_signal, SIGTERM);
    uv_signal_start(&s->on_int, cmd_lab_on_signal, SIGINT);
    uv_signal_start(&s->on_hup, cmd_lab_on_signal, SIGHUP); /* its terminal was closed */
}

/* ---- where it listens ---- */

static void format_address(const struct site *s, uint64_t port, char *out, size_t size)
{
    bool v6 = strchr(s->settings.host, ':') != NULL && s->settings.host[0] != '[';
    snprintf(out, size, "%s%s%s:%u", v6 ? "[" : "", s->settings.host, v6 ? "]" : "",
             (unsigned)port);
}

static int check_host(const struct site *s)
{
    struct addr at;
    char text[256], why[256];
    format_address(s, s->settings.port, text, sizeof text);
    if (addr_parse_listen(str_of_cstr(text), &at, why, sizeof why) != 0 || at.kind != ADDR_TCP) {
        common_fail(&command, "%s is no address to listen on", s->settings.host);
        return CMD_USAGE;
    }
    bool local = addr_classify((struct sockaddr *)&at.sa, sizeof at.sa) == ADDR_LOOPBACK;
    if (local || s->settings.allow_external)
        return CMD_OK;
    common_fail(&command,
                "%s can be reached from other machines, which could then read what is imported; "
                "--allow-external says that this is meant",
                s->settings.host);
    return CMD_USAGE;
}

static int listen_somewhere(struct site *s)
{
    char address[256], why[256] = "";
    uint64_t port = s->settings.port;
    for (int i = 0; i < PORT_TRIES && port + (uint64_t)i <= 65535; i++) {
        format_address(s, port + (uint64_t)i, address, sizeof address);
        s->listener =
            listener_new(&s->loop, str_of_cstr(address), &listener_ops, s, why, sizeof why);
        if (s->listener != NULL)
            return CMD_OK;
        if (port == 0 || strcmp(why, strerror(EADDRINUSE)) != 0)
            break;
    }
    return common_fail(&command, "cannot listen on %s: %s", address, why);
}

static void cmd_lab_print_address(const struct site *s)
{
    struct str at = listener_address(s->listener), session = lab_session(s->host.lab);
    printf("lab on http://%.*s/lab (session %.*s)\n", (int)at.n, at.p, (int)session.n, session.p);
    fflush(stdout);
}

/* ---- the whole ---- */

static int cmd_lab_begin(struct site *s)
{
    char why[600];
    struct lab_host_setup setup = {.config = &s->settings.lab,
                                   .loop = &s->loop,
                                   .http = &s->http,
                                   .alone = true,
                                   .finished = cmd_lab_end,
                                   .ctx = s};
    if (lab_host_init(&s->host, &setup, why, sizeof why) != 0)
        return common_fail(&command, "%s", why);
    cmd_lab_init_signals(s);
    int status = listen_somewhere(s);
    if (status == CMD_OK)
        cmd_lab_print_address(s);
    else
        cmd_lab_end(s);
    loop_run(&s->loop);
    return status;
}

static int cmd_lab_serve(struct site *s)
{
    int status = check_host(s);
    if (status != CMD_OK)
        return status;
    if (loop_init(&s->loop) != 0)
        return common_fail(&command, "cannot start an event loop");
    timer_init(&s->drain_limit, cmd_lab_on_drain_limit);
    http_init(&s->http, &s->loop, &s->trace,
              &(struct http_limits){.connections = CONNECTIONS_MAX,
                                    .inflight_bytes = 64 * MIB,
                                    .head_timeout_ms = 10 * SECOND_MS,
                                    .idle_timeout_ms = MINUTE_MS,
                                    .body_timeout_ms = 10 * SECOND_MS,
                                    .write_timeout_ms = MINUTE_MS,
                                    .body_min_bytes = 1});
    s->http.idle = cmd_lab_on_idle;
    s->http.names.any = s->settings.allow_external;
    status = cmd_lab_begin(s);
    http_deinit(&s->http);
    loop_deinit(&s->loop);
    return status;
}

static int cmd_lab_refuse(const char *why)
{
    common_fail(&command, "%s", why);
    return CMD_USAGE;
}

int cmd_lab(int argc, char **argv)
{
    struct site s = {.trace = {.to = stderr, .level = TRACE_WARN}};
    char reason[128];
    int n_args = 0, status;
    if (common_read(&command, &s.settings, argc, argv, &n_args, &status)) {
        if (n_args > 0)
            status = cmd_lab_refuse("arguments are not taken; see --help");
        else if (lab_config_finish(&s.settings.lab, reason, sizeof reason) != 0)
            status = cmd_lab_refuse(reason);
        else
            status = cmd_lab_serve(&s);
    }
    options_free(&command.flags, &s.settings);
    return status;
}
