// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/editor_state.h"

#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BELOW_CONFIG "/Windsurf/User/globalStorage/state.vscdb"
#define QUERY        "SELECT value FROM ItemTable WHERE key = 'windsurfAuthStatus'"
#define ESCAPE_MAX   6 /* bytes that may stand for one in JSON */

void editor_state_path(struct buf *out, const char *config_home, const char *home)
{
    if (config_home != NULL && config_home[0] == '/')
        buf_put(out, str_of_cstr(config_home));
    else
        buf_printf(out, "%s/.config", home);
    buf_put(out, STR(BELOW_CONFIG));
    buf_putc(out, '\0');
    out->n--;
}

/* ---- memory of SQLite, wiped when it is given back: pages of the file hold the key ---- */

static void *editor_state_wiped_malloc(int n)
{
    return malloc((size_t)n);
}

static void editor_state_wiped_free(void *p)
{
    if (p != NULL)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static void *editor_state_wiped_realloc(void *p, int n)
{
    size_t before = malloc_usable_size(p);
    void *moved = malloc((size_t)n);
    if (moved == NULL)
        return NULL;
    memcpy(moved, p, before < (size_t)n ? before : (size_t)n);
    editor_state_wiped_free(p);
    return moved;
}

static int editor_state_wiped_size(void *p)
{
    return (int)malloc_usable_size(p);
}

static int editor_state_wiped_round_up(int n)
{
    return (n + 7) & ~7;
}

static int editor_state_wiped_init(void *ctx)
{
    (void)ctx;
    return SQLITE_OK;
}

static void editor_state_wiped_shutdown(void *ctx)
{
    (void)ctx;
}

static void editor_state_set_memory(void)
{
    static const sqlite3_mem_methods wiped = {
        .xMalloc = editor_state_wiped_malloc,
        .xFree = editor_state_wiped_free,
        .xRealloc = editor_state_wiped_realloc,
        .xSize = editor_state_wiped_size,
        .xRoundup = editor_state_wiped_round_up,
        .xInit = editor_state_wiped_init,
        .xShutdown = editor_state_wiped_shutdown,
    };
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &wiped);
}

/* ---- the row ---- */

static const struct {
    int result, err;
    const char *text;
} refusals[] = {
    {SQLITE_BUSY, ERR_BUSY, "is held by the editor; try again"},
    {SQLITE_LOCKED, ERR_BUSY, "is held by the editor; try again"},
    {SQLITE_READONLY, ERR_BUSY, "was left in the middle of a change; start the editor once"},
    {SQLITE_NOTADB, ERR_CORRUPT, "is no SQLite file"},
    {SQLITE_CORRUPT, ERR_CORRUPT, "is damaged"},
    {SQLITE_TOOBIG, ERR_TOO_LARGE, "holds a sign-in that is too large"},
    {SQLITE_DONE, ERR_NOT_FOUND, "holds no sign-in; sign in to Windsurf once"},
    {SQLITE_ERROR, ERR_NOT_FOUND, "is no editor's state file"},
};

static int editor_state_refuse(const char *path, int result, struct buf *why)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (refusals[i].result == (result & 0xff)) {
            buf_printf(why, "%s %s", path, refusals[i].text);
            return refusals[i].err;
        }
    }
    buf_printf(why, "%s cannot be read", path);
    return ERR_IO;
}

static void set_limits(sqlite3 *db)
{
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, EDITOR_STATE_VALUE_MAX);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_busy_timeout(db, EDITOR_STATE_WAIT_MS);
}

/* The apiKey of {"apiKey":"...",...}, with a NUL. */
static int take_key(struct str json, char key[CASCADE_KEY_MAX + 1])
{
    struct view_want want = {.name = STR_INIT("apiKey")};
    struct buf decoded = {0};
    size_t at;
    if (json_check(json, &at) != 0 || view_type(view_trim(json)) != VIEW_OBJECT)
        return ERR_CORRUPT;
    view_pick(view_trim(json), &want, 1);
    if (view_type(want.value) != VIEW_STRING)
        return ERR_NOT_FOUND;
    struct str inside = view_inside(want.value);
    if (inside.n == 0)
        return ERR_NOT_FOUND;
    if (inside.n > ESCAPE_MAX * CASCADE_KEY_MAX)
        return ERR_TOO_LARGE;
    buf_reserve(&decoded, inside.n); /* it does not grow, so that there is one copy */
    view_decode(inside, &decoded);
    int err = decoded.n > CASCADE_KEY_MAX                  ? ERR_TOO_LARGE
              : memchr(decoded.p, '\0', decoded.n) != NULL ? ERR_CORRUPT
                                                           : 0;
    if (err == 0) {
        memcpy(key, decoded.p, decoded.n);
        key[decoded.n] = '\0';
    }
    explicit_bzero(decoded.p, decoded.cap);
    buf_deinit(&decoded);
    return err;
}

static int read_row(sqlite3_stmt *row, const char *path, char key[CASCADE_KEY_MAX + 1],
                    struct buf *why)
{
    int result = sqlite3_step(row);
    if (result != SQLITE_ROW)
        return editor_state_refuse(path, result, why);
    const char *text = (const char *)sqlite3_column_text(row, 0);
    int err = take_key(str_of(text, (size_t)sqlite3_column_bytes(row, 0)), key);
    if (err == ERR_NOT_FOUND)
        return editor_state_refuse(path, SQLITE_DONE, why);
    if (err != 0)
        buf_printf(why, "%s holds a sign-in that cannot be read", path);
    return err;
}

/* SQLite would wait for the other end of a pipe. */
static int check_file(const char *path, struct buf *why)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        buf_printf(why, "%s: %s", path,
                   errno == ENOENT ? "there is no such file; is Windsurf installed?"
                                   : "it cannot be looked at");
        return errno == ENOENT ? ERR_NOT_FOUND : ERR_IO;
    }
    return S_ISREG(st.st_mode) ? 0 : editor_state_refuse(path, SQLITE_NOTADB, why);
}

int editor_state_api_key(const char *path, char key[CASCADE_KEY_MAX + 1], struct buf *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    int err = check_file(path, why);
    if (err != 0)
        return err;
    pthread_once(&once, editor_state_set_memory);
    int result = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_PRIVATECACHE, NULL);
    if (result == SQLITE_OK) {
        set_limits(db);
        result = sqlite3_prepare_v2(db, QUERY, -1, &row, NULL);
    }
    err = result == SQLITE_OK ? read_row(row, path, key, why)
                              : editor_state_refuse(path, result, why);
    sqlite3_finalize(row);
    sqlite3_close(db);
    return err;
}
