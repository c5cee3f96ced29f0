// SPDX-License-Identifier: Apache-2.0
/* redis_url.h -- what a URL of Redis says, for the client's own files; redis.h has the calls. */
#ifndef STORE_REDIS_CLIENT_REDIS_URL_H
#define STORE_REDIS_CLIENT_REDIS_URL_H

#include "base/arena.h"
#include "store/redis/client/redis.h"

#include <stdbool.h>
#include <stdint.h>

#define REDIS_ADDRS_MAX    64
#define REDIS_SETTINGS_MAX 8
#define REDIS_HOST_MAX     255

/* Where a server listens. */
struct redis_addr {
    char host[REDIS_HOST_MAX + 1]; /* a name or an IP address; the path when port is 0 */
    uint16_t port;                 /* 0: a Unix socket */
};

enum redis_kind { REDIS_ONE, REDIS_SENTINEL, REDIS_CLUSTER };

struct redis_setting {
    struct str name, value;
};

struct redis_url {
    struct arena memory;
    enum redis_kind kind;
    bool tls;
    struct str user, password;                /* p == NULL: none */
    struct redis_addr addrs[REDIS_ADDRS_MAX]; /* the server, Sentinels, or some of a cluster */
    size_t n_addrs;
    struct str name; /* of the primary, as Sentinels know it */
    uint32_t db;
    struct redis_setting settings[REDIS_SETTINGS_MAX];
    size_t n_settings;
    struct str shown;
};

#endif
