// SPDX-License-Identifier: Apache-2.0
/* cmd_cascade_ask.h -- `tidemark cascade ask`. */
#ifndef FEATURE_CASCADE_CMD_CASCADE_ASK_H
#define FEATURE_CASCADE_CMD_CASCADE_ASK_H

int cascade_ask(int argc, char **argv);

#endif
