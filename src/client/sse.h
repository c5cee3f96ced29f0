// SPDX-License-Identifier: Apache-2.0
/* sse.h -- Server-Sent Events out of bytes, in whatever pieces they arrive.
 *
 * Follows the event stream format of the HTML standard: lines end with LF, CR or CRLF, one byte
 * order mark may come first, several data lines are joined with LF, an unknown field or a comment
 * is passed over, and an event that no blank line ended is never seen. How the bytes are cut into
 * pieces changes nothing. Text is not checked to be UTF-8. */
#ifndef CLIENT_SSE_H
#define CLIENT_SSE_H

#include "client/client_core.h"

#define SSE_NAME_MAX 255 /* bytes of an event's type and of its id */

struct sse_event {
    struct str type; /* "message" when the event names none */
    struct str data;
    struct str id; /* the last id that came, in this event or an earlier one */
};

struct sse {
    struct tm_client *client;
    size_t max; /* bytes of one line, and of one event's data */
    /* The event is lent for the call. Not 0: parsing ends, and sse_feed returns it. */
    void *ctx;
    int (*event)(void *ctx, const struct sse_event *event);

    /* private */
    struct bytes line, data;
    char type[SSE_NAME_MAX], id[SSE_NAME_MAX];
    uint8_t n_type, n_id;
    uint8_t n_bom; /* bytes of the mark seen so far; 3 also when there is none */
    bool after_cr; /* a LF that comes next belongs to the same line end */
    bool has_data; /* `data:` came, which empty data does not tell */
    int failed;    /* sticky */
};

void sse_init(struct sse *s, struct tm_client *c, size_t max, void *ctx,
              int (*event)(void *ctx, const struct sse_event *event));
void sse_deinit(struct sse *s);

/* Forgets a half event, as is due when a connection begins anew; keeps the last id. */
void sse_reset(struct sse *s);

/* 0; TM_E_TOO_LARGE for a line, data, type or id above its limit; TM_E_NOMEM; or what event()
 * returned. After a failure nothing more is parsed until sse_reset. */
int sse_feed(struct sse *s, struct str bytes);

#endif
