// SPDX-License-Identifier: Apache-2.0
#include "cmd/cmd_doctor_redis.h"
#include "base/err.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "net/loop.h"
#include "store/redis/client/redis.h"

#include <hiredis/hiredis.h>

#define TIMEOUT_MS  5000
#define PENDING_MAX (1024 * 1024)

bool doctor_is_redis(struct str text)
{
    return str_starts(text, STR("redis")) || str_starts(text, STR("unix:"));
}

/* ---- what it says of itself ---- */

void redis_facts_info(struct redis_facts *f, struct str info)
{
    uint64_t yes = 0;
    while (info.p != NULL) {
        struct str line = str_cut(&info, '\n');
        struct str value = str_cut(&line, '\r');
        struct str name = str_cut(&value, ':');
        if (value.p == NULL)
            continue;
        if (str_eq(name, STR("redis_version")))
            f->version = value;
        else if (str_eq(name, STR("role")))
            f->role = value;
        else if (str_eq(name, STR("maxmemory_policy")))
            f->policy = value;
        else if (str_eq(name, STR("connected_slaves")))
            num_parse(value, UINT32_MAX, &f->replicas);
        else if (str_eq(name, STR("maxmemory")))
            num_parse(value, UINT64_MAX, &f->max_memory);
        else if (str_eq(name, STR("aof_enabled")))
            f->aof = num_parse(value, 1, &yes) == 0 && yes == 1;
        else if (str_eq(name, STR("cluster_enabled")))
            f->cluster = num_parse(value, 1, &yes) == 0 && yes == 1;
    }
}

/* ---- what it means ---- */

static const struct promise {
    const char *fsync; /* NULL: no log at all */
    const char *meaning;
} promises[] = {
    {"always", "survives kill -9 of Redis and a power cut (appendfsync always)"},
    {"everysec", "survives kill -9 of Redis unless the disk is behind; a power cut takes what was "
                 "acknowledged in the last second or two, which may be tens of thousands of events "
                 "(appendfsync everysec)"},
    {"no", "survives kill -9 of Redis; a power cut takes what the system had not written yet, half "
           "a minute or more (appendfsync no)"},
    {NULL, "is gone when Redis ends, or goes back to its last snapshot: it keeps no log "
           "(appendonly no)"},
};

static const char *meaning_of(const struct redis_facts *f)
{
    const struct promise *p = promises;
    if (f->aof && f->fsync.n == 0)
        return "survives kill -9 of Redis; how much a power cut takes depends on appendfsync, "
               "which this user may not see (CONFIG GET)";
    while (p->fsync != NULL && !(f->aof && str_eq(f->fsync, str_of_cstr(p->fsync))))
        p++;
    return p->meaning;
}

static void print_replicas(const struct redis_facts *f, FILE *to)
{
    if (f->wait > 0)
        fprintf(to,
                "- is on %llu replica%s as well (wait=%llu): a failover to one of those loses "
                "nothing.\n",
                (unsigned long long)f->wait, f->wait == 1 ? "" : "s", (unsigned long long)f->wait);
    else if (f->replicas > 0 || f->cluster)
        fprintf(to, "- may be lost in a failover, if the replica that is promoted had not got it "
                    "yet. wait=1 in the URL waits for one.\n");
    else
        fprintf(to, "- is on no other machine: there is no replica.\n");
    fprintf(to, "What is lost nevertheless is told: who reads from there gets a gap, and who "
                "writes is refused.\n");
}

static int print_wrong(const struct redis_facts *f, FILE *to)
{
    int wrong = 0;
    if (f->policy.n > 0 && !str_eq(f->policy, STR("noeviction"))) {
        fprintf(to,
                "WRONG: maxmemory-policy %.*s lets Redis delete streams when its memory is full. "
                "Set it to noeviction: then appends are answered 507.\n",
                (int)f->policy.n, f->policy.p);
        wrong++;
    }
    if (f->wait > f->replicas && !f->cluster) {
        fprintf(to,
                "WRONG: wait=%llu, but there are %llu replicas: no append will be "
                "acknowledged.\n",
                (unsigned long long)f->wait, (unsigned long long)f->replicas);
        wrong++;
    }
    uint64_t major = 0;
    struct str version = f->version;
    if (num_parse(str_cut(&version, '.'), 1000, &major) == 0 && major < 7) {
        fprintf(to, "WRONG: tidemark needs Redis 7 or newer.\n");
        wrong++;
    }
    return wrong;
}

