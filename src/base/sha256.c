// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
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
    for (size_t i = 0; i < sizeof digest; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
}
