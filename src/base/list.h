// SPDX-License-Identifier: Apache-2.0
/* list.h -- an intrusive doubly linked list. A link that is in no list points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/mem.h"

#include <stdbool.h>

struct link {
    struct link *next, *prev;
};

static inline void list_init(struct link *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct link *l)
{
    return l->next == l;
}

static inline void list_push(struct link *head, struct link *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

/* Harmless on a link that is in no list (but not on one never initialised). */
static inline void list_remove(struct link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    list_init(l);
}

/* Moves all of `from` to the end of `to`. */
static inline void list_splice(struct link *to, struct link *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_item(l, type, member) container_of(l, type, member)
#define list_each(l, head)         for (struct link *l = (head)->next; l != (head); l = l->next)
#define list_each_safe(l, head)                                                                    \
    for (struct link *l = (head)->next, *l##_next = l->next; l != (head);                          \
         l = l##_next, l##_next = l->next)

#endif
