// SPDX-License-Identifier: Apache-2.0
/* cascade_core.h -- what the parts of the Cascade bridge share. */
#ifndef FEATURE_CASCADE_CASCADE_CORE_H
#define FEATURE_CASCADE_CASCADE_CORE_H

#include "base/gate.h"
#include "base/lane.h"
#include "base/list.h"
#include "base/map.h"
#include "base/sched.h"
#include "feature/cascade/cascade_discovery.h"
#include "feature/cascade/cascade_keys.h"
#include "feature/cascade/cascade_messages.h"
#include "feature/cascade/cascade_models.h"
#include "feature/cascade/cascade_turn.h"
#include "http/message.h"
#include "store/store.h"
#include "feature/gateway/gateway.h"

struct surface;
struct exchange;
struct fetcher;
struct http;
struct trace;

#define CASCADE_CHAT_PATH   "/v1/chat/completions"
#define CASCADE_MODELS_PATH "/v1/models"

#define CASCADE_TARGET_MAX  64

/* Kept by reference, but for the texts, which are copied. */
struct cascade_setup {
    struct sched *sched;
    struct store *store;
    struct fetcher *fetcher;
    struct lane *lane; /* of its own */
    const struct trace *trace;
    struct str target;                       /* http://ADDRESS:PORT; n == 0: to be found */
    struct str csrf_token, api_key, version; /* n == 0: to be found */
    const char *proc;                        /* "/proc" */
    const char *state_file;                  /* of the editor */
    uint64_t timeout_ms;                     /* of one answer */
    bool refuse_tools;                       /* requests that offer tools; else they are ignored */
};

/* Archives what an earlier process left behind. It has no route yet. */
struct cascade *cascade_new(const struct cascade_setup *setup);

/* Why something did not work, as its asker is told. */
struct cascade_fault {
    int status;               /* of HTTP */
    struct str code, message; /* code: a word in capitals */
};

/* Somebody who waits for something that several want. Called once, maybe before the call that asked
 * for it returns. fault == NULL: it is there. Whoever goes away removes the link. */
struct cascade_wait {
    struct link link;
    void (*done)(struct cascade_wait *w, const struct cascade_fault *fault);
};
void cascade_notify_all(struct link *waiters, const struct cascade_fault *fault);

/* In memory of base/secret.h. */
struct cascade_secrets {
    char csrf_token[CASCADE_CSRF_MAX + 1];
    char api_key[CASCADE_KEY_MAX + 1];
};

/* ---- cascade_upstream.c: calls ---- */

enum cascade_rpc {
    CASCADE_INITIALIZE,
    CASCADE_START,
    CASCADE_SEND,
    CASCADE_TRANSCRIPT,
    CASCADE_ARCHIVE,
    CASCADE_USER_STATUS,
};

/* One call of a language server. Zero-initialised; kept until done() or cascade_call_cancel. */
struct cascade_call {
    enum cascade_rpc rpc;
    struct str cascade_id, text, model_uid; /* those that it needs; copied by cascade_call_start */
    void (*done)(struct cascade_call *c,
                 int err); /* may start or free it; err as of rpc_client.h */
    /* out, lent until done() returns */
    struct str answer, message;
    int code;                  /* GRPC_*; 0: it went well */
    bool told;                 /* code and message are the server's */
    bool stranger;             /* another user's process was there, and was told nothing */
    struct cascade_sent *sent; /* private; NULL: it is not under way */
};

/* A call whose outcome many share. */
struct cascade_shared {
    struct link waiters; /* of struct cascade_wait */
    struct cascade_call call;
    bool under_way, done;
    uint32_t round; /* how often it was done */
};

/* A language server and the right to use it. Referenced by the bridge while it is the newest, and
 * by each flow and call that uses it. */
struct cascade_access {
    struct cascade *cascade;
    uint32_t refs;
    struct cascade_secrets *secrets;
    char target[CASCADE_TARGET_MAX];
    char version[CASCADE_VERSION_MAX + 1];
    bool found;         /* the target was; who listens there is looked at on each connection */
    struct header csrf; /* points to the secrets */
    struct cascade_shared panel;
    struct cascade_shared status; /* GetUserStatus */
    struct cascade_models models; /* with status.done; in the arena */
    struct arena arena;
    uint64_t models_ms; /* when they were asked for */
};

struct cascade {
    struct cascade_setup setup;
    struct lane *lane;           /* that of the setup, if it is ours; NULL: it is not */
    struct buf state_file;       /* the same */
    struct gateway_route *route; /* NULL: none */
    char target[CASCADE_TARGET_MAX], version[CASCADE_VERSION_MAX + 1];
    struct cascade_secrets *given; /* by the settings; empty texts: not given */
    struct cascade_access *access; /* the newest; NULL: to be looked for */
    bool recheck;                  /* ... which may have changed */
    struct cascade_lookup *look;   /* under way */
    struct link lookers;           /* of struct cascade_wait */
    struct map flows;              /* of struct cascade_flow, by the id of their Cascade */
    struct timer sweep;
    struct cascade_sweep *sweeping; /* under way */
    bool told_of_tools;             /* that they are ignored */
    uint64_t last_request_id;
    struct gate under_way; /* what stopping waits for; shut: it is stopping */
};

