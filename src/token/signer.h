// SPDX-License-Identifier: Apache-2.0
/* signer.h -- Ed25519 signatures that a receiver can check without sharing a secret with us.
 *
 * Webhook bodies are signed with it; the public half is published as a JWK. One thread at a time
 * per signer. Only lack of memory or a broken OpenSSL can fail here, and then the process aborts
 * rather than send something unsigned. */
#ifndef TOKEN_SIGNER_H
#define TOKEN_SIGNER_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define SIGNER_SEED_SIZE 32
#define SIGNER_SIZE      64 /* of a signature */

struct signer;

/* The seed is RFC 8032's private key; the same seed always makes the same signer. */
struct signer *signer_new(const uint8_t seed[SIGNER_SEED_SIZE]);
void signer_free(struct signer *s); /* wipes the key; NULL is allowed */

/* The key's name, `ds_` and its RFC 7638 SHA-256 thumbprint in base64url. Lives as long as s. */
struct str signer_kid(const struct signer *s);

/* The public key, {"kty":"OKP","crv":"Ed25519","x":..,"kid":..,"use":"sig","alg":"EdDSA"}. Lives
 * as long as s. */
struct str signer_jwk(const struct signer *s);

/* Signs the parts, one behind the other. */
void signer_sign(struct signer *s, const struct str *parts, size_t n, uint8_t out[SIGNER_SIZE]);

/* Appends the value of a Webhook-Signature header, `t=<seconds>,kid=<kid>,ed25519=<base64url>`.
 * What is signed is `<seconds>.<body>`, so that an old delivery cannot be given a new time.
 * unix_s: not negative. */
void signer_put_header(struct signer *s, int64_t unix_s, struct str body, struct buf *out);

#endif
