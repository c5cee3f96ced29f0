// SPDX-License-Identifier: Apache-2.0
/* private_server.h -- a server in this process that serves nobody but us, for a command that needs
 * one. src/app/private_server.c has it: commands know no more of the server than this. */
#ifndef CMD_PRIVATE_SERVER_H
#define CMD_PRIVATE_SERVER_H

#include <stddef.h>

struct private_server;

/* Reads the settings in the file and serves at a Unix socket in a folder of its own, on a thread of
 * its own. Nothing else listens, and events are kept in memory unless the file says with `data`
 * where. NULL: *status is the command's exit status, CMD_USAGE or CMD_FAILED, and why holds a
 * sentence, or is empty where a trace has said it. */
struct private_server *private_server_start(char *file, int *status, char *why, size_t size);

/* Where it is, as --server takes it, and a descriptor that becomes readable when it has ended. */
const char *private_server_address(const struct private_server *s);
int private_server_over(const struct private_server *s);

/* Ends it as SIGTERM would, waits, and frees all. 0, or an ERR_ code: its store had failed. */
int private_server_stop(struct private_server *s);

#endif
