// SPDX-License-Identifier: Apache-2.0
/* editor_state.h -- the API key that an editor keeps in its state file.
 *
 * state.vscdb is a SQLite file that the running editor writes to. In its ItemTable the row
 * windsurfAuthStatus holds a JSON object; its apiKey is the key. The file is opened for reading
 * only; nothing of it is changed, not even by a recovery that a crash of the editor has left to do.
 *
 * Blocks, also for EDITOR_STATE_WAIT_MS while the editor is writing: for a lane's thread. */
#ifndef FEATURE_CASCADE_EDITOR_STATE_H
#define FEATURE_CASCADE_EDITOR_STATE_H

#include "base/buf.h"
#include "feature/cascade/cascade_keys.h"

#define EDITOR_STATE_WAIT_MS   2000
#define EDITOR_STATE_VALUE_MAX (4 << 20) /* bytes of the row */

/* Where Windsurf has it on Linux: below config_home ($XDG_CONFIG_HOME) if that is an absolute path,
 * else below .config in home. With a NUL behind it that does not count. */
void editor_state_path(struct buf *out, const char *config_home, const char *home);

/* key: with a NUL behind it; the caller's, who wipes it. No copy of it stays behind in memory.
 * ERR_NOT_FOUND: no file, no row or no apiKey. ERR_BUSY: the editor holds the file. ERR_CORRUPT: it
 * is no such file. ERR_TOO_LARGE. *why is appended a sentence for people, without anything of what
 * the file holds. The key's kind is not looked at. */
int editor_state_api_key(const char *path, char key[CASCADE_KEY_MAX + 1], struct buf *why);

#endif
