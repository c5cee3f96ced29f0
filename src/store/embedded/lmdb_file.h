// SPDX-License-Identifier: Apache-2.0
/* lmdb_file.h -- the file of an LMDB database, read without LMDB and trusted in nothing.
 *
 * LMDB maps its file and follows whatever page numbers stand there: on a damaged file it ends the
 * process, or finds wrong rows. Here every page is read and checked before it is used, so that what
 * passes can be given to LMDB. lmdb_file.c draws the format, which is that of LMDB 0.9 on a machine
 * of this kind. The file is only read, and nobody writes to it meanwhile. Calls block. */
#ifndef STORE_EMBEDDED_LMDB_FILE_H
#define STORE_EMBEDDED_LMDB_FILE_H

#include "base/str.h"

#include <stdint.h>

struct lmdb_file;

/* 0, with tables that are known by name; ERR_NOT_FOUND: there is no such file; ERR_CORRUPT, ERR_IO
 * or ERR_VERSION (made by another version of LMDB), with a sentence in why. */
int lmdb_file_open(const char *path, struct lmdb_file **out, char *why, size_t size);
void lmdb_file_close(struct lmdb_file *f); /* NULL is allowed */

/* What is wrong, after ERR_CORRUPT of a call below. */
const char *lmdb_file_damage(const struct lmdb_file *f);

/* All rows of a table in order, each table once; key and value are lent until row() returns.
 * ERR_NOT_FOUND: there is no such table. What row() returns, if not 0, ends the call. */
int lmdb_file_table(struct lmdb_file *f, const char *name,
                    int (*row)(void *ctx, struct str key, struct str value), void *ctx);

/* After all tables: whether no page is used twice, or said to be free and used. */
int lmdb_file_finish(struct lmdb_file *f);

uint64_t lmdb_file_bytes(const struct lmdb_file *f);

#endif
