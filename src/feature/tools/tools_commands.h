// SPDX-License-Identifier: Apache-2.0
/* tools_commands.h -- the commands of this feature; cmd/cmd.h says what a command is. */
#ifndef FEATURE_TOOLS_TOOLS_COMMANDS_H
#define FEATURE_TOOLS_TOOLS_COMMANDS_H

int cmd_tool(int argc, char **argv);
int cmd_mcp(int argc, char **argv);

#endif
