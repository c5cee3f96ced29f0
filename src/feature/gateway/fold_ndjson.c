// SPDX-License-Identifier: Apache-2.0
/* fold_ndjson.c -- lines of JSON, as Ollama sends them, as one: the members of the last line, but
 * texts that come in pieces are joined, and calls of tools are all there. */
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/fold_draft.h"

#include <stdlib.h>

struct ndjson {
    struct draft line;
};

static void *fold_ndjson_open(void)
{
    return mem_zalloc(sizeof(struct ndjson));
}

static void fold_ndjson_close(void *state)
{
    struct ndjson *n = state;
    draft_deinit(&n->line);
    free(n);
}

static bool is_joined(struct str name)
{
    static const struct str names[] = {STR_INIT("response"), STR_INIT("thinking"),
                                       STR_INIT("content")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_eq(name, names[i]))
            return true;
    return false;
}

static void join_calls(struct fold *f, struct draft *calls, struct str more)
{
    struct str call;
    for (struct str rest = view_inside(more); view_element(&rest, &call);)
        draft_set(f, draft_push(f, calls), call);
}

static void join_member(struct fold *f, struct draft *to, struct str name, struct str value)
{
    struct draft *member = draft_member(f, to, name);
    if (is_joined(name) && view_type(value) == VIEW_STRING)
        draft_grow(f, member, value);
    else if (str_eq(name, STR("tool_calls")) && view_type(value) == VIEW_ARRAY)
        join_calls(f, member, value);
    else
        draft_set(f, member, value);
}

static void fold_ndjson_feed(struct fold *f, struct str type, struct str data)
{
    struct ndjson *n = f->state;
    struct str name, value, inner;
    for (struct str rest = view_inside(data); view_member(&rest, &name, &value);) {
        if (str_eq(name, STR("error"))) {
            fold_set(f, &f->error, value);
            fold_ended(f, FOLD_FAILED);
        }
        if (str_eq(name, STR("done")) && str_eq(value, STR("true")))
            fold_ended(f, FOLD_COMPLETE);
        if (!str_eq(name, STR("message")) || view_type(value) != VIEW_OBJECT) {
            join_member(f, &n->line, name, value);
            continue;
        }
        struct draft *message = draft_member(f, &n->line, name);
        for (struct str members = view_inside(value); view_member(&members, &name, &inner);)
            join_member(f, message, name, inner);
    }
    f->folded = true;
}

static void fold_ndjson_put(const struct fold *f, struct buf *out)
{
    const struct ndjson *n = f->state;
    draft_put(&n->line, out);
}

const struct fold_ops fold_ndjson_ops = {
    .name = "ndjson",
    .json = true,
    .open = fold_ndjson_open,
    .close = fold_ndjson_close,
    .feed = fold_ndjson_feed,
    .put = fold_ndjson_put,
};
