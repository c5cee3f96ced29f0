// SPDX-License-Identifier: Apache-2.0
/* tools.h -- tools put together for a server: cursors, makers, engine, surfaces. */
#ifndef FEATURE_TOOLS_TOOLS_H
#define FEATURE_TOOLS_TOOLS_H

#include <stddef.h>

struct config;
struct cursor_issuer;
struct fetcher;
struct http;
struct lane;
struct loop;
struct store;
struct tool_log;
struct tool_makers;
struct tools;
struct tools_socket;
struct tools_surface;
struct trace;

/* Zero-initialised: none. */
struct tool_host {
    struct cursor_issuer *issuer;
    struct lane *lane; /* NULL: nothing needs one */
    struct tool_log *logs;
    char *feedback; /* the Lab's file; NULL: there is no Lab */
    struct tool_makers *makers;
    struct tools *tools;
    struct tools_surface *surface;
    struct tools_socket *socket; /* NULL: none is configured */
    void (*stopped)(void *ctx);
    void *ctx;
};

/* All of it is kept by reference. */
struct tool_host_setup {
    const struct config *config;
    struct loop *loop;
    struct http *http;
    struct store *store;
    struct store *sessions; /* as workers see them */
    struct fetcher *fetcher;
    const struct trace *trace;
};

/* 0, or ERR_IO or ERR_SYNTAX with a sentence in why; tool_host_stop is due either way. */
int tool_host_init(struct tool_host *h, const struct tool_host_setup *setup, char *why,
                   size_t size);

/* No new clients of the socket. */
void tool_host_drain(struct tool_host *h);

/* No more patience with those that are there. */
void tool_host_cut(struct tool_host *h);

/* No exchange is left. stopped() may come from within this call; all is freed then. */
void tool_host_stop(struct tool_host *h, void (*stopped)(void *ctx), void *ctx);

#endif
