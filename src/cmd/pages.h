// SPDX-License-Identifier: Apache-2.0
/* pages.h -- what a server lists: documents of JSON, and listings, which are handed out in pages.
 * GET PATH?prefix=&after=&limit= answers
 *
 *     {"MEMBER":[{...}, ...],"next":"a"}
 *
 * in order of names; `next` is what to pass as `after` for the following page, null at the end. */
#ifndef CMD_PAGES_H
#define CMD_PAGES_H

#include "tidemark.h"

#include <jansson.h>
#include <stdbool.h>

#define PAGES_WHY 160

struct pages {
    const char *path, *member;
    const char *prefix; /* NULL: all */
    uint64_t limit;     /* 0: none */
    void *user;
    /* One item, lent for the call. False ends the list, which is a success. */
    bool (*item)(void *user, const json_t *item);
};

/* 0 or the client's error. TM_E_PROTOCOL with `why` set: an answer that is no such page. */
int pages_walk(struct tm_client *c, const struct pages *pages, char why[PAGES_WHY]);

/* GET PATH NAME, name encoded: the caller's, by json_decref. NULL is an answer that is no JSON. */
int pages_get(struct tm_client *c, const char *path, const char *name, json_t **out);

/* Empty, 0 or false if it is not there, or of another type. */
const char *pages_text(const json_t *object, const char *key);
uint64_t pages_number(const json_t *object, const char *key);
bool pages_truth(const json_t *object, const char *key);

#endif
