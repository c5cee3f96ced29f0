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
 * access is configured, front.h decides about the latter. */
#define RESPONSE_COMMON_HEADERS 2
extern const struct header response_common[RESPONSE_COMMON_HEADERS];
static inline size_t response_common_n(bool guarded)
{
    return guarded ? RESPONSE_COMMON_HEADERS - 1 : RESPONSE_COMMON_HEADERS;
}

#endif
