// SPDX-License-Identifier: Apache-2.0
#include "stream/pins.h"

#include <stddef.h>

void pins_init(struct pins *p, void (*moved)(struct pins *p))
{
    *p = (struct pins){.moved = moved};
    list_init(&p->all);
}

void pins_publish(struct pins *p, struct map *by_name, struct str name)
{
    if (map_get(by_name, name) != NULL)
        return; /* somebody else's */
    p->by_name = by_name;
    p->name = name;
    map_put(by_name, name, p);
}

void pins_deinit(struct pins *p)
{
    if (p->by_name != NULL)
        map_remove(p->by_name, p->name);
    p->by_name = NULL;
    p->waiting = false;
    list_each_safe (l, &p->all) {
        list_item(l, struct pin, link)->pins = NULL;
        list_remove(l);
    }
}

static struct pin_position position_of(const struct pin *pin, struct pin_position tail)
{
    return pin->at.pos >= tail.pos ? tail : pin->at;
}

struct pin_position pins_least(const struct pins *p, struct pin_position tail)
{
    struct pin_position least = {UINT64_MAX, UINT64_MAX};
    list_each (l, &p->all) {
        struct pin_position at = position_of(list_item(l, struct pin, link), tail);
        least.pos = at.pos < least.pos ? at.pos : least.pos;
        least.event = at.event < least.event ? at.event : least.event;
    }
    return least;
}

uint64_t pins_cut(struct pins *p, struct pin_position need, struct pin_position tail,
                  uint64_t since_ms)
{
    uint64_t n = 0;
    list_each_safe (l, &p->all) {
        struct pin *pin = list_item(l, struct pin, link);
        struct pin_position at = position_of(pin, tail);
        bool holds = at.pos < need.pos || at.event < need.event;
        if (!holds || pin->cut == NULL || pin->since_ms > since_ms)
            continue;
        pin->cut(pin);
        n++;
    }
    return n;
}

static void pins_notify(struct pins *p)
{
    if (p != NULL && p->waiting)
        p->moved(p);
}

void pin_add(struct pin *pin, struct pins *p, struct pin_position at, uint64_t now_ms)
{
    *pin = (struct pin){.pins = p, .at = at, .since_ms = now_ms};
    list_init(&pin->link);
    if (p != NULL)
        list_push(&p->all, &pin->link);
}

void pin_move(struct pin *pin, struct pin_position at)
{
    pin->at = at;
    pins_notify(pin->pins);
}

void pin_remove(struct pin *pin)
{
    struct pins *p = pin->pins;
    if (p == NULL)
        return;
    pin->pins = NULL;
    list_remove(&pin->link);
    pins_notify(p);
}
