// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/json_view.h"
#include "feature/tools/tool_core.h"
#include "token/cursor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct tool_builtin *const builtins[] = {
    &tool_page_gen,     &tool_stream_read, &tool_stream_list,
    &tool_session_read, &tool_log_read,    &tool_feedback_wait,
};
#define BUILTINS (sizeof builtins / sizeof *builtins)

struct str tool_outcome_text(enum tool_outcome o)
{
    static const struct str texts[] = {
#define X(name, text) STR_INIT(text),
        TOOL_OUTCOMES(X)
#undef X
    };
    return texts[o];
}

/* ---- the tools there are ---- */

size_t tools_count(const struct tools *t)
{
    return t->n;
}

const struct tool_info *tools_at(const struct tools *t, size_t i)
{
    return &t->rows[i].info;
}

static int tool_compare_ids(const void *a, const void *b)
{
    return str_cmp(((const struct tool *)a)->info.id, ((const struct tool *)b)->info.id);
}

static struct tool *tool_find(const struct tools *t, struct str id)
{
    struct tool key = {.info = {.id = id}};
    return bsearch(&key, t->rows, t->n, sizeof *t->rows, tool_compare_ids);
}

const struct tool_info *tools_find(const struct tools *t, struct str id)
{
    const struct tool *tool = tool_find(t, id);
    return tool != NULL ? &tool->info : NULL;
}

static void add_builtin(struct tool *tool, const struct tool_builtin *b)
{
    *tool = (struct tool){.builtin = b, .parallel = TOOL_BUILTIN_PARALLEL};
    tool_args_schema(b->args, b->n_args, b->pages, &tool->schema);
    tool->info = (struct tool_info){.id = str_of_cstr(b->id),
                                    .description = str_of_cstr(b->description),
                                    .input_schema = buf_str(&tool->schema),
                                    .capability = b->capability != NULL ? str_of_cstr(b->capability)
                                                                        : STR_NONE,
                                    .pages = b->pages};
}

static void add_spec(struct tool *tool, const struct tool_spec *s)
{
    *tool = (struct tool){.spec = s, .parallel = s->parallel};
    tool_args_add_cursor(s->input_schema, &tool->schema);
    tool->info = (struct tool_info){.id = s->id,
                                    .description = s->description,
                                    .input_schema = buf_str(&tool->schema),
                                    .capability = s->capability,
                                    .pages = true};
}

/* The longest names that a cursor may hold must leave room for the place to go on at. */
static size_t caller_max(const struct tools *t)
{
    return cursor_issuer_format(t->setup.issuer) == CURSOR_ATD ? TOOL_CALLER_ATD : TOOL_CALLER_MAX;
}

static int check_names(const struct tools *t, char *why, size_t size)
{
    static const char longest[TOOL_CALLER_MAX];
    for (size_t i = 0; i < t->n; i++) {
        struct str id = t->rows[i].info.id;
        struct cursor_payload p = {.format = cursor_issuer_format(t->setup.issuer),
                                   .tool_id = id,
                                   .caller_id = str_of(longest, caller_max(t)),
                                   .page = UINT32_MAX,
                                   .issued_at_s = UINT32_MAX};
        if (id.n == 0 || id.n > TOOL_ID_MAX || !utf8_valid(id) || cursor_room(&p) < TOOL_KEPT_STATE)
            snprintf(why, size, "'%.*s' cannot be a tool's name: it has 1 to %d bytes of UTF-8",
                     id.n < 200 ? (int)id.n : 200, id.p,
                     cursor_issuer_format(t->setup.issuer) == CURSOR_ATD ? TOOL_ID_ATD
                                                                         : TOOL_ID_MAX);
        else if (i > 0 && str_eq(id, t->rows[i - 1].info.id))
            snprintf(why, size, "there are two tools named %.*s", (int)id.n, id.p);
        else
            continue;
        return ERR_SYNTAX;
    }
    return 0;
}

static void tool_on_quit(struct task *task)
{
    struct tools *t = container_of(task, struct tools, quit);
    t->stopped(t->ctx);
}

