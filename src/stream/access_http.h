// SPDX-License-Identifier: Apache-2.0
/* access_http.h -- /v1/access/: grants are minted and revoked, and what is below a root is erased.
 * See docs/security.md.
 *
 *     POST   /v1/access/grants {"actions":[..],"on":[..],"expires_in"?,"limits"?,"link"?,"sub"?}
 *                                     201 {"token","expires_at"}
 *     POST   /v1/access/revocations   {"jti"} | {"sub","issuer"?,"before"?} | {"root"}: 204
 *     GET    /v1/access/revocations   {"entries","limit"}
 *     DELETE /v1/access/roots/NAME    200 {"removed","done":true}, or 202 while it is under way
 *
 * Answers come when what they tell is stored, and in the audit. Before access_http_begin, and where
 * nothing is granted to anybody, all of it is 404. Loop thread only. */
#ifndef STREAM_ACCESS_HTTP_H
#define STREAM_ACCESS_HTTP_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCESS_PATH     "/v1/access/"
#define GRANT_DEFAULT_S 600

struct access_http;
struct answers;
struct audit;
struct bookmark_key;
struct guard;
struct http;
struct principal;
struct sched;
struct store;
struct surface;
struct trace;

struct access_http_setup {
    struct sched *sched;
    struct store *store;
    struct audit *audit; /* NULL: none */
    const struct trace *trace;
    struct answers *answers; /* that end when somebody is revoked */
    /* See struct erasures_setup. */
    size_t (*erase_others)(void *ctx, struct str prefix);
    void *ctx;
};

extern const struct surface access_surface;

struct access_http *access_http_new(const struct access_http_setup *setup);
void access_http_mount(struct access_http *a, struct http *http);

/* Something is granted: loads what it needs, and tells the guard which keys there are and that
 * somebody was revoked. Once is enough. */
void access_http_begin(struct access_http *a, struct guard *guard);

/* How long a token of any issuer lives at most. Before anybody is revoked, and with new settings.
 */
void access_http_set_longest(struct access_http *a, uint64_t longest_s);

/* For listings; what it points to is NULL until the keys are known. */
struct bookmark_key *const *access_http_bookmarks(const struct access_http *a);

/* For the guard: neither keys nor revocations are known yet; and what was revoked. */
bool access_http_starting(void *access);
bool access_http_revoked(void *access, const struct principal *p);

/* No exchange is left. stopped() comes from the schedule; access_http_free is due then. */
void access_http_stop(struct access_http *a, void (*stopped)(void *ctx), void *ctx);
void access_http_free(struct access_http *a); /* NULL is allowed */

#endif
