// SPDX-License-Identifier: Apache-2.0
/* reload.h -- SIGHUP: certificates and settings are read again while the server runs.
 *
 * Settings that are `live` in their table, and the callers, change; of others a trace says that
 * they need a restart. A file with an error in it changes nothing. What is under way goes on as it
 * began. */
#ifndef APP_RELOAD_H
#define APP_RELOAD_H

struct config;
struct principals;
struct server;
struct str;
struct trace;

/* What the server was started with; config == NULL: its settings are not read again. */
struct reload {
    struct config *config; /* the server's */
    struct trace *trace;   /* the server's */
    int argc;
    char **argv;
    struct retired *retired; /* callers as they were, whom requests may still be of */
};

/* From the schedule. */
void server_reload(struct server *s);

/* Who calls, by the settings. */
void reload_principals(struct server *s);

/* Frees all of it, and the callers. */
void reload_deinit(struct server *s);

#endif
