// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription_patterns.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/store.h"

#include <stdlib.h>

struct sub_node {
    struct sub_node *parent;
    struct sub_node *one, *many; /* children for `*` and `**` */
    struct link patterns;        /* that end here, or go on behind the trie */
    size_t n_children;
    uint64_t id;
    uint64_t stamp; /* of the last set of nodes it was put into */
    bool is_many;
    struct str key; /* of a literal: the parent's id and the segment; in `text` */
    char text[];
};

/* ---- nodes ---- */

#define KEY_MAX (sizeof(uint64_t) + STORE_NAME_MAX)

static struct str sub_node_key(const struct sub_node *parent, struct str segment, char *out)
{
    must(segment.n <= STORE_NAME_MAX);
    memcpy(out, &parent->id, sizeof parent->id);
    memcpy(out + sizeof parent->id, segment.p, segment.n);
    return str_of(out, sizeof parent->id + segment.n);
}

static struct sub_node *sub_node_new(struct sub_patterns *ps, struct sub_node *parent,
                                     struct str key)
{
    struct sub_node *node = mem_zalloc(sizeof *node + key.n);
    node->parent = parent;
    node->id = ps->next_id++;
    list_init(&node->patterns);
    if (key.n > 0)
        memcpy(node->text, key.p, key.n);
    node->key = str_of(node->text, key.n);
    if (parent != NULL)
        parent->n_children++;
    return node;
}

static struct sub_node *sub_node_literal(struct sub_patterns *ps, struct sub_node *parent,
                                         struct str segment)
{
    char text[SUBSCRIPTION_PATTERN_MAX], bytes[KEY_MAX];
    struct str key = sub_node_key(parent, subscription_pattern_literal(segment, text), bytes);
    struct sub_node *node = map_get(&ps->literals, key);
    if (node == NULL) {
        node = sub_node_new(ps, parent, key);
        map_put(&ps->literals, node->key, node);
    }
    return node;
}

static struct sub_node *sub_node_child(struct sub_patterns *ps, struct sub_node *parent,
                                       struct str segment)
{
    if (str_eq(segment, STR("**"))) {
        if (parent->many == NULL) {
            parent->many = sub_node_new(ps, parent, STR_NONE);
            parent->many->is_many = true;
        }
        return parent->many;
    }
    if (!str_eq(segment, STR("*")))
        return sub_node_literal(ps, parent, segment);
    if (parent->one == NULL)
        parent->one = sub_node_new(ps, parent, STR_NONE);
    return parent->one;
}

/* With the nodes above it that nobody needs any more. */
static void sub_node_drop_if_unused(struct sub_patterns *ps, struct sub_node *node)
{
    while (node != ps->root && node->n_children == 0 && list_empty(&node->patterns)) {
        struct sub_node *parent = node->parent;
        if (node->key.n > 0)
            map_remove(&ps->literals, node->key);
        else if (node->is_many)
            parent->many = NULL;
        else
            parent->one = NULL;
        parent->n_children--;
        free(node);
        node = parent;
    }
}

/* ---- patterns ---- */

void sub_patterns_init(struct sub_patterns *ps)
{
    *ps = (struct sub_patterns){0};
    map_init(&ps->by_text);
    map_init(&ps->literals);
    list_init(&ps->emptied);
    ps->root = sub_node_new(ps, NULL, STR_NONE);
}

void sub_patterns_deinit(struct sub_patterns *ps)
{
    must(!ps->walking && ps->by_text.n == 0 && ps->literals.n == 0);
    map_deinit(&ps->by_text);
    map_deinit(&ps->literals);
    free(ps->root);
    free(ps->now.at);
    free(ps->then.at);
    free(ps->found);
}

static struct sub_pattern *sub_pattern_new(struct sub_patterns *ps, struct str text)
{
    struct sub_pattern *p = mem_zalloc(sizeof *p + text.n);
    list_init(&p->members);
    list_init(&p->emptied);
    p->n = text.n;
    memcpy(p->text, text.p, text.n);
    p->rest = str_of(p->text, p->n);
    p->node = ps->root;
    for (int i = 0; i < SUB_PATTERNS_DEPTH && p->rest.p != NULL; i++)
        p->node = sub_node_child(ps, p->node, str_cut(&p->rest, '/'));
    list_push(&p->node->patterns, &p->in_node);
    map_put(&ps->by_text, str_of(p->text, p->n), p);
    return p;
}

static void sub_pattern_free(struct sub_patterns *ps, struct sub_pattern *p)
{
    must(p->news == NULL);
    map_remove(&ps->by_text, str_of(p->text, p->n));
    list_remove(&p->emptied);
    list_remove(&p->in_node);
    sub_node_drop_if_unused(ps, p->node);
    free(p);
}

