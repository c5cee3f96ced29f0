// SPDX-License-Identifier: Apache-2.0
/* lab.h -- a Lab with all that it needs, put together from its settings. */
#ifndef FEATURE_LAB_LAB_H
#define FEATURE_LAB_LAB_H

#include "feature/builtin.h"
#include "base/str.h"

#include <stdbool.h>

struct surface;
struct http;
struct lab;
struct lab_config;
struct lane;
struct loop;

/* Zero-initialised: none. */
struct lab_host {
    struct lab *lab;
    struct lane *lane;
    char *review;
    char *feedback; /* the file of what people said */
    void (*stopped)(void *ctx);
    void *ctx;
};

struct lab_host_setup {
    const struct lab_config *config; /* kept */
    struct loop *loop;
    struct http *http;
    bool alone;                  /* a server of its own: flags win, `/` is the page */
    void (*finished)(void *ctx); /* its task is done */
    void *ctx;
};

/* 0, or ERR_IO or ERR_SYNTAX with a sentence in why; then there is nothing to stop. Reads files:
 * before the loop runs. */
int lab_host_init(struct lab_host *h, const struct lab_host_setup *setup, char *why, size_t size);

/* No connection is left. stopped() is never called from within this call. */
void lab_host_stop(struct lab_host *h, void (*stopped)(void *ctx), void *ctx);

/* The file that feedback is appended to, from the state of the feature. */
const char *lab_feedback_path(const void *state);

extern const struct builtin_tool lab_tools[];

/* What it serves. */
extern const struct surface lab_api_surface, lab_page_surface;

#endif
