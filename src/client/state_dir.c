// SPDX-License-Identifier: Apache-2.0
/* The directory of saved state: its key, its locks, its files. */
#include "client/codec.h"
#include "base/clock.h"
#include "client/state.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEY_FILE  ".tidemark-key"
#define HASH_SIZE 32

static int state_dir_fail(struct tm_client *c, const char *what, const char *name)
{
    char text[128];
    const char *why =
        errno == 0 ? "it is not what it should be" : strerror_r(errno, text, sizeof text);
    return client_fail(c, TM_E_IO, "saved state: %s %s failed: %s", what, name, why);
}

/* ---- bytes ---- */

static int state_dir_write_all(int fd, struct str s)
{
    while (s.n > 0) {
        ssize_t n = write(fd, s.p, s.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        s = str_skip(s, (size_t)n);
    }
    return 0;
}

/* Exactly n bytes, and then the end. */
static int state_dir_read_all(int fd, char *to, size_t n)
{
    size_t got = 0;
    char more;
    while (got <= n) {
        ssize_t k = got < n ? read(fd, to + got, n - got) : read(fd, &more, 1);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        got += (size_t)k;
    }
    errno = 0;
    return got == n ? 0 : -1;
}

/* A new file, whole and synced, under its temporary name. */
static int write_file(int dir, const char *name, int flags, struct str s)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return -1;
    int err = state_dir_write_all(fd, s);
    if (err == 0)
        err = fsync(fd);
    int saved = errno;
    if (close(fd) != 0 && err == 0)
        return -1;
    errno = saved;
    return err;
}

/* ---- the directory ---- */

/* The directory may be as new as its key. One whose parent cannot be opened is not ours to make
 * durable. */
static int sync_with_parent(struct tm_client *c, int dir)
{
    int parent = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fsync(dir) == 0 && (parent < 0 || fsync(parent) == 0)
                  ? 0
                  : state_dir_fail(c, "sync", "the directory");
    if (parent >= 0)
        close(parent);
    return err;
}

/* Whoever links first has made it; nobody ever sees half a key. */
static int make_key(struct tm_client *c, int dir)
{
    uint8_t key[MAC_SIZE], draw[8];
    char name[sizeof KEY_FILE "." + 2 * sizeof draw] = KEY_FILE ".";
    if (RAND_bytes(key, sizeof key) != 1 || RAND_bytes(draw, sizeof draw) != 1)
        return client_fail(c, TM_E_IO, "saved state: there is no randomness for a key");
    hex_encode(draw, sizeof draw, name + strlen(name));
    int err = write_file(dir, name, O_EXCL, str_of((const char *)key, sizeof key));
    OPENSSL_cleanse(key, sizeof key);
    if (err == 0 && linkat(dir, name, dir, KEY_FILE, 0) != 0 && errno != EEXIST)
        err = -1;
    if (err != 0)
        err = state_dir_fail(c, "making the key", "the directory");
    unlinkat(dir, name, 0);
    return err != 0 ? err : sync_with_parent(c, dir);
}

static int open_key(struct tm_client *c, struct state_dir *d)
{
    struct stat st;
    d->lock = openat(d->fd, KEY_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (d->lock < 0)
        return errno == ENOENT ? TM_E_NOT_FOUND : state_dir_fail(c, "opening", KEY_FILE);
    errno = 0;
    if (fstat(d->lock, &st) != 0 || !S_ISREG(st.st_mode) ||
        state_dir_read_all(d->lock, (char *)d->key, sizeof d->key) != 0)
        return state_dir_fail(c, "reading", KEY_FILE);
    return 0;
}

static int open_directory(struct tm_client *c, const char *path, bool create, int *out)
{
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return state_dir_fail(c, "making", path);
    *out = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out >= 0)
        return 0;
    if (errno == ENOENT)
        return client_fail(c, TM_E_NOT_FOUND, "there is no directory %s", path);
    return state_dir_fail(c, "opening", path);
}

int state_dir_open(struct tm_client *c, const char *path, bool create, struct state_dir *out)
{
    struct state_dir d = STATE_DIR_NONE;
    int err = open_directory(c, path, create, &d.fd);
    if (err == 0)
        err = open_key(c, &d);
    if (err == TM_E_NOT_FOUND && d.fd >= 0) {
        err = make_key(c, d.fd);
        if (err == 0)
            err = open_key(c, &d);
    }
    if (err == 0)
        *out = d;
    else
        state_dir_close(&d);
    OPENSSL_cleanse(d.key, sizeof d.key);
    return err;
}

void state_dir_close(struct state_dir *d)
{
    if (d->lock >= 0)
        close(d->lock);
    if (d->fd >= 0)
        close(d->fd);
    OPENSSL_cleanse(d->key, sizeof d->key);
    *d = (struct state_dir)STATE_DIR_NONE;
}

/* ---- names and locks ---- */

int state_name(struct str key, char out[STATE_NAME_SIZE])
{
    uint8_t hash[HASH_SIZE];
    size_t n = 0;
    if (EVP_Q_digest(NULL, "SHA256", NULL, key.p, key.n, hash, &n) != 1 || n != HASH_SIZE)
        return TM_E_NOMEM;
    hex_encode(hash, HASH_SIZE, out);
    memcpy(out + 2 * HASH_SIZE, ".json", sizeof ".json");
    return 0;
}

