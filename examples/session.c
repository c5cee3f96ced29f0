// SPDX-License-Identifier: Apache-2.0
/* session.c -- one question, all that is answered, and the end.
 *
 *     cc session.c -ltidemark -o session
 *     ./session http://127.0.0.1:4437 "How are you?"
 *
 * A session is a conversation that no connection owns. What is sent is numbered and kept until the
 * server has acknowledged it; what is answered is numbered, too. When the connection breaks, or the
 * server is started anew, the session goes on where it was, and you see an event that says so.
 * llm_proxy.c shows how it also survives the end of this program. */
#include <tidemark.h>

#include <stdio.h>
#include <string.h>

/* Returns 1 when that was the last. */
static int take(const struct tm_event *event)
{
    switch (event->kind) {
    case TM_EVENT_WELCOME:
        fprintf(stderr, "[connected%s]\n", event->degraded ? ", but nothing can be resumed" : "");
        return 0;
    case TM_EVENT_ACK: fprintf(stderr, "[chunk %u is safe]\n", (unsigned)event->seqno); return 0;
    case TM_EVENT_RECONNECT: fprintf(stderr, "[%s; coming back]\n", event->text); return 0;
    case TM_EVENT_CHUNK:
        printf("%s: %.*s\n", event->event_id, (int)event->n, (const char *)event->data);
        return 0;
    case TM_EVENT_END:
        if (event->err)
            fprintf(stderr, "[over: %s]\n", event->text);
        return 1;
    }
    return 0;
}

static int talk(struct tm_session *session, const char *text)
{
    struct tm_event event = {0};
    int err = tm_session_send(session, text, strlen(text), NULL);
    if (err == 0)
        err = tm_session_finish(session); /* no more from us: it ends when all is answered */
    while (err == 0) {
        int got = tm_session_wait(session, &event, TM_FOREVER);
        if (got < 0)
            return got;
        if (got > 0 && take(&event))
            return event.err; /* 0: completed */
    }
    return err;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: session SERVER TEXT\n");
        return 2;
    }
    struct tm_options options = TM_OPTIONS_INIT;
    options.server = argv[1];
    struct tm_client *client = NULL;
    int err = tm_open(&options, &client);
    if (err) {
        fprintf(stderr, "session: %s: %s\n", argv[1], tm_error_text(err));
        return 1;
    }
    struct tm_session_options session_options = TM_SESSION_INIT;
    session_options.give_up_ms = 30 * 1000; /* without a connection for so long */
    struct tm_session *session = NULL;
    err = tm_session_new(client, &session_options, &session);
    if (err == 0)
        err = talk(session, argv[2]);
    if (err)
        fprintf(stderr, "session: %s (%s)\n", tm_error_text(err), tm_error(client));
    tm_session_free(session);
    tm_close(client);
    return err ? 1 : 0;
}
