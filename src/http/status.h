// SPDX-License-Identifier: Apache-2.0
/* status.h -- reason phrases, and the headers that every response carries. */
#ifndef HTTP_STATUS_H
#define HTTP_STATUS_H

#include "http/message.h"

struct str status_reason(int status);

/* What the body of an answer made by the transport itself calls it: "TIMEOUT". */
struct str status_code(int status);

/* A response with it ends with its head, whatever was asked for. */
static inline bool status_has_no_body(int status)
{
    return status == 204 || status == 304;
}

/* Browsers must neither guess types nor be kept from reading a response they asked for. Where
 * access is configured, share.h decides about the latter; what a program gets that has written is
 * for no page at all. */
enum response_kind { RESPONSE_OPEN, RESPONSE_GUARDED, RESPONSE_PRIVATE };
#define RESPONSE_COMMON_HEADERS 3 /* at most */
struct response_common {
    struct str lines; /* all of them as HTTP/1.1 has them */
    struct header headers[RESPONSE_COMMON_HEADERS];
    size_t n;
};
extern const struct response_common response_common[];

#endif
