// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/cmd_session_chat.h"
#include "base/buf.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "feature/sessions/transcript.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

struct chat_flags {
    char *server, *token_file, *key, *state, *transcript;
    uint64_t retry_for_ms;
    bool verbose;
};

#define ROW(...) OPTION_ROW(struct chat_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct chat_flags),
    {ROW("key", OPTION_TEXT, key), .value = "KEY",
     .help = "The session's key, by which the server knows it. Unless given: that of the session "
             "in --state, or a new random one."},
    {ROW("state", OPTION_TEXT, state), .value = "DIR",
     .help = "Keep what is needed to go on in this directory, which is made if it is missing; "
             "started again with it, the session goes on where it was. It holds the session's "
             "secret: keep it to yourself."},
    {ROW("transcript", OPTION_TEXT, transcript), .value = "FILE",
     .help = "Append each answer to this file, with its id and exactly once, however often this "
             "command is killed and started again: one JSON object a line, session, id, text."},
    {ROW("retry-for", OPTION_DURATION, retry_for_ms), .fallback = "5m", .value = "TIME",
     .help = "How long to go on trying when the server is lost; 0 is for ever."},
    {ROW("verbose", OPTION_BOOL, verbose),
     .help = "Print the session's key, and say on standard error when the connection is lost and "
             "made again."},
};

