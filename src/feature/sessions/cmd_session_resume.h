// SPDX-License-Identifier: Apache-2.0
/* cmd_session_resume.h -- `tidemark session resume`: the client of all sessions that were
 * interrupted, as cmd.h has commands. */
#ifndef FEATURE_SESSIONS_CMD_SESSION_RESUME_H
#define FEATURE_SESSIONS_CMD_SESSION_RESUME_H

int session_resume(int argc, char **argv);

#endif
