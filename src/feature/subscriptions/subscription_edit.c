// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/names.h"

#include <stdlib.h>

static void fresh_page(struct subop *j)
{
    arena_deinit(&j->page);
    j->page = (struct arena){0};
}

/* ---- show ---- */

static struct str dup(struct subop *j, struct str s)
{
    return s.p == NULL ? s : arena_dup(&j->call->arena, s);
}

void subop_fill_view(struct subop *j)
{
    const struct subscription_head *h = &j->head;
    struct subscription_view *v = &j->call->view;
    *v = (struct subscription_view){
        .config = h->config,
        .created_ms = h->created_ms,
        .failing = h->attempts > 0,
        .generation = h->generation,
        .wake_id = dup(j, h->wake_id),
        .holder = dup(j, h->holder),
        .attempts = h->attempts,
    };
    v->config.pattern = dup(j, h->config.pattern);
    v->config.webhook_url = dup(j, h->config.webhook_url);
    v->config.wake_stream = dup(j, h->config.wake_stream);
    v->config.description = dup(j, h->config.description);
    v->config.public_url = dup(j, h->config.public_url);
    v->config.root = dup(j, h->config.root);
}

static void show_page(struct subop *j);

static void show_stream(struct subop *j, struct str name, const struct subscription_link *link)
{
    struct subscription_stream s = {
        .path = name, .is_explicit = link->is_explicit, .acked = link->acked};
    j->call->shown(j->call, &s);
    j->at++;
}

static void subscription_edit_on_shown(struct subop *j)
{
    const struct store_docs *d = &j->op.docs;
    struct subscription_view *v = &j->call->view;
    v->more = d->more;
    for (size_t i = 0; i < d->n_rows; i++) {
        struct subscription_link link;
        struct str name = str_skip(d->rows[i].key, j->sub->link_prefix.n);
        if (subscription_link_parse(d->rows[i].value, &link) != 0 || link.birth != j->head.birth)
            continue;
        if (j->at == SUBSCRIPTION_SHOWN_MAX) {
            v->more = true;
            break;
        }
        show_stream(j, name, &link);
    }
    if (!d->more || j->at == SUBSCRIPTION_SHOWN_MAX) {
        subop_end(j, 0);
        return;
    }
    j->after.n = 0;
    buf_put(&j->after, d->rows[d->n_rows - 1].key);
    show_page(j);
}

static void show_page(struct subop *j)
{
    subop_docs(j, j->sub->link_prefix, buf_str(&j->after), SUB_PAGE, subscription_edit_on_shown);
}

static void subscription_edit_show(struct subop *j)
{
    subop_fill_view(j);
    j->after.n = 0;
    j->at = 0;
    if (j->call->shown != NULL)
        show_page(j);
    else
        subop_end(j, 0);
}

static void subscription_edit_get_begin(struct subop *j)
{
    if (subop_require_shown(j))
        subscription_edit_show(j);
}

/* ---- delete ----
 *
 * First the head says so, which ends the subscription for everybody; then the links go, page by
 * page; the head goes last, so that whoever finds it after a crash can finish. */

static void subscription_edit_delete_page(struct subop *j);

static void subscription_edit_head_removed(struct subop *j)
{
    sub_adopt(j->sub, NULL, 0);
    j->next(j);
}

static void subscription_edit_on_links_removed(struct subop *j, int err)
{
    if (err != 0 && err != ERR_VERSION)
        subop_end(j, err);
    else if (err == ERR_VERSION && ++j->tries >= SUB_TRIES)
        subop_end(j, ERR_BUSY);
    else
        subscription_edit_delete_page(j);
}

static void subscription_edit_on_doomed(struct subop *j)
{
    const struct store_docs *d = &j->op.docs;
    fresh_page(j);
    subop_puts(j, &j->page, d->n_rows + 1);
    for (size_t i = 0; i < d->n_rows; i++) {
        j->link_version = d->rows[i].version;
        subop_put_link(j, &j->page, str_skip(d->rows[i].key, j->sub->link_prefix.n), NULL);
    }
    if (j->n_puts > 0) {
        subop_put(j, j->puts, j->n_puts, subscription_edit_on_links_removed);
        return;
    }
    j->puts[0] = (struct doc_put){.key = j->sub->head_key, .expect_version = j->version};
    subop_put_or_retry(j, j->puts, 1, subscription_edit_head_removed);
}

