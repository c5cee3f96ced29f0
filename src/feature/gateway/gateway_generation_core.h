// SPDX-License-Identifier: Apache-2.0
/* gateway_generation_core.h -- what the parts of a generation share; gateway_generation.c has its
 * states. */
#ifndef FEATURE_GATEWAY_GATEWAY_GENERATION_CORE_H
#define FEATURE_GATEWAY_GATEWAY_GENERATION_CORE_H

#include "feature/gateway/gateway_core.h"
#include "feature/gateway/recorder.h"

enum generation_state { CREATING, ASKING, RECORDING, KEEPING, PASSING, ENDING };

struct generation {
    struct gateway_route *route;
    struct arena arena; /* of its texts */
    struct str id, name, chat;
    struct dialect_voice voice;
    bool chosen;                  /* the dialect, for good */
    bool is_response, unattended; /* as its order has it */
    enum generation_state state;
    struct generation_order *asker; /* NULL: it has been answered */
    struct link waiters;            /* of struct generation_waiter */
    struct link stoppers;           /* of struct generation_stopper */
    struct link seats;              /* of struct generation_seat */
    struct timer hold;              /* until it is open */
    struct timer alone;             /* nobody reads it: gateway_generation_readers.c */
    bool open;
    bool taken;     /* an event of the source, or its whole answer */
    bool abandoned; /* it ends since nobody reads it */

    struct generation_source *source; /* NULL: no more is wanted of it */
    struct recorder *recorder;
    struct pin start;          /* of those who wait for its beginning */
    uint32_t starting;         /* of them, until they read */
    struct presence *presence; /* NULL: nobody else shares the store */
    struct doc_put key;        /* to be taken back */
    struct store_put put;

    bool keeps;                     /* an answer that is no stream of events, too */
    struct source_head head;        /* of that, from KEEPING on; in the arena */
    struct buf kept;                /* it, as far as it has come: stored_answer.h */
    size_t kept_head, kept_counted; /* bytes of its head; of gateway.kept_bytes */
    uint64_t touched_ms;            /* its stream, which is empty until then */

    bool degraded, probes;   /* probes: it tries whether the store takes something again */
    struct forward *forward; /* PASSING, or degraded */
    struct task over;        /* of one that nobody takes, or that is degraded */
    enum end_reason end;
    int err; /* of the source */
    struct str message;
    struct account *lease; /* as its order has it */
    void (*ended)(struct account **lease);
};

/* ---- gateway_generation.c ---- */

/* Ends it; the message may belong to the source. */
void gateway_generation_end(struct generation *gen, enum end_reason reason, struct str message);
/* It has ended, and goes: of its recorder, and of those that have none. */
void gateway_generation_on_ended(void *ctx, enum end_reason end, int err);
void generation_free(struct generation *gen);

/* It ends without anything that anybody could have read. */
bool generation_is_nothing(const struct generation *gen);
/* Whoever asked, and all who wait, are told why. */
void generation_refuse_all(struct generation *gen);
/* Nobody finds it any more. */
void generation_leave_maps(struct generation *gen);
void generation_leave_chats(struct generation *gen);
void generation_drop_recording(struct generation *gen);

/* ---- gateway_generation_direct.c: what goes to who asked and nowhere else ---- */

/* An answer that is no stream of events begins; without a forward nobody is there for it. */
void generation_begin_passing(struct generation *gen, const struct source_head *head);
void generation_end_passing(struct generation *gen, int err);

/* Nothing of it will be kept, and whoever asked is told so with the answer. */
void generation_degrade(struct generation *gen);
/* Its events go to who asked from here on. */
void generation_begin_forward(struct generation *gen);
void generation_end_degraded(struct generation *gen);
void gateway_generation_on_over(struct task *t); /* for `over` */

/* ---- gateway_generation_kept.c: an answer that is no stream of events, and is kept ---- */

bool generation_keeps(const struct generation *gen, const struct source_head *head);
void generation_begin_keeping(struct generation *gen, const struct source_head *head);
bool generation_keep(struct generation *gen, struct str data); /* as source_events.data */
/* That was all of it: it is recorded, before anybody gets it. */
void generation_end_keeping(struct generation *gen);
void generation_drop_kept(struct generation *gen);

/* ---- gateway_generation_readers.c ---- */

void gateway_generation_on_alone(struct timer *t);
void generation_clear_seats(struct generation *gen);

#endif
