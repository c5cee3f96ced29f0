// SPDX-License-Identifier: Apache-2.0
/* lossy.h -- a front end to a store that loses answers, as one does that is reached over a network.
 *
 * A write or a put that meets trouble is answered with ERR_AWAY. What became of it is its fate:
 * nothing, or it was done, or it is yet to be done, behind what follows. All else passes.
 *
 * Test programs are made of one source file, so they include lossy.c. */
#ifndef MODEL_LOSSY_H
#define MODEL_LOSSY_H

#include "store/store.h"

enum fate {
    FATE_NOT_DONE,
    FATE_DONE,
    FATE_LATE, /* done within LOSSY_LATE_MS, or as lossy_late says */
};
#define LOSSY_LATE_MS 400

/* Takes the inner store over: it is freed with this one. */
struct store *lossy_store_new(struct store *inner, uint64_t seed);

/* Frees this one, but not the inner one, which others use. */
void lossy_store_drop(struct store *s);

/* The next n of them meet this fate. */
void lossy_next(struct store *s, enum fate fate, size_t n);

/* Writes that close a stream meet none; those that create one. */
void lossy_spare_closes(struct store *s);
void lossy_spare_creates(struct store *s);

/* From now on that many percent of them meet any of the fates. */
void lossy_often(struct store *s, unsigned percent);

void lossy_late(struct store *s, unsigned ms);

/* Answers lost so far, and writes that are yet to be done. */
size_t lossy_lost(const struct store *s);
size_t lossy_pending(const struct store *s);

#endif
