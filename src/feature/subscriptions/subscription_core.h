// SPDX-License-Identifier: Apache-2.0
/* subscription_core.h -- what the parts of the subscriptions share; nobody else's business.
 *
 *   subscription.c        the set of subscriptions, and the calls
 *   subscription_index.c  which streams a subscription names, and what it has heard of them
 *   subscription_notice.c which streams have changed, and telling those whom it concerns
 *   subscription_load.c   keys and subscriptions from the store, at the start and again
 *   subscription_op.c    one thing done to one subscription, step by step
 *   subscription_look.c   which linked streams have something pending
 *   subscription_wake.c   beginning and ending wakes, and writing down what was decided
 *   subscription_lease.c  claim, ack, release, delivery: who has a wake
 *   subscription_edit.c   create, show, link, delete
 *
 * An *operation* loads the head, decides, and writes the head back under the version it had; if
 * that changed meanwhile it starts over. A subscription runs one operation at a time.
 *
 * A *hint* is a stream of which a subscription may have something pending. Hints come from the
 * store's notices and are checked against the store before anything is decided. One that got lost
 * does no harm if `behind` is set: then the links themselves are gone through.
 *
 *     LOADING --keys and heads are there--> READY --subscriptions_stop--> STOPPING
 *     LOADING --subscriptions_stop--------------------------------------> STOPPING */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_CORE_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_CORE_H

#include "base/buf.h"
#include "base/map.h"
#include "feature/subscriptions/subscription_doc.h"
#include "feature/subscriptions/subscription_patterns.h"
#include "store/store.h"

struct mac;
struct subop;

#define SUB_WORK       "subscriptions" /* for sched_work */
#define SUB_HINTS_MAX  16384           /* of one subscription; beyond: behind */
#define SUB_HINTS_ALL  131072          /* of all of them; beyond, SUB_HINTS_OWN of one */
#define SUB_HINTS_OWN  16
#define SUB_SLICE      256   /* nodes visited and subscriptions told before others may run */
#define SUB_NEWS_MAX   65536 /* names noted for those who do not listen, in all */
#define SUB_NEWS_OWN   1024  /* and of one pattern */
#define SUB_HEAR_MAX   1024  /* names in the queue that one subscription goes through at once */
#define SUB_LOOKS_MAX  32    /* subscriptions looked at on our own account at once */
#define SUB_PAGE       256   /* rows of the store at a time */
#define SUB_PUT_DOCS   64    /* links written at a time */
#define SUB_TRIES      16    /* of an operation that others overtake */
#define SUB_PAUSE_MS   1000  /* after the store failed */
#define SUB_SLACK_MS   5000  /* beyond a delivery's timeout before it counts as lost */
#define SUB_LISTED_MAX 100   /* a wake lists all links if there are no more than these */

struct subscriptions {
    struct sched *sched;
    struct store *store;
    struct store_watch watch;
    struct map by_id;    /* of struct subscription */
    struct link known;   /* the active ones, without those that a scan has yet to find again */
    struct link waiting; /* those with operations that wait for the load */
    struct map owners;   /* of struct sub_owner */
    bool watching;       /* every stream: while there is any subscription */
    struct sub_patterns patterns;
    struct map by_name; /* stream -> struct sub_bucket of ties */
    struct sub_notices {
        struct map names; /* the last of each in the queue, but for the one being dealt with */
        struct link queue;
        uint64_t number; /* of the last that came */
        uint64_t heard;  /* of the last that anybody has heard before its turn */
        struct task task;
        enum {
            SUB_NOTICES_IDLE,
            SUB_NOTICES_WALK,
            SUB_NOTICES_MEMBERS,
            SUB_NOTICES_TIES,
        } step;                  /* of the first in the queue */
        size_t found;            /* the pattern whose members are being told */
        struct link mark;        /* in those, or in the ties: behind those that were told */
        uint64_t touched;        /* subscriptions told, ever */
        uint64_t slices;         /* turns it took, ever */
        size_t n_news, news_max; /* SUB_NEWS_MAX, or less to test what then happens */
        size_t slice;            /* SUB_SLICE, or less */
    } notices;
    struct link want_look; /* waiting for their turn */
    uint32_t n_looks;
    size_t n_active;
    uint64_t n_ops;   /* queued or running */
    size_t hints_max; /* SUB_HINTS_MAX, or less to test what then happens */
    size_t hints_all; /* SUB_HINTS_ALL, or less */
    size_t n_hints;

