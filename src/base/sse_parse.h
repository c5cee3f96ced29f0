// SPDX-License-Identifier: Apache-2.0
/* sse_parse.h -- Server-Sent Events out of bytes, in whatever pieces they arrive.
 *
 * Follows the event stream format of the HTML standard: lines end with LF, CR or CRLF, one BOM may
 * come first, several data lines are joined with LF, an unknown field or a comment is passed over,
 * and an event that no blank line ended is never seen. How the bytes are cut into pieces changes
 * nothing. Text is not checked to be UTF-8.
 *
 * The server and the client library share it, so memory and error codes are its host's. */
#ifndef BASE_SSE_PARSE_H
#define BASE_SSE_PARSE_H

#include "base/str.h"

#include <stdint.h>

#define SSE_NAME_MAX 255 /* bytes of an event's type and of its id */

struct sse_event {
    struct str type; /* "message" when the event names none */
    struct str data;
    struct str id; /* the last id that came, in this event or an earlier one */
};

/* The event is lent for the call. Not 0: parsing ends, and sse_parser_feed returns it. */
typedef int sse_event_fn(void *user, const struct sse_event *event);

struct sse_host {
    /* As realloc, but n == 0 frees. NULL: no memory. */
    void *(*resize)(void *memory, void *p, size_t n);
    int too_large, no_memory; /* how it fails */
};

struct sse_text {
    char *p;
    size_t n, cap;
};

struct sse_parser {
    const struct sse_host *host;
    void *memory; /* the host's */
    size_t max;   /* bytes of one line, and of one event's data */
    struct sse_text line, data;
    char type[SSE_NAME_MAX], id[SSE_NAME_MAX];
    uint8_t n_type, n_id;
    uint8_t n_bom;  /* bytes of the BOM seen so far; 3 also when there is none */
    bool after_cr;  /* a LF that comes next belongs to the same line end */
    bool has_data;  /* `data:` came, which an empty data buffer does not tell */
    bool has_retry; /* retry_ms is what the server asked for */
    int failed;     /* sticky */
    uint64_t retry_ms;
    sse_event_fn *on_event;
    void *user;
};

void sse_parser_init(struct sse_parser *p, const struct sse_host *host, void *memory, size_t max,
                     void *user, sse_event_fn *on_event);
void sse_parser_deinit(struct sse_parser *p);

/* Forgets a half event, as is due when a connection begins anew; keeps the last id. */
void sse_parser_reset(struct sse_parser *p);

/* 0; too_large for a line, data, type or id above its limit; no_memory; or what on_event returned.
 * After a failure nothing more is parsed until sse_parser_reset. */
int sse_parser_feed(struct sse_parser *p, struct str bytes);

#endif
