// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sched.h"
#include "fault/simlane.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct world {
    struct sched sched;
    struct log log;
    char folder[64], path[128];
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    sched_init(&w->sched, 0, 0);
    snprintf(w->folder, sizeof w->folder, "/tmp/test_log.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/log.jsonl", w->folder);
    w->log = (struct log){.lane = simlane_new(&w->sched, 1, 0), .path = w->path};
    *state = w;
    return 0;
}

static int forget(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    return remove(path);
}

static int teardown(void **state)
{
    struct world *w = *state;
    lane_free(w->log.lane);
    assert_int_equal(nftw(w->folder, forget, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(w);
    return 0;
}

/* ---- what others do with the file ---- */

static void foreign_write(struct world *w, int flags, struct str bytes)
{
    int fd = open(w->path, O_WRONLY | O_CREAT | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes.p, bytes.n), (ssize_t)bytes.n);
    close(fd);
}

static void put(struct world *w, const char *text)
{
    foreign_write(w, O_APPEND, str_of_cstr(text));
}

static void truncate_to(struct world *w, uint64_t size)
{
    put(w, "");
    assert_int_equal(truncate(w->path, (off_t)size), 0);
}

static void assert_file(const char *path, const char *text)
{
    char got[4096];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, got, sizeof got - 1);
    close(fd);
    assert_true(n >= 0);
    got[n] = '\0';
    assert_string_equal(got, text);
}

/* ---- operations ---- */

static int told_err, told_times;

static void on_read(struct log_read *r, int err)
{
    told_err = err;
    told_times++;
}

static void on_append(struct log_append *a, int err)
{
    told_err = err;
    told_times++;
}

/* A second lane's worth of turns is plenty: every job runs within submit. */
static int finish(struct world *w)
{
    for (uint64_t i = 0; told_times == 0 && i < 2000; i++)
        sched_turn(&w->sched, w->sched.now_ms + SCHED_TICK_MS, 0);
    assert_int_equal(told_times, 1);
    return told_err;
}

static int read_log(struct world *w, struct log_read *r)
{
    r->log = &w->log;
    r->done = on_read;
    told_times = 0;
    log_read(r);
    assert_int_equal(told_times, 0); /* never from within the call */
    return finish(w);
}

static int append(struct world *w, struct log_append *a, const char *lines)
{
    *a = (struct log_append){.log = &w->log, .lines = str_of_cstr(lines), .done = on_append};
    told_times = 0;
    log_append(a);
    assert_int_equal(told_times, 0);
    return finish(w);
}

static void assert_reads(struct world *w, uint64_t since, const char *text, uint64_t next)
{
    struct log_read r = {.since = since};
    assert_int_equal(read_log(w, &r), 0);
    if (*text == '\0') {
        assert_null(r.bytes);
    } else {
        assert_non_null(r.bytes);
        assert_int_equal(r.bytes->n, strlen(text));
        assert_memory_equal(r.bytes->bytes, text, r.bytes->n);
    }
    assert_int_equal(r.next, next);
    block_unref(r.bytes);
}

static int read_err(struct world *w, uint64_t since)
{
    struct log_read r = {.since = since};
    int err = read_log(w, &r);
    assert_null(r.bytes);
    assert_int_equal(r.next, since);
    return err;
}

/* ---- reading ---- */

static void test_missing_file_is_empty(void **state)
{
    struct world *w = *state;
    assert_reads(w, 0, "", 0);
    assert_int_equal(read_err(w, 1), ERR_GAP);
}

static void test_whole_lines_alone(void **state)
{
    struct world *w = *state;
    put(w, "{\"a\":1}\n{\"b\":2}\n{\"c\"");
    assert_reads(w, 0, "{\"a\":1}\n{\"b\":2}\n", 16);
    assert_reads(w, 8, "{\"b\":2}\n", 16);
    assert_reads(w, 16, "", 16); /* the third is not there yet */
    put(w, ":3}\n");
    assert_reads(w, 16, "{\"c\":3}\n", 24);
    assert_reads(w, 24, "", 24);
}

static void test_cursors_that_are_none(void **state)
{
    struct world *w = *state;
    struct log_read r = {.since = 4};
    put(w, "{}\nx");
    assert_int_equal(read_err(w, 1), ERR_OFFSET);
    assert_int_equal(read_err(w, 4), ERR_OFFSET); /* the end, but within a line */
    assert_int_equal(read_err(w, 5), ERR_GAP);
    assert_int_equal(read_err(w, UINT64_MAX), ERR_GAP);
    assert_int_equal(read_err(w, (uint64_t)1 << 63), ERR_GAP);
    r.since = 5;
    assert_int_equal(read_log(w, &r), ERR_GAP);
    assert_int_equal(r.size, 4);
    assert_int_not_equal(r.id.inode, 0);
}

