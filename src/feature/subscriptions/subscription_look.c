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

/* ---- links and streams, side by side ----
 *
 * Both come page by page in the order of names. Where a link and its stream agree there is nothing
 * to do, which is nearly always so: only the others become hints. Not more of them at a time than
 * there is room for; when that is used up by streams that have something pending, the rest is left
 * for later (`behind`), and only the links are still gone through for their names, since notices
 * of those are looked up by name. */

static void subop_page_reset(struct subop_page *p, bool more)
{
    p->n = p->at = 0;
    p->more = more;
    p->after.n = 0;
}

static bool subop_page_used_up(const struct subop_page *p)
{
    return p->at == p->n && p->more;
}

static const struct subop_row *subop_page_peek(const struct subop_page *p)
{
    return p->at < p->n ? &p->rows[p->at] : NULL;
}

static void subop_page_begin(struct subop_page *p, size_t n, bool more, struct str last)
{
    arena_deinit(&p->arena);
    p->arena = (struct arena){0};
    p->rows = arena_alloc(&p->arena, (n + 1) * sizeof *p->rows);
    subop_page_reset(p, more);
    if (more)
        buf_put(&p->after, last);
}

static struct subop_row *subop_page_add(struct subop_page *p, struct str name)
{
    struct subop_row *row = &p->rows[p->n++];
    *row = (struct subop_row){.name = arena_dup(&p->arena, name)};
    return row;
}

static void next_page(struct subop *j);

static void subscription_look_on_links(struct subop *j)
{
    struct subscription *sub = j->sub;
    const struct store_docs *d = &j->op.docs;
    subop_page_begin(&j->links, d->n_rows, d->more,
                     d->n_rows > 0 ? d->rows[d->n_rows - 1].key : STR_NONE);
    for (size_t i = 0; i < d->n_rows; i++) {
        struct subscription_link link;
        struct str name = str_skip(d->rows[i].key, sub->link_prefix.n);
        if (subscription_link_parse(d->rows[i].value, &link) != 0 || link.birth != j->head.birth)
            continue;
        if (link.is_explicit)
            sub_tie(sub, name);
        subop_page_add(&j->links, name)->link = link;
    }
    next_page(j);
}

static void subscription_look_on_streams(struct subop *j)
{
    const struct store_list *l = &j->op.list;
    subop_page_begin(&j->streams, l->n_rows, l->more,
                     l->n_rows > 0 ? l->rows[l->n_rows - 1].name : STR_NONE);
    for (size_t i = 0; i < l->n_rows; i++) {
        if (!sub_matches(j->sub, l->rows[i].name))
            continue;
        struct subop_row *row = subop_page_add(&j->streams, l->rows[i].name);
        row->tail = (struct offset){l->rows[i].info.life, l->rows[i].info.tail};
    }
    next_page(j);
}

/* Whether the link is in line with the stream, and all of it acknowledged. */
static bool look_settled(const struct subop_row *link, const struct subop_row *stream)
{
    return link->link.life == stream->tail.life &&
           (stream->tail.pos == 0 || sub_offset_cmp(link->link.acked, stream->tail) >= 0);
}

/* Goes on behind the next name, in both pages. False: there is none. */
static bool look_take_row(struct subop *j)
{
    const struct subop_row *link = subop_page_peek(&j->links);
    const struct subop_row *stream = subop_page_peek(&j->streams);
    if (link == NULL && stream == NULL)
        return false;
    int order = link == NULL ? 1 : stream == NULL ? -1 : str_cmp(link->name, stream->name);
    if (order != 0 || !look_settled(link, stream))
        sub_hint(j->sub, order <= 0 ? link->name : stream->name, &j->batch);
    j->links.at += order <= 0;
    j->streams.at += order >= 0;
    return true;
}

/* How many hints may come from the pages now. */
static size_t look_room(const struct subop *j)
{
    const struct subscription *sub = j->sub;
    const struct subscriptions *s = sub->all;
    size_t n = sub->hint_map.n, room = n < s->hints_max ? s->hints_max - n : 0;
    if (s->n_hints >= s->hints_all && room > SUB_HINTS_OWN)
        room = SUB_HINTS_OWN;
    return room < SUB_PAGE && !list_empty(&sub->pending) ? 0 : room;
}

static void look_merge(struct subop *j)
{
    size_t room = look_room(j), before = j->sub->hint_map.n;
    if (room == 0) {
        j->sub->behind = true;
        j->pages = SUBOP_TIES;
    }
    while (j->pages == SUBOP_MERGE && !subop_page_used_up(&j->links) &&
           !subop_page_used_up(&j->streams) && j->sub->hint_map.n - before < room)
        if (!look_take_row(j))
            j->pages = SUBOP_NO_PAGES;
    if (j->pages == SUBOP_TIES)
        j->links.at = j->links.n; /* a page's names are tied when it comes */
    next_hint(j);
}

static void next_page(struct subop *j)
{
    struct subscription *sub = j->sub;
    if (j->pages == SUBOP_TIES && !j->links.more)
        j->pages = SUBOP_NO_PAGES;
    if (j->pages == SUBOP_NO_PAGES)
        j->next(j);
    else if (subop_page_used_up(&j->links))
        subop_docs(j, sub->link_prefix, buf_str(&j->links.after), SUB_PAGE,
                   subscription_look_on_links);
    else if (j->pages == SUBOP_MERGE && subop_page_used_up(&j->streams))
        subop_list(j, subscription_pattern_prefix(sub->pattern), buf_str(&j->streams.after),
                   SUB_PAGE, subscription_look_on_streams);
    else
        look_merge(j);
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
    sub_tie_listen(j->sub, j->hint->stream.path);
    subop_read_link(j, j->hint->stream.path, subscription_look_on_hint_link);
}

void subop_look(struct subop *j, subop_next *next)
{
    struct subscription *sub = j->sub;
    j->next = next;
    sub_hear(sub);
    if (j->call != NULL) /* whoever asks need not wait until the subscription is told */
        sub_hear_queue(sub);
    list_splice(&j->batch, &sub->hints);
    list_each_safe (l, &sub->pending) {
        if (!list_item(l, struct sub_hint, link)->changed)
            continue;
        list_remove(l);
        list_push(&j->batch, l);
    }
    j->pages = sub->behind ? SUBOP_MERGE : SUBOP_NO_PAGES;
    subop_page_reset(&j->links, true);
    subop_page_reset(&j->streams, sub->pattern.n > 0);
    sub->behind = false;
    next_hint(j);
}
