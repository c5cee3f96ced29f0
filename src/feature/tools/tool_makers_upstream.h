// SPDX-License-Identifier: Apache-2.0
/* tool_makers_upstream.h -- the tools of the config file: commands, and URLs that are asked.
 *
 * A command gets the arguments as JSON on its standard input and nothing else; a URL gets them as
 * the body of a POST. Both answer with a JSON array or with JSON lines. */
#ifndef FEATURE_TOOLS_TOOL_MAKERS_UPSTREAM_H
#define FEATURE_TOOLS_TOOL_MAKERS_UPSTREAM_H

#include "feature/tools/tools.h"
#include "net/addr.h"

struct fetcher;
struct loop;
struct tool_config;
struct tool_makers;

/* All is kept by reference. */
struct tool_makers_setup {
    struct loop *loop;
    struct fetcher *fetcher;   /* NULL: there are no tools with a URL */
    struct addr_policy policy; /* which addresses may be asked */
    const struct tool_config *configs;
    size_t n_configs;
};

struct tool_makers *tool_makers_new(const struct tool_makers_setup *setup);

/* As many as configs, for struct tools_setup; they live as long as the makers. */
const struct tool_spec *tool_makers_specs(const struct tool_makers *m);

/* The tools that used them are stopped. What was started and stopped may still take a turn of the
 * loop to be gone: its handles close by themselves. NULL is allowed. */
void tool_makers_free(struct tool_makers *m);

#endif
