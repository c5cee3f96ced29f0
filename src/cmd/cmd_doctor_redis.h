// SPDX-License-Identifier: Apache-2.0
/* cmd_doctor_redis.h -- what a Redis promises to who keeps streams in it. */
#ifndef CMD_CMD_DOCTOR_REDIS_H
#define CMD_CMD_DOCTOR_REDIS_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* As INFO and CONFIG tell it. Texts are lent; n == 0: it does not say. */
struct redis_facts {
    struct str version, role, policy, fsync;
    bool aof, cluster;
    uint64_t replicas, max_memory;
    uint64_t wait; /* of the URL */
};

/* Takes a text of INFO, `name:value` lines. */
void redis_facts_info(struct redis_facts *f, struct str info);

/* Says what they mean, a sentence a line. How many of them are wrong, so that streams would be lost
 * although nothing has failed. */
int redis_facts_print(const struct redis_facts *f, FILE *to);

/* Asks the Redis at this URL. An exit status; failures are told on stderr. */
int doctor_redis(struct str url);

/* Is it one? */
bool doctor_is_redis(struct str text);

#endif
