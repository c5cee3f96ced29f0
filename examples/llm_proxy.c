// SPDX-License-Identifier: Apache-2.0
/* llm_proxy.c -- a chat loop that survives kill -9, of itself and of the server.
 *
 *     cc llm_proxy.c -ltidemark -o llm_proxy
 *     ./llm_proxy http://127.0.0.1:4437 chat.state chat.txt questions.txt
 *
 * Sends each line of a file (or of standard input) as a chunk of a session and appends each answer
 * to a transcript, a line each: session key, event id, text. Kill it at any moment and start it
 * again with the same arguments. No line is sent twice, no answer is missing, none stands in the
 * transcript twice. It takes three things:
 *
 *   1. The library saves a chunk before it is sent, in the directory we name (chat.state). After a
 *      restart tm_resume_all finds the session, and sends again what was not acknowledged, under
 *      the same numbers, which the server knows.
 *   2. Chunks are numbered from 0, as our lines are: tm_session_next_seqno says which is next.
 *   3. An answer and its id are put into the transcript by one write. If we die before the library
 *      has saved that we have it, it comes again after the restart, and we find its id in the file.
 */
#define _POSIX_C_SOURCE 200809L /* for getline and friends with -std=c11 */
#include <tidemark.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FDS       16
#define LINE_SIZE 65536

struct proxy {
    struct tm_client *client;
    struct tm_session *session;
    int transcript;
    unsigned long long last_id; /* in the transcript, of this session */
    int ended;                  /* its end is there, too */
    int input;
    char line[LINE_SIZE]; /* what was read and not sent */
    size_t n;
    unsigned long long skip; /* lines of the input that were sent before a restart */
    int input_over, finished;
    int is_file; /* the input begins anew with every start */
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "llm_proxy: %s: %s\n", what, why);
    exit(1);
}

/* ---- the transcript ---- */

/* Newlines, tabs and backslashes are escaped, so that an event is one line. */
static void add(struct proxy *p, const char *id, const char *text, size_t n)
{
    const char *key = tm_session_key(p->session);
    char *line = malloc(strlen(key) + strlen(id) + 2 * n + 4);
    if (line == NULL)
        die("transcript", "out of memory");
    size_t at = (size_t)sprintf(line, "%s\t%s\t", key, id);
    for (size_t i = 0; i < n; i++) {
        const char *special = text[i] ? strchr("\n\t\\", text[i]) : NULL;
        if (special)
            line[at++] = '\\';
        line[at++] = special && *special != '\\' ? (*special == '\n' ? 'n' : 't') : text[i];
    }
    line[at++] = '\n';
    /* All or nothing, as far as kill -9 goes. Add fsync if it has to survive a power cut. */
    if (write(p->transcript, line, at) != (ssize_t)at)
        die("transcript", strerror(errno)); /* half a line is cut off by the next start */
    free(line);
}

/* How far it has got: of our session, or if there is none, of the last one in the file. */
static void read_transcript(struct proxy *p, const char *path)
{
    const char *key = p->session ? tm_session_key(p->session) : NULL;
    char *line = NULL;
    size_t size = 0;
    long whole = 0;
    ssize_t n;
    FILE *f = fopen(path, "a+");
    if (f == NULL)
        die(path, strerror(errno));
    rewind(f);
    while ((n = getline(&line, &size, f)) > 0 && line[n - 1] == '\n') {
        whole += n;
        char *id = strchr(line, '\t');
        if (id == NULL)
            die(path, "this is no transcript");
        *id++ = '\0';
        if (key && strcmp(line, key) != 0)
            continue;
        p->ended = strncmp(id, "end\t", 4) == 0;
        if (!p->ended)
            p->last_id = strtoull(id, NULL, 10);
    }
    free(line);
    fclose(f);
    if (truncate(path, whole) != 0) /* a line without its end */
        die(path, strerror(errno));
    p->transcript = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (p->transcript < 0)
        die(path, strerror(errno));
}

/* ---- the session ---- */

/* Each session that is saved in the directory; here there is one at most. */
static int take_resumed(void *ctx, struct tm_session *session, const char *generation)
{
    struct proxy *p = ctx;
    (void)generation;
    p->session = session;
    return 1; /* no more, please */
}

