// SPDX-License-Identifier: Apache-2.0
/* recorder.h -- puts one generation into its stream, event by event, and ends it.
 *
 * A stored event is what readers send as it is: a block of SSE, or a line.
 *
 *     id: ID LF  [event: TYPE LF]  data: LINE LF ...  LF     TYPE left out when it is `message`
 *                [event: TYPE LF]  data: LINE LF ...  LF     in the bare form
 *     DATA LF                                                in the form of lines
 *
 * ID is N or GENERATION:N. N counts from 1: the event's ordinal in the stream, plus one. A stream
 * that ended as END_FAILED, and no other, has one more stored event behind those, the notice that
 * says why:
 *
 *     : MESSAGE LF LF
 *
 * At most one write of the store is under way (writer.h); what comes meanwhile goes into the next
 * one, so a fast upstream makes larger writes, not more of them. A write expects the tail that the
 * last one left: should anybody else append to the stream, the numbers would not hold any more, and
 * the generation fails instead. Should anybody else close it, it ends as it was closed, with the
 * events that it has.
 *
 * If the stream is bounded, a write waits until it does not trim what a subscriber in this process
 * has yet to read (pins.h), and takes no more events than that allows; what comes meanwhile is
 * pending. A subscriber that makes it wait for reader_timeout_ms is cut off. An end that is not the
 * upstream's own (cancelled, orphaned) does not wait: events that cannot be written then are
 * dropped, as if it had come before them.
 *
 * With a fold (fold.h) the durable events are folded as well, and when the generation ends the
 * result is written to a stream of its own before the generation's is closed: NAME `.snapshot`,
 * application/json, one event (stored with the comma that JSON streams have behind each), closed
 * with the same reason.
 *
 * A store that is full, overloaded or away is asked again for RECORDER_RETRY_FOR_MS. Then the
 * events that it did not take are lost, and the generation ends as END_FAILED; if there is no room
 * even for the notice, as END_ORPHANED. What was recorded stays.
 *
 * Loop thread only. No callback is called from within a function of the recorder; each of these may
 * be called from every callback. */
#ifndef FEATURE_GATEWAY_RECORDER_H
#define FEATURE_GATEWAY_RECORDER_H

#include "base/buf.h"
#include "feature/gateway/fold.h"
#include "stream/pins.h"
#include "store/store.h"

#define RECORDER_SNAPSHOT_SUFFIX ".snapshot"
#define RECORDER_NAME_MAX        (STORE_NAME_MAX - (sizeof RECORDER_SNAPSHOT_SUFFIX - 1))
#define RECORDER_CONTENT_TYPE    "text/event-stream"

#define RECORDER_TYPE_MAX        255
#define RECORDER_MESSAGE_MAX     1024 /* of a notice; a longer one is cut */
#define RECORDER_RETRY_FOR_MS    30000
#define RECORDER_FOLD_MAX        (1024 * 1024) /* the defaults */
#define RECORDER_EVENT_MAX       (1024 * 1024)
#define RECORDER_PENDING_MAX     (256 * 1024)

/* What the store's bounds have taken off the front of the stream. */
struct recorder_trim {
    uint64_t events, bytes;           /* that went now */
    uint64_t first_event;             /* ordinal of the first that is left */
    uint64_t kept_events, kept_bytes; /* that are left */
};

/* How events are stored. */
struct recorder_form {
    bool lines;            /* the data alone, each on one line; types are not kept */
    bool bare;             /* without ids */
    struct str generation; /* n > 0: it stands in ids */
};

/* started and ended are needed, the others may be NULL. */
struct recorder_callbacks {
    /* The stream is there, and the documents with it; or why neither is: ERR_VERSION, ERR_EXISTS
     * and whatever else a write can fail with. After an error nothing else is called. */
    void (*started)(void *ctx, int err);
    /* Events of one write are durable. */
    void (*recorded)(void *ctx, uint64_t n_events, uint64_t bytes, uint64_t took_ms);
    /* recorder_event said to wait, and the pending events are below half of their bound again. */
    void (*room)(void *ctx);
    void (*trimmed)(void *ctx, const struct recorder_trim *t);
    void (*cut)(void *ctx, uint64_t n_readers);  /* they held it up for too long, and are gone */
    void (*snapshot)(void *ctx, uint64_t bytes); /* it is durable */
    /* The last call. 0: the stream is closed, and that is durable, with this reason; it may be
     * another one than was asked for, if the store did not take all events. An error: the stream
     * is gone (NOT_FOUND, DELETED), was closed by somebody else (CLOSED, with the reason given
     * there), or the store did not let it be closed. */
    void (*ended)(void *ctx, enum end_reason end, int err);
};

