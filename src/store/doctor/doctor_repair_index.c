// SPDX-License-Identifier: Apache-2.0
/* doctor_repair_index.c -- the index made again: from the notes in the segments, and where those
 * are damaged too, from its own rows as far as they are sound. */
#include "base/err.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/journal.h"
#include "store/embedded/lmdb_file.h"
#include "store/embedded/rebuild.h"
#include "store/embedded/record.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_SIZE 4096

/* ---- what its sound rows and the notes say ---- */

struct merge {
    struct doctor_pass *look;
    struct index_write *write;
};

static int doctor_repair_index_by_table_and_key(const void *a, const void *b)
{
    const struct doctor_bad *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return str_cmp(key_str(&x->key), key_str(&y->key));
}

static bool is_bad(const struct doctor_pass *l, enum table t, struct str key)
{
    struct doctor_bad wanted = {.table = t, .key = {.n = key.n < KEY_MAX ? key.n : KEY_MAX}};
    memcpy(wanted.key.bytes, key.p, wanted.key.n);
    return l->n_bad > 0 && bsearch(&wanted, l->bad, l->n_bad, sizeof wanted,
                                   doctor_repair_index_by_table_and_key) != NULL;
}

static int doctor_repair_index_keep_stream(void *ctx, struct str key, struct str value)
{
    struct merge *m = ctx;
    struct str row;
    if (is_bad(m->look, TABLE_STREAM, key) || row_open(TABLE_STREAM, key, value, &row) != 0)
        return 0;
    return index_put_stream(m->write, key_u64(key, 0), row);
}

static int doctor_repair_index_keep_block(void *ctx, struct str key, struct str value)
{
    struct merge *m = ctx;
    struct block_info b;
    return row_read_block(key, value, &b) != 0 ? 0 : index_put_block(m->write, key_u64(key, 0), &b);
}

static int doctor_repair_index_keep_producer(void *ctx, struct str key, struct str value)
{
    struct merge *m = ctx;
    struct producer_claim p;
    if (is_bad(m->look, TABLE_PRODUCER, key) || row_read_producer(key, value, &p) != 0)
        return 0;
    return index_put_producer(m->write, key_u64(key, 0), &p);
}

static int doctor_repair_index_keep_doc(void *ctx, struct str key, struct str value)
{
    struct merge *m = ctx;
    struct doc_read d;
    if (is_bad(m->look, TABLE_DOC, key) || row_read_doc(key, value, &d) != 0)
        return 0;
    return index_put_doc(m->write, d.key, d.version, d.value);
}

static int keep_rows(struct merge *m, struct lmdb_file *f)
{
    int err = lmdb_file_table(f, "stream", doctor_repair_index_keep_stream, m);
    if (err == 0)
        err = lmdb_file_table(f, "block", doctor_repair_index_keep_block, m);
    if (err == 0)
        err = lmdb_file_table(f, "producer", doctor_repair_index_keep_producer, m);
    return err == 0 ? lmdb_file_table(f, "doc", doctor_repair_index_keep_doc, m) : err;
}

static int doctor_repair_index_add_stream(void *ctx, uint64_t life, struct str row)
{
    struct merge *m = ctx;
    struct key k = {0};
    key_put_u64(&k, life);
    return is_bad(m->look, TABLE_STREAM, key_str(&k)) ? index_put_stream(m->write, life, row) : 0;
}

static int doctor_repair_index_add_block(void *ctx, uint64_t life, const struct block_info *b)
{
    struct merge *m = ctx;
    struct key k = {0};
    key_put_u64(&k, life);
    key_put_u64(&k, b->first);
    return is_bad(m->look, TABLE_BLOCK, key_str(&k)) ? index_put_block(m->write, life, b) : 0;
}

static int doctor_repair_index_add_producer(void *ctx, uint64_t life,
                                            const struct producer_claim *p)
{
    struct merge *m = ctx;
    struct key k = {0};
    key_put_u64(&k, life);
    key_put_digest(&k, p->id);
    return is_bad(m->look, TABLE_PRODUCER, key_str(&k)) ? index_put_producer(m->write, life, p) : 0;
}

static int doctor_repair_index_add_doc(void *ctx, struct str key, uint64_t version,
                                       struct str value)
{
    struct merge *m = ctx;
    struct key k = {0};
    key_put_digest(&k, key);
    return is_bad(m->look, TABLE_DOC, key_str(&k)) ? index_put_doc(m->write, key, version, value)
                                                   : 0;
}

