// SPDX-License-Identifier: Apache-2.0
/* tls_names.h -- whom a peer's certificate names: the URIs and DNS names of its subjectAltName. Its
 * CN names nobody. */
#ifndef NET_TLS_NAMES_H
#define NET_TLS_NAMES_H

#include "base/arena.h"
#include "base/str.h"

#include <openssl/x509.h>
#include <stdint.h>

#define TLS_NAMES_MAX 32 /* of one certificate; one with more names nobody */

struct tls_names {
    struct {
        struct str text;
        bool uri; /* else a DNS name */
    } items[TLS_NAMES_MAX];
    size_t n;
    int64_t expires_s; /* of the certificate; wall clock */
    struct arena arena;
};

/* Of a certificate that was verified. tls_names_free is due. */
struct tls_names *tls_names_of(X509 *certificate);
void tls_names_free(struct tls_names *names); /* NULL is allowed */

#endif