static const struct common_command command = {
    .name = "session chat",
    .arguments = "",
    .about =
        "Holds a session: sends each line of standard input, and prints each answer as a\n"
        "line. Every line reaches the backend once and every answer comes once, whatever\n"
        "happens to the connection and to the server. With --state it goes on where it was\n"
        "when it is killed and started again; answers of the last moment may then be printed\n"
        "twice, and only --transcript knows. At the end of input it waits for the last answers.\n"
        "Empty lines are passed over.\n",
    .examples = "  echo hello | tidemark session chat\n"
                "  tidemark session chat --state ~/.local/state/chat --transcript chat.jsonl\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

#define READ_BYTES     (64 * 1024)
#define LINE_MAX_BYTES (4 * 1024 * 1024) /* what a server takes, unless told otherwise */

/* TALKING --the session takes nothing more--> DRAINING, for it may have something to say yet
 * DRAINING --its end, but there is more input, and it was begun before us--> DRAINED
 * DRAINED --another session is begun--> TALKING
 * each --its end, a failure, or nobody reads what we write--> OVER */
enum chat_state { CHAT_TALKING, CHAT_DRAINING, CHAT_DRAINED, CHAT_OVER };

/* ENDED: of standard input. FINISHED: the session was told so. */
enum chat_input { CHAT_INPUT_OPEN, CHAT_INPUT_ENDED, CHAT_INPUT_FINISHED };

struct chat {
    const struct chat_flags *flags;
    struct tm_client *client;
    struct tm_session *session;
    unsigned passed; /* further sessions in the directory */
    struct transcript transcript;
    struct buf in; /* lines that are not sent yet; the last may not have ended */
    enum chat_input input;
    enum chat_state state;
    bool resumed; /* the session was begun before us, and may have been finished, too */
    bool welcomed;
    int status;
};

static bool cmd_session_chat_fail(struct chat *c, int err)
{
    c->status = common_client_failed(&command, c->flags->server, c->client, err);
    return false;
}

/* ---- the session ---- */

static struct tm_session_options options_of(const struct chat_flags *f)
{
    struct tm_session_options o = TM_SESSION_INIT;
    o.key = f->key;
    o.state_dir = f->state;
    o.give_up_ms = f->retry_for_ms < INT_MAX ? (int)f->retry_for_ms : INT_MAX;
    return o;
}

/* The first; of further ones only the number is of interest. */
static int cmd_session_chat_take_resumed(void *ctx, struct tm_session *s, const char *generation)
{
    struct chat *c = ctx;
    if (c->session == NULL) {
        c->session = s;
    } else {
        c->passed++;
        tm_session_free(s);
    }
    return 0;
}

static void report_resume(const struct chat *c, const struct tm_resume_report *r)
{
    if (r->refused > 0)
        common_fail(&command,
                    "%u file%s in %s were changed by somebody and are not used; they are kept as "
                    "*.refused",
                    r->refused, r->refused == 1 ? "" : "s", c->flags->state);
    if (r->too_old > 0 && c->session == NULL)
        common_fail(&command, "what is saved in %s is too old to go on with", c->flags->state);
    if (r->chunks_dropped > 0)
        common_fail(&command, "%u saved lines could not be read and are not sent",
                    r->chunks_dropped);
}

static bool cmd_session_chat_resume(struct chat *c)
{
    struct tm_resume_options o = TM_RESUME_INIT;
    struct tm_resume_report report = {0};
    struct tm_session_options session = options_of(c->flags);
    o.session = &session;
    o.resumed = cmd_session_chat_take_resumed;
    o.ctx = c;
    int err = tm_resume_all(c->client, c->flags->state, &o, &report);
    if (err)
        return cmd_session_chat_fail(c, err);
    report_resume(c, &report);
    if (report.in_use > 0 && c->session == NULL) {
        c->status = common_fail(&command, "the session in %s is in use by another process",
                                c->flags->state);
        return false;
    }
    if (c->passed > 0) {
        c->status =
            common_fail(&command, "%s holds %u sessions: --key KEY says which to go on with",
                        c->flags->state, c->passed + 1);
        return false;
    }
    return true;
}

static bool open_transcript(struct chat *c)
{
    const char *path = c->flags->transcript;
    int error = path ? transcript_open(&c->transcript, path, tm_session_key(c->session)) : 0;
    if (error == EINVAL)
        c->status = common_fail(&command, "%s has lines that are none of a transcript", path);
    else if (error)
        c->status =
            common_fail(&command, "cannot use the transcript %s: %s", path, strerror(error));
    return error == 0;
}

static bool cmd_session_chat_begin(struct chat *c)
{
    struct tm_session_options o = options_of(c->flags);
    int err = c->session ? 0 : tm_session_new(c->client, &o, &c->session);
    if (err)
        return cmd_session_chat_fail(c, err);
    if (c->flags->verbose)
        fprintf(stderr, "tidemark session chat: session %s\n", tm_session_key(c->session));
    return open_transcript(c);
}

/* Of a directory and a key the library goes on by itself. */
static bool cmd_session_chat_open_session(struct chat *c)
{
    if (c->flags->state && c->flags->key == NULL && !cmd_session_chat_resume(c))
        return false;
    c->resumed = c->session || (c->flags->state && c->flags->key);
    return cmd_session_chat_begin(c);
}

/* Input goes on behind a session that an earlier run of this command has finished. */
static bool begin_next(struct chat *c)
{
    c->state = CHAT_TALKING;
    c->resumed = false;
    if (c->flags->key) {
        c->status = common_fail(&command, "session %s was finished before: it takes no more lines",
                                c->flags->key);
        return false;
    }
    transcript_close(&c->transcript);
    tm_session_free(c->session);
    c->session = NULL;
    return cmd_session_chat_begin(c);
}

/* ---- what comes ---- */

static void cmd_session_chat_stop(struct chat *c, int status)
{
    c->state = CHAT_OVER;
    c->status = status;
}

/* The transcript first: what stands there has been dealt with, whatever becomes of us then. */
static void cmd_session_chat_take_chunk(struct chat *c, const struct tm_event *e)
{
    struct str payload = str_of(e->data, e->n);
    if (transcript_has(&c->transcript, e->event_id))
        return;
    int error = transcript_put(&c->transcript, e->event_id, payload);
    if (error) {
        cmd_session_chat_stop(
            c, common_fail(&command, "cannot write %s: %s", c->flags->transcript, strerror(error)));
        return;
    }
    error = common_write(STDOUT_FILENO, payload);
    if (error == 0)
        error = common_write(STDOUT_FILENO, STR("\n"));
    if (error)
        cmd_session_chat_stop(c, common_written(&command, error));
}

static void take_welcome(struct chat *c, const struct tm_event *e)
{
    c->welcomed = true;
    if (e->degraded)
        common_fail(&command, "the server cannot keep this session just now: what is lost with the "
                              "connection is lost for good");
}

static void take_loss(struct chat *c, const struct tm_event *e)
{
    if (c->flags->verbose)
        common_fail(&command, "%s", e->text);
    else if (!c->welcomed)
        common_fail(&command, "cannot reach %s yet (%s)", c->flags->server, e->text);
    c->welcomed = true; /* that much is said once */
}

static void take_end(struct chat *c, const struct tm_event *e)
{
    const char *why = e->text && *e->text ? e->text : tm_error_text(e->err);
    bool has_more = c->state == CHAT_DRAINING && (c->in.n > 0 || c->input == CHAT_INPUT_OPEN);
    if (e->err)
        cmd_session_chat_stop(c, common_fail(&command, "the session is over: %s", why));
    else if (!has_more)
        cmd_session_chat_stop(c, CMD_OK);
    else if (c->resumed)
        c->state = CHAT_DRAINED;
    else
        cmd_session_chat_stop(
            c, common_fail(&command, "the session was ended by its backend; what was still to be "
                                     "said is not sent"));
}

static void take_events(struct chat *c)
{
    struct tm_event e;
    int got = 1;
    while (c->state < CHAT_DRAINED && (got = tm_session_next(c->session, &e)) > 0) {
        switch (e.kind) {
        case TM_EVENT_CHUNK: cmd_session_chat_take_chunk(c, &e); break;
        case TM_EVENT_WELCOME: take_welcome(c, &e); break;
        case TM_EVENT_RECONNECT: take_loss(c, &e); break;
        case TM_EVENT_END: take_end(c, &e); break;
        case TM_EVENT_ACK: break;
        }
    }
    if (got < 0 || (c->state == CHAT_DRAINED && !begin_next(c)))
        c->state = CHAT_OVER;
    if (got < 0)
        cmd_session_chat_fail(c, got);
}

/* ---- what goes ---- */

/* The next line, without its end; `n` is what it takes of the input. False: there is none yet. */
static bool next_line(const struct chat *c, struct str *line, size_t *n)
{
    const char *end = c->in.n > 0 ? memchr(c->in.p, '\n', c->in.n) : NULL;
    if (end == NULL && !(c->input != CHAT_INPUT_OPEN && c->in.n > 0))
        return false;
    line->p = c->in.p;
    line->n = end ? (size_t)(end - c->in.p) : c->in.n;
    *n = end ? line->n + 1 : line->n;
    if (line->n > 0 && line->p[line->n - 1] == '\r')
        line->n--;
    return true;
}

static void cmd_session_chat_drop(struct buf *b, size_t n)
{
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

static void send_lines(struct chat *c)
{
    struct str line;
    size_t n;
    int err = 0;
    while (err == 0 && next_line(c, &line, &n)) {
        if (line.n > 0)
            err = tm_session_send(c->session, line.p, line.n, NULL);
        if (err == 0)
            cmd_session_chat_drop(&c->in, n);
    }
    if (err == 0 && c->input == CHAT_INPUT_ENDED) {
        err = tm_session_finish(c->session);
        if (err == 0)
            c->input = CHAT_INPUT_FINISHED;
    }
    if (err == TM_E_CLOSED) { /* its end, with the reason, is about to come */
        c->state = CHAT_DRAINING;
    } else if (err && err != TM_E_BUSY) {
        c->state = CHAT_OVER;
        cmd_session_chat_fail(c, err);
    }
}

static void cmd_session_chat_read_input(struct chat *c)
{
    ssize_t n = read(STDIN_FILENO, buf_reserve(&c->in, READ_BYTES), READ_BYTES);
    if (n == 0)
        c->input = CHAT_INPUT_ENDED;
    else if (n > 0)
        c->in.n += (size_t)n;
    else if (errno != EINTR && errno != EAGAIN)
        cmd_session_chat_stop(
            c, common_fail(&command, "cannot read standard input: %s", strerror(errno)));
    if (c->in.n > LINE_MAX_BYTES && memchr(c->in.p, '\n', c->in.n) == NULL)
        cmd_session_chat_stop(
            c, common_fail(&command, "a line has more than %d bytes", LINE_MAX_BYTES));
}

/* Input is read only when all that was read before is with the session, so that it waits in its
 * pipe and not here. */
static void talk(struct chat *c)
{
    struct pollfd fds[2] = {{.fd = -1, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    struct str line;
    size_t n;
    while (c->state != CHAT_OVER) {
        take_events(c);
        if (c->state == CHAT_TALKING)
            send_lines(c);
        if (c->state == CHAT_OVER)
            break;
        fds[0].fd = c->input != CHAT_INPUT_OPEN || next_line(c, &line, &n) ? -1 : STDIN_FILENO;
        common_turn(c->client, fds, 2);
        if (fds[0].fd >= 0 && fds[0].revents)
            cmd_session_chat_read_input(c);
        if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            cmd_session_chat_stop(c, CMD_OK);
    }
}

int session_chat(int argc, char **argv)
{
    struct chat_flags flags = {0};
    struct chat c = {.flags = &flags, .transcript = TRANSCRIPT_NONE, .status = CMD_USAGE};
    int n;
    if (common_read(&command, &flags, argc, argv, &n, &c.status)) {
        if (n > 0) {
            common_fail(&command, "%s: it takes no arguments, only flags", argv[1]);
            c.status = CMD_USAGE;
        } else {
            c.status =
                common_connect(&command, flags.server, flags.token_file, flags.verbose, &c.client);
        }
    }
    if (c.client && cmd_session_chat_open_session(&c))
        talk(&c);
    transcript_close(&c.transcript);
    tm_session_free(c.session);
    tm_close(c.client);
    buf_deinit(&c.in);
    options_free(&command.flags, &flags);
    return c.status;
}