static void open_session(struct proxy *p, const char *state_dir, const char *transcript)
{
    struct tm_resume_options resuming = TM_RESUME_INIT;
    resuming.resumed = take_resumed;
    resuming.ctx = p;
    if (tm_resume_all(p->client, state_dir, &resuming, NULL) != 0)
        die(state_dir, tm_error(p->client));
    read_transcript(p, transcript);
    if (p->session == NULL && p->ended && p->is_file) {
        puts("llm_proxy: all is answered; the transcript has it");
        exit(0); /* we were killed when all was done */
    }
    struct tm_session_options options = TM_SESSION_INIT;
    options.state_dir = state_dir;
    if (p->session == NULL) {
        p->last_id = 0;
        p->ended = 0;
        if (tm_session_new(p->client, &options, &p->session) != 0)
            die("session", tm_error(p->client));
    }
    p->skip = p->is_file ? tm_session_next_seqno(p->session) : 0;
}

/* Returns 1 when the session is over. */
static int take_events(struct proxy *p)
{
    struct tm_event e;
    int got;
    while ((got = tm_session_next(p->session, &e)) > 0) {
        if (e.kind == TM_EVENT_CHUNK && strtoull(e.event_id, NULL, 10) > p->last_id) {
            add(p, e.event_id, e.data, e.n);
            p->last_id = strtoull(e.event_id, NULL, 10);
        } else if (e.kind == TM_EVENT_RECONNECT) {
            fprintf(stderr, "llm_proxy: %s\n", e.text);
        } else if (e.kind == TM_EVENT_END) {
            if (e.err)
                die("the session is over", *e.text ? e.text : tm_error_text(e.err));
            if (!p->ended) /* it is if we were killed just behind this */
                add(p, "end", "", 0);
            return 1;
        }
    }
    if (got < 0)
        die("session", tm_error(p->client));
    return 0;
}

/* ---- the input ---- */

static int send_line(struct proxy *p, size_t n)
{
    if (p->skip > 0) {
        p->skip--;
        return 0;
    }
    return tm_session_send(p->session, p->line, n, NULL);
}

/* All whole lines; at the end of input the rest, too, and that there is no more. */
static void send_lines(struct proxy *p)
{
    int err = 0;
    while (err == 0 && p->n > 0) {
        char *end = memchr(p->line, '\n', p->n);
        if (end == NULL && !p->input_over && p->n < LINE_SIZE)
            return;
        size_t n = end ? (size_t)(end - p->line) : p->n, taken = end ? n + 1 : n;
        err = send_line(p, n);
        if (err == 0) {
            p->n -= taken;
            memmove(p->line, p->line + taken, p->n);
        }
    }
    if (err == 0 && p->input_over && !p->finished) {
        err = tm_session_finish(p->session);
        p->finished = 1;
    }
    /* BUSY: too much is unacknowledged, so the rest waits. CLOSED: its end is about to come. */
    if (err && err != TM_E_BUSY && err != TM_E_CLOSED)
        die("sending", tm_error(p->client));
}

static void read_input(struct proxy *p)
{
    ssize_t n = read(p->input, p->line + p->n, LINE_SIZE - p->n);
    if (n < 0 && errno != EINTR)
        die("input", strerror(errno));
    if (n == 0)
        p->input_over = 1;
    if (n > 0)
        p->n += (size_t)n;
}

/* Waits for the input and for whatever the library waits for. */
static void wait_and_turn(struct proxy *p)
{
    struct tm_descriptor wanted[FDS];
    struct pollfd fds[FDS + 1];
    size_t n = tm_descriptors(p->client, wanted, FDS);
    n = n < FDS ? n : FDS;
    for (size_t i = 0; i < n; i++) {
        fds[i].fd = wanted[i].fd;
        fds[i].events =
            (short)((wanted[i].readable ? POLLIN : 0) | (wanted[i].writable ? POLLOUT : 0));
    }
    int wants_input = !p->input_over && p->n < LINE_SIZE;
    fds[n].fd = wants_input ? p->input : -1;
    fds[n].events = POLLIN;
    fds[n].revents = 0;
    if (poll(fds, n + 1, tm_deadline_ms(p->client)) > 0 && wants_input && fds[n].revents)
        read_input(p);
    tm_turn(p->client);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: llm_proxy SERVER STATE-DIR TRANSCRIPT [LINES]\n");
        return 2;
    }
    static struct proxy p;
    struct tm_options options = TM_OPTIONS_INIT;
    options.server = argv[1];
    int err = tm_open(&options, &p.client);
    if (err)
        die(argv[1], tm_error_text(err));
    p.is_file = argc == 5;
    p.input = p.is_file ? open(argv[4], O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (p.input < 0)
        die(argv[4], strerror(errno));

    open_session(&p, argv[2], argv[3]);
    while (!take_events(&p)) {
        send_lines(&p);
        wait_and_turn(&p);
    }
    tm_session_free(p.session); /* it is over, and in the transcript: its state can go */
    tm_close(p.client);
    return 0;
}