/* Around all that stopping has to wait for. */
static inline void cascade_begin(struct cascade *c)
{
    gate_enter(&c->under_way);
}
static inline void cascade_end(struct cascade *c)
{
    gate_leave(&c->under_way);
}
static inline bool cascade_is_stopping(const struct cascade *c)
{
    return gate_is_shut(&c->under_way);
}

/* ---- cascade_http.c: GET /v1/models, and what all answers have ---- */

extern const struct surface cascade_chat_surface, cascade_models_surface;
void cascade_mount(struct cascade *c, struct http *http);

/* ---- cascade_access.c: who is asked, and as whom ---- */

/* With done(NULL) c->access is there, until the turn of the loop is over. */
void cascade_want_access(struct cascade *c, struct cascade_wait *w);

struct cascade_access *cascade_access_ref(struct cascade_access *a);
void cascade_access_unref(struct cascade_access *a); /* NULL is fine */

/* It may not work any more: the next one who asks has it looked for anew. */
void cascade_access_recheck(struct cascade_access *a);

/* An editor that was started anew has another port, token or key, which shows when the old ones do
 * not work any more. Whoever has begun nothing yet tries once more with what is found now.
 * Zero-initialised. */
struct cascade_second_try {
    bool used;
    struct cascade_fault fault; /* why there is one: for those who find the same access again */
    struct arena arena;         /* of its texts; the owner frees it */
};

/* Whether to want an access once more, after a fault with this one. */
bool cascade_second_try(struct cascade_second_try *t, const struct cascade_access *a,
                        const struct cascade_fault *fault);

/* ---- cascade_upstream.c ---- */

void cascade_call_start(struct cascade_access *a, struct cascade_call *c);
void cascade_call_cancel(struct cascade_call *c); /* done() is not called */

/* Why a call has failed, without secrets; texts are lent until text is. An access that is no good
 * any more is doubted. */
void cascade_call_fault(struct cascade_access *a, const struct cascade_call *c, int err,
                        struct buf *text, struct cascade_fault *out);

/* The same of what was said in a transcript: e's text is in text, and stays there. */
void cascade_said_fault(struct cascade_access *a, const struct cascade_error *e, struct buf *text,
                        struct cascade_fault *out);

/* Whether nothing would change if it were asked to archive this once more: it is done, or refused
 * for reasons that stay. */
bool cascade_archive_settled(const struct cascade_call *c, int err);

/* InitializeCascadePanelState, once for an access. */
void cascade_want_panel(struct cascade_access *a, struct cascade_wait *w);

/* The panel of that round has lost its state. */
void cascade_panel_lost(struct cascade_access *a, uint32_t round);

/* a->models, not older than max_age_ms. */
void cascade_want_models(struct cascade_access *a, uint64_t max_age_ms, struct cascade_wait *w);

/* ---- cascade_flow.c: one answer ---- */

struct cascade_flow;

/* Nothing is called from within cascade_flow_new; from the others nothing is called either. */
struct cascade_flow_ops {
    void (*begun)(void *ctx, struct str model_uid); /* the message was taken */
    void (*event)(void *ctx, const struct cascade_turn_event *e);
    /* Behind the events of one poll. False: no more before cascade_flow_resume. */
    bool (*polled)(void *ctx);
    /* NULL: it is complete. The flow is its own from here on. */
    void (*end)(void *ctx, const struct cascade_fault *fault);
};

struct cascade_ask {
    struct str model, text; /* copied; model.n == 0: the account's */
    const struct cascade_flow_ops *ops;
    void *ctx;
};
struct cascade_flow *cascade_flow_new(struct cascade *c, const struct cascade_ask *ask);
void cascade_flow_resume(struct cascade_flow *f);

/* The caller wants no more of it. It archives what it has begun by itself. */
void cascade_flow_leave(struct cascade_flow *f);

/* ---- cascade_left.c: what was left behind ---- */

#define CASCADE_DOC_PREFIX "cascade/"

/* The value of the document that stands for a Cascade until it is archived: who began it. */
void cascade_doc_put(struct buf *out, int64_t wall_ms);

/* Archives what processes of this machine left that are no more, and what failed here. */
void cascade_sweep(struct cascade *c);

/* ---- cascade_chat.c: POST /v1/chat/completions ---- */

struct generation_source *cascade_chat_open(void *ctx, const struct source_order *o);

#endif