static void test_steps(void **state)
{
    struct world *w = *state;
    struct buf all = {0};
    for (int i = 0; all.n < 3 * LOG_STEP; i++)
        buf_printf(&all, "{\"number\":%d}\n", i);
    foreign_write(w, 0, buf_str(&all));
    uint64_t at = 0;
    for (int steps = 1; at < all.n; steps++) {
        struct log_read r = {.since = at};
        assert_int_equal(read_log(w, &r), 0);
        assert_non_null(r.bytes);
        assert_true(r.bytes->n <= LOG_STEP);
        assert_int_equal(r.next, at + r.bytes->n);
        assert_memory_equal(r.bytes->bytes, all.p + at, r.bytes->n);
        assert_int_equal(r.bytes->bytes[r.bytes->n - 1], '\n');
        assert_int_equal(r.size, all.n);
        at = r.next;
        block_unref(r.bytes);
        assert_true(steps < 5);
    }
    buf_deinit(&all);
}

static void test_shorter_steps(void **state)
{
    struct world *w = *state;
    put(w, "{\"a\":1}\n{\"b\":2}\n{\"long\":12345}\n");
    struct log_read r = {.since = 0, .max = 17};
    assert_int_equal(read_log(w, &r), 0);
    assert_int_equal(r.next, 16);
    block_unref(r.bytes);
    r.since = 16;
    r.max = 4;
    assert_int_equal(read_log(w, &r), 0);
    assert_int_equal(r.next, 31); /* the line is longer */
    block_unref(r.bytes);
}

/* A line of n bytes, and one behind it. */
static void put_long(struct world *w, size_t n)
{
    struct buf b = {0};
    memset(buf_reserve(&b, n), 'x', n);
    b.n += n;
    buf_put(&b, STR("\n{}\n"));
    foreign_write(w, O_TRUNC, buf_str(&b));
    buf_deinit(&b);
}

static void test_long_lines(void **state)
{
    struct world *w = *state;
    static const size_t fit[] = {LOG_STEP - 1, LOG_STEP, LOG_STEP + 1, LOG_LINE_MAX};
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++) {
        struct log_read r = {.since = 0};
        put_long(w, fit[i]);
        assert_int_equal(read_log(w, &r), 0);
        assert_non_null(r.bytes);
        assert_true(r.bytes->n >= fit[i] + 1);
        assert_int_equal(r.bytes->bytes[fit[i]], '\n');
        block_unref(r.bytes);
    }
    put_long(w, LOG_LINE_MAX + 1);
    assert_reads(w, 0, "", LOG_LINE_MAX + 2);
    assert_reads(w, LOG_LINE_MAX + 2, "{}\n", LOG_LINE_MAX + 5);
    /* One whose end is several jobs away, and the same without an end. */
    put_long(w, 40 * 1024 * 1024);
    assert_reads(w, 0, "", 40 * 1024 * 1024 + 1);
    truncate_to(w, 40 * 1024 * 1024);
    assert_reads(w, 0, "", 0);
}

static void test_beyond_4_gib(void **state)
{
    struct world *w = *state;
    uint64_t at = ((uint64_t)5 << 30) + 7;
    truncate_to(w, at - 1);
    put(w, "\n{\"far\":true}\n{");
    assert_reads(w, at, "{\"far\":true}\n", at + 13);
    assert_reads(w, at + 13, "", at + 13);
    assert_int_equal(read_err(w, at + 1), ERR_OFFSET);
    assert_int_equal(read_err(w, at - ((uint64_t)4 << 30)), ERR_OFFSET); /* no bits are lost */
    struct log_append a;
    assert_int_equal(append(w, &a, "{\"n\":1}\n"), 0);
    assert_int_equal(a.start, at + 15); /* a newline closes off the brace */
    assert_reads(w, a.start, "{\"n\":1}\n", a.next);
}