struct tools *tools_new(const struct tools_setup *setup, char *why, size_t size)
{
    struct tools *t = mem_zalloc(sizeof *t);
    t->setup = *setup;
    t->rows = mem_zalloc((BUILTINS + setup->n_specs) * sizeof *t->rows);
    list_init(&t->calls);
    list_init(&t->jobs);
    list_init(&t->runs);
    list_init(&t->kept);
    map_init(&t->kept_by_name);
    task_init(&t->quit, tool_on_quit);
    for (size_t i = 0; i < BUILTINS; i++)
        if (builtins[i]->is_there == NULL || builtins[i]->is_there(setup))
            add_builtin(&t->rows[t->n++], builtins[i]);
    for (size_t i = 0; i < setup->n_specs; i++)
        add_spec(&t->rows[t->n++], &setup->specs[i]);
    qsort(t->rows, t->n, sizeof *t->rows, tool_compare_ids);
    if (check_names(t, why, size) == 0)
        return t;
    tools_free(t);
    return NULL;
}

void tools_free(struct tools *t)
{
    if (t == NULL)
        return;
    assert(list_empty(&t->calls) && list_empty(&t->jobs) && list_empty(&t->runs));
    for (size_t i = 0; i < t->n; i++)
        buf_deinit(&t->rows[i].schema);
    tool_keep_deinit(t);
    free(t->rows);
    free(t);
}

void tool_quit_if_idle(struct tools *t)
{
    if (t->stopped != NULL && list_empty(&t->jobs) && list_empty(&t->runs) && t->removing == 0)
        sched_post(t->setup.sched, &t->quit);
}

/* ---- how a call ends ---- */

static void tool_refuse(struct tool_call *c, enum tool_outcome outcome, uint16_t code,
                        bool retryable, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The texts are bounded: names of tools and callers, and sentences of ours. */
static void tool_put_text(struct buf *out, const char *fmt, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    buf_put(out, str_of_cstr(text));
}

static void tool_refuse(struct tool_call *c, enum tool_outcome outcome, uint16_t code,
                        bool retryable, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    c->outcome = outcome;
    c->code = code;
    c->retryable = retryable;
    tool_put_text(&c->message, fmt, args);
    va_end(args);
}

void tool_put_failure(struct buf *out, uint16_t code, struct str message, bool retryable)
{
    buf_printf(out, "{\"code\":%u,\"message\":", code);
    json_put_string(out, message);
    buf_printf(out, ",\"retryable\":%s}", retryable ? "true" : "false");
}

static void job_free(struct tool_job *j)
{
    struct tools *t = j->all;
    assert(!j->under_way);
    if (j->continues)
        j->tool->continuing--;
    else if (j->tool->builtin != NULL)
        j->tool->running--;
    if (j->watches)
        store_unwatch(t->setup.store, &j->watch);
    timer_stop(&j->timer);
    list_remove(&j->link);
    tool_args_deinit(&j->given);
    log_query_deinit(&j->query);
    buf_deinit(&j->blob);
    buf_deinit(&j->items);
    tool_rows_deinit(&j->rows);
    arena_deinit(&j->arena);
    free(j);
    tool_quit_if_idle(t);
}

/* The call has its answer; it may be gone when this returns. */
static void job_end(struct tool_job *j)
{
    struct tool_call *c = j->call;
    c->job = NULL;
    c->page = j->page;
    job_free(j);
    c->done(c);
}

bool tool_job_back(struct tool_job *j)
{
    j->under_way = false;
    if (j->call != NULL)
        return true;
    job_free(j);
    return false;
}

static enum cursor_verdict issue(const struct tool_job *j, struct str state, struct buf *out)
{
    const struct tools_setup *s = &j->all->setup;
    struct cursor_payload p = {.tool_id = j->tool->info.id,
                               .caller_id = j->caller_id,
                               .page = j->page + 1,
                               .issued_at_s = s->sched->wall_ms / 1000,
                               .state = state};
    memcpy(p.args, j->fingerprint, sizeof p.args);
    return cursor_issue(s->issuer, &p, out);
}

void tool_job_page_state(struct tool_job *j, struct str state)
{
    struct tool_call *c = j->call;
    c->outcome = TOOL_SUCCESS;
    if (state.n > 0 && issue(j, state, &c->next_cursor) != CURSOR_OK) {
        c->result.n = 0;
        tool_job_failed(j, false, "the page cannot be continued: its cursor would be too large");
        return;
    }
    job_end(j);
}

void tool_job_failed_with(struct tool_job *j, struct str failure)
{
    struct tool_call *c = j->call;
    json_t *f = json_loadb(failure.p, failure.n, 0, NULL);
    c->outcome = TOOL_EXECUTION_FAILED;
    c->code = (uint16_t)json_integer_value(json_object_get(f, "code"));
    c->retryable = json_is_true(json_object_get(f, "retryable"));
    const char *message = json_string_value(json_object_get(f, "message"));
    buf_put(&c->message, str_of_cstr(message != NULL ? message : ""));
    json_decref(f);
    c->result.n = 0;
    buf_put(&c->result, failure);
    job_end(j);
}

void tool_job_failed(struct tool_job *j, bool retryable, const char *fmt, ...)
{
    struct buf message = {0}, failure = {0};
    va_list args;
    va_start(args, fmt);
    tool_put_text(&message, fmt, args);
    va_end(args);
    tool_put_failure(&failure, TOOL_CODE_UNHANDLED, buf_str(&message), retryable);
    tool_job_failed_with(j, buf_str(&failure));
    buf_deinit(&failure);
    buf_deinit(&message);
}

void tool_job_invalid(struct tool_job *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    j->call->outcome = TOOL_INVALID_ARGS;
    buf_put(&j->call->message, STR("invalid arguments: "));
    tool_put_text(&j->call->message, fmt, args);
    va_end(args);
    job_end(j);
}

#define EXPIRED "cursor expired; re-issue the original RunTool"

void tool_job_expired(struct tool_job *j)
{
    tool_refuse(j->call, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_EXPIRED), false,
                EXPIRED);
    job_end(j);
}

