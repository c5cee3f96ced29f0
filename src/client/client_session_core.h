// SPDX-License-Identifier: Apache-2.0
/* client_session_core.h -- a session of the client, as its parts see it.
 *
 *     session.c         what the caller does with it
 *     session_run.c     its connections, one after the other, and what is heard on them
 *     session_link.h    one connection
 *     state.h           what it needs to go on
 *     resume.c          sessions of an earlier life of the program
 *
 * There are two positions. What was *heard* is in memory, so a connection of this process goes on
 * behind it. What was *dealt with*, which is what a program that is killed has not lost, is in the
 * saved state. An event is dealt with when the caller asks for the one behind it. */
#ifndef CLIENT_CLIENT_SESSION_CORE_H
#define CLIENT_CLIENT_SESSION_CORE_H

#include "client/client_core.h"
#include "client/session_link.h"
#include "client/session_mac.h"
#include "client/state.h"

/* A chunk of the server that waits for the caller. */
struct received_chunk {
    struct state_item item;
    bool moves, verified;
    uint8_t mac[MAC_SIZE]; /* if it is verified */
    size_t n;
    const char *data, *event_id, *text, *thinking, *tool_call_id; /* in `bytes` */
    char bytes[];
};

/* What needs no memory when it happens: at most one of each kind waits, the newest. */
struct session_notice {
    struct state_item item;
    int err;
    bool degraded;
    char text[ERROR_SIZE];
};

/* A place in the server's events: the id, and the MAC that the next one builds upon. */
struct received_position {
    char id[SWIRE_EVENT_ID_MAX + 1];
    bool known; /* the MAC */
    uint8_t mac[MAC_SIZE];
};

struct tm_session {
    struct tm_client *client;
    struct saved_state state;
    struct state_dir dir;
    char name[STATE_NAME_SIZE]; /* of its file */
    bool saves;
    bool dirty; /* something is not saved that may be lost */

    /* options */
    bool resumes; /* false: one connection is all there is */
    bool backoff;
    uint64_t reconnect_ms, give_up_ms;
    size_t unacknowledged_max;

    /* its connection */
    struct slink link;
    bool http1;
    struct task connect;
    struct timer retry, alone, save;
    unsigned failures; /* in a row */
    unsigned garbled;  /* connections in a row that ended with what cannot be understood */
    bool tried;        /* the server may know of it */
    bool welcomed;     /* once, at least */
    bool connected;    /* welcomed on this connection */
    bool degraded, aborting;
    bool full;       /* there is no connection until the caller has taken what waits */
    const char *why; /* of an error that came up in what was heard; NULL: its own sentence */

    /* what was heard */
    struct received_position received;
    uint8_t mac_key[MAC_SIZE];
    bool signs;       /* the server does: from now on an event without a MAC is not its own */
    bool chain_known; /* of the event that was heard last, whether it moved the position ... */
    uint8_t chain[MAC_SIZE]; /* ... or not */
    uint64_t seen;           /* the highest id, if ids are numbers: none is handed out twice */

    /* what waits for the caller */
    struct link queue;
    size_t queue_bytes;
    struct state_item *current; /* handed out, not dealt with */
    struct session_notice welcome, reconnect, end;
    struct session_notice given; /* a copy: another one may come while the caller reads */
    bool over;                   /* `end` is in the queue, or was */
    bool closed;                 /* `end` was handed out */

    struct bytes message; /* being sent */
};

/* ---- session_run.c ---- */

void sess_run_init(struct tm_session *s);
void sess_run_deinit(struct tm_session *s); /* closes the connection, stops the timers */
void sess_connect_soon(struct tm_session *s);
/* To a connection that is open; what fails there ends the connection, not the session. */
void sess_send_chunk(struct tm_session *s, const struct state_chunk *chunk);
void sess_send_close(struct tm_session *s);
void sess_abort(struct tm_session *s);
/* The state is saved soon. */
void sess_dirty(struct tm_session *s);
void sess_drop_state(struct tm_session *s);

/* ---- session.c ---- */

void sess_free_item(struct tm_session *s, struct state_item *item);
void sess_drop_queue(struct tm_session *s);

/* Of a session with this state; both are taken, also when it fails. dir may be STATE_DIR_NONE. */
int sess_new(struct tm_client *c, const struct tm_session_options *o, struct saved_state *state,
             struct state_dir *dir, struct tm_session **out);
/* The caller's options, as many as it knows of; NULL: the defaults. TM_E_INVALID. */
int sess_options(struct tm_client *c, const struct tm_session_options *o,
                 struct tm_session_options *out);

#endif