/* The sizes of all files that it can know: a row of one may be lost, key and all. */
static int add_segments(struct merge *m)
{
    const struct doctor_pass *l = m->look;
    int err = 0;
    for (size_t i = 0; i < l->n_ids && err == 0; i++) {
        uint64_t size = 0;
        if (l->ids[i] >= l->meta.next_segment)
            break;
        err = segment_size(l->doctor->vfs, l->ids[i], &size);
        if (err == 0)
            err = index_add_segment(m->write, l->ids[i], size);
    }
    return err;
}

static int merge_into(struct doctor_pass *l, struct index *into, struct lmdb_file *old,
                      struct index *rebuilt)
{
    struct merge m = {.look = l};
    struct index_load load = {.ctx = &m,
                              .stream = doctor_repair_index_add_stream,
                              .block = doctor_repair_index_add_block,
                              .producer = doctor_repair_index_add_producer,
                              .doc = doctor_repair_index_add_doc};
    struct index_meta meta;
    int err = index_begin(into, &m.write);
    if (err != 0)
        return err;
    err = keep_rows(&m, old);
    if (err == 0)
        err = index_load(rebuilt, &load, &meta);
    if (err == 0)
        err = add_segments(&m);
    if (err == 0)
        err = index_put_meta(m.write, &l->meta);
    if (err == 0)
        return index_commit(m.write);
    index_abort(m.write);
    return err;
}

/* Rows are damaged, and so are notes: each row is taken from where it is sound. */
static int merge_index(struct doctor_pass *l, char *why, size_t size)
{
    const struct doctor *d = l->doctor;
    struct rebuild r = {.salvage = true};
    struct lmdb_file *old = NULL;
    struct index *rebuilt = NULL, *into = NULL;
    char again[PATH_SIZE], made[PATH_SIZE];
    if (l->n_bad > 1)
        qsort(l->bad, l->n_bad, sizeof *l->bad, doctor_repair_index_by_table_and_key);
    snprintf(again, sizeof again, "%s.notes", d->index_path);
    snprintf(made, sizeof made, "%s.mended", d->index_path);
    index_unlink(again);
    index_unlink(made);
    int err = index_rebuild(d->vfs, again, d->sync, &r, why, size);
    if (err == 0)
        err = lmdb_file_open(d->index_path, &old, why, size);
    if (err == 0 && ((rebuilt = index_open(again, d->sync, why, size)) == NULL ||
                     (into = index_open(made, d->sync, why, size)) == NULL))
        err = ERR_IO;
    if (err == 0) {
        err = merge_into(l, into, old, rebuilt);
        if (err != 0)
            doctor_repair_failed(err, "the index cannot be mended", why, size);
    }
    index_close(into);
    index_close(rebuilt);
    lmdb_file_close(old);
    if (err == 0 && (err = index_rename(made, d->index_path, d->sync)) != 0)
        doctor_repair_failed(err, "the index cannot be replaced", why, size);
    index_unlink(again);
    index_unlink(made);
    return err;
}

/* ---- replaced ---- */

/* Another name for the same file, which stays when that is replaced. */
static int keep_old(struct doctor_pass *l, char *why, size_t size)
{
    const char *path = l->doctor->index_path;
    char other[PATH_SIZE];
    for (int i = 1; i < DOCTOR_ASIDE_NAMES; i++) {
        doctor_aside_name(other, sizeof other, path, i);
        if (link(path, other) == 0) {
            const char *slash = strrchr(other, '/');
            doctor_say(l, DOCTOR_DONE, "the index, as it was, is kept as %s",
                       slash == NULL ? other : slash + 1);
            return 0;
        }
        if (errno == ENOENT)
            return 0; /* it is missing */
        if (errno != EEXIST)
            break;
    }
    snprintf(why, size, "the damaged index cannot be kept under another name: %s", strerror(errno));
    return ERR_IO;
}

static int doctor_repair_index_max_life(void *ctx, uint64_t life, struct str row)
{
    uint64_t *max = ctx;
    *max = life > *max ? life : *max;
    return 0;
}

/* What was lost has had lives too, and clients may come with offsets of those. */
#define LIVES_LOST 1000000

static uint64_t lives_known(const struct doctor_pass *l)
{
    uint64_t max = 0;
    size_t at = 0;
    for (struct doctor_life *d; (d = map_next(&l->lives, &at)) != NULL;)
        max = d->life > max ? d->life : max;
    return max;
}

