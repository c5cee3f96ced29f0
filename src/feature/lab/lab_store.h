// SPDX-License-Identifier: Apache-2.0
/* lab_store.h -- the Lab's files:
 *
 *     ROOT/runs.jsonl, ROOT/experiments.jsonl       the last valid record of an id counts
 *     ROOT/session.json                             {"sessionId":"lab_..."}
 *     ROOT/sessions/SESSION/idempotency.jsonl       see lab_submit.h
 *     ROOT/exports/                                 what was exported
 *     ROOT/lock                                     held by whoever changes several of these
 *     FEEDBACK                                      one entry a line; others append to it, too
 *
 * Everything works at once and on one thread, that of a lane; nothing here knows of others who ask.
 * Other processes may use the same files. */
#ifndef FEATURE_LAB_LAB_STORE_H
#define FEATURE_LAB_LAB_STORE_H

#include "base/date.h"
#include "feature/lab/lab_index.h"
#include "feature/lab/lab_path.h"
#include "feature/lab/lab_problem.h"

struct lab_store {
    char *root, *feedback, *folder; /* absolute; folder: what relative paths begin at */
    char session[64];
    struct lab_roots roots; /* what may be imported */
    struct lab_index runs, experiments, requests;
    struct lab_index reviews; /* of each run the last feedback, by the run's id */
};

struct lab_store_setup {
    const char *root, *feedback, *folder; /* absolute */
    struct lab_roots roots;               /* taken over, also on failure */
    bool new_session;
};

/* NULL with a sentence in why. */
struct lab_store *lab_store_open(const struct lab_store_setup *setup, char *why, size_t size);
void lab_store_close(struct lab_store *s);

/* Among all processes. 0 or ERR_BUSY, ERR_IO; *lock goes to lab_store_unlock. */
int lab_store_lock(struct lab_store *s, int *lock);
void lab_store_unlock(int lock);

/* As they are in their files by now. NOT_FOUND or INTERNAL; *out is the caller's reference. */
enum lab_code lab_store_run(struct lab_store *s, struct str id, json_t **out,
                            struct lab_problem *p);
enum lab_code lab_store_experiment(struct lab_store *s, struct str id, json_t **out,
                                   struct lab_problem *p);

/* Brings a folder, or a video in it, into the Lab: the run that it was imported as before, if it
 * has not changed since. *id is the caller's reference. */
enum lab_code lab_store_import(struct lab_store *s, struct str path, json_t **id,
                               struct lab_problem *p);

json_t *lab_new_id(const char *prefix); /* "run_" and a UUID */
json_t *lab_now(void);                  /* as a text */

#endif
