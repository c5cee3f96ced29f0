// SPDX-License-Identifier: Apache-2.0
/* cmd_session_chat.h -- `tidemark session chat`: the client of one session, as cmd.h has commands.
 */
#ifndef FEATURE_SESSIONS_CMD_SESSION_CHAT_H
#define FEATURE_SESSIONS_CMD_SESSION_CHAT_H

int session_chat(int argc, char **argv);

#endif
