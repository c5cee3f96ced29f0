// SPDX-License-Identifier: Apache-2.0
/* What other writers do, and what the disk does, between two calls of an append. The calls into the
 * kernel go through functions here. */
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
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
    char path[64];
    const char *before[4]; /* what somebody appends before the i-th writev, without a lock */
    const char *behind[4]; /* and behind it */
    ssize_t at_most[4];    /* bytes that the i-th takes; 0: all; -1: none, and the disk is full */
    bool sync_fails;
    int writes;
} world;

static void somebody_appends(const char *text)
{
    if (text == NULL)
        return;
    int fd = open(world.path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static ssize_t watched_writev(int fd, const struct iovec *pieces, int n)
{
    int i = world.writes++;
    char bytes[256];
    size_t length = 0;
    ssize_t wrote;
    assert_true(i < 4);
    somebody_appends(world.before[i]);
    for (int k = 0; k < n; k++) {
        memcpy(bytes + length, pieces[k].iov_base, pieces[k].iov_len);
        length += pieces[k].iov_len;
    }
    if (world.at_most[i] < 0) {
        errno = ENOSPC;
        wrote = -1;
    } else {
        size_t some = world.at_most[i] > 0 ? (size_t)world.at_most[i] : length;
        wrote = write(fd, bytes, some);
    }
    somebody_appends(world.behind[i]);
    return wrote;
}

static int watched_fdatasync(int fd)
{
    errno = EIO;
    return world.sync_fails ? -1 : fdatasync(fd);
}

#define writev    watched_writev
#define fdatasync watched_fdatasync
#include "feature/logs/log_append.c"
#undef writev
#undef fdatasync

static int setup(void **state)
{
    memset(&world, 0, sizeof world);
    snprintf(world.path, sizeof world.path, "/tmp/test_log_race.XXXXXX");
    int fd = mkstemp(world.path);
    close(fd);
    return fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    return unlink(world.path);
}

static int append_lines(const char *lines, struct log_append *a)
{
    struct log log = {.path = world.path};
    *a = (struct log_append){.log = &log, .lines = str_of_cstr(lines)};
    log_run_append(&a->job);
    return a->err;
}

static void assert_file(const char *text)
{
    char got[512];
    int fd = open(world.path, O_RDONLY);
    ssize_t n = read(fd, got, sizeof got - 1);
    close(fd);
    assert_true(n >= 0);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static void assert_range(const struct log_append *a, uint64_t start, uint64_t next)
{
    assert_int_equal(a->start, start);
    assert_int_equal(a->next, next);
}

static void test_a_whole_line_comes_in_between(void **state)
{
    struct log_append a;
    world.before[0] = "{\"x\":1}\n";
    assert_int_equal(append_lines("{\"a\":1}\n", &a), 0);
    assert_file("{\"x\":1}\n{\"a\":1}\n");
    assert_range(&a, 8, 16);
}

/* The last line was being written when we looked: a blank line is the price. */
static void test_a_line_is_finished_in_between(void **state)
{
    struct log_append a;
    somebody_appends("{\"x\"");
    world.before[0] = ":1}\n";
    assert_int_equal(append_lines("{\"a\":1}\n", &a), 0);
    assert_file("{\"x\":1}\n\n{\"a\":1}\n");
    assert_range(&a, 9, 17);
}

static void test_a_line_is_torn_in_between(void **state)
{
    struct log_append a;
    world.before[0] = "{\"torn";
    assert_int_equal(append_lines("{\"a\":1}\n", &a), 0);
    assert_file("{\"torn{\"a\":1}\n\n{\"a\":1}\n");
    assert_range(&a, 14, 23);
}

/* As part of that line ours still counts, and must not come twice. */
static void test_white_space_comes_in_between(void **state)
{
    struct log_append a;
    somebody_appends("{\"x\":1}\n");
    world.before[0] = " \t\r ";
    assert_int_equal(append_lines("{\"a\":1}\n", &a), 0);
    assert_file("{\"x\":1}\n \t\r {\"a\":1}\n");
    assert_int_equal(world.writes, 1);
}

static void test_the_first_of_several_is_spoiled(void **state)
{
    struct log_append a;
    world.before[0] = "{\"torn";
    world.before[1] = "{\"x\":1}\n{\"torn again";
    assert_int_equal(append_lines("{\"a\":1}\n{\"b\":2}\n", &a), 0);
    assert_file("{\"torn{\"a\":1}\n{\"b\":2}\n{\"x\":1}\n{\"torn again\n{\"a\":1}\n");
    assert_range(&a, 14, 51);
}

static void test_a_short_write_is_taken_back(void **state)
{
    struct log_append a;
    somebody_appends("{\"x\":1}\n{\"torn");
    world.at_most[0] = 5;
    assert_int_equal(append_lines("{\"a\":1}\n", &a), ERR_FULL);
    assert_file("{\"x\":1}\n{\"torn\n"); /* a reader may be behind that newline already */
    assert_int_equal(append_lines("{\"a\":1}\n", &a), 0);
    assert_file("{\"x\":1}\n{\"torn\n{\"a\":1}\n");
}

static void test_what_others_wrote_is_not_taken_back(void **state)
{
    struct log_append a;
    world.at_most[0] = 5;
    world.behind[0] = "{\"x\":1}\n";
    assert_int_equal(append_lines("{\"a\":1}\n", &a), ERR_FULL);
    assert_file("{\"a\":{\"x\":1}\n");
}

static void test_both_writes_are_taken_back(void **state)
{
    struct log_append a;
    world.before[0] = "{\"torn";
    world.at_most[1] = 3;
    assert_int_equal(append_lines("{\"a\":1}\n{\"b\":2}\n", &a), ERR_FULL);
    assert_file("{\"torn");
    world.writes = 0;
    world.before[0] = NULL;
    world.before[1] = NULL;
    world.at_most[0] = -1;
    assert_int_equal(append_lines("{\"a\":1}\n", &a), ERR_FULL);
    assert_file("{\"torn");
}

static void test_a_failed_sync_is_taken_back(void **state)
{
    struct log_append a;
    world.sync_fails = true;
    assert_int_equal(append_lines("{\"a\":1}\n", &a), ERR_IO);
    assert_file("");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_whole_line_comes_in_between),       TEST(test_a_line_is_finished_in_between),
        TEST(test_a_line_is_torn_in_between),           TEST(test_white_space_comes_in_between),
        TEST(test_the_first_of_several_is_spoiled),     TEST(test_a_short_write_is_taken_back),
        TEST(test_what_others_wrote_is_not_taken_back), TEST(test_both_writes_are_taken_back),
        TEST(test_a_failed_sync_is_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
