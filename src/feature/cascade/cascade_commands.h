// SPDX-License-Identifier: Apache-2.0
/* cascade_commands.h -- the commands of this feature; cmd/cmd.h says what a command is. */
#ifndef FEATURE_CASCADE_CASCADE_COMMANDS_H
#define FEATURE_CASCADE_CASCADE_COMMANDS_H

int cmd_cascade(int argc, char **argv);

#endif
