// SPDX-License-Identifier: Apache-2.0
/* gateway_repeats.h -- requests without a key that say that they repeat one before: which answer
 * was lost, so that the retry gets it instead of another one.
 *
 * SDKs of OpenAI and Anthropic count their tries in X-Stainless-Retry-Count. They try again when a
 * connection breaks before the head of the answer is there, and after certain errors. A count says
 * that a request is a repeat, but not of which one. So it has to be found by what is known of those
 * before it, of the same caller with the same request (the digest) and a smaller count:
 *
 *     LOST       its connection broke before the answer had begun, or right behind its beginning
 *     DELIVERED  all of it was sent at once; lost as well if the connection closed right behind it
 *     REFUSED    an error was sent, so that the retry has to ask again
 *
 * The newest of these decides, and is taken: each lost answer goes to one retry. Nothing is said of
 * requests that are under way, or whose answers were read for a while: two equal requests side by
 * side stay two.
 *
 * SDKs come again within 8 s. What nobody took is forgotten after REPEATS_KEEP_MS, and the oldest
 * when there are more than REPEATS_MAX. All of it is in memory. Loop thread only. */
#ifndef FEATURE_GATEWAY_GATEWAY_REPEATS_H
#define FEATURE_GATEWAY_GATEWAY_REPEATS_H

#include "base/list.h"
#include "base/rand.h"
#include "base/sha256.h"
#include "base/str.h"

#include <stdint.h>

#define REPEATS_MAX     4096
#define REPEATS_KEEP_MS 60000
#define REPEATS_BUCKETS 512
/* An answer that was read for so long, or to its end, is not lost. */
#define REPEAT_LOST_MS  2000

struct hangups;

enum repeat_fate { REPEAT_LOST, REPEAT_DELIVERED, REPEAT_REFUSED };

/* What one request says of itself. */
struct repeat_mark {
    bool counts; /* it says a number; otherwise nothing is to be noted of it */
    uint64_t tries;
    char digest[SHA256_HEX];
};

struct repeats {
    struct link ages; /* of struct repeat, the oldest first */
    struct link buckets[REPEATS_BUCKETS];
    size_t n;
};

void repeats_init(struct repeats *r);
void repeats_deinit(struct repeats *r);

/* What became of a request and its generation. connection: of DELIVERED, as hangups.h has it. */
struct repeat_note {
    const struct repeat_mark *mark;
    enum repeat_fate fate;
    struct str request_id;
    const void *connection;
};
void repeats_note(struct repeats *r, const struct repeat_note *note, uint64_t now_ms);

/* The generation whose answer this request lost when it was tried before. False: there is none, or
 * it has to ask again. */
bool repeats_take(struct repeats *r, const struct repeat_mark *mark, const struct hangups *h,
                  uint64_t now_ms, char request_id[RAND_UUID]);

#endif
