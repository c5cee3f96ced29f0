// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/responses_store.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sse_parse.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/recorder.h"
#include "feature/gateway/response_id.h"
#include "feature/gateway/responses_body.h"
#include "feature/gateway/responses_source.h"
#include "http/sse_host.h"

#include <stdlib.h>

#define BATCH_BYTES (256 * 1024)

enum input_event { INPUT_HEAD, INPUT_ITEMS };

static void copy_slices(struct buf *out, const struct store_read *read)
{
    for (uint32_t i = 0; i < read->n_slices; i++)
        buf_put(out, read->slices[i].bytes);
}

/* One event of a stream of JSON; without the comma behind it. */
static void take_json_event(struct buf *out, struct store_read *read)
{
    copy_slices(out, read);
    if (out->n > 0)
        out->n--;
    store_read_release(read);
}

static struct store_read input_read(struct arena *a, const struct gateway_route *r,
                                    struct str request_id, enum input_event event,
                                    void (*done)(struct store_read *read, int err))
{
    return (struct store_read){.name = gateway_stream(a, r, request_id, RESPONSES_INPUT_SUFFIX),
                               .from = READ_EVENT,
                               .event = event,
                               .max_bytes = 1, /* one event, whatever its size */
                               .done = done};
}

/* ---- a response ---- */

struct loading {
    struct response_load load;
    struct gateway_route *route;
    struct arena arena;
    struct str request_id;
    struct store_stat stat;
    struct store_read read;
    struct sse_parser parser;
    struct fold *fold;
    struct buf notice; /* why it failed */
};

static void loading_finish(struct loading *l, int err)
{
    struct gateway *g = l->route->gateway;
    l->load.err = err;
    l->load.done(&l->load);
    fold_free(l->fold);
    sse_parser_deinit(&l->parser);
    buf_deinit(&l->notice);
    buf_deinit(&l->load.response);
    arena_deinit(&l->arena);
    free(l);
    gateway_end(g);
}

/* With how it has ended. */
static void loading_conclude(struct loading *l, struct str response)
{
    struct buf out = {0};
    struct str why = gateway_end_message(l->load.end, buf_str(&l->notice));
    responses_put_ended(&out, response, l->load.end, why);
    l->load.response = out;
    loading_finish(l, 0);
}

/* Nothing of it has come, or ever will: all that there is to say is what was asked for. */
static void responses_on_head_read(struct store_read *read, int err)
{
    struct loading *l = container_of(read, struct loading, read);
    struct buf head = {0};
    char id[RESPONSE_ID_TEXT];
    if (err != 0 && !ERR_IS_GONE(err)) {
        loading_finish(l, err);
        return;
    }
    response_id_make(l->request_id, id);
    if (err == 0)
        take_json_event(&head, read);
    else
        buf_printf(&head,
                   "{\"id\":\"%.*s\",\"object\":\"response\",\"status\":\"queued\",\"output\":[]}",
                   RESPONSE_ID_TEXT, id);
    loading_conclude(l, buf_str(&head));
    buf_deinit(&head);
}

static void read_head(struct loading *l)
{
    l->read = input_read(&l->arena, l->route, l->request_id, INPUT_HEAD, responses_on_head_read);
    store_read(l->route->gateway->setup.store, &l->read);
}

static void loading_take(struct loading *l, int err)
{
    struct buf response = l->load.response;
    if (err == 0) {
        l->load.response = (struct buf){0};
        loading_conclude(l, buf_str(&response));
        buf_deinit(&response);
    } else if (err == ERR_EMPTY || err == ERR_NOT_FOUND) {
        read_head(l);
    } else {
        loading_finish(l, err);
    }
}

/* ---- ... of which there is no snapshot: its process was killed, or another one runs it ---- */

static int responses_on_stored_event(void *user, const struct sse_event *event)
{
    struct loading *l = user;
    fold_feed(l->fold, event->type, event->data);
    return 0;
}

static void note_end(struct loading *l)
{
    const struct store_read *read = &l->read;
    uint64_t at = read->start;
    l->load.end = read->info.end;
    for (uint32_t i = 0; i < read->n_slices && l->load.end == END_FAILED; i++) {
        struct str s = read->slices[i].bytes;
        if (read->last >= at && read->last - at < s.n)
            buf_put(&l->notice, recorder_notice(str_skip(s, (size_t)(read->last - at))));
        at += s.n;
    }
}

static void responses_on_batch(struct store_read *read, int err)
{
    struct loading *l = container_of(read, struct loading, read);
    bool more = err == 0 && read->next < read->info.tail;
    if (err != 0) {
        loading_finish(l, ERR_IS_GONE(err) ? ERR_NOT_FOUND : err);
        return;
    }
    for (uint32_t i = 0; i < read->n_slices && err == 0; i++)
        err = sse_parser_feed(&l->parser, read->slices[i].bytes);
    if (!more)
        note_end(l);
    store_read_release(read);
    if (err == 0 && more) {
        read->from = READ_AT;
        read->at = (struct offset){read->info.life, read->next};
        store_read(l->route->gateway->setup.store, read);
        return;
    }
    loading_take(l, err != 0 ? err : fold_put(l->fold, &l->load.response));
}

static void read_events(struct loading *l)
{
    l->fold = fold_new(FOLD_RESPONSES, RESPONSES_FOLD_MAX);
    l->read = (struct store_read){.name = gateway_stream(&l->arena, l->route, l->request_id, ""),
                                  .from = READ_START,
                                  .max_bytes = BATCH_BYTES,
                                  .done = responses_on_batch};
    store_read(l->route->gateway->setup.store, &l->read);
}

