// SPDX-License-Identifier: Apache-2.0
/* doctor_journal.c -- looks at the journal: the heads of its files, every batch (journal_scan), and
 * whether each record can be replayed; and writes a journal again of what can. */
#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/record.h"
#include "store/embedded/vfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WINDOW_BYTES (1024u * 1024)

/* ---- the files ---- */

struct file_seen {
    uint64_t name, size;
    struct journal_identity who; /* id 0: it has no head */
    bool used;                   /* there is something in it besides zeros and a head */
    bool headless;               /* ... and its head is damaged */
    bool copy;                   /* of the one before it */
    int err;                     /* of reading it */
    uint64_t batches, last;      /* heads that verify, from the batch on that is due; the highest */
    uint64_t bytes;              /* of those */
    uint64_t behind;             /* where the next batch would begin; 0: nowhere */
    char next_head[JOURNAL_BATCH_HEAD]; /* what stands there */
};

struct files {
    struct doctor_pass *look;
    struct file_seen *items;
    size_t n, cap;
};

static int doctor_journal_note_name(void *ctx, const char *name)
{
    struct files *s = ctx;
    uint64_t n;
    if (!journal_name_parse(name, &n))
        return 0;
    s->items = mem_grow(s->items, s->n, &s->cap, sizeof *s->items);
    s->items[s->n++] = (struct file_seen){.name = n};
    return 0;
}

/* A head of a batch with one thing wrong in it: those of older batches, which may stand there too,
 * have neither the file's id nor this number. */
static bool is_damaged_head(const struct file_seen *f, uint64_t number)
{
    const char *at = f->next_head;
    bool magic = memcmp(at, "tmb\n", 4) == 0;
    bool file = le_get_u64(at + 8) == f->who.id, due = le_get_u64(at + 16) == number;
    return f->behind != 0 && magic + file + due >= 2;
}

/* The batches in a window that begins with a sector; what is left of it is looked at next time. */
static size_t see_batches(struct file_seen *f, const char *p, size_t n, uint64_t offset,
                          uint64_t from)
{
    size_t at = 0;
    while (n - at >= JOURNAL_BATCH_HEAD) {
        struct journal_batch_head h;
        if (journal_batch_head_read(p + at, &f->who, &h)) {
            f->behind = 0;
            f->last = h.number > f->last ? h.number : f->last;
            f->batches += h.number >= from;
            f->bytes += h.number >= from ? h.length : 0;
            uint64_t span = journal_span(JOURNAL_BATCH_HEAD + h.length);
            if (span > n - at)
                return at + (size_t)span;
            at += (size_t)span;
            continue;
        }
        if (f->behind == 0) {
            f->behind = offset + at;
            memcpy(f->next_head, p + at, sizeof f->next_head);
        }
        at += n - at < JOURNAL_SECTOR ? n - at : JOURNAL_SECTOR;
    }
    return n;
}

static int see_content(struct doctor_pass *l, struct file *file, struct file_seen *f)
{
    char *window = mem_alloc(WINDOW_BYTES);
    int err = 0;
    for (uint64_t at = JOURNAL_FILE_HEAD; at < f->size && err == 0;) {
        size_t got = 0;
        err = vfs_read(file, at, window, WINDOW_BYTES, &got);
        if (err != 0 || got == 0)
            break;
        f->used |= !journal_is_blank(window, got);
        uint64_t span = f->who.id != 0 ? see_batches(f, window, got, at, l->batch) : got;
        at += span > 0 ? span : got;
        doctor_progress(l, span);
    }
    free(window);
    return err;
}

static int see_file(struct doctor_pass *l, struct file_seen *f)
{
    char name[JOURNAL_NAME_MAX], head[JOURNAL_FILE_HEAD];
    struct file *file;
    journal_name(f->name, name);
    int err = vfs_open(l->doctor->vfs, name, VFS_READ, &file);
    if (err != 0)
        return err;
    err = vfs_size(file, &f->size);
    int head_err = ERR_CORRUPT;
    if (err == 0 && f->size >= sizeof head)
        err = vfs_read_all(file, 0, head, sizeof head);
    if (err == 0 && f->size >= sizeof head)
        head_err = journal_head_read(head, &f->who);
    if (err == 0 && head_err == ERR_VERSION)
        err = ERR_VERSION;
    if (err == 0)
        err = see_content(l, file, f);
    f->headless = err == 0 && head_err == ERR_CORRUPT && f->used;
    vfs_close(file);
    l->files++;
    l->bytes += f->size;
    return err;
}