static void subscription_edit_delete_page(struct subop *j)
{
    j->n_puts = 0;
    subop_docs(j, j->sub->link_prefix, STR_NONE, SUB_PAGE, subscription_edit_on_doomed);
}

void subop_delete_rest(struct subop *j, subop_next *next)
{
    j->next = next;
    if (j->head.phase == SUBSCRIPTION_DELETING) {
        subscription_edit_delete_page(j);
        return;
    }
    j->head.phase = SUBSCRIPTION_DELETING;
    subop_commit(j, subscription_edit_delete_page);
}

static void subscription_edit_delete_begin(struct subop *j)
{
    if (!j->exists || !subop_is_allowed(j)) /* of others' nobody is told */
        subop_end(j, 0);
    else if (subop_is_hidden(j))
        subop_end(j, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND);
    else
        subop_delete_rest(j, subop_end_well);
}

/* ---- create ---- */

static void subscription_edit_create_committed(struct subop *j)
{
    j->call->created = true;
    subscription_edit_show(j);
}

static void finish_create(struct subop *j)
{
    j->head.phase = SUBSCRIPTION_ACTIVE;
    j->n_puts = 0;
    subop_commit(j, subscription_edit_create_committed);
}

static void list_existing(struct subop *j);
static void next_existing(struct subop *j);

static void subscription_edit_existing_put(struct subop *j)
{
    j->n_puts = 0;
    next_existing(j);
}

static void link_existing(struct subop *j, const struct store_row *row)
{
    struct subscription_link link = {
        .birth = j->head.birth, .life = row->info.life, .acked = {row->info.life, row->info.tail}};
    subop_put_link(j, &j->page, row->name, &link);
}

static void subscription_edit_on_existing_link(struct subop *j)
{
    const struct store_row *row = &j->rows[j->at++];
    if (!j->linked)
        link_existing(j, row);
    next_existing(j);
}

/* Nearly always there can be no links yet, and a hundred thousand need not be looked up. */
static void link_unseen(struct subop *j)
{
    j->link_version = 0;
    for (; j->at < j->n_rows && j->n_puts < SUB_PUT_DOCS; j->at++)
        if (!sub_is_tied(j->sub, j->rows[j->at].name))
            link_existing(j, &j->rows[j->at]);
}

static void next_existing(struct subop *j)
{
    if (j->clean)
        link_unseen(j);
    bool through = j->at == j->n_rows;
    if (j->n_puts > 0 && (through || j->n_puts == SUB_PUT_DOCS))
        subop_put_or_retry(j, j->puts, j->n_puts, subscription_edit_existing_put);
    else if (!through)
        subop_read_link(j, j->rows[j->at].name, subscription_edit_on_existing_link);
    else if (j->after.n > 0)
        list_existing(j);
    else
        finish_create(j);
}

static void subscription_edit_on_existing(struct subop *j)
{
    const struct store_list *l = &j->op.list;
    fresh_page(j);
    j->rows = arena_alloc(&j->page, (l->n_rows + 1) * sizeof *j->rows);
    j->n_rows = j->at = 0;
    subop_puts(j, &j->page, SUB_PUT_DOCS);
    for (size_t i = 0; i < l->n_rows; i++) {
        if (!sub_matches(j->sub, l->rows[i].name))
            continue;
        struct store_row *row = &j->rows[j->n_rows++];
        *row = l->rows[i];
        row->name = arena_dup(&j->page, row->name);
    }
    j->after.n = 0;
    if (l->more)
        buf_put(&j->after, l->rows[l->n_rows - 1].name);
    next_existing(j);
}

static void list_existing(struct subop *j)
{
    subop_list(j, subscription_pattern_prefix(j->sub->pattern), buf_str(&j->after), SUB_PAGE,
               subscription_edit_on_existing);
}

/* ---- links by name, of create and of link ---- */

static void next_named(struct subop *j);

