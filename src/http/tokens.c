// SPDX-License-Identifier: Apache-2.0
#include "http/tokens.h"
#include "access/principal.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/sched.h"

#include <stdlib.h>
#include <xxhash.h>

#define BAD_SLOTS   1024 /* a newer one takes the place of an older one */
#define SECRET_SIZE XXH3_SECRET_SIZE_MIN

#define RECENT_BITS 10 /* of the slots of `recent` */

struct known {
    struct link link; /* in order of age */
    struct tokens_key key;
    uint64_t until_ms;
    uint64_t era;
    const struct principal *principal; /* held */
    size_t n;
    char token[] __attribute__((aligned(16)));
};

struct bad {
    struct tokens_key key;
    uint64_t until_ms, era;
    bool ended;
};

struct tokens {
    const struct sched *sched;
    struct map known;
    struct link ages;
    struct known *recent[1u << RECENT_BITS]; /* by their ends; none is short; NULL: none */
    size_t bytes;
    uint64_t era; /* what is of another was forgotten */
    struct bad bad[BAD_SLOTS];
    uint64_t second; /* since when `checks` count */
    uint32_t checks;
    uint64_t factor; /* odd, and nobody knows it */
    uint8_t secret[SECRET_SIZE];
};

struct tokens_key tokens_key(const struct tokens *t, struct str token)
{
    XXH128_hash_t h = XXH3_128bits_withSecret(token.p, token.n, t->secret, sizeof t->secret);
    return (struct tokens_key){h.low64, h.high64};
}

/* ---- good ones ---- */

static struct str key_bytes(const struct tokens_key *key)
{
    return str_of((const char *)key, sizeof *key);
}

/* Where the one that was let in last stands of all that end like this one. Tokens end in random
 * bytes, or in a signature, so that most have a place of their own. */
static struct known **recent_of(struct tokens *t, struct str token)
{
    uint64_t end = 0;
    if (token.n >= sizeof end)
        memcpy(&end, token.p + token.n - sizeof end, sizeof end);
    return &t->recent[end * t->factor >> (64 - RECENT_BITS)];
}

/* What it holds of a token is wiped: memory is given to others. */
static void known_drop(struct tokens *t, struct known *k)
{
    struct known **recent = recent_of(t, str_of(k->token, k->n));
    if (*recent == k)
        *recent = NULL;
    map_remove(&t->known, key_bytes(&k->key));
    list_remove(&k->link);
    t->bytes -= k->n;
    principal_unref(k->principal);
    explicit_bzero(k->token, k->n);
    free(k);
}

static inline bool is_over(const struct tokens *t, const struct known *k)
{
    uint64_t now_ms = sched_awake_ms(t->sched);
    int64_t wall_ms = t->sched->wall_ms + (int64_t)(now_ms - t->sched->now_ms);
    return k->era != t->era || now_ms >= k->until_ms || wall_ms >= k->principal->expires_ms;
}

/* Bytes of a token that are compared at once. */
typedef uint64_t lanes __attribute__((vector_size(16), may_alias));
typedef lanes lanes_anywhere __attribute__((aligned(1)));

/* The bits that differ; `mine` is aligned. */
static inline lanes differing(const lanes *mine, const char *token, size_t i)
{
    return mine[i] ^ ((const lanes_anywhere *)token)[i];
}

/* In the time that n takes, whatever the bytes are. Many at a time, since it is done for every
 * request. The last step goes back over some that were compared before. n: not less than one
 * step. */
static inline bool same_bytes(const lanes *mine, const char *token, size_t n)
{
    const size_t step = sizeof(lanes), whole = n / step;
    const char *end = (const char *)mine + n - step;
    lanes all = *(const lanes_anywhere *)end ^ *(const lanes_anywhere *)(token + n - step);
    size_t i = 0;
    for (; i + 4 <= whole; i += 4)
        all |= differing(mine, token, i) | differing(mine, token, i + 1) |
               differing(mine, token, i + 2) | differing(mine, token, i + 3);
    for (; i < whole; i++)
        all |= differing(mine, token, i);
    return (all[0] | all[1]) == 0;
}

/* The same of fewer. */
static bool same_few(const char *mine, const char *token, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++)
        all |= (unsigned char)(mine[i] ^ token[i]);
    return all == 0;
}

static bool is_same(const struct known *k, struct str token)
{
    if (k->n != token.n)
        return false;
    return token.n < sizeof(lanes) ? same_few(k->token, token.p, token.n)
                                   : same_bytes((const lanes *)k->token, token.p, token.n);
}

