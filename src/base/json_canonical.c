// SPDX-License-Identifier: Apache-2.0
#include "base/json_canonical.h"
#include "base/jcs.h"
#include "base/mem.h"

#include <stdlib.h>

int json_canonical(struct str text, struct str without, struct buf *out)
{
    struct jcs_room room;
    size_t n;
    int err = jcs_measure(text, &room);
    if (err != 0)
        return err;
    room.objects = mem_alloc(room.n_objects * sizeof *room.objects);
    room.members = mem_alloc(room.n_members * sizeof *room.members);
    room.names = mem_alloc(room.n_names);
    room.out = buf_reserve(out, room.n_out);
    err = jcs_write(text, without, &room, &n);
    if (err == 0)
        out->n += n;
    free(room.objects);
    free(room.members);
    free(room.names);
    return err;
}