static void responses_on_snapshot(struct snapshot_lookup *s)
{
    struct loading *l = s->ctx;
    bool there = s->payload.n > 0;
    buf_put(&l->load.response, buf_str(&s->payload));
    l->load.end = s->end;
    snapshot_lookup_free(s);
    if (there)
        loading_take(l, 0);
    else
        read_events(l);
}

static void responses_on_stat(struct store_stat *stat, int err)
{
    struct loading *l = container_of(stat, struct loading, stat);
    if (err != 0)
        loading_finish(l, ERR_IS_GONE(err) ? ERR_NOT_FOUND : err);
    else if (stat->info.end == END_NONE)
        read_events(l);
    else
        snapshot_lookup_new(l->route, l->request_id, responses_on_snapshot, l);
}

static void look_for_events(struct loading *l)
{
    l->stat = (struct store_stat){.name = gateway_stream(&l->arena, l->route, l->request_id, ""),
                                  .done = responses_on_stat};
    store_stat(l->route->gateway->setup.store, &l->stat);
}

void response_load(struct gateway_route *r, struct str request_id,
                   void (*done)(struct response_load *l), void *ctx)
{
    struct loading *l = mem_zalloc(sizeof *l);
    struct generation *gen = generation_find(r, request_id);
    uint64_t seq;
    l->load.done = done;
    l->load.ctx = ctx;
    l->route = r;
    l->request_id = arena_dup(&l->arena, request_id);
    sse_parser_init(&l->parser, &sse_server_host, NULL, 2 * RESPONSES_EVENT_MAX, l,
                    responses_on_stored_event);
    gateway_begin(r->gateway);
    if (gen == NULL)
        look_for_events(l);
    else
        loading_take(l, generation_snapshot(gen, &l->load.response, &seq));
}

/* ---- what it was made from ---- */

struct input_loading {
    struct response_input input;
    struct gateway *gateway;
    struct store_read read;
    struct arena arena;
};

static void responses_on_items_read(struct store_read *read, int err)
{
    struct input_loading *l = container_of(read, struct input_loading, read);
    struct gateway *g = l->gateway;
    if (err == 0)
        take_json_event(&l->input.items, read);
    l->input.err = ERR_IS_GONE(err) ? ERR_NOT_FOUND : err;
    l->input.done(&l->input);
    buf_deinit(&l->input.items);
    arena_deinit(&l->arena);
    free(l);
    gateway_end(g);
}

void response_input(struct gateway_route *r, struct str request_id,
                    void (*done)(struct response_input *l), void *ctx)
{
    struct input_loading *l = mem_zalloc(sizeof *l);
    l->gateway = r->gateway;
    l->input.done = done;
    l->input.ctx = ctx;
    l->read = input_read(&l->arena, r, request_id, INPUT_ITEMS, responses_on_items_read);
    gateway_begin(r->gateway);
    store_read(r->gateway->setup.store, &l->read);
}

/* ---- removing it ---- */

/* Whoever runs it drops it when its stream is gone, and makes no snapshot of it. */
static const char *const suffixes[] = {RESPONSES_INPUT_SUFFIX, "", RECORDER_SNAPSHOT_SUFFIX};

struct removal {
    struct gateway_route *route;
    struct arena arena;
    struct str request_id;
    struct store_remove remove;
    size_t at, n; /* of the suffixes */
    bool any;
    void (*done)(void *ctx, int err);
    void *ctx;
};

static void removal_finish(struct removal *r, int err)
{
    struct gateway *g = r->route->gateway;
    if (r->done != NULL)
        r->done(r->ctx, err);
    arena_deinit(&r->arena);
    free(r);
    gateway_end(g);
}

static void remove_next(struct removal *r);

static void responses_on_removed(struct store_remove *remove, int err)
{
    struct removal *r = container_of(remove, struct removal, remove);
    r->any = r->any || (err == 0 && suffixes[r->at - 1][0] == '\0');
    if (err != 0 && !ERR_IS_GONE(err))
        removal_finish(r, err);
    else if (r->at < r->n)
        remove_next(r);
    else
        removal_finish(r, r->any ? 0 : ERR_NOT_FOUND);
}

static void remove_next(struct removal *r)
{
    r->remove = (struct store_remove){
        .name = gateway_stream(&r->arena, r->route, r->request_id, suffixes[r->at++]),
        .done = responses_on_removed};
    store_remove(r->route->gateway->setup.store, &r->remove);
}

static void removal_start(struct gateway_route *route, struct str request_id, size_t n,
                          void (*done)(void *ctx, int err), void *ctx)
{
    struct removal *r = mem_zalloc(sizeof *r);
    r->route = route;
    r->request_id = arena_dup(&r->arena, request_id);
    r->n = n;
    r->done = done;
    r->ctx = ctx;
    gateway_begin(route->gateway);
    remove_next(r);
}

void response_remove(struct gateway_route *r, struct str request_id,
                     void (*done)(void *ctx, int err), void *ctx)
{
    removal_start(r, request_id, sizeof suffixes / sizeof *suffixes, done, ctx);
}

void response_remove_input(struct gateway_route *r, struct str request_id)
{
    removal_start(r, request_id, 1, NULL, NULL);
}