static int change_meta(struct doctor_pass *l, bool base, bool lives, bool *asked, char *why,
                       size_t size)
{
    const struct doctor *d = l->doctor;
    uint64_t max = lives_known(l);
    struct index_load load = {.ctx = &max, .stream = doctor_repair_index_max_life};
    struct index_meta meta;
    struct index_write *w = NULL;
    struct index *i = index_open(d->index_path, d->sync, why, size);
    if (i == NULL)
        return ERR_IO;
    int err = index_load(i, &load, &meta);
    *asked = err == 0 && base && meta.base != 0;
    if (*asked)
        meta.base = meta.base_bytes = meta.note_bytes = 0;
    if (lives)
        meta.lives = (meta.lives > max ? meta.lives : max) + LIVES_LOST;
    if (err == 0)
        err = index_begin(i, &w);
    if (err == 0) {
        index_put_meta(w, &meta);
        err = index_commit(w);
    }
    index_close(i);
    return err == 0 ? 0 : doctor_repair_failed(err, "the index cannot be written", why, size);
}

/* Notes were lost: the next checkpoint has to write down everything, as the first one does. */
static int ask_for_base(struct doctor_pass *l, char *why, size_t size)
{
    bool asked;
    int err = change_meta(l, true, l->salvaged, &asked, why, size);
    if (err == 0 && asked)
        doctor_say(l, DOCTOR_DONE,
                   "the next checkpoint of the server will write down all that the index says, so "
                   "that the notes which are lost are needed no more");
    return err;
}

int doctor_repair_lives(struct doctor_pass *l, char *why, size_t size)
{
    bool asked;
    return change_meta(l, false, true, &asked, why, size);
}

static int doctor_repair_index_note_known(void *ctx, const struct index_segment *s)
{
    buf_put(ctx, str_of((const char *)&s->id, sizeof s->id));
    return 0;
}

static int load_known(struct doctor_pass *l, struct buf *known)
{
    char why[256];
    struct index_load load = {.ctx = known, .segment = doctor_repair_index_note_known};
    struct index_meta meta;
    struct index *i = index_open(l->doctor->index_path, l->doctor->sync, why, sizeof why);
    int err = i == NULL ? ERR_IO : index_load(i, &load, &meta);
    index_close(i);
    return err;
}

/* The server removes segments that the index does not know. After a loss that would be rash. */
static int keep_unknown(struct doctor_pass *l, char *why, size_t size)
{
    struct buf known = {0};
    int err = load_known(l, &known);
    size_t n = known.n / sizeof(uint64_t), at = 0;
    const uint64_t *ids = (const uint64_t *)(const void *)known.p;
    for (size_t i = 0; i < l->n_ids && err == 0; i++) {
        char name[SEGMENT_NAME_MAX];
        while (at < n && ids[at] < l->ids[i])
            at++;
        if (at < n && ids[at] == l->ids[i])
            continue;
        segment_name(l->ids[i], name);
        err = doctor_set_aside(l, name, why, size);
    }
    buf_deinit(&known);
    return err;
}

static int rebuild(struct doctor_pass *l, bool salvage, char *why, size_t size)
{
    const struct doctor *d = l->doctor;
    struct rebuild r = {.salvage = salvage};
    int err = index_rebuild(d->vfs, d->index_path, d->sync, &r, why, size);
    if (err != 0)
        return err;
    doctor_say(l, DOCTOR_DONE,
               "the index has been made again from the segments, with %" PRIu64 " streams",
               r.streams);
    if (!salvage || r.damaged == 0)
        return 0;
    l->notes_lost = l->salvaged = true;
    return keep_unknown(l, why, size);
}

static int make_again(struct doctor_pass *l, char *why, size_t size)
{
    int err = keep_old(l, why, size);
    if (err == 0)
        err = rebuild(l, false, why, size);
    if (err != ERR_CORRUPT)
        return err;
    if (l->state != DOCTOR_INDEX_ROWS || !l->has_meta || l->stuck_at != 0)
        return rebuild(l, true, why, size);
    l->notes_lost = l->salvaged = true;
    err = merge_index(l, why, size);
    if (err == 0)
        doctor_say(l, DOCTOR_DONE,
                   "the index has been made again from its sound rows and what is "
                   "sound of the notes in the segments");
    return err;
}

/* ---- lives that are over ---- */

struct named {
    struct str name;
    uint64_t life;
};

struct names {
    struct arena arena;
    struct buf items; /* struct named */
};

