// SPDX-License-Identifier: Apache-2.0
/* tls_core.h -- what tls.c, with what all connections share, and tls_channel.c, with what each has,
 * know of each other. */
#ifndef NET_TLS_CORE_H
#define NET_TLS_CORE_H

#include <openssl/ssl.h>

struct tls;
struct trace;

/* The present context; its application data is the struct tls. */
SSL_CTX *tls_context(const struct tls *t);
const BIO_METHOD *tls_socket(const struct tls *t);
const struct trace *tls_trace(const struct tls *t); /* NULL: nobody is told */

/* How OpenSSL gets at the socket. */
BIO_METHOD *tls_channel_socket(void);

#endif
