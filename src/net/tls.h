// SPDX-License-Identifier: Apache-2.0
/* tls.h -- what all TLS connections of a server share: the certificate and its key, the protocols
 * to choose from, and the keys of session tickets. And what those to others share: whom to trust.
 *
 * TLS 1.2 and 1.3, ciphers with forward secrecy only, no renegotiation, no compression, no early
 * data (it could be replayed). A ticket lets a client come back without the costly part of a
 * handshake; the server keeps nothing for it. The keys of tickets change twice a day, the last ones
 * stay good for as long again, and a reload keeps them: renewing a certificate does not make
 * everybody shake hands anew.
 *
 * With client_ca a client is asked for a certificate during the handshake, and never later. One
 * that it shows has to be good; it may show none. Coming back by a ticket it is who it was, as long
 * as the authorities are the same.
 *
 * Shared by reference count, loop thread only. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "base/str.h"

#include <stddef.h>

struct tls;
struct trace;

struct tls_settings {
    const char *cert, *key; /* PEM files; the certificate first, then those between it and a CA */
    const char *client_ca;  /* of clients' certificates; NULL: they are not asked for any */
    struct str alpn;        /* what is spoken, best first, each with a byte of length before it */
    const struct trace *trace; /* kept; told of certificates that are out of date, and of peers */
};

/* Settings are copied. NULL with a sentence in why. */
struct tls *tls_new(const struct tls_settings *settings, char *why, size_t size);

/* For connections that we make: the peer's certificate has to be good for the host that was asked
 * for, under a CA of the file ca, or of the system (ca == NULL). trace may be NULL. */
struct tls *tls_new_client(const char *ca, const struct trace *trace, char *why, size_t size);

/* Of a server: reads the files again. Connections that exist, and on failure new ones, too, go on
 * with what they had. 0, or ERR_SYNTAX with a sentence in why. */
int tls_reload(struct tls *t, char *why, size_t size);

struct tls *tls_ref(struct tls *t);
void tls_unref(struct tls *t); /* NULL is allowed */

#endif
