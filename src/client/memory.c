// SPDX-License-Identifier: Apache-2.0
/* The memory of client_core.h: the caller's allocator, and bytes that grow. */
#include "base/sse_parse.h"
#include "client/client_core.h"

#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>

void *client_alloc(struct tm_client *c, size_t n)
{
    return c->mem.alloc(c->mem.ctx, NULL, n > 0 ? n : 1);
}

void *client_zalloc(struct tm_client *c, size_t n)
{
    void *p = client_alloc(c, n);
    if (p != NULL)
        memset(p, 0, n);
    return p;
}

void *client_realloc(struct tm_client *c, void *p, size_t n)
{
    return c->mem.alloc(c->mem.ctx, p, n > 0 ? n : 1);
}

void client_free(struct tm_client *c, void *p)
{
    c->mem.free(c->mem.ctx, p);
}

void client_free_secret(struct tm_client *c, void *p, size_t n)
{
    if (p != NULL)
        OPENSSL_cleanse(p, n);
    client_free(c, p);
}

static void *memory_resize(void *client, void *p, size_t n)
{
    if (n > 0)
        return client_realloc(client, p, n);
    client_free(client, p);
    return NULL;
}

const struct sse_host client_sse_host = {memory_resize, TM_E_TOO_LARGE, TM_E_NOMEM};

char *client_copy(struct tm_client *c, struct str s)
{
    char *p = client_alloc(c, s.n + 1);
    if (p == NULL)
        return NULL;
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return p;
}

/* The capacity that holds n bytes more and a NUL; 0: no such number. */
static size_t memory_grown(const struct bytes *b, size_t n)
{
    size_t need, cap = b->cap < 32 ? 64 : b->cap;
    if (n >= SIZE_MAX / 2 - b->n)
        return 0;
    need = b->n + n + 1;
    while (cap < need)
        cap *= 2;
    return cap;
}

char *bytes_room(struct tm_client *c, struct bytes *b, size_t n)
{
    size_t cap = memory_grown(b, n);
    if (cap == 0)
        return NULL;
    if (cap > b->cap) {
        char *p = client_realloc(c, b->p, cap);
        if (p == NULL)
            return NULL;
        b->p = p;
        b->cap = cap;
    }
    return b->p + b->n;
}

static void memory_append(struct bytes *b, struct str s)
{
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    b->p[b->n] = 0;
}

int bytes_put(struct tm_client *c, struct bytes *b, struct str s)
{
    if (bytes_room(c, b, s.n) == NULL)
        return TM_E_NOMEM;
    memory_append(b, s);
    return 0;
}

/* realloc would leave a copy behind. */
int bytes_put_secret(struct tm_client *c, struct bytes *b, struct str s)
{
    size_t cap = memory_grown(b, s.n);
    if (cap == 0)
        return TM_E_NOMEM;
    if (cap > b->cap) {
        char *p = client_alloc(c, cap);
        if (p == NULL)
            return TM_E_NOMEM;
        if (b->n > 0)
            memcpy(p, b->p, b->n);
        client_free_secret(c, b->p, b->cap);
        b->p = p;
        b->cap = cap;
    }
    memory_append(b, s);
    return 0;
}

int bytes_printf(struct tm_client *c, struct bytes *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return TM_E_INVALID;
    char *p = bytes_room(c, b, (size_t)n);
    if (p == NULL)
        return TM_E_NOMEM;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
    return 0;
}

void bytes_cut(struct bytes *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
    b->p[b->n] = 0;
}

void bytes_free(struct tm_client *c, struct bytes *b)
{
    client_free(c, b->p);
    *b = (struct bytes){0};
}

void bytes_free_secret(struct tm_client *c, struct bytes *b)
{
    client_free_secret(c, b->p, b->cap);
    *b = (struct bytes){0};
}