const struct principal *tokens_find_recent(struct tokens *t, struct str token)
{
    const struct known *k = *recent_of(t, token);
    if (k == NULL || k->n != token.n || !same_bytes((const lanes *)k->token, token.p, token.n))
        return NULL;
    return is_over(t, k) ? NULL : k->principal;
}

static struct known *known_find(const struct tokens *t, const struct tokens_key *key,
                                struct str token)
{
    struct known *k = map_get(&t->known, key_bytes(key));
    return k != NULL && is_same(k, token) ? k : NULL;
}

/* One that is over stays until it is verified again or of no use. */
const struct principal *tokens_find(struct tokens *t, const struct tokens_key *key,
                                    struct str token)
{
    struct known *k = known_find(t, key, token);
    if (k == NULL || is_over(t, k))
        return NULL;
    return k->principal;
}

void tokens_let_in(struct tokens *t, const struct tokens_key *key, struct str token)
{
    struct known *k = token.n >= sizeof(lanes) ? known_find(t, key, token) : NULL;
    if (k != NULL)
        *recent_of(t, token) = k;
}

static struct known *oldest(const struct tokens *t)
{
    return list_empty(&t->ages) ? NULL : list_item(t->ages.next, struct known, link);
}

static bool is_useless(const struct tokens *t, const struct known *k)
{
    return sched_awake_ms(t->sched) >= k->until_ms + TOKENS_KEPT_MS ||
           sched_awake_wall_ms(t->sched) >= k->principal->expires_ms;
}

/* Two that are of no use go for each that comes: none of them stays for long. */
static void make_room(struct tokens *t, size_t bytes)
{
    struct known *k;
    for (int i = 0; i < 2 && (k = oldest(t)) != NULL && is_useless(t, k); i++)
        known_drop(t, k);
    while ((k = oldest(t)) != NULL && (t->known.n >= TOKENS_MAX || t->bytes + bytes > TOKENS_BYTES))
        known_drop(t, k);
}

void tokens_put(struct tokens *t, const struct tokens_key *key, struct str token,
                const struct principal *p)
{
    struct known *before = map_get(&t->known, key_bytes(key));
    if (before != NULL)
        known_drop(t, before);
    make_room(t, token.n);
    struct known *k = mem_alloc(sizeof *k + token.n);
    *k = (struct known){.key = *key,
                        .until_ms = sched_awake_ms(t->sched) + TOKENS_FRESH_MS,
                        .era = t->era,
                        .principal = principal_ref(p),
                        .n = token.n};
    memcpy(k->token, token.p, token.n);
    t->bytes += token.n;
    list_push(&t->ages, &k->link);
    map_put(&t->known, key_bytes(&k->key), k);
}

/* ---- bad ones ---- */

void tokens_put_bad(struct tokens *t, const struct tokens_key *key, bool ended)
{
    t->bad[key->low % BAD_SLOTS] =
        (struct bad){*key, sched_awake_ms(t->sched) + TOKENS_BAD_MS, t->era, ended};
}

bool tokens_is_bad(const struct tokens *t, const struct tokens_key *key, bool *ended)
{
    const struct bad *b = &t->bad[key->low % BAD_SLOTS];
    *ended = b->ended;
    return b->key.low == key->low && b->key.high == key->high && b->era == t->era &&
           sched_awake_ms(t->sched) < b->until_ms;
}

/* It is as it was when it was found to be good: its signature is likely to be. */
static bool was_good(const struct tokens *t, struct str token)
{
    struct tokens_key key = tokens_key(t, token);
    const struct known *k = known_find(t, &key, token);
    return k != NULL && sched_awake_wall_ms(t->sched) < k->principal->expires_ms;
}

bool tokens_may_check(struct tokens *t, struct str token)
{
    uint64_t second = sched_awake_ms(t->sched) / 1000;
    if (second != t->second) {
        t->second = second;
        t->checks = 0;
    }
    return t->checks < TOKENS_CHECKS || was_good(t, token);
}

void tokens_checked_bad(struct tokens *t)
{
    t->checks++;
}

/* ---- the whole ---- */

/* At once, however many there are. */
void tokens_forget(struct tokens *t)
{
    t->era++;
}

struct tokens *tokens_new(const struct sched *sched)
{
    struct tokens *t = mem_zalloc(sizeof *t);
    t->sched = sched;
    t->era = 1;
    map_init(&t->known);
    list_init(&t->ages);
    t->factor = rand_u64() | 1;
    rand_bytes(t->secret, sizeof t->secret);
    return t;
}

void tokens_free(struct tokens *t)
{
    if (t == NULL)
        return;
    while (!list_empty(&t->ages))
        known_drop(t, list_item(t->ages.next, struct known, link));
    map_deinit(&t->known);
    explicit_bzero(t->secret, sizeof t->secret);
    free(t);
}
