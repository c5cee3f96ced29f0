// SPDX-License-Identifier: Apache-2.0
/* log_keys.h -- which appends a log has taken under an idempotency key.
 *
 * The log's file is others' as well and holds lines alone. So keys have a file of their own beside
 * it, PATH.keys. An append under a key takes these steps, all under the log's lock:
 *
 *     1. log_keys_intend   key, digest of the lines, where the log ends; on the disk when it
 * returns
 *     2. the lines         on the disk as well
 *     3. log_keys_put      key, digest of the lines, where they stand
 *
 * Whoever dies in between leaves an intent without its note. The next append of ours, with a key or
 * without, looks first whether the lines stand behind the place that the intent names, and writes
 * the note or forgets the intent. So neither a key nor its lines are ever there alone.
 *
 * The last two intents are kept: the note of the one before the last is on the disk, since the last
 * one is. That saves a wait for the disk.
 *
 * Any thread; who calls holds the log's lock. */
#ifndef FEATURE_LOGS_LOG_KEYS_H
#define FEATURE_LOGS_LOG_KEYS_H

#include "base/sha256.h"
#include "feature/logs/log_id.h"

#define LOG_KEYS_SUFFIX  ".keys"
#define LOG_KEYS_WAYS    32   /* notes that share a block; of more the oldest is dropped */
#define LOG_KEYS_BLOCKS  8192 /* so 262,144 notes at most, in 32 MiB */
#define LOG_KEYS_INTENTS 2

struct log_key_entry {
    uint8_t key[SHA256_SIZE];  /* of the key itself */
    uint8_t body[SHA256_SIZE]; /* of the lines as they were written */
    struct log_id id;
    uint64_t start, next; /* cursors. Of an intent: where the file ended, and that plus the lines */
    uint32_t first;       /* bytes of the first line. Of an intent, 0: nothing came of it */
    int64_t at_ms;        /* wall clock */
    uint64_t serial;      /* counts intents; 0: there is none here */
};

struct log_keys {
    int fd;    /* -1: no such file, and so no keys */
    bool made; /* by this call, maybe: its folder has to be on the disk before the first intent */
    struct log_key_entry intents[LOG_KEYS_INTENTS];
};

/* Opens the keys of the log under this path; `make`: makes the file if need be. ERR_IO, ERR_FULL,
 * ERR_CORRUPT (somebody else's file). */
int log_keys_open(struct log_keys *k, const char *log_path, bool make);
void log_keys_close(struct log_keys *k);

/* An intent whose outcome nobody has noted; NULL: there is none. */
struct log_key_entry *log_keys_open_intent(struct log_keys *k);
int log_keys_forget(struct log_keys *k, struct log_key_entry *intent);

/* ERR_NOT_FOUND: no note of this key that is younger than its lifetime. */
int log_keys_find(struct log_keys *k, const uint8_t key[SHA256_SIZE], uint64_t lifetime_ms,
                  int64_t now_ms, struct log_key_entry *out);

/* Sets n->serial. There is no open intent. 0: it is on the disk. */
int log_keys_intend(struct log_keys *k, struct log_key_entry *n);

/* *dropped: a note that was younger than its lifetime had to go. */
int log_keys_put(struct log_keys *k, const struct log_key_entry *n, uint64_t lifetime_ms,
                 int64_t now_ms, bool *dropped);

#endif
