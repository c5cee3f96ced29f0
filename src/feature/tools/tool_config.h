// SPDX-License-Identifier: Apache-2.0
/* tool_config.h -- the settings of one tool: `[tool NAME]` in the config file. */
#ifndef FEATURE_TOOLS_TOOL_CONFIG_H
#define FEATURE_TOOLS_TOOL_CONFIG_H

#include "base/options.h"

struct tool_config {
    char *name;                 /* letters, digits and -._: */
    struct option_list command; /* lines of words: see tool_command_words */
    char *url;                  /* either this or a command */
    char *description;
    char *input_schema; /* JSON text, an object; from a file if it was given as @FILE */
    char *capability;   /* NULL: anybody may */
    uint64_t timeout_ms, max_output, page_rows, page_bytes, parallel, max_memory;
    uint64_t max_processes, max_cpu_ms;
};

extern const struct options tool_options;

/* For the table of section kinds: see base/sections.h. */
int tool_check_name(struct str name, char *reason, size_t size);
int tool_finish(void *tool, char *reason, size_t size);

/* The program and its arguments, with NULL behind the last: words are separated by blanks, and what
 * stands in '...' or "..." is part of one word. The caller frees the array, which is one
 * allocation. */
char **tool_command_words(const struct tool_config *c);

#endif