void tool_job_malformed(struct tool_job *j)
{
    tool_refuse(j->call, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_FORMAT), false,
                "cursor invalid");
    job_end(j);
}

/* ---- the checks of a call, in their order ---- */

/* The call as it is being checked; what is found goes into the job. */
struct check {
    struct tools *t;
    struct tool_call *c;
    struct tool_job *j;
};

static bool has_args(const struct tool_call *c)
{
    struct str args = str_trim(c->args);
    return args.n > 0 && !str_eq(args, STR("null"));
}

/* The tool gets them as they came, but in one line: their one spelling, which a cursor knows them
 * by, has no integers above 2^53. */
static bool check_args(struct check *k)
{
    struct buf text = {0};
    struct str given = has_args(k->c) ? k->c->args : STR("{}");
    int err = cursor_fingerprint(given, STR_NONE, k->j->fingerprint);
    given = view_trim(given);
    bool ok = err == 0 && view_type(given) == VIEW_OBJECT;
    if (ok) {
        view_put_unbroken(&text, given);
        k->j->args = arena_dup(&k->j->arena, buf_str(&text));
    } else {
        tool_refuse(k->c, TOOL_INVALID_ARGS, 0, false, "invalid arguments: %s",
                    err == ERR_TOO_LARGE ? "there are more than 1 MiB of them"
                    : err != 0           ? "they are not valid JSON without repeated names"
                                         : "a JSON object is expected");
    }
    buf_deinit(&text);
    return ok;
}

static bool check_caller(struct check *k)
{
    struct str id = k->c->caller_id;
    if (id.n <= caller_max(k->t) && utf8_valid(id)) {
        k->j->caller_id = id.n > 0 || id.p == NULL ? arena_dup(&k->j->arena, id) : STR("");
        return true;
    }
    tool_refuse(k->c, TOOL_INVALID_ARGS, 0, false, "a caller's id has at most %zu bytes of UTF-8",
                caller_max(k->t));
    return false;
}