    struct signer *signer;
    struct mac *tokens;
    enum { SUBSCRIPTIONS_LOADING, SUBSCRIPTIONS_READY, SUBSCRIPTIONS_STOPPING } phase;
    struct sub_load *load;
    uint64_t refresh_ms;
    struct subscription_notifier *notifier;

    void (*stopped)(void *ctx);
    void *stopped_ctx;
    struct task stop;
};

/* How many count under one owner. */
struct sub_owner {
    size_t count, n;
    char text[];
};

/* All who name one stream. */
struct sub_bucket {
    struct link members; /* those to be told */
    size_t n_ties;       /* all */
    size_t n;
    char key[];
};

/* A stream that a subscription names: one linked by name, or where its wakes go. */
struct sub_tie {
    struct link in_bucket;
    struct sub_bucket *bucket;
    struct subscription *sub;
    bool is_wake_stream;
};

struct sub_hint {
    struct link link;                  /* in hints, in pending, or in an operation's batch */
    struct subscription_stream stream; /* as of the last check */
    bool changed;                      /* since that began */
    char name[];
};

/* The delivery of the wake that is under way: whether this process may try it before its time. */
enum sub_delivery {
    SUB_DELIVERY_OTHERS,
    SUB_DELIVERY_OURS, /* the wake began here, and its delivery has not been given away yet */
    SUB_DELIVERY_LOST, /* it may have died with an earlier process */
};

struct subscription {
    struct subscriptions *all;
    struct str id, head_key, link_prefix; /* owned */
    struct link ops;                      /* the first one runs */
    bool running;

    /* a copy of what the store had at `version` */
    bool active;
    uint64_t version, edits;
    enum subscription_type type;
    enum subscription_state state;
    struct str pattern, wake_stream; /* owned */
    struct str receiver;             /* host and port of the webhook; owned */
    struct sub_owner *owner;         /* also while it is being created; NULL: none */
    bool sealed;

    struct link in_pattern;
    struct sub_pattern *in; /* NULL: it has no pattern */
    bool listening;         /* it is told what its pattern matches; otherwise it hears the news */
    struct map ties;        /* of streams linked by name */
    size_t n_explicit;      /* those */
    struct sub_tie *wake_tie;
    uint64_t heard; /* the last notice that it need not be told */
    struct map hint_map;
    struct link hints;   /* to be checked */
    struct link pending; /* checked: acknowledged positions lie before the tails */
    bool behind;
    bool blocked; /* the wake stream could not take a wake when last asked; until it changes */
    bool paused;  /* the store failed; the timer tries again */
    enum sub_delivery delivery;
    struct link scanned; /* in all->known, or among those that the scan has not found */
    struct link waiting; /* for the load */

    struct timer timer; /* lease, retry, pause */
    struct link want_look;
    bool looking; /* a look is queued or runs */
};

/* ---- the set (subscription.c) ---- */

/* The one of that id, or a new one of which nothing is known. It goes when it has no operations,
 * waits for none, and is not active. */
struct subscription *sub_of(struct subscriptions *s, struct str id);
void sub_drop_if_unused(struct subscription *sub);

/* Takes over what the head says. NULL: there is none. */
void sub_adopt(struct subscription *sub, const struct subscription_head *h, uint64_t version);
/* It counts under this owner from now on; how many do, those that are being created among them. */
void sub_set_owner(struct subscription *sub, struct str owner);
size_t subs_owned(const struct subscriptions *s, struct str owner);
/* It is in the store: the scan of heads under way has found it. */
void sub_seen(struct subscription *sub);
/* From here on notices of streams are kept for it. */
void sub_activate(struct subscription *sub, const struct subscription_head *h);

