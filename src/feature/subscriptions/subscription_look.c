// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"

/* Each hint is one link to read and one stream to look up; the verdict on both may be to write the
 * link: a stream that is new to the pattern, one that was deleted, one that was born again. */

int sub_offset_cmp(struct offset a, struct offset b)
{
    if (a.life != b.life)
        return a.life < b.life ? -1 : 1;
    return (a.pos > b.pos) - (a.pos < b.pos);
}

static void next_hint(struct subop *j);

/* ---- one hint ---- */

enum verdict { KEEP, WRITE, REMOVE };

/* Brings the link in line with the stream; life == 0: there is no such stream. */
static enum verdict link_verdict(const struct subop *j, struct str name, uint64_t life,
                                 struct subscription_link *link)
{
    bool matches = sub_matches(j->sub, name);
    if (!j->linked) {
        /* Nobody saw it when the subscription was made: all of it is new. */
        *link = (struct subscription_link){.birth = j->head.birth, .life = life};
        return life != 0 && matches ? WRITE : KEEP;
    }
    *link = j->link_doc;
    if (!link->is_explicit && (life == 0 || !matches))
        return REMOVE;
    if (link->life == life)
        return KEEP;
    link->life = life;
    link->acked = (struct offset){0};
    return WRITE;
}

static void settle_hint(struct subop *j, bool pending)
{
    struct subscription *sub = j->sub;
    struct sub_hint *hint = j->hint;
    j->hint = NULL;
    hint->stream.has_pending = pending;
    if (pending)
        list_push(&sub->pending, &hint->link);
    else if (hint->changed) /* too late to be counted now; it is looked at again soon */
        list_push(&sub->hints, &hint->link);
    else
        sub_hint_free(sub, hint);
    next_hint(j);
}

static void subscription_look_on_hint_put(struct subop *j, int err)
{
    j->n_puts = 0;
    if (err == 0) {
        settle_hint(j, j->hint->stream.has_pending);
    } else if (err == ERR_VERSION) { /* another process was faster: see what it wrote */
        list_push(&j->batch, &j->hint->link);
        j->hint = NULL;
        next_hint(j);
    } else {
        subop_end(j, err);
    }
}

static void subscription_look_on_hint_stream(struct subop *j)
{
    struct subscription_stream *st = &j->hint->stream;
    struct stream_info info = j->op.stat.info;
    struct subscription_link link;
    enum verdict v = link_verdict(j, st->path, info.life, &link);
    bool linked = v == WRITE || (v == KEEP && j->linked);
    st->is_explicit = link.is_explicit;
    st->acked = link.acked;
    st->tail = (struct offset){info.life, info.tail};
    st->has_pending = linked && info.tail > 0 && sub_offset_cmp(st->acked, st->tail) < 0;
    if (v == KEEP) {
        settle_hint(j, st->has_pending);
        return;
    }
    arena_deinit(&j->page);
    j->page = (struct arena){0};
    subop_puts(j, &j->page, 1);
    subop_put_link(j, &j->page, st->path, v == REMOVE ? NULL : &link);
    subop_put(j, j->puts, j->n_puts, subscription_look_on_hint_put);
}

static void subscription_look_on_hint_link(struct subop *j)
{
    subop_stat(j, j->hint->stream.path, subscription_look_on_hint_stream);
}

/* ---- pages of links, then of streams ----
 *
 * Not more rows at a time than there is room for hints. When that is used up by streams that have
 * something pending, the rest is left for later (`behind`); only the names of links are still
 * gone through, since notices of those are looked up by name. */

static void end_page(struct subop *j, bool more, struct str last)
{
    bool links = j->pages == SUBOP_LINKS;
    j->after.n = 0;
    if (more)
        buf_put(&j->after, last);
    else
        j->pages = links && j->sub->pattern.n > 0 ? SUBOP_STREAMS : SUBOP_NO_PAGES;
    next_hint(j);
}

static void subscription_look_on_links(struct subop *j)
{
    struct subscription *sub = j->sub;
    const struct store_docs *d = &j->op.docs;
    for (size_t i = 0; i < d->n_rows; i++) {
        struct subscription_link link;
        struct str name = str_skip(d->rows[i].key, sub->link_prefix.n);
        if (subscription_link_parse(d->rows[i].value, &link) != 0 || link.birth != j->head.birth)
            continue;
        if (link.is_explicit)
            sub_tie(sub, name, false);
        if (j->pages == SUBOP_LINKS)
            sub_hint(sub, name, &j->batch);
    }
    end_page(j, d->more, d->n_rows > 0 ? d->rows[d->n_rows - 1].key : STR_NONE);
}

static void subscription_look_on_streams(struct subop *j)
{
    const struct store_list *l = &j->op.list;
    for (size_t i = 0; i < l->n_rows; i++)
        if (sub_matches(j->sub, l->rows[i].name))
            sub_hint(j->sub, l->rows[i].name, &j->batch);
    end_page(j, l->more, l->n_rows > 0 ? l->rows[l->n_rows - 1].name : STR_NONE);
}

static void next_page(struct subop *j)
{
    struct subscription *sub = j->sub;
    struct str after = buf_str(&j->after);
    size_t max = sub->all->hints_max, n = sub->hint_map.n, room = n < max ? max - n : 0;
    if (j->pages != SUBOP_TIES && (room == 0 || (room < SUB_PAGE && !list_empty(&sub->pending)))) {
        sub->behind = true;
        j->pages = j->pages == SUBOP_LINKS ? SUBOP_TIES : SUBOP_NO_PAGES;
    }
    size_t limit = j->pages == SUBOP_TIES || room > SUB_PAGE ? SUB_PAGE : room;
    if (j->pages == SUBOP_NO_PAGES)
        j->next(j);
    else if (j->pages == SUBOP_STREAMS)
        subop_list(j, subscription_pattern_prefix(sub->pattern), after, limit,
                   subscription_look_on_streams);
    else
        subop_docs(j, sub->link_prefix, after, limit, subscription_look_on_links);
}

static void next_hint(struct subop *j)
{
    if (list_empty(&j->batch)) {
        next_page(j);
        return;
    }
    j->hint = list_item(j->batch.next, struct sub_hint, link);
    list_remove(&j->hint->link);
    j->hint->changed = false;
    subop_read_link(j, j->hint->stream.path, subscription_look_on_hint_link);
}

void subop_look(struct subop *j, subop_next *next)
{
    struct subscription *sub = j->sub;
    j->next = next;
    list_splice(&j->batch, &sub->hints);
    list_each_safe (l, &sub->pending) {
        if (!list_item(l, struct sub_hint, link)->changed)
            continue;
        list_remove(l);
        list_push(&j->batch, l);
    }
    j->pages = sub->behind ? SUBOP_LINKS : SUBOP_NO_PAGES;
    j->after.n = 0;
    sub->behind = false;
    next_hint(j);
}
