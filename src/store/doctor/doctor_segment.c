// SPDX-License-Identifier: Apache-2.0
/* doctor_segment.c -- looks at the segments: each by itself, all of it, and then whether the blocks
 * are there that the index tells of. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/note.h"
#include "store/embedded/record.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct harm {
    uint64_t offset;
    const char *what;
    bool found; /* it is of one item, and not of the footer */
    bool told;  /* by the stream that it concerns */
};

/* Events of one stream that cannot be read. */
struct lost_range {
    uint64_t life, first, end, events; /* life 0: none */
    uint64_t offset;
    const char *what;
};

/* One segment. */
struct exam {
    struct doctor_pass *look;
    uint64_t id, size;
    const struct index_segment *row; /* NULL: the index does not know it */
    bool unknown;                    /* it has yet to hear of it; or there is no index */
    bool unreadable;
    struct buf blocks; /* struct block_info, those that verify, by offset */
    struct buf harms;  /* struct harm */
    uint64_t items_end, notes, bad_notes;
    bool is_base, has_meta; /* the notes begin, and end, as they should */
    uint64_t batch;

    /* what the rows come to */
    uint64_t live_rows, live_bytes;
    struct place last;
    struct lost_range range;
    uint64_t lost;
};

/* ---- by itself ---- */

static int doctor_segment_see_block(void *ctx, const struct block_info *b)
{
    struct exam *e = ctx;
    buf_put(&e->blocks, str_of((const char *)b, sizeof *b));
    e->items_end = b->place.offset + b->place.bytes;
    doctor_progress(e->look, b->place.bytes);
    return 0;
}

/* What the journal may go on from, if the index does not know of it. */
static void learn(struct exam *e, const struct note *n)
{
    struct row row;
    if (n->type != NOTE_STREAM)
        return;
    if (e->unknown && row_take(n->row, &row) == 0)
        doctor_add_life(e->look, n->life, row.tail, false);
    doctor_state_life(e->look, n->life, e->id);
}

static int doctor_segment_see_note(void *ctx, struct str bytes)
{
    struct exam *e = ctx;
    struct note n;
    e->items_end += SEGMENT_NOTE_HEAD + bytes.n + SEGMENT_SUM;
    e->has_meta = false;
    if (note_unpack(bytes, &n) != 0) {
        e->bad_notes++;
        return 0;
    }
    if (e->notes++ == 0)
        e->is_base = n.type == NOTE_BASE;
    e->has_meta = n.type == NOTE_META;
    if (e->has_meta)
        e->batch = n.meta.batch;
    learn(e, &n);
    return 0;
}

static void doctor_segment_see_harm(void *ctx, uint64_t segment, uint64_t offset, const char *what)
{
    struct exam *e = ctx;
    struct harm h = {.offset = offset, .what = what};
    h.found = strstr(what, "checksum") != NULL || strstr(what, "read") != NULL;
    if (h.found && strstr(what, "block") == NULL)
        e->bad_notes++; /* or that could be one */
    buf_put(&e->harms, str_of((const char *)&h, sizeof h));
}

static const char *harm_at(struct exam *e, uint64_t offset)
{
    struct harm *h = (struct harm *)(void *)e->harms.p;
    for (size_t i = 0; i < e->harms.n / sizeof *h; i++)
        if (h[i].offset == offset) {
            h[i].told = true;
            return h[i].what;
        }
    return "a block cannot be read";
}

/* ---- and the rows of the index ---- */

static void say_range(struct exam *e)
{
    struct lost_range *r = &e->range;
    if (r->life == 0)
        return;
    struct str name = doctor_stream_name(e->look, r->life);
    doctor_note_loss(e->look, r->life, r->first, r->end);
    doctor_say(e->look, DOCTOR_WRONG,
               "%.*s: its events from offset %016" PRIu64 "_%016" PRIu64 " up to %016" PRIu64
               "_%016" PRIu64 " (%" PRIu64 " of them) cannot be read: segment %" PRIu64
               ", byte %" PRIu64 ": %s",
               STR_ARG(name), r->life, r->first, r->life, r->end, r->events, e->id, r->offset,
               r->what);
    *r = (struct lost_range){0};
}

