// SPDX-License-Identifier: Apache-2.0
/* lab_commands.h -- the commands of this feature; cmd/cmd.h says what a command is. */
#ifndef FEATURE_LAB_LAB_COMMANDS_H
#define FEATURE_LAB_LAB_COMMANDS_H

int cmd_lab(int argc, char **argv);
int cmd_feedback(int argc, char **argv);

#endif
