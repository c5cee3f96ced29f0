// SPDX-License-Identifier: Apache-2.0
/* log_tool.c -- log:read, a built-in tool: the items of a log.
 *
 * It answers as logs do over HTTP: {"items":[...],"nextCursor":"184"}, whose cursor is the log's
 * own and good for asking later what has come since. Within an answer of several pages the position
 * is
 *
 *     u64    where the page begins, big-endian
 *     48     the file that it is of, as log_id_format writes it */
#include "access/principal.h"
#include "base/arena.h"
#include "base/be.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/builtin.h"
#include "feature/logs/log_page.h"
#include "feature/logs/logs.h"

#define PLACE_SIZE (8 + LOG_ID_TEXT)

struct log_tool {
    struct builtin_page *page;
    struct str name, cursor, where;
    uint64_t limit;
    struct log_page lines;
};

static void log_tool_answer(struct builtin_page *p, const struct log_page *l)
{
    uint8_t place[PLACE_SIZE];
    be_put(place, l->next, 8);
    log_id_format(&l->id, (char *)place + 8);
    log_page_put(l, p->result);
    p->ops->done(p, l->state == LOG_PAGE_FULL && l->goes_on
                        ? str_of((const char *)place, sizeof place)
                        : STR_NONE);
}

static void log_tool_on_step(struct log_page *l, int err)
{
    struct builtin_page *p = container_of(l, struct log_tool, lines)->page;
    if (!p->ops->back(p))
        return;
    if (err != 0) {
        log_page_fail(l, err, p);
    } else if (l->state == LOG_PAGE_MORE) {
        p->under_way = true;
        log_page_step(l);
    } else {
        log_tool_answer(p, l);
    }
}

/* Texts as they are, the others as JSON writes them. False: there are too many. */
static bool add_filters(struct log_tool *t)
{
    struct arena *a = t->page->arena;
    struct str rest = view_inside(t->where), name, value;
    bool fits = true;
    while (t->where.n > 0 && fits && view_member(&rest, &name, &value)) {
        struct buf key = {0};
        view_decode(name, &key);
        if (view_type(value) == VIEW_STRING)
            value = view_text(a, value);
        fits = log_query_where(&t->lines.query, buf_str(&key), value) == 0;
        buf_deinit(&key);
    }
    return fits;
}

static bool set_start(struct log_page *l, struct str position, struct str cursor)
{
    if (position.n == PLACE_SIZE) {
        l->query.since = be_get((const uint8_t *)position.p, 8);
        l->has_id = true;
        return log_id_parse(str_skip(position, 8), &l->id) == 0;
    }
    return position.n == 0 && log_query_since(&l->query, cursor) == 0;
}

static void log_tool_start(struct builtin_page *p)
{
    struct log_tool *t = p->state;
    const char *path = logs_path(p->feature, t->name);
    t->page = p;
    if (!principal_may(p->principal, ACCESS_VERB_READ, ACCESS_LOG, t->name)) {
        p->ops->denied(p);
        return;
    }
    if (path == NULL) {
        p->ops->failed(p, false, "there is no log named %.*s", (int)t->name.n, t->name.p);
        return;
    }
    t->lines.log = (struct log){p->lane, path};
    t->lines.query.limit = t->limit;
    t->lines.max_bytes = BUILTIN_PAGE_BYTES;
    t->lines.done = log_tool_on_step;
    if (!set_start(&t->lines, p->position, t->cursor)) {
        p->ops->invalid(p, "argument 'cursor' must be a nextCursor (digits only)");
    } else if (!add_filters(t)) {
        p->ops->invalid(p, "argument 'where' has more than %d members", LOG_FILTERS_MAX);
    } else {
        p->under_way = true;
        log_page_start(&t->lines);
    }
}

static void log_tool_end(struct builtin_page *p)
{
    struct log_tool *t = p->state;
    log_page_deinit(&t->lines);
}

static const struct builtin_arg args[] = {
    {.name = "name",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct log_tool, name),
     .required = true,
     .max = 128,
     .help = "The log's name."},
    BUILTIN_CURSOR_ARG(struct log_tool),
    BUILTIN_LIMIT_ARG(struct log_tool, LOG_LIMIT_MAX, "Items"),
    {.name = "where",
     .type = BUILTIN_OBJECT,
     .field = offsetof(struct log_tool, where),
     .help = "Only objects whose members have these values: texts, numbers or bools."},
};

const struct builtin_tool logs_tools[] = {
    {
        .id = "log:read",
        .description = "The JSON objects of a log, up to its end as it is now.",
        .args = args,
        .n_args = sizeof args / sizeof *args,
        .pages = true,
        .files = true,
        .size = sizeof(struct log_tool),
        .start = log_tool_start,
        .end = log_tool_end,
    },
    {.id = NULL},
};
