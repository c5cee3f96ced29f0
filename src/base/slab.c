// SPDX-License-Identifier: Apache-2.0
#include "base/slab.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#define SLAB_FROM_MALLOC true
#else
#define SLAB_FROM_MALLOC false
#endif

/* At the beginning of SLAB_PAGE bytes that are aligned so. Objects that were never used lie behind
 * `fresh`; those that are free again begin with a pointer to the next. */
struct slab_page {
    struct slab_page *next, *prev; /* among those with room */
    void *free;
    char *fresh;
    uint32_t used;
    bool open;
    _Alignas(16) char objects[];
};

static char *page_end(struct slab_page *p)
{
    return (char *)p + SLAB_PAGE;
}

/* The system aligns to its own pages: what is beside ours goes back. */
static struct slab_page *page_map(void)
{
    char *at = mem_map(2 * SLAB_PAGE);
    char *page = at + (SLAB_PAGE - (uintptr_t)at % SLAB_PAGE) % SLAB_PAGE;
    if (page > at)
        mem_unmap(at, (size_t)(page - at));
    mem_unmap(page + SLAB_PAGE, (size_t)(at + SLAB_PAGE - page));
    return (struct slab_page *)(void *)page;
}

static void page_open(struct slab *s, struct slab_page *p)
{
    p->open = true;
    p->prev = NULL;
    p->next = s->open;
    if (s->open != NULL)
        s->open->prev = p;
    s->open = p;
}

static void page_shut(struct slab *s, struct slab_page *p)
{
    p->open = false;
    if (p->prev != NULL)
        p->prev->next = p->next;
    else
        s->open = p->next;
    if (p->next != NULL)
        p->next->prev = p->prev;
}

static struct slab_page *page_new(struct slab *s)
{
    struct slab_page *p = s->spare;
    if (p == NULL) {
        p = page_map();
        s->pages++;
    }
    s->spare = NULL;
    *p = (struct slab_page){.fresh = p->objects};
    page_open(s, p);
    return p;
}

static void page_drop(struct slab *s, struct slab_page *p)
{
    mem_unmap(p, SLAB_PAGE);
    s->pages--;
}

void *slab_alloc(struct slab *s, size_t size)
{
    if (SLAB_FROM_MALLOC && !s->paged)
        return mem_alloc(size);
    s->size = (size + 7) & ~(size_t)7;
    struct slab_page *p = s->open != NULL ? s->open : page_new(s);
    void *object = p->free;
    if (object != NULL) {
        memcpy(&p->free, object, sizeof p->free);
    } else {
        object = p->fresh;
        p->fresh += s->size;
    }
    p->used++;
    if (p->free == NULL && (size_t)(page_end(p) - p->fresh) < s->size)
        page_shut(s, p);
    return object;
}

void *slab_zalloc(struct slab *s, size_t size)
{
    return memset(slab_alloc(s, size), 0, size);
}

void slab_free(struct slab *s, void *object)
{
    if (SLAB_FROM_MALLOC && !s->paged) {
        free(object);
        return;
    }
    struct slab_page *p = (void *)((uintptr_t)object & ~(SLAB_PAGE - 1));
    must(p->used > 0);
    memcpy(object, &p->free, sizeof p->free);
    p->free = object;
    if (!p->open)
        page_open(s, p);
    if (--p->used > 0)
        return;
    page_shut(s, p);
    if (s->spare == NULL)
        s->spare = p;
    else
        page_drop(s, p);
}

void slab_deinit(struct slab *s)
{
    must(s->open == NULL);
    if (s->spare != NULL)
        page_drop(s, s->spare);
    *s = (struct slab){.paged = s->paged};
}
