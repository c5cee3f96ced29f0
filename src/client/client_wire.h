// SPDX-License-Identifier: Apache-2.0
/* client_wire.h -- a connection to the client's server: connecting, TLS, bytes in and out.
 *
 * A wire belongs to its client's list from wire_new on. It connects in the turn that follows: to
 * each address of the host in turn (the look-up of a name blocks; numeric addresses and Unix
 * sockets need none), then TLS with the certificate and the host's name verified. What is spoken on
 * it is up to its speaker, whose functions come from the turns of the client alone.
 *
 * A wire that is closed stays in the list, with all it holds, until http_flush has swept it away:
 * whoever is working with it further up the stack may still look. */
#ifndef CLIENT_CLIENT_WIRE_H
#define CLIENT_CLIENT_WIRE_H

#include "client/client_core.h"

struct addrinfo;
struct ssl_st;
struct wire;

#define WIRE_OUT_MAX                                                                               \
    (64 * 1024) /* bytes that wait for the peer; a little more may be put at once */

struct speaker {
    void (*opened)(struct wire *w);
    void (*bytes)(struct wire *w, struct str bytes); /* came from the peer */
    void (*fill)(struct wire *w);                    /* wire_write while wire_has_room */
    /* It is closed already. err == 0: the peer has ended it in order. */
    void (*lost)(struct wire *w, int err, const char *message);
    void (*free)(struct wire *w); /* the speech */
};

enum wire_state { WIRE_CONNECTING, WIRE_HANDSHAKE, WIRE_OPEN, WIRE_CLOSED };

struct wire {
    struct link link; /* of the client's wires */
    struct tm_client *client;
    const struct speaker *speaker;
    void *speech; /* the speaker's */
    enum wire_state state;
    int fd;             /* -1: none */
    struct bytes out;   /* ready for send(): encrypted, when TLS is used */
    bool busy;          /* the speaker is at work further up the stack */
    bool mute;          /* the peer takes no more; what it sent is still read */
    struct ssl_st *ssl; /* over memory: our own send() raises no SIGPIPE */
    bool alpn_refused;  /* the server speaks nothing of what was offered */
    struct addrinfo *addresses, *next;
    uint64_t give_up_ms; /* connecting */
    int failure;         /* errno of the last address */
    struct timer timer;  /* of connecting */
    struct task connect, wake;

    /* http.c's */
    struct link exchanges, finished;
    bool used;    /* something was asked on it before */
    bool no_more; /* takes no new requests */
    uint64_t idle_since_ms;
};

/* alpn: what is offered, as TLS wants it: each name behind its length. NULL: no memory. */
struct wire *wire_new(struct tm_client *c, const struct speaker *speaker, struct str alpn);
void wire_free(struct wire *w); /* takes it out of the list */
void wire_close(struct wire *w);
/* Closes it and tells the speaker. message may be NULL. */
void wire_fail(struct wire *w, int err, const char *message);

/* 0 or TM_E_NOMEM, and then the wire is of no more use. */
int wire_write(struct wire *w, struct str bytes);
bool wire_has_room(const struct wire *w);
/* There is something to fill with: the next turn is due now. */
void wire_wake(struct wire *w);
/* What ALPN has chosen; n == 0: nothing. */
struct str wire_alpn(const struct wire *w);
/* Reads what came to a wire that is idle, so that one which has ended is known to be closed. */
void wire_look(struct wire *w);

bool wire_interest(const struct wire *w, struct tm_descriptor *out); /* false: none */
void wire_ready(struct wire *w, int revents);                        /* of poll() */
void wire_flush(struct wire *w);

/* The client's SSL_CTX. TM_E_TLS: its options, or ca_file, cannot be used. */
int wire_tls_new(struct tm_client *c);
void wire_tls_free(struct tm_client *c);

#endif
