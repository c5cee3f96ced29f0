// SPDX-License-Identifier: Apache-2.0
/* server_core.h -- what the files of a server know of each other: server.c has its life,
 * server_reload.c what a hangup changes. */
#ifndef APP_SERVER_CORE_H
#define APP_SERVER_CORE_H

#include "app/server.h"

/* From the schedule. */
void server_reload(struct server *s);

/* Bounds connections to what the settings say and descriptors allow, which a trace tells, and those
 * to upstreams to what is left. */
void server_share_descriptors(struct server *s);

/* Whose pages and proxies count, and by which names, by the settings. */
void server_tune_front(struct server *s);

/* Who may do what, by the settings; key files are read anew. 0, or ERR_SYNTAX with a sentence in
 * why, and all is as it was. */
int server_init_access(struct server *s, char *why, size_t size);

/* The surface of access, if anything is granted; behind that. */
void server_open_access(struct server *s);

#endif