static void doctor_segment_report_loss(struct exam *e, uint64_t life, const struct block_info *b,
                                       const char *what)
{
    struct lost_range *r = &e->range;
    e->lost++;
    if (r->life == life && r->end == b->first && r->what == what) {
        r->end = b->end;
        r->events += b->events;
        return;
    }
    say_range(e);
    *r = (struct lost_range){life, b->first, b->end, b->events, b->place.offset, what};
}

static bool doctor_segment_is_same(const struct block_info *row, const struct block_info *found)
{
    return row->life == found->life && row->first == found->first && row->end <= found->end &&
           row->ordinal == found->ordinal && row->events == found->events &&
           row->oldest_ms == found->oldest_ms && row->newest_ms == found->newest_ms &&
           row->place.offset == found->place.offset && row->place.bytes == found->place.bytes;
}

static int doctor_segment_by_offset(const void *a, const void *b)
{
    const struct block_info *x = a, *y = b;
    return (x->place.offset > y->place.offset) - (x->place.offset < y->place.offset);
}

static const struct block_info *find_block(const struct exam *e, uint64_t offset)
{
    struct block_info wanted = {.place = {.offset = offset}};
    size_t n = e->blocks.n / sizeof wanted;
    return n == 0 ? NULL
                  : bsearch(&wanted, e->blocks.p, n, sizeof wanted, doctor_segment_by_offset);
}

/* Reads the block that a row tells of: where the scan did not get to, or for the row's own end. */
static bool is_readable(struct exam *e, const struct block_info *row)
{
    struct extent *c = NULL;
    if (segment_read(e->look->doctor->vfs, row->life, row->first, row->place, &c) != 0)
        return false;
    struct block_info found = {.life = row->life,
                               .first = c->first,
                               .end = extent_end(c),
                               .ordinal = c->ordinal,
                               .events = c->n_marks,
                               .oldest_ms = c->oldest_ms,
                               .newest_ms = c->newest_ms,
                               .place = row->place};
    bool same = doctor_segment_is_same(row, &found) && extent_is_boundary(c, row->end);
    extent_unref(c);
    return same;
}

static int doctor_segment_check_row(void *ctx, uint64_t life, const struct block_info *b)
{
    struct exam *e = ctx;
    const struct block_info *found = find_block(e, b->place.offset);
    bool again = e->live_rows > 0 && e->last.offset == b->place.offset;
    e->live_rows++;
    e->live_bytes += again ? 0 : b->place.bytes;
    e->last = b->place;
    if (found != NULL && doctor_segment_is_same(b, found) && b->end == found->end)
        return 0;
    if (is_readable(e, b))
        return 0;
    doctor_segment_report_loss(e, life, b,
                               found != NULL ? "there is another block than the index says"
                                             : harm_at(e, b->place.offset));
    return 0;
}

/* The rows of one that is gone. */
static int doctor_segment_report_lost_row(void *ctx, uint64_t life, const struct block_info *b)
{
    doctor_segment_report_loss(ctx, life, b, "the file is missing");
    return 0;
}

static void check_counts(struct exam *e)
{
    const struct index_segment *row = e->row;
    struct doctor_pass *l = e->look;
    if (row->live_rows == e->live_rows && row->live_bytes == e->live_bytes && row->bytes == e->size)
        return;
    /* A file that was cut off has another size for another reason. */
    if (row->live_rows == e->live_rows && row->live_bytes == e->live_bytes &&
        (e->harms.n > 0 || e->unreadable))
        return;
    l->state = DOCTOR_INDEX_ROWS;
    doctor_say(l, DOCTOR_WRONG,
               "the index counts %" PRIu64 " live blocks of %" PRIu64 " bytes in segment %" PRIu64
               " (%" PRIu64 " bytes), but tells of %" PRIu64 " of %" PRIu64 " (%" PRIu64 " bytes)",
               row->live_rows, row->live_bytes, e->id, row->bytes, e->live_rows, e->live_bytes,
               e->size);
}

