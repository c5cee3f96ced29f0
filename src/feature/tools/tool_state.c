// SPDX-License-Identifier: Apache-2.0
/* tool_state.c -- where a built-in tool goes on: what its cursors hold.
 *
 * A continuation brings no arguments, so that they have to be in the cursor, with the position:
 *
 *     blob   = u16 length of the position, big-endian; the position; the arguments
 *     state  = `i` blob               as long as that fits into a cursor
 *              `s` 16 bytes           else: the blob is the one event of the stream `.tool/ID`
 *
 * and for a tool that takes no arguments the position alone. */
#include "base/be.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/tools/tool_core.h"
#include "stream/durable.h"
#include "token/cursor.h"

#include <stdlib.h>

#define INLINE 'i'
#define STORED 's'

/* A blob on its way to the store, or from there. */
struct tool_blob {
    struct tool_page *page;
    struct buf bytes;
    struct store_read read;
    struct store_write write;
    struct stream_config keep;
    char name[TOOL_KEEP_NAME];
};

/* ---- what is kept ---- */

void tool_keep_name(const uint8_t id[TOOL_KEEP_ID], char out[TOOL_KEEP_NAME])
{
    size_t n = sizeof TOOL_STREAMS - 1;
    memcpy(out, TOOL_STREAMS, n);
    hex_encode(id, TOOL_KEEP_ID, out + n);
}

/* Bounds of its own, so that those which an operator has set for other streams cut nothing off. */
struct stream_config tool_keep_config(const struct tools *t, struct str content_type,
                                      uint64_t max_bytes, uint64_t wait_s)
{
    int64_t ttl_s = (int64_t)(t->setup.cursor_ttl_s + wait_s) + TOOL_KEEP_SLACK_S;
    return (struct stream_config){.content_type = content_type,
                                  .ttl_s = ttl_s,
                                  .expires_ms = STORE_TTL_NONE,
                                  .retain = {.events = max_bytes,
                                             .bytes = max_bytes,
                                             .age_ms = (uint64_t)ttl_s * 1000 * 1000}};
}

static struct tool_blob *blob_new(struct tool_page *p, const uint8_t id[TOOL_KEEP_ID])
{
    struct tool_blob *b = mem_zalloc(sizeof *b);
    b->page = p;
    tool_keep_name(id, b->name);
    return b;
}

static void blob_free(struct tool_blob *b)
{
    buf_deinit(&b->bytes);
    free(b);
}

static void tool_state_on_stored(struct store_write *w, int err)
{
    struct tool_blob *b = container_of(w, struct tool_blob, write);
    struct tool_page *p = b->page;
    if (err == 0)
        tool_keep_add(p->all, w->name, w->data.n);
    blob_free(b);
    if (!tool_page_back(p))
        return;
    if (err == 0)
        tool_page_done(p, p->state);
    else
        tool_page_failed(p, true, "the page cannot be continued: %s", err_text(err));
}

/* The page is answered once it is sure that it can be continued. Takes the bytes. */
static void store_blob(struct tool_page *p, struct buf bytes)
{
    uint8_t state[1 + TOOL_KEEP_ID] = {STORED};
    rand_bytes(state + 1, TOOL_KEEP_ID);
    struct tool_blob *b = blob_new(p, state + 1);
    b->bytes = bytes;
    p->state = arena_dup(&p->arena, str_of((const char *)state, sizeof state));
    b->keep = tool_keep_config(p->all, STR("application/octet-stream"), bytes.n, 0);
    b->write = (struct store_write){.name = str_of(b->name, sizeof b->name),
                                    .create = &b->keep,
                                    .data = buf_str(&b->bytes),
                                    .n_events = 1,
                                    .close = true,
                                    .end = END_COMPLETED,
                                    .done = tool_state_on_stored};
    tool_page_begin(p);
    store_write(p->all->setup.store, &b->write);
}