/* A look, when its turn comes; _settle: if there is a reason for one. */
void sub_want_look(struct subscription *sub);
void sub_settle(struct subscription *sub);
void sub_start_looks(struct subscriptions *s); /* those that wait for their turn, if it has come */
void sub_deliver(struct subscription *sub);

/* After an operation has ended, or a load: the stop may be complete. */
void sub_check_stop(struct subscriptions *s);

/* ---- the index (subscription_index.c) ---- */

void sub_index_init(struct subscriptions *s);
void sub_index_deinit(struct subscriptions *s);
void sub_index_add(struct subscription *sub);
void sub_index_remove(struct subscription *sub);

/* Whether the pattern links this stream; _may: if it matches it at all. */
bool sub_matches(const struct subscription *sub, struct str name);
bool sub_may_match(const struct subscription *sub, struct str name);

/* Links by name, as far as they are known here. _tie: once or again. */
void sub_tie(struct subscription *sub, struct str name);
void sub_untie(struct subscription *sub, struct str name);
bool sub_is_tied(struct subscription *sub, struct str name);
void sub_bucket_drop_if_empty(struct map *m, struct sub_bucket *b);

/* The stream is about to be checked: whatever happens to it from now on is to be told. */
void sub_tie_listen(struct subscription *sub, struct str name);

/* Puts the stream among those to be checked: in `to`, unless it is on some list already. False:
 * there is no room, and it is behind. */
bool sub_hint(struct subscription *sub, struct str name, struct link *to);
void sub_hint_free(struct subscription *sub, struct sub_hint *hint);
/* What was checked must be checked again. */
void sub_recheck_hints(struct subscription *sub);

/* ---- notices (subscription_notice.c) ---- */

void sub_notices_init(struct subscriptions *s);
void sub_notices_stop(struct subscriptions *s); /* forgets those that are left */
void sub_notices_changed(struct store_watch *w, struct str name);
/* Hints of what it was not told because it did not listen. _queue: and of all that nobody was told
 * yet. */
void sub_hear(struct subscription *sub);
void sub_hear_queue(struct subscription *sub);
/* It listens from now on; before that it hears what it missed. */
void sub_listen(struct subscription *sub);
/* It has a pattern no more. */
void sub_unlisten(struct subscription *sub);

/* ---- loading (subscription_load.c) ---- */

void sub_load_new(struct subscriptions *s); /* and starts */
void sub_load_free(struct subscriptions *s);
bool sub_load_busy(const struct subscriptions *s);
void sub_load_again(struct subscriptions *s, uint64_t delay_ms);
void sub_load_stop(struct subscriptions *s);
/* Somebody waits: if the last load failed, the next is due now. */
void sub_load_retry_now(struct subscriptions *s);

/* ---- operations (subscription_op.c) ---- */

typedef void subop_next(struct subop *j);
typedef void subop_step(struct subop *j, int err);

struct subop_acked {
    struct str stream;
    struct offset acked, tail;
};

/* A page of links or of streams, as far as a look needs it. */
struct subop_page {
    struct arena arena;
    struct subop_row {
        struct str name;
        struct subscription_link link; /* of a link */
        struct offset tail;            /* of a stream */
    } * rows;
    size_t n, at;     /* behind those that were looked at */
    bool more;        /* there are others behind it */
    struct buf after; /* the last row of the page, then */
};

struct subop {
    struct link link; /* in sub->operations */
    struct task task;
    struct subscription *sub;
    struct subscription_call *call; /* NULL: a look of our own */
    subop_next *begin;              /* when the head is loaded */
    int tries;

    subop_step *then; /* when the store has answered */
    subop_next *good; /* when it did so as it should */
    subop_next *link_then;
    union {
        struct store_docs docs;
        struct store_stat stat;
        struct store_list list;
        struct store_put put;
        struct store_write write;
    } op;
    struct buf key; /* of a document being read */

    /* from here on: of one try */
    struct arena arena;
    bool exists; /* the head does */
    struct subscription_head head;
    uint64_t version;

    /* the link last read */
    bool linked;
    struct subscription_link link_doc;
    uint64_t link_version; /* 0: no document; may be there without being a link (another birth) */

