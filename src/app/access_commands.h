// SPDX-License-Identifier: Apache-2.0
/* access_commands.h -- the parts of `tidemark access` that read settings, or the tables of what is
 * served. cmd/cmd_access.h has those that do without. Arguments as in cmd/cmd.h. */
#ifndef APP_ACCESS_COMMANDS_H
#define APP_ACCESS_COMMANDS_H

#include "access/grant.h"
#include "base/buf.h"

struct common_command;
struct config;

int access_check(int argc, char **argv);
int access_explain(int argc, char **argv);
int access_rules(int argc, char **argv);

/* Loads the settings in a file as `serve --config FILE` does. 0, or CMD_USAGE when it has been
 * reported why not; otherwise config_deinit is due. */
int access_load(const struct common_command *command, const char *file, struct config *c);

/* `read, append` and `chats` / `route:v1/chat` / `server`, as a config file spells them. */
void access_put_verbs(struct buf *out, uint32_t verbs);
void access_put_pattern(struct buf *out, enum access_kind kind, struct str pattern);

#endif
