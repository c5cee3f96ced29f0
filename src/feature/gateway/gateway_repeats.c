// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_repeats.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/hangups.h"

#include <stdlib.h>

#define LOOKS_MAX 16 /* at requests that were the same */

struct repeat {
    struct link age, bucket;
    struct repeat_mark mark;
    enum repeat_fate fate;
    const void *connection;
    uint64_t at_ms;
    char request_id[RAND_UUID];
};

void repeats_init(struct repeats *r)
{
    list_init(&r->ages);
    for (size_t i = 0; i < REPEATS_BUCKETS; i++)
        list_init(&r->buckets[i]);
    r->n = 0;
}

static void repeat_free(struct repeats *r, struct repeat *one)
{
    list_remove(&one->age);
    list_remove(&one->bucket);
    free(one);
    r->n--;
}

static struct repeat *oldest(struct repeats *r)
{
    return list_item(r->ages.next, struct repeat, age);
}

void repeats_deinit(struct repeats *r)
{
    while (r->n > 0)
        repeat_free(r, oldest(r));
}

/* A digest is as good as random, but in hex: the bits are mixed. */
static struct link *bucket_of(struct repeats *r, const struct repeat_mark *mark)
{
    uint32_t hash;
    memcpy(&hash, mark->digest, sizeof hash);
    return &r->buckets[hash * 2654435761u / (UINT32_MAX / REPEATS_BUCKETS + 1)];
}

static void forget_old(struct repeats *r, uint64_t now_ms)
{
    while (r->n > 0 && now_ms - oldest(r)->at_ms > REPEATS_KEEP_MS)
        repeat_free(r, oldest(r));
}

void repeats_note(struct repeats *r, const struct repeat_note *note, uint64_t now_ms)
{
    if (!note->mark->counts)
        return;
    must(note->request_id.n == RAND_UUID);
    forget_old(r, now_ms);
    if (r->n == REPEATS_MAX)
        repeat_free(r, oldest(r));
    struct repeat *one = mem_zalloc(sizeof *one);
    *one = (struct repeat){
        .mark = *note->mark, .fate = note->fate, .connection = note->connection, .at_ms = now_ms};
    memcpy(one->request_id, note->request_id.p, RAND_UUID);
    list_push(&r->ages, &one->age);
    list_push(bucket_of(r, note->mark), &one->bucket);
    r->n++;
}

static bool precedes(const struct repeat *one, const struct repeat_mark *mark)
{
    return one->mark.tries < mark->tries &&
           memcmp(one->mark.digest, mark->digest, sizeof mark->digest) == 0;
}

/* Does it say what the retry has to do? */
static bool decides(const struct repeat *one, const struct hangups *h)
{
    return one->fate != REPEAT_DELIVERED || hangups_has(h, one->connection, one->at_ms);
}

bool repeats_take(struct repeats *r, const struct repeat_mark *mark, const struct hangups *h,
                  uint64_t now_ms, char request_id[RAND_UUID])
{
    struct link *bucket = bucket_of(r, mark);
    unsigned looks = LOOKS_MAX;
    forget_old(r, now_ms);
    for (struct link *l = bucket->prev; l != bucket && looks > 0; l = l->prev) {
        struct repeat *one = list_item(l, struct repeat, bucket);
        if (!precedes(one, mark))
            continue;
        looks--;
        if (!decides(one, h))
            continue;
        bool lost = one->fate != REPEAT_REFUSED;
        memcpy(request_id, one->request_id, RAND_UUID);
        repeat_free(r, one);
        return lost;
    }
    return false;
}
