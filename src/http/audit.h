// SPDX-License-Identifier: Apache-2.0
/* audit.h -- what happened that somebody may want to know later, one JSON object a line:
 *
 *     {"time":"2026-01-31T12:00:01.250Z","event":"denied","cause"?,"issuer"?,"sub"?,"user"?,"jti"?,
 *      "kid"?,"ip"?,"method"?,"path"?,"verb"?,"kind"?,"name"?,"decision":"allow"|"deny","request"?}
 *
 * No line has a token, a query or a body. Lines are collected and written on a lane, to the file
 * that is under the path then: it may be moved away at any time. Of what strangers cause at most
 * AUDIT_RATE lines a second are written, and then one that says how many were left out:
 * {"time","event":"left-out","count"}. Loop thread only. */
#ifndef HTTP_AUDIT_H
#define HTTP_AUDIT_H

#include "access/verb.h"
#include "base/list.h"
#include "base/str.h"
#include "net/addr.h"

#include <stdbool.h>
#include <stdint.h>

struct audit;
struct exchange;
struct lane;
struct sched;
struct trace;

#define AUDIT_RATE     1000
#define AUDIT_HELD_MAX (1024 * 1024) /* bytes that wait for the disk; more are left out */

/* X(event, word, allowed, bounded: strangers can cause it) */
#define AUDIT_EVENTS(X)                                                                            \
    X(AUTH_FAILED, "auth-failed", false, true)                                                     \
    X(DENIED, "denied", false, true)                                                               \
    X(MINTED, "minted", true, false)                                                               \
    X(REVOKED, "revoked", true, false)                                                             \
    X(ERASED, "erased", true, false)                                                               \
    X(KEYS_CHANGED, "keys-changed", true, true)                                                    \
    X(KEYS_FAILED, "keys-failed", false, true)                                                     \
    X(PROTECTED, "protected", false, true)                                                         \
    X(LIMITED, "limited", false, true)                                                             \
    X(QUOTA, "quota", false, true)                                                                 \
    X(TARGET_REFUSED, "target-refused", false, true)                                               \
    X(ADMIN, "admin", true, false)                                                                 \
    X(RELOAD, "reload", true, false)

enum audit_event {
#define X(event, word, allowed, bounded) AUDIT_##event,
    AUDIT_EVENTS(X)
#undef X
};

struct audit_setup {
    struct sched *sched;
    struct lane *lane; /* for its file alone; kept by the caller */
    const char *path;
    const struct trace *trace;
    /* Where a request comes from: front_address. NULL: it is not told. */
    bool (*address)(const struct exchange *x, uint8_t ip[ADDR_IP_N]);
};
struct audit *audit_new(const struct audit_setup *setup);

/* stopped() comes from the schedule, when all lines are written; then audit_free is due. */
void audit_stop(struct audit *a, void (*stopped)(void *ctx), void *ctx);
void audit_free(struct audit *a); /* NULL is allowed */

/* What a line says; each text may be empty. */
struct audit_fact {
    enum audit_event event;
    struct str cause;
    struct str ip, kid;          /* else those of who asks are told */
    struct str verb, kind, name; /* what was asked for, or done */
    struct str jti, user;        /* of what was made or revoked; else the principal's are told */
};

/* a == NULL: nothing is written down. x: NULL, or who asks, with its request. */
void audit_tell(struct audit *a, const struct exchange *x, const struct audit_fact *f);
void audit_note(struct audit *a, enum audit_event what, const struct exchange *x,
                struct str detail);

/* A line of somebody else's, with its newline; he waits for it (audit_sync), and so is bounded. */
void audit_put_line(struct audit *a, struct str line);

/* done() comes, never from within the call, when all that was told before is on the disk, or with
 * ERR_IO or ERR_FULL. */
struct audit_wait {
    struct link link;
    void (*done)(struct audit_wait *w, int err);
};
void audit_sync(struct audit *a, struct audit_wait *w);

#endif
