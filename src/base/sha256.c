// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
#include "base/hex.h"
#include "base/must.h"

#include <openssl/evp.h>

void sha256(struct str bytes, uint8_t out[SHA256_SIZE])
{
    /* Fails when out of memory, or with an OpenSSL without SHA-256. */
    must(EVP_Digest(bytes.p, bytes.n, out, NULL, EVP_sha256(), NULL) == 1);
}

void sha256_hex(struct str bytes, char out[SHA256_HEX])
{
    uint8_t digest[SHA256_SIZE];
    sha256(bytes, digest);
    hex_encode(digest, sizeof digest, out);
}
