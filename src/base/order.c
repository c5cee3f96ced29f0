// SPDX-License-Identifier: Apache-2.0
/* A leaf holds items, an inner node children and between each two of them a separator: the shortest
 * text that is behind all keys on its left and not behind any on its right. Separators are copies,
 * so that no item is needed to find another.
 *
 * Keys tend to begin alike, and to look at one is to leave the cache. So a node knows how many
 * bytes all keys that can ever come to it have in common, which the separators around it say, and
 * keeps the four bytes that follow of each key beside the pointers: most comparisons end there.
 *
 * Nodes that are full are split on the way down to where something is put, and nodes that are
 * nearly empty are joined with a neighbour, or take some of what it has, on the way down to where
 * something is removed. So there is no way back up. */
#include "base/order.h"
#include "base/be.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

#define KEYS_MAX  40             /* a leaf has 496 bytes then */
#define KEYS_MIN  (KEYS_MAX / 5) /* but in the root */
#define KEYS_FEW  (KEYS_MAX / 4 * 3)
#define HEADS_LAG 2 /* bytes more that are shared make it worth to look at all keys again */

struct order_node {
    struct order_node *next; /* on the same level */
    uint16_t n, shared;      /* keys, and so many bytes, or more, are common to all */
    uint32_t level;          /* 0: a leaf */
    uint32_t heads[KEYS_MAX];
    void *keys[KEYS_MAX]; /* items; or separators */
};

struct order_inner {
    struct order_node node;
    struct order_node *children[KEYS_MAX + 1];
};

struct separator {
    size_t n;
    char bytes[];
};

/* Keys in a node are not before `low`, and before `high`; p == NULL: there is no such bound. */
struct bounds {
    struct str low, high;
};

/* ---- keys ---- */

static struct order_node **children_of(struct order_node *node)
{
    return ((struct order_inner *)node)->children;
}

static struct str text_of(const struct separator *s)
{
    return str_of(s->bytes, s->n);
}

static struct str key_at(const struct order *o, const struct order_node *node, uint32_t i)
{
    return node->level == 0 ? o->key(node->keys[i]) : text_of(node->keys[i]);
}

/* Behind what is shared. Zeros stand for what is missing: where heads differ they are in order. */
static uint32_t head_of(struct str key, size_t shared)
{
    uint8_t b[4] = {0};
    if (key.n > shared)
        memcpy(b, key.p + shared, key.n - shared < 4 ? key.n - shared : 4);
    return (uint32_t)be_get(b, 4);
}

static size_t common(struct str a, struct str b)
{
    size_t n = 0, max = a.n < b.n ? a.n : b.n;
    while (n < max && a.p[n] == b.p[n])
        n++;
    return n;
}