static void doctor_segment_check_rows(struct exam *e)
{
    struct doctor_pass *l = e->look;
    int err = index_segment_blocks(l->index, e->id, doctor_segment_check_row, e);
    say_range(e);
    if (err == 0)
        check_counts(e);
    else if (l->state == DOCTOR_INDEX_SOUND) /* otherwise that has been said */
        doctor_say(l, DOCTOR_WRONG, "the index's rows of segment %" PRIu64 " cannot be read: %s",
                   e->id, err_text(err));
}

/* ---- what it comes to ---- */

static void say_footer(struct exam *e)
{
    struct doctor_pass *l = e->look;
    if (e->has_meta && e->bad_notes == 0) {
        doctor_say(l, DOCTOR_WRONG,
                   "segment %" PRIu64
                   ": its head or footer is damaged; nothing is lost by that, for "
                   "all its blocks and notes verify",
                   e->id);
        buf_put(&l->footers, str_of((const char *)&e->id, sizeof e->id));
    } else {
        doctor_say(l, DOCTOR_WRONG,
                   "segment %" PRIu64 ": its head or footer is damaged or missing, and from byte "
                   "%" PRIu64 " on not everything could be looked at",
                   e->id, e->items_end);
    }
}

static bool is_needed_for_notes(const struct exam *e)
{
    return e->unknown || e->id >= e->look->meta.base;
}

static void say_harms(struct exam *e)
{
    const struct harm *h = (const struct harm *)(const void *)e->harms.p;
    bool judged = e->row != NULL && e->look->index != NULL;
    for (size_t i = 0; i < e->harms.n / sizeof *h; i++) {
        if (h[i].told || !h[i].found)
            continue;
        bool note = strstr(h[i].what, "note") != NULL;
        const char *more = note && is_needed_for_notes(e)
                               ? "; the index could not be made again without it"
                           : note || judged ? "; nothing needs it any more"
                                            : "";
        doctor_say(e->look, DOCTOR_WRONG, "segment %" PRIu64 ", byte %" PRIu64 ": %s%s", e->id,
                   h[i].offset, h[i].what, more);
    }
}

/* One that is missing between others may have said anything. */
static void check_gap(struct doctor_pass *l, const struct exam *e)
{
    bool gap = l->last_id != 0 && e->id != l->last_id + 1;
    if (e->is_base && e->has_meta && e->bad_notes == 0)
        l->lossy = 0; /* whatever was before counts no more */
    else if (gap && l->lossy < e->id)
        l->lossy = e->id - 1;
    l->last_id = e->id;
}

/* Whether all its notes are there, so that what the index says of them could be made again. */
static void check_notes(struct exam *e)
{
    struct doctor_pass *l = e->look;
    bool whole = e->has_meta && e->bad_notes == 0;
    if (!whole && is_needed_for_notes(e))
        l->notes_lost = true;
    if (!whole)
        l->lossy = e->id;
    if (e->has_meta) {
        l->meta_id = e->id;
        l->meta_lossy = l->lossy;
    }
    if (!e->unknown)
        return;
    if (e->has_meta)
        l->batch = e->batch;
    if (!whole && l->stuck_at == 0)
        l->stuck_at = e->id;
    else if (whole && e->is_base)
        l->stuck_at = 0; /* whatever was before counts no more */
}

static int examine(struct exam *e)
{
    struct doctor_pass *l = e->look;
    struct segment_scan scan = {.verify = true,
                                .salvage = true,
                                .ctx = e,
                                .block = doctor_segment_see_block,
                                .note = doctor_segment_see_note,
                                .damaged = doctor_segment_see_harm};
    uint64_t before = l->done_bytes;
    e->items_end = SEGMENT_FILE_HEAD;
    int err = segment_size(l->doctor->vfs, e->id, &e->size);
    if (err == 0)
        err = segment_scan(l->doctor->vfs, e->id, &scan);
    if (err == ERR_VERSION)
        return err;
    e->unreadable = err != 0;
    if (err != 0)
        doctor_say(l, DOCTOR_WRONG, "segment %" PRIu64 " cannot be read", e->id);
    if (scan.salvaged)
        say_footer(e);
    if (e->row != NULL && l->index != NULL)
        doctor_segment_check_rows(e);
    say_harms(e);
    check_gap(l, e);
    check_notes(e);
    l->files++;
    l->bytes += e->size;
    doctor_progress(l, e->size -
                           (l->done_bytes - before < e->size ? l->done_bytes - before : e->size));
    return 0;
}