static void subscription_edit_on_named_stream(struct subop *j)
{
    struct stream_info info = j->op.stat.info;
    struct subscription_link link = {.is_explicit = true,
                                     .birth = j->head.birth,
                                     .life = info.life,
                                     .acked = {info.life, info.tail}};
    subop_put_link(j, &j->arena, j->rows[j->at++].name, &link);
    next_named(j);
}

static void subscription_edit_on_named_link(struct subop *j)
{
    struct subscription_link link = j->link_doc;
    if (!j->linked) {
        subop_stat(j, j->rows[j->at].name, subscription_edit_on_named_stream);
        return;
    }
    link.is_explicit = true; /* and keeps its position */
    if (!j->link_doc.is_explicit)
        subop_put_link(j, &j->arena, j->rows[j->at].name, &link);
    j->at++;
    next_named(j);
}

static void next_named(struct subop *j)
{
    if (j->at == j->n_rows)
        j->next(j);
    else
        subop_read_link(j, j->rows[j->at].name, subscription_edit_on_named_link);
}

/* Gathers the puts for all names; a repeated one counts once. Notices of them are kept from before
 * their tails are read, so that nothing is missed. */
static void link_named(struct subop *j, const struct str *names, size_t n, subop_next *next)
{
    struct map seen;
    map_init(&seen);
    j->next = next;
    j->rows = arena_alloc(&j->arena, (n + 1) * sizeof *j->rows);
    j->n_rows = j->at = 0;
    for (size_t i = 0; i < n; i++)
        if (map_put(&seen, names[i], j) == NULL)
            j->rows[j->n_rows++].name = names[i];
    map_deinit(&seen);
    for (size_t i = 0; i < j->n_rows; i++)
        sub_tie(j->sub, j->rows[i].name);
    subop_puts(j, &j->arena, n + 1);
    next_named(j);
}

static void subscription_edit_create_patterns(struct subop *j)
{
    j->n_puts = 0;
    j->after.n = 0;
    if (j->sub->pattern.n > 0)
        list_existing(j);
    else
        finish_create(j);
}

static void subscription_edit_create_named(struct subop *j)
{
    if (j->n_puts > 0)
        subop_put_or_retry(j, j->puts, j->n_puts, subscription_edit_create_patterns);
    else
        subscription_edit_create_patterns(j);
}

static void subscription_edit_on_any_link(struct subop *j)
{
    j->clean = j->op.docs.n_rows == 0;
    link_named(j, j->call->config->streams, j->call->config->n_streams,
               subscription_edit_create_named);
}

/* From now on notices are kept, so that what happens to streams meanwhile is not missed. */
static void create_links(struct subop *j)
{
    sub_activate(j->sub, &j->head);
    subop_docs(j, j->sub->link_prefix, STR_NONE, 1, subscription_edit_on_any_link);
}

static void subscription_edit_head_put(struct subop *j)
{
    j->version = DOC_NEXT(0);
    j->sub->version = j->version;
    create_links(j);
}

static bool owner_is_full(const struct subop *j)
{
    const struct subscription_call *c = j->call;
    return c->most_owned > 0 && subs_owned(j->sub->all, c->config->owner) >= c->most_owned;
}

static void create_head(struct subop *j)
{
    sub_set_owner(j->sub, j->call->config->owner);
    j->head = (struct subscription_head){
        .phase = SUBSCRIPTION_LINKING,
        .birth = rand_u64(),
        .config = *j->call->config,
        .created_ms = subop_now(j),
    };
    subscription_config_hash(&j->head.config, j->head.hash);
    subscription_head_put(&j->head_text, &j->head);
    subop_puts(j, &j->arena, 1);
    j->puts[0] = (struct doc_put){.key = j->sub->head_key, .value = buf_str(&j->head_text)};
    subop_put_or_retry(j, j->puts, 1, subscription_edit_head_put);
}

