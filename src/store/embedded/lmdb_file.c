// SPDX-License-Identifier: Apache-2.0
/* The file is an array of pages. Pages 0 and 1 each describe a commit; that of the later one
 * counts:
 *
 *     page      0  8  its number
 *               8  2  (of no use here)
 *              10  2  what it is: branch 1, leaf 2, overflow 4, meta 8
 *              12  2  where the array behind the head ends      | of an overflow: how many
 *              14  2  where the nodes begin that it points to   | pages there are
 *              16     the array: where in the page each node is
 *
 *     meta     16  4  0xbeefc0de
 *              20  4  version, 1
 *              24  8  (of no use here)
 *              32  8  size of the map
 *              40 48  tree of the free pages; the first four bytes are the size of a page
 *              88 48  tree of the tables: the value of each is a tree
 *             136  8  the last page
 *             144  8  number of the commit
 *
 *     tree      0  4  (of no use here)
 *               4  2  flags
 *               6  2  depth
 *               8  8  branches
 *              16  8  leaves
 *              24  8  overflow pages
 *              32  8  rows
 *              40  8  root; all ones: it is empty
 *
 *     node      0  4  bytes of the value                        | in a branch 6 bytes: the page
 *               4  2  flags: 1 the value is on overflow pages,  |
 *                     2 the value is a tree                     |
 *               6  2  bytes of the key
 *               8     key, then value or the number of its first overflow page
 *
 * Numbers are those of the machine. In a branch the key of a node is the lowest that can be below
 * it, and that of the first node says nothing. A row of the free pages has the number of a commit
 * as key, and a count and as many page numbers as value, largest first. Nodes fill a page from its
 * end without gaps, each of an even number of bytes. */
#include "store/embedded/lmdb_file.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      0xbeefc0deu
#define VERSION    1u
#define PAGE_MIN   512
#define PAGE_MAX   65536
#define PAGE_HEAD  16
#define NODE_HEAD  8
#define NO_PAGE    UINT64_MAX
#define DEPTH_MAX  32
#define KEY_LENGTH 511
#define TABLES_MAX 32
#define MAP_MAX    ((uint64_t)1 << 47)

enum { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, PAGE_META = 8 };
enum { NODE_BIG = 1, NODE_TREE = 2 };
enum { TREE_INTEGER_KEYS = 8, META_ONE_FILE = 0x4000 };

struct tree {
    uint32_t pad;
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, rows, root;
};

struct meta {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    struct tree free, main;
    uint64_t last, commit;
};
_Static_assert(sizeof(struct tree) == 48 && sizeof(struct meta) == 136, "as in the file");

struct page_head {
    uint64_t number;
    uint16_t pad, flags, lower, upper;
};

struct table {
    char name[32];
    struct tree tree;
    bool walked;
};

struct lmdb_file {
    int fd;
    uint64_t bytes, pages; /* in the file: those at its end may be left out if they are free */
    size_t page_bytes;
    struct meta meta;
    struct table tables[TABLES_MAX];
    size_t n_tables;
    unsigned char *seen;  /* a bit for each page of the file */
    uint64_t free_beyond; /* free pages that are not in the file */
    struct buf value;
    char damage[200];
};

/* A page in hand, with a mark for each of its bytes that a node has taken. */
struct page {
    uint64_t number;
    struct page_head head;
    size_t n; /* nodes */
    char *bytes;
    unsigned char *taken;
};

struct node {
    uint16_t flags;
    uint64_t child; /* of a branch */
    uint32_t n;     /* bytes of the value */
    struct str key;
    const char *data;
};

/* A walk over one tree. */
struct walk {
    struct lmdb_file *file;
    const struct tree *tree;
    const char *name;
    bool branches_by_number; /* keys are numbers */
    uint64_t branches, leaves, overflows, rows;
    int (*row)(void *ctx, struct str key, struct str value, const struct node *node);
    void *ctx;
};

static int __attribute__((format(printf, 2, 3))) damaged(struct lmdb_file *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (f->damage[0] == '\0')
        vsnprintf(f->damage, sizeof f->damage, fmt, ap);
    va_end(ap);
    return ERR_CORRUPT;
}

/* ---- pages ---- */

