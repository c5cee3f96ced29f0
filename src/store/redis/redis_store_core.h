// SPDX-License-Identifier: Apache-2.0
/* redis_store_core.h -- what the parts of the store on Redis share: redis_store.c has the whole and
 * its single operations, redis_op.c sends and repeats them, redis_args.c writes them down,
 * redis_list.c has the listings, redis_watch.c the wake-ups. What a cluster needs besides is in
 * redis_steps.c (operations that take several) and redis_family.c (where forks are). */
#ifndef STORE_REDIS_REDIS_STORE_CORE_H
#define STORE_REDIS_REDIS_STORE_CORE_H

#include "base/arena.h"
#include "base/map.h"
#include "store/redis/client/redis.h"
#include "store/redis/redis_store.h"
#include "store/watchers.h"

#define SPACE_MAX        64 /* characters of a prefix */
#define REDIS_PROCESS    16 /* characters: who published a wake-up */
#define REDIS_SWEEP      64 /* names swept at a time */
#define REDIS_TAG_WRITES 64 /* writes of one tag under way at a time; Redis remembers as many */

struct rstore_scripts {
    struct redis_script write, remove, read, stat, put, sweep, place, announce, forget, trim;
};
extern const struct rstore_scripts rstore_scripts;

struct redis_store {
    struct store store;
    struct sched *clock; /* of tests; NULL: the time is Redis's */
    struct loop *loop;
    struct redis *redis;
    struct redis *asked; /* with `wait`, for what needs no replicas: a WAIT holds everything up that
                            stands behind it on its connection. Otherwise the same one */
    struct watchers watchers;
    void (*changed)(void *ctx, bool up, struct str why);
    void *ctx;
    char prefix[SPACE_MAX + 2]; /* of keys and channels; with its colon, or empty */
    char process[REDIS_PROCESS];
    uint64_t next_op;
    unsigned wait; /* replicas */
    bool cluster;
    bool subscribed_all; /* of every stream; said to others on a cluster */
    bool says_all;       /* on a cluster: somebody wants to hear of every stream */
    unsigned all_ticks;
    struct map tag_writes;
    struct map
        families; /* on a cluster: of struct redis_family, for forks and streams that are watched */
    size_t n_hints;
    struct timer sweep;
    unsigned n_sweeping; /* calls of it under way */
    bool sweep_more;     /* there is more to be swept */
    enum {
        RESCAN_NONE,
        RESCAN_RUNNING,
        RESCAN_AGAIN, /* and asked for once more */
    } rescan;
    int refusal; /* why the last write was not taken; 0: it was */
    char refusal_why[160];
    bool probing;
    uint64_t heeds_own_ms; /* until then; messages of our own, that is: see rstore_on_message */
    bool stopping;
    size_t n_ops;
    void (*stopped)(void *stopped_ctx);
    void *stopped_ctx;
};

/* One call of a script or a command on behalf of an operation of the store. */
struct rop {
    struct redis_store *rs;
    const struct redis_script *script; /* NULL: a command */
    struct arena arena;                /* of all texts */
    struct str *args;
    size_t n_args, cap_args, n_keys;
    void (*fill)(struct rop *r); /* writes them; again when it turns out where the stream is */
    struct str name;             /* of the stream; p == NULL: it is about none */
    struct str family;           /* on a cluster: the tag it is kept under; p == NULL: its own */
    bool is_guess;               /* so it was lately */
    struct str nonce;            /* of what was said of that */
    bool moves;                  /* to be asked for elsewhere */
    unsigned hops;
    struct str tag; /* what it changes; p == NULL: nothing that must not happen twice */
    char op[8];     /* its number */
    uint64_t deadline_ms;
    bool doubtful; /* it may have been done */
    struct redis_call call;
    struct redis_call waits; /* for replicas */
    struct str wait_args[3];
    int sent_err, err, waits_err;
    char said[160]; /* why it was refused, in Redis's words; empty: it was not */
    unsigned n_under_way;
    struct link tag_link;
    struct tag_writes *writes;
    struct timer retry;
    /* A reply that is no error: 0, or what it means. Copies what finish() needs. */
    int (*take)(struct rop *r, const struct redisReply *reply);
    /* It is over; the rop is freed afterwards. */
    void (*finish)(struct rop *r, int err);
    void *of;                  /* the store's operation */
    const struct doc_put *doc; /* that it asks about */
};

/* ---- redis_store.c ---- */

/* A call of the sweep is over. */
void rstore_swept(struct redis_store *rs);

