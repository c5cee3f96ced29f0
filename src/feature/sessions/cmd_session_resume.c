// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/cmd_session_resume.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "feature/sessions/transcript.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct resume_flags {
    char *server, *token_file, *state, *transcript;
    uint64_t lookback_ms, retry_for_ms;
    bool json, verbose;
};

#define ROW(...) OPTION_ROW(struct resume_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct resume_flags),
    {ROW("state", OPTION_TEXT, state), .value = "DIR",
     .help = "The directory that the sessions are saved in: that of `session chat --state`, or the "
             "state_dir of a program with libtidemark."},
    {ROW("lookback", OPTION_DURATION, lookback_ms), .fallback = "2h", .value = "TIME",
     .help = "Leave sessions alone that were not touched for so long (retry_lookback_window_ms); 0 "
             "resumes all, however old."},
    {ROW("transcript", OPTION_TEXT, transcript), .value = "FILE",
     .help =
         "Append each answer to this file, as `session chat --transcript` does: with its id and "
         "exactly once."},
    {ROW("retry-for", OPTION_DURATION, retry_for_ms), .fallback = "5m", .value = "TIME",
     .help = "How long to go on trying when the server is lost; 0 is for ever."},
    {ROW("json", OPTION_BOOL, json),
     .help = "One JSON object a line: session, id, and text (or data, in base64)."},
    {ROW("verbose", OPTION_BOOL, verbose),
     .help = "Say on standard error when a connection is lost and made again."},
};

