// SPDX-License-Identifier: Apache-2.0
/* journal_scan.c -- what the journal files say after a crash, without a change to any of them.
 *
 * Files are visited in the order of their ids, which is the order in which they were written.
 * Within a file every sector is looked at, for a head that verifies may stand behind one that does
 * not. A batch is replayed if it verifies and has the number that is due. Whatever else verifies is
 * a witness: it says up to which number all had been durable when it was written. If the number
 * that is due in the end lies below that, a durable batch is gone, and that is corruption;
 * otherwise what is left over was never acknowledged (or acknowledged unsynced, by a journal that
 * was told to): the torn tail.
 *
 * So a batch that was written but unsynced when another before it was lost in a power cut does not
 * count as proof. And it is never replayed, for the server that started then gave its number
 * to another batch, and says so in the heads of its files. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/vfs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define WINDOW_BYTES (1024u * 1024) /* read at a time */

struct found {
    uint64_t name;
    struct journal_identity who; /* id 0: made, but never got as far as to be used */
    uint64_t end;                /* batches from this number on were lost before a later epoch */
};

/* A batch by its place. */
struct journal_position {
    uint64_t name, offset, number;
};

struct scanner {
    struct vfs *vfs;
    struct journal_scan *scan;
    struct found *files;
    size_t n_files, cap_files;
    uint64_t due;                      /* the number the next batch must have; 0: any */
    uint64_t proven;                   /* batches below this were durable once */
    uint64_t last_seen;                /* the highest number in any head */
    struct journal_position proven_at; /* of `proven` */
    struct journal_position tail;      /* behind the last batch replayed */
    struct buf window;                 /* bytes of the file that is open */
    uint64_t window_start;             /* where they stand in it */
};

static void __attribute__((format(printf, 3, 4)))
damage(struct scanner *s, uint64_t name, const char *fmt, ...)
{
    char *text = s->scan->damage, path[JOURNAL_NAME_MAX];
    size_t size = sizeof s->scan->damage;
    journal_name(name, path);
    int n = snprintf(text, size, "%s: ", path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, size - (size_t)n, fmt, ap);
    va_end(ap);
}

/* ---- reading ---- */

/* One file that is open. */
struct reader {
    struct scanner *scanner;
    struct file *file;
    uint64_t size;
    const struct found *found;
};

static int read_failed(struct reader *r, uint64_t offset, int err)
{
    damage(r->scanner, r->found->name, "cannot be read at byte %" PRIu64, offset);
    return err;
}

static int reader_open(struct scanner *s, const struct found *f, struct reader *r)
{
    char name[JOURNAL_NAME_MAX];
    *r = (struct reader){.scanner = s, .found = f};
    s->window.n = 0;
    journal_name(f->name, name);
    int err = vfs_open(s->vfs, name, VFS_READ, &r->file);
    if (err == 0)
        err = vfs_size(r->file, &r->size);
    if (err != 0) {
        vfs_close(r->file);
        return read_failed(r, 0, err);
    }
    return 0;
}

/* n bytes at offset, which the file has; valid until the next call. */
static int peek(struct reader *r, uint64_t offset, size_t n, const char **out)
{
    struct scanner *s = r->scanner;
    struct buf *w = &s->window;
    if (offset < s->window_start || offset - s->window_start > w->n ||
        w->n - (offset - s->window_start) < n) {
        uint64_t rest = r->size - offset;
        size_t want = n > WINDOW_BYTES ? n : rest < WINDOW_BYTES ? (size_t)rest : WINDOW_BYTES;
        w->n = 0;
        int err = vfs_read_all(r->file, offset, buf_reserve(w, want), want);
        if (err != 0)
            return read_failed(r, offset, err);
        w->n = want;
        s->window_start = offset;
    }
    *out = w->p + (offset - s->window_start);
    return 0;
}

/* ---- the files ---- */

