// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"
#include "base/err.h"

struct str end_reason_text(enum end_reason reason)
{
    static const struct str texts[] = {
        [END_NONE] = STR_INIT(""),
        [END_COMPLETED] = STR_INIT("completed"),
        [END_CANCELLED] = STR_INIT("cancelled"),
        [END_FAILED] = STR_INIT("failed"),
        [END_ORPHANED] = STR_INIT("orphaned"),
        [END_EXPIRED] = STR_INIT("expired"),
    };
    return texts[reason];
}

struct str gap_reason_text(enum gap_reason reason)
{
    static const struct str texts[] = {
        [GAP_TRIMMED] = STR_INIT("trimmed"),
        [GAP_EXPIRED] = STR_INIT("expired"),
        [GAP_REBORN] = STR_INIT("reborn"),
        [GAP_UNKNOWN] = STR_INIT("unknown"),
    };
    return texts[reason];
}

struct str store_trouble_text(enum store_trouble kind)
{
    static const struct str texts[] = {
#define X(kind, word) [STORE_##kind] = STR_INIT(word),
        STORE_TROUBLES(X)
#undef X
    };
    return texts[kind];
}

void store_read_release(struct store_read *r)
{
    for (uint32_t i = 0; i < r->n_slices; i++)
        block_unref(r->slices[i].owner);
    r->n_slices = 0;
}

int store_health(struct store *s, struct str *why)
{
    *why = STR("");
    return s->ops->health(s, why);
}

size_t store_figures(const struct store *s, struct store_figure *out)
{
    return s->ops->figures == NULL ? 0 : s->ops->figures(s, out);
}

void store_count(struct store *s, int err)
{
    static const int troubles[STORE_TROUBLE_KINDS] = {
#define X(kind, word) [STORE_##kind] = ERR_##kind,
        STORE_TROUBLES(X)
#undef X
    };
    for (int i = 0; err != 0 && i < STORE_TROUBLE_KINDS; i++)
        s->refused[i] += err == troubles[i];
}

void store_post(struct store *s, struct store_call *call, void (*run)(struct task *t))
{
    call->store = s;
    call->stream = NULL;
    task_init(&call->task, run);
    sched_post(s->sched, &call->task);
}

void store_free(struct store *s)
{
    if (s != NULL)
        s->ops->free(s);
}

void store_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    s->ops->stop(s, stopped, ctx);
}

void store_write(struct store *s, struct store_write *w)
{
    s->ops->write(s, w);
}

void store_remove(struct store *s, struct store_remove *r)
{
    s->ops->remove(s, r);
}

void store_stat(struct store *s, struct store_stat *st)
{
    s->ops->stat(s, st);
}

void store_read(struct store *s, struct store_read *r)
{
    s->ops->read(s, r);
}

void store_list(struct store *s, struct store_list *l)
{
    s->ops->list(s, l);
}

void store_docs(struct store *s, struct store_docs *d)
{
    s->ops->docs(s, d);
}

void store_put(struct store *s, struct store_put *p)
{
    s->ops->put(s, p);
}

void store_watch(struct store *s, struct store_watch *w)
{
    s->ops->watch(s, w);
}

void store_unwatch(struct store *s, struct store_watch *w)
{
    s->ops->unwatch(s, w);
}
