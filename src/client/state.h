// SPDX-License-Identifier: Apache-2.0
/* state.h -- what a session needs to go on, in memory and in a directory.
 *
 * A directory of saved state holds, all of it readable for its owner alone:
 *
 *     .tidemark-key           32 random bytes, made with the first state; also what sessions in
 *                             use are locked by, a byte range each
 *     SHA256HEX.json          a session: the name is the hash of its idempotency key
 *     SHA256HEX.json.tmp      one that was being written
 *     SHA256HEX.json.refused  one that was not what was written
 *
 * A session's file is one line of JSON, with these members in this order:
 *
 *     idempotencyKey, idempotencyEventId ("0": none), idempotentEncryptionKey (base64url),
 *     nextSeqno
 *     playbackChunks       [[seqno, text], ...]: chunks that are not acknowledged. text is JSON
 *                          again: {"clientChunk":BASE64,"seqno":N}, which of tidemark.v1 is the
 *                          proto3 JSON of the whole message; of aiserver.v1, whose chunks are
 *                          messages of which we have only the bytes, clientChunkBytes
 *     chatGenerationUUID, createdAt, lastUpdatedAt (Unix time, ms)
 *     toolCallResultCache  {tool call id: BASE64, ...}
 *     service              "tidemark.v1" or "aiserver.v1"
 *     eventMac             hex: the MAC of the event in idempotencyEventId; "": none
 *     finished             nothing more is sent
 *     mac                  hex: HMAC-SHA256, under the directory's key, of all bytes in front of
 *                          this member
 *
 * It is replaced as a whole: a new file is written, synced and renamed, and the directory synced. A
 * file that is changed, cut short, or of another directory is not read: it is renamed. */
#ifndef CLIENT_STATE_H
#define CLIENT_STATE_H

#include "base/clock.h"
#include "client/client_core.h"
#include "client/session_mac.h"
#include "client/client_session_wire.h"

#define STATE_KEY_MAX     200                 /* bytes of an idempotency key */
#define STATE_NAME_SIZE   (64 + 5 + 1)        /* of a file, NUL included */
#define STATE_FILE_MAX    ((size_t)256 << 20) /* bytes; more is neither written nor read */
#define STATE_RESULTS_MAX ((size_t)16 << 20)  /* bytes of results of tool calls */

/* ---- in memory ---- */

/* What waits for the caller of a session. */
struct state_item {
    struct link link;
    enum tm_event_kind kind;
};

/* Sent and not acknowledged. Its acknowledgement is the same memory, in another list, so that there
 * is always enough for it. */
struct state_chunk {
    struct state_item item;
    uint32_t seqno;
    size_t n;
    char bytes[];
};

struct state_result {
    struct link link;
    size_t id_n, n;
    char bytes[]; /* the tool call's id and its NUL; the result */
};

struct saved_state {
    enum tm_service service;
    char *key, *generation;
    uint8_t secret[SECRET_SIZE];
    char event_id[SWIRE_EVENT_ID_MAX + 1];
    bool has_mac; /* of that event */
    uint8_t mac[MAC_SIZE];
    uint64_t next_seqno; /* up to 2^32: there are no more */
    struct link chunks;  /* struct state_chunk, in order */
    size_t n_chunks, chunk_bytes;
    struct link results;
    size_t result_bytes;
    int64_t created_ms, updated_ms;
    bool finished;
};

void state_init(struct saved_state *s);                        /* empty, at event "0" */
void state_deinit(struct tm_client *c, struct saved_state *s); /* wipes */

/* NULL: no memory. It is the last one; next_seqno is the caller's. */
struct state_chunk *state_add_chunk(struct tm_client *c, struct saved_state *s, uint32_t seqno,
                                    struct str bytes);
/* Takes it out of the list and gives it away; NULL: there is none with this number. */
struct state_chunk *state_take_chunk(struct saved_state *s, uint32_t seqno);

/* In place of one that was there. TM_E_TOO_LARGE, TM_E_NOMEM. */
int state_put_result(struct tm_client *c, struct saved_state *s, struct str id, struct str result);
const struct state_result *state_get_result(const struct saved_state *s, struct str id);
void state_clear_results(struct tm_client *c, struct saved_state *s);

/* ---- in a directory ----
 *
 * Errors come with a sentence (client_fail). */

struct state_dir {
    int fd;
    int lock; /* the key file: an open file description of its own, for its lock */
    uint8_t key[MAC_SIZE];
};
#define STATE_DIR_NONE                                                                             \
    {                                                                                              \
        .fd = -1, .lock = -1                                                                       \
    }

/* The directory's key is made if there is none. create: so is the directory; otherwise
 * TM_E_NOT_FOUND. TM_E_IO. */
int state_dir_open(struct tm_client *c, const char *path, bool create, struct state_dir *out);
void state_dir_close(struct state_dir *d); /* lets go of its lock */

int state_name(struct str key, char out[STATE_NAME_SIZE]); /* 0 or TM_E_NOMEM */
bool state_is_name(const char *name);

/* Holds the session of this file until the directory is closed. TM_E_BUSY: somebody else does, in
 * this process or another. One at a time for a state_dir. */
int state_lock(struct tm_client *c, struct state_dir *d, const char *name);

/* Durable when it returns 0. updated_ms is set. */
int state_save(struct tm_client *c, struct state_dir *d, struct saved_state *s);
/* *out is initialised here. *dropped counts chunks that could not be read. TM_E_NOT_FOUND: there is
 * no such file. TM_E_TAMPERED: it was not written so, and has been renamed. TM_E_IO, TM_E_NOMEM. */
int state_load(struct tm_client *c, struct state_dir *d, const char *name, struct saved_state *out,
               unsigned *dropped);
int state_remove(struct tm_client *c, struct state_dir *d, const char *name);

/* For tests: the file's text with its MAC. TM_E_NOMEM, TM_E_TOO_LARGE. */
int state_format(struct tm_client *c, const uint8_t key[MAC_SIZE], const struct saved_state *s,
                 struct bytes *out);
/* TM_E_TAMPERED, TM_E_NOMEM; *out is initialised, and empty after a failure. */
int state_parse(struct tm_client *c, const uint8_t key[MAC_SIZE], struct str text,
                struct saved_state *out, unsigned *dropped);

#endif
