// SPDX-License-Identifier: Apache-2.0
/* lab_tool.c -- feedback:wait, a built-in tool: what people say in the Lab, once there is any.
 *
 *     start --> reads --something, or time is up--> answered
 *                ^  `--nothing yet--> waits
 *                `------POLL_MS---------'
 *
 * It answers as log:read does, and all on one page. */
#include "access/principal.h"
#include "base/mem.h"
#include "base/sched.h"
#include "base/units.h"
#include "feature/builtin.h"
#include "feature/lab/lab.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/logs/logs.h"

#define POLL_MS    250
#define WAIT_S     30
#define WAIT_MAX_S 300
#define RUN_MAX    1024

struct lab_tool {
    struct builtin_page *page;
    struct str run, cursor;
    uint64_t limit, timeout_s;
    uint64_t ends_at_ms;
    struct timer timer;
    struct log_page lines;
};

/* In the Lab's file others may have written what is none of its entries. */
static bool lab_tool_take(struct buf *out, struct str item)
{
    json_t *entry = lab_schema_line(&lab_feedback_schema, item);
    if (entry == NULL)
        return false;
    lab_json_put(out, entry);
    json_decref(entry);
    return true;
}

static void lab_tool_step(struct lab_tool *t)
{
    t->page->under_way = true;
    log_page_step(&t->lines);
}

static void lab_tool_on_poll(struct timer *timer)
{
    lab_tool_step(container_of(timer, struct lab_tool, timer));
}

static void lab_tool_on_step(struct log_page *l, int err)
{
    struct lab_tool *t = container_of(l, struct lab_tool, lines);
    struct builtin_page *p = t->page;
    if (!p->ops->back(p))
        return;
    if (err != 0) {
        log_page_fail(l, err, p);
    } else if (l->state == LOG_PAGE_MORE) {
        lab_tool_step(t);
    } else if (l->state == LOG_PAGE_END && l->items.n == 0 && p->sched->now_ms < t->ends_at_ms) {
        sched_start(p->sched, &t->timer, POLL_MS);
    } else {
        log_page_put(l, p->result);
        p->ops->done(p, STR_NONE);
    }
}

static void lab_tool_start(struct builtin_page *p)
{
    struct lab_tool *t = p->state;
    struct log_page *l = &t->lines;
    t->page = p;
    t->ends_at_ms = p->sched->now_ms + t->timeout_s * SECOND_MS;
    timer_init(&t->timer, lab_tool_on_poll);
    if (!principal_may(p->principal, ACCESS_VERB_LAB, ACCESS_LAB, STR_NONE)) {
        p->ops->denied(p);
        return;
    }
    l->log = (struct log){p->lane, lab_feedback_path(p->feature)};
    l->query.limit = t->limit;
    l->max_bytes = BUILTIN_PAGE_BYTES;
    l->take = lab_tool_take;
    l->done = lab_tool_on_step;
    if (log_query_since(&l->query, t->cursor) != 0) {
        p->ops->invalid(p, "argument 'cursor' must be a nextCursor (digits only)");
        return;
    }
    if (t->run.n > 0)
        log_query_where(&l->query, STR("runId"), t->run);
    p->under_way = true;
    log_page_start(l);
}

static void lab_tool_end(struct builtin_page *p)
{
    struct lab_tool *t = p->state;
    timer_stop(&t->timer);
    log_page_deinit(&t->lines);
}

static const struct builtin_arg args[] = {
    {.name = "run",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct lab_tool, run),
     .max = RUN_MAX,
     .help = "Only feedback of this run: its runId."},
    BUILTIN_CURSOR_ARG(struct lab_tool),
    BUILTIN_LIMIT_ARG(struct lab_tool, LOG_LIMIT_MAX, "Items"),
    {.name = "timeout",
     .type = BUILTIN_NUMBER,
     .field = offsetof(struct lab_tool, timeout_s),
     .max = WAIT_MAX_S,
     .fallback = WAIT_S,
     .help = "How many seconds to wait for it if there is none yet; then no items are given."},
};

const struct builtin_tool lab_tools[] = {
    {
        .id = "feedback:wait",
        .description = "What people have said in the Lab of a run, or of all. Waits if there is "
                       "nothing yet; ask again with the nextCursor for what comes later.",
        .args = args,
        .n_args = sizeof args / sizeof *args,
        .files = true,
        .size = sizeof(struct lab_tool),
        .start = lab_tool_start,
        .end = lab_tool_end,
    },
    {.id = NULL},
};