    /* going through hints, links, streams */
    subop_next *next;  /* when through */
    struct link batch; /* of hints */
    struct sub_hint *hint;
    enum { SUBOP_NO_PAGES, SUBOP_MERGE, SUBOP_TIES } pages;
    struct subop_page links, streams;
    struct buf after; /* the last row of the page */
    struct arena page;
    struct store_row *rows; /* of the page, in its arena */
    size_t n_rows, at;
    bool clean; /* there are no links yet but those this operation writes */

    /* what will be written */
    struct doc_put *puts;
    size_t n_puts, max_puts;
    struct buf head_text, event; /* event.n > 0: into the wake stream, with the rest */
    bool woke, changed;
    subop_next *committed;

    /* acks */
    const struct subscription_ack *acks;
    size_t n_acks;
    bool lenient; /* what does not fit is left out */
    struct subop_acked *acked;
    size_t n_acked;
    int refusal; /* given once all is written */
};

void subop_add(struct subscription *sub, struct subscription_call *call, subop_next *begin);
void subop_run(struct subscription *sub); /* the first of the queue, if none runs */
void subop_end(struct subop *j, int result);
void subop_end_well(struct subop *j);
void subop_retry(struct subop *j);
void subop_again(struct subop *j); /* the same, but as intended */
/* Ends those that do not run. */
void subop_cancel_all(struct subscription *sub, int result);

/* Operations of the store: `then` goes on when they are done, unless the server is stopping.
 * Results are in j->op until the next is started. Texts must live until then. A read that fails
 * ends the operation; a stream that is not there is one whose life is 0. */
void subop_docs(struct subop *j, struct str prefix, struct str after, size_t limit,
                subop_next *then);
void subop_doc(struct subop *j, struct str key, subop_next *then); /* one row, or none */
void subop_stat(struct subop *j, struct str name, subop_next *then);
void subop_list(struct subop *j, struct str prefix, struct str after, size_t limit,
                subop_next *then);
void subop_put(struct subop *j, const struct doc_put *docs, size_t n, subop_step *then);
/* The same, but who is overtaken starts over, and other failures end the operation. */
void subop_put_or_retry(struct subop *j, const struct doc_put *docs, size_t n, subop_next *then);
void subop_write(struct subop *j, struct str stream, struct str event, const struct doc_put *docs,
                 size_t n, subop_step *then);

/* Reads the document of a link into linked, link_doc and link_version. */
void subop_read_link(struct subop *j, struct str name, subop_next *then);

/* Room for n puts, none yet; adds one (the key's name and the link are copied). */
void subop_puts(struct subop *j, struct arena *a, size_t n);
void subop_put_link(struct subop *j, struct arena *a, struct str name,
                    const struct subscription_link *link); /* NULL: remove */

/* ---- steps ---- */

/* Checks all hints, then goes on: sub->pending is what has something pending. */
void subop_look(struct subop *j, subop_next *next);

/* A lease that is over is none. */
void subop_lapse(struct subop *j);
void subop_end_wake(struct subop *j);
void subop_new_generation(struct subop *j);
void subop_take_snapshot(struct subop *j);
/* If something is pending, and the wake stream (if any) can take it, the head becomes WAKING. */
void subop_wake_if_pending(struct subop *j, subop_next *next);
/* Writes the puts and the head, and the event if there is one; all or nothing. */
void subop_commit(struct subop *j, subop_next *committed);
/* Whether the event has a subscription that can be used; otherwise the operation has ended. */
bool subop_require_active(struct subop *j);
/* The same, and that the caller may know of it. */
bool subop_require_shown(struct subop *j);
bool subop_is_hidden(const struct subop *j);
/* The caller has the right to it, and to all that it links by name. */
bool subop_is_allowed(const struct subop *j);

void subop_begin_look(struct subop *j);
void subop_delete_rest(struct subop *j, subop_next *next);
void subop_fill_view(struct subop *j);
int64_t subop_now(const struct subop *j);

int sub_offset_cmp(struct offset a, struct offset b);

#endif
