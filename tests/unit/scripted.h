// SPDX-License-Identifier: Apache-2.0
/* scripted.h -- a server for client tests that plays a script: it takes one request a turn, keeps
 * it for the test to look at, and answers what the turn says, however rude. */
#ifndef UNIT_SCRIPTED_H
#define UNIT_SCRIPTED_H

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "client/client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

/* -- the scripted server ---------------------------------------------------------------------- */

enum ending {
    WHOLE,     /* Content-Length, and the connection is kept */
    TO_CLOSE,  /* no length: the body ends with the connection, as SSE may */
    CUT,       /* a Content-Length above what is sent, then closed */
    HALF_HEAD, /* the head breaks off in the middle of its last header */
    NO_ANSWER, /* the request is read and the connection closed */
    STUCK,     /* a head and the body, then silence until the client goes away */
};

struct turn {
    int status;
    const char *headers; /* each with CRLF; NULL: none */
    const char *body;    /* NULL: empty */
    enum ending ending;
};

#define TURNS_MAX  16
#define PATIENCE   20000 /* ms; only a failing test waits so long */
#define NEXT(text) "Stream-Next-Offset: " text "\r\n"
#define UP_TO_DATE "Stream-Up-To-Date: true\r\n"
#define CLOSED     "Stream-Closed: true\r\n"
#define TEXT       "Content-Type: text/plain\r\n"
#define JSON       "Content-Type: application/json; charset=utf-8\r\n"
#define BINARY     "Content-Type: application/octet-stream\r\n"
#define SSE        "Content-Type: text/event-stream\r\n"
#define BASE64     "Stream-SSE-Data-Encoding: base64\r\n"

struct script {
    const struct turn *turns;
    size_t n, n_got;
    struct buf got[TURNS_MAX]; /* the requests, each with a NUL behind it */
    int listener, conn;
    char url[64];
    pthread_t thread;
};

static bool wait_readable(int a, int b, int *which)
{
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    if (poll(fds, 2, PATIENCE) <= 0)
        return false;
    *which = fds[0].revents ? a : b; /* a new connection goes before an old one */
    return true;
}

static void hang_up(struct script *s)
{
    if (s->conn >= 0)
        close(s->conn);
    s->conn = -1;
}

static size_t body_length(const struct buf *got)
{
    const char *p = strcasestr(got->p, "\r\nContent-Length:");
    return p ? strtoul(p + 17, NULL, 10) : 0;
}

static bool is_complete(struct buf *got)
{
    *buf_reserve(got, 1) = '\0';
    const char *end = strstr(got->p, "\r\n\r\n");
    return end && got->n >= (size_t)(end + 4 - got->p) + body_length(got);
}

static bool read_request(struct script *s, struct buf *got)
{
    while (!is_complete(got)) {
        int fd;
        if (!wait_readable(s->listener, s->conn, &fd))
            return false;
        if (fd == s->listener) {
            hang_up(s);
            s->conn = accept(s->listener, NULL, NULL);
            continue;
        }
        ssize_t n = read(s->conn, buf_reserve(got, 65536), 65536);
        if (n <= 0)
            hang_up(s);
        else
            got->n += (size_t)n;
    }
    return true;
}

static void answer(struct script *s, const struct turn *t)
{
    struct buf out = {0};
    const char *body = t->body ? t->body : "";
    buf_printf(&out, "HTTP/1.1 %d Whatever\r\n%s", t->status, t->headers ? t->headers : "");
    if (t->ending == TO_CLOSE || t->ending == STUCK)
        buf_printf(&out, "Connection: close\r\n");
    else if (t->status != 204)
        buf_printf(&out, "Content-Length: %zu\r\n", strlen(body) + (t->ending == CUT ? 10 : 0));
    buf_printf(&out, "\r\n%s", body);
    if (t->ending == HALF_HEAD)
        out.n -= 6;
    assert_int_equal(send(s->conn, out.p, out.n, MSG_NOSIGNAL), out.n);
    buf_deinit(&out);
}

static void *play(void *user)
{
    struct script *s = user;
    for (size_t i = 0; i < s->n; i++) {
        const struct turn *t = &s->turns[i];
        if (!read_request(s, &s->got[i]))
            break;
        s->n_got++;
        if (t->ending != NO_ANSWER)
            answer(s, t);
        char end;
        if (t->ending == STUCK)
            while (read(s->conn, &end, 1) > 0)
                ;
        if (t->ending != WHOLE)
            hang_up(s);
    }
    return NULL;
}

static inline struct script *script_start(const struct turn *turns, size_t n)
{
    struct script *s = mem_zalloc(sizeof *s);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    assert_true(n <= TURNS_MAX);
    s->turns = turns;
    s->n = n;
    s->conn = -1;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &size), 0);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, play, s), 0);
    return s;
}

#define SCRIPT(turns) script_start(turns, sizeof turns / sizeof *turns)

/* Every turn was played, and the requests can be looked at. */
static inline void script_end(struct script *s)
{
    pthread_join(s->thread, NULL);
    assert_int_equal(s->n_got, s->n);
}

static inline void script_free(struct script *s)
{
    hang_up(s);
    close(s->listener);
    for (size_t i = 0; i < TURNS_MAX; i++)
        buf_deinit(&s->got[i]);
    free(s);
}

static inline struct client *client_of(const struct script *s)
{
    struct client_options options = {.retry_first_ms = 1, .retry_max_ms = 2};
    struct client *c;
    assert_int_equal(client_new(s->url, &options, &c), 0);
    return c;
}

/* -- looking at requests ---------------------------------------------------------------------- */

static inline void assert_begins(const struct script *s, size_t i, const char *line)
{
    struct buf expected = {0};
    buf_printf(&expected, "%s HTTP/1.1\r\n", line);
    if (!str_starts(buf_str(&s->got[i]), buf_str(&expected)))
        fail_msg("request %zu is not %s but %.80s", i, line, s->got[i].p);
    buf_deinit(&expected);
}

static inline void assert_header(const struct script *s, size_t i, const char *line, bool there)
{
    struct buf expected = {0};
    buf_printf(&expected, "\r\n%s\r\n", line);
    buf_putc(&expected, '\0');
    if ((strcasestr(s->got[i].p, expected.p) != NULL) != there)
        fail_msg("request %zu %s header %s:\n%s", i, there ? "lacks" : "has", line, s->got[i].p);
    buf_deinit(&expected);
}

static inline const char *body_of(const struct script *s, size_t i)
{
    return strstr(s->got[i].p, "\r\n\r\n") + 4;
}

#endif