static void test_not_a_file(void **state)
{
    struct world *w = *state;
    struct log_append a;
    assert_int_equal(mkdir(w->path, 0700), 0);
    assert_int_equal(read_err(w, 0), ERR_IO);
    assert_int_equal(append(w, &a, "{}\n"), ERR_IO);
    assert_int_equal(rmdir(w->path), 0);
    assert_int_equal(mkfifo(w->path, 0600), 0);
    assert_int_equal(read_err(w, 0), ERR_IO); /* and does not wait for a writer */
    assert_int_equal(append(w, &a, "{}\n"), ERR_IO);
}

/* ---- identity ---- */

static struct log_id id_now(struct world *w)
{
    struct log_read r = {.since = 0};
    assert_int_equal(read_log(w, &r), 0);
    block_unref(r.bytes);
    return r.id;
}

static int read_as(struct world *w, struct log_id id, uint64_t since)
{
    struct log_read r = {.since = since, .has_id = true, .id = id};
    int err = read_log(w, &r);
    block_unref(r.bytes);
    return err;
}

static void test_identity_of_a_file_that_grows(void **state)
{
    struct world *w = *state;
    struct log_id none = id_now(w);
    put(w, "{\"a\"");
    struct log_id begun = id_now(w);
    assert_int_equal(begun.head, 0);
    put(w, ":1}\n");
    struct log_id first = id_now(w);
    assert_int_not_equal(first.head, 0);
    put(w, "{}\n");
    assert_int_equal(read_as(w, none, 0), 0);
    assert_int_equal(read_as(w, begun, 0), 0);
    assert_int_equal(read_as(w, first, 8), 0);
    assert_int_equal(read_as(w, first, 11), 0);
}

static void test_identity_of_a_file_that_was_changed(void **state)
{
    struct world *w = *state;
    char kept[160];
    put(w, "{\"a\":1}\n{\"b\":2}\n");
    struct log_id id = id_now(w);
    /* truncated, and grown again */
    foreign_write(w, O_TRUNC, STR("{\"z\":1}\n{\"b\":2}\n"));
    assert_int_equal(read_as(w, id, 8), ERR_GAP);
    assert_int_equal(read_as(w, id, 0), ERR_GAP);
    /* cut, with its first line as it was */
    foreign_write(w, O_TRUNC, STR("{\"a\":1}\n"));
    assert_int_equal(read_as(w, id, 16), ERR_GAP);
    assert_int_equal(read_as(w, id, 8), 0);
    put(w, "{\"long\":\"and others\"}\n");
    assert_int_equal(read_as(w, id, 16), ERR_GAP); /* ours lay behind a newline */
    /* replaced by another with the same lines */
    snprintf(kept, sizeof kept, "%s.1", w->path);
    assert_int_equal(rename(w->path, kept), 0);
    assert_int_equal(read_as(w, id, 8), ERR_GAP);
    put(w, "{\"a\":1}\n{\"b\":2}\n");
    assert_int_equal(read_as(w, id, 8), ERR_GAP);
    /* a gap says what is there now */
    struct log_read r = {.since = 99, .has_id = true, .id = id};
    assert_int_equal(read_log(w, &r), ERR_GAP);
    assert_int_equal(r.size, 16);
    assert_int_not_equal(r.id.inode, id.inode);
}

static void test_identity_text(void **state)
{
    struct log_id id = {0x0123456789abcdef, 1, UINT64_MAX}, back;
    char text[LOG_ID_TEXT], other[LOG_ID_TEXT];
    log_id_format(&id, text);
    assert_memory_equal(text, "0123456789abcdef0000000000000001ffffffffffffffff", LOG_ID_TEXT);
    assert_int_equal(log_id_parse(str_of(text, LOG_ID_TEXT), &back), 0);
    assert_memory_equal(&back, &id, sizeof id);
    assert_int_equal(log_id_parse(str_of(text, LOG_ID_TEXT - 1), &back), ERR_SYNTAX);
    assert_int_equal(log_id_parse(STR_NONE, &back), ERR_SYNTAX);
    static const char bad[] = {'A', 'g', '/', ':', '`', ' ', '\0'};
    for (size_t i = 0; i < sizeof bad; i++) {
        memcpy(other, text, sizeof other);
        other[i * 7] = bad[i];
        assert_int_equal(log_id_parse(str_of(other, LOG_ID_TEXT), &back), ERR_SYNTAX);
    }
    /* Devices are numbered anew by a restart; a first line tells enough. */
    struct log_id moved = {9, 1, UINT64_MAX}, bare = {9, 1, 0};
    assert_true(log_id_same(&id, &moved));
    assert_false(log_id_same(&bare, &id));
}

/* ---- appending ---- */

