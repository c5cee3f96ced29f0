// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_token.h"
#include "base/hex.h"
#include "base/rand.h"

#include <stdio.h>

#define PREFIX   "tok_"
#define PREFIX_N (sizeof PREFIX - 1)
#define CLAIM_N  (PREFIX_N + HEX_U64)

void lab_tokens_init(struct lab_tokens *t)
{
    char uuid[RAND_UUID + 1];
    uint8_t key[MAC_KEY_SIZE];
    rand_uuid(uuid);
    snprintf(t->plain, sizeof t->plain, PREFIX "%s", uuid);
    rand_bytes(key, sizeof key);
    t->mac = mac_new(str_of((char *)key, sizeof key));
}

void lab_tokens_deinit(struct lab_tokens *t)
{
    mac_free(t->mac);
    t->mac = NULL;
}

void lab_token_put(const struct lab_tokens *t, int64_t expires_ms, char out[LAB_TOKEN_MAX])
{
    uint8_t tag[MAC_SIZE];
    snprintf(out, LAB_TOKEN_MAX, PREFIX "%016llx_", (unsigned long long)expires_ms);
    struct str claim = str_of(out, CLAIM_N);
    mac_sign(t->mac, &claim, 1, tag);
    hex_encode(tag, sizeof tag, out + CLAIM_N + 1);
    out[LAB_TOKEN_MAX - 1] = '\0';
}

bool lab_token_is_plain(const struct lab_tokens *t, struct str token)
{
    return mac_equal(token, str_of_cstr(t->plain));
}

bool lab_token_is_good(const struct lab_tokens *t, struct str token, int64_t now_ms)
{
    char wanted[LAB_TOKEN_MAX];
    uint64_t expires_ms;
    if (token.n != LAB_TOKEN_MAX - 1 ||
        !hex_decode_u64(str_of(token.p + PREFIX_N, HEX_U64), &expires_ms))
        return false;
    lab_token_put(t, (int64_t)expires_ms, wanted);
    return mac_equal(token, str_of_cstr(wanted)) && now_ms < (int64_t)expires_ms;
}
