// SPDX-License-Identifier: Apache-2.0
/* LMDB's files, sound and damaged: what passes here LMDB reads in the same way, and can write to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/seeds.h"
#include "store/embedded/lmdb_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>

#define ROWS   800
#define SEEDS  3
#define FLIPS  60
#define TABLES 2

static const char *const names[TABLES] = {"one", "two"};
static char path[64], lock[80];

/* ---- a database ---- */

static MDB_env *open_env(void)
{
    MDB_env *env;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, TABLES), 0);
    assert_int_equal(mdb_env_set_mapsize(env, 64u << 20), 0);
    assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC, 0600), 0);
    return env;
}

static int put(MDB_txn *txn, MDB_dbi table, uint64_t key, size_t n, int fill)
{
    static char bytes[9000];
    char name[24];
    int length = snprintf(name, sizeof name, "key%" PRIu64, key);
    memset(bytes, fill, n);
    MDB_val k = {(size_t)length, name}, v = {n, bytes};
    return mdb_put(txn, table, &k, &v, 0);
}

static int del(MDB_txn *txn, MDB_dbi table, uint64_t key)
{
    char name[24];
    int length = snprintf(name, sizeof name, "key%" PRIu64, key);
    MDB_val k = {(size_t)length, name};
    int rc = mdb_del(txn, table, &k, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Rows that come and go, some on pages of their own. */
static int work(MDB_env *env, struct rng *rng, unsigned n)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    for (int t = 0; t < TABLES && rc == 0; t++) {
        MDB_dbi table;
        rc = mdb_dbi_open(txn, names[t], MDB_CREATE, &table);
        for (unsigned i = 0; i < n && rc == 0; i++) {
            uint64_t key = rng_below(rng, ROWS);
            size_t size = rng_below(rng, rng_one_in(rng, 150) ? 9000 : 60);
            rc = rng_one_in(rng, 3) ? del(txn, table, key)
                                    : put(txn, table, key, size, (int)rng_below(rng, 256));
        }
    }
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn);
}

/* ---- its rows, by us and by LMDB ---- */

static int take_row(void *ctx, struct str key, struct str value)
{
    buf_put(ctx, key);
    buf_printf(ctx, " %zu ", value.n);
    buf_put(ctx, value);
    buf_putc(ctx, '\n');
    return 0;
}

static int rows_by_us(struct buf *out)
{
    struct lmdb_file *f;
    char why[256];
    int err = lmdb_file_open(path, &f, why, sizeof why);
    if (err != 0)
        return err;
    for (int t = 0; t < TABLES && err == 0; t++)
        err = lmdb_file_table(f, names[t], take_row, out);
    if (err == 0)
        err = lmdb_file_finish(f);
    assert_true(err != ERR_CORRUPT || lmdb_file_damage(f)[0] != '\0');
    lmdb_file_close(f);
    return err;
}

static void rows_by_lmdb(MDB_env *env, struct buf *out)
{
    MDB_txn *txn;
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    for (int t = 0; t < TABLES; t++) {
        MDB_dbi table;
        MDB_cursor *c;
        MDB_val k, v;
        assert_int_equal(mdb_dbi_open(txn, names[t], 0, &table), 0);
        assert_int_equal(mdb_cursor_open(txn, table, &c), 0);
        while (mdb_cursor_get(c, &k, &v, MDB_NEXT) == 0) {
            MDB_val found;
            take_row(out, str_of(k.mv_data, k.mv_size), str_of(v.mv_data, v.mv_size));
            assert_int_equal(mdb_get(txn, table, &k, &found), 0); /* by the branches, too */
            assert_ptr_equal(found.mv_data, v.mv_data);
        }
        mdb_cursor_close(c);
    }
    mdb_txn_abort(txn);
}

static void assert_agree(MDB_env *env)
{
    struct buf us = {0}, lmdb = {0};
    assert_int_equal(rows_by_us(&us), 0);
    rows_by_lmdb(env, &lmdb);
    assert_true(str_eq(buf_str(&us), buf_str(&lmdb)));
    buf_deinit(&us);
    buf_deinit(&lmdb);
}

/* ---- damage ---- */

static void read_file(struct buf *out)
{
    int fd = open(path, O_RDONLY);
    ssize_t n;
    assert_true(fd >= 0);
    while ((n = read(fd, buf_reserve(out, 1 << 20), 1 << 20)) > 0)
        out->n += (size_t)n;
    close(fd);
}

static void write_file(const struct buf *bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes->p, bytes->n), bytes->n);
    close(fd);
}

/* The heads of pages and what points to rows, more often than the rows. */
static size_t pick(struct rng *rng, const struct buf *bytes)
{
    size_t page = rng_below(rng, bytes->n / 4096) * 4096;
    return page + (rng_one_in(rng, 3) ? rng_below(rng, 4096) : rng_below(rng, 60));
}

static uint64_t flips, found;

static void damage(struct rng *rng, const struct buf *sound)
{
    struct buf bytes = {0}, rows = {0};
    buf_put(&bytes, buf_str(sound));
    size_t at = pick(rng, &bytes);
    bytes.p[at] ^= (char)(1 << rng_below(rng, 8));
    write_file(&bytes);
    flips++;
    int err = rows_by_us(&rows);
    found += err != 0;
    if (err == 0) { /* then LMDB can have it */
        MDB_env *env = open_env();
        assert_agree(env);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(work(env, rng, 100), 0);
            assert_agree(env);
        }
        mdb_env_close(env);
    }
    buf_deinit(&rows);
    buf_deinit(&bytes);
}

