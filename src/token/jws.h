// SPDX-License-Identifier: Apache-2.0
/* jws.h -- whether a signature is right (RFC 7515, 7518, 8037). Alone in its file, so that a fuzzer
 * can put another in its place. */
#ifndef TOKEN_JWS_H
#define TOKEN_JWS_H

#include "base/str.h"

struct jwk;

/* Of the key's own algorithm:
 *
 *     HS256         32 bytes, compared in constant time
 *     RS256, PS256  as long as the modulus; PS256 with a salt of 32 bytes
 *     ES256         r || s, 64 bytes, neither of them zero. (r, n - s) is as right as (r, s), so a
 *                   token of ES256 has two spellings: never know a token again by its bytes
 *     EdDSA         64 bytes */
bool jws_check(const struct jwk *key, struct str text, struct str signature);

#endif
