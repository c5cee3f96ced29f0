// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/fold.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "feature/gateway/fold_core.h"
#include "base/json_view.h"

#include <stdlib.h>

static const struct fold_ops *const kinds[] = {
    [FOLD_LAST] = &fold_last_ops,           [FOLD_OPENAI] = &fold_openai_ops,
    [FOLD_UI_MESSAGE] = &fold_ui_ops,       [FOLD_RESPONSES] = &fold_responses_ops,
    [FOLD_ANTHROPIC] = &fold_anthropic_ops, [FOLD_GEMINI] = &fold_gemini_ops,
    [FOLD_AG_UI] = &fold_ag_ui_ops,         [FOLD_MCP] = &fold_mcp_ops,
    [FOLD_NDJSON] = &fold_ndjson_ops,
};

int fold_kind_parse(struct str name, enum fold_kind *out)
{
    for (size_t i = 0; i < FOLD_KINDS; i++) {
        if (str_eq(name, str_of_cstr(kinds[i]->name))) {
            *out = (enum fold_kind)i;
            return 0;
        }
    }
    return ERR_SYNTAX;
}

const char *fold_kind_name(enum fold_kind kind)
{
    return kinds[kind]->name;
}

struct fold *fold_new(enum fold_kind kind, size_t max)
{
    struct fold *f = mem_zalloc(sizeof *f);
    f->ops = kinds[kind];
    f->state = f->ops->open();
    f->max = max;
    return f;
}

static void fold_free_state(struct fold *f)
{
    if (f->state != NULL)
        f->ops->close(f->state);
    f->state = NULL;
    free((char *)f->error.p);
    f->error = STR_NONE;
    buf_deinit(&f->line);
    f->size = 0;
}

void fold_free(struct fold *f)
{
    if (f == NULL)
        return;
    fold_free_state(f);
    free(f);
}

/* ---- what the kinds use ---- */

bool fold_hold(struct fold *f, size_t n)
{
    if (f->given_up || n > f->max - f->size) {
        f->given_up = true;
        return false;
    }
    f->size += n;
    return true;
}

void fold_release(struct fold *f, size_t n)
{
    f->size -= n;
}

void fold_clear(struct fold *f, struct str *slot)
{
    fold_release(f, slot->n);
    free((char *)slot->p);
    *slot = STR_NONE;
}

void fold_set(struct fold *f, struct str *slot, struct str value)
{
    struct str copy = STR_NONE;
    if (f->given_up || value.n > f->max - (f->size - slot->n)) {
        f->given_up = true;
        return;
    }
    if (value.n > 0) {
        copy = str_of(mem_alloc(value.n), value.n);
        memcpy((char *)copy.p, value.p, value.n);
    }
    fold_clear(f, slot); /* last: value may be part of what *slot was */
    f->size += copy.n;
    *slot = copy;
}

void fold_append(struct fold *f, struct buf *b, struct str s)
{
    if (fold_hold(f, s.n))
        buf_put(b, s);
}

void fold_drop(struct fold *f, struct buf *b)
{
    fold_release(f, b->n);
    buf_deinit(b);
}

void fold_skip(struct fold *f)
{
    f->skipped++;
}

void fold_ended(struct fold *f, enum fold_end end)
{
    if (end > f->end)
        f->end = end;
}

/* ---- events ---- */

static void feed_json(struct fold *f, struct str type, struct str data)
{
    size_t at;
    data = view_trim(data);
    if (data.p[0] != '{' || json_check(data, &at) != 0 || view_depth(data) > FOLD_DEPTH_MAX) {
        fold_skip(f);
        return;
    }
    if (memchr(data.p, '\n', data.n) != NULL || memchr(data.p, '\r', data.n) != NULL) {
        f->line.n = 0;
        view_put_unbroken(&f->line, data);
        data = buf_str(&f->line);
    }
    f->ops->feed(f, type, data);
    buf_deinit(&f->line);
}

int fold_feed(struct fold *f, struct str type, struct str data)
{
    if (f->given_up)
        return ERR_TOO_LARGE;
    if (f->done || view_trim(data).n == 0) {
        fold_skip(f);
    } else if (str_eq(view_trim(data), STR("[DONE]"))) {
        f->done = true;
        fold_ended(f, FOLD_COMPLETE);
    } else if (f->ops->json) {
        feed_json(f, type, data);
    } else {
        f->ops->feed(f, type, data);
    }
    if (!f->given_up)
        return 0;
    fold_free_state(f);
    return ERR_TOO_LARGE;
}

int fold_put(const struct fold *f, struct buf *out)
{
    if (f->given_up)
        return ERR_TOO_LARGE;
    if (!f->folded)
        return ERR_EMPTY;
    f->ops->put(f, out);
    return 0;
}

enum fold_end fold_end(const struct fold *f)
{
    bool complete = f->end == FOLD_RUNNING && !f->given_up && f->ops->is_complete != NULL &&
                    f->ops->is_complete(f);
    return complete ? FOLD_COMPLETE : f->end;
}

struct str fold_error(const struct fold *f)
{
    return f->error;
}

uint64_t fold_skipped(const struct fold *f)
{
    return f->skipped;
}

size_t fold_size(const struct fold *f)
{
    return f->size;
}