static void tool_refuse_cursor(struct check *k, enum cursor_verdict v,
                               const struct cursor_payload *p)
{
    uint16_t code = (uint16_t)cursor_verdict_code(v);
    struct str asked = k->c->tool_id;
    if (v == CURSOR_EXPIRED || v == CURSOR_SESSION)
        tool_refuse(k->c, TOOL_CURSOR_REFUSED, code, false, EXPIRED);
    else if (v == CURSOR_TOOL)
        tool_refuse(k->c, TOOL_CURSOR_REFUSED, code, false,
                    "cursor tool_id mismatch: cursor=%.*s request=%.*s", (int)p->tool_id.n,
                    p->tool_id.p, asked.n < 200 ? (int)asked.n : 200, asked.p);
    else if (v == CURSOR_CALLER || v == CURSOR_ARGS)
        tool_refuse(k->c, TOOL_CURSOR_REFUSED, code, false, "%s", cursor_verdict_text(v));
    else
        tool_refuse(k->c, TOOL_CURSOR_REFUSED, code, false, "cursor invalid");
}

/* All that it is bound to: the tool, the caller, the arguments if any were sent, and us. */
static bool tool_check_cursor(struct check *k)
{
    const struct tools_setup *s = &k->t->setup;
    struct tool_job *j = k->j;
    struct cursor_payload p;
    if (k->c->cursor.p == NULL)
        return true;
    if (has_args(k->c) && !check_args(k))
        return false;
    struct cursor_asked asked = {.tool_id = k->c->tool_id,
                                 .caller_id = j->caller_id,
                                 .args = has_args(k->c) ? j->fingerprint : NULL};
    enum cursor_verdict v = cursor_verify(s->issuer, &j->arena, k->c->cursor, &asked,
                                          s->sched->wall_ms / 1000, s->cursor_ttl_s, &p);
    if (v == CURSOR_NO_CURSOR && k->c->cursor_loose)
        return true;
    if (v != CURSOR_OK) {
        tool_refuse_cursor(k, v, &p);
        return false;
    }
    memcpy(j->fingerprint, p.args, sizeof j->fingerprint);
    j->page = p.page;
    j->state = p.state;
    j->continues = true;
    return true;
}

static bool check_tool(struct check *k)
{
    struct str id = k->c->tool_id;
    k->j->tool = tool_find(k->t, id);
    if (k->j->tool == NULL)
        tool_refuse(k->c, TOOL_TOOL_NOT_FOUND, 0, false, "tool not found: %.*s",
                    id.n < 200 ? (int)id.n : 200, id.p);
    else if (k->j->continues && !k->j->tool->info.pages)
        tool_refuse(k->c, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_TOOL), false,
                    "tool %.*s does not support pagination but received a cursor", (int)id.n, id.p);
    else
        return true;
    return false;
}

static void put_missing(struct tool_call *c, struct str needed)
{
    struct buf *out = &c->details;
    buf_put(out, STR("{\"required\":["));
    json_put_string(out, needed);
    buf_put(out, STR("],\"granted\":["));
    for (size_t i = 0; i < c->n_capabilities; i++) {
        if (i > 0)
            buf_putc(out, ',');
        json_put_string(out, c->capabilities[i]);
    }
    buf_put(out, STR("],\"missing\":["));
    json_put_string(out, needed);
    buf_put(out, STR("]}"));
}

static bool check_capability(struct check *k)
{
    struct str needed = k->j->tool->info.capability, id = k->j->tool->info.id;
    if (needed.n == 0)
        return true;
    for (size_t i = 0; i < k->c->n_capabilities; i++)
        if (str_eq(k->c->capabilities[i], needed))
            return true;
    tool_refuse(k->c, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY, false,
                "capability denied: %.*s requires %.*s", (int)id.n, id.p, (int)needed.n, needed.p);
    put_missing(k->c, needed);
    return false;
}

static bool check_slots(struct check *k)
{
    struct tool *tool = k->j->tool;
    struct str id = tool->info.id;
    uint64_t taken = k->j->continues ? tool->continuing : tool->running;
    if (taken < tool->parallel)
        return true;
    tool_refuse(k->c, TOOL_RATE_LIMITED, TOOL_CODE_BUSY, true, "rate limited for %.*s%s", (int)id.n,
                id.p, k->j->continues ? " (continuation)" : "");
    return false;
}

