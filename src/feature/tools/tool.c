// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool.h"
#include "access/principal.h"
#include "base/err.h"
#include "base/json.h"
#include "base/lane.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/options.h"
#include "base/utf8.h"
#include "feature/tools/tool_args.h"
#include "feature/tools/tool_core.h"
#include "stream/durable.h"
#include "token/cursor.h"

#include <stdio.h>
#include <stdlib.h>

/* A call whose arguments are looked at on a lane. */
struct tool_looking {
    struct job job;
    struct tool_page *page;
    struct tool_call *call; /* NULL: cancelled */
    struct buf args;        /* the call may go meanwhile, and take its own along */
};

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

struct tool *tool_find(const struct tools *t, struct str id)
{
    struct tool key = {.info = {.id = id}};
    return bsearch(&key, t->rows, t->n, sizeof *t->rows, tool_compare_ids);
}

const struct tool_info *tools_find(const struct tools *t, struct str id)
{
    const struct tool *tool = tool_find(t, id);
    return tool != NULL ? &tool->info : NULL;
}

bool tools_may(const struct tool_info *info, const struct principal *p)
{
    return p == NULL || principal_may(p, ACCESS_VERB_TOOL, ACCESS_TOOL, info->id);
}

static void add_builtin(struct tool *tool, const struct builtin_tool *b, void *feature)
{
    *tool = (struct tool){.builtin = b, .feature = feature, .parallel = TOOL_BUILTIN_PARALLEL};
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
static int check_names(const struct tools *t, char *why, size_t size)
{
    static const char longest[TOOL_CALLER_MAX];
    for (size_t i = 0; i < t->n; i++) {
        struct str id = t->rows[i].info.id;
        struct cursor_payload p = {.format = cursor_issuer_format(t->setup.issuer),
                                   .tool_id = id,
                                   .caller_id = str_of(longest, tool_caller_max(t)),
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

static size_t count_tools(const struct tools_setup *setup)
{
    size_t n = setup->n_specs;
    for (size_t i = 0; i < setup->n_offers; i++)
        for (const struct builtin_tool *b = setup->offers[i].tools; b->id != NULL; b++)
            n++;
    return n;
}

static bool is_disabled(const struct option_list *disabled, const char *id)
{
    for (size_t i = 0; disabled != NULL && i < disabled->n; i++)
        if (strcmp(disabled->items[i], id) == 0)
            return true;
    return false;
}

static void add_tools(struct tools *t)
{
    const struct tools_setup *s = &t->setup;
    for (size_t i = 0; i < s->n_offers; i++)
        for (const struct builtin_tool *b = s->offers[i].tools; b->id != NULL; b++)
            if (!is_disabled(s->disabled, b->id))
                add_builtin(&t->rows[t->n++], b, s->offers[i].feature);
    for (size_t i = 0; i < s->n_specs; i++)
        add_spec(&t->rows[t->n++], &s->specs[i]);
    qsort(t->rows, t->n, sizeof *t->rows, tool_compare_ids);
}

struct tools *tools_new(const struct tools_setup *setup, char *why, size_t size)
{
    struct tools *t = mem_zalloc(sizeof *t);
    t->setup = *setup;
    t->rows = mem_zalloc((count_tools(setup) + 1) * sizeof *t->rows);
    list_init(&t->calls);
    list_init(&t->pages);
    list_init(&t->runs);
    list_init(&t->kept);
    map_init(&t->kept_by_name);
    gate_init(&t->work, setup->sched);
    add_tools(t);
    if (check_names(t, why, size) == 0)
        return t;
    tools_free(t);
    return NULL;
}

void tools_free(struct tools *t)
{
    if (t == NULL)
        return;
    must(list_empty(&t->calls) && t->work.inside == 0);
    for (size_t i = 0; i < t->n; i++)
        buf_deinit(&t->rows[i].schema);
    tool_keep_deinit(t);
    free(t->rows);
    free(t);
}

/* ---- a call ---- */

static void put_preview(struct tool_call *c, const struct tool_page *p)
{
    c->outcome = TOOL_SUCCESS;
    buf_put(&c->result, STR("{\"dry_run\":true,\"tool_id\":"));
    json_put_string(&c->result, p->tool->info.id);
    buf_put(&c->result, STR(",\"args_preview\":"));
    buf_put(&c->result, p->args.n > 0 ? p->args : STR("null"));
    buf_putc(&c->result, '}');
}

/* The page is made now, or the call is over. */
static void tool_start_page(struct tool_page *p, struct tool_call *c)
{
    p->call = c;
    p->lent.principal = principal_ref(c->principal != NULL ? c->principal : &principal_anonymous);
    c->made = p;
    list_push(&p->all->pages, &p->link);
    gate_enter(&p->all->work);
    if (p->continues)
        p->tool->continuing++;
    else
        p->tool->running++; /* of a run: until that ends */
    if (p->tool->builtin != NULL)
        tool_state_start(p);
    else if (p->continues)
        tool_kept_start(p);
    else
        tool_run_start(p);
}

static void tool_drop_page(struct tool_page *p)
{
    arena_deinit(&p->arena);
    free(p);
}

static void tool_go_on(struct tool_page *p, struct tool_call *c)
{
    list_remove(&c->link);
    c->waits = NULL;
    bool goes = tool_check(p, c);
    if (goes && !c->dry_run) {
        tool_start_page(p, c);
        return;
    }
    if (goes)
        put_preview(c, p);
    c->page = p->number;
    tool_drop_page(p);
    c->done(c);
}

/* Of large ones that takes too long for the loop. */
static void tool_looking_run(struct job *j)
{
    struct tool_looking *l = container_of(j, struct tool_looking, job);
    tool_look(l->page, buf_str(&l->args));
}

static void tool_looking_done(struct job *j)
{
    struct tool_looking *l = container_of(j, struct tool_looking, job);
    struct tools *t = l->page->all;
    if (l->call != NULL) {
        l->call->looking = NULL;
        tool_go_on(l->page, l->call);
    } else {
        tool_drop_page(l->page);
    }
    buf_deinit(&l->args);
    free(l);
    gate_leave(&t->work);
}

static void look_on_lane(struct tool_page *p, struct tool_call *c, struct lane *lane)
{
    struct tool_looking *l = c->looking = mem_zalloc(sizeof *l);
    l->job = (struct job){.run = tool_looking_run, .done = tool_looking_done};
    l->page = p;
    l->call = c;
    buf_put(&l->args, c->args);
    gate_enter(&p->all->work);
    lane_submit(lane, &l->job);
}

static void tool_on_call(struct task *task)
{
    struct tool_call *c = container_of(task, struct tool_call, task);
    struct tools *t = c->waits;
    struct lane *lane = NULL;
    struct tool_page *p = mem_zalloc(sizeof *p);
    p->all = t;
    p->tool = tool_find(t, c->tool_id);
    p->number = 1;
    if (c->args.n <= TOOL_ARGS_MAX && t->setup.durable != NULL)
        lane = durable_lane(t->setup.durable, c->args.n);
    if (lane != NULL)
        look_on_lane(p, c, lane);
    else
        tool_go_on(p, c);
}

void tools_call(struct tools *t, struct tool_call *c)
{
    must(!gate_is_shut(&t->work));
    c->result = c->next_cursor = c->message = c->details = (struct buf){0};
    c->page = 0;
    c->code = 0;
    c->retryable = false;
    c->waits = t;
    c->made = NULL;
    c->looking = NULL;
    task_init(&c->task, tool_on_call);
    list_push(&t->calls, &c->link);
    sched_post(t->setup.sched, &c->task);
}

void tools_cancel(struct tools *t, struct tool_call *c)
{
    if (c->waits != NULL) {
        task_cancel(&c->task);
        list_remove(&c->link);
        if (c->looking != NULL)
            c->looking->call = NULL;
    } else if (c->made != NULL) {
        tool_page_cancel(c->made);
    }
    c->waits = NULL;
    c->looking = NULL;
    c->made = NULL;
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
    list_each_safe (l, &t->pages) {
        struct tool_page *p = list_item(l, struct tool_page, link);
        if (p->call != NULL)
            tools_cancel(t, p->call);
    }
    tool_runs_stop(t);
    gate_shut(&t->work, stopped, ctx);
}
