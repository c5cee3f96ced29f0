// SPDX-License-Identifier: Apache-2.0
#include "client/client_canonical.h"
#include "base/err.h"
#include "base/jcs.h"

int canonical_put(struct tm_client *c, struct str text, struct bytes *out)
{
    struct jcs_room room;
    size_t n;
    int err = jcs_measure(text, &room);
    if (err != 0)
        return err == ERR_TOO_LARGE ? TM_E_TOO_LARGE : TM_E_INVALID;
    room.objects = client_alloc(c, room.n_objects * sizeof *room.objects);
    room.members = client_alloc(c, room.n_members * sizeof *room.members);
    room.names = client_alloc(c, room.n_names);
    room.out = bytes_room(c, out, room.n_out);
    if (room.objects == NULL || room.members == NULL || room.names == NULL || room.out == NULL)
        err = TM_E_NOMEM;
    else if (jcs_write(text, STR_NONE, &room, &n) != 0)
        err = TM_E_INVALID;
    if (err == 0) {
        out->n += n;
        out->p[out->n] = '\0';
    }
    client_free(c, room.objects);
    client_free(c, room.members);
    client_free(c, room.names);
    return err;
}