static uint16_t shared_within(struct bounds b)
{
    size_t n = common(b.low, b.high);
    return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

static struct separator *separate(struct str left, struct str right)
{
    size_t n = common(left, right) + 1;
    must(n <= right.n); /* or they are not in order */
    struct separator *s = mem_alloc(sizeof *s + n);
    s->n = n;
    memcpy(s->bytes, right.p, n);
    return s;
}

/* How many keys of the node are before this one; or_same: or the same. */
static uint32_t rank(const struct order *o, const struct order_node *node, struct str key,
                     bool or_same)
{
    uint32_t low = 0, high = node->n, head = head_of(key, node->shared);
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        int cmp = node->heads[mid] == head  ? str_cmp(key_at(o, node, mid), key)
                  : node->heads[mid] < head ? -1
                                            : 1;
        if (cmp < 0 || (or_same && cmp == 0))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* ---- nodes ---- */

static struct order_node *node_new(uint32_t level)
{
    struct order_node *node =
        mem_alloc(level == 0 ? sizeof(struct order_node) : sizeof(struct order_inner));
    node->next = NULL;
    node->n = node->shared = 0;
    node->level = level;
    return node;
}

static void open_gap(struct order_node *node, uint32_t at)
{
    must(node->n < KEYS_MAX && at <= node->n);
    memmove(node->keys + at + 1, node->keys + at, (node->n - at) * sizeof *node->keys);
    memmove(node->heads + at + 1, node->heads + at, (node->n - at) * sizeof *node->heads);
    node->n++;
}

static void close_gap(struct order_node *node, uint32_t at)
{
    must(at < node->n);
    node->n--;
    memmove(node->keys + at, node->keys + at + 1, (node->n - at) * sizeof *node->keys);
    memmove(node->heads + at, node->heads + at + 1, (node->n - at) * sizeof *node->heads);
}

static void set_key(struct order_node *node, uint32_t at, void *key, struct str text)
{
    node->keys[at] = key;
    node->heads[at] = head_of(text, node->shared);
}

/* The separator, and the child behind it. */
static void put_child(struct order_node *parent, uint32_t at, struct separator *s,
                      struct order_node *child)
{
    struct order_node **children = children_of(parent);
    open_gap(parent, at);
    memmove(children + at + 2, children + at + 1, (parent->n - at - 1) * sizeof *children);
    set_key(parent, at, s, text_of(s));
    children[at + 1] = child;
}

static void take_child(struct order_node *parent, uint32_t at)
{
    struct order_node **children = children_of(parent);
    memmove(children + at + 1, children + at + 2, (parent->n - at - 1) * sizeof *children);
    close_gap(parent, at);
}

static struct bounds bounds_of_child(struct order_node *parent, struct bounds b, uint32_t i)
{
    if (i > 0)
        b.low = text_of(parent->keys[i - 1]);
    if (i < parent->n)
        b.high = text_of(parent->keys[i]);
    return b;
}

/* ---- sharing what is in nodes out anew ---- */

/* What one node has, or two that are neighbours. */
struct contents {
    uint32_t n;
    bool has_heads; /* of one: so it has them for what that shares */
    uint16_t shared;
    uint32_t heads[KEYS_MAX];
    void *keys[2 * KEYS_MAX + 1];
    struct order_node *children[2 * KEYS_MAX + 2];
};

static void gather(struct contents *c, struct order_node *node)
{
    memcpy(c->keys + c->n, node->keys, node->n * sizeof *node->keys);
    if (node->level > 0)
        memcpy(c->children + c->n, children_of(node), (node->n + 1u) * sizeof *c->children);
    c->n += node->n;
}

static void fill(const struct order *o, struct order_node *node, const struct contents *c,
                 uint32_t from, uint32_t n, struct bounds b)
{
    must(n <= KEYS_MAX);
    uint16_t shared = shared_within(b);
    bool same = c->has_heads && shared < c->shared + HEADS_LAG;
    node->n = (uint16_t)n;
    node->shared = same ? c->shared : shared;
    memcpy(node->keys, c->keys + from, n * sizeof *node->keys);
    if (node->level > 0)
        memcpy(children_of(node), c->children + from, (n + 1) * sizeof *c->children);
    if (same)
        memcpy(node->heads, c->heads + from, n * sizeof *node->heads);
    for (uint32_t i = 0; i < n && !same; i++)
        node->heads[i] = head_of(key_at(o, node, i), node->shared);
}

/* To the child at i, so many keys, and to a new one behind it, which the parent has room for. */
static void share_out(const struct order *o, struct order_node *parent, uint32_t i,
                      const struct contents *c, uint32_t n, struct order_node *right,
                      struct bounds b)
{
    struct order_node *left = children_of(parent)[i];
    struct separator *s = c->keys[n];
    bool leaf = left->level == 0;
    if (leaf)
        s = separate(o->key(c->keys[n - 1]), o->key(c->keys[n]));
    put_child(parent, i, s, right);
    fill(o, left, c, 0, n, (struct bounds){b.low, text_of(s)});
    n += !leaf;
    fill(o, right, c, n, c->n - n, (struct bounds){text_of(s), b.high});
    right->next = left->next;
    left->next = right;
}

/* Who puts keys in their order leaves full nodes behind. */
static void split(const struct order *o, struct order_node *parent, uint32_t i, struct str key,
                  struct bounds b)
{
    struct order_node *child = children_of(parent)[i];
    bool ascending = rank(o, child, key, false) == child->n;
    struct contents c;
    c.n = 0;
    c.has_heads = true;
    c.shared = child->shared;
    memcpy(c.heads, child->heads, sizeof c.heads);
    gather(&c, child);
    share_out(o, parent, i, &c, ascending ? KEYS_MAX - KEYS_MIN - 1 : KEYS_MAX / 2,
              node_new(child->level), b);
}

/* The child at i, and the one behind it, become one if they have few keys; or have as many each. */
static void join(const struct order *o, struct order_node *parent, uint32_t i, struct bounds b)
{
    struct order_node *left = children_of(parent)[i], *right = children_of(parent)[i + 1];
    struct separator *s = parent->keys[i];
    struct contents c;
    c.n = 0;
    c.has_heads = false;
    b.low = bounds_of_child(parent, b, i).low;
    b.high = bounds_of_child(parent, b, i + 1).high;
    gather(&c, left);
    if (left->level > 0)
        c.keys[c.n++] = s;
    else
        free(s);
    gather(&c, right);
    take_child(parent, i);
    left->next = right->next;
    if (c.n > KEYS_FEW) {
        share_out(o, parent, i, &c, c.n / 2, right, b);
    } else {
        fill(o, left, &c, 0, c.n, b);
        free(right);
    }
}

/* ---- the whole ---- */

void order_init(struct order *o, struct str (*key)(const void *item))
{
    *o = (struct order){.key = key};
}

static void free_level(struct order_node *node)
{
    while (node != NULL) {
        struct order_node *next = node->next;
        for (uint32_t i = 0; i < node->n && node->level > 0; i++)
            free(node->keys[i]);
        free(node);
        node = next;
    }
}

void order_deinit(struct order *o)
{
    for (struct order_node *node = o->root, *below; node != NULL; node = below) {
        below = node->level > 0 ? children_of(node)[0] : NULL;
        free_level(node);
    }
    order_init(o, o->key);
}

/* So that what it splits into has a parent. */
static void raise_root(struct order *o)
{
    struct order_node *root = node_new(o->root->level + 1);
    children_of(root)[0] = o->root;
    o->root = root;
}

void order_put(struct order *o, void *item)
{
    struct str key = o->key(item);
    struct bounds b = {0};
    if (o->root == NULL)
        o->root = node_new(0);
    if (o->root->n == KEYS_MAX)
        raise_root(o);
    struct order_node *node = o->root;
    while (node->level > 0) {
        uint32_t i = rank(o, node, key, true);
        if (children_of(node)[i]->n == KEYS_MAX) {
            split(o, node, i, key, bounds_of_child(node, b, i));
            i += str_cmp(text_of(node->keys[i]), key) <= 0;
        }
        b = bounds_of_child(node, b, i);
        node = children_of(node)[i];
    }
    uint32_t at = rank(o, node, key, false);
    open_gap(node, at);
    set_key(node, at, item, key);
    o->n++;
    o->changes++;
}

static void lower_root(struct order *o)
{
    struct order_node *root = o->root;
    o->root = root->level > 0 ? children_of(root)[0] : NULL;
    free(root);
}

void order_remove(struct order *o, void *item)
{
    struct str key = o->key(item);
    struct bounds b = {0};
    struct order_node *node = o->root;
    must(node != NULL);
    while (node->level > 0) {
        uint32_t i = rank(o, node, key, true);
        if (children_of(node)[i]->n <= KEYS_MIN) {
            join(o, node, i > 0 ? i - 1 : 0, b);
            i = rank(o, node, key, true);
        }
        b = bounds_of_child(node, b, i);
        node = children_of(node)[i];
        if (o->root->n == 0)
            lower_root(o);
    }
    uint32_t at = rank(o, node, key, false);
    must(at < node->n && node->keys[at] == item);
    close_gap(node, at);
    if (o->root->n == 0)
        lower_root(o);
    o->n--;
    o->changes++;
}

static void *item_at(struct order_place *p)
{
    if (p->leaf != NULL && p->at == p->leaf->n) {
        p->leaf = p->leaf->next;
        p->at = 0;
    }
    return p->leaf == NULL ? NULL : p->leaf->keys[p->at];
}

void *order_seek(const struct order *o, struct str key, struct order_place *out)
{
    struct order_node *node = o->root;
    while (node != NULL && node->level > 0)
        node = children_of(node)[rank(o, node, key, true)];
    *out = (struct order_place){o, node, node == NULL ? 0 : rank(o, node, key, false), o->changes};
    return item_at(out);
}

void *order_next(struct order_place *p)
{
    must(p->changes == p->order->changes);
    if (p->leaf != NULL)
        p->at++;
    return item_at(p);
}
