// SPDX-License-Identifier: Apache-2.0
/* lab_index.h -- a file of records, one a line, of which the last one with an id counts.
 *
 * The file is the truth and others append to it; kept in memory is only where each record stands.
 * What was appended since is read before it is looked at. All of it works on files at once: on one
 * thread, that of a lane. */
#ifndef FEATURE_LAB_LAB_INDEX_H
#define FEATURE_LAB_LAB_INDEX_H

#include "base/map.h"
#include "base/str.h"
#include "feature/logs/logs.h"

#include <jansson.h>
#include <stdint.h>

#define LAB_ID_MAX 1024 /* bytes; a record with a longer id is none */

struct lab_record {
    uint64_t at; /* its line in the file */
    uint32_t n;
    uint32_t mark; /* of accept() */
    int64_t created_ms;
    uint64_t group; /* of accept() */
    uint32_t id_n;
    char id[];
};

/* What a line means to its file. */
struct lab_line {
    struct str id; /* lent by the record; at most LAB_ID_MAX bytes count */
    char room[64]; /* for an id that is made */
    uint64_t group;
    uint32_t mark;
};

struct lab_index {
    /* The record of a line, or NULL: it counts for nothing. The caller's reference. */
    json_t *(*accept)(struct str line, struct lab_line *out);
    struct log log;
    struct map by_id; /* struct lab_record */
    uint64_t next;
    struct log_id file;
};

/* path is copied. */
void lab_index_init(struct lab_index *x, const char *path,
                    json_t *(*accept)(struct str line, struct lab_line *out));
void lab_index_deinit(struct lab_index *x);

/* Reads what is new, or all of it if the file is another one. 0 or ERR_IO. */
int lab_index_refresh(struct lab_index *x);

/* Lent until the next refresh. NULL: none. */
const struct lab_record *lab_index_find(const struct lab_index *x, struct str id);

/* The record itself; NULL: the file has changed. The caller's reference. */
json_t *lab_index_read(struct lab_index *x, const struct lab_record *r);

/* Appends a record and takes it in. 0, or an error of log_append. */
int lab_index_append(struct lab_index *x, const json_t *record);

/* All of them, or those of a group, newest first, as they are now. The caller frees. */
struct lab_location {
    uint64_t at;
    uint32_t n;
    int64_t created_ms;
};
struct lab_location *lab_index_list(const struct lab_index *x, const uint64_t *group, size_t *n);

/* Reads records of such a list; what is no longer there is left out. */
json_t *lab_index_read_at(struct lab_index *x, struct lab_location place);

/* ---- logs at once, for those on a lane already ---- */

/* log_read(), whose done() is called before this returns; done may be NULL. */
int lab_log_read(struct log_read *r);
int lab_log_append(const char *path, struct str lines);

/* The cursor behind the last whole line; 0 also if the file is not there, or if that line is far
 * from its end. */
int lab_log_end(const char *path, uint64_t *cursor);

#endif
