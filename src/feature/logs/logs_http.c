// SPDX-License-Identifier: Apache-2.0
/* logs_http.c -- which log is meant, and POST. */
#include "feature/logs/logs_http.h"
#include "base/err.h"
#include "base/json.h"
#include "base/must.h"
#include "http/http.h"
#include "http/limits.h"
#include "http/surface.h"
#include "feature/logs/log_config.h"
#include "net/file_watch.h"
#include "net/loop.h"
#include "feature/logs/logs_http_core.h"
#include "feature/logs/logs_trace.h"

#include <stdlib.h>

/* ---- what the parts share ---- */

void logs_begin(struct logs *l)
{
    gate_enter(&l->under_way);
}

void logs_end(struct logs *l)
{
    gate_leave(&l->under_way);
}

void logs_put_identity(struct exchange *x, const struct log_id *id)
{
    char *text = arena_alloc(&x->arena, LOG_ID_TEXT);
    log_id_format(id, text);
    exchange_header(x, STR("Log-Identity"), str_of(text, LOG_ID_TEXT));
}

/* ---- POST ---- */

#define KEY_MAX    255
#define LARGE_BODY (64 * 1024) /* takes too long for the loop */

struct append_request {
    struct log_append append;
    struct log_entry *entry;
    struct exchange *x; /* held */
    struct job split;   /* of the body, into lines */
    struct str body;
    struct buf lines;
    struct str why; /* with err: what is wrong with it, unless that says so alone */
    int err;
};

static void finish_append(struct append_request *r)
{
    struct logs *l = r->entry->logs;
    buf_deinit(&r->lines);
    exchange_release(r->x);
    free(r);
    logs_end(l);
}

/* What is forgotten before its time is told. */
static void count_dropped(struct log_entry *e)
{
    counter_inc(&e->logs->keys_dropped);
    if (!e->keys_full)
        trace(e->logs->setup.trace, LOG_KEYS_FULL, TRACE_STR("log", str_of_cstr(e->config->name)));
    e->keys_full = true;
}

static void logs_on_appended(struct log_append *a, int err)
{
    struct append_request *r = container_of(a, struct append_request, append);
    struct exchange *x = r->x;
    if (a->key_dropped)
        count_dropped(r->entry);
    if (err == ERR_EXISTS) {
        exchange_problem(x, 422, STR("KEY_REUSED"),
                         STR("This Idempotency-Key was used for another append"));
    } else if (err == ERR_CORRUPT) {
        exchange_problem(x, 503, STR("IO"), STR("the log's file of keys cannot be used"));
    } else if (err != 0) {
        exchange_error(x, err);
    } else {
        if (a->repeated)
            exchange_header(x, STR("Idempotency-Repeated"), STR("?1"));
        else
            limits_count_bytes(x, r->lines.n);
        logs_put_identity(x, &a->id);
        exchange_send_json(x, 200,
                           arena_printf(&x->arena,
                                        "{\"cursor\":\"%llu\",\"nextCursor\":\"%llu\"}\n",
                                        (unsigned long long)a->start, (unsigned long long)a->next));
    }
    finish_append(r);
}

/* Makes lines of a body in *out. On failure *why says what is wrong with it, unless that is said
 * by the error alone. */
static int lines_of(struct str body, struct buf *out, struct str *why)
{
    struct buf ends = {0};
    size_t at, start = 0;
    int err = json_split(body, out, &ends, &at);
    size_t n = ends.n / sizeof(uint32_t);
    if (err == 0 && n == 0)
        err = ERR_EMPTY;
    for (size_t i = 0; err == 0 && i < n; i++) {
        uint32_t end;
        memcpy(&end, ends.p + i * sizeof end, sizeof end);
        if (out->p[start] != '{') {
            *why = STR("a log takes one JSON object, or an array of them");
            err = ERR_SYNTAX;
        } else if (end - start > LOG_LINE_MAX) {
            err = ERR_TOO_LARGE;
        }
        out->p[end - 1] = '\n'; /* in place of its comma */
        start = end;
    }
    buf_deinit(&ends);
    return err;
}

static void logs_split(struct job *j)
{
    struct append_request *r = container_of(j, struct append_request, split);
    r->err = lines_of(r->body, &r->lines, &r->why);
}

/* What one caller has used is free for others. */
static struct str logs_own_key(struct exchange *x, struct str key)
{
    struct str id = x->principal->id;
    if (key.n == 0 || x->principal->rights.n == 0)
        return arena_dup(&x->arena, key);
    return arena_printf(&x->arena, "%zu:%.*s:%.*s", id.n, (int)id.n, id.p, (int)key.n, key.p);
}

