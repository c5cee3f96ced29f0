// SPDX-License-Identifier: Apache-2.0
/* client_wire_core.h -- TLS of a wire, for client_wire.c, by OpenSSL over memory: what comes is put
 * in, what is to go is taken out.
 *
 * OpenSSL takes its memory from malloc: an allocator of one client cannot be given to it. */
#ifndef CLIENT_CLIENT_WIRE_CORE_H
#define CLIENT_CLIENT_WIRE_CORE_H

#include "client/client_wire.h"

#define TLS_AGAIN 1 /* more is needed from the peer */
#define TLS_ENDED 2 /* the peer has said goodbye */

/* Sets w->ssl up for the client's server. 0 or TM_E_NOMEM. */
int tls_start(struct wire *w, struct str alpn);
void tls_free(struct wire *w);

int tls_put(struct wire *w, struct str encrypted); /* 0 or TM_E_NOMEM */
int tls_take(struct wire *w);                      /* into w->out; 0 or TM_E_NOMEM */
size_t tls_pending(const struct wire *w);          /* bytes that tls_take would take */

/* 0: done. TLS_AGAIN, or with a reason TM_E_TLS, or TM_E_NETWORK where it has worked before. */
int tls_handshake(struct wire *w, char *reason, size_t size);
/* 0: *n bytes were read. TLS_AGAIN, TLS_ENDED or TM_E_NETWORK with a reason. */
int tls_read(struct wire *w, char *buf, size_t size, size_t *n, char *reason, size_t reason_size);
int tls_write(struct wire *w, struct str bytes); /* 0 or TM_E_NOMEM */
void tls_goodbye(struct wire *w);

#endif
