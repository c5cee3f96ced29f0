// SPDX-License-Identifier: Apache-2.0
/* front.h -- what every request meets first, whatever it asks for, and whether access is configured
 * or not. Then comes the guard.
 *
 *     listener --> Host --> forwarded --> Origin --> guard
 *         |         |           |           `--> 403: a page of another site writes; 204: preflight
 *         |         |           `--> 403 PROTECTED: a proxy stands before an open server; 400
 *         |         `--> 421 WRONG_HOST
 *         `--> 404: what is asked for is served at another listener
 *
 * An open server is one where nothing says who may do what: all who reach it may do everything. It
 * is meant for one machine, and so it takes nothing that came through a proxy.
 *
 * Whose pages may ask is one policy for all surfaces: those of the server's own origin, those that
 * `allow-origin` lists, and on an open server that only this machine can reach, those of this
 * machine. A page of another origin reads no answer. It writes nothing either, and it does not even
 * ask a surface that is `strict`. Requests without Origin are no page's and pass. What its
 * answers say of that is share.h's. */
#ifndef HTTP_FRONT_H
#define HTTP_FRONT_H

#include "http/front_state.h"

#include <stdbool.h>

struct exchange;

/* By which peers a proxy is known: each is a network or `unix`, as front_check_proxy has found. */
void front_set_proxies(struct front *f, const struct option_list *from);
int front_check_proxy(struct str value, char *reason, size_t size);

/* Names have changed. */
void front_forget(struct front *f);
void front_deinit(struct front *f);

/* False: it has been answered. Sets x->page. */
bool front_admit(struct exchange *x);

/* The client's address: the peer's, or whom a proxy of `proxy-from` asks for. False: it has none,
 * as over a Unix socket, or it is gone. Not after exchange_forget_request. */
bool front_address(const struct exchange *x, uint8_t ip[ADDR_IP_N]);

/* What limits count by: the same, of IPv6 its first 64 bits. All zero where there is no address. */
void front_client(const struct exchange *x, uint8_t key[ADDR_IP_N]);

#endif
