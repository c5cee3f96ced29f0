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
#include "base/err.h"
#include "base/hex.h"
#include "base/rand.h"
#include "feature/tools/tool_core.h"
#include "token/cursor.h"

#define INLINE 'i'
#define STORED 's'

void tool_put_be(uint8_t *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

uint64_t tool_get_be(const uint8_t *from, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | from[i];
    return v;
}

/* ---- what is kept ---- */

void tool_keep_name(const uint8_t id[TOOL_KEEP_ID], char out[TOOL_KEEP_NAME])
{
    size_t n = sizeof STORE_TOOLS - 1;
    memcpy(out, STORE_TOOLS, n);
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

static void tool_state_on_stored(struct store_write *w, int err)
{
    struct tool_job *j = container_of(w, struct tool_job, write);
    if (err == 0)
        tool_keep_add(j->all, w->name, w->data.n);
    if (!tool_job_back(j))
        return;
    if (err == 0)
        tool_job_page_state(j, j->state);
    else
        tool_job_failed(j, true, "the page cannot be continued: %s", err_text(err));
}

/* The page is answered once it is sure that it can be continued. */
static void store_blob(struct tool_job *j)
{
    uint8_t state[1 + TOOL_KEEP_ID] = {STORED};
    char *name = arena_alloc(&j->arena, TOOL_KEEP_NAME);
    rand_bytes(state + 1, TOOL_KEEP_ID);
    tool_keep_name(state + 1, name);
    j->state = arena_dup(&j->arena, str_of((const char *)state, sizeof state));
    j->keep = tool_keep_config(j->all, STR("application/octet-stream"), j->blob.n, 0);
    j->write = (struct store_write){.name = str_of(name, TOOL_KEEP_NAME),
                                    .create = &j->keep,
                                    .data = buf_str(&j->blob),
                                    .n_events = 1,
                                    .close = true,
                                    .end = END_COMPLETED,
                                    .done = tool_state_on_stored};
    tool_job_begin(j);
    store_write(j->all->setup.store, &j->write);
}

static int room(const struct tool_job *j)
{
    return cursor_room(
        &(struct cursor_payload){.format = cursor_issuer_format(j->all->setup.issuer),
                                 .tool_id = j->tool->info.id,
                                 .caller_id = j->caller_id,
                                 .page = j->page + 1,
                                 .issued_at_s = j->all->setup.sched->wall_ms / 1000});
}

void tool_job_page(struct tool_job *j, struct str more)
{
    uint8_t length[2];
    if (more.n == 0 || j->tool->builtin->bare) {
        tool_job_page_state(j, more);
        return;
    }
    tool_put_be(length, more.n, sizeof length);
    j->blob.n = 0;
    buf_putc(&j->blob, INLINE);
    buf_put(&j->blob, str_of((const char *)length, sizeof length));
    buf_put(&j->blob, more);
    buf_put(&j->blob, j->args);
    if (room(j) >= (int)j->blob.n) {
        tool_job_page_state(j, buf_str(&j->blob));
        return;
    }
    store_blob(j);
}

/* ---- going on ---- */

static void tool_state_start_again(struct tool_job *j)
{
    const struct tool_builtin *b = j->tool->builtin;
    char why[256];
    if (tool_args_take(&j->given, b->args, b->n_args, j->args, why, sizeof why) != 0)
        tool_job_invalid(j, "%s", why);
    else
        b->start(j);
}

/* With its first byte, which tells nothing any more. */
static void start_with(struct tool_job *j, struct str blob)
{
    const uint8_t *at = (const uint8_t *)blob.p + 1;
    size_t n = blob.n >= 3 ? (size_t)tool_get_be(at, 2) : 0;
    if (blob.n < 3 || blob.n - 3 < n) {
        tool_job_malformed(j);
        return;
    }
    j->position = arena_dup(&j->arena, str_of(blob.p + 3, n));
    j->args = arena_dup(&j->arena, str_skip(blob, 3 + n));
    tool_state_start_again(j);
}

static void tool_state_on_loaded(struct store_read *r, int err)
{
    struct tool_job *j = container_of(r, struct tool_job, read);
    j->blob.n = 0;
    for (uint32_t i = 0; err == 0 && i < r->n_slices; i++)
        buf_put(&j->blob, r->slices[i].bytes);
    store_read_release(r);
    if (!tool_job_back(j))
        return;
    if (err == 0)
        start_with(j, buf_str(&j->blob));
    else if (err == ERR_NOT_FOUND || err == ERR_DELETED)
        tool_job_expired(j);
    else
        tool_job_failed(j, true, "the page cannot be continued: %s", err_text(err));
}

static void load_blob(struct tool_job *j)
{
    char *name = arena_alloc(&j->arena, TOOL_KEEP_NAME);
    tool_keep_name((const uint8_t *)j->state.p + 1, name);
    j->read = (struct store_read){.name = str_of(name, TOOL_KEEP_NAME),
                                  .from = READ_START,
                                  .max_bytes = TOOL_ARGS_MAX,
                                  .touch = true,
                                  .done = tool_state_on_loaded};
    tool_job_begin(j);
    store_read(j->all->setup.store, &j->read);
}

void tool_state_start(struct tool_job *j)
{
    if (!j->continues) {
        tool_state_start_again(j);
    } else if (j->tool->builtin->bare) {
        j->position = j->state;
        j->args = STR("{}");
        tool_state_start_again(j);
    } else if (j->state.n == 1 + TOOL_KEEP_ID && j->state.p[0] == STORED) {
        load_blob(j);
    } else if (j->state.n > 0 && j->state.p[0] == INLINE) {
        start_with(j, j->state);
    } else {
        tool_job_malformed(j);
    }
}
