// SPDX-License-Identifier: Apache-2.0
/* b64.h -- base64 (padded, RFC 4648 section 4) and base64url (no padding, section 5). */
#ifndef BASE_B64_H
#define BASE_B64_H

#include "base/buf.h"

void b64_put(struct buf *out, struct str bytes);
void b64url_put(struct buf *out, struct str bytes);

/* Strict: padded (the first) or not (the second), no other characters, unused tail bits zero, so
 * that a value has one spelling. Appends the bytes to *out; ERR_SYNTAX leaves *out as it was. */
int b64_take(struct buf *out, struct str text);
int b64url_take(struct buf *out, struct str text);

#endif
