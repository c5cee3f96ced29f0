// SPDX-License-Identifier: Apache-2.0
/* tools.h -- the tools put together, for whoever starts them; calls are in tool.h.
 *
 * Features offer built-in ones (feature/builtin.h). The others are made elsewhere: the engine
 * neither starts programs nor speaks HTTP, so that a tool brings its maker
 * (feature/tools/tool_makers_upstream.h has those for commands and URLs). */
#ifndef FEATURE_TOOLS_TOOLS_H
#define FEATURE_TOOLS_TOOLS_H

#include "feature/builtin.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor_issuer;
struct durable;
struct lane;
struct option_list;
struct sched;
struct store;
struct tools;

/* ---- makers ---- */

/* One result that is being made. The maker keeps the pointer from start() until it calls
 * tool_run_end or stop() is called. */
struct tool_run {
    struct str args; /* JSON text, an object; lives as long as the run */
    void *state;     /* the maker's */
};

struct tool_maker {
    /* Begins; tool_run_output and tool_run_end may come from within this call. */
    void (*start)(void *ctx, struct tool_run *run);
    /* Nobody wants it any more, or it has taken too long or given too much. The run is not the
     * maker's any more when this returns; whatever it had started must end. */
    void (*stop)(void *ctx, struct tool_run *run);
    /* tool_run_output said to wait, and need not any more. */
    void (*room)(void *ctx, struct tool_run *run);
};

/* What it has made, in pieces cut anywhere: one JSON array, each element of which is a row, or JSON
 * values with a newline behind each, one a row. True: go on. False: wait for room(), or, if stop()
 * was called meanwhile, forget about the run. The bytes were taken in either case. */
bool tool_run_output(struct tool_run *run, struct str bytes);

/* All is made, if message.n == 0; otherwise it failed and message says how, and rows that came do
 * not hide that. The run is gone. */
void tool_run_end(struct tool_run *run, struct str message, bool retryable);

/* ---- tools ---- */

/* One of somebody's own. Kept by reference, with all it points to. */
struct tool_spec {
    struct str id, description;
    struct str input_schema; /* a JSON object: shown to those who ask, not enforced */
    struct str capability;   /* n == 0: anybody may */
    uint64_t timeout_ms;     /* for the whole result */
    uint64_t max_output;     /* bytes of it */
    uint64_t page_rows, page_bytes;
    uint64_t parallel; /* runs at a time; further calls are 1002 */
    const struct tool_maker *maker;
    void *ctx;
};

/* Copied, and the offers too; what else it points to is kept by reference. */
struct tools_setup {
    struct sched *sched;
    struct store *store;
    const struct cursor_issuer *issuer;
    uint64_t cursor_ttl_s;
    uint64_t keep_max;       /* bytes of results that are kept, all together; the oldest go first */
    struct lane *lane;       /* for files; NULL: no tool that is offered looks at any */
    struct durable *durable; /* whose lane looks at large arguments; NULL: it is done here */
    const struct builtin_offer *offers;
    size_t n_offers;
    const struct tool_spec *specs;
    size_t n_specs;
    const struct option_list *disabled; /* built-in ones that are not offered; NULL: none */
};

/* What this feature offers itself: stream:read, stream:list and conformance:page_gen. */
extern const struct builtin_tool tools_builtins[];

/* NULL with a sentence in why (size bytes): two tools have one name, a name is not one, or it
 * leaves no room in a cursor for the place to go on at. */
struct tools *tools_new(const struct tools_setup *setup, char *why, size_t size);

/* Calls that are under way are cancelled, and what is being made is stopped and marked as failed.
 * stopped() comes from the schedule, once nothing of it uses the store, the lane or a maker;
 * tools_free is due then. No call may be made any more. */
void tools_stop(struct tools *t, void (*stopped)(void *ctx), void *ctx);

/* Stopped, or never called. NULL is allowed. */
void tools_free(struct tools *t);

#endif
