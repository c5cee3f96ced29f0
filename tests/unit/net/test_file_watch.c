// SPDX-License-Identifier: Apache-2.0
#include "net/file_watch.h"
#include "net/loop.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define NEVER_MS    (1000 * 1000) /* a poll that no test lives to see */
#define PATIENCE_MS (20 * 1000)

struct world {
    struct loop loop;
    struct file_watch *watch;
    char folder[64], path[128], other[128];
    int told;
    uv_timer_t patience;
    bool impatient;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    snprintf(w->folder, sizeof w->folder, "/tmp/test_file_watch.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/log", w->folder);
    snprintf(w->other, sizeof w->other, "%s/other", w->folder);
    uv_timer_init(&w->loop.uv, &w->patience);
    w->patience.data = w;
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
    file_watch_free(w->watch);
    uv_close((uv_handle_t *)&w->patience, NULL);
    loop_run(&w->loop);
    loop_deinit(&w->loop);
    assert_int_equal(nftw(w->folder, forget, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(w);
    return 0;
}

static void on_changed(void *ctx)
{
    struct world *w = ctx;
    w->told++;
}

static void watch(struct world *w, const char *path, uint64_t poll_ms)
{
    w->watch = file_watch_new(&w->loop, path, poll_ms, on_changed, w);
    assert_int_equal(w->told, 0);
}

static void on_impatient(uv_timer_t *t)
{
    ((struct world *)t->data)->impatient = true;
}

/* Runs until it has been told that the file may have changed, once more. */
static void assert_told(struct world *w)
{
    int before = w->told;
    uv_timer_start(&w->patience, on_impatient, PATIENCE_MS, 0);
    while (w->told == before && !w->impatient)
        uv_run(&w->loop.uv, UV_RUN_ONCE);
    uv_timer_stop(&w->patience);
    assert_true(w->told > before);
}

static void settle(struct world *w)
{
    for (int i = 0; i < 10; i++)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void test_a_file_that_appears_grows_and_goes(void **state)
{
    struct world *w = *state;
    watch(w, w->path, NEVER_MS);
    settle(w);
    assert_int_equal(w->told, 0);
    put(w->path, "a");
    assert_told(w);
    settle(w);
    put(w->path, "b");
    assert_told(w);
    settle(w);
    assert_int_equal(truncate(w->path, 0), 0);
    assert_told(w);
    settle(w);
    assert_int_equal(unlink(w->path), 0);
    assert_told(w);
    settle(w);
    put(w->path, "c");
    assert_told(w);
}

static void test_a_file_that_is_replaced(void **state)
{
    struct world *w = *state;
    put(w->path, "a");
    put(w->other, "other");
    watch(w, w->path, NEVER_MS);
    assert_int_equal(rename(w->other, w->path), 0);
    assert_told(w);
    settle(w);
    put(w->path, "b"); /* the new one is watched as well */
    assert_told(w);
}

static void test_others_do_not_count(void **state)
{
    struct world *w = *state;
    put(w->path, "a");
    watch(w, w->path, NEVER_MS);
    put(w->other, "b");
    assert_int_equal(unlink(w->other), 0);
    settle(w);
    assert_int_equal(w->told, 0);
    put(w->path, "c"); /* comes behind those, so they have been looked at */
    assert_told(w);
    assert_int_equal(w->told, 1); /* once, for all that has happened */
}

static void test_a_file_that_is_written_by_another_name(void **state)
{
    struct world *w = *state;
    char far[160], target[200];
    snprintf(far, sizeof far, "%s/far", w->folder);
    snprintf(target, sizeof target, "%s/log", far);
    assert_int_equal(mkdir(far, 0700), 0);
    put(target, "a");
    assert_int_equal(symlink(target, w->path), 0);
    watch(w, w->path, NEVER_MS);
    put(target, "b");
    assert_told(w);
}

/* Where nobody tells, changed() comes now and then; and when the folder is there at last, it is
 * watched. */
static void test_a_folder_that_is_not_there_yet(void **state)
{
    struct world *w = *state;
    char deep[160];
    snprintf(deep, sizeof deep, "%s/log", w->path);
    watch(w, deep, 20);
    assert_told(w);
    assert_told(w);
    assert_int_equal(mkdir(w->path, 0700), 0);
    assert_told(w);
    put(deep, "a");
    assert_told(w);
}

static void test_a_bare_name_is_of_the_working_folder(void **state)
{
    struct world *w = *state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(w->folder), 0);
    watch(w, "log", NEVER_MS);
    put("log", "a");
    assert_told(w);
    assert_int_equal(chdir(before), 0);
}

static void test_freed_with_a_notice_under_way(void **state)
{
    struct world *w = *state;
    put(w->path, "a");
    watch(w, w->path, NEVER_MS);
    put(w->path, "b");
    file_watch_free(w->watch);
    w->watch = NULL;
    settle(w);
    assert_int_equal(w->told, 0);
    file_watch_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_that_appears_grows_and_goes),
        TEST(test_a_file_that_is_replaced),
        TEST(test_others_do_not_count),
        TEST(test_a_file_that_is_written_by_another_name),
        TEST(test_a_folder_that_is_not_there_yet),
        TEST(test_a_bare_name_is_of_the_working_folder),
        TEST(test_freed_with_a_notice_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