static const struct common_command command = {
    .name = "session resume",
    .arguments = "--state DIR",
    .about =
        "Resumes all sessions that are saved in a directory: sends what was not acknowledged,\n"
        "says that nothing more follows, and prints the answers, each as a line behind its\n"
        "session's key and a tab. It ends when all of them have ended. The exit status is 0 if\n"
        "all completed (or none was saved), 1 if one did not. Interrupted, it leaves them as\n"
        "they are: started again it goes on, and answers of the last moment may be printed\n"
        "twice. Sessions that another process holds are passed over.\n",
    .examples = "  tidemark session resume --state ~/.local/state/chat\n"
                "  tidemark session resume --state chat --json | jq -r .text\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

/* One session. */
struct resumed {
    struct tm_session *session; /* NULL: it is over */
    struct transcript transcript;
};

struct resume {
    const struct resume_flags *flags;
    struct tm_client *client;
    struct resumed *all;
    size_t n, n_open;
    unsigned completed, failed;
    struct buf line;
    int signals; /* a signalfd */
    bool stopped;
    int status; /* when stopped */
};

static void cmd_session_resume_stop(struct resume *r, int status)
{
    r->stopped = true;
    r->status = status;
}

/* ---- progress, on standard error ---- */

static void cmd_session_resume_say(const struct resumed *one, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void cmd_session_resume_say(const struct resumed *one, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tidemark session resume: %s: ", tm_session_key(one->session));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

static void cmd_session_resume_leave(struct resume *r, struct resumed *one)
{
    transcript_close(&one->transcript);
    tm_session_free(one->session);
    one->session = NULL;
    r->n_open--;
}

static void fail_one(struct resume *r, struct resumed *one, const char *why)
{
    cmd_session_resume_say(one, "failed: %s", why);
    r->failed++;
    cmd_session_resume_leave(r, one);
}

/* ---- what comes ---- */

static struct str content_of(const struct resumed *one, const struct tm_event *e)
{
    if (tm_session_service(one->session) == TM_SERVICE_AISERVER)
        return str_of_cstr(e->text);
    return str_of(e->data, e->n);
}

static int print(struct resume *r, const struct resumed *one, const struct tm_event *e,
                 struct str content)
{
    const char *key = tm_session_key(one->session);
    r->line.n = 0;
    if (r->flags->json) {
        transcript_line(&r->line, key, e->event_id, content);
    } else {
        buf_put(&r->line, str_of_cstr(key));
        buf_putc(&r->line, '\t');
        buf_put(&r->line, content);
        buf_putc(&r->line, '\n');
    }
    return common_write(STDOUT_FILENO, buf_str(&r->line));
}

/* The transcript first, as in cmd_session_chat.c. */
static void cmd_session_resume_take_chunk(struct resume *r, struct resumed *one,
                                          const struct tm_event *e)
{
    struct str content = content_of(one, e);
    if (e->tool_call_id && *e->tool_call_id)
        cmd_session_resume_say(one, "tool call %s is not made here", e->tool_call_id);
    if (transcript_has(&one->transcript, e->event_id) ||
        (content.n == 0 && tm_session_service(one->session) == TM_SERVICE_AISERVER))
        return;
    int error = transcript_put(&one->transcript, e->event_id, content);
    if (error) {
        cmd_session_resume_stop(
            r, common_fail(&command, "cannot write %s: %s", r->flags->transcript, strerror(error)));
        return;
    }
    error = print(r, one, e, content);
    if (error)
        cmd_session_resume_stop(r, common_written(&command, error));
}

static void take_end(struct resume *r, struct resumed *one, const struct tm_event *e)
{
    size_t left = tm_session_unacknowledged(one->session);
    if (e->err) {
        fail_one(r, one, e->text && *e->text ? e->text : tm_error_text(e->err));
    } else if (left > 0) {
        fail_one(r, one, "it had ended before it took all that was saved for it");
    } else {
        cmd_session_resume_say(one, "completed");
        r->completed++;
        cmd_session_resume_leave(r, one);
    }
}

static void cmd_session_resume_take_event(struct resume *r, struct resumed *one,
                                          const struct tm_event *e)
{
    switch (e->kind) {
    case TM_EVENT_CHUNK: cmd_session_resume_take_chunk(r, one, e); break;
    case TM_EVENT_WELCOME:
        if (e->degraded)
            cmd_session_resume_say(one, "the server cannot keep this session just now");
        break;
    case TM_EVENT_RECONNECT:
        if (r->flags->verbose)
            cmd_session_resume_say(one, "%s", e->text);
        break;
    case TM_EVENT_END: take_end(r, one, e); break;
    case TM_EVENT_ACK: break;
    }
}

static void take_events(struct resume *r, struct resumed *one)
{
    struct tm_event e;
    int got = 0;
    while (one->session && !r->stopped && (got = tm_session_next(one->session, &e)) > 0)
        cmd_session_resume_take_event(r, one, &e);
    if (one->session && !r->stopped && got < 0)
        fail_one(r, one, tm_error(r->client));
}

/* ---- the sessions ---- */

static int cmd_session_resume_take_resumed(void *ctx, struct tm_session *s, const char *generation)
{
    struct resume *r = ctx;
    r->all = mem_realloc(r->all, (r->n + 1) * sizeof *r->all);
    r->all[r->n++] = (struct resumed){.session = s, .transcript = TRANSCRIPT_NONE};
    r->n_open++;
    return 0;
}

/* What is not resumed. Whatever was lost makes the whole a failure. */
static void cmd_session_resume_report(struct resume *r, const struct tm_resume_report *report)
{
    static const struct {
        size_t at;
        bool fails;
        const char *text;
    } what[] = {
        {offsetof(struct tm_resume_report, too_old), false,
         "not touched for longer than --lookback: left alone"},
        {offsetof(struct tm_resume_report, in_use), false, "in use by another process"},
        {offsetof(struct tm_resume_report, cleared), false, "without a generation: cleared"},
        {offsetof(struct tm_resume_report, refused), true,
         "changed by somebody: kept as *.refused, and not used"},
        {offsetof(struct tm_resume_report, chunks_dropped), true,
         "saved chunks that could not be read: not sent"},
    };
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        unsigned n = *(const unsigned *)((const char *)report + what[i].at);
        if (n > 0)
            common_fail(&command, "%u %s", n, what[i].text);
        if (what[i].fails)
            r->failed += n;
    }
}

static bool cmd_session_resume_find(struct resume *r)
{
    const struct resume_flags *f = r->flags;
    struct tm_session_options session = TM_SESSION_INIT;
    struct tm_resume_options o = TM_RESUME_INIT;
    struct tm_resume_report found = {0};
    session.give_up_ms = f->retry_for_ms < INT_MAX ? (int)f->retry_for_ms : INT_MAX;
    o.session = &session;
    o.retry_lookback_window_ms = f->lookback_ms > 0 ? (int64_t)f->lookback_ms : INT64_MAX;
    o.resumed = cmd_session_resume_take_resumed;
    o.ctx = r;
    int err = tm_resume_all(r->client, f->state, &o, &found);
    cmd_session_resume_report(r, &found);
    if (err)
        cmd_session_resume_stop(r, common_client_failed(&command, f->server, r->client, err));
    else if (r->n == 0)
        common_fail(&command, "nothing is saved in %s that could be resumed", f->state);
    return err == 0;
}

/* Nothing more is sent than what was saved: so a session can end. */
static void cmd_session_resume_begin(struct resume *r, struct resumed *one)
{
    const char *path = r->flags->transcript;
    size_t left = tm_session_unacknowledged(one->session);
    int error = path ? transcript_open(&one->transcript, path, tm_session_key(one->session)) : 0;
    if (error) {
        cmd_session_resume_stop(r, common_fail(&command, "cannot use the transcript %s: %s", path,
                                               error == EINVAL
                                                   ? "it has lines that are none of a transcript"
                                                   : strerror(error)));
        return;
    }
    cmd_session_resume_say(one, "resumed behind event %s, %zu chunk%s to send",
                           tm_session_event_id(one->session), left, left == 1 ? "" : "s");
    int err = tm_session_finish(one->session);
    if (err && err != TM_E_CLOSED)
        fail_one(r, one, tm_error(r->client));
}

static void take_signal(struct resume *r)
{
    struct signalfd_siginfo info;
    if (read(r->signals, &info, sizeof info) != sizeof info)
        return;
    common_fail(&command, "interrupted; %zu session%s can be resumed again", r->n_open,
                r->n_open == 1 ? "" : "s");
    cmd_session_resume_stop(r, 128 + (int)info.ssi_signo);
}

static void cmd_session_resume_follow(struct resume *r)
{
    struct pollfd fds[2] = {{.fd = r->signals, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    for (size_t i = 0; i < r->n && !r->stopped; i++)
        cmd_session_resume_begin(r, &r->all[i]);
    while (!r->stopped) {
        for (size_t i = 0; i < r->n; i++)
            take_events(r, &r->all[i]);
        if (r->stopped || r->n_open == 0)
            break;
        common_turn(r->client, fds, 2);
        if (fds[0].revents)
            take_signal(r);
        if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            cmd_session_resume_stop(r, CMD_OK);
    }
}

/* Blocked from the start, so that what is saved is whole whenever it comes. */
static int open_signals(void)
{
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    common_block_ending();
    return signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int cmd_session_resume_run(struct resume *r)
{
    r->signals = open_signals();
    if (r->signals < 0)
        return common_fail(&command, "cannot wait for signals: %s", strerror(errno));
    if (cmd_session_resume_find(r))
        cmd_session_resume_follow(r);
    for (size_t i = 0; i < r->n; i++)
        if (r->all[i].session)
            cmd_session_resume_leave(r, &r->all[i]);
    free(r->all);
    buf_deinit(&r->line);
    close(r->signals);
    if (r->stopped)
        return r->status;
    if (r->n > 0)
        common_fail(&command, "%u completed, %u failed", r->completed, r->failed);
    return r->failed > 0 ? CMD_FAILED : CMD_OK;
}

int session_resume(int argc, char **argv)
{
    struct resume_flags flags = {0};
    struct resume r = {.flags = &flags};
    int status, n;
    if (common_read(&command, &flags, argc, argv, &n, &status)) {
        status = CMD_USAGE;
        if (n > 0)
            common_fail(&command, "%s: it takes no arguments, only flags", argv[1]);
        else if (flags.state == NULL)
            common_fail(&command, "--state DIR is missing: where the sessions are saved");
        else
            status =
                common_connect(&command, flags.server, flags.token_file, flags.verbose, &r.client);
    }
    if (r.client)
        status = cmd_session_resume_run(&r);
    tm_close(r.client);
    options_free(&command.flags, &flags);
    return status;
}
