// SPDX-License-Identifier: Apache-2.0
/* log_append.c -- lines at the end of a log's file, all of it on the lane's thread.
 *
 * Writers that know nothing of us append without our lock, so every step has to be right whatever
 * they do between any two of our calls, as long as each of their writes is whole lines. */
#include "base/ascii.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/logs/log.h"
#include "feature/logs/log_file.h"
#include "feature/logs/log_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOCK_TRIES  250
#define JOINED_LOOK 256 /* bytes before an append in which it is looked for a line's beginning */
#define KEYED_MAX   (16 * 1024 * 1024) /* bytes of one append that an intent may speak of */

/* 1: it ends with a line that is not finished, or that is being written just now; then a newline
 * more is a blank line, which nobody counts. */
static int ends_open(int fd)
{
    char last = '\n';
    size_t got;
    struct stat st;
    int err = log_file_stat(fd, &st);
    if (err == 0 && st.st_size > 0)
        err = log_file_read(fd, (uint64_t)st.st_size - 1, &last, 1, &got);
    return err != 0 ? err : last != '\n';
}

/* What one call has written. */
struct piece {
    off_t from, to;
    bool closes; /* it begins with the newline that closes off what was there */
};

/* Takes it back if it is still the file's last. Somebody may append between the question and the
 * cut; but nobody who failed to write can do better, and a torn line that stays would spoil the
 * next of a writer that does not look. */
static void log_take_back(int fd, const struct piece *p, off_t keep)
{
    struct stat st;
    if (p->to > p->from + keep && fstat(fd, &st) == 0 && st.st_size == p->to &&
        ftruncate(fd, p->from + keep) != 0)
        return; /* the next append closes it off */
}

/* One call, so that no other writer's bytes come in between. What is written of it is *out, also on
 * failure. */
