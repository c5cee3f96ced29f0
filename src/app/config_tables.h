// SPDX-License-Identifier: Apache-2.0
/* config_tables.h -- one table of settings and one of sections, of the server and all features.
 *
 * A feature's rows say where in its own struct a value goes. Those structs stand in one row at the
 * end of struct config; the joined rows say where in struct config. */
#ifndef APP_CONFIG_TABLES_H
#define APP_CONFIG_TABLES_H

#include "base/sections.h"
#include "feature/feature.h"

struct config_tables {
    struct options options;      /* of flags and variables */
    struct options file_options; /* of the file, which cannot name another file */
    struct section_kinds kinds;  /* the server's own first: see config.c */
    size_t at[FEATURES_MAX];     /* offsets in struct config; 0: it has no settings */
};

/* options[0] is the one that only flags and variables have. room: bytes at `from`, an offset in
 * struct config, for the features' structs. Freed with one call of free. */
struct config_tables *config_tables_new(const struct options *options,
                                        const struct section_kinds *kinds, size_t from,
                                        size_t room);

#endif
