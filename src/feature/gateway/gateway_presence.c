// SPDX-License-Identifier: Apache-2.0
/* gateway_presence.c -- generations where several processes share the store.
 *
 *     running/INSTANCE/STREAM   a generation under way, written with its stream: so whoever
 *                               inherits from a dead instance knows what to close
 *     gateway-chat/DIGEST       the newest generation of a chat, as a key's value
 *
 * Who is asked to stop a generation that another process runs closes its stream. The one that runs
 * it watches the stream, and drops the upstream when it finds it closed. Its own writes are
 * told to it like everybody's, so it looks only when nothing was written for a while: as long as
 * events come, the writes find out by themselves. */
#include "base/err.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/units.h"
#include "stream/instances.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

#define QUIET_MS   100 /* since a change was told, before one looks what it was */
#define CHAT_TRIES 8
#define AT_ONCE    256
#define LEFT_BEATS 2 /* until whatever is under way has come to its end */

/* ---- one generation ---- */

struct presence {
    struct presence_order order;
    struct gateway *gateway;
    struct arena arena;
    struct doc_put running, chat; /* chat.expect_version: that it has; 0: not ours */
    bool started, over;
    bool told;           /* of its chat */
    bool kept;           /* the document of its being under way */
    uint32_t operations; /* of the store, under way */

    struct store_watch watch;
    struct timer quiet;
    struct store_stat stat;
    bool looking, news; /* news: something has been written since the last look at the clock */

    struct store_docs docs;
    struct store_put put_chat, put_running;
    unsigned tries;
};

static void gateway_presence_begin(struct presence *p)
{
    p->operations++;
    gateway_begin(p->gateway);
}

static void gateway_presence_forget(struct presence *p);

/* The end of each operation. */
static void gateway_presence_finish(struct presence *p)
{
    struct gateway *g = p->gateway;
    if (--p->operations == 0 && p->over)
        gateway_presence_forget(p);
    gateway_end(g);
}

static struct str chat_doc_key(struct arena *a, struct str chat)
{
    char hex[SHA256_HEX];
    sha256_hex(chat, hex);
    return arena_printf(a, GATEWAY_CHATS "%.*s", (int)sizeof hex, hex);
}

static void gateway_presence_on_quiet(struct timer *t);
static void gateway_presence_on_changed(struct store_watch *w, struct str name);

struct presence *presence_new(const struct presence_order *o)
{
    struct presence *p = mem_zalloc(sizeof *p);
    struct gateway *g = o->route->gateway;
    struct str self = instances_name(g->setup.instances);
    p->order = *o;
    p->gateway = g;
    p->order.request_id = arena_dup(&p->arena, o->request_id);
    p->order.name = arena_dup(&p->arena, o->name);
    p->running =
        (struct doc_put){.key = arena_printf(&p->arena, GATEWAY_RUNNING "%.*s/%.*s", (int)self.n,
                                             self.p, (int)o->name.n, o->name.p),
                         .value = STR("generation")};
    if (o->chat.n > 0)
        p->chat.key = chat_doc_key(&p->arena, o->chat);
    timer_init(&p->quiet, gateway_presence_on_quiet);
    return p;
}

const struct doc_put *presence_doc(const struct presence *p)
{
    return &p->running;
}

/* ---- ended by another process ---- */

static void gateway_presence_on_stat(struct store_stat *st, int err)
{
    struct presence *p = container_of(st, struct presence, stat);
    p->looking = false;
    if (err == 0 && st->info.end != END_NONE && !p->over)
        p->order.ended(p->order.ctx, st->info.end);
    else if (ERR_IS_GONE(err) && !p->over)
        p->order.ended(p->order.ctx, END_EXPIRED);
    else if (err != 0 && !ERR_IS_GONE(err) && !p->over)
        gateway_presence_on_changed(&p->watch, p->order.name); /* nothing was found out */
    gateway_presence_finish(p);
}

static void gateway_presence_on_quiet(struct timer *t)
{
    struct presence *p = container_of(t, struct presence, quiet);
    if (p->news || p->looking) {
        p->news = false;
        sched_start(p->gateway->setup.sched, &p->quiet, QUIET_MS);
        return;
    }
    p->looking = true;
    p->stat = (struct store_stat){.name = p->order.name, .done = gateway_presence_on_stat};
    gateway_presence_begin(p);
    store_stat(p->gateway->setup.store, &p->stat);
}