static int room(const struct tool_page *p)
{
    return cursor_room(
        &(struct cursor_payload){.format = cursor_issuer_format(p->all->setup.issuer),
                                 .tool_id = p->tool->info.id,
                                 .caller_id = p->caller_id,
                                 .page = p->number + 1,
                                 .issued_at_s = p->all->setup.sched->wall_ms / 1000});
}

void tool_state_done(struct builtin_page *lent, struct str more)
{
    struct tool_page *p = tool_page_of(lent);
    struct buf blob = {0};
    uint8_t length[2];
    if (more.n == 0 || p->tool->builtin->bare) {
        tool_page_done(p, more);
        return;
    }
    be_put(length, more.n, sizeof length);
    buf_putc(&blob, INLINE);
    buf_put(&blob, str_of((const char *)length, sizeof length));
    buf_put(&blob, more);
    buf_put(&blob, p->args);
    if (room(p) < (int)blob.n) {
        store_blob(p, blob);
        return;
    }
    tool_page_done(p, buf_str(&blob));
    buf_deinit(&blob);
}

/* ---- going on ---- */

static void tool_state_make(struct tool_page *p)
{
    const struct tools_setup *s = &p->all->setup;
    p->lent.ops = &tool_builtin_ops;
    p->lent.feature = p->tool->feature;
    p->lent.sched = s->sched;
    p->lent.store = s->store;
    p->lent.lane = s->lane;
    if (s->durable != NULL && s->durable->bookmarks != NULL)
        p->lent.bookmarks = *s->durable->bookmarks;
    p->lent.arena = &p->arena;
    p->lent.result = &p->call->result;
    p->tool->builtin->start(&p->lent);
}

/* Both are in the arena, or static. */
static void tool_state_go_on(struct tool_page *p, struct str position, struct str args)
{
    char why[256];
    p->lent.position = position;
    p->args = args;
    if (tool_take_args(p, why, sizeof why) != 0)
        tool_page_invalid(p, why);
    else
        tool_state_make(p);
}

/* With its first byte, which tells nothing any more. */
static void start_with(struct tool_page *p, struct str blob)
{
    const uint8_t *at = (const uint8_t *)blob.p + 1;
    size_t n = blob.n >= 3 ? (size_t)be_get(at, 2) : 0;
    if (blob.n < 3 || blob.n - 3 < n)
        tool_page_malformed(p);
    else
        tool_state_go_on(p, str_of(blob.p + 3, n), str_skip(blob, 3 + n));
}

static void tool_state_on_loaded(struct store_read *r, int err)
{
    struct tool_blob *b = container_of(r, struct tool_blob, read);
    struct tool_page *p = b->page;
    for (uint32_t i = 0; err == 0 && i < r->n_slices; i++)
        buf_put(&b->bytes, r->slices[i].bytes);
    store_read_release(r);
    struct str blob = arena_dup(&p->arena, buf_str(&b->bytes));
    blob_free(b);
    if (!tool_page_back(p))
        return;
    if (err == 0)
        start_with(p, blob);
    else if (err == ERR_NOT_FOUND || err == ERR_DELETED)
        tool_page_expired(p);
    else
        tool_page_failed(p, true, "the page cannot be continued: %s", err_text(err));
}

static void load_blob(struct tool_page *p)
{
    struct tool_blob *b = blob_new(p, (const uint8_t *)p->state.p + 1);
    b->read = (struct store_read){.name = str_of(b->name, sizeof b->name),
                                  .from = READ_START,
                                  .max_bytes = TOOL_ARGS_MAX,
                                  .touch = true,
                                  .done = tool_state_on_loaded};
    tool_page_begin(p);
    store_read(p->all->setup.store, &b->read);
}

void tool_state_start(struct tool_page *p)
{
    if (!p->continues)
        tool_state_make(p);
    else if (p->tool->builtin->bare)
        tool_state_go_on(p, p->state, STR("{}"));
    else if (p->state.n == 1 + TOOL_KEEP_ID && p->state.p[0] == STORED)
        load_blob(p);
    else if (p->state.n > 0 && p->state.p[0] == INLINE)
        start_with(p, p->state);
    else
        tool_page_malformed(p);
}
