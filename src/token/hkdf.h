// SPDX-License-Identifier: Apache-2.0
/* hkdf.h -- HKDF-SHA256 (RFC 5869), for the server and for the client library. */
#ifndef TOKEN_HKDF_H
#define TOKEN_HKDF_H

#include "base/str.h"

#include <stdint.h>

/* salt and info may be empty. False: OpenSSL cannot, for lack of memory. */
bool hkdf_sha256(struct str secret, struct str salt, struct str info, uint8_t *out, size_t n);

#endif
