// SPDX-License-Identifier: Apache-2.0
/* client_core.h -- what the parts of libtidemark share: a client, its memory, its time.
 *
 * Everything here may run out of memory and says so (TM_E_NOMEM); nothing aborts, and asserts are
 * left out of the library. Of base/ and token/ only what neither allocates nor aborts is used: the
 * Makefile lists it as LIB_BASE and LIB_SRC. Of headers whose sources are not among them, such as
 * base/buf.h, only types and macros are. */
#ifndef CLIENT_CLIENT_CORE_H
#define CLIENT_CLIENT_CORE_H

#include "base/list.h"
#include "base/sched.h"
#include "base/str.h"
#include "tidemark.h"

#include <stdbool.h>

#define ERROR_SIZE 512

/* Where the server is. Texts are owned. */
struct server_url {
    bool tls;
    char *host; /* for Host, :authority and certificates; without brackets */
    char *port;
    char *unix_path; /* NULL: TCP */
    char *prefix;    /* of every path; "" */
    char *authority; /* HOST[:PORT] */
};

struct tm_client {
    struct tm_allocator mem;
    struct tm_options options; /* defaults filled in; texts owned */
    struct server_url server;
    struct sched sched;
    struct link wires; /* connections: client_wire.h */
    void *tls;         /* SSL_CTX; NULL: the server is not https:// */
    bool tls_worked;   /* a handshake has succeeded: the server and we understand each other */
    bool happened;     /* since the last turn: the caller has something to look at */
    char error[ERROR_SIZE];
};

/* ---- memory ---- */

extern const struct tm_allocator client_system_memory;

void *client_alloc(struct tm_client *c, size_t n);  /* NULL: none. Not zeroed */
void *client_zalloc(struct tm_client *c, size_t n); /* zeroed */
void *client_realloc(struct tm_client *c, void *p, size_t n);
void client_free(struct tm_client *c, void *p);       /* NULL is fine */
char *client_copy(struct tm_client *c, struct str s); /* with a NUL behind it */
/* As above, but what is in it is wiped first. */
void client_free_secret(struct tm_client *c, void *p, size_t n);

/* For base/sse_parse.h; its memory is the client. */
extern const struct sse_host client_sse_host;

/* A growing run of bytes; zeroed is empty. There is room for a NUL behind the last byte, and after
 * every put there is one. */
struct bytes {
    char *p;
    size_t n, cap;
};
/* 0 or TM_E_NOMEM, and then nothing was put. */
int bytes_put(struct tm_client *c, struct bytes *b, struct str s);
int bytes_printf(struct tm_client *c, struct bytes *b, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
char *bytes_room(struct tm_client *c, struct bytes *b, size_t n); /* NULL: none */
void bytes_cut(struct bytes *b, size_t n); /* the first n are gone; the rest moves to the front */
void bytes_free(struct tm_client *c, struct bytes *b);
/* What is in them is wiped, as is what they leave behind when they grow by the _secret put. */
int bytes_put_secret(struct tm_client *c, struct bytes *b, struct str s);
void bytes_free_secret(struct tm_client *c, struct bytes *b);

static inline struct str bytes_str(const struct bytes *b)
{
    return str_of(b->p, b->n);
}

/* ---- errors and news ---- */

/* Sets the sentence and returns err. Bytes that could steer a terminal are replaced. */
int client_fail(struct tm_client *c, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same replacement, in place, of a text that may have been cut in the middle of a character. */
void text_make_safe(char *text);
void client_notice(struct tm_client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The caller is to look: ends a tm_wait. */
static inline void client_happened(struct tm_client *c)
{
    c->happened = true;
}

/* Turns until done(ctx), or the time is over: TM_E_TIMEOUT. */
int client_wait_for(struct tm_client *c, bool (*done)(void *ctx), void *ctx, int timeout_ms);

/* The longest wait before the next try after so many failures in a row (from 1 on): grows from
 * first_ms by retry_multiplier to retry_max_ms. */
uint64_t client_backoff_bound_ms(const struct tm_client *c, uint64_t first_ms, unsigned failures);
/* The wait itself, from retry_first_ms on, full jitter. */
uint64_t client_backoff_ms(struct tm_client *c, unsigned failures);

#endif