static int journal_scan_note_name(void *ctx, const char *name)
{
    struct scanner *s = ctx;
    uint64_t n;
    if (!journal_name_parse(name, &n))
        return 0;
    s->files = mem_grow(s->files, s->n_files, &s->cap_files, sizeof *s->files);
    s->files[s->n_files++] = (struct found){.name = n};
    return 0;
}

static int find_content(struct reader *r, bool *found)
{
    *found = false;
    for (uint64_t at = JOURNAL_FILE_HEAD; at < r->size && !*found;) {
        size_t n = r->size - at < WINDOW_BYTES ? (size_t)(r->size - at) : WINDOW_BYTES;
        const char *p;
        int err = peek(r, at, n, &p);
        if (err != 0)
            return err;
        *found = !journal_is_blank(p, n);
        at += n;
    }
    return 0;
}

/* A file has a durable head before its first batch is written. So a file without one was being
 * made, if there is nothing but zeros behind it. */
static int read_without_head(struct reader *r)
{
    bool content;
    int err = find_content(r, &content);
    if (err == 0 && content) {
        damage(r->scanner, r->found->name, "its head is damaged, so nothing in it can be trusted");
        err = ERR_CORRUPT;
    }
    return err;
}

static int read_identity(struct reader *r, struct journal_identity *out)
{
    const char *head;
    if (r->size < JOURNAL_FILE_HEAD)
        return read_without_head(r);
    int err = peek(r, 0, JOURNAL_FILE_HEAD, &head);
    if (err != 0)
        return err;
    err = journal_head_read(head, out);
    if (err == ERR_VERSION) {
        damage(r->scanner, r->found->name, "was written by a later version of this program");
        return ERR_CORRUPT;
    }
    return err == ERR_CORRUPT ? read_without_head(r) : 0;
}

static int identify(struct scanner *s, struct found *f)
{
    struct reader r;
    int err = reader_open(s, f, &r);
    if (err != 0)
        return err;
    err = read_identity(&r, &f->who);
    vfs_close(r.file);
    uint64_t used = f->name > f->who.id ? f->name : f->who.id;
    if (used >= s->scan->next_file)
        s->scan->next_file = used + 1;
    return err;
}

static int journal_scan_by_id(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->who.id != y->who.id)
        return x->who.id < y->who.id ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

/* A server that finds batch 7 torn gives that number to another one. What is left of the first 7,
 * and of anything that came after it, must not be taken for the second. */
static void find_ends(struct scanner *s)
{
    uint64_t end = UINT64_MAX, epoch = UINT64_MAX, first = UINT64_MAX;
    for (size_t i = s->n_files; i-- > 0;) {
        struct found *f = &s->files[i];
        if (f->who.epoch != epoch) {
            end = first < end ? first : end;
            epoch = f->who.epoch;
        }
        first = f->who.first;
        f->end = end;
    }
}

/* Finds all files and puts them into the order in which they were used. */
static int find_files(struct scanner *s)
{
    int err = vfs_list(s->vfs, JOURNAL_DIR, journal_scan_note_name, s);
    if (err == ERR_NOT_FOUND)
        return 0; /* a new store */
    for (size_t i = 0; i < s->n_files && err == 0; i++)
        err = identify(s, &s->files[i]);
    if (err != 0)
        return err;
    if (s->n_files > 0)
        qsort(s->files, s->n_files, sizeof *s->files, journal_scan_by_id);
    for (size_t i = 1; i < s->n_files; i++)
        if (s->files[i].who.id != 0 && s->files[i].who.id == s->files[i - 1].who.id) {
            damage(s, s->files[i].name, "is a copy of %08" PRIu64 ".j", s->files[i - 1].name);
            return ERR_CORRUPT;
        }
    find_ends(s);
    return 0;
}

/* ---- batches ---- */

