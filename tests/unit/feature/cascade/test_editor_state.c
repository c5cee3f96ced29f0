// SPDX-License-Identifier: Apache-2.0
/* State files are made by a child process: SQLite is asked to wipe its memory before it is used in
 * this one, and the key is nowhere in this one's memory but where the code under test puts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "feature/cascade/editor_state.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TABLE  "CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);"
#define INSERT "INSERT INTO ItemTable VALUES ('windsurfAuthStatus', "

/* ---- files ---- */

struct world {
    char folder[32], path[64];
    char key[CASCADE_KEY_MAX + 1];
    struct buf why;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    if (w == NULL)
        return -1;
    snprintf(w->folder, sizeof w->folder, "/tmp/editor-state-XXXXXX");
    *state = w;
    if (mkdtemp(w->folder) == NULL)
        return -1;
    snprintf(w->path, sizeof w->path, "%s/state.vscdb", w->folder);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const endings[] = {"", "-journal", "-wal", "-shm"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s%s", w->path, endings[i]);
        unlink(path);
    }
    int err = rmdir(w->folder);
    buf_deinit(&w->why);
    free(w);
    return err;
}

/* In a child. It ends without closing the file: what SQLite would do then is left undone. */
static void run_sql(const struct world *w, const char *sql)
{
    sqlite3 *db;
    if (sqlite3_open(w->path, &db) != SQLITE_OK ||
        sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(db));
        _exit(1);
    }
}

static void make_state(const struct world *w, const char *sql)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run_sql(w, sql);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int read_key(struct world *w)
{
    w->why.n = 0;
    snprintf(w->key, sizeof w->key, "untouched");
    int err = editor_state_api_key(w->path, w->key, &w->why);
    buf_putc(&w->why, '\0');
    assert_int_equal(strlen(w->why.p) > 0, err != 0);
    assert_null(strstr(w->why.p, "cog_")); /* nothing of what the file holds */
    if (err != 0)
        assert_string_equal(w->key, "untouched");
    return err;
}

static void assert_refused(struct world *w, int err, const char *why)
{
    assert_int_equal(read_key(w), err);
    if (strstr(w->why.p, why) == NULL)
        fail_msg("another reason: %s", w->why.p);
}

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        buf_putc(out, (char)c);
    fclose(f);
}

/* ---- keys ---- */

static void the_key_is_found(void **state)
{
    struct world *w = *state;
    make_state(w,
               TABLE "INSERT INTO ItemTable VALUES ('other', '{\"apiKey\":\"cog_other\"}');" INSERT
                     "'{\"name\":\"me\",\"apiKey\":\"cog_mine\",\"allowed\":[\"QQ==\"]}');");
    assert_int_equal(read_key(w), 0);
    assert_string_equal(w->key, "cog_mine");
}

static void values_may_be_blobs(void **state)
{
    struct world *w = *state;
    make_state(w, TABLE INSERT "CAST('{\"apiKey\":\"cog_blob\"}' AS BLOB));");
    assert_int_equal(read_key(w), 0);
    assert_string_equal(w->key, "cog_blob");
}

static void escapes_are_decoded(void **state)
{
    struct world *w = *state;
    make_state(w, TABLE INSERT "'{\"api\\u004bey\":\"devin-session-token\\u0024a\\/b\"}');");
    assert_int_equal(read_key(w), 0);
    assert_string_equal(w->key, "devin-session-token$a/b");
}

static void a_file_in_wal_mode_is_read(void **state)
{
    struct world *w = *state;
    make_state(w, "PRAGMA journal_mode = WAL;" TABLE INSERT "'{\"apiKey\":\"cog_wal\"}');");
    assert_int_equal(read_key(w), 0);
    assert_string_equal(w->key, "cog_wal");
}

static void the_file_is_left_as_it_is(void **state)
{
    struct world *w = *state;
    struct buf before = {0}, after = {0};
    make_state(w, TABLE INSERT "'{\"apiKey\":\"cog_mine\"}');");
    assert_int_equal(chmod(w->path, 0400), 0);
    read_file(w->path, &before);
    assert_int_equal(read_key(w), 0);
    read_file(w->path, &after);
    assert_true(str_eq(buf_str(&before), buf_str(&after)));
    buf_deinit(&before);
    buf_deinit(&after);
}

/* ---- none ---- */

static void without_a_file_there_is_none(void **state)
{
    struct world *w = *state;
    assert_refused(w, ERR_NOT_FOUND, "there is no such file");
    assert_int_not_equal(access(w->path, F_OK), 0); /* nor is one made */
}

