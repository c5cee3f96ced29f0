// SPDX-License-Identifier: Apache-2.0
/* config_file.h -- reads an INI file into settings: `name = value` lines, `#` and `;` begin
 * comments, a list is a setting written many times, `[route /chat]` begins a section. What stands
 * above the first section is the target's own. */
#ifndef CONFIG_FILE_H
#define CONFIG_FILE_H

#include "base/sections.h"

/* The target has its defaults. 0, or ERR_SYNTAX with a sentence in `why` (size bytes) that names
 * the file and, unless it cannot be read, the line; what was taken before stays taken. */
int config_file_read(const char *path, const struct options *o, const struct section_kinds *kinds,
                     void *target, char *why, size_t size);

#endif
