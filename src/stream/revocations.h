// SPDX-License-Identifier: Apache-2.0
/* revocations.h -- the deny list: tokens that are good no more, before they expire.
 *
 * An entry is a document, `access/deny/` TIME RANDOM (16 hexadecimal digits each, the time in
 * milliseconds), which is written once and never changed:
 *
 *     {"jti" | "sub" [,"issuer"] | "root", "scope"?, "before"?, "until"}
 *
 *     jti     this token, and what was made from it
 *     sub     tokens of this subject that were issued at `before` (seconds) or earlier, or nobody
 *             knows when; of this issuer, or of any if none is named. Whoever has tokens minted
 *             for others (access/minted.h) is their issuer
 *     root    the same of everybody whose root begins with it
 *     scope   only of those whose root begins with it: whoever is confined revokes his own
 *     until   when the last token that it is about has expired (milliseconds), and a day more, so
 *             that a clock that is set back brings none back
 *
 * All of them are in memory: at most `max`, then ERR_FULL. An entry counts here as soon as it is
 * written. Where other processes share the store, all look for new ones every REVOCATIONS_POLL_MS:
 * a page from a while before the newest on, and now and then all of them. What the deny list has
 * not been read yet, nobody knows: see revocations_ready. Loop thread only. */
#ifndef STREAM_REVOCATIONS_H
#define STREAM_REVOCATIONS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REVOCATION_DOCUMENTS "access/deny/"
#define REVOCATIONS_MAX      100000
#define REVOCATIONS_POLL_MS  2000
#define REVOCATION_TEXT_MAX  256 /* bytes of a jti, issuer, subject or root */

struct principal;
struct revocations;
struct sched;
struct store;
struct trace;

struct revocations_setup {
    struct sched *sched;
    struct store *store;
    const struct trace *trace;
    size_t max;                 /* REVOCATIONS_MAX, but for tests */
    uint64_t longest_s;         /* that any token lives */
    void (*changed)(void *ctx); /* there are new entries; from the schedule */
    void *ctx;
};

struct revocations *revocations_new(const struct revocations_setup *setup);

/* stopped() comes from the schedule, when no call of the store is under way. */
void revocations_stop(struct revocations *r, void (*stopped)(void *ctx), void *ctx);
void revocations_free(struct revocations *r); /* NULL is allowed */

/* The settings have changed: for entries that come. */
void revocations_set_longest(struct revocations *r, uint64_t longest_s);

/* All that was there at the beginning is known. */
bool revocations_ready(const struct revocations *r);

bool revocations_deny(const struct revocations *r, const struct principal *p);

/* One of jti, sub and root is set. The caller embeds it and keeps it and its texts until done(),
 * which comes from the schedule. One that is there already is a success, and not written again.
 * ERR_FULL: there are too many; or an error of the store. */
struct revocation {
    struct str jti, issuer, sub, root;
    struct str scope;
    int64_t before_s; /* of a subject or root */
    void (*done)(struct revocation *v, int err);
    void *own; /* private */
};
void revocations_add(struct revocations *r, struct revocation *v);

/* How many there are. */
size_t revocations_count(const struct revocations *r);

#endif
