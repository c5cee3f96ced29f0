// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/fold_draft.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "base/num.h"

#include <stdlib.h>

#define NODE_COST 128 /* what a value is counted as besides its text */

/* ---- letting go ---- */

static void free_entries(struct draft *d)
{
    for (size_t i = 0; i < d->n; i++) {
        draft_deinit(d->entries[i].value);
        free(d->entries[i].value);
        free((char *)d->entries[i].name.p);
    }
    free(d->entries);
    d->entries = NULL;
    d->n = 0;
}

void draft_deinit(struct draft *d)
{
    free((char *)d->raw.p);
    buf_deinit(&d->text);
    free_entries(d);
}

static size_t draft_size(const struct draft *d)
{
    size_t size = d->raw.n + d->text.n;
    for (size_t i = 0; i < d->n; i++)
        size += NODE_COST + d->entries[i].name.n + draft_size(d->entries[i].value);
    return size;
}

static void draft_clear(struct fold *f, struct draft *d)
{
    fold_release(f, draft_size(d));
    draft_deinit(d);
    *d = (struct draft){0};
}

/* ---- taking apart ---- */

static struct draft *add_entry(struct fold *f, struct draft *d, struct str name)
{
    if (!fold_hold(f, NODE_COST))
        return NULL;
    if ((d->n & (d->n - 1)) == 0) /* there is room for a power of two */
        d->entries = mem_realloc(d->entries, (d->n > 0 ? 2 * d->n : 1) * sizeof *d->entries);
    struct draft_entry *e = &d->entries[d->n++];
    *e = (struct draft_entry){.value = mem_zalloc(sizeof *e->value)};
    fold_set(f, &e->name, name);
    return e->value;
}

static size_t find_entry(const struct draft *d, struct str name)
{
    size_t i = 0;
    while (i < d->n && !str_eq(d->entries[i].name, name))
        i++;
    return i;
}

/* Objects of hostile events have as many members as fit: each is looked for among all. */
static struct draft *find_or_add(struct fold *f, struct draft *d, struct str name)
{
    struct draft *value = draft_find(d, name);
    if (value != NULL)
        return value;
    if (d->n >= DRAFT_MEMBERS_MAX) {
        f->given_up = true;
        return NULL;
    }
    return add_entry(f, d, name);
}

/* What it was goes; the text is the caller's. */
static struct str become(struct fold *f, struct draft *d, enum draft_kind kind)
{
    struct str raw = d->raw;
    d->raw = STR_NONE;
    draft_clear(f, d);
    d->kind = kind;
    return raw;
}

static void let_go(struct fold *f, struct str raw)
{
    fold_release(f, raw.n);
    free((char *)raw.p);
}

void draft_as_object(struct fold *f, struct draft *d)
{
    if (d == NULL || d->kind == DRAFT_OBJECT)
        return;
    struct str raw = become(f, d, DRAFT_OBJECT), name, value;
    if (view_type(raw) == VIEW_OBJECT)
        for (struct str rest = view_inside(raw); !f->given_up && view_member(&rest, &name, &value);)
            draft_set(f, find_or_add(f, d, name), value);
    let_go(f, raw);
}

void draft_as_list(struct fold *f, struct draft *d)
{
    if (d == NULL || d->kind == DRAFT_LIST)
        return;
    struct str raw = become(f, d, DRAFT_LIST), value;
    if (view_type(raw) == VIEW_ARRAY)
        for (struct str rest = view_inside(raw); !f->given_up && view_element(&rest, &value);)
            draft_set(f, add_entry(f, d, STR_NONE), value);
    let_go(f, raw);
}

/* ---- changing ---- */

void draft_set(struct fold *f, struct draft *d, struct str value)
{
    if (d == NULL)
        return;
    draft_clear(f, d);
    fold_set(f, &d->raw, value);
}