bool state_is_name(const char *name)
{
    uint8_t hash[HASH_SIZE];
    return strlen(name) == STATE_NAME_SIZE - 1 &&
           codec_take_hex(str_of(name, 2 * HASH_SIZE), hash, HASH_SIZE) == 0 &&
           strcmp(name + 2 * HASH_SIZE, ".json") == 0;
}

/* The byte of the key file that stands for this session: the first bits of its hash. */
static off_t lock_place(const char *name)
{
    uint8_t hash[7];
    off_t at = 0;
    codec_take_hex(str_of(name, 2 * sizeof hash), hash, sizeof hash);
    for (size_t i = 0; i < sizeof hash; i++)
        at = at << 8 | hash[i];
    return at;
}

int state_lock(struct tm_client *c, struct state_dir *d, const char *name)
{
#if defined(F_OFD_SETLK)
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = lock_place(name), .l_len = 1};
    if (fcntl(d->lock, F_OFD_SETLK, &lock) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return client_fail(c, TM_E_BUSY, "this session's saved state is in use");
    return state_dir_fail(c, "locking", name);
#else
    (void)lock_place;
    return 0;
#endif
}

/* ---- files ---- */

static int state_dir_replace(struct tm_client *c, struct state_dir *d, const char *name,
                             struct str text)
{
    char temporary[STATE_NAME_SIZE + 4];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    if (write_file(d->fd, temporary, O_TRUNC, text) != 0 ||
        renameat(d->fd, temporary, d->fd, name) != 0) {
        int err = state_dir_fail(c, "writing", name);
        unlinkat(d->fd, temporary, 0);
        return err;
    }
    return fsync(d->fd) == 0 ? 0 : state_dir_fail(c, "sync", "the directory");
}

int state_save(struct tm_client *c, struct state_dir *d, struct saved_state *s)
{
    char name[STATE_NAME_SIZE];
    struct bytes text = {0};
    s->updated_ms = clock_wall_ms();
    int err = state_name(str_of_cstr(s->key), name);
    if (err == 0)
        err = state_format(c, d->key, s, &text);
    if (err != 0)
        client_fail(c, err, "saved state: %s", tm_error_text(err));
    else
        err = state_dir_replace(c, d, name, bytes_str(&text));
    client_free_secret(c, text.p, text.cap);
    return err;
}

static int state_dir_read_file(struct tm_client *c, struct state_dir *d, const char *name,
                               struct bytes *out)
{
    struct stat st;
    int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return errno == ENOENT ? TM_E_NOT_FOUND : TM_E_TAMPERED;
    if (fd < 0)
        return state_dir_fail(c, "opening", name);
    int err = 0;
    errno = 0;
    if (fstat(fd, &st) != 0)
        err = state_dir_fail(c, "reading", name);
    else if (!S_ISREG(st.st_mode) || (size_t)st.st_size > STATE_FILE_MAX)
        err = TM_E_TAMPERED;
    else if (bytes_room(c, out, (size_t)st.st_size) == NULL)
        err = client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
    else if (state_dir_read_all(fd, out->p, (size_t)st.st_size) != 0)
        err = state_dir_fail(c, "reading", name);
    else
        out->n = (size_t)st.st_size;
    close(fd);
    return err;
}

/* A state under another session's name would be resumed twice. */
static int check_name(const char *name, const struct saved_state *s)
{
    char right[STATE_NAME_SIZE];
    int err = state_name(str_of_cstr(s->key), right);
    return err == 0 && strcmp(right, name) != 0 ? TM_E_TAMPERED : err;
}

static int set_aside(struct tm_client *c, struct state_dir *d, const char *name)
{
    char aside[STATE_NAME_SIZE + 8];
    snprintf(aside, sizeof aside, "%s.refused", name);
    if (renameat(d->fd, name, d->fd, aside) != 0 || fsync(d->fd) != 0)
        return state_dir_fail(c, "renaming", name);
    return client_fail(c, TM_E_TAMPERED,
                       "%s is not what was saved there; it is kept as %s and not used", name,
                       aside);
}

int state_load(struct tm_client *c, struct state_dir *d, const char *name, struct saved_state *out,
               unsigned *dropped)
{
    struct bytes text = {0};
    state_init(out);
    int err = state_dir_read_file(c, d, name, &text);
    if (err == 0)
        err = state_parse(c, d->key, bytes_str(&text), out, dropped);
    client_free_secret(c, text.p, text.cap);
    if (err == 0)
        err = check_name(name, out);
    if (err != 0)
        state_deinit(c, out);
    if (err == TM_E_NOMEM)
        client_fail(c, err, "%s", tm_error_text(err));
    return err == TM_E_TAMPERED ? set_aside(c, d, name) : err;
}

int state_remove(struct tm_client *c, struct state_dir *d, const char *name)
{
    if (unlinkat(d->fd, name, 0) != 0 && errno != ENOENT)
        return state_dir_fail(c, "removing", name);
    return fsync(d->fd) == 0 ? 0 : state_dir_fail(c, "sync", "the directory");
}
