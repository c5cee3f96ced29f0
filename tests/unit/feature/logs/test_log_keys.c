// SPDX-License-Identifier: Apache-2.0
/* Appends under a key, with a death before and behind every call into the kernel that changes
 * something. The calls go through functions here. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define LIFETIME_MS 86400000

static struct {
    char folder[64], path[96], keys[112];
    int calls;           /* that change something, so far */
    int dies_at;         /* before the call of this number; 0: never */
    bool torn;           /* writev takes half of it, and that is the last */
    const char *between; /* what somebody appends before the first writev, without a lock */
    bool full;           /* writev takes nothing: there is no room */
    int64_t now_ms;
} world;

static void step(void)
{
    if (++world.calls == world.dies_at)
        _exit(9);
}

static void somebody_appends(const char *text)
{
    int fd = open(world.path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static ssize_t mortal_writev(int fd, const struct iovec *pieces, int n)
{
    step();
    if (world.between != NULL)
        somebody_appends(world.between);
    world.between = NULL;
    if (world.full) {
        errno = ENOSPC;
        return -1;
    }
    if (world.torn) {
        assert_true(write(fd, pieces[1].iov_base, pieces[1].iov_len / 2) > 0);
        _exit(9);
    }
    return writev(fd, pieces, n);
}

static ssize_t mortal_pwrite(int fd, const void *p, size_t n, off_t at)
{
    step();
    return pwrite(fd, p, n, at);
}

static int mortal_fdatasync(int fd)
{
    step();
    return fdatasync(fd);
}

static int mortal_fsync(int fd)
{
    step();
    return fsync(fd);
}

static int64_t told_wall_ms(void)
{
    return world.now_ms;
}

#define writev        mortal_writev
#define pwrite        mortal_pwrite
#define fdatasync     mortal_fdatasync
#define fsync         mortal_fsync
#define clock_wall_ms told_wall_ms
#include "feature/logs/log_append.c"
#include "feature/logs/log_file.c"
#include "feature/logs/log_keys.c"
#undef writev
#undef pwrite
#undef fdatasync
#undef fsync
#undef clock_wall_ms

static int setup(void **state)
{
    memset(&world, 0, sizeof world);
    world.now_ms = 1800000000000;
    snprintf(world.folder, sizeof world.folder, "/tmp/test_log_keys.XXXXXX");
    if (mkdtemp(world.folder) == NULL)
        return -1;
    snprintf(world.path, sizeof world.path, "%s/log.jsonl", world.folder);
    snprintf(world.keys, sizeof world.keys, "%s.keys", world.path);
    return 0;
}

static int teardown(void **state)
{
    unlink(world.path);
    unlink(world.keys);
    return rmdir(world.folder);
}

static int append_as(const char *key, const char *lines, struct log_append *a)
{
    struct log log = {.path = world.path};
    *a = (struct log_append){.log = &log,
                             .lines = str_of_cstr(lines),
                             .key = str_of_cstr(key),
                             .key_lifetime_ms = LIFETIME_MS};
    log_run_append(&a->job);
    return a->err;
}

/* A process that appends and dies at a call, or lives. */
static bool dies(const char *key, const char *lines, int at)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct log_append a;
        world.calls = 0;
        world.dies_at = at;
        _exit(append_as(key, lines, &a) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0);
    return WEXITSTATUS(status) == 9;
}

static char *file_text(void)
{
    static char text[65536];
    int fd = open(world.path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

/* How often a line stands there, whole. */
static int count(const char *line)
{
    struct str rest = str_of_cstr(file_text()), got;
    int n = 0;
    while (log_line(&rest, &got))
        n += str_eq(got, str_of_cstr(line));
    return n;
}

static void assert_stands(const struct log_append *a, const char *lines)
{
    assert_int_equal(a->next - a->start, strlen(lines));
    assert_memory_equal(file_text() + a->start, lines, strlen(lines));
}

static void test_once(void **state)
{
    struct log_append a, again;
    struct stat st;
    assert_int_equal(append_as("", "{\"x\":0}\n", &a), 0);
    assert_int_equal(stat(world.keys, &st), -1); /* nobody has used a key yet */
    assert_int_equal(append_as("k", "{\"a\":1}\n", &a), 0);
    assert_false(a.repeated);
    assert_int_equal(append_as("other", "{\"b\":1}\n", &again), 0);
    assert_int_equal(append_as("k", "{\"a\":1}\n", &again), 0);
    assert_true(again.repeated);
    assert_int_equal(again.start, a.start);
    assert_int_equal(again.next, a.next);
    assert_memory_equal(&again.id, &a.id, sizeof a.id);
    assert_string_equal(file_text(), "{\"x\":0}\n{\"a\":1}\n{\"b\":1}\n");
    assert_int_equal(append_as("k", "{\"a\":2}\n", &again), ERR_EXISTS);
    assert_string_equal(file_text(), "{\"x\":0}\n{\"a\":1}\n{\"b\":1}\n");
    assert_int_equal(stat(world.keys, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_lifetime(void **state)
{
    struct log_append a;
    assert_int_equal(append_as("k", "{}\n", &a), 0);
    world.now_ms += LIFETIME_MS;
    assert_int_equal(append_as("k", "{}\n", &a), 0);
    assert_true(a.repeated);
    world.now_ms += 1;
    assert_int_equal(append_as("k", "{\"new\":1}\n", &a), 0);
    assert_false(a.repeated);
    assert_int_equal(append_as("k", "{\"new\":1}\n", &a), 0);
    assert_true(a.repeated);
    /* A clock that goes back forgets nothing. */
    world.now_ms -= 10 * (int64_t)LIFETIME_MS;
    assert_int_equal(append_as("k", "{\"new\":1}\n", &a), 0);
    assert_true(a.repeated);
    assert_string_equal(file_text(), "{}\n{\"new\":1}\n");
}

static void start_with(const char *text)
{
    unlink(world.path);
    unlink(world.keys);
    if (text != NULL)
        somebody_appends(text);
}

/* Whatever the death left, what comes next stores it once, and tells where. meanwhile: the same
 * line of somebody who uses no key, or another one. */
static void dies_everywhere(const char *before, const char *lines, const char *meanwhile_key)
{
    const char *first = "{\"n\":1}";
    int deaths = 0;
    for (int at = 1;; at++, deaths++) {
        struct log_append a, again, meanwhile = {.err = 0};
        start_with(before);
        if (!dies("k", lines, at))
            break;
        int others = meanwhile_key != NULL;
        if (others)
            assert_int_equal(append_as(meanwhile_key, lines, &meanwhile), 0);
        assert_int_equal(append_as("k", lines, &a), 0);
        assert_int_equal(count(first), 1 + others);
        assert_stands(&a, lines);
        assert_true(!others || a.start != meanwhile.start);
        assert_int_equal(append_as("k", lines, &again), 0);
        assert_true(again.repeated);
        assert_int_equal(again.start, a.start);
        assert_int_equal(count(first), 1 + others);
    }
    assert_true(deaths >= 5); /* folder, magic, intent, its sync, lines, their sync, note */
}

static void test_deaths(void **state)
{
    static const char *const before[] = {NULL, "{\"x\":1}\n", "{\"x\":1}\n{\"torn"};
    static const char *const meanwhile[] = {NULL, "", "another"};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            dies_everywhere(before[i], "{\"n\":1}\n", meanwhile[k]);
            dies_everywhere(before[i], "{\"n\":1}\n{\"n\":2}\n", meanwhile[k]);
        }
}

/* The one that looks what came of it may die as well. */
static void test_deaths_of_who_looks(void **state)
{
    for (int at = 1;; at++) {
        bool done = true;
        for (int then = 1;; then++) {
            struct log_append a;
            start_with("{\"x\":1}\n");
            if (!dies("k", "{\"n\":1}\n", at))
                break;
            done = false;
            bool died = dies("other", "{\"n\":1}\n", then);
            assert_int_equal(append_as("k", "{\"n\":1}\n", &a), 0);
            assert_stands(&a, "{\"n\":1}\n");
            assert_int_equal(append_as("other", "{\"n\":1}\n", &a), 0);
            assert_int_equal(count("{\"n\":1}"), 2);
            if (!died)
                break;
        }
        if (done)
            break;
    }
}

/* Somebody's line comes in between, whole or not; in that case the first of ours is written twice.
 */
static void test_deaths_beside_others(void **state)
{
    static const char *const between[] = {"{\"y\":1}\n", "{\"y\":", "  "};
    for (size_t i = 0; i < 3; i++)
        for (int at = 1;; at++) {
            struct log_append a;
            start_with("{\"x\":1}\n");
            world.between = between[i];
            if (!dies("k", "{\"n\":1}\n{\"n\":2}\n", at))
                break;
            world.between = NULL;
            assert_int_equal(append_as("k", "{\"n\":1}\n{\"n\":2}\n", &a), 0);
            assert_int_equal(count("{\"n\":1}"), 1);
            assert_int_equal(count("{\"n\":2}"), 1);
        }
}

static void test_torn_line(void **state)
{
    struct log_append a;
    start_with("{\"x\":1}\n");
    world.torn = true;
    assert_true(dies("k", "{\"n\":1}\n", 0));
    world.torn = false;
    assert_string_equal(file_text(), "{\"x\":1}\n{\"n\"");
    assert_int_equal(append_as("k", "{\"n\":1}\n", &a), 0);
    assert_false(a.repeated);
    assert_string_equal(file_text(), "{\"x\":1}\n{\"n\"\n{\"n\":1}\n");
}

static void test_no_room(void **state)
{
    struct log_append a;
    start_with("{\"x\":1}\n");
    world.full = true;
    assert_int_equal(append_as("k", "{\"n\":1}\n", &a), ERR_FULL);
    world.full = false;
    somebody_appends("{\"n\":1}\n"); /* is not ours */
    assert_int_equal(append_as("k", "{\"n\":1}\n", &a), 0);
    assert_false(a.repeated);
    assert_int_equal(count("{\"n\":1}"), 2);
}

/* The file was replaced: the log has none of it. What was acknowledged before stays so. */
static void test_replaced(void **state)
{
    struct log_append a;
    int at = 1;
    char kept[128];
    snprintf(kept, sizeof kept, "%s.1", world.path);
    assert_int_equal(append_as("old", "{\"o\":1}\n", &a), 0);
    while (count("{\"n\":1}") == 0)
        assert_true(dies("k", "{\"n\":1}\n", at++));
    assert_int_equal(rename(world.path, kept), 0);
    somebody_appends("{\"x\":1}\n");
    assert_int_equal(append_as("k", "{\"n\":1}\n", &a), 0);
    assert_false(a.repeated);
    assert_int_equal(append_as("old", "{\"o\":1}\n", &a), 0);
    assert_true(a.repeated);
    assert_string_equal(file_text(), "{\"x\":1}\n{\"n\":1}\n");
    unlink(kept);
}

/* A block that is full drops its oldest, and says so; one that has expired goes first. */
static void test_full_block(void **state)
{
    struct log_keys k;
    struct log_key_entry n = {.first = 1, .serial = 7, .at_ms = 1000}, found;
    bool dropped;
    close(open(world.keys, O_CREAT | O_RDWR, 0600));
    assert_int_equal(log_keys_open(&k, world.path, false), 0);
    for (int i = 0; i < LOG_KEYS_WAYS; i++) {
        n.key[31] = (uint8_t)i;
        n.at_ms++;
        assert_int_equal(log_keys_put(&k, &n, 1000, n.at_ms, &dropped), 0);
        assert_false(dropped);
    }
    for (int i = 0; i < LOG_KEYS_WAYS; i++) {
        n.key[31] = (uint8_t)i;
        assert_int_equal(log_keys_find(&k, n.key, 1000, n.at_ms, &found), 0);
    }
    n.key[31] = 100;
    assert_int_equal(log_keys_put(&k, &n, 1000, n.at_ms, &dropped), 0);
    assert_true(dropped);
    assert_int_equal(log_keys_find(&k, n.key, 1000, n.at_ms, &found), 0);
    n.key[31] = 0;
    assert_int_equal(log_keys_find(&k, n.key, 1000, n.at_ms, &found), ERR_NOT_FOUND);
    assert_int_equal(log_keys_put(&k, &n, 10, n.at_ms, &dropped), 0);
    assert_false(dropped);
    log_keys_close(&k);
}

/* What stands in the file of keys may be anything. */
static void test_spoilt(void **state)
{
    struct log_append a;
    uint32_t seed = 1;
    assert_int_equal(append_as("k", "{\"n\":1}\n", &a), 0);
    int fd = open(world.keys, O_RDWR);
    char bytes[BLOCK * 2];
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)(seed = seed * 1664525 + 1013904223) >> 3;
        memcpy(bytes, MAGIC, MAGIC_N);
        struct log_key_entry n = {.serial = seed | 1,
                                  .start = seed,
                                  .next = round % 3 ? seed + 9 : 2,
                                  .first = round % 5 ? 8 : UINT32_MAX};
        struct stat st;
        assert_int_equal(stat(world.path, &st), 0);
        n.id = (struct log_id){0, st.st_ino, 0};
        note_write(&n, bytes + intent_at(n.serial));
        assert_int_equal(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
        assert_int_equal(append_as("again", "{}\n", &a), 0);
    }
    memcpy(bytes, "notakeys", 8);
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
    close(fd);
    assert_int_equal(append_as("again", "{}\n", &a), ERR_CORRUPT);
    assert_int_equal(append_as("", "{}\n", &a), 0); /* needs none */
}

static void test_not_a_file(void **state)
{
    struct log_append a;
    assert_int_equal(mkfifo(world.keys, 0600), 0);
    assert_int_equal(append_as("k", "{}\n", &a), ERR_IO);
    unlink(world.keys);
    assert_int_equal(symlink("/dev/null", world.keys), 0);
    assert_int_equal(append_as("k", "{}\n", &a), ERR_IO);
    assert_int_equal(append_as("", "{}\n", &a), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_once),
        TEST(test_lifetime),
        TEST(test_deaths),
        TEST(test_deaths_of_who_looks),
        TEST(test_deaths_beside_others),
        TEST(test_torn_line),
        TEST(test_no_room),
        TEST(test_replaced),
        TEST(test_full_block),
        TEST(test_spoilt),
        TEST(test_not_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
