// SPDX-License-Identifier: Apache-2.0
/* cascade_ask.h -- `tidemark cascade ask`. */
#ifndef CMD_CASCADE_ASK_H
#define CMD_CASCADE_ASK_H

int cascade_ask(int argc, char **argv);

#endif
