// SPDX-License-Identifier: Apache-2.0
/* limits.h -- how much a client may ask for, by its address and by who it is.
 *
 * Whoever is known counts by its principal's id: all tokens of a subject share one account. Whoever
 * is not counts by its address; an IPv6 network of /64 is one. Other headers that a client chooses
 * never count. What is too much is answered 429 with Retry-After, in the words of the surface.
 *
 *     connection --> connections, new ones a second --> 503, but for a look at /healthz
 *     credential --> blocked after too many bad ones --> 429, before any cryptography
 *     principal  --> requests a second, requests under way
 *     handler    --> live readers, bytes, creates, generations
 *
 * A server has limits once access is configured, or a setting asks for them: http->per_client. All
 * calls below do nothing, and refuse nothing, without. What an exchange counts as ends with it,
 * however that is. Loop thread only. */
#ifndef HTTP_LIMITS_H
#define HTTP_LIMITS_H

#include "access/grant.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct account;
struct exchange;
struct metrics;
struct principal;
struct sched;

#define LIMITS_ADDRESS       16 /* bytes: as addr_of_peer gives it */
#define LIMITS_ADDRESSES_MAX 100000
#define LIMITS_SUBJECTS_MAX  100000
#define LIMITS_BLOCK_MS      60000
#define LIMITS_SURPLUS       4 /* connections too many of an address that are told so at a time */

/* Of each address; 0: no limit. */
struct limits_settings {
    uint64_t connections;     /* at once, and so many new ones in a burst */
    uint64_t connection_rate; /* new ones a second */
    uint64_t rate;            /* requests without identity a second */
    uint64_t failures;        /* bad credentials a minute */
};

struct limits *limits_new(struct sched *sched, struct metrics *metrics);
void limits_free(struct limits *l); /* no exchange and no connection is left; NULL is allowed */
void limits_set(struct limits *l, const struct limits_settings *settings);

/* ---- who ---- */

/* A key by which a client is counted, for whoever has counts of its own: any bytes, in x->arena. */
struct str limits_key(struct exchange *x);

/* What holds for a principal of what is stored: its own limits, and those that hold for token
 * holders and strangers where it has none. 0: no limit. */
struct access_limits limits_of(const struct principal *p);

/* ---- connections ---- */

enum limits_entry {
    LIMITS_IN,
    LIMITS_OVER,   /* too many: it may be told so, and ask for /healthz */
    LIMITS_CLOSED, /* even for that: it is closed */
};

/* A connection of this address comes. *account: NULL, or due to account_disconnect with what this
 * has answered. */
enum limits_entry limits_connect(struct limits *l, const uint8_t address[LIMITS_ADDRESS],
                                 struct account **account);

/* ---- for the guard ---- */

/* False: answered; its address has shown too many bad credentials. */
bool limits_try_credential(struct exchange *x);
void limits_note_bad_credential(struct exchange *x);

/* It is known who asks: counts the request. False: answered. */
bool limits_admit(struct exchange *x);

/* ---- for handlers: false means answered ---- */

/* It waits for what comes, from now on until it is over. */
bool limits_take_live(struct exchange *x);

/* So many bytes are about to be appended. */
bool limits_take_bytes(struct exchange *x, uint64_t bytes);

/* A stream is about to be created; given back if it was there. */
bool limits_take_create(struct exchange *x);
void limits_give_back_create(struct exchange *x);

/* An answer of an upstream begins, which outlives its exchange: *lease is due to limits_end_lease
 * when it has ended; NULL: nothing is. */
bool limits_take_generation(struct exchange *x, struct account **lease);
void limits_end_lease(struct account **lease);

/* 507 QUOTA: `streams` or `stored` is used up. */
void limits_refuse_quota(struct exchange *x, struct str message);

/* ---- usage ---- */

void limits_count_bytes(struct exchange *x, uint64_t appended);
void limits_count_events(struct exchange *x, uint64_t delivered);

#endif