static int deliver(struct scanner *s, struct str records, uint64_t number)
{
    struct journal_scan *scan = s->scan;
    struct str record;
    while (journal_record_next(&records, &record)) {
        scan->records++;
        int err = scan->record(scan->ctx, number, record);
        if (err != 0)
            return err;
    }
    scan->batches++;
    return 0;
}

static bool is_due(const struct scanner *s, const struct journal_batch_head *h)
{
    return h->number >= s->scan->from && (s->due == 0 || h->number == s->due);
}

static void note_synced(struct reader *r, const struct journal_batch_head *h, uint64_t offset)
{
    struct scanner *s = r->scanner;
    if (h->number > s->last_seen)
        s->last_seen = h->number;
    if (h->synced <= s->proven)
        return;
    s->proven = h->synced;
    s->proven_at = (struct journal_position){r->found->name, offset, h->number};
}

static int take_batch(struct reader *r, uint64_t offset, const struct journal_batch_head *h)
{
    struct scanner *s = r->scanner;
    const char *p;
    int err = peek(r, offset + JOURNAL_BATCH_HEAD, (size_t)h->length, &p);
    if (err != 0)
        return err;
    struct str records = str_of(p, (size_t)h->length);
    if (!journal_records_verify(records, &r->found->who, h))
        return 0;
    s->due = h->number + 1;
    s->tail =
        (struct journal_position){r->found->name, offset + JOURNAL_BATCH_HEAD + h->length, s->due};
    return deliver(s, records, h->number);
}

static int read_batches(struct reader *r)
{
    struct scanner *s = r->scanner;
    uint64_t at = JOURNAL_FILE_HEAD;
    while (at < r->size && r->size - at >= JOURNAL_BATCH_HEAD) {
        struct journal_batch_head h;
        const char *p;
        int err = peek(r, at, JOURNAL_BATCH_HEAD, &p);
        if (err != 0)
            return err;
        uint64_t rest = r->size - at - JOURNAL_BATCH_HEAD;
        if (!journal_batch_head_read(p, &r->found->who, &h)) {
            at += JOURNAL_SECTOR;
            continue;
        }
        bool counts = h.number < r->found->end;
        if (counts)
            note_synced(r, &h, at);
        if (counts && h.length <= rest && is_due(s, &h))
            err = take_batch(r, at, &h);
        if (err != 0)
            return err;
        at += journal_span(JOURNAL_BATCH_HEAD + h.length);
    }
    return 0;
}

static int journal_scan_read_file(struct scanner *s, const struct found *f)
{
    struct reader r;
    int err = reader_open(s, f, &r);
    if (err != 0)
        return err;
    err = read_batches(&r);
    vfs_close(r.file);
    return err;
}

static int journal_scan_judge(struct scanner *s)
{
    struct journal_scan *scan = s->scan;
    scan->next = s->due != 0 ? s->due : 1;
    scan->torn = s->last_seen >= scan->next;
    if (s->proven <= scan->next)
        return 0;
    uint64_t name = s->tail.name != 0 ? s->tail.name : s->proven_at.name;
    damage(s, name,
           "batch %" PRIu64 " is damaged or missing (after byte %" PRIu64 "), but batch %" PRIu64
           " in %08" PRIu64 ".j at byte %" PRIu64 " was written after it",
           scan->next, s->tail.offset, s->proven_at.number, s->proven_at.name, s->proven_at.offset);
    return ERR_CORRUPT;
}

int journal_scan(struct vfs *v, struct journal_scan *scan)
{
    struct scanner s = {.vfs = v, .scan = scan, .due = scan->from};
    scan->next = scan->batches = scan->records = 0;
    scan->next_file = 1;
    scan->torn = false;
    scan->damage[0] = '\0';
    int err = find_files(&s);
    for (size_t i = 0; i < s.n_files && err == 0; i++)
        if (s.files[i].who.id != 0)
            err = journal_scan_read_file(&s, &s.files[i]);
    if (err == 0)
        err = journal_scan_judge(&s);
    free(s.files);
    buf_deinit(&s.window);
    return err;
}
