// SPDX-License-Identifier: Apache-2.0
/* cascade_keys.h -- what keys to an account and tokens of a language server look like.
 *
 *     sk-ws-01-...              a session of Windsurf
 *     devin-session-token$JWT   a session of Cognition; the $ is part of it
 *     cog_...                   a team's token
 *     anything else             of the Codeium era: the editor exchanges it for one of the others
 *
 * Pure functions. */
#ifndef FEATURE_CASCADE_CASCADE_KEYS_H
#define FEATURE_CASCADE_CASCADE_KEYS_H

#include "base/str.h"

#define CASCADE_KEY_MAX  8192 /* bytes */
#define CASCADE_CSRF_LEN 36   /* bytes of a CSRF token as editors make them */
#define CASCADE_CSRF_MAX 256  /* of one that was given */

enum cascade_key_kind {
    CASCADE_KEY_MALFORMED, /* empty, too long, not printable ASCII, or a prefix and no more */
    CASCADE_KEY_LEGACY,
    CASCADE_KEY_WINDSURF,
    CASCADE_KEY_DEVIN,
    CASCADE_KEY_TEAM,
};
enum cascade_key_kind cascade_key_kind(struct str key);

/* Why keys of this kind cannot be used and what to do about it; NULL: they can. Static, and says
 * nothing of the key. */
const char *cascade_key_refusal(enum cascade_key_kind kind);

/* Digits, a to f, and dashes: a UUID as far as it matters. */
bool cascade_csrf_valid(struct str token);

#endif
