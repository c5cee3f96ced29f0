// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log_id.h"
#include "base/err.h"
#include "base/hex.h"

bool log_id_same(const struct log_id *then, const struct log_id *now)
{
    if (then->device == 0 && then->inode == 0)
        return true;
    if (then->inode != now->inode)
        return false;
    return then->head == 0 ? then->device == now->device : then->head == now->head;
}

void log_id_format(const struct log_id *id, char out[LOG_ID_TEXT])
{
    hex_encode_u64(id->device, out);
    hex_encode_u64(id->inode, out + HEX_U64);
    hex_encode_u64(id->head, out + 2 * HEX_U64);
}

int log_id_parse(struct str text, struct log_id *out)
{
    struct log_id id;
    if (text.n != LOG_ID_TEXT || !hex_decode_u64(str_of(text.p, HEX_U64), &id.device) ||
        !hex_decode_u64(str_of(text.p + HEX_U64, HEX_U64), &id.inode) ||
        !hex_decode_u64(str_of(text.p + 2 * HEX_U64, HEX_U64), &id.head))
        return ERR_SYNTAX;
    *out = id;
    return 0;
}