static void logs_on_split(struct job *j)
{
    struct append_request *r = container_of(j, struct append_request, split);
    struct exchange *x = r->x;
    struct str key = request_header(x->request, STR("Idempotency-Key"));
    if (r->err == 0 && key.p != NULL && (key.n == 0 || key.n > KEY_MAX)) {
        r->err = ERR_SYNTAX;
        r->why = STR("Idempotency-Key takes 1 to 255 bytes");
    }
    if (r->err != 0) {
        if (r->why.n > 0)
            exchange_problem(x, 400, STR("INVALID_ARGUMENT"), r->why);
        else
            exchange_error(x, r->err);
        finish_append(r);
        return;
    }
    r->append.log = &r->entry->log;
    r->append.lines = buf_str(&r->lines);
    r->append.key = logs_own_key(x, key);
    r->append.key_lifetime_ms = r->entry->config->key_lifetime_ms;
    r->append.done = logs_on_appended;
    log_append(&r->append);
}

static void logs_on_body(struct exchange *x, struct str body, int err)
{
    struct log_entry *e = x->state;
    if (err != 0) {
        exchange_error(x, err);
        return;
    }
    if (!limits_take_bytes(x, body.n))
        return;
    struct append_request *r = mem_zalloc(sizeof *r);
    *r = (struct append_request){.entry = e, .x = x, .body = body};
    r->split = (struct job){.run = logs_split, .done = logs_on_split};
    exchange_hold(x);
    logs_begin(e->logs);
    if (body.n > LARGE_BODY) {
        lane_submit(e->log.lane, &r->split);
        return;
    }
    logs_split(&r->split);
    logs_on_split(&r->split);
}

static void logs_post(struct log_entry *e, struct exchange *x)
{
    if (e->config->read_only) {
        exchange_problem(x, 403, STR("FORBIDDEN"), STR("this log is read-only"));
        return;
    }
    x->state = e;
    exchange_collect(x, e->config->max_append_bytes, logs_on_body);
}

/* ---- routes ---- */

static struct log_entry *logs_find(const struct logs *l, struct str name)
{
    for (size_t i = 0; i < l->setup.n_configs; i++)
        if (str_eq(str_of_cstr(l->entries[i].config->name), name))
            return &l->entries[i];
    return NULL;
}

const char *logs_path_of(const struct logs *l, struct str name)
{
    const struct log_entry *e = logs_find(l, name);
    return e != NULL ? e->config->path : NULL;
}

static void logs_handle(void *ctx, struct exchange *x)
{
    struct log_entry *e = logs_find(ctx, str_skip(x->request->path, sizeof LOGS_PREFIX - 1));
    enum method method = x->request->method;
    if (e == NULL) {
        exchange_problem(x, 404, STR("NOT_FOUND"), STR("no such log"));
    } else if (method == METHOD_GET || method == METHOD_HEAD) {
        logs_get(e, x);
    } else if (method == METHOD_POST) {
        logs_post(e, x);
    } else {
        exchange_header(x, STR("Allow"), STR("GET, HEAD, POST"));
        exchange_problem(x, 405, STR("METHOD"), STR("logs take GET, HEAD and POST"));
    }
}

void logs_set_times(struct logs *l, uint64_t long_poll_ms, uint64_t heartbeat_ms,
                    uint64_t sse_lifetime_ms, uint64_t sse_retry_ms)
{
    l->setup.long_poll_ms = long_poll_ms;
    l->setup.heartbeat_ms = heartbeat_ms;
    l->setup.sse_lifetime_ms = sse_lifetime_ms;
    l->setup.sse_retry_ms = sse_retry_ms;
}

static const struct surface_rule rules[] = {
    {"log.read", "GET HEAD", "{name}", ACCESS_VERB_READ, ACCESS_LOG, 0, NULL},
    {"log.append", "POST", "{name}", ACCESS_VERB_APPEND, ACCESS_LOG, 0, NULL},
    {0},
};
const struct surface logs_surface = {.path = LOGS_PREFIX, .rules = rules, .strict = true};

void logs_mount(struct logs *l, struct http *http)
{
    http_mount(http, &logs_surface, logs_handle, l);
}

/* ---- the whole ---- */

static const struct metric_info keys_dropped_info = {
    .name = "log_keys_dropped", .help = "Idempotency keys of logs forgotten before their time"};
const struct metric_info *const logs_metrics[] = {&keys_dropped_info, NULL};

struct logs *logs_new(const struct logs_setup *setup)
{
    struct logs *l = mem_zalloc(sizeof *l);
    l->setup = *setup;
    l->sched = &setup->loop->sched;
    gate_init(&l->under_way, l->sched);
    (void)metrics_add_counter(setup->metrics, STR("tidemark"), &keys_dropped_info,
                              &l->keys_dropped);
    l->entries = mem_zalloc((setup->n_configs + 1) * sizeof *l->entries);
    for (size_t i = 0; i < setup->n_configs; i++) {
        struct log_entry *e = &l->entries[i];
        e->logs = l;
        e->config = &setup->configs[i];
        e->log = (struct log){.lane = setup->lane, .path = e->config->path};
        list_init(&e->readers);
    }
    return l;
}

void logs_stop(struct logs *l, void (*stopped)(void *ctx), void *ctx)
{
    gate_shut(&l->under_way, stopped, ctx);
}

void logs_free(struct logs *l)
{
    if (l == NULL)
        return;
    free(l->entries);
    free(l);
}