static void test_append(void **state)
{
    struct world *w = *state;
    struct log_append a;
    struct stat st;
    assert_int_equal(append(w, &a, "{\"a\":1}\n"), 0);
    assert_int_equal(a.start, 0);
    assert_int_equal(a.next, 8);
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(append(w, &a, "{\"b\":2}\n{\"c\":3}\n"), 0);
    assert_int_equal(a.start, 8);
    assert_int_equal(a.next, 24);
    struct log_id id = id_now(w);
    assert_memory_equal(&a.id, &id, sizeof id);
    assert_file(w->path, "{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n");
}

static void test_append_closes_off_a_torn_line(void **state)
{
    struct world *w = *state;
    struct log_append a;
    put(w, "{\"a\":1}\n{\"torn");
    assert_int_equal(append(w, &a, "{\"b\":2}\n"), 0);
    assert_file(w->path, "{\"a\":1}\n{\"torn\n{\"b\":2}\n");
    assert_int_equal(a.start, 15);
    assert_int_equal(a.next, 23);
}

static void test_append_makes_folders(void **state)
{
    struct world *w = *state;
    char deep[200];
    uint64_t start = 99;
    struct stat st;
    snprintf(deep, sizeof deep, "%s/a/b//c/log.jsonl", w->folder);
    assert_int_equal(log_append_now(deep, STR("{}\n"), &start), 0);
    assert_int_equal(start, 0);
    assert_file(deep, "{}\n");
    *strrchr(deep, '/') = '\0';
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    snprintf(deep, sizeof deep, "%s/a", w->path);
    put(w, "");
    assert_int_equal(log_append_now(deep, STR("{}\n"), &start), ERR_IO); /* below a file */
}