static void random_database(struct rng *rng)
{
    struct buf sound = {0};
    unlink(path);
    MDB_env *env = open_env();
    for (int i = 0; i < 12; i++) {
        assert_int_equal(work(env, rng, i % 4 == 0 ? ROWS : 60), 0);
        assert_agree(env);
    }
    mdb_env_close(env);
    read_file(&sound);
    for (int i = 0; i < FLIPS; i++)
        damage(rng, &sound);
    for (int i = 0; i < 30; i++) { /* cut off: never an end of the process */
        struct buf cut = {sound.p, rng_below(rng, sound.n), sound.cap}, rows = {0};
        write_file(&cut);
        rows_by_us(&rows);
        buf_deinit(&rows);
    }
    buf_deinit(&sound);
}

static void test_random_databases(void **state)
{
    flips = found = 0;
    seeds_run(SEEDS, random_database);
    print_message("%" PRIu64 " of %" PRIu64 " flips found, the others did no harm\n", found, flips);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(found > flips / 8);
}

/* ---- what a random bit seldom hits ---- */

static void fill(struct buf *sound)
{
    struct rng rng = {7};
    unlink(path);
    MDB_env *env = open_env();
    for (int i = 0; i < 6; i++)
        assert_int_equal(work(env, &rng, i % 4 == 0 ? 3 * ROWS : 60), 0);
    mdb_env_close(env);
    read_file(sound);
}

static int verdict(const struct buf *bytes)
{
    struct buf rows = {0};
    write_file(bytes);
    int err = rows_by_us(&rows);
    buf_deinit(&rows);
    return err;
}

static uint64_t get_u64(const struct buf *bytes, size_t at)
{
    uint64_t v;
    memcpy(&v, bytes->p + at, sizeof v);
    return v;
}

/* The root of the tables, which the later of both heads names. */
static uint64_t used_page(const struct buf *bytes)
{
    size_t newer = get_u64(bytes, 144) < get_u64(bytes, 4096 + 144) ? 4096 : 0;
    return get_u64(bytes, newer + 128);
}

/* Copies a list of free pages, with a page among them that is not free; its order stays right. */
static bool make_used(struct buf *bytes, size_t list, size_t n, uint64_t page)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t number = get_u64(bytes, list + 8 * i);
        if (number == page || number > page)
            continue;
        memcpy(bytes->p + list + 8 * i, &page, sizeof page);
        return true;
    }
    return false;
}

static void test_free_page_that_is_used(void **state)
{
    struct buf bytes = {0};
    MDB_txn *txn;
    MDB_cursor *c;
    MDB_val k, v;
    int changed = 0;
    fill(&bytes);
    assert_int_equal(verdict(&bytes), 0);
    MDB_env *env = open_env();
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_cursor_open(txn, 0, &c), 0);
    while (changed == 0 && mdb_cursor_get(c, &k, &v, MDB_NEXT) == 0) {
        const char *at = bytes.p;
        while ((at = memmem(at, bytes.n - (size_t)(at - bytes.p), v.mv_data, v.mv_size)) != NULL) {
            changed += make_used(&bytes, (size_t)(at - bytes.p), v.mv_size / 8, used_page(&bytes));
            at++;
        }
    }
    mdb_cursor_close(c);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    assert_true(changed > 0);
    assert_int_equal(verdict(&bytes), ERR_CORRUPT);
    buf_deinit(&bytes);
}

/* A branch that leads to the left of where a row is: LMDB would not find it. */
static void test_branch_that_leads_astray(void **state)
{
    struct buf bytes = {0};
    int seen = 0, convicted = 0;
    fill(&bytes);
    for (size_t page = 8192; page + 4096 <= bytes.n; page += 4096) {
        uint16_t head[4], node;
        memcpy(head, bytes.p + page + 8, sizeof head);
        if (get_u64(&bytes, page) != page / 4096 || head[1] != 1 || head[2] < 16 + 2 * 2)
            continue;
        memcpy(&node, bytes.p + page + 16 + 2, sizeof node);
        char *digits = bytes.p + page + node + 8 + 3, kept = digits[0];
        digits[0] = '#'; /* below every digit */
        seen++;
        convicted += verdict(&bytes) == ERR_CORRUPT;
        digits[0] = kept;
    }
    assert_int_equal(verdict(&bytes), 0);
    assert_true(seen > 1 && convicted > 0); /* some are free */
    buf_deinit(&bytes);
}

static void test_other_files(void **state)
{
    struct lmdb_file *f;
    char why[256];
    struct buf zeros = {0};
    unlink(path);
    assert_int_equal(lmdb_file_open(path, &f, why, sizeof why), ERR_NOT_FOUND);
    write_file(&zeros);
    assert_int_equal(lmdb_file_open(path, &f, why, sizeof why), ERR_CORRUPT);
    memset(buf_reserve(&zeros, 100000), 0, 100000);
    zeros.n = 100000;
    write_file(&zeros);
    assert_int_equal(lmdb_file_open(path, &f, why, sizeof why), ERR_CORRUPT);
    assert_non_null(strstr(why, "no such file"));
    buf_deinit(&zeros);
}

static int set_up(void **state)
{
    strcpy(path, "/tmp/tidemark-lmdb-XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    snprintf(lock, sizeof lock, "%s-lock", path);
    return fd < 0;
}

static int tear_down(void **state)
{
    unlink(path);
    unlink(lock);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_databases, seeds_teardown),
        cmocka_unit_test(test_free_page_that_is_used),
        cmocka_unit_test(test_branch_that_leads_astray),
        cmocka_unit_test(test_other_files),
    };
    return cmocka_run_group_tests_name("store/lmdb_file", tests, set_up, tear_down);
}