static int doctor_journal_by_id(const void *a, const void *b)
{
    const struct file_seen *x = a, *y = b;
    if (x->who.id != y->who.id)
        return x->who.id < y->who.id ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

static int see_files(struct files *s)
{
    int err = vfs_list(s->look->doctor->vfs, JOURNAL_DIR, doctor_journal_note_name, s);
    if (err == ERR_NOT_FOUND)
        return 0;
    for (size_t i = 0; i < s->n && err == 0; i++) {
        s->items[i].err = see_file(s->look, &s->items[i]);
        if (s->items[i].err == ERR_VERSION)
            err = ERR_VERSION;
    }
    if (s->n > 1)
        qsort(s->items, s->n, sizeof *s->items, doctor_journal_by_id);
    for (size_t i = 1; i < s->n; i++)
        s->items[i].copy = s->items[i].who.id != 0 && s->items[i].who.id == s->items[i - 1].who.id;
    return err;
}

/* ---- what can be replayed ---- */

/* As embedded_recover.c does it, without doing it. */
struct replay {
    struct doctor_pass *look;
    struct arena arena;
    uint64_t strange; /* records that could not be replayed */
    uint64_t strange_batch;
    struct journal_writer *writer; /* NULL: only look */
    uint64_t parts;                /* bytes in the parts of a large write so far */
};

static bool is_certain(struct doctor_pass *l, uint64_t life)
{
    const struct doctor_life *d = doctor_find_life(l, life);
    return d != NULL && (d->replayed || !doctor_is_uncertain(l, life));
}

static bool doctor_journal_is_possible(struct doctor_pass *l, const struct record *r)
{
    if (r->type == RECORD_TRIM)
        return doctor_find_life(l, r->life) == NULL || is_certain(l, r->life);
    if (r->type != RECORD_WRITE)
        return true;
    if (!r->create)
        return is_certain(l, r->life);
    if (doctor_find_life(l, r->life) != NULL)
        return false; /* that has come to rest */
    const struct doctor_life *source =
        r->source_life == 0 ? NULL : doctor_find_life(l, r->source_life);
    return r->source_life == 0 || (source != NULL && r->fork_at <= source->tail);
}

/* Are all parts there that it speaks of? */
static bool has_parts(struct replay *p, const struct record *r)
{
    if (r->type == RECORD_PART)
        p->parts = r->at == 0 || r->at == p->parts ? r->at + r->data.n : UINT64_MAX;
    return !r->in_parts || p->parts == r->data.n;
}

static void doctor_journal_follow(struct doctor_pass *l, const struct record *r)
{
    if (r->type != RECORD_WRITE)
        return;
    if (r->create)
        doctor_add_life(l, r->life, r->source_life == 0 ? 0 : r->fork_at, true);
    doctor_find_life(l, r->life)->tail += r->data.n;
}

static int write_record(struct journal_writer *w, uint64_t batch, struct str bytes);

static int doctor_journal_see_record(void *ctx, uint64_t batch, struct str bytes)
{
    struct replay *p = ctx;
    struct record r;
    bool sound = record_take(bytes, &p->arena, &r) == 0 && has_parts(p, &r) &&
                 doctor_journal_is_possible(p->look, &r);
    if (sound)
        doctor_journal_follow(p->look, &r);
    else if (p->strange++ == 0)
        p->strange_batch = batch;
    arena_deinit(&p->arena);
    return sound && p->writer != NULL ? write_record(p->writer, batch, bytes) : 0;
}

/* ---- looking ---- */

static void say_remains(struct doctor_pass *l, const struct files *s, uint64_t next)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct file_seen *f = &s->items[i];
        if (is_damaged_head(f, next))
            doctor_say(l, DOCTOR_NOTE,
                       "journal/%08" PRIu64 ".j: what stands at byte %" PRIu64
                       ", behind the last batch, does not verify; that is the rest of one that was "
                       "being written when the server died, or it is damaged",
                       f->name, f->behind);
    }
}

static void say_torn(struct doctor_pass *l, const struct journal_scan *scan)
{
    doctor_say(l, DOCTOR_NOTE,
               "the journal ends with a batch that does not verify (%" PRIu64
               "); that is normal if the server was killed or the power failed while it was being "
               "written, for then nobody had been answered",
               scan->next);
}