static void gateway_presence_on_changed(struct store_watch *w, struct str name)
{
    struct presence *p = container_of(w, struct presence, watch);
    if (!timer_running(&p->quiet))
        sched_start(p->gateway->setup.sched, &p->quiet, QUIET_MS);
}

void presence_wrote(struct presence *p)
{
    p->news = true;
}

/* ---- its chat ---- */

static void look_up_chat(struct presence *p);

static void look_up_chat_again(struct presence *p)
{
    if (++p->tries < CHAT_TRIES && !p->over)
        look_up_chat(p);
}

bool presence_is_told(const struct presence *p)
{
    return p->told;
}

static void gateway_presence_on_chat_put(struct store_put *put, int err)
{
    struct presence *p = container_of(put, struct presence, put_chat);
    p->told |= err == 0;
    if (err == 0)
        p->chat.expect_version = DOC_NEXT(p->chat.expect_version);
    else
        p->chat.expect_version = 0;
    if (err == ERR_VERSION || ERR_IS_PASSING(err)) /* which may have been done: it is looked at */
        look_up_chat_again(p);
    gateway_presence_finish(p);
}

static void gateway_presence_on_chat(struct store_docs *d, int err)
{
    struct presence *p = container_of(d, struct presence, docs);
    struct buf value = {0};
    if (err == 0 && !p->over) {
        gateway_key_put(
            &value, &(struct gateway_key){.request_id = p->order.request_id,
                                          .expires_ms = p->gateway->setup.sched->wall_ms + DAY_MS});
        p->chat.value = arena_dup(&p->arena, buf_str(&value));
        p->chat.expect_version = d->n_rows > 0 ? d->rows[0].version : 0;
        p->put_chat =
            (struct store_put){.docs = &p->chat, .n_docs = 1, .done = gateway_presence_on_chat_put};
        gateway_presence_begin(p);
        store_put(p->gateway->setup.store, &p->put_chat);
    }
    if (ERR_IS_PASSING(err))
        look_up_chat_again(p);
    buf_deinit(&value);
    gateway_presence_finish(p);
}

static void look_up_chat(struct presence *p)
{
    p->docs = (struct store_docs){
        .prefix = p->chat.key, .limit = 1, .exact = true, .done = gateway_presence_on_chat};
    gateway_presence_begin(p);
    store_docs(p->gateway->setup.store, &p->docs);
}

void presence_started(struct presence *p)
{
    p->started = true;
    p->watch = (struct store_watch){.name = p->order.name, .changed = gateway_presence_on_changed};
    store_watch(p->gateway->setup.store, &p->watch);
    if (p->chat.key.n > 0)
        look_up_chat(p);
}

/* ---- over ---- */

static void presence_destroy(struct presence *p)
{
    arena_deinit(&p->arena);
    free(p);
}

static void forgotten(struct presence *p)
{
    struct gateway *g = p->gateway;
    if (--p->operations == 0)
        presence_destroy(p);
    gateway_end(g);
}

static void gateway_presence_on_running_forgotten(struct store_put *put, int err)
{
    forgotten(container_of(put, struct presence, put_running));
}

static void gateway_presence_on_chat_forgotten(struct store_put *put, int err)
{
    forgotten(container_of(put, struct presence, put_chat));
}

static void forget_doc(struct presence *p, struct store_put *put, struct doc_put *doc,
                       void (*done)(struct store_put *put, int err))
{
    doc->value = STR_NONE;
    *put = (struct store_put){.docs = doc, .n_docs = 1, .done = done};
    gateway_presence_begin(p);
    store_put(p->gateway->setup.store, put);
}

/* Should it fail, whoever inherits finds the stream closed; a chat's goes when its time is over. */
static void gateway_presence_forget(struct presence *p)
{
    if (!p->started) {
        presence_destroy(p);
        return;
    }
    bool chat = p->chat.expect_version > 0;
    gateway_presence_begin(p); /* for itself */
    p->running.expect_version = DOC_NEXT(0);
    if (!p->kept)
        forget_doc(p, &p->put_running, &p->running, gateway_presence_on_running_forgotten);
    if (chat)
        forget_doc(p, &p->put_chat, &p->chat, gateway_presence_on_chat_forgotten);
    forgotten(p);
}

