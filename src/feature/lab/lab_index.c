// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_index.h"
#include "base/date.h"
#include "base/err.h"
#include "base/mem.h"
#include "feature/lab/lab_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- logs at once ---- */

static void lab_index_run_now(struct lane *l, struct job *j)
{
    j->run(j);
    j->done(j);
}

static void lab_index_on_read(struct log_read *r, int err)
{
    r->err = err;
}

int lab_log_read(struct log_read *r)
{
    struct lane now = {.submit = lab_index_run_now};
    struct log on_this_thread = {&now, r->log->path}, *before = r->log;
    r->log = &on_this_thread;
    r->done = lab_index_on_read;
    log_read(r);
    r->log = before;
    return r->err;
}

int lab_log_append(const char *path, struct str lines)
{
    return log_append_now(path, lines, NULL);
}

/* Backwards, a piece at a time. Further than two lines may be long nobody looks: 0 will do, too. */
static int find_end(int fd, uint64_t size, uint64_t *cursor)
{
    static const size_t step = 64 * 1024;
    uint64_t until = size > 2 * LOG_LINE_MAX ? size - 2 * LOG_LINE_MAX : 0;
    char *piece = mem_alloc(step);
    int err = 0;
    *cursor = 0;
    while (size > until && *cursor == 0 && err == 0) {
        size_t n = size < step ? (size_t)size : step;
        ssize_t got = pread(fd, piece, n, (off_t)(size - n));
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)n) {
            err = ERR_IO;
            break;
        }
        const char *end = memrchr(piece, '\n', n);
        if (end != NULL)
            *cursor = size - n + (uint64_t)(end + 1 - piece);
        size -= n;
    }
    free(piece);
    return err;
}

int lab_log_end(const char *path, uint64_t *cursor)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *cursor = 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : ERR_IO;
    off_t size = lseek(fd, 0, SEEK_END);
    int err = size < 0 ? ERR_IO : find_end(fd, (uint64_t)size, cursor);
    close(fd);
    return err;
}

/* ---- the index ---- */

void lab_index_init(struct lab_index *x, const char *path,
                    json_t *(*accept)(struct str line, struct lab_line *out))
{
    size_t n = strlen(path) + 1;
    *x = (struct lab_index){.accept = accept};
    x->log.path = memcpy(mem_alloc(n), path, n);
    map_init(&x->by_id);
}

static void lab_index_forget(struct lab_index *x)
{
    size_t at = 0;
    struct lab_record *r;
    while ((r = map_next(&x->by_id, &at)) != NULL)
        free(r);
    map_deinit(&x->by_id);
    x->next = 0;
}

void lab_index_deinit(struct lab_index *x)
{
    if (x->log.path == NULL)
        return;
    lab_index_forget(x);
    free((char *)(uintptr_t)x->log.path);
    x->log.path = NULL;
}

static void lab_index_take(struct lab_index *x, struct str line, uint64_t at)
{
    struct lab_line meaning = {0};
    int64_t created_ms = 0;
    json_t *record = x->accept(line, &meaning);
    if (record != NULL && meaning.id.n > 0 && meaning.id.n <= LAB_ID_MAX) {
        struct lab_record *r = mem_alloc(sizeof *r + meaning.id.n);
        date_parse_rfc3339(lab_json_get(record, "createdAt"), &created_ms);
        *r = (struct lab_record){.at = at,
                                 .n = (uint32_t)line.n,
                                 .mark = meaning.mark,
                                 .created_ms = created_ms,
                                 .group = meaning.group,
                                 .id_n = (uint32_t)meaning.id.n};
        memcpy(r->id, meaning.id.p, meaning.id.n);
        free(map_put(&x->by_id, str_of(r->id, r->id_n), r));
    }
    json_decref(record);
}

static void take_all(struct lab_index *x, const struct block *b, uint64_t from)
{
    struct str rest = str_of(b->bytes, b->n), line;
    while (log_line(&rest, &line))
        lab_index_take(x, line, from + (uint64_t)(line.p - b->bytes));
}

int lab_index_refresh(struct lab_index *x)
{
    for (int again = 0; again < 3;) {
        struct log_read r = {.log = &x->log, .since = x->next, .has_id = true, .id = x->file};
        int err = lab_log_read(&r);
        if (err == ERR_GAP || err == ERR_OFFSET) { /* another file, or cut: all over again */
            lab_index_forget(x);
            map_init(&x->by_id);
            x->file = (struct log_id){0};
            again++;
            continue;
        }
        if (err != 0)
            return err;
        if (r.bytes != NULL)
            take_all(x, r.bytes, r.since);
        block_unref(r.bytes);
        x->file = r.id;
        if (r.next == x->next)
            return 0;
        x->next = r.next;
    }
    return ERR_IO;
}

const struct lab_record *lab_index_find(const struct lab_index *x, struct str id)
{
    return id.n > 0 && id.n <= LAB_ID_MAX ? map_get(&x->by_id, id) : NULL;
}

json_t *lab_index_read_at(struct lab_index *x, struct lab_location place)
{
    struct lab_line ignored = {0};
    json_t *record = NULL;
    int fd = open(x->log.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    char *line = mem_alloc(place.n + 1);
    if (pread(fd, line, place.n, (off_t)place.at) == (ssize_t)place.n)
        record = x->accept(str_of(line, place.n), &ignored);
    free(line);
    close(fd);
    return record;
}

json_t *lab_index_read(struct lab_index *x, const struct lab_record *r)
{
    return lab_index_read_at(x, (struct lab_location){r->at, r->n, r->created_ms});
}

int lab_index_append(struct lab_index *x, const json_t *record)
{
    struct buf line = {0};
    lab_json_put(&line, record);
    buf_putc(&line, '\n');
    int err = line.n > LOG_LINE_MAX ? ERR_TOO_LARGE : lab_log_append(x->log.path, buf_str(&line));
    buf_deinit(&line);
    return err != 0 ? err : lab_index_refresh(x);
}

/* Of the same time, the one that stands further behind is the newer. */
static int lab_index_by_age(const void *a, const void *b)
{
    const struct lab_location *l = a, *r = b;
    if (l->created_ms != r->created_ms)
        return l->created_ms < r->created_ms ? 1 : -1;
    return l->at < r->at ? 1 : l->at > r->at ? -1 : 0;
}

struct lab_location *lab_index_list(const struct lab_index *x, const uint64_t *group, size_t *n)
{
    struct lab_location *all = mem_alloc((x->by_id.n + 1) * sizeof *all);
    const struct lab_record *r;
    size_t at = 0;
    *n = 0;
    while ((r = map_next(&x->by_id, &at)) != NULL)
        if (group == NULL || r->group == *group)
            all[(*n)++] = (struct lab_location){r->at, r->n, r->created_ms};
    qsort(all, *n, sizeof *all, lab_index_by_age);
    return all;
}
