// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/fold_meta.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/json_view.h"

#include <stdlib.h>

#define NODE_COST 256 /* a node, its place in the map and its path, besides the texts */

struct fold_meta_node {
    struct link link; /* among its siblings */
    uint64_t id;
    struct str name;  /* owned; as it came, without quotes; n may be 0 */
    struct buf path;  /* its key in the map */
    struct str value; /* owned; empty when open */
    bool open;        /* an object whose members are the children */
    struct link children;
};

/* With f == NULL nothing is counted: all of it goes. */
static void fold_meta_drop(struct fold *f, struct str *s)
{
    if (f != NULL)
        fold_release(f, s->n);
    free((char *)s->p);
    *s = STR_NONE;
}

static void node_free(struct fold *f, struct fold_meta *m, struct fold_meta_node *n);

static void free_children(struct fold *f, struct fold_meta *m, struct fold_meta_node *n)
{
    list_each_safe (l, &n->children) {
        node_free(f, m, list_item(l, struct fold_meta_node, link));
    }
}

/* As deep as the JSON that it was made of. */
static void node_free(struct fold *f, struct fold_meta *m, struct fold_meta_node *n)
{
    free_children(f, m, n);
    list_remove(&n->link);
    if (n->path.n > 0)
        map_remove(&m->by_path, buf_str(&n->path));
    fold_meta_drop(f, &n->name);
    fold_meta_drop(f, &n->value);
    if (f != NULL)
        fold_release(f, NODE_COST + n->path.n);
    buf_deinit(&n->path);
    free(n);
}

void fold_meta_init(struct fold_meta *m)
{
    *m = (struct fold_meta){0};
    map_init(&m->by_path);
}

static void fold_meta_clear(struct fold *f, struct fold_meta *m)
{
    if (m->root != NULL)
        node_free(f, m, m->root);
    m->root = NULL;
}

void fold_meta_deinit(struct fold_meta *m)
{
    fold_meta_clear(NULL, m);
    map_deinit(&m->by_path);
}

void fold_meta_reset(struct fold *f, struct fold_meta *m)
{
    fold_meta_clear(f, m);
}

/* ---- merging ---- */

static struct fold_meta_node *node_new(struct fold *f, struct fold_meta *m)
{
    if (!fold_hold(f, NODE_COST))
        return NULL;
    struct fold_meta_node *n = mem_zalloc(sizeof *n);
    n->id = ++m->ids;
    list_init(&n->link);
    list_init(&n->children);
    return n;
}

static void put_path(struct buf *out, const struct fold_meta_node *parent, struct str name)
{
    buf_put(out, str_of((const char *)&parent->id, sizeof parent->id));
    view_decode(name, out);
}

/* path is taken over. */
static void add_child(struct fold *f, struct fold_meta *m, struct fold_meta_node *parent,
                      struct str name, struct str value, struct buf *path)
{
    struct fold_meta_node *n = node_new(f, m);
    if (n == NULL)
        return;
    list_push(&parent->children, &n->link);
    fold_set(f, &n->name, name);
    fold_set(f, &n->value, value);
    if (!fold_hold(f, path->n))
        return;
    n->path = *path;
    *path = (struct buf){0};
    map_put(&m->by_path, buf_str(&n->path), n);
}

static bool fold_meta_is_object(const struct fold_meta_node *n)
{
    return n->open || view_type(n->value) == VIEW_OBJECT;
}

static void fold_meta_replace(struct fold *f, struct fold_meta *m, struct fold_meta_node *n,
                              struct str value)
{
    free_children(f, m, n);
    n->open = false;
    fold_set(f, &n->value, value);
}

static bool is_risky(struct str name)
{
    return str_eq(name, STR("__proto__")) || str_eq(name, STR("constructor")) ||
           str_eq(name, STR("prototype"));
}

static void merge(struct fold *f, struct fold_meta *m, struct fold_meta_node *n, struct str value);

/* The members of an object become children, or are merged into those that are there. */
static void merge_members(struct fold *f, struct fold_meta *m, struct fold_meta_node *n,
                          struct str object, bool merging)
{
    struct buf path = {0};
    struct str rest = view_inside(object), name, value;
    while (!f->given_up && view_member(&rest, &name, &value)) {
        path.n = 0;
        put_path(&path, n, name);
        if (merging && is_risky(str_skip(buf_str(&path), sizeof n->id)))
            continue;
        struct fold_meta_node *child = map_get(&m->by_path, buf_str(&path));
        if (child == NULL)
            add_child(f, m, n, name, value, &path);
        else if (merging)
            merge(f, m, child, value);
        else
            fold_meta_replace(f, m, child, value); /* a repeated name: the last one counts */
    }
    buf_deinit(&path);
}

static void open_node(struct fold *f, struct fold_meta *m, struct fold_meta_node *n)
{
    struct str object = n->value;
    n->value = STR_NONE;
    n->open = true;
    merge_members(f, m, n, object, false);
    fold_meta_drop(f, &object);
}

static void merge(struct fold *f, struct fold_meta *m, struct fold_meta_node *n, struct str value)
{
    if (view_type(value) != VIEW_OBJECT || !fold_meta_is_object(n)) {
        fold_meta_replace(f, m, n, value);
        return;
    }
    if (!n->open)
        open_node(f, m, n);
    merge_members(f, m, n, value, true);
}

void fold_meta_merge(struct fold *f, struct fold_meta *m, struct str value)
{
    if (m->root != NULL) {
        merge(f, m, m->root, value);
        return;
    }
    m->root = node_new(f, m);
    if (m->root != NULL)
        fold_set(f, &m->root->value, value);
}

/* ---- the value ---- */

static void put_node(const struct fold_meta_node *n, struct buf *out)
{
    if (!n->open) {
        buf_put(out, n->value);
        return;
    }
    char before = '{';
    list_each (l, &n->children) {
        const struct fold_meta_node *child = list_item(l, struct fold_meta_node, link);
        buf_putc(out, before);
        buf_putc(out, '"');
        buf_put(out, child->name);
        buf_put(out, STR("\":"));
        put_node(child, out);
        before = ',';
    }
    if (before == '{')
        buf_putc(out, '{');
    buf_putc(out, '}');
}

void fold_meta_put(const struct fold_meta *m, struct buf *out)
{
    put_node(m->root, out);
}
