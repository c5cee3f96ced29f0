// SPDX-License-Identifier: Apache-2.0
/* log_keys.c -- the file of keys. Little-endian, in blocks of 4096 bytes, most of them holes:
 *
 *     block 0        "tmlogkey"; at 512 and at 1024 one intent each, by its serial's last bit
 *     block 1 + b    32 notes, of the keys whose digest, as a number of 32 bits, is b modulo 8192
 *
 *     note, intent   0 serial u64   8 key[32]   40 body[32]   72 device, inode, head u64
 *                    96 start u64   104 next u64   112 at_ms i64   120 first u32
 *                    124 the lower half of XXH3-64 of what stands before it
 *
 * Each is 128 bytes within one sector. One whose check is wrong is not there. */
#include "feature/logs/log_keys.h"
#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"
#include "feature/logs/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK    4096
#define NOTE     128
#define MAGIC    "tmlogkey"
#define MAGIC_N  8
#define SECTOR   512
#define CHECK_AT (NOTE - 4)

_Static_assert(LOG_KEYS_WAYS *NOTE == BLOCK, "a block is full of notes");

/* ---- one note ---- */

static void note_write(const struct log_key_entry *n, char out[NOTE])
{
    le_put_u64(out, n->serial);
    memcpy(out + 8, n->key, SHA256_SIZE);
    memcpy(out + 40, n->body, SHA256_SIZE);
    le_put_u64(out + 72, n->id.device);
    le_put_u64(out + 80, n->id.inode);
    le_put_u64(out + 88, n->id.head);
    le_put_u64(out + 96, n->start);
    le_put_u64(out + 104, n->next);
    le_put_u64(out + 112, (uint64_t)n->at_ms);
    le_put_u32(out + 120, n->first);
    le_put_u32(out + CHECK_AT, (uint32_t)XXH3_64bits(out, CHECK_AT));
}

/* serial == 0: there is none. */
static struct log_key_entry note_read(const char p[NOTE])
{
    struct log_key_entry n = {.serial = le_get_u64(p),
                              .id = {le_get_u64(p + 72), le_get_u64(p + 80), le_get_u64(p + 88)},
                              .start = le_get_u64(p + 96),
                              .next = le_get_u64(p + 104),
                              .at_ms = (int64_t)le_get_u64(p + 112),
                              .first = le_get_u32(p + 120)};
    memcpy(n.key, p + 8, SHA256_SIZE);
    memcpy(n.body, p + 40, SHA256_SIZE);
    if (le_get_u32(p + CHECK_AT) != (uint32_t)XXH3_64bits(p, CHECK_AT))
        n.serial = 0;
    return n;
}

/* ---- the file ---- */

/* What lies behind the file's end is zero. */
static int read_block(const struct log_keys *k, off_t at, char out[BLOCK])
{
    size_t got = 0;
    memset(out, 0, BLOCK);
    return log_file_read(k->fd, (uint64_t)at, out, BLOCK, &got);
}

static int write_at(const struct log_keys *k, off_t at, const char *p, size_t n)
{
    ssize_t wrote;
    do {
        wrote = pwrite(k->fd, p, n, at);
    } while (wrote < 0 && errno == EINTR);
    return wrote == (ssize_t)n ? 0 : wrote < 0 ? log_file_err(errno) : ERR_FULL;
}

static int write_note(const struct log_keys *k, off_t at, const struct log_key_entry *n)
{
    char bytes[NOTE];
    note_write(n, bytes);
    return write_at(k, at, bytes, sizeof bytes);
}

static int sync_file(const struct log_keys *k)
{
    return fdatasync(k->fd) == 0 ? 0 : log_file_err(errno);
}

static off_t intent_at(uint64_t serial)
{
    return SECTOR * (off_t)(1 + serial % LOG_KEYS_INTENTS);
}

static int log_keys_read_head(struct log_keys *k)
{
    static const char none[MAGIC_N];
    char head[BLOCK];
    int err = read_block(k, 0, head);
    if (err != 0)
        return err;
    k->made = memcmp(head, none, MAGIC_N) == 0;
    if (!k->made && memcmp(head, MAGIC, MAGIC_N) != 0)
        return ERR_CORRUPT;
    for (uint64_t i = 0; i < LOG_KEYS_INTENTS; i++) {
        k->intents[i] = note_read(head + intent_at(i));
        if (k->intents[i].serial % LOG_KEYS_INTENTS != i)
            k->intents[i].serial = 0;
    }
    return 0;
}