void presence_abandon(struct presence *p)
{
    p->kept = true;
    gateway_look_for_leftovers(p->gateway);
}

void presence_free(struct presence *p)
{
    if (p == NULL)
        return;
    p->over = true;
    timer_stop(&p->quiet);
    if (p->started)
        store_unwatch(p->gateway->setup.store, &p->watch);
    if (p->operations == 0)
        gateway_presence_forget(p);
}

/* ---- looking for a chat's generation ---- */

static void chat_looked(struct chat_lookup *l, int err, bool found)
{
    struct gateway *g = l->route->gateway;
    if (err == 0 && !found) /* one of ours may not have its document yet */
        l->request_id = generation_of_chat(g, l->arena, l->chat);
    l->done(l, err);
    gateway_end(g);
}

static void gateway_presence_on_chat_stat(struct store_stat *st, int err)
{
    struct chat_lookup *l = container_of(st, struct chat_lookup, stat);
    chat_looked(l, ERR_IS_GONE(err) ? 0 : err, err == 0 && st->info.end == END_NONE);
}

static void gateway_presence_on_chat_doc(struct store_docs *d, int err)
{
    struct chat_lookup *l = container_of(d, struct chat_lookup, docs);
    struct gateway_key key;
    if (err == 0 && d->n_rows > 0)
        err = gateway_key_take(d->rows[0].value, &key);
    if (err != 0 || d->n_rows == 0) {
        chat_looked(l, err, false);
        return;
    }
    l->request_id = arena_dup(l->arena, key.request_id);
    l->stat = (struct store_stat){.name = gateway_stream(l->arena, l->route, l->request_id, ""),
                                  .done = gateway_presence_on_chat_stat};
    store_stat(l->route->gateway->setup.store, &l->stat);
}

void presence_find_chat(struct chat_lookup *l)
{
    struct gateway *g = l->route->gateway;
    l->docs = (struct store_docs){.prefix = chat_doc_key(l->arena, l->chat),
                                  .limit = 1,
                                  .exact = true,
                                  .done = gateway_presence_on_chat_doc};
    gateway_begin(g);
    store_docs(g->setup.store, &l->docs);
}

/* ---- what the dead have left ---- */

/* Closes one stream after the other, and takes its document away with it. Of our own instance it
 * is those that nobody runs: a write that we gave up may have been done all the same. */
struct inheritance {
    struct link link;
    struct gateway *gateway;
    char id[INSTANCE_ID_TEXT];
    bool own;
    struct arena arena;
    struct str prefix;
    struct buf after;
    struct store_docs docs;
    struct doc_row *rows;
    size_t n, at;
    bool more;
    struct store_write write;
    struct store_put put;
    struct doc_put doc;
};

static void inherit_over(struct inheritance *h, int err)
{
    struct gateway *g = h->gateway;
    struct str id = str_of(h->id, sizeof h->id);
    if (err == 0 && !h->own)
        instances_remove(g->setup.instances, id);
    if (err != 0 && h->own)
        gateway_look_for_leftovers(g);
    list_remove(&h->link);
    buf_deinit(&h->after);
    arena_deinit(&h->arena);
    free(h);
    gateway_end(g);
}

static void next_page(struct inheritance *h);
static void next_left(struct inheritance *h);

static void gateway_presence_on_left_removed(struct store_put *put, int err)
{
    struct inheritance *h = container_of(put, struct inheritance, put);
    if (err != 0 && err != ERR_VERSION) { /* which means that another was faster */
        inherit_over(h, err);
        return;
    }
    h->at++;
    next_left(h);
}

static void gateway_presence_on_left_closed(struct store_write *w, int err)
{
    struct inheritance *h = container_of(w, struct inheritance, write);
    bool gone = ERR_IS_GONE(err) || err == ERR_VERSION;
    if (err != 0 && !gone) {
        inherit_over(h, err);
        return;
    }
    if (err == 0 && !w->duplicate) {
        h->at++;
        next_left(h);
        return;
    }
    h->put =
        (struct store_put){.docs = &h->doc, .n_docs = 1, .done = gateway_presence_on_left_removed};
    store_put(h->gateway->setup.store, &h->put);
}

