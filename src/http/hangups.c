// SPDX-License-Identifier: Apache-2.0
#include "http/hangups.h"

void hangups_note(struct hangups *h, const void *connection, uint64_t now_ms)
{
    h->last[h->next] = (struct hangup){connection, now_ms};
    h->next = (h->next + 1) % HANGUPS_MAX;
}

bool hangups_has(const struct hangups *h, const void *connection, uint64_t since_ms)
{
    for (size_t i = 0; i < HANGUPS_MAX; i++) {
        const struct hangup *one = &h->last[i];
        if (one->connection == connection && connection != NULL && one->at_ms >= since_ms &&
            one->at_ms - since_ms <= HANGUP_MS)
            return true;
    }
    return false;
}
