// SPDX-License-Identifier: Apache-2.0
#include "access/principal.h"
#include "base/hex.h"
#include "base/pack.h"
#include "base/sha256.h"
#include "feature/gateway/gateway_core.h"

#define HALF_BYTES 8
#define HALF_TEXT  18 /* `xxxxxxxx-xxxx-4xxx`, and as much behind it */

/* The second half that belongs to this first one. Nobody chooses what is hashed but for who he is,
 * and an id is looked for under one principal at a time: half a digest is enough. */
static void put_owner(const struct principal *p, struct str first, uint8_t half[HALF_BYTES])
{
    uint8_t digest[SHA256_SIZE];
    struct buf text = {0};
    pack_str(&text, first);
    pack_str(&text, p->id);
    pack_str(&text, p->root);
    sha256(buf_str(&text), digest);
    memcpy(half, digest, HALF_BYTES);
    buf_deinit(&text);
}

static bool is_bound(const struct principal *p)
{
    return p->rights.n > 0;
}

void gateway_id_make(const struct principal *p, char id[REQUEST_ID_TEXT])
{
    uint8_t bytes[2 * HALF_BYTES];
    rand_bytes(bytes, sizeof bytes);
    hex_uuid(bytes, id);
    if (!is_bound(p))
        return;
    put_owner(p, str_of(id, HALF_TEXT), bytes + HALF_BYTES);
    hex_uuid(bytes, id);
}

bool gateway_id_is_of(struct str request_id, const struct principal *p)
{
    uint8_t bytes[2 * HALF_BYTES] = {0};
    char wanted[REQUEST_ID_TEXT];
    if (!is_bound(p))
        return true;
    put_owner(p, str_of(request_id.p, HALF_TEXT), bytes + HALF_BYTES);
    hex_uuid(bytes, wanted);
    return memcmp(wanted + HALF_TEXT, request_id.p + HALF_TEXT, HALF_TEXT) == 0;
}