void draft_grow(struct fold *f, struct draft *d, struct str string)
{
    if (d == NULL || view_type(string) != VIEW_STRING)
        return;
    if (d->kind != DRAFT_TEXT) {
        struct str raw = become(f, d, DRAFT_TEXT);
        if (view_type(raw) == VIEW_STRING)
            fold_append(f, &d->text, view_inside(raw));
        let_go(f, raw);
    }
    fold_append(f, &d->text, view_inside(string));
}

struct draft *draft_member(struct fold *f, struct draft *d, struct str name)
{
    if (d == NULL)
        return NULL;
    draft_as_object(f, d);
    return f->given_up ? NULL : find_or_add(f, d, name);
}

struct draft *draft_push(struct fold *f, struct draft *d)
{
    if (d == NULL)
        return NULL;
    draft_as_list(f, d);
    return f->given_up ? NULL : add_entry(f, d, STR_NONE);
}

struct draft *draft_element(struct fold *f, struct draft *d, uint64_t index)
{
    if (d == NULL)
        return NULL;
    draft_as_list(f, d);
    while (!f->given_up && d->n <= index)
        add_entry(f, d, STR_NONE);
    return f->given_up ? NULL : d->entries[index].value;
}

void draft_merge(struct fold *f, struct draft *d, struct str object)
{
    struct str name, value;
    if (d == NULL || view_type(object) != VIEW_OBJECT)
        return;
    for (struct str rest = view_inside(object); view_member(&rest, &name, &value);)
        draft_set(f, draft_member(f, d, name), value);
}

void draft_remove(struct fold *f, struct draft *d, struct str name)
{
    size_t at = find_entry(d, name);
    if (d->kind != DRAFT_OBJECT || at == d->n)
        return;
    struct draft_entry e = d->entries[at];
    draft_clear(f, e.value);
    fold_release(f, NODE_COST + e.name.n);
    free(e.value);
    free((char *)e.name.p);
    memmove(&d->entries[at], &d->entries[at + 1], (--d->n - at) * sizeof e);
}

/* ---- looking ---- */

struct draft *draft_find(const struct draft *d, struct str name)
{
    size_t at = d->kind == DRAFT_OBJECT ? find_entry(d, name) : d->n;
    return at < d->n ? d->entries[at].value : NULL;
}

bool draft_member_is(const struct draft *d, struct str name, struct str value)
{
    if (d->kind == DRAFT_RAW && view_type(d->raw) == VIEW_OBJECT) {
        struct view_want want = {.name = name};
        view_pick(d->raw, &want, 1);
        return value.n > 0 && str_eq(want.value, value);
    }
    const struct draft *member = draft_find(d, name);
    return member != NULL && member->kind == DRAFT_RAW && value.n > 0 && str_eq(member->raw, value);
}

bool draft_has_elements(const struct draft *d)
{
    if (d->kind == DRAFT_RAW && view_type(d->raw) == VIEW_ARRAY)
        return view_trim(view_inside(d->raw)).n > 0;
    return d->kind == DRAFT_LIST && d->n > 0;
}

bool draft_index(struct str value, uint64_t *index)
{
    return num_parse_canonical(value, DRAFT_INDEX_MAX, index) == 0;
}

/* ---- the snapshot ---- */

static void put_entries(const struct draft *d, struct buf *out)
{
    buf_putc(out, d->kind == DRAFT_LIST ? '[' : '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        if (d->kind == DRAFT_OBJECT) {
            buf_putc(out, '"');
            buf_put(out, d->entries[i].name);
            buf_put(out, STR("\":"));
        }
        draft_put(d->entries[i].value, out);
    }
    buf_putc(out, d->kind == DRAFT_LIST ? ']' : '}');
}

void draft_put(const struct draft *d, struct buf *out)
{
    switch (d->kind) {
    case DRAFT_RAW: buf_put(out, d->raw.n > 0 ? d->raw : STR("null")); break;
    case DRAFT_TEXT:
        buf_putc(out, '"');
        buf_put(out, buf_str(&d->text));
        buf_putc(out, '"');
        break;
    case DRAFT_LIST:
    case DRAFT_OBJECT: put_entries(d, out); break;
    }
}
