// SPDX-License-Identifier: Apache-2.0
/* gateway_dialect_core.h -- the rows of the table of dialects. For gateway_dialect*.c only. */
#ifndef FEATURE_GATEWAY_GATEWAY_DIALECT_CORE_H
#define FEATURE_GATEWAY_GATEWAY_DIALECT_CORE_H

#include "feature/gateway/gateway_dialect.h"

struct dialect_notice {
    const char *name;   /* as an event */
    const char *member; /* as a member of something else, and as a comment */
    struct str payload; /* JSON on one line */
    uint64_t seq;       /* of the last event in the payload */
    bool has_seq;
};

struct dialect {
    const char *name;
    enum dialect_form form;
    enum fold_kind fold;
    struct dialect_header header;
    bool has_done;     /* answers end with [DONE] */
    bool events;       /* notices have names and are events */
    bool counts_error; /* the error that ends an answer has an id, behind the last event's */
    void (*put_notice)(struct buf *out, const struct dialect_voice *v,
                       const struct dialect_notice *n);
    /* Makes the client stop, and fail. */
    void (*put_error)(struct buf *out, const struct dialect_voice *v,
                      const struct dialect_problem *p);
    void (*put_body)(struct buf *out, const struct dialect_voice *v,
                     const struct dialect_problem *p);
    /* An end that was asked for. NULL: it is an error. */
    void (*put_cancelled)(struct buf *out);
    /* A payload that stands for the events it was folded from. NULL: none can. */
    void (*put_payload)(struct buf *out, struct str payload);
};

extern const struct dialect dialects[ROUTE_DIALECTS];

#define DIALECT_DONE STR("data: [DONE]\n\n")

void dialect_put_member(struct buf *out, const char *name, struct str value);
void dialect_put_number(struct buf *out, const char *name, uint64_t value);

#endif
