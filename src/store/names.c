// SPDX-License-Identifier: Apache-2.0
#include "store/names.h"

const struct store_names store_names[] = {
    {.prefix = STR_INIT(".route/")},
    {.prefix = STR_INIT(".tool/")},
    {.prefix = STR_INIT("sessions/"), .sealed = true, .grouped = true},
    {.prefix = STR_INIT("")},
};

const struct store_doc_group store_doc_groups[] = {
    {STR_INIT("session/"), STR_INIT("sessions/")},
    {STR_INIT("sub/head/"), STR_INIT("sub/")},
    {STR_INIT("sub/link/"), STR_INIT("sub/")},
    {STR_INIT(""), STR_INIT("")},
};

/* Asked of every request, and nearly always for nothing: one byte says so. */
const struct store_names *store_names_of(struct str name)
{
    for (const struct store_names *n = store_names; name.n > 0 && n->prefix.n > 0; n++)
        if (n->prefix.p[0] == name.p[0] && str_starts(name, n->prefix))
            return n;
    return NULL;
}