static void with_file_limit(uint64_t bytes, struct rlimit *before)
{
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    struct rlimit tight = {bytes, before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
}

static void test_append_that_does_not_fit(void **state)
{
    struct world *w = *state;
    struct rlimit before;
    struct log_append a;
    put(w, "{\"a\":1}\n");
    with_file_limit(20, &before);
    int torn = append(w, &a, "{\"b\":2}\n{\"c\":3}\n"); /* 12 of 16 bytes fit */
    int none = append(w, &a, "{\"d\":12345678901234567890}\n");
    int fits = append(w, &a, "{\"e\":4}\n");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(torn, ERR_FULL);
    assert_int_equal(none, ERR_FULL);
    assert_int_equal(fits, 0);
    assert_file(w->path, "{\"a\":1}\n{\"e\":4}\n");
    /* What closes off a torn line stays: readers may have passed it by now. */
    put(w, "{");
    with_file_limit(20, &before);
    torn = append(w, &a, "{\"b\":2}\n");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(torn, ERR_FULL);
    assert_file(w->path, "{\"a\":1}\n{\"e\":4}\n{\n");
}

struct lock_holder {
    struct log_read read;
    int fd;
};

static void on_read_let_go(struct log_read *r, int err)
{
    assert_int_equal(err, 0);
    assert_int_equal(told_times, 0); /* the append has not come to an end */
    assert_int_equal(flock(container_of(r, struct lock_holder, read)->fd, LOCK_UN), 0);
}

/* And others have their turn meanwhile. */
static void test_append_waits_for_the_lock(void **state)
{
    struct world *w = *state;
    struct log_append a = {.log = &w->log, .lines = STR("{\"b\":2}\n"), .done = on_append};
    struct lock_holder h = {.read = {.log = &w->log, .done = on_read_let_go}};
    put(w, "");
    h.fd = open(w->path, O_RDWR);
    assert_int_equal(flock(h.fd, LOCK_EX), 0);
    told_times = 0;
    log_append(&a);
    log_read(&h.read);
    assert_int_equal(finish(w), 0);
    assert_file(w->path, "{\"b\":2}\n");
    close(h.fd);
}

static void test_append_does_not_wait_for_ever(void **state)
{
    struct world *w = *state;
    struct log_append a;
    put(w, "");
    int held = open(w->path, O_RDWR);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(append(w, &a, "{}\n"), ERR_BUSY);
    close(held);
    assert_file(w->path, "");
}

struct replacer {
    struct world *world;
    int held;
};

static void *replace_and_unlock(void *arg)
{
    struct replacer *r = arg;
    char kept[160];
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    snprintf(kept, sizeof kept, "%s.1", r->world->path);
    assert_int_equal(rename(r->world->path, kept), 0);
    put(r->world, "");
    close(r->held);
    return NULL;
}

/* Who waits for the lock of a file that is replaced meanwhile gets that of the wrong one. */
static void test_append_goes_to_the_file_under_the_path(void **state)
{
    struct world *w = *state;
    char kept[160];
    pthread_t thread;
    put(w, "{\"old\":1}\n");
    struct replacer r = {w, open(w->path, O_RDWR)};
    assert_int_equal(flock(r.held, LOCK_EX), 0);
    assert_int_equal(pthread_create(&thread, NULL, replace_and_unlock, &r), 0);
    int err = log_append_now(w->path, STR("{\"b\":2}\n"), NULL);
    pthread_join(thread, NULL);
    assert_int_equal(err, 0);
    snprintf(kept, sizeof kept, "%s.1", w->path);
    assert_file(kept, "{\"old\":1}\n");
    assert_file(w->path, "{\"b\":2}\n");
}

/* Several processes, with the lock and without, some of them dying within a line. */
#define WRITERS 4
#define EACH    200

static void write_as(struct world *w, int who)
{
    for (int i = 0; i < EACH; i++) {
        char line[9000];
        int pad = i % 10 == 0 ? 8000 : i % 40; /* some lie across pages */
        int n =
            snprintf(line, sizeof line, "{\"w\":%d,\"i\":%d,\"pad\":\"%0*d\"}\n", who, i, pad, 0);
        if (who % 2 == 0) {
            if (log_append_now(w->path, str_of(line, (size_t)n), NULL) != 0)
                _exit(1);
        } else {
            int fd = open(w->path, O_WRONLY | O_APPEND | O_CREAT, 0600);
            if (write(fd, line, (size_t)n) != n)
                _exit(2);
            close(fd);
        }
    }
    _exit(0);
}

static void test_several_processes(void **state)
{
    struct world *w = *state;
    int next[WRITERS] = {0}, blank = 0;
    for (int who = 0; who < WRITERS; who++) {
        if (fork() == 0)
            write_as(w, who);
    }
    for (int who = 0, status; who < WRITERS; who++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    struct log_read r = {.since = 0};
    while (told_times = 0, read_log(w, &r) == 0 && r.bytes != NULL) {
        struct str rest = str_of(r.bytes->bytes, r.bytes->n), line;
        while (log_line(&rest, &line)) {
            int who, i;
            char text[64];
            if (line.n == 0) {
                blank++;
                continue;
            }
            snprintf(text, sizeof text, "%.*s", (int)line.n, line.p);
            assert_int_equal(sscanf(text, "{\"w\":%d,\"i\":%d,", &who, &i), 2);
            assert_int_equal(line.p[line.n - 1], '}');
            assert_int_equal(i, next[who]++);
        }
        assert_int_equal(rest.n, 0);
        r.since = r.next;
        block_unref(r.bytes);
    }
    for (int who = 0; who < WRITERS; who++)
        assert_int_equal(next[who], EACH);
    assert_true(blank <= WRITERS * EACH);
}

/* ---- lines ---- */

static void test_lines(void **state)
{
    static const char *const expected[] = {"{\"a\":1}", "{\"b\":2}", "", "", "x y", "{}"};
    struct str rest = STR("\xef\xbb\xbf{\"a\":1}\r\n \t{\"b\":2} \n\n \r\n\vx y\f\n{}\n{\"c\""),
               line;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(log_line(&rest, &line));
        assert_int_equal(line.n, strlen(expected[i]));
        assert_memory_equal(line.p, expected[i], line.n);
    }
    assert_false(log_line(&rest, &line));
    assert_int_equal(rest.n, 4);
    rest = STR_NONE;
    assert_false(log_line(&rest, &line));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_missing_file_is_empty),
        TEST(test_whole_lines_alone),
        TEST(test_cursors_that_are_none),
        TEST(test_steps),
        TEST(test_shorter_steps),
        TEST(test_long_lines),
        TEST(test_beyond_4_gib),
        TEST(test_not_a_file),
        TEST(test_identity_of_a_file_that_grows),
        TEST(test_identity_of_a_file_that_was_changed),
        TEST(test_identity_text),
        TEST(test_append),
        TEST(test_append_closes_off_a_torn_line),
        TEST(test_append_makes_folders),
        TEST(test_append_that_does_not_fit),
        TEST(test_append_waits_for_the_lock),
        TEST(test_append_does_not_wait_for_ever),
        TEST(test_append_goes_to_the_file_under_the_path),
        TEST(test_several_processes),
        TEST(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
