// SPDX-License-Identifier: Apache-2.0
/* pages.h -- listings, which a server hands out in pages: GET PATH?prefix=&after=&limit= answers
 *
 *     {"MEMBER":[{...}, ...],"next":"a"}
 *
 * in order of names; `next` is what to pass as `after` for the following page, null at the end. */
#ifndef CLIENT_PAGES_H
#define CLIENT_PAGES_H

#include "client/client.h"

#include <jansson.h>

struct client_pages {
    const char *path, *member;
    const char *prefix; /* NULL: all */
    uint64_t limit;     /* 0: none */
    void *user;
    /* One item, lent for the call. False ends the list, which is a success. */
    bool (*item)(void *user, const json_t *item);
};

/* after: only what comes behind it; may be NULL. */
int client_pages_walk(struct client *c, const struct client_pages *pages, const char *after);

/* Empty if it is not there, or no text. */
const char *client_text_in(const json_t *object, const char *key);

#endif