/* Of a first page. Built-in tools know their arguments; the others check them themselves. */
static bool check_given(struct check *k)
{
    const struct tool_builtin *b = k->j->tool->builtin;
    struct tool_args given;
    char why[256];
    if (k->j->continues)
        return true;
    if (!check_args(k))
        return false;
    if (b == NULL)
        return true;
    int err = tool_args_take(&given, b->args, b->n_args, k->j->args, why, sizeof why);
    tool_args_deinit(&given);
    if (err != 0)
        tool_refuse(k->c, TOOL_INVALID_ARGS, 0, false, "invalid arguments: %s", why);
    return err == 0;
}

static bool check(struct check *k)
{
    return check_caller(k) && tool_check_cursor(k) && check_tool(k) && check_capability(k) &&
           check_given(k) && check_slots(k);
}

/* ---- a call ---- */

static void put_preview(struct tool_call *c, const struct tool_job *j)
{
    c->outcome = TOOL_SUCCESS;
    buf_put(&c->result, STR("{\"dry_run\":true,\"tool_id\":"));
    json_put_string(&c->result, j->tool->info.id);
    buf_put(&c->result, STR(",\"args_preview\":"));
    buf_put(&c->result, j->args.n > 0 ? j->args : STR("null"));
    buf_putc(&c->result, '}');
}

static void take_slot(struct tool_job *j)
{
    if (j->continues)
        j->tool->continuing++;
    else
        j->tool->running++; /* of a run: until that ends */
}

static void tool_on_call(struct task *task)
{
    struct tool_call *c = container_of(task, struct tool_call, task);
    struct tools *t = c->job;
    struct tool_job *j = mem_zalloc(sizeof *j);
    struct check k = {.t = t, .c = c, .j = j};
    *j = (struct tool_job){.all = t, .page = 1};
    list_remove(&c->link);
    c->job = NULL;
    bool goes = check(&k);
    if (goes && c->dry_run)
        put_preview(c, j);
    if (!goes || c->dry_run) {
        c->page = j->page;
        arena_deinit(&j->arena);
        free(j);
        c->done(c);
        return;
    }
    j->call = c;
    c->job = j;
    list_push(&t->jobs, &j->link);
    timer_init(&j->timer, NULL);
    take_slot(j);
    if (j->tool->builtin != NULL)
        tool_state_start(j);
    else if (j->continues)
        tool_kept_start(j);
    else
        tool_run_start(j);
}

void tools_call(struct tools *t, struct tool_call *c)
{
    assert(t->stopped == NULL);
    c->result = c->next_cursor = c->message = c->details = (struct buf){0};
    c->page = 0;
    c->code = 0;
    c->retryable = false;
    c->job = t; /* until it has one */
    task_init(&c->task, tool_on_call);
    list_push(&t->calls, &c->link);
    sched_post(t->setup.sched, &c->task);
}

static void job_cancel(struct tool_job *j)
{
    j->call = NULL;
    timer_stop(&j->timer);
    if (j->run != NULL)
        tool_run_abandon(j->run);
    if (!j->under_way)
        job_free(j);
}

void tools_cancel(struct tools *t, struct tool_call *c)
{
    if (c->job == t) {
        task_cancel(&c->task);
        list_remove(&c->link);
    } else if (c->job != NULL) {
        job_cancel(c->job);
    }
    c->job = NULL;
}

void tool_call_deinit(struct tool_call *c)
{
    buf_deinit(&c->result);
    buf_deinit(&c->next_cursor);
    buf_deinit(&c->message);
    buf_deinit(&c->details);
}

void tools_stop(struct tools *t, void (*stopped)(void *ctx), void *ctx)
{
    list_each_safe (l, &t->calls)
        tools_cancel(t, list_item(l, struct tool_call, link));
    list_each_safe (l, &t->jobs) {
        struct tool_job *j = list_item(l, struct tool_job, link);
        if (j->call != NULL)
            tools_cancel(t, j->call);
    }
    t->stopped = stopped;
    t->ctx = ctx;
    tool_runs_stop(t);
    tool_quit_if_idle(t);
}
