// SPDX-License-Identifier: Apache-2.0
/* session_resume.h -- `tidemark session resume`: the client of all sessions that were interrupted,
 * as cmd.h has commands. */
#ifndef CMD_SESSION_RESUME_H
#define CMD_SESSION_RESUME_H

int session_resume(int argc, char **argv);

#endif
