// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription_token.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/num.h"
#include "token/mac.h"

#include <inttypes.h>
#include <stdio.h>

/* The id's length goes first: no other id and claim make the same bytes. */
static void subscription_token_sign(struct mac *key, struct str id, struct str claim,
                                    uint8_t tag[MAC_SIZE])
{
    char length[24];
    int n = snprintf(length, sizeof length, "%zu:", id.n);
    struct str parts[] = {str_of(length, (size_t)n), id, claim};
    mac_sign(key, parts, 3, tag);
}

struct str subscription_token_make(struct mac *key, struct arena *a, struct str id, struct str root,
                                   uint64_t generation, struct str wake_id)
{
    struct buf text = {0};
    uint8_t tag[MAC_SIZE];
    buf_printf(&text, "%" PRIu64 ".%.*s", generation, (int)wake_id.n, wake_id.p);
    subscription_token_sign(key, id, buf_str(&text), tag);
    buf_putc(&text, '.');
    b64url_put(&text, str_of((const char *)tag, sizeof tag));
    if (root.n > 0) {
        buf_putc(&text, '.');
        b64url_put(&text, root);
    }
    struct str token = arena_dup(a, buf_str(&text));
    buf_deinit(&text);
    return token;
}

struct str subscription_token_root(struct arena *a, struct str token)
{
    struct buf root = {0};
    struct str taken = STR_NONE;
    for (int i = 0; i < 3; i++) /* generation, wake id, tag */
        str_cut(&token, '.');
    if (token.n > 0 && b64url_take(&root, token) == 0)
        taken = arena_dup(a, buf_str(&root));
    buf_deinit(&root);
    return taken;
}

int subscription_token_check(struct mac *key, struct str id, struct str token, uint64_t *generation,
                             struct str *wake_id)
{
    struct str rest = token;
    struct str number = str_cut(&rest, '.'), wake = str_cut(&rest, '.');
    struct str given_tag = str_cut(&rest, '.');
    uint64_t g;
    if (given_tag.n == 0 || num_parse_canonical(number, UINT64_MAX, &g))
        return ERR_SYNTAX;
    struct buf given = {0};
    uint8_t tag[MAC_SIZE];
    subscription_token_sign(key, id, str_of(token.p, number.n + 1 + wake.n), tag);
    bool good = b64url_take(&given, given_tag) == 0 &&
                mac_equal(buf_str(&given), str_of((const char *)tag, sizeof tag));
    buf_deinit(&given);
    if (!good)
        return ERR_SYNTAX;
    *generation = g;
    *wake_id = wake;
    return 0;
}