static void without_a_sign_in_there_is_none(void **state)
{
    static const char *const values[] = {
        "'{}');",
        "'{\"apiKey\":\"\"}');",
        "'{\"apiKey\":null}');",
        "'{\"apiKey\":7}');",
        "'{\"a\":{\"apiKey\":\"cog_x\"}}');",
    };
    struct world *w = *state;
    make_state(w, TABLE "INSERT INTO ItemTable VALUES ('other', '{\"apiKey\":\"cog_other\"}');");
    assert_refused(w, ERR_NOT_FOUND, "holds no sign-in");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char sql[256];
        snprintf(sql, sizeof sql, INSERT "%s", values[i]);
        make_state(w, sql);
        assert_refused(w, ERR_NOT_FOUND, "holds no sign-in");
    }
}

static void what_cannot_be_read_is_refused(void **state)
{
    static const char *const values[] = {
        "'{\"apiKey\":\"cog_x\"');", /* cut off */
        "'[\"apiKey\",\"cog_x\"]');",        "'\"cog_x\"');", "'');", "NULL);", "x'7b22ff');",
        "'{\"apiKey\":\"cog_\\u0000x\"}');",
    };
    struct world *w = *state;
    make_state(w, TABLE);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char sql[256];
        snprintf(sql, sizeof sql, INSERT "%s", values[i]);
        make_state(w, sql);
        assert_refused(w, ERR_CORRUPT, "holds a sign-in that cannot be read");
    }
}

static void other_files_are_refused(void **state)
{
    struct world *w = *state;
    make_state(w, "CREATE TABLE x (key, value);");
    assert_refused(w, ERR_NOT_FOUND, "is no editor's state file");
    /* A table that is computed is none of an editor's. */
    make_state(w, "CREATE VIEW ItemTable AS SELECT 'windsurfAuthStatus' AS key, "
                  "'{\"apiKey\":\"cog_view\"}' AS value;");
    assert_refused(w, ERR_NOT_FOUND, "is no editor's state file");
    FILE *f = fopen(w->path, "w");
    assert_non_null(f);
    for (int i = 0; i < 2000; i++)
        fputs("cog_nothing ", f);
    fclose(f);
    assert_refused(w, ERR_CORRUPT, "is no SQLite file");
    assert_int_equal(unlink(w->path), 0);
    assert_int_equal(mkfifo(w->path, 0600), 0); /* who opens it to read waits for a writer */
    assert_refused(w, ERR_CORRUPT, "is no SQLite file");
    assert_int_equal(unlink(w->path), 0);
    assert_int_equal(symlink(w->folder, w->path), 0);
    assert_refused(w, ERR_CORRUPT, "is no SQLite file");
}