static int read_bytes(struct lmdb_file *f, uint64_t offset, char *into, size_t n)
{
    while (n > 0) {
        ssize_t got = pread(f->fd, into, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ERR_IO;
        if (got == 0)
            return damaged(f, "it ends at byte %" PRIu64, offset);
        into += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int claim(struct lmdb_file *f, uint64_t number)
{
    if (number < 2 || number > f->meta.last || number >= f->pages)
        return damaged(f, "there is no page %" PRIu64, number);
    unsigned char bit = (unsigned char)(1u << (number % 8));
    if (f->seen[number / 8] & bit)
        return damaged(f, "page %" PRIu64 " is used twice", number);
    f->seen[number / 8] |= bit;
    return 0;
}

static int check_page(struct lmdb_file *f, struct page *p, uint16_t kind)
{
    const struct page_head *h = &p->head;
    if (h->number != p->number || h->flags != kind)
        return damaged(f, "page %" PRIu64 " is not what it should be", p->number);
    if (h->lower < PAGE_HEAD || h->lower > h->upper || h->upper > f->page_bytes || h->lower % 2)
        return damaged(f, "page %" PRIu64 " has a wrong head", p->number);
    p->n = (size_t)(h->lower - PAGE_HEAD) / 2;
    return p->n > 0 ? 0 : damaged(f, "page %" PRIu64 " is empty", p->number);
}

static int page_read(struct lmdb_file *f, uint64_t number, uint16_t kind, struct page *p)
{
    int err = claim(f, number);
    *p = (struct page){.number = number};
    if (err != 0)
        return err;
    p->bytes = mem_alloc(f->page_bytes);
    p->taken = mem_zalloc(f->page_bytes);
    err = read_bytes(f, number * f->page_bytes, p->bytes, f->page_bytes);
    if (err != 0)
        return err;
    memcpy(&p->head, p->bytes, sizeof p->head);
    return check_page(f, p, kind);
}

static void page_free(struct page *p)
{
    free(p->bytes);
    free(p->taken);
}

/* ---- nodes ---- */

static int lmdb_file_take_bytes(struct lmdb_file *f, struct page *p, size_t at, size_t n)
{
    if (at < p->head.upper || n > f->page_bytes - at)
        return damaged(f, "page %" PRIu64 " has a node outside of it", p->number);
    for (size_t i = at; i < at + n; i++)
        if (p->taken[i]++)
            return damaged(f, "page %" PRIu64 " has nodes that overlap", p->number);
    return 0;
}

static int node_read(struct lmdb_file *f, struct page *p, size_t i, struct node *out)
{
    uint16_t at, half[4];
    memcpy(&at, p->bytes + PAGE_HEAD + 2 * i, sizeof at);
    if (at % 2 || at < p->head.upper || at + (size_t)NODE_HEAD > f->page_bytes)
        return damaged(f, "page %" PRIu64 " has a node outside of it", p->number);
    memcpy(half, p->bytes + at, sizeof half);
    bool branch = p->head.flags == PAGE_BRANCH;
    uint16_t low = half[0], high = half[1];
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    low = half[1];
    high = half[0];
#endif
    struct node n = {.flags = branch ? 0 : half[2],
                     .n = branch ? 0 : (uint32_t)low | (uint32_t)high << 16,
                     .child = low | (uint64_t)high << 16 | (uint64_t)half[2] << 32};
    size_t here = n.flags & NODE_BIG ? sizeof(uint64_t) : n.n;
    size_t whole = NODE_HEAD + half[3] + here;
    if (half[3] > KEY_LENGTH || here > f->page_bytes)
        return damaged(f, "page %" PRIu64 " has a node that is too long", p->number);
    n.key = str_of(p->bytes + at + NODE_HEAD, half[3]);
    n.data = n.key.p + n.key.n;
    *out = n;
    return lmdb_file_take_bytes(f, p, at, whole + whole % 2);
}

/* All bytes behind `upper` belong to nodes. */
static int check_filled(struct lmdb_file *f, const struct page *p)
{
    for (size_t i = p->head.upper; i < f->page_bytes; i++)
        if (p->taken[i] != 1)
            return damaged(f, "page %" PRIu64 " has a gap", p->number);
    return 0;
}

static int lmdb_file_compare(const struct walk *w, struct str a, struct str b)
{
    if (!w->branches_by_number)
        return str_cmp(a, b);
    uint64_t x = 0, y = 0;
    memcpy(&x, a.p, sizeof x);
    memcpy(&y, b.p, sizeof y);
    return (x > y) - (x < y);
}

/* p == NULL: no bound. */
struct bounds {
    struct str low, high; /* low <= key < high */
};

static int check_key(struct walk *w, const struct page *p, struct str key,
                     const struct bounds *bounds)
{
    if (key.n == 0 || (w->branches_by_number && key.n != sizeof(uint64_t)))
        return damaged(w->file, "page %" PRIu64 " has a key of a wrong length", p->number);
    if ((bounds->low.p != NULL && lmdb_file_compare(w, key, bounds->low) < 0) ||
        (bounds->high.p != NULL && lmdb_file_compare(w, key, bounds->high) >= 0))
        return damaged(w->file, "page %" PRIu64 " has keys in a wrong order", p->number);
    return 0;
}

/* ---- values ---- */

static int claim_overflow(struct walk *w, uint64_t number, uint64_t n)
{
    int err = 0;
    for (uint64_t i = 0; i < n && err == 0; i++)
        err = claim(w->file, number + i);
    w->overflows += n;
    return err;
}

static int read_big(struct walk *w, const struct node *n, struct str *out)
{
    struct lmdb_file *f = w->file;
    struct page_head head;
    uint64_t number;
    uint32_t pages;
    memcpy(&number, n->data, sizeof number);
    if (number < 2 || number >= f->pages)
        return damaged(f, "there is no page %" PRIu64, number);
    int err = read_bytes(f, number * f->page_bytes, (char *)&head, sizeof head);
    if (err != 0)
        return err;
    memcpy(&pages, &head.lower, sizeof pages);
    uint64_t need = (PAGE_HEAD + (uint64_t)n->n + f->page_bytes - 1) / f->page_bytes;
    if (head.number != number || head.flags != PAGE_OVERFLOW || pages < need || pages > f->pages)
        return damaged(f, "page %" PRIu64 " is not what it should be", number);
    err = claim_overflow(w, number, pages);
    if (err != 0)
        return err;
    f->value.n = 0;
    err = read_bytes(f, number * f->page_bytes + PAGE_HEAD, buf_reserve(&f->value, n->n), n->n);
    *out = str_of(f->value.p, n->n);
    return err;
}

static int read_row(struct walk *w, const struct page *p, const struct node *n)
{
    struct str value = str_of(n->data, n->n);
    int err = 0;
    if (n->flags & NODE_BIG)
        err = read_big(w, n, &value);
    if (err != 0)
        return err;
    w->rows++;
    return w->row(w->ctx, n->key, value, n);
}

/* ---- trees ---- */

static int walk_page(struct walk *w, uint64_t number, unsigned level, struct bounds bounds);

static int walk_leaf(struct walk *w, struct page *p, struct bounds bounds)
{
    int err = 0;
    for (size_t i = 0; i < p->n && err == 0; i++) {
        struct node n;
        err = node_read(w->file, p, i, &n);
        if (err == 0)
            err = check_key(w, p, n.key, &bounds);
        if (err == 0 && i > 0 && lmdb_file_compare(w, n.key, bounds.low) == 0)
            err = damaged(w->file, "page %" PRIu64 " has a key twice", p->number);
        bounds.low = n.key;
    }
    if (err == 0)
        err = check_filled(w->file, p);
    if (err == 0)
        memset(p->taken, 0, w->file->page_bytes); /* the nodes are read once more */
    for (size_t i = 0; i < p->n && err == 0; i++) {
        struct node n;
        err = node_read(w->file, p, i, &n);
        if (err == 0)
            err = read_row(w, p, &n);
    }
    return err;
}

static int walk_branch(struct walk *w, struct page *p, unsigned level, struct bounds bounds)
{
    struct node n, next = {0};
    int err = node_read(w->file, p, 0, &n);
    for (size_t i = 0; i < p->n && err == 0; i++, n = next) {
        struct bounds below = bounds;
        if (i > 0)
            below.low = n.key;
        if (i + 1 < p->n) {
            err = node_read(w->file, p, i + 1, &next);
            if (err == 0)
                err = check_key(w, p, next.key, &below);
            below.high = next.key;
        }
        if (err == 0)
            err = walk_page(w, n.child, level + 1, below);
    }
    return err == 0 ? check_filled(w->file, p) : err;
}

static int walk_page(struct walk *w, uint64_t number, unsigned level, struct bounds bounds)
{
    struct page p;
    bool leaf = level == w->tree->depth;
    int err = page_read(w->file, number, leaf ? PAGE_LEAF : PAGE_BRANCH, &p);
    w->leaves += leaf;
    w->branches += !leaf;
    if (err == 0)
        err = leaf ? walk_leaf(w, &p, bounds) : walk_branch(w, &p, level, bounds);
    page_free(&p);
    return err;
}

static int walk_tree(struct walk *w)
{
    const struct tree *t = w->tree;
    int err = 0;
    if (t->depth > DEPTH_MAX || (t->root == NO_PAGE) != (t->depth == 0))
        return damaged(w->file, "%s cannot be that deep", w->name);
    if (t->root != NO_PAGE)
        err = walk_page(w, t->root, 1, (struct bounds){0});
    if (err == 0 && (w->rows != t->rows || w->leaves != t->leaves || w->branches != t->branches ||
                     w->overflows != t->overflows))
        err = damaged(w->file, "%s should have %" PRIu64 " rows, and has %" PRIu64, w->name,
                      t->rows, w->rows);
    return err;
}

/* ---- opening ---- */

static int lmdb_file_take_table(void *ctx, struct str key, struct str value,
                                const struct node *node)
{
    struct lmdb_file *f = ctx;
    struct table *t = &f->tables[f->n_tables];
    if (node->flags != NODE_TREE || value.n != sizeof t->tree || key.n >= sizeof t->name ||
        f->n_tables == TABLES_MAX)
        return damaged(f, "it has something else than tables");
    memcpy(t->name, key.p, key.n);
    memcpy(&t->tree, value.p, sizeof t->tree);
    f->n_tables++;
    return t->tree.flags == 0 ? 0 : damaged(f, "the table %s has flags", t->name);
}

static int read_meta(struct lmdb_file *f, uint64_t number, uint64_t offset, struct meta *out)
{
    char bytes[PAGE_HEAD + sizeof *out];
    struct page_head head;
    int err = read_bytes(f, offset, bytes, sizeof bytes);
    if (err != 0)
        return err;
    memcpy(&head, bytes, sizeof head);
    memcpy(out, bytes + PAGE_HEAD, sizeof *out);
    if (head.number != number || head.flags != PAGE_META || out->magic != MAGIC)
        return damaged(f, "its head is damaged, or it is no such file");
    return 0;
}

static int check_meta(struct lmdb_file *f)
{
    const struct meta *m = &f->meta;
    uint64_t n = m->last;
    if (n < 1 || n > MAP_MAX / f->page_bytes || m->map_bytes > MAP_MAX ||
        m->map_bytes < (n + 1) * f->page_bytes || m->main.flags != 0 ||
        (m->free.flags & ~META_ONE_FILE) != TREE_INTEGER_KEYS)
        return damaged(f, "its head makes no sense");
    return 0;
}

static int read_metas(struct lmdb_file *f)
{
    struct meta other;
    int err = read_meta(f, 0, 0, &f->meta);
    if (err != 0)
        return err;
    f->page_bytes = f->meta.free.pad;
    if (f->page_bytes < PAGE_MIN || f->page_bytes > PAGE_MAX || f->page_bytes & (f->page_bytes - 1))
        return damaged(f, "its pages cannot have %zu bytes", f->page_bytes);
    err = read_meta(f, 1, f->page_bytes, &other);
    if (err != 0)
        return err;
    if (other.version != f->meta.version || other.free.pad != f->page_bytes)
        return damaged(f, "its two heads disagree");
    if (other.version != VERSION)
        return ERR_VERSION;
    if (f->meta.commit < other.commit)
        f->meta = other;
    f->pages = f->bytes / f->page_bytes;
    return check_meta(f);
}

static int lmdb_file_load(struct lmdb_file *f)
{
    struct walk w = {.file = f,
                     .tree = &f->meta.main,
                     .name = "the list of tables",
                     .row = lmdb_file_take_table,
                     .ctx = f};
    int err = read_metas(f);
    if (err != 0)
        return err;
    f->seen = mem_zalloc((size_t)(f->pages / 8 + 1));
    return walk_tree(&w);
}

static void lmdb_file_explain(int err, const struct lmdb_file *f, char *why, size_t size)
{
    snprintf(why, size, "%s",
             err == ERR_VERSION     ? "it was made by another version of LMDB"
             : f->damage[0] != '\0' ? f->damage
                                    : err_text(err));
}

int lmdb_file_open(const char *path, struct lmdb_file **out, char *why, size_t size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int err = errno == ENOENT ? ERR_NOT_FOUND : ERR_IO;
        snprintf(why, size, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    struct lmdb_file *f = mem_zalloc(sizeof *f);
    f->fd = fd;
    f->bytes = (uint64_t)st.st_size;
    int err = lmdb_file_load(f);
    if (err == 0) {
        *out = f;
        return 0;
    }
    lmdb_file_explain(err, f, why, size);
    lmdb_file_close(f);
    return err;
}

void lmdb_file_close(struct lmdb_file *f)
{
    if (f == NULL)
        return;
    close(f->fd);
    free(f->seen);
    buf_deinit(&f->value);
    free(f);
}

const char *lmdb_file_damage(const struct lmdb_file *f)
{
    return f->damage;
}

uint64_t lmdb_file_bytes(const struct lmdb_file *f)
{
    return f->bytes;
}

/* ---- rows ---- */

struct reading {
    struct lmdb_file *file;
    int (*row)(void *ctx, struct str key, struct str value);
    void *ctx;
};

static int lmdb_file_give_row(void *ctx, struct str key, struct str value, const struct node *node)
{
    struct reading *r = ctx;
    if (node->flags & ~NODE_BIG)
        return damaged(r->file, "a row is not what it should be");
    return r->row(r->ctx, key, value);
}

int lmdb_file_table(struct lmdb_file *f, const char *name,
                    int (*row)(void *ctx, struct str key, struct str value), void *ctx)
{
    struct reading r = {f, row, ctx};
    for (size_t i = 0; i < f->n_tables; i++) {
        struct table *t = &f->tables[i];
        if (strcmp(t->name, name) != 0 || t->walked)
            continue;
        struct walk w = {
            .file = f, .tree = &t->tree, .name = t->name, .row = lmdb_file_give_row, .ctx = &r};
        t->walked = true;
        return walk_tree(&w);
    }
    return ERR_NOT_FOUND;
}

/* ---- free pages ---- */

static int free_page(struct lmdb_file *f, uint64_t number)
{
    if (number < f->pages)
        return claim(f, number);
    if (number > f->meta.last)
        return damaged(f, "there is no page %" PRIu64, number);
    f->free_beyond++;
    return 0;
}

static int lmdb_file_take_free(void *ctx, struct str key, struct str value, const struct node *node)
{
    struct lmdb_file *f = ctx;
    uint64_t n = 0, commit, before = UINT64_MAX, number;
    memcpy(&commit, key.p, sizeof commit);
    if (value.n >= sizeof n)
        memcpy(&n, value.p, sizeof n);
    if (node->flags & ~NODE_BIG || commit > f->meta.commit || value.n % sizeof n != 0 ||
        n > value.n / sizeof n || (n + 1) * sizeof n > value.n)
        return damaged(f, "its list of free pages makes no sense");
    for (uint64_t i = 1; i <= n; i++, before = number) {
        memcpy(&number, value.p + i * sizeof number, sizeof number);
        int err = number < before ? free_page(f, number)
                                  : damaged(f, "its list of free pages is in disorder");
        if (err != 0)
            return err;
    }
    return 0;
}

int lmdb_file_finish(struct lmdb_file *f)
{
    struct walk w = {.file = f,
                     .tree = &f->meta.free,
                     .name = "the list of free pages",
                     .branches_by_number = true,
                     .row = lmdb_file_take_free,
                     .ctx = f};
    int err = walk_tree(&w);
    uint64_t want = f->meta.last + 1;
    if (err == 0 && want > f->pages && want - f->pages != f->free_beyond)
        err = damaged(f, "it has been cut off after page %" PRIu64, f->pages);
    return err;
}
