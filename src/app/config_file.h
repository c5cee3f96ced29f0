// SPDX-License-Identifier: Apache-2.0
/* config_file.h -- reads an INI file into settings.
 *
 *     # a comment, as is a line that begins with `;`
 *     name = value        ; so is this: a blank and `;` begin it
 *     name: value
 *     [route /chat]       a section; what stands above the first one is the target's own
 *
 * Blanks around a line, a name and a value do not count. There are no quotes, no escapes and no
 * continued lines. A list is a setting written many times. Lines may end with CR LF, and the file
 * may begin with the mark of UTF-8. */
#ifndef APP_CONFIG_FILE_H
#define APP_CONFIG_FILE_H

#include "base/sections.h"

#define CONFIG_LINE_MAX (64 * 1024)        /* bytes, without its end */
#define CONFIG_FILE_MAX (64 * 1024 * 1024) /* bytes */

/* The target has its defaults. 0, or ERR_SYNTAX with a sentence in `why` (size bytes) that names
 * the file and, unless it cannot be read, the line; what was taken before stays taken. */
int config_file_read(const char *path, const struct options *o, const struct section_kinds *kinds,
                     void *target, char *why, size_t size);

/* The same of a text; path is for errors. */
int config_file_parse(const char *path, struct str text, const struct options *o,
                      const struct section_kinds *kinds, void *target, char *why, size_t size);

#endif
