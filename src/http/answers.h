// SPDX-License-Identifier: Apache-2.0
/* answers.h -- answers under way end with the right to them.
 *
 * An exchange is linked to its principal (principal->answers), and principals that have any to
 * http->active. They are looked at every ANSWERS_LOOK_MS: those whose token has expired or whose
 * section is gone, and, after answers_look_now, those whose token was revoked meanwhile. What they
 * wait for ends (exchange_revoke), some at a time. Loop thread only. */
#ifndef HTTP_ANSWERS_H
#define HTTP_ANSWERS_H

#include "base/list.h"
#include "base/sched.h"

#include <stdbool.h>

#define ANSWERS_LOOK_MS 500

struct http;
struct principal;

struct answers {
    struct http *http;
    struct sched *sched;
    bool (*revoked)(void *ctx, const struct principal *p);
    void *ctx;
    struct link ending; /* exchanges */
    struct timer look;
    struct task end;
    bool all; /* the next look asks revoked() about everybody */
    bool stopped;
};

/* Before the first request. */
void answers_init(struct answers *a, struct http *http, struct sched *sched,
                  bool (*revoked)(void *ctx, const struct principal *p), void *ctx);
void answers_stop(struct answers *a); /* may be called twice */

/* Somebody may have lost his right: looks at everybody, soon. */
void answers_look_now(struct answers *a);

#endif
