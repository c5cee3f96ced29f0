// SPDX-License-Identifier: Apache-2.0
/* redis_cluster_servers.h -- three redis-servers that are a cluster. */
#ifndef MODEL_REDIS_CLUSTER_SERVERS_H
#define MODEL_REDIS_CLUSTER_SERVERS_H

#include "unit/store/redis/redis_server.h"

#define REDIS_CLUSTER_N 3

struct redis_cluster_of {
    struct redis_server servers[REDIS_CLUSTER_N];
};

static inline bool redis_cluster_is_whole(const struct redis_server *s)
{
    char out[4096];
    redis_server_cli(s, out, sizeof out, "CLUSTER INFO");
    return strstr(out, "cluster_state:ok") && strstr(out, "cluster_known_nodes:3");
}

static inline bool redis_cluster_start(struct redis_cluster_of *c)
{
    static const char *const ranges[] = {"0 5000", "5001 10000", "10001 16383"};
    char bus[REDIS_CLUSTER_N][8], out[256];
    for (int i = 0; i < REDIS_CLUSTER_N; i++) {
        snprintf(bus[i], sizeof bus[i], "%u", (unsigned)redis_server_free_port());
        const char *const more[] = {"--cluster-enabled", "yes", "--cluster-port", bus[i], NULL};
        if (!redis_server_start(&c->servers[i], more))
            return false;
        redis_server_cli(&c->servers[i], out, sizeof out, "CLUSTER ADDSLOTSRANGE %s", ranges[i]);
        redis_server_cli(&c->servers[i], out, sizeof out, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
    }
    for (int i = 1; i < REDIS_CLUSTER_N; i++)
        redis_server_cli(&c->servers[0], out, sizeof out, "CLUSTER MEET 127.0.0.1 %u %s",
                         (unsigned)c->servers[i].port, bus[i]);
    for (int i = 0, tries = 0; i < REDIS_CLUSTER_N; i++)
        while (!redis_cluster_is_whole(&c->servers[i])) {
            if (++tries > 500)
                return false;
            usleep(20000);
        }
    return true;
}

static inline void redis_cluster_end(struct redis_cluster_of *c)
{
    for (int i = 0; i < REDIS_CLUSTER_N; i++)
        redis_server_clean(&c->servers[i]);
}

#endif