static void say_files(struct doctor_pass *l, const struct files *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct file_seen *f = &s->items[i];
        if (f->err == 0 && !f->headless && !f->copy)
            continue;
        l->journal_wrong = true;
        doctor_say(l, DOCTOR_WRONG, "journal/%08" PRIu64 ".j: %s", f->name,
                   f->err != 0   ? "it cannot be read"
                   : f->headless ? "its head is damaged, so nothing in it can be told from chance"
                                 : "it is a copy of another file of the journal");
    }
}

static void say_scan(struct doctor_pass *l, const struct files *s, const struct journal_scan *scan,
                     const struct replay *p, int err)
{
    if (err != 0 && !l->journal_wrong) {
        doctor_say(l, DOCTOR_WRONG, "the journal is damaged: %s",
                   scan->damage[0] != '\0' ? scan->damage : err_text(err));
        l->journal_wrong = true;
    }
    if (p->strange > 0) {
        doctor_say(l, DOCTOR_WRONG,
                   "the journal has %" PRIu64 " changes (the first in batch %" PRIu64
                   ") of streams that the index does not know, or not to their ends",
                   p->strange, p->strange_batch);
        l->journal_wrong = true;
    }
    if (err == 0 && scan->torn)
        say_torn(l, scan);
    else if (err == 0)
        say_remains(l, s, scan->next);
}

int doctor_check_journal(struct doctor_pass *l, char *why, size_t size)
{
    struct files s = {.look = l};
    struct replay p = {.look = l};
    struct journal_scan scan = {.from = l->batch, .ctx = &p, .record = doctor_journal_see_record};
    int err = see_files(&s);
    if (err == 0) {
        say_files(l, &s);
        say_scan(l, &s, &scan, &p, journal_scan(l->doctor->vfs, &scan));
        l->batches = scan.batches;
    }
    free(s.items);
    if (err != 0)
        snprintf(why, size, "the journal cannot be looked at: %s",
                 err == ERR_VERSION ? "it was written by a later version of this program"
                                    : err_text(err));
    return err;
}

/* ---- writing it again ---- */

/* A journal of one file: what can be replayed, in batches whose numbers follow one another. */
struct journal_writer {
    struct file *file;
    struct journal_identity who;
    uint64_t at, batch; /* as it was numbered */
    uint64_t batches;
    uint32_t count;
    struct buf bytes; /* of the batch, from its head on */
};

#define NEW_NAME JOURNAL_DIR "/repair.new"

static int end_batch(struct journal_writer *w)
{
    if (w->count == 0)
        return 0;
    uint64_t number = w->who.first + w->batches++;
    struct journal_batch_head h = {.number = number,
                                   .synced = number,
                                   .length = w->bytes.n - JOURNAL_BATCH_HEAD,
                                   .count = w->count};
    journal_batch_write(w->bytes.p, &w->who, &h);
    size_t pad = (size_t)(journal_span(w->bytes.n) - w->bytes.n);
    memset(buf_reserve(&w->bytes, pad), 0, pad);
    w->bytes.n += pad;
    int err = vfs_write(w->file, w->at, buf_str(&w->bytes));
    w->at += w->bytes.n;
    w->count = 0;
    return err;
}

static int begin_batch(struct journal_writer *w, uint64_t batch)
{
    int err = end_batch(w);
    w->batch = batch;
    w->bytes.n = 0;
    memset(buf_reserve(&w->bytes, JOURNAL_BATCH_HEAD), 0, JOURNAL_BATCH_HEAD);
    w->bytes.n = JOURNAL_BATCH_HEAD;
    return err;
}

static int write_record(struct journal_writer *w, uint64_t batch, struct str bytes)
{
    int err = w->batch == batch ? 0 : begin_batch(w, batch);
    char head[JOURNAL_RECORD_HEAD];
    journal_record_head_write(head, bytes.n);
    buf_put(&w->bytes, str_of(head, sizeof head));
    buf_put(&w->bytes, bytes);
    w->count++;
    return err;
}

static int write_head(struct journal_writer *w)
{
    char head[JOURNAL_FILE_HEAD];
    journal_head_write(head, &w->who);
    return vfs_write(w->file, 0, str_of(head, sizeof head));
}

