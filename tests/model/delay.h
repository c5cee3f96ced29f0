// SPDX-License-Identifier: Apache-2.0
/* delay.h -- a front end to a store that is never in a hurry.
 *
 * It holds each operation for some turns before it passes it on, and each completion for some more
 * before it hands it over; operations overtake each other on both ways. Notices of watches are
 * held too, those of one stream become one, and some come twice. All of that is drawn from a seed.
 * What works through it does not rely on luck.
 *
 * Results are copies that die with done(), and watches are not the caller's own: who keeps
 * anything that was only lent is found out by the address sanitizer.
 *
 * A turn is one that advances the schedule's time by SCHED_TICK_MS. Test programs are made of one
 * source file, so they include delay.c. */
#ifndef MODEL_DELAY_H
#define MODEL_DELAY_H

#include "store/store.h"

/* Takes the inner store over: it is freed with this one. Nothing is held longer than max_turns
 * (>= 1) at a time. */
struct store *delay_store_new(struct store *inner, uint64_t seed, unsigned max_turns);

/* From now on an operation is passed on only when no other is under way in the inner store, for
 * engines that promise no order among those. */
void delay_one_by_one(struct store *s);

/* passed_on() is told of each operation, by the address of the caller's struct, in the order in
 * which the inner store gets them. */
void delay_observe(struct store *s, void (*passed_on)(void *ctx, const void *op), void *ctx);

/* Operations and notices that are held or under way. */
size_t delay_pending(const struct store *s);

/* Reads passed on so far, and the most watches that the inner store has had at once. */
uint64_t delay_reads(const struct store *s);
size_t delay_watches_max(const struct store *s);

#endif