/* ---- redis_args.c ---- */

/* With what to do; of: what it is done for. */
struct rop *rop_new(struct redis_store *rs, const struct redis_script *script, void *of,
                    int (*take)(struct rop *r, const struct redisReply *reply),
                    void (*finish)(struct rop *r, int err));
void rop_free(struct rop *r);
void rop_arg(struct rop *r, struct str text);
void rop_arg_u64(struct rop *r, uint64_t v);

/* Texts one behind the other, whatever bytes they are of. */
struct str rstore_join(struct arena *a, const struct str *parts, size_t n);
#define JOIN(a, ...)                                                                               \
    rstore_join(a, (const struct str[]){__VA_ARGS__},                                              \
                sizeof(const struct str[]){__VA_ARGS__} / sizeof(struct str))

/* What shares a slot with a stream of this name; of a document with this key. */
struct str rstore_tag(struct arena *a, struct str name);
struct str rstore_doc_tag(struct arena *a, struct str key);
struct str rstore_doc_key(struct redis_store *rs, struct arena *a, struct str key);
struct str rstore_index(struct redis_store *rs, struct arena *a, const char *index);
struct str rstore_channel(struct redis_store *rs, struct arena *a, struct str tag, struct str name);

/* The arguments of each script. Those of streams go where r->family says. */
void args_write(struct rop *r, const struct store_write *w, bool confirm, bool bad_docs);
void args_remove(struct rop *r);
void args_read(struct rop *r, const struct store_read *rd);
void args_stat(struct rop *r, const struct str *names, size_t n);
/* Again: those that are written already are fine. */
void args_put(struct rop *r, const struct doc_put *docs, size_t n, bool again);
void args_sweep(struct rop *r, unsigned limit);
void args_trim(struct rop *r);
void args_place(struct rop *r, const char *what, struct str family, struct str nonce,
                struct str stale);
/* Those that all scripts have, for one that works on the index. */
void args_index(struct rop *r);
void args_forget(struct rop *r, const char *index, struct str name, struct str member,
                 struct str seen);

/* ---- redis_op.c ---- */

/* take() and finish() come later. */
void rop_send(struct rop *r);

/* Nothing is under way any more: ends the connections, and then tells. */
void rstore_disconnect(struct redis_store *rs);

/* Of a reply that is an array; what is missing or of another type is zero or empty. */
const struct redisReply *reply_item(const struct redisReply *array, size_t i);
uint64_t reply_u64(const struct redisReply *array, size_t i);
int64_t reply_i64(const struct redisReply *array, size_t i);
struct str reply_str(const struct redisReply *array, size_t i);

/* 0 or the error that a script's status means; ERR_IO: none of ours. */
int reply_status(struct str status);

/* False: it is none. The content type goes to the arena. */
bool reply_info(struct arena *a, const struct redisReply *array, struct stream_info *out);

/* The results of a write. */
int reply_write(struct rop *r, const struct redisReply *reply, struct store_write *w);

/* ---- redis_list.c ---- */

void rstore_list(struct redis_store *rs, struct store_list *l);
void rstore_docs(struct redis_store *rs, struct store_docs *d);

/* Tells those who watch every stream of each, a few at a time; nothing if that is under way. */
void rstore_rescan(struct redis_store *rs);

/* ---- redis_watch.c ---- */

void rstore_watch(struct store *s, struct store_watch *w);
void rstore_unwatch(struct store *s, struct store_watch *w);
void rstore_on_message(void *ctx, struct str channel, struct str payload);
void rstore_on_missed(void *ctx, struct str channel);

/* ---- redis_family.c ---- */

/* Where the stream of this name is kept, if not under its own tag; p == NULL: not known. Lent. */
struct str redis_family_of(struct redis_store *rs, struct str name);
void redis_family_learn(struct redis_store *rs, struct str name, struct str family);
void redis_family_forget(struct redis_store *rs, struct str name);

/* While a stream is watched, the channel of its family is subscribed to as well. */
void redis_family_watch(struct redis_store *rs, struct str name);
void redis_family_unwatch(struct redis_store *rs, struct str name);
void redis_family_deinit(struct redis_store *rs);

/* ---- redis_steps.c ---- */

void steps_write(struct redis_store *rs, struct store_write *w);
void steps_remove(struct redis_store *rs, struct store_remove *rm);
void steps_put(struct redis_store *rs, struct store_put *p);
void steps_sweep(struct redis_store *rs);

#endif
