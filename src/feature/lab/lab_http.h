// SPDX-License-Identifier: Apache-2.0
/* lab_http.h -- the Lab: people look at runs and say what they think of them, in a browser; agents
 * poll for it. /api/... is its interface, /lab its page.
 *
 * Everything that touches a file runs in one lane, which also owns the store: requests are answered
 * one after another, and long answers piece by piece. */
#ifndef FEATURE_LAB_LAB_HTTP_H
#define FEATURE_LAB_LAB_HTTP_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct http;
struct lab;
struct lab_store;
struct lane;
struct sched;

#define LAB_BODY_MAX (1024 * 1024)

struct lab_setup {
    struct sched *sched;
    struct lane *lane;       /* for nobody else; the caller frees it when the Lab has stopped */
    struct lab_store *store; /* taken over */
    const char *review, *compare; /* the one run, or the one experiment, it is about; or NULL */
    uint64_t exit_after;          /* submissions of that task; 0: it goes on */
    void (*finished)(void *ctx);  /* the task is done; may be NULL */
    void *ctx;
};

struct lab *lab_new(const struct lab_setup *setup);

/* at_top: `/` leads to the page. */
void lab_mount(struct lab *lab, struct http *http, bool at_top);

struct str lab_session(const struct lab *lab);

/* No connection is left. stopped() comes when the lane has nothing to do any more, never from
 * within this call. */
void lab_stop(struct lab *lab, void (*stopped)(void *ctx), void *ctx);
void lab_free(struct lab *lab); /* NULL is fine */

#endif
