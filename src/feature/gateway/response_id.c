// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/response_id.h"

#define PREFIX STR("resp_")

static bool is_dash(size_t i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

void response_id_make(struct str request_id, char id[RESPONSE_ID_TEXT])
{
    memcpy(id, PREFIX.p, PREFIX.n);
    id += PREFIX.n;
    for (size_t i = 0; i < request_id.n; i++)
        if (!is_dash(i))
            *id++ = request_id.p[i];
}

bool response_id_parse(struct str id, char request_id[RAND_UUID])
{
    if (id.n != RESPONSE_ID_TEXT || !str_starts(id, PREFIX))
        return false;
    const char *from = id.p + PREFIX.n;
    for (size_t i = 0; i < RAND_UUID; i++) {
        if (is_dash(i)) {
            request_id[i] = '-';
            continue;
        }
        char c = *from++;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        request_id[i] = c;
    }
    return true;
}