static void an_empty_file_is_no_state(void **state)
{
    struct world *w = *state;
    int fd = open(w->path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_refused(w, ERR_NOT_FOUND, "is no editor's state file");
}

/* ---- bounds ---- */

static void make_long(const struct world *w, size_t key, size_t more)
{
    struct buf sql = {0};
    buf_put(&sql, STR("DROP TABLE IF EXISTS ItemTable;" TABLE INSERT));
    buf_printf(&sql,
               "'{\"apiKey\":\"' || substr(hex(zeroblob(%zu)), 1, %zu) || '\",\"x\":\"' || "
               "hex(zeroblob(%zu)) || '\"}');",
               key, key, more / 2);
    buf_putc(&sql, '\0');
    make_state(w, sql.p);
    buf_deinit(&sql);
}

static void sizes_are_bounded(void **state)
{
    struct world *w = *state;
    make_long(w, CASCADE_KEY_MAX, 0);
    assert_int_equal(read_key(w), 0);
    assert_int_equal(strlen(w->key), CASCADE_KEY_MAX);
    make_long(w, CASCADE_KEY_MAX + 1, 0);
    assert_refused(w, ERR_TOO_LARGE, "cannot be read");
    make_long(w, 7 * CASCADE_KEY_MAX, 0);
    assert_refused(w, ERR_TOO_LARGE, "cannot be read");
    make_long(w, 20, 3 << 20);
    assert_int_equal(read_key(w), 0);
    make_long(w, 20, EDITOR_STATE_VALUE_MAX);
    assert_refused(w, ERR_TOO_LARGE, "too large");
}

/* ---- an editor at work ---- */

static void a_file_that_is_held_is_busy(void **state)
{
    struct world *w = *state;
    int ready[2], status;
    char c;
    make_state(w, TABLE INSERT "'{\"apiKey\":\"cog_mine\"}');");
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run_sql(w, "BEGIN EXCLUSIVE;");
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_refused(w, ERR_BUSY, "held by the editor");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(read_key(w), 0); /* what it had begun is not there */
    assert_string_equal(w->key, "cog_mine");
}

/* An editor that died while it wrote: putting that right is a write, and not ours. */
static void a_half_written_file_is_not_mended(void **state)
{
    struct world *w = *state;
    struct buf before = {0}, after = {0};
    make_state(w, TABLE INSERT "'{\"apiKey\":\"cog_mine\"}');");
    make_state(w, "PRAGMA cache_size = 2; PRAGMA cache_spill = 2; BEGIN; DELETE FROM ItemTable;"
                  "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100)"
                  "INSERT INTO ItemTable SELECT i, randomblob(5000) FROM n;");
    read_file(w->path, &before);
    assert_refused(w, ERR_BUSY, "left in the middle of a change");
    read_file(w->path, &after);
    assert_true(str_eq(buf_str(&before), buf_str(&after)));
    buf_deinit(&before);
    buf_deinit(&after);
}

/* ---- memory ---- */

#define SECRET_LEN 48

/* The key's bytes from this one on, so that it stands nowhere as a whole. */
static char secret_at(size_t i)
{
    return (char)('a' + (i * i + 7 * i + 3) % 26);
}

static void make_secret(const struct world *w)
{
    struct buf sql = {0};
    buf_put(&sql, STR(TABLE INSERT "'{\"apiKey\":\"cog_"));
    for (size_t i = 0; i < SECRET_LEN; i++)
        buf_putc(&sql, secret_at(i));
    buf_put(&sql, STR("\"}');"));
    buf_putc(&sql, '\0');
    run_sql(w, sql.p);
}

/* Its second half: an allocator writes over the beginning of what was given back. */
static bool holds_secret(const char *p, size_t n)
{
    for (size_t i = 0; i + SECRET_LEN / 2 <= n; i++) {
        size_t k = 0;
        while (k < SECRET_LEN / 2 && p[i + k] == secret_at(SECRET_LEN / 2 + k))
            k++;
        if (k == SECRET_LEN / 2)
            return true;
    }
    return false;
}

/* How many of our pieces of memory that can be written to hold it. Those of a size that only a
 * sanitizer's bookkeeping has are left out. */
static size_t count_secrets(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int memory = open("/proc/self/mem", O_RDONLY);
    char line[512], rights[8];
    unsigned long start, stop;
    size_t found = 0;
    static char piece[1 << 20];
    assert_true(maps != NULL && memory >= 0);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx %7s", &start, &stop, rights) != 3 || rights[1] != 'w' ||
            stop - start > 256ul << 20)
            continue;
        for (unsigned long at = start; at < stop; at += sizeof piece - SECRET_LEN) {
            ssize_t n = pread(memory, piece, sizeof piece, (off_t)at);
            found += n > 0 && holds_secret(piece, (size_t)n < stop - at ? (size_t)n : stop - at);
        }
    }
    explicit_bzero(piece, sizeof piece);
    fclose(maps);
    close(memory);
    return found;
}

static void no_copy_stays_behind(void **state)
{
    struct world *w = *state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        make_secret(w);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(read_key(w), 0);
    assert_true(strlen(w->key) == 4 + SECRET_LEN && holds_secret(w->key + 4, SECRET_LEN));
    assert_true(count_secrets() > 0); /* it would be seen */
    explicit_bzero(w->key, sizeof w->key);
    assert_int_equal(count_secrets(), 0);
}

/* ---- where it is ---- */

static void assert_path(const char *config_home, const char *home, const char *want)
{
    struct buf path = {0};
    editor_state_path(&path, config_home, home);
    assert_string_equal(path.p, want);
    assert_int_equal(path.n, strlen(want));
    buf_deinit(&path);
}

static void the_file_has_its_place(void **state)
{
    assert_path(NULL, "/home/me", "/home/me/.config/Windsurf/User/globalStorage/state.vscdb");
    assert_path("", "/home/me", "/home/me/.config/Windsurf/User/globalStorage/state.vscdb");
    assert_path("etc", "/home/me", "/home/me/.config/Windsurf/User/globalStorage/state.vscdb");
    assert_path("/etc/me", "/home/me", "/etc/me/Windsurf/User/globalStorage/state.vscdb");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_copy_stays_behind),
        TEST(the_key_is_found),
        TEST(values_may_be_blobs),
        TEST(escapes_are_decoded),
        TEST(a_file_in_wal_mode_is_read),
        TEST(the_file_is_left_as_it_is),
        TEST(without_a_file_there_is_none),
        TEST(without_a_sign_in_there_is_none),
        TEST(what_cannot_be_read_is_refused),
        TEST(other_files_are_refused),
        TEST(an_empty_file_is_no_state),
        TEST(sizes_are_bounded),
        TEST(a_file_that_is_held_is_busy),
        TEST(a_half_written_file_is_not_mended),
        TEST(the_file_has_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
