// SPDX-License-Identifier: Apache-2.0
/* sessions_commands.h -- the commands of this feature; cmd/cmd.h says what a command is. */
#ifndef FEATURE_SESSIONS_SESSIONS_COMMANDS_H
#define FEATURE_SESSIONS_SESSIONS_COMMANDS_H

int cmd_session(int argc, char **argv);

#endif