/* Copied, with all it points to but ctx. */
struct recorder_config {
    struct str name; /* at most RECORDER_NAME_MAX bytes */
    int64_t ttl_s;
    struct retain retain;
    const struct doc_put *docs; /* written with the stream, or neither is */
    size_t n_docs;
    struct recorder_form form;
    bool folds;
    enum fold_kind fold;
    int64_t snapshot_ttl_s;       /* how long the snapshot outlives the events */
    size_t fold_max;              /* these three: 0 for the default */
    size_t event_max;             /* bytes of one stored event */
    size_t pending_max;           /* bytes that wait for the write under way */
    uint64_t create_retry_for_ms; /* with a store that does not answer when asked for the stream */
    struct map *pins;             /* of feeds; NULL: writes wait for nobody */
    uint64_t reader_timeout_ms;   /* with pins */
    struct recorder_callbacks on;
    void *ctx;
};

struct recorder;

/* Creates the stream: started() comes. Events may be given at once. */
struct recorder *recorder_new(struct sched *sched, struct store *store,
                              const struct recorder_config *config);

/* Nothing is called any more, and nothing more is written than what is under way, for which the
 * store must stay; a stream that has not ended stays open. NULL is fine. */
void recorder_free(struct recorder *r);

/* Others than the config's, which are known by now. Before the first event. */
void recorder_settle(struct recorder *r, const struct recorder_form *form, enum fold_kind kind);

/* One event of the upstream, lent for the call. Its data is split where SSE ends lines (LF, CR,
 * CRLF); an empty type means `message`. 1: taken. 0: taken, and no more should come before room().
 * Otherwise it was not taken: ERR_SYNTAX (NUL, CR or LF in the type), ERR_TOO_LARGE (a type above
 * RECORDER_TYPE_MAX, or larger than event_max), ERR_CLOSED (it has ended, or is about to). */
int recorder_event(struct recorder *r, struct str type, struct str data);

/* Instead of events: all that there is, stored as one event as it is, neither numbered nor folded.
 * There is no snapshot then. Takes the bytes. */
void recorder_take_whole(struct recorder *r, struct buf *bytes);

/* Ends the stream behind all events that were taken. The message is for END_FAILED alone and
 * becomes one line. The first call counts. */
void recorder_end(struct recorder *r, enum end_reason reason, struct str message);

/* If its end waits for readers, it waits no more: it ends like this (cancelled or orphaned),
 * without the events that waited. */
void recorder_end_now(struct recorder *r, enum end_reason reason);

/* The stream was removed: nothing is to be left of it. */
void recorder_skip_snapshot(struct recorder *r);

/* Holds the beginning of the stream for a reader that is still to come, until pin_remove. */
void recorder_pin(struct recorder *r, struct pin *pin);

/* Events that are durable: the number of the last one. */
uint64_t recorder_seq(const struct recorder *r);

/* Appends the fold of the durable events, with the number of the last of them. ERR_NOT_FOUND: no
 * fold was asked for; otherwise as fold_put. */
int recorder_snapshot(const struct recorder *r, struct buf *out, uint64_t *seq);

/* One event as it is stored, of a valid type; number 0: without a number. */
void recorder_put_event(struct buf *out, const struct recorder_form *form, uint64_t number,
                        struct str type, struct str data);

/* A stored block back into its type and data. Data of one line, the rule, is lent from `stored`;
 * otherwise it is put together in *lines. */
struct str recorder_event_data(struct str stored, struct str *type, struct buf *lines);

/* The message in a stored event that is a notice; empty if it is none. */
struct str recorder_notice(struct str stored);

#endif
