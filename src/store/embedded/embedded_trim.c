// SPDX-License-Identifier: Apache-2.0
/* embedded_trim.c -- trims that no write makes: of what has aged, and of what rests. */
#include "base/mem.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#include <stdlib.h>

struct trim_call {
    struct store_call call;
    uint64_t first;
};

static void embedded_finish_trim(struct store_call *c)
{
    struct trim_call *t = container_of(c, struct trim_call, call);
    if (c->result == 0)
        stream_settle_trim(&embedded_of(c->store)->catalog, c->stream, t->first);
    free(t);
}

/* Where there is no room for it in the journal, it is found out again that it is due. */
static void record_trim(struct embedded *e, struct stream *s, uint64_t first, uint64_t event)
{
    if (e->stage >= EMBEDDED_CLOSING ||
        journal_room(e->journal, RECORD_SMALL_MAX + embedded_reserve(e)) != 0)
        return;
    embedded_before_change(e, s);
    stream_trim(s, first, event);
    record_put_trim(&e->scratch, s);
    s->last_batch = embedded_put_record(e);
    embedded_mark_dirty(e, s);
    struct trim_call *t = mem_zalloc(sizeof *t);
    t->first = first;
    t->call.store = &e->store;
    t->call.finish = embedded_finish_trim;
    embedded_finish_after(e, &t->call, s, s->last_batch);
}

static void embedded_trim_on_looked(struct embedded *e, struct keep_lookup *look)
{
    struct stream *s = look->stream;
    s->term->looking = false;
    if (look->err == 0 && !s->removed && !s->deleted) {
        s->term->front_ms = look->front_ms;
        if (look->first > s->first)
            record_trim(e, s, look->first, look->event);
    }
    stream_unpin(s);
    free(look);
}

enum trim_verdict embedded_trim(struct catalog *c, struct stream *s)
{
    struct embedded *e = container_of(c, struct embedded, catalog);
    struct trim trim;
    enum trim_verdict v = catalog_judge_trim(c, s, &trim);
    if (v == TRIM_TO)
        record_trim(e, s, trim.first, trim.event);
    if (v != TRIM_NONE)
        stream_look_soon(c, s); /* was that all? */
    if (v != TRIM_LOOK || s->term == NULL || s->term->looking || e->stage != EMBEDDED_RUNNING)
        return v;
    s->term->looking = true;
    struct keep_lookup *look = mem_zalloc(sizeof *look);
    *look = (struct keep_lookup){.keep = trim.keep, .stream = s};
    s->pins++;
    embedded_look(e, look, embedded_trim_on_looked);
    return v;
}
