// SPDX-License-Identifier: Apache-2.0
/* session_link.h -- one connection of a session: messages both ways, and how it ended.
 *
 *     over HTTP/2      one call: what is sent goes into its body, what is heard is its answer
 *     over HTTP/1.1    a call whose answer is what is heard (the downlink), and for each message
 *                      that is sent a call of its own (an append), numbered, a few at a time
 *
 * Embedded in its session and used for one connection after the other. */
#ifndef CLIENT_SESSION_LINK_H
#define CLIENT_SESSION_LINK_H

#include "client/client_core.h"
#include "client/client_http.h"
#include "client/client_session_wire.h"

#define SLINK_REQUEST_ID 37 /* a UUID and its NUL */

/* How it ended. err == 0: by the server's word, and rpc says which. */
struct slink_end {
    int err;
    struct swire_end rpc;
    int status;          /* of HTTP, where it was no answer to such a call; 0: see err and rpc */
    bool http2_refused;  /* with an error */
    const char *message; /* of an error, for people; lent for the call */
};

struct slink {
    /* in */
    struct tm_client *client;
    enum tm_service service;
    bool http1;
    struct str key, event_id; /* kept by the session as long as the connection is */
    const uint8_t *secret;
    /* A response message, lent for the call; may not end the link but by an error, which the end
     * then comes with. */
    int (*message)(struct slink *l, struct str bytes);
    /* The last thing; the link is closed, and a new one may be opened in another turn. */
    void (*over)(struct slink *l, const struct slink_end *end);

    /* private */
    bool open, ended; /* ended: the server's word has come */
    struct http_request request;
    struct bytes texts; /* the secret as a header */
    struct bytes body, refusal;
    struct swire_frames frames;
    struct swire_end end;
    char request_id[SLINK_REQUEST_ID];
    uint64_t next_append;
    struct link appends; /* under way first, then those that wait */
    unsigned under_way;
    /* An append was refused for good: what the downlink says about that counts, if it does soon. */
    struct swire_end refused;
    struct timer timeout;
};

void slink_init(struct slink *l); /* behind what is `in` */

/* 0, TM_E_NOMEM, TM_E_INVALID; over() comes only after 0. */
int slink_open(struct slink *l);
/* One request message. 0, or TM_E_NOMEM and the link should be closed: it is not sent, and nothing
 * may pass it. */
int slink_send(struct slink *l, struct str message);
int slink_finish(struct slink *l); /* that was all; nothing else may be sent */
/* over() does not come. Not open: does nothing. */
void slink_close(struct slink *l);

/* 36 random characters and a NUL. TM_E_IO: there is no randomness. */
int slink_uuid(char out[SLINK_REQUEST_ID]);

#endif
