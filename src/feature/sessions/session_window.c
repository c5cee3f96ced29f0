// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_window.h"
#include "base/must.h"

#include <stddef.h>

#define COUNT (SESSION_WINDOW_AHEAD + 1)

static size_t slot_of(uint64_t number)
{
    return (size_t)(number % COUNT);
}

enum session_window_place session_window_place(const struct session_window *w, uint64_t number)
{
    if (number < w->next)
        return WINDOW_STALE;
    return number - w->next > SESSION_WINDOW_AHEAD ? WINDOW_AHEAD : WINDOW_TAKEN;
}

void *session_window_put(struct session_window *w, uint64_t number, void *item)
{
    must(session_window_place(w, number) == WINDOW_TAKEN);
    void **slot = &w->held[slot_of(number)], *before = *slot;
    *slot = item;
    return before;
}

void *session_window_peek(const struct session_window *w)
{
    return w->held[slot_of(w->next)];
}

void session_window_advance(struct session_window *w)
{
    must(session_window_peek(w) != NULL);
    w->held[slot_of(w->next++)] = NULL;
}

void *session_window_take(struct session_window *w)
{
    for (size_t i = 0; i < COUNT; i++) {
        void *item = w->held[i];
        w->held[i] = NULL;
        if (item != NULL)
            return item;
    }
    return NULL;
}
