// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_doc.h"
#include "base/err.h"
#include "base/pack.h"

#define VERSION       2
#define VERSION_ALONE 1 /* without an owner */

void session_doc_put(struct buf *out, const struct session_doc *d)
{
    pack_u64(out, d->owner != 0 ? VERSION : VERSION_ALONE);
    pack_u64(out, d->service);
    pack_i64(out, d->created_ms);
    pack_str(out, str_of((const char *)d->salt, sizeof d->salt));
    pack_str(out, str_of((const char *)d->check, sizeof d->check));
    pack_u64(out, d->out_life);
    pack_u64(out, d->answered);
    pack_i64(out, d->gone_ms);
    pack_str(out, d->message);
    if (d->owner != 0)
        pack_u64(out, d->owner);
}

static void session_doc_take_bytes(struct unpack *u, uint8_t *out, size_t n)
{
    struct str s = unpack_str(u);
    if (s.n == n)
        memcpy(out, s.p, n);
    else
        u->err = ERR_CORRUPT;
}

int session_doc_read(struct str text, struct session_doc *out)
{
    struct unpack u = {.rest = text};
    struct session_doc d = {0};
    uint64_t version = unpack_u64(&u);
    d.service = (enum session_service)unpack_u64_max(&u, SESSION_AISERVER);
    d.created_ms = unpack_i64(&u);
    session_doc_take_bytes(&u, d.salt, sizeof d.salt);
    session_doc_take_bytes(&u, d.check, sizeof d.check);
    d.out_life = unpack_u64(&u);
    d.answered = unpack_u64(&u);
    d.gone_ms = unpack_i64(&u);
    d.message = unpack_str(&u);
    if (version == VERSION)
        d.owner = unpack_u64(&u);
    if (unpack_end(&u) != 0 || version < VERSION_ALONE || version > VERSION || d.service == 0)
        return ERR_CORRUPT;
    *out = d;
    return 0;
}