int redis_facts_print(const struct redis_facts *f, FILE *to)
{
    fprintf(to, "Redis %.*s, %.*s%s with %llu replica%s.\n", (int)f->version.n, f->version.p,
            (int)f->role.n, f->role.p, f->cluster ? " of a cluster" : "",
            (unsigned long long)f->replicas, f->replicas == 1 ? "" : "s");
    fprintf(to, "What was acknowledged with a 2xx\n- survives kill -9 of tidemark;\n- %s;\n",
            meaning_of(f));
    print_replicas(f, to);
    if (f->max_memory == 0)
        fprintf(to, "note: no maxmemory is set: Redis takes what it can get, and the system ends "
                    "it when there is no more.\n");
    int wrong = print_wrong(f, to);
    if (wrong == 0)
        fprintf(to, "Nothing is wrong.\n");
    return wrong;
}

/* ---- asking ---- */

struct asking {
    struct loop loop;
    uv_async_t alive; /* keeps the loop going until all has been said */
    struct redis *redis;
    struct redis_call info, config;
    struct redis_facts facts;
    char texts[64 * 1024]; /* of INFO; what does not fit says nothing that is wanted */
    char fsync[16], why[256];
    int status;
};

static void cmd_doctor_redis_end_asking(void *ctx)
{
    struct asking *a = ctx;
    redis_free(a->redis);
    uv_close((uv_handle_t *)&a->alive, NULL);
}

static void cmd_doctor_redis_on_config(struct redis_call *c, int err,
                                       const struct redisReply *reply, struct str run)
{
    struct asking *a = container_of(c, struct asking, config);
    const struct redisReply *value = NULL;
    if (err == 0 && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        value = reply->element[1];
    if (value != NULL && value->type == REDIS_REPLY_STRING && value->len < sizeof a->fsync) {
        memcpy(a->fsync, value->str, value->len);
        a->facts.fsync = str_of(a->fsync, value->len);
    }
    a->status = redis_facts_print(&a->facts, stdout) == 0 ? CMD_OK : CMD_FAILED;
    redis_stop(a->redis, cmd_doctor_redis_end_asking, a);
}

static void cmd_doctor_redis_on_info(struct redis_call *c, int err, const struct redisReply *reply,
                                     struct str run)
{
    struct asking *a = container_of(c, struct asking, info);
    static const struct str words[] = {
        {.p = "CONFIG", .n = 6}, {.p = "GET", .n = 3}, {.p = "appendfsync", .n = 11}};
    if (err == 0 && reply->type != REDIS_REPLY_STRING) {
        snprintf(a->why, sizeof a->why, "Redis did not say what it is");
        err = ERR_UPSTREAM;
    }
    if (err != 0) {
        fprintf(stderr, "tidemark doctor: %s\n", a->why[0] != '\0' ? a->why : err_text(err));
        redis_stop(a->redis, cmd_doctor_redis_end_asking, a);
        return;
    }
    size_t n = (size_t)reply->len < sizeof a->texts ? (size_t)reply->len : sizeof a->texts;
    memcpy(a->texts, reply->str, n);
    redis_facts_info(&a->facts, str_of(a->texts, n));
    a->config = (struct redis_call){
        .args = words, .n_args = 3, .sent = REDIS_AGAIN, .done = cmd_doctor_redis_on_config};
    redis_call(a->redis, &a->config);
}

static void cmd_doctor_redis_on_changed(void *ctx, bool up, struct str why)
{
    struct asking *a = ctx;
    if (!up)
        snprintf(a->why, sizeof a->why, "%.*s", (int)why.n, why.p);
}

static void cmd_doctor_redis_ask(struct asking *a, const struct redis_url *url)
{
    static const struct str words[] = {{.p = "INFO", .n = 4}};
    struct redis_setup setup = {.loop = &a->loop,
                                .url = url,
                                .timeout_ms = TIMEOUT_MS,
                                .pending_max = PENDING_MAX,
                                .changed = cmd_doctor_redis_on_changed,
                                .ctx = a};
    struct str wait = redis_url_setting(url, STR("wait"));
    if (wait.p != NULL)
        num_parse(wait, UINT32_MAX, &a->facts.wait);
    uv_async_init(&a->loop.uv, &a->alive, NULL);
    a->redis = redis_new(&setup);
    a->info = (struct redis_call){
        .args = words, .n_args = 1, .sent = REDIS_AGAIN, .done = cmd_doctor_redis_on_info};
    redis_call(a->redis, &a->info);
    loop_run(&a->loop);
}

int doctor_redis(struct str text)
{
    struct asking a = {.status = CMD_FAILED};
    struct redis_url *url;
    if (redis_url_parse(text, &url, a.why, sizeof a.why) != 0) {
        fprintf(stderr, "tidemark doctor: %s\n", a.why);
        return CMD_USAGE;
    }
    if (loop_init(&a.loop) == 0) {
        cmd_doctor_redis_ask(&a, url);
        loop_deinit(&a.loop);
    }
    redis_url_free(url);
    return a.status;
}
