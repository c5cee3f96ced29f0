// SPDX-License-Identifier: Apache-2.0
/* Files that stay open for reading: what is read is what is there, and few calls do for many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "fault/simfs.h"
#include "model/seeds.h"
#include "store/embedded/shelf.h"

#define FILES 40
#define SIZE  200000

struct world {
    struct simfs *fs;
    struct shelf shelf;
    char bytes[SIZE];
};

static const char *file_name(char *out, uint64_t i)
{
    snprintf(out, 40, "segments/%llu", (unsigned long long)i);
    return out;
}

/* File i has the first SIZE - i bytes, from byte i on. */
static struct world *begin(void)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct rng rng = {1};
    char name[40];
    w->fs = simfs_new(1);
    for (size_t i = 0; i < SIZE; i++)
        w->bytes[i] = (char)rng_next(&rng);
    for (size_t i = 0; i < FILES; i++)
        simfs_put(w->fs, file_name(name, i), str_of(w->bytes + i, SIZE - i));
    shelf_init(&w->shelf, simfs_vfs(w->fs));
    return w;
}

static void end(struct world *w)
{
    shelf_deinit(&w->shelf);
    simfs_free(w->fs); /* every file has been closed */
    free(w);
}

static void assert_read(struct world *w, uint64_t i, uint64_t offset, size_t n)
{
    char name[40], *into = mem_alloc(n + 1);
    struct file *f;
    uint64_t size;
    size_t got = 0, there = offset < SIZE - i ? (size_t)(SIZE - i - offset) : 0;
    assert_int_equal(vfs_open(&w->shelf.vfs, file_name(name, i), VFS_READ, &f), 0);
    assert_int_equal(vfs_size(f, &size), 0);
    assert_int_equal(size, SIZE - i);
    assert_int_equal(vfs_read(f, offset, into, n, &got), 0);
    assert_int_equal(got, n < there ? n : there);
    assert_memory_equal(into, w->bytes + i + offset, got);
    vfs_close(f);
    free(into);
}

static void test_reads_what_is_there(void **state)
{
    struct world *w = begin();
    struct rng rng = {2};
    for (int i = 0; i < 5000; i++) {
        uint64_t file = rng_below(&rng, FILES), at = rng_below(&rng, SIZE - FILES);
        for (uint64_t n = rng_below(&rng, 4); n > 0 && at < SIZE - FILES; n--) {
            size_t some = (size_t)rng_below(&rng, rng_one_in(&rng, 5) ? 100000 : 5000);
            assert_read(w, file, at, some);
            at += some;
        }
    }
    end(w);
}

static void test_reads_on_with_few_calls(void **state)
{
    struct world *w = begin();
    for (uint64_t at = 0; at + 100 <= 100000; at += 100)
        for (uint64_t i = 0; i < SHELF_FILES; i++)
            assert_read(w, i, at, 100);
    assert_int_equal(simfs_calls(w->fs, SIMFS_OPEN), SHELF_FILES);
    assert_true(simfs_calls(w->fs, SIMFS_READ) <= 6 * SHELF_FILES);
    end(w);
}

static void test_keeps_few_open(void **state)
{
    struct world *w = begin();
    for (uint64_t i = 0; i < FILES; i++)
        assert_read(w, i, 0, 10);
    assert_int_equal(simfs_calls(w->fs, SIMFS_OPEN), FILES);
    for (uint64_t i = FILES - SHELF_FILES; i < FILES; i++) /* the last ones */
        assert_read(w, i, 0, 10);
    assert_int_equal(simfs_calls(w->fs, SIMFS_OPEN), FILES);
    assert_read(w, 0, 0, 10);
    assert_int_equal(simfs_calls(w->fs, SIMFS_OPEN), FILES + 1);
    struct file *f;
    assert_int_equal(vfs_open(&w->shelf.vfs, "segments/none", VFS_READ, &f), ERR_NOT_FOUND);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_is_there),
        cmocka_unit_test(test_reads_on_with_few_calls),
        cmocka_unit_test(test_keeps_few_open),
    };
    return cmocka_run_group_tests_name("store/embedded/shelf", tests, NULL, NULL);
}