int log_keys_open(struct log_keys *k, const char *log_path, bool make)
{
    struct str path = str_of_cstr(log_path);
    struct stat st;
    *k = (struct log_keys){.fd = -1};
    char *name = mem_alloc(path.n + sizeof LOG_KEYS_SUFFIX);
    memcpy(name, path.p, path.n);
    memcpy(name + path.n, LOG_KEYS_SUFFIX, sizeof LOG_KEYS_SUFFIX);
    k->fd = log_file_open(name, O_RDWR | O_NOFOLLOW | (make ? O_CREAT : 0));
    int err = k->fd >= 0 ? 0 : errno == ENOENT && !make ? 0 : log_file_err(errno);
    free(name);
    if (k->fd < 0)
        return err;
    err = log_file_stat(k->fd, &st);
    if (err == 0)
        err = log_keys_read_head(k);
    if (err != 0)
        log_keys_close(k);
    return err;
}

void log_keys_close(struct log_keys *k)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
}

/* ---- notes ---- */

static off_t block_at(const uint8_t key[SHA256_SIZE])
{
    return BLOCK * (off_t)(1 + le_get_u32((const char *)key) % LOG_KEYS_BLOCKS);
}

/* One of a clock that was ahead counts as old, and is the first to go. */
static uint64_t age_of(const struct log_key_entry *n, uint64_t lifetime_ms, int64_t now_ms)
{
    return n->serial == 0      ? UINT64_MAX
           : n->at_ms > now_ms ? lifetime_ms
                               : (uint64_t)(now_ms - n->at_ms);
}

int log_keys_find(struct log_keys *k, const uint8_t key[SHA256_SIZE], uint64_t lifetime_ms,
                  int64_t now_ms, struct log_key_entry *out)
{
    char block[BLOCK];
    int err = k->fd >= 0 ? read_block(k, block_at(key), block) : ERR_NOT_FOUND;
    for (size_t i = 0; err == 0 && i < LOG_KEYS_WAYS; i++) {
        struct log_key_entry n = note_read(block + i * NOTE);
        if (n.serial != 0 && age_of(&n, lifetime_ms, now_ms) <= lifetime_ms &&
            memcmp(n.key, key, SHA256_SIZE) == 0) {
            *out = n;
            return 0;
        }
    }
    return err != 0 ? err : ERR_NOT_FOUND;
}

int log_keys_put(struct log_keys *k, const struct log_key_entry *n, uint64_t lifetime_ms,
                 int64_t now_ms, bool *dropped)
{
    char block[BLOCK];
    size_t into = 0;
    uint64_t oldest = 0;
    int err = read_block(k, block_at(n->key), block);
    if (err != 0)
        return err;
    for (size_t i = 0; i < LOG_KEYS_WAYS; i++) {
        struct log_key_entry other = note_read(block + i * NOTE);
        bool same = other.serial != 0 && memcmp(other.key, n->key, SHA256_SIZE) == 0;
        uint64_t age = same ? UINT64_MAX : age_of(&other, lifetime_ms, now_ms);
        if (age >= oldest) {
            oldest = age;
            into = i;
        }
        if (same)
            break; /* so that there is one of each key at most */
    }
    *dropped = oldest <= lifetime_ms;
    return write_note(k, block_at(n->key) + (off_t)(into * NOTE), n);
}

/* ---- intents ---- */

/* By its own note, or by a later one of the same key. */
static bool is_noted(struct log_keys *k, const struct log_key_entry *intent)
{
    struct log_key_entry n;
    return log_keys_find(k, intent->key, UINT64_MAX, 0, &n) == 0 && n.serial >= intent->serial;
}

struct log_key_entry *log_keys_open_intent(struct log_keys *k)
{
    for (size_t i = 0; k->fd >= 0 && i < LOG_KEYS_INTENTS; i++) {
        struct log_key_entry *n = &k->intents[i];
        if (n->serial != 0 && n->first != 0 && !is_noted(k, n))
            return n;
    }
    return NULL;
}

/* On the disk before anything else is: lines like these that come later are not of this intent. Its
 * serial stays, so that none is used twice. */
int log_keys_forget(struct log_keys *k, struct log_key_entry *intent)
{
    struct log_key_entry none = *intent;
    none.first = 0;
    int err = write_note(k, intent_at(none.serial), &none);
    if (err == 0)
        err = sync_file(k);
    if (err == 0)
        *intent = none;
    return err;
}

int log_keys_intend(struct log_keys *k, struct log_key_entry *n)
{
    int err = 0;
    n->serial = (uint64_t)n->at_ms; /* of a file that is new, or has been spoilt */
    for (size_t i = 0; i < LOG_KEYS_INTENTS; i++)
        if (k->intents[i].serial >= n->serial)
            n->serial = k->intents[i].serial + 1;
    if (k->made)
        err = write_at(k, 0, MAGIC, MAGIC_N);
    if (err == 0)
        err = write_note(k, intent_at(n->serial), n);
    if (err == 0)
        err = sync_file(k);
    if (err == 0)
        k->intents[n->serial % LOG_KEYS_INTENTS] = *n;
    return err;
}
