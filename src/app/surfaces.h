// SPDX-License-Identifier: Apache-2.0
/* surfaces.h -- all that this program can serve: the server's own surfaces, and those that the rows
 * of its features name. */
#ifndef APP_SURFACES_H
#define APP_SURFACES_H

#include <stddef.h>

struct config;
struct http;
struct surface;

/* The next one; *at starts at 0. NULL behind the last. *owner: of a feature its name, else
 * "server". */
const struct surface *surfaces_next(size_t *at, const char **owner);

/* Mounts all of them, without handlers, at their paths and at those that the settings give. The
 * settings outlive *http, which is zeroed before; surfaces_unmount is due. */
void surfaces_mount(struct http *http, const struct config *c);
void surfaces_unmount(struct http *http);

#endif