static int doctor_repair_index_note_stream(void *ctx, uint64_t life, struct str bytes)
{
    struct names *n = ctx;
    struct row row;
    if (row_take(bytes, &row) == 0) {
        struct named item = {arena_dup(&n->arena, row.name), life};
        buf_put(&n->items, str_of((const char *)&item, sizeof item));
    }
    return 0;
}

static int doctor_repair_index_by_name_and_life(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = str_cmp(x->name, y->name);
    return order != 0 ? order : (x->life > y->life) - (x->life < y->life);
}

/* Each one that another of the same name comes behind. */
static int remove_older(struct doctor_pass *l, struct index_write *w, const struct named *items,
                        size_t n)
{
    int err = 0;
    for (size_t i = 0; i + 1 < n && err == 0; i++) {
        if (!str_eq(items[i].name, items[i + 1].name))
            continue;
        err = index_remove_stream(w, items[i].life);
        doctor_say(l, DOCTOR_DONE,
                   "what was left in the index of an earlier stream with the name %.*s is removed",
                   STR_ARG(items[i].name));
    }
    return err;
}

/* A name has one stream. If the note of the end of an earlier one was lost, it seems to be there
 * still, in the way of the one that came after it. */
static int end_older_lives(struct doctor_pass *l, char *why, size_t size)
{
    const struct doctor *d = l->doctor;
    struct names names = {0};
    struct index_load load = {.ctx = &names, .stream = doctor_repair_index_note_stream};
    struct index_meta meta;
    struct index_write *w = NULL;
    struct index *i = index_open(d->index_path, d->sync, why, size);
    if (i == NULL)
        return ERR_IO;
    int err = index_load(i, &load, &meta);
    size_t n = names.items.n / sizeof(struct named);
    if (n > 1)
        qsort(names.items.p, n, sizeof(struct named), doctor_repair_index_by_name_and_life);
    if (err == 0)
        err = index_begin(i, &w);
    if (err == 0) {
        err = remove_older(l, w, (const struct named *)(const void *)names.items.p, n);
        if (err == 0)
            err = index_commit(w);
        else
            index_abort(w);
    }
    index_close(i);
    buf_deinit(&names.items);
    arena_deinit(&names.arena);
    return err == 0 ? 0 : doctor_repair_failed(err, "the index cannot be written", why, size);
}

/* ---- behind the segments ---- */

static int doctor_repair_index_pass_over(void *ctx, uint64_t batch, struct str record)
{
    return 0;
}

/* Whether the journal has all that the segments have which the index does not know. */
static bool has_journal_all(const struct doctor_pass *l)
{
    struct journal_scan scan = {.from = l->meta.batch, .record = doctor_repair_index_pass_over};
    return journal_scan(l->doctor->vfs, &scan) == 0 && scan.batches > 0 && scan.next >= l->batch;
}

static int set_unknown_aside(struct doctor_pass *l, char *why, size_t size)
{
    int err = 0;
    for (size_t i = 0; i < l->n_ids && err == 0; i++) {
        char name[SEGMENT_NAME_MAX];
        if (l->ids[i] < l->meta.next_segment)
            continue;
        segment_name(l->ids[i], name);
        err = doctor_set_aside(l, name, why, size);
    }
    if (err == 0)
        doctor_say(l, DOCTOR_DONE, "nothing is lost by that: the journal has it too");
    return err;
}

static int catch_up(struct doctor_pass *l, char *why, size_t size)
{
    struct rebuild r = {0};
    struct index *i = index_open(l->doctor->index_path, l->doctor->sync, why, size);
    if (i == NULL)
        return ERR_IO;
    int err = index_catch_up(l->doctor->vfs, i, &r);
    index_close(i);
    if (err != 0)
        return doctor_repair_failed(err, "the index cannot catch up with the segments", why, size);
    doctor_say(l, DOCTOR_DONE, "the index has caught up with the segments");
    return 0;
}

int doctor_repair_index(struct doctor_pass *l, char *why, size_t size)
{
    int err = 0;
    index_close(l->index);
    l->index = NULL;
    if (l->state != DOCTOR_INDEX_SOUND)
        err = make_again(l, why, size);
    else if (l->stuck_at != 0)
        err = has_journal_all(l) ? set_unknown_aside(l, why, size) : make_again(l, why, size);
    else if (l->behind)
        err = catch_up(l, why, size);
    if (err == 0 && (l->twins || l->notes_lost))
        err = end_older_lives(l, why, size);
    return err == 0 && l->notes_lost ? ask_for_base(l, why, size) : err;
}
