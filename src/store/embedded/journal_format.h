// SPDX-License-Identifier: Apache-2.0
/* journal_format.h -- the bytes of a journal file, for those who write, read and break them.
 *
 * journal.c draws them. Everything here is pure; numbers are little-endian. */
#ifndef STORE_EMBEDDED_JOURNAL_FORMAT_H
#define STORE_EMBEDDED_JOURNAL_FORMAT_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#define JOURNAL_DIR         "journal"
#define JOURNAL_NAME_MAX    40  /* of `journal/N.j`, NUL included */
#define JOURNAL_SECTOR      512 /* what a disk writes whole or not at all */
#define JOURNAL_FILE_HEAD   JOURNAL_SECTOR
#define JOURNAL_BATCH_HEAD  56
#define JOURNAL_RECORD_HEAD 4
#define JOURNAL_VERSION     1
#define JOURNAL_RECORD_MAX  (96u * 1024 * 1024)
#define JOURNAL_NUMBER_MAX  (UINT64_MAX / 2) /* of files and batches: adding to one never wraps */

/* Who a file is. A batch verifies only in the file it was written to, and in that life of it. */
struct journal_identity {
    uint64_t id;    /* grows with each file that is prepared, made or used again */
    uint64_t salt;  /* random: nobody outside can make up bytes that look like a batch */
    uint64_t epoch; /* id of the first file of the same journal_new: the same for all of them */
    uint64_t first; /* number of the first batch that came after that journal_new */
};

struct journal_batch_head {
    uint64_t number;
    uint64_t synced; /* every batch below this was durable when this one was written */
    uint64_t length; /* of the records behind the head, 1 to journal_length_max() */
    uint32_t count;  /* of records, at least 1 */
    uint64_t sum;    /* of the records */
};

/* A batch of several records stays below this; one record may need more. */
#define JOURNAL_BATCH_BYTES (4u * 1024 * 1024)

static inline uint64_t journal_length_max(void)
{
    return JOURNAL_RECORD_HEAD + (uint64_t)JOURNAL_RECORD_MAX;
}

/* Room that n bytes of batch take in a file. */
static inline uint64_t journal_span(uint64_t n)
{
    return (n + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR * JOURNAL_SECTOR;
}

/* `journal/00000012.j`; out holds JOURNAL_NAME_MAX. */
void journal_name(uint64_t n, char *out);

/* The n of a name without its folder; false if it is not the name of a journal file. */
bool journal_name_parse(const char *name, uint64_t *n);

/* Nothing but zeros: as a file is made. */
static inline bool journal_is_blank(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Fills JOURNAL_FILE_HEAD bytes. */
void journal_head_write(char *out, const struct journal_identity *who);

/* 0, ERR_CORRUPT, or ERR_VERSION (sound, but written by a later version of this code). */
int journal_head_read(const char *head, struct journal_identity *out);

void journal_record_head_write(char *out, size_t n);

/* Fills the JOURNAL_BATCH_HEAD bytes in front of h->length bytes of records, sums included. */
void journal_batch_write(char *batch, const struct journal_identity *who,
                         const struct journal_batch_head *h);

/* The same of a batch in n pieces, whose first holds the head and more. */
void journal_batch_write_pieces(const struct iovec *pieces, int n,
                                const struct journal_identity *who,
                                const struct journal_batch_head *h);

/* Whether a head of a batch of this file stands there; its length then is within the limits. */
bool journal_batch_head_read(const char *at, const struct journal_identity *who,
                             struct journal_batch_head *out);

/* Whether these are the records that the head speaks of, whole and well formed. */
bool journal_records_verify(struct str records, const struct journal_identity *who,
                            const struct journal_batch_head *h);

/* Takes the first record off records that were verified; false when none is left. */
bool journal_record_next(struct str *records, struct str *out);

#endif
