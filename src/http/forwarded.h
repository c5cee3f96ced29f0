// SPDX-License-Identifier: Apache-2.0
/* forwarded.h -- for whom a proxy asks, as `X-Forwarded-For` or `Forwarded` (RFC 7239) says.
 *
 * Each proxy adds who came to it at the end. So they are read from there: as long as an address is
 * one of our own proxies, the one before it counts. What stands further left anybody may have
 * written. Pure. */
#ifndef HTTP_FORWARDED_H
#define HTTP_FORWARDED_H

#include "http/message.h"
#include "net/addr.h"

#include <stdbool.h>

/* Whose word counts. */
struct forwarded_proxies {
    const struct addr_net *nets;
    size_t n;
};

bool forwarded_trusts(const struct forwarded_proxies *p, const uint8_t ip[ADDR_IP_N]);

/* *ip is the peer's, one that is trusted; from here on the client's. At an entry that is no address
 * it stops: then it is that of the last proxy that named one. With both headers nobody can say
 * which of them a proxy has written: nothing counts. */
void forwarded_client(const struct forwarded_proxies *p, const struct request *r,
                      uint8_t ip[ADDR_IP_N]);

#endif