struct sub_pattern *sub_patterns_add(struct sub_patterns *ps, struct str text, struct link *member)
{
    struct sub_pattern *p = map_get(&ps->by_text, text);
    if (p == NULL)
        p = sub_pattern_new(ps, text);
    list_remove(&p->emptied);
    list_push(&p->members, member);
    p->n_members++;
    p->n_listening++;
    return p;
}

void sub_patterns_remove(struct sub_patterns *ps, struct sub_pattern *p, struct link *member)
{
    list_remove(member);
    if (--p->n_members > 0)
        return;
    if (ps->walking)
        list_push(&ps->emptied, &p->emptied);
    else
        sub_pattern_free(ps, p);
}

/* ---- the walk ---- */

static void sub_nodes_push(struct sub_nodes *set, struct sub_node *node)
{
    if (set->n == set->room) {
        set->room = set->room == 0 ? 16 : 2 * set->room;
        set->at = mem_realloc(set->at, set->room * sizeof *set->at);
    }
    set->at[set->n++] = node;
}

/* And `**` below it, which may stand for nothing. */
static void sub_patterns_enter(struct sub_patterns *ps, struct sub_nodes *set,
                               struct sub_node *node)
{
    for (; node != NULL && node->stamp != ps->stamp; node = node->many) {
        node->stamp = ps->stamp;
        sub_nodes_push(set, node);
    }
}

static void sub_patterns_find(struct sub_patterns *ps, struct sub_pattern *p)
{
    if (p->found == ps->walks)
        return;
    p->found = ps->walks;
    if (ps->n_found == ps->room_found) {
        ps->room_found = ps->room_found == 0 ? 16 : 2 * ps->room_found;
        ps->found = mem_realloc(ps->found, ps->room_found * sizeof(struct sub_pattern *));
    }
    ps->found[ps->n_found++] = p;
}

void sub_patterns_walk(struct sub_patterns *ps, struct str name)
{
    must(!ps->walking);
    ps->walking = true;
    ps->pattern = NULL;
    ps->name = name;
    ps->now.n = ps->then.n = ps->at = ps->n_found = 0;
    ps->walks++;
    ps->stamp++;
    sub_patterns_enter(ps, &ps->now, ps->root);
    ps->stamp++; /* of the set behind it */
}

/* One pattern of a node, against what is left of the name. What it cost, in visits. */
static size_t sub_patterns_compare(struct sub_patterns *ps, struct sub_pattern *p)
{
    bool open = p->rest.p != NULL;
    if (open ? subscription_pattern_match(p->rest, ps->name) : ps->name.p == NULL)
        sub_patterns_find(ps, p);
    return open ? 1 + p->rest.n * ps->name.n / 64 : 1;
}

static void sub_patterns_advance(struct sub_patterns *ps, struct sub_node *node, struct str segment)
{
    char bytes[KEY_MAX];
    if (node->is_many)
        sub_patterns_enter(ps, &ps->then, node);
    if (segment.n == 0) /* only `**` takes it */
        return;
    sub_patterns_enter(ps, &ps->then, node->one);
    sub_patterns_enter(ps, &ps->then, map_get(&ps->literals, sub_node_key(node, segment, bytes)));
}

/* The next segment. False: there is none, or nothing is left that it could lead to. */
static bool sub_patterns_next_segment(struct sub_patterns *ps)
{
    if (ps->now.n == 0 || ps->name.p == NULL)
        return false;
    struct sub_nodes done = ps->now;
    ps->now = ps->then;
    ps->then = done;
    ps->then.n = ps->at = 0;
    ps->stamp++;
    str_cut(&ps->name, '/');
    return true;
}

bool sub_patterns_step(struct sub_patterns *ps, size_t visits)
{
    for (size_t cost = 0; cost < visits;) {
        if (ps->at == ps->now.n) {
            if (!sub_patterns_next_segment(ps))
                return true;
            continue;
        }
        struct sub_node *node = ps->now.at[ps->at];
        if (ps->pattern == NULL)
            ps->pattern = node->patterns.next;
        for (; ps->pattern != &node->patterns && cost < visits; ps->pattern = ps->pattern->next)
            cost += sub_patterns_compare(ps, list_item(ps->pattern, struct sub_pattern, in_node));
        if (ps->pattern != &node->patterns)
            return false;
        struct str rest = ps->name;
        if (ps->name.p != NULL)
            sub_patterns_advance(ps, node, str_cut(&rest, '/'));
        ps->pattern = NULL;
        ps->at++;
        ps->visited++;
        cost++;
    }
    return false;
}

void sub_patterns_walked(struct sub_patterns *ps)
{
    ps->walking = false;
    list_each_safe (l, &ps->emptied)
        sub_pattern_free(ps, list_item(l, struct sub_pattern, emptied));
}
