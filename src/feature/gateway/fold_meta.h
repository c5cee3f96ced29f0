// SPDX-License-Identifier: Apache-2.0
/* fold_meta.h -- one JSON value made of many, each merged into it.
 *
 * Where both have an object, the members are merged, and so on downwards; anything else takes the
 * place of what was there. Names that a JavaScript reader would take for more than data
 * (__proto__, constructor, prototype) are not merged in.
 *
 * A tree, so that merging costs what is merged and not what is there already. An object is only
 * taken apart when something is merged into it. */
#ifndef FEATURE_GATEWAY_FOLD_META_H
#define FEATURE_GATEWAY_FOLD_META_H

#include "base/map.h"
#include "feature/gateway/fold_core.h"

struct fold_meta {
    struct map by_path;          /* every node but the root: its parent's id, then its name */
    struct fold_meta_node *root; /* NULL: no value yet */
    uint64_t ids;
};

void fold_meta_init(struct fold_meta *m);
void fold_meta_deinit(struct fold_meta *m);

/* As deinit and init, and what was held is released. */
void fold_meta_reset(struct fold *f, struct fold_meta *m);

/* value: of an event, checked and without line breaks. */
void fold_meta_merge(struct fold *f, struct fold_meta *m, struct str value);

void fold_meta_put(const struct fold_meta *m, struct buf *out);

#endif