static int write_lines(int fd, bool close_off, struct str lines, struct piece *out)
{
    struct iovec pieces[] = {{(char *)"\n", close_off ? 1 : 0}, {(char *)lines.p, lines.n}};
    ssize_t n;
    *out = (struct piece){0, 0, false};
    do {
        n = writev(fd, pieces, 2);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return log_file_err(errno);
    off_t end = lseek(fd, 0, SEEK_CUR); /* behind what this descriptor has written */
    if (end < n)
        return ERR_IO;
    *out = (struct piece){end - n, end, close_off && n > 0};
    return (size_t)n == pieces[0].iov_len + lines.n ? 0 : ERR_FULL;
}

/* 1: what was written does not begin a line. Between our look at the file's end and our writing
 * somebody has begun one and not finished it. White space alone does no harm: it is not joined. */
static int is_joined(int fd, const struct piece *p)
{
    char before[JOINED_LOOK + 1];
    size_t look = p->from < JOINED_LOOK ? (size_t)p->from : JOINED_LOOK, got;
    int err = log_file_read(fd, (uint64_t)p->from - look, before, look + 1, &got);
    if (err != 0 || got <= look || before[look] == '\n')
        return err;
    while (look > 0 && before[look - 1] != '\n' && ascii_is_white(before[look - 1]))
        look--;
    return look > 0 && before[look - 1] != '\n';
}

static struct str first_line(struct str lines)
{
    return str_of(lines.p, (size_t)((const char *)memchr(lines.p, '\n', lines.n) + 1 - lines.p));
}

/* Writes the lines; and the first once more, behind a newline, if it was joined to what somebody
 * has left unfinished: as a part of that it counts for nothing. */
static int write_whole(int fd, struct str lines, struct piece wrote[2])
{
    int open_end = ends_open(fd);
    if (open_end < 0)
        return open_end;
    int err = write_lines(fd, open_end == 1, lines, &wrote[0]);
    if (err != 0)
        return err;
    int joined = is_joined(fd, &wrote[0]);
    return joined == 1 ? write_lines(fd, true, first_line(lines), &wrote[1]) : joined;
}

static int append_locked(struct log_append *a, int fd, const struct stat *st)
{
    struct piece wrote[2] = {{0}, {0}};
    int err = write_whole(fd, a->lines, wrote);
    if (err == 0 && fdatasync(fd) != 0)
        err = log_file_err(errno);
    if (err == 0 && wrote[0].from == 0) /* the file was new */
        err = log_file_sync_folder(a->log->path);
    if (err == 0)
        err = log_file_id(fd, st, &a->id);
    if (err != 0) {
        log_take_back(fd, &wrote[1], 0);
        /* A reader may be behind the line that was closed off: its cursor has to stay one. */
        log_take_back(fd, &wrote[0], wrote[0].closes);
        return err;
    }
    bool twice = wrote[1].to > 0;
    a->start = (uint64_t)wrote[0].to - a->lines.n + (twice ? first_line(a->lines).n : 0);
    a->next = (uint64_t)wrote[twice].to;
    return 0;
}

/* ---- appending once ---- */

/* Looks for the lines of an intent at `at`. 0: they stand there. 1: they do, but the first is
 * joined to what somebody has left unfinished. */
static int stand_at(int fd, const struct log_key_entry *n, uint64_t at, char *room)
{
    size_t length = (size_t)(n->next - n->start), got;
    uint8_t digest[SHA256_SIZE];
    int err = log_file_read(fd, at, room, length, &got);
    if (err != 0)
        return err;
    sha256(str_of(room, got), digest);
    if (got < length || memcmp(digest, n->body, sizeof digest) != 0)
        return ERR_NOT_FOUND;
    return is_joined(fd, &(struct piece){.from = (off_t)at});
}

/* The same in the whole file from n->start on. A single line that is joined is as good as none. */
static int find_lines(int fd, const struct log_key_entry *n, uint64_t *at)
{
    char *piece = mem_alloc(LOG_STEP), *room = mem_alloc((size_t)(n->next - n->start));
    int found = ERR_NOT_FOUND;
    uint64_t from = n->start;
    for (size_t got = LOG_STEP; got == LOG_STEP && found == ERR_NOT_FOUND; from += got) {
        int err = log_file_read(fd, from, piece, LOG_STEP, &got);
        if (err != 0) {
            found = err;
            break;
        }
        struct str rest = str_of(piece, got);
        const char *end;
        while (found == ERR_NOT_FOUND && (end = memchr(rest.p, '\n', rest.n)) != NULL) {
            uint64_t next = from + (uint64_t)(end + 1 - piece);
            rest = str_skip(rest, (size_t)(end + 1 - rest.p));
            if (next - n->start < n->first)
                continue;
            *at = next - n->first;
            found = stand_at(fd, n, *at, room);
            if (found == 1 && n->first == n->next - n->start)
                found = ERR_NOT_FOUND;
        }
    }
    free(piece);
    free(room);
    return found;
}

/* The lines stand at `at`, the first of them joined and so spoilt: it is appended behind them once
 * more, unless it was already. *next: the cursor behind it. */
static int mend_joined(int fd, const struct log_key_entry *n, uint64_t at, uint64_t *next)
{
    char *first = mem_alloc(n->first);
    size_t got;
    struct piece wrote;
    struct log_key_entry alone = {.start = at + (n->next - n->start), .first = n->first};
    alone.next = alone.start + n->first;
    int err = log_file_read(fd, at, first, n->first, &got);
    if (err == 0) {
        sha256(str_of(first, got), alone.body);
        err = find_lines(fd, &alone, next);
    }
    if (err == 0)
        *next += n->first;
    if (err == ERR_NOT_FOUND) {
        err = write_lines(fd, true, str_of(first, got), &wrote);
        *next = (uint64_t)wrote.to;
    }
    free(first);
    return err;
}

static bool is_of_file(const struct log_key_entry *n, const struct log_id *now)
{
    uint64_t length = n->next - n->start;
    return n->id.inode == now->inode && (n->id.head == 0 || n->id.head == now->head) &&
           n->next > n->start && length <= KEYED_MAX && n->first <= length;
}

/* Sees what came of an intent: its lines are in the file, on the disk, and noted; or it is
 * forgotten. Lines that went to a file that is there no more are not in the log. */
static int log_settle(struct log_append *a, struct log_keys *keys, struct log_key_entry *intent,
                      int fd, const struct stat *st)
{
    struct log_key_entry n = *intent;
    uint64_t at = 0;
    int err = log_file_id(fd, st, &n.id);
    if (err == 0)
        err = is_of_file(intent, &n.id) ? find_lines(fd, intent, &at) : ERR_NOT_FOUND;
    if (err == ERR_NOT_FOUND)
        return log_keys_forget(keys, intent);
    n.start = at;
    n.next = at + (intent->next - intent->start);
    if (err == 1) {
        n.start += n.first;
        err = mend_joined(fd, intent, at, &n.next);
    }
    if (err == 0 && fdatasync(fd) != 0)
        err = log_file_err(errno);
    return err != 0 ? err : log_keys_put(keys, &n, a->key_lifetime_ms, n.at_ms, &a->key_dropped);
}

static int settle_all(struct log_append *a, struct log_keys *keys, int fd, const struct stat *st)
{
    int err = 0;
    for (int i = 0; err == 0 && i < LOG_KEYS_INTENTS; i++) {
        struct log_key_entry *intent = log_keys_open_intent(keys);
        if (intent != NULL)
            err = log_settle(a, keys, intent, fd, st);
    }
    return err;
}

static int intend(struct log_append *a, struct log_keys *keys, int fd, struct log_key_entry *n)
{
    struct stat st;
    int err = keys->made ? log_file_sync_folder(a->log->path) : 0;
    if (err == 0)
        err = log_file_stat(fd, &st);
    if (err == 0)
        err = log_file_id(fd, &st, &n->id);
    n->start = (uint64_t)st.st_size;
    n->next = n->start + a->lines.n;
    n->first = (uint32_t)first_line(a->lines).n;
    return err != 0 ? err : log_keys_intend(keys, n);
}

static int append_keyed(struct log_append *a, struct log_keys *keys, int fd, const struct stat *st)
{
    struct log_key_entry n = {.at_ms = clock_wall_ms()}, known;
    sha256(a->key, n.key);
    sha256(a->lines, n.body);
    int err = log_keys_find(keys, n.key, a->key_lifetime_ms, n.at_ms, &known);
    if (err == 0) {
        a->repeated = true;
        a->start = known.start;
        a->next = known.next;
        a->id = known.id;
        return memcmp(known.body, n.body, sizeof n.body) == 0 ? 0 : ERR_EXISTS;
    }
    if (err == ERR_NOT_FOUND)
        err = intend(a, keys, fd, &n);
    if (err != 0)
        return err;
    err = append_locked(a, fd, st);
    if (err != 0) {
        (void)settle_all(a, keys, fd, st); /* or the next append does */
        return err;
    }
    n.start = a->start;
    n.next = a->next;
    n.id = a->id;
    /* Without this note the intent tells as much. */
    (void)log_keys_put(keys, &n, a->key_lifetime_ms, n.at_ms, &a->key_dropped);
    return 0;
}

/* What keys are for does not stop an append without one. */
static int append_with_keys(struct log_append *a, int fd, const struct stat *st)
{
    bool keyed = a->key.n > 0;
    struct log_keys keys;
    int err = log_keys_open(&keys, a->log->path, keyed);
    if (err == 0)
        err = settle_all(a, &keys, fd, st);
    if (!keyed)
        err = append_locked(a, fd, st);
    else if (err == 0)
        err = append_keyed(a, &keys, fd, st);
    log_keys_close(&keys);
    return err;
}

static int log_append_locked(struct log_append *a)
{
    struct stat st;
    int fd = -1, err = log_file_open_locked(a->log->path, &fd, &st);
    if (err != 0)
        return err;
    err = append_with_keys(a, fd, &st);
    close(fd); /* and the lock is free */
    return err;
}

static void log_run_append(struct job *j)
{
    struct log_append *a = container_of(j, struct log_append, job);
    a->err = log_append_locked(a);
    a->tries++;
}

static bool again(const struct log_append *a)
{
    return a->err == ERR_BUSY && a->tries < LOCK_TRIES;
}

static void log_done_append(struct job *j)
{
    struct log_append *a = container_of(j, struct log_append, job);
    if (again(a))
        lane_submit(a->log->lane, &a->job);
    else
        a->done(a, a->err);
}

void log_append(struct log_append *a)
{
    must(a->lines.n > 0 && a->lines.p[a->lines.n - 1] == '\n');
    a->tries = 0;
    a->job.run = log_run_append;
    a->job.done = log_done_append;
    lane_submit(a->log->lane, &a->job);
}

int log_append_now(const char *path, struct str lines, uint64_t *start)
{
    struct log log = {.path = path};
    struct log_append a = {.log = &log, .lines = lines};
    must(lines.n > 0 && lines.p[lines.n - 1] == '\n');
    do {
        log_run_append(&a.job);
    } while (again(&a));
    if (a.err == 0 && start != NULL)
        *start = a.start;
    return a.err;
}
