// SPDX-License-Identifier: Apache-2.0
/* fold_core.h -- what the kinds of folds share. For src/feature/gateway/fold*.c only.
 *
 * A kind keeps its state behind `state` and everything it holds through the functions below, which
 * count it. When the limit is reached they set given_up and change nothing; a kind may go on with
 * the event as if nothing had happened, since its state is freed as soon as it returns. */
#ifndef FEATURE_GATEWAY_FOLD_CORE_H
#define FEATURE_GATEWAY_FOLD_CORE_H

#include "feature/gateway/fold.h"

struct fold_ops {
    const char *name;
    void *(*open)(void);
    void (*close)(void *state);
    /* data: not empty, not [DONE]. With `json` it is an object, checked, without line breaks. */
    void (*feed)(struct fold *f, struct str type, struct str data);
    /* Something was folded. */
    void (*put)(const struct fold *f, struct buf *out);
    /* May be NULL: all is in f->end. */
    bool (*is_complete)(const struct fold *f);
    bool json;
};

struct fold {
    const struct fold_ops *ops;
    void *state;
    size_t max, size;
    uint64_t skipped;
    bool folded; /* there is something to put */
    bool done;   /* [DONE] came */
    bool given_up;
    enum fold_end end;
    struct str error; /* owned */
    struct buf line;  /* an event without its line breaks */
};

extern const struct fold_ops fold_last_ops, fold_openai_ops, fold_ui_ops, fold_responses_ops,
    fold_anthropic_ops, fold_gemini_ops, fold_ag_ui_ops, fold_mcp_ops, fold_ndjson_ops;

/* Counts n bytes as held. false: they do not fit, the fold is given up. */
bool fold_hold(struct fold *f, size_t n);
void fold_release(struct fold *f, size_t n);

/* *slot, owned by the caller's state and freed with free(), becomes a copy of value. */
void fold_set(struct fold *f, struct str *slot, struct str value);
void fold_clear(struct fold *f, struct str *slot);
void fold_append(struct fold *f, struct buf *b, struct str s);
void fold_drop(struct fold *f, struct buf *b);

void fold_skip(struct fold *f);
void fold_ended(struct fold *f, enum fold_end end);

#endif
