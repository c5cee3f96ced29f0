// SPDX-License-Identifier: Apache-2.0
/* log.c -- reading a log's file, on the lane's thread, and taking its lines apart. */
#include "feature/logs/log.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "feature/logs/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SCAN_MAX (8 * 1024 * 1024) /* bytes looked at in one job for the end of a long line */

/* ---- reading ---- */

/* Grows a block that is full, up to where one line at most can end. */
static struct block *log_grown(struct block *b)
{
    uint32_t cap = b->cap > LOG_LINE_MAX / 4 ? LOG_LINE_MAX + 1 : b->cap * 4;
    struct block *more = block_new(cap);
    memcpy(more->bytes, b->bytes, b->n);
    more->n = b->n;
    block_unref(b);
    return more;
}

/* One step, or as much more as the first line takes. A line that is longer than any may be leaves
 * r->scan behind its first bytes. */
static int read_lines(struct log_read *r, int fd)
{
    uint64_t left = r->size - r->since;
    uint32_t step = r->max > 0 ? r->max : LOG_STEP;
    struct block *b = block_new(left < step ? (uint32_t)left : step);
    int err = 0;
    for (;;) {
        size_t got;
        err = log_file_read(fd, r->since + b->n, b->bytes + b->n, b->cap - b->n, &got);
        if (err != 0)
            break;
        const char *end = memrchr(b->bytes + b->n, '\n', got);
        b->n += (uint32_t)got;
        if (end != NULL) {
            b->n = (uint32_t)(end + 1 - b->bytes);
            r->next = r->since + b->n;
            r->bytes = b;
            return 0;
        }
        if (b->n < b->cap || r->since + b->n >= r->size)
            break; /* nobody has finished that line */
        if (b->n > LOG_LINE_MAX) {
            r->scan = r->since + b->n;
            break;
        }
        b = log_grown(b);
    }
    block_unref(b);
    return err;
}

/* Goes on looking for the end of a line that is too long, and sets r->scan to 0 when there is no
 * more to look at. */
static int scan_line(struct log_read *r, int fd)
{
    char *piece = mem_alloc(LOG_STEP);
    int err = 0;
    for (size_t seen = 0; seen < SCAN_MAX && r->scan != 0;) {
        size_t got;
        err = log_file_read(fd, r->scan, piece, LOG_STEP, &got);
        if (err != 0)
            break;
        const char *end = memchr(piece, '\n', got);
        if (end != NULL)
            r->next = r->scan + (size_t)(end + 1 - piece);
        r->scan = end == NULL && got == LOG_STEP ? r->scan + got : 0;
        seen += got;
    }
    free(piece);
    return err;
}

/* Is there a line that begins at r->since? */
static int log_check_cursor(struct log_read *r, int fd)
{
    char before = '\n';
    size_t got = 1;
    if (r->since > r->size)
        return ERR_GAP;
    int err = r->since > 0 ? log_file_read(fd, r->since - 1, &before, 1, &got) : 0;
    if (err != 0)
        return err;
    if (got == 0)
        return ERR_GAP; /* cut off this very moment */
    return before == '\n' ? 0 : r->has_id ? ERR_GAP : ERR_OFFSET;
}

static int log_read_on(struct log_read *r, int fd, const struct stat *st)
{
    struct log_id here = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, 0};
    if (r->scan != 0 && !log_id_same(&r->scanned, &here))
        r->scan = 0; /* what was scanned is gone */
    r->scanned = here;
    if (r->scan == 0 && r->since < r->size) {
        int err = read_lines(r, fd);
        if (err != 0)
            return err;
    }
    return r->scan != 0 ? scan_line(r, fd) : 0;
}

/* The file is told from others last: one that is truncated while it is read is then noticed. */
static int log_read_file(struct log_read *r, int fd)
{
    struct stat st;
    struct log_id now = {0, 0, 0};
    int err = log_file_stat(fd, &st);
    if (err != 0)
        return err;
    r->size = (uint64_t)st.st_size;
    int verdict = log_check_cursor(r, fd);
    if (verdict == 0)
        verdict = log_read_on(r, fd, &st);
    err = log_file_id(fd, &st, &now);
    if (err != 0)
        return err;
    if (r->has_id && !log_id_same(&r->id, &now))
        verdict = ERR_GAP;
    if (r->scan == 0 || verdict != 0)
        r->id = now;
    return verdict;
}

static int read_missing(struct log_read *r)
{
    static const struct log_id none;
    r->size = 0;
    r->scan = 0;
    bool gone = r->has_id && !log_id_same(&r->id, &none);
    r->id = none;
    return gone || r->since > 0 ? ERR_GAP : 0;
}

static void log_run_read(struct job *j)
{
    struct log_read *r = container_of(j, struct log_read, job);
    r->next = r->since;
    int fd = log_file_open(r->log->path, O_RDONLY);
    if (fd < 0) {
        r->err = errno == ENOENT ? read_missing(r) : ERR_IO;
        return;
    }
    r->err = log_read_file(r, fd);
    close(fd);
    if (r->err != 0) {
        block_unref(r->bytes);
        r->bytes = NULL;
        r->next = r->since;
        r->scan = 0;
    }
}

static void log_done_read(struct job *j)
{
    struct log_read *r = container_of(j, struct log_read, job);
    if (r->scan != 0)
        lane_submit(r->log->lane, &r->job);
    else
        r->done(r, r->err);
}

void log_read(struct log_read *r)
{
    r->bytes = NULL;
    r->scan = 0;
    r->job.run = log_run_read;
    r->job.done = log_done_read;
    lane_submit(r->log->lane, &r->job);
}

/* ---- lines ---- */

bool log_line(struct str *rest, struct str *line)
{
    static const struct str mark = STR_INIT("\xef\xbb\xbf");
    const char *end = rest->n > 0 ? memchr(rest->p, '\n', rest->n) : NULL;
    if (end == NULL)
        return false;
    struct str s = str_of(rest->p, (size_t)(end - rest->p));
    *rest = str_skip(*rest, s.n + 1);
    if (str_starts(s, mark))
        s = str_skip(s, mark.n);
    while (s.n > 0 && ascii_is_white(s.p[s.n - 1]))
        s.n--;
    while (s.n > 0 && ascii_is_white(*s.p))
        s = str_skip(s, 1);
    *line = s;
    return true;
}
