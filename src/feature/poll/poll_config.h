// SPDX-License-Identifier: Apache-2.0
/* poll_config.h -- the settings of one resource that is polled: `[poll NAME]` in the config file.
 */
#ifndef FEATURE_POLL_POLL_CONFIG_H
#define FEATURE_POLL_POLL_CONFIG_H

#include "base/sections.h"

struct poll_config {
    char *name; /* letters, digits and -._ */
    char *url;
    uint64_t every_ms, slowest_ms;
    int mode;          /* enum poll_mode */
    char *items, *key; /* JSON pointers; NULL: the whole */
    bool newest_first;
    char *cursor;               /* PARAMETER=POINTER or PARAMETER=answer:POINTER; NULL: none */
    struct option_list headers; /* `Name: value` */
    bool always;
    uint64_t timeout_ms, max_answer_bytes;
};

extern const struct options poll_options;

/* For the table of section kinds: see base/sections.h. */
int poll_check_name(struct str name, char *reason, size_t size);
int poll_config_finish(void *section, char *reason, size_t size);

/* The parts of `cursor`. */
struct poll_cursor {
    struct str parameter, pointer;
    bool of_answer;
};
struct poll_cursor poll_cursor_of(struct str text);

/* What the server has of it. */
struct poll_settings {
    struct section_list polls; /* struct poll_config; their names differ */
};

extern const struct feature_settings poll_settings;

#endif