static void subscription_edit_create_begin(struct subop *j)
{
    char hash[SUBSCRIPTION_HASH_TEXT];
    subscription_config_hash(j->call->config, hash);
    bool same = j->exists && memcmp(hash, j->head.hash, sizeof hash) == 0;
    if (!j->exists && j->sub->all->n_active >= SUBSCRIPTION_MAX) {
        subop_end(j, ERR_LIMIT);
    } else if (!j->exists && owner_is_full(j)) {
        subop_end(j, SUBSCRIPTION_QUOTA);
    } else if (!j->exists) {
        create_head(j);
    } else if (j->head.phase == SUBSCRIPTION_ACTIVE) {
        if (same && subop_is_allowed(j))
            subscription_edit_show(j);
        else
            subop_end(j, SUBSCRIPTION_SUBSCRIPTION_ALREADY_EXISTS);
    } else if (j->head.phase == SUBSCRIPTION_LINKING && same) {
        j->sub->behind = true; /* whoever began it may have seen what we have not */
        create_links(j);
    } else { /* what was never finished, or is being deleted, gives way */
        subop_delete_rest(j, subop_again);
    }
}

/* ---- link, unlink ---- */

static void subscription_edit_link_commit(struct subop *j)
{
    j->head.edits++;
    subop_commit(j, subop_end_well);
}

static bool names_sealed(const struct subscription_call *c)
{
    for (size_t i = 0; i < c->n_streams; i++)
        if (store_sealed(c->streams[i]))
            return true;
    return false;
}

static void subscription_edit_link_begin(struct subop *j)
{
    if (!subop_require_shown(j))
        return;
    if (!j->head.config.sealed && names_sealed(j->call))
        subop_end(j, SUBSCRIPTION_INVALID_REQUEST);
    else if (j->sub->n_explicit + j->call->n_streams > SUBSCRIPTION_EXPLICIT_MAX)
        subop_end(j, ERR_LIMIT);
    else
        link_named(j, j->call->streams, j->call->n_streams, subscription_edit_link_commit);
}

/* Not before: while the link is there, what happens to the stream has to be told. */
static void subscription_edit_unlinked(struct subop *j)
{
    sub_untie(j->sub, j->call->streams[0]);
    subop_end(j, 0);
}

static void subscription_edit_on_unlink(struct subop *j)
{
    struct str name = j->call->streams[0];
    struct subscription_link link = j->link_doc;
    if (!j->linked || !link.is_explicit) {
        subscription_edit_unlinked(j);
        return;
    }
    link.is_explicit = false;
    subop_puts(j, &j->arena, 1);
    subop_put_link(j, &j->arena, name, sub_matches(j->sub, name) ? &link : NULL);
    sub_hint(j->sub, name, &j->sub->hints); /* if it was pending it may be no more */
    j->head.edits++;
    subop_commit(j, subscription_edit_unlinked);
}

static void subscription_edit_unlink_begin(struct subop *j)
{
    if (subop_require_shown(j))
        subop_read_link(j, j->call->streams[0], subscription_edit_on_unlink);
}

/* ---- the calls ---- */

void subscription_create(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_edit_create_begin);
}

void subscription_get(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_edit_get_begin);
}

void subscription_delete(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_edit_delete_begin);
}

#define ERASE_SLICE 100 /* deletions that are begun at a time */

static void subscription_edit_on_erased(struct subscription_call *c, int result)
{
    subscription_call_deinit(c);
    free(c);
}

/* The id is the subscription's own: it stays as long as there is a call for it. */
static void erase_one(struct subscription *sub)
{
    struct subscription_call *c = mem_zalloc(sizeof *c);
    c->id = sub->id;
    c->sees_sealed = true;
    c->done = subscription_edit_on_erased;
    subop_add(sub, c, subscription_edit_delete_begin);
}

size_t subscriptions_erase(struct subscriptions *s, struct str prefix)
{
    size_t at = 0, n = 0;
    if (s->phase != SUBSCRIPTIONS_READY)
        return 1;
    for (struct subscription *sub; (sub = map_next(&s->by_id, &at)) != NULL;) {
        if (!sub->active || !str_starts(sub->id, prefix))
            continue;
        if (n++ < ERASE_SLICE && list_empty(&sub->ops))
            erase_one(sub);
    }
    return n;
}

void subscription_link(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_edit_link_begin);
}

void subscription_unlink(struct subscriptions *s, struct subscription_call *c)
{
    subop_add(sub_of(s, c->id), c, subscription_edit_unlink_begin);
}

void subscription_keys(struct subscriptions *s, struct subscription_call *c)
{
    /* No subscription has the empty id: the operation finds none and, with the keys loaded, ends.
     */
    subop_add(sub_of(s, STR("")), c, subop_end_well);
}
