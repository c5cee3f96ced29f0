// SPDX-License-Identifier: Apache-2.0
/* cascade_models.h -- the models that an account may use, as GetUserStatus says at run time.
 *
 * A model goes by its UID. Newer ones have a name of their own (`claude-opus-4-7-medium`) and the
 * number 0; older ones are called as the server's enum calls them (`MODEL_CLAUDE_4_5_OPUS`, 391).
 * MODEL_PRIVATE_1 to _30 are slots: which model is behind one depends on the account, so that they
 * are no names to keep. */
#ifndef FEATURE_CASCADE_CASCADE_MODELS_H
#define FEATURE_CASCADE_CASCADE_MODELS_H

#include "base/arena.h"
#include "base/str.h"

#include <stdint.h>

#define CASCADE_MODELS_MAX    1024
#define CASCADE_MODEL_UID_MAX 128 /* bytes; printable ASCII without spaces */

struct cascade_model {
    struct str uid;   /* what SendUserCascadeMessage asks for */
    struct str label; /* for people; the UID if the server gives none */
    int64_t number;   /* of the enum; 0: it has none */
    bool is_private;  /* a slot */
    bool is_new;
    bool disabled;
    struct str disabled_reason; /* may be empty */
};

/* In the server's order, but slots behind all others. */
struct cascade_models {
    const struct cascade_model *items;
    size_t n;
    struct str default_uid; /* the account's; empty: it has none, or none of the items */
};

/* A GetUserStatus answer, into the arena. Of entries with one UID the first counts. An entry
 * without a UID but with the number of a slot is that slot; one without either cannot be asked for
 * and is left out, as is one whose UID is malformed. ERR_SYNTAX, ERR_TOO_LARGE: see
 * cascade_messages.h; the latter also for more than CASCADE_MODELS_MAX entries. */
int cascade_models_read(struct arena *a, struct str bytes, struct cascade_models *out);

/* The model that is meant by a name: a UID, then a label (of either case; slots last), then a slot
 * without its prefix (`PRIVATE_2`). NULL: none. It may be disabled. */
const struct cascade_model *cascade_models_find(const struct cascade_models *m, struct str name);

#endif
