// SPDX-License-Identifier: Apache-2.0
/* cmd_access.h -- the parts of `tidemark access` that write a file, or ask a server. Arguments as
 * in cmd/cmd.h. */
#ifndef CMD_CMD_ACCESS_H
#define CMD_CMD_ACCESS_H

int access_init(int argc, char **argv);
int access_mint(int argc, char **argv);
int access_revoke(int argc, char **argv);

#endif