static void miss(struct exam *e)
{
    struct doctor_pass *l = e->look;
    if (e->row->live_rows > 0)
        doctor_say(l, DOCTOR_WRONG,
                   "segment %" PRIu64 " is missing, with %" PRIu64 " blocks of events", e->id,
                   e->row->live_rows);
    else if (e->id >= l->meta.base)
        doctor_say(l, DOCTOR_WRONG,
                   "segment %" PRIu64 " is missing; no events were in it any more, but the index "
                   "could not be made again without it",
                   e->id);
    if (e->id >= l->meta.base)
        l->notes_lost = true;
    if (l->index != NULL)
        index_segment_blocks(l->index, e->id, doctor_segment_report_lost_row, e);
    say_range(e);
}

/* ---- all of them ---- */

static int doctor_segment_by_id(const void *a, const void *b)
{
    const struct index_segment *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static const struct index_segment *doctor_segment_row_of(const struct doctor_pass *l, uint64_t id)
{
    struct index_segment wanted = {.id = id};
    return l->n_rows == 0
               ? NULL
               : bsearch(&wanted, l->rows, l->n_rows, sizeof wanted, doctor_segment_by_id);
}

static int doctor_segment_by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool is_there(const struct doctor_pass *l, uint64_t id)
{
    return l->n_ids > 0 &&
           bsearch(&id, l->ids, l->n_ids, sizeof id, doctor_segment_by_number) != NULL;
}

/* One that the index should hear of next, and that is not there. A base does without. */
static void check_order(struct doctor_pass *l, const struct exam *e, uint64_t *due)
{
    if (e->is_base && e->has_meta && e->bad_notes == 0) {
        l->absent = 0;
        l->outdated = true;
    } else if (e->id != *due && l->absent == 0) {
        l->absent = *due;
    }
    *due = e->id + 1;
    l->behind = true;
}

static void say_absent(struct doctor_pass *l)
{
    doctor_say(l, DOCTOR_WRONG, "segment %" PRIu64 " is missing, before the index has heard of it",
               l->absent);
    l->notes_lost = true;
    if (l->stuck_at == 0)
        l->stuck_at = l->absent;
}

static int examine_file(struct doctor_pass *l, uint64_t id, uint64_t *due)
{
    bool indexed = l->state <= DOCTOR_INDEX_ROWS && l->has_meta && l->meta.batch > 0;
    struct exam e = {.look = l, .id = id, .row = indexed ? doctor_segment_row_of(l, id) : NULL};
    e.unknown = !indexed || id >= l->meta.next_segment;
    int err = examine(&e);
    if (err == 0 && e.unknown && indexed) {
        check_order(l, &e, due);
    } else if (err == 0 && e.row == NULL && indexed && l->n_bad == 0) {
        doctor_say(
            l, DOCTOR_NOTE,
            "segment %" PRIu64 " is not needed any more; the server removes it when it starts", id);
    }
    buf_deinit(&e.blocks);
    buf_deinit(&e.harms);
    return err;
}

static void find_missing(struct doctor_pass *l)
{
    for (size_t i = 0; i < l->n_rows; i++) {
        struct exam e = {.look = l, .id = l->rows[i].id, .row = &l->rows[i]};
        if (!is_there(l, e.id))
            miss(&e);
    }
}

int doctor_check_segments(struct doctor_pass *l, char *why, size_t size)
{
    uint64_t due = l->meta.next_segment;
    int err = 0;
    for (size_t i = 0; i < l->n_ids && err == 0; i++)
        err = examine_file(l, l->ids[i], &due);
    if (err != 0) {
        snprintf(why, size, "a segment was written by a later version of this program");
        return err;
    }
    if (l->state <= DOCTOR_INDEX_ROWS && !l->outdated)
        find_missing(l);
    if (l->absent != 0)
        say_absent(l);
    if (l->behind && l->stuck_at == 0)
        doctor_say(l, DOCTOR_NOTE,
                   "the index has not heard of the last checkpoint yet, as after a crash; it will "
                   "when the server starts%s",
                   l->outdated ? ", and what it says then has to be verified then" : "");
    return 0;
}