static void next_left(struct inheritance *h)
{
    while (h->at < h->n && h->own && gateway_runs(h->gateway, h->rows[h->at].key))
        h->at++;
    if (h->gateway->stopping) {
        inherit_over(h, ERR_CANCELLED);
    } else if (h->at < h->n) {
        const struct doc_row *row = &h->rows[h->at];
        h->doc = (struct doc_put){.key = row->key, .expect_version = row->version};
        h->write = (struct store_write){.name = str_skip(row->key, h->prefix.n),
                                        .close = true,
                                        .end = END_ORPHANED,
                                        .docs = &h->doc,
                                        .n_docs = 1,
                                        .done = gateway_presence_on_left_closed};
        store_write(h->gateway->setup.store, &h->write);
    } else if (h->more) {
        next_page(h);
    } else {
        inherit_over(h, 0);
    }
}

static void gateway_presence_on_left(struct store_docs *d, int err)
{
    struct inheritance *h = container_of(d, struct inheritance, docs);
    if (err != 0) {
        inherit_over(h, err);
        return;
    }
    struct arena page = {0};
    h->rows = arena_alloc(&page, (d->n_rows + 1) * sizeof *h->rows);
    for (size_t i = 0; i < d->n_rows; i++)
        h->rows[i] = (struct doc_row){.key = arena_dup(&page, d->rows[i].key),
                                      .version = d->rows[i].version};
    h->n = d->n_rows;
    h->at = 0;
    h->more = d->more;
    h->after.n = 0;
    if (d->n_rows > 0)
        buf_put(&h->after, d->rows[d->n_rows - 1].key);
    arena_deinit(&h->arena);
    h->arena = page;
    h->prefix = arena_printf(&h->arena, GATEWAY_RUNNING "%.*s/", (int)sizeof h->id, h->id);
    next_left(h);
}

static void next_page(struct inheritance *h)
{
    h->docs = (struct store_docs){.prefix = h->prefix,
                                  .after = buf_str(&h->after),
                                  .limit = AT_ONCE,
                                  .done = gateway_presence_on_left};
    store_docs(h->gateway->setup.store, &h->docs);
}

static bool is_inherited(const struct gateway *g, struct str id)
{
    list_each (l, &g->inheritances)
        if (memcmp(list_item(l, struct inheritance, link)->id, id.p, INSTANCE_ID_TEXT) == 0)
            return true;
    return false;
}

static void inherit(struct gateway *g, struct str id, bool own)
{
    if (g->stopping || is_inherited(g, id))
        return;
    struct inheritance *h = mem_zalloc(sizeof *h);
    list_push(&g->inheritances, &h->link);
    h->gateway = g;
    h->own = own;
    memcpy(h->id, id.p, sizeof h->id);
    h->prefix = arena_printf(&h->arena, GATEWAY_RUNNING "%.*s/", (int)id.n, id.p);
    gateway_begin(g);
    next_page(h);
}

static void gateway_presence_on_died(struct instance_observer *observer, struct str id)
{
    inherit(container_of(observer, struct gateway, observer), id, false);
}

static void gateway_presence_on_beat(struct instance_observer *observer)
{
    struct gateway *g = container_of(observer, struct gateway, observer);
    struct str self = instances_name(g->setup.instances);
    if (g->leftovers > 0 && !is_inherited(g, self) && --g->leftovers == 0)
        inherit(g, self, true);
}

void gateway_look_for_leftovers(struct gateway *g)
{
    g->leftovers = LEFT_BEATS;
}

void gateway_presence_init(struct gateway *g)
{
    g->observer = (struct instance_observer){gateway_presence_on_died, gateway_presence_on_beat};
    list_init(&g->inheritances);
    if (g->setup.instances != NULL)
        instances_set_observer(g->setup.instances, &g->observer);
}

void gateway_presence_stop(struct gateway *g)
{
    if (g->setup.instances != NULL)
        instances_set_observer(g->setup.instances, NULL);
}