static uint64_t next_id(const struct files *s)
{
    uint64_t next = 1;
    for (size_t i = 0; i < s->n; i++) {
        next = s->items[i].name >= next ? s->items[i].name + 1 : next;
        next = s->items[i].who.id >= next ? s->items[i].who.id + 1 : next;
    }
    return next;
}

/* The new file gets its name while the others are there still: that it came later than they did
 * shows in its head, and what they say from its first batch on counts no more. */
static int finish_file(struct doctor_pass *l, struct journal_writer *w)
{
    char name[JOURNAL_NAME_MAX];
    struct vfs *v = l->doctor->vfs;
    journal_name(w->who.id, name);
    int err = end_batch(w);
    if (err == 0)
        err = write_head(w);
    if (err == 0)
        err = vfs_sync(w->file);
    if (err == 0)
        err = vfs_rename(v, NEW_NAME, name);
    return err == 0 ? vfs_sync_dir(v, JOURNAL_DIR) : err;
}

/* 1: there is nothing to be left out, and no need for a new file. */
static int write_again(struct doctor_pass *l, const struct files *s, struct journal_writer *w)
{
    struct vfs *v = l->doctor->vfs;
    struct replay p = {.look = l, .writer = w};
    struct journal_scan scan = {.from = l->batch, .ctx = &p, .record = doctor_journal_see_record};
    uint64_t id = next_id(s);
    w->who = (struct journal_identity){
        .id = id, .salt = rand_u64(), .epoch = id, .first = l->batch > 0 ? l->batch : 1};
    w->at = JOURNAL_FILE_HEAD;
    vfs_remove(v, NEW_NAME); /* what a crash has left */
    int err = vfs_open(v, NEW_NAME, VFS_CREATE, &w->file);
    if (err != 0)
        return err;
    doctor_drop_journal(l);
    int scanned = journal_scan(v, &scan);
    if (scanned == 0 && p.strange == 0)
        err = 1;
    else if (scanned != 0 && scanned != ERR_CORRUPT && scanned != ERR_IO)
        err = scanned;
    else
        err = finish_file(l, w);
    vfs_close(w->file);
    if (err != 0)
        vfs_remove(v, NEW_NAME);
    return err;
}

static int set_files_aside(struct doctor_pass *l, const struct files *s, bool all, char *why,
                           size_t size)
{
    int err = 0;
    for (size_t i = 0; i < s->n && err == 0; i++) {
        const struct file_seen *f = &s->items[i];
        bool faulty = f->headless || f->copy || f->err != 0;
        char name[JOURNAL_NAME_MAX];
        journal_name(f->name, name);
        if (all ? !faulty && f->used && f->who.id != 0 : faulty)
            err = doctor_set_aside(l, name, why, size);
    }
    return err;
}

static void say_kept(struct doctor_pass *l, const struct files *s, const struct journal_writer *w)
{
    uint64_t batches = 0, bytes = 0;
    for (size_t i = 0; i < s->n; i++) {
        batches += s->items[i].copy ? 0 : s->items[i].batches;
        bytes += s->items[i].copy ? 0 : s->items[i].bytes;
    }
    uint64_t kept = w->at - JOURNAL_FILE_HEAD;
    doctor_say(
        l, DOCTOR_DONE,
        "%" PRIu64 " batches of the journal are kept, in journal/%08" PRIu64 ".j; %" PRIu64
        " batches (about %" PRIu64
        " bytes) and whatever is damaged are set aside, and events that had been acknowledged "
        "may be among them",
        w->batches, w->who.id, batches > w->batches ? batches - w->batches : 0,
        bytes > kept ? bytes - kept : 0);
}

int doctor_repair_journal(struct doctor_pass *l, char *why, size_t size)
{
    struct files s = {.look = l};
    struct journal_writer w = {0};
    why[0] = '\0';
    int err = see_files(&s);
    if (err == 0)
        err = set_files_aside(l, &s, false, why, size);
    if (err == 0)
        err = write_again(l, &s, &w);
    if (err == 0) {
        say_kept(l, &s, &w);
        err = set_files_aside(l, &s, true, why, size);
    }
    if (err >= 0 && doctor_repair_lives(l, why, size) != 0)
        err = ERR_IO;
    if (err < 0 && why[0] == '\0')
        snprintf(why, size, "the journal cannot be written again: %s", err_text(err));
    buf_deinit(&w.bytes);
    free(s.items);
    return err < 0 ? err : 0;
}
