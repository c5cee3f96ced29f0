// SPDX-License-Identifier: Apache-2.0
/* bench -- measures a tidemark server and prints one table. See bench/README.md. */
#include "bench.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Stores as bits. */
#define LOCAL    (1u << STORE_MEMORY | EMBEDDED)
#define EMBEDDED (1u << STORE_EMBEDDED)
#define REDIS    (1u << STORE_REDIS | 1u << STORE_REDIS_AOF)

static const struct phase {
    const char *name;
    const char *group; /* or two of them; `--only GROUP` takes all of it */
    void (*run)(struct bench *b);
    const char *help;
    unsigned stores; /* that it is measured with, unless others are chosen */
} phases[] = {
    {"append-64", "append", phase_append_64, "256-byte appends over 64 connections", LOCAL},
    {"append-256", "append", phase_append_256, "the same over 256", LOCAL},
    {"append-64x16", "append", phase_append_64x16, "the same over 64, pipelining 16", LOCAL},
    {"json-64", "append-json", phase_json_64, "appends of a 256-byte JSON object, 64 connections",
     LOCAL},
    {"json-256", "append-json", phase_json_256, "the same over 256", LOCAL},
    {"json-64x16", "append-json", phase_json_64x16, "the same over 64, pipelining 16", LOCAL},
    {"spread", "store", phase_spread, "appends over 64 and 10,000 streams; checkpoints", LOCAL},
    {"create", "store", phase_create, "new streams over 64 connections", LOCAL},
    {"fanout", "live", phase_fanout, "one stream delivered to 500 SSE readers", LOCAL},
    {"tokens", "live", phase_tokens, "64 chats, each one writer and one SSE reader", LOCAL},
    {"replay", "read", phase_replay, "a million events read as SSE and by GET", LOCAL},
    {"catchup", "store", phase_catchup, "256 MB by GET, from where they rest", LOCAL},
    {"resume", "read", phase_resume, "2,000 clients come back at once, 100 events behind", LOCAL},
    {"idle", "live scale", phase_idle, "memory and CPU of 5,000 readers to whom nothing happens",
     LOCAL},
    {"streams", "store", phase_streams, "100,000 streams: restart, memory", LOCAL},
    {"gateway", "gateway", phase_gateway,
     "SSE backends: what the gateway adds, how many it carries", LOCAL},
    {"session-1", "sessions", phase_session_1, "one session: chunks to ack and event", LOCAL},
    {"session-1k", "sessions", phase_session_1k, "1,000 sessions: the same, opening, memory",
     LOCAL},
    {"redis-1", "redis", phase_redis_1,
     "appends and fan-out over a Redis, beside the embedded store", EMBEDDED | REDIS},
    {"redis-2", "redis", phase_redis_2, "the same by two servers over one Redis", REDIS},
    {"redis-idle", "redis", phase_redis_idle, "10,000 streams: memory of Redis", 1u << STORE_REDIS},
    {"logs", "logs", phase_logs, "polls near the end of a log of 1 MB and of 1 GB", LOCAL},
    {"cursors", "pages", phase_cursors, "cursors issued and verified; no server", LOCAL},
    {"forged", "access", phase_forged, "10,000 forged tokens a second: CPU, p99 of others", LOCAL},
    {"scale-streams", "scale", phase_scale, "a million streams: p99.9 of appends, restart",
     EMBEDDED},
    {"scale-windows", "scale", phase_windows, "1,000 HTTP/2 answers that nobody takes", EMBEDDED},
    {"scale-subs", "scale", phase_subs, "10,000 subscriptions to every stream", EMBEDDED},
    {"scale-hooks", "scale", phase_hooks, "1,000 webhooks that are never answered", EMBEDDED},
    {"scale-files", "scale", phase_files, "10,000 connections, 1,024 descriptors", EMBEDDED},
    {"scale-slow", "scale", phase_slow, "a stream of one event a checkpoint, read", EMBEDDED},
    {"scale-memory", "scale", phase_memory, "memory of a stream; see --baseline", EMBEDDED},
};
#define PHASES (sizeof phases / sizeof *phases)

struct settings {
    struct server_plan plan;
    const char *url, *data, *memory;
    pid_t pid;
    unsigned chosen; /* bit i: phases[i] */
    unsigned stores; /* chosen ones: bit i: store_names[i] */
    double seconds;
    unsigned streams;
    const char *baseline;
    bool json;
};

void progress(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

static uint64_t cpu_ns(const struct bench *b)
{
    return server_cpu_ns(&b->server) + server_cpu_ns(&b->second);
}

static uint64_t others_ns(const struct bench *b)
{
    uint64_t others = server_others_ns(&b->server);
    uint64_t ours = server_cpu_ns(&b->second) + server_cpu_ns(&b->redis);
    return others > ours ? others - ours : 0;
}

struct spent spent_begin(const struct bench *b)
{
    return (struct spent){.start_ns = clock_mono_ns(),
                          .cpu_ns = cpu_ns(b),
                          .others_ns = others_ns(b),
                          .memory = server_memory(&b->server)};
}

void spent_end(const struct bench *b, struct spent *s)
{
    s->seconds = (double)(clock_mono_ns() - s->start_ns) / 1e9;
    s->cpu_seconds = (double)(cpu_ns(b) - s->cpu_ns) / 1e9;
    double others = ((double)others_ns(b) - (double)s->others_ns) / 1e9;
    if (others < 0) /* the clocks differ in grain */
        others = 0;
    s->others = others / s->seconds / (double)sysconf(_SC_NPROCESSORS_ONLN);
    s->growth_mb = ((double)server_memory(&b->server) - (double)s->memory) / 1e6;
}

void row_spent(struct row *row, const struct bench *b, const struct spent *s, double operations)
{
    if (!b->server.timed || operations <= 0)
        return;
    row->measured = true;
    row->cpu_us = s->cpu_seconds * 1e6 / operations;
    row->busy = s->cpu_seconds / s->seconds;
    row->growth_mb = s->growth_mb > 0 ? s->growth_mb : 0;
    row->others = s->others;
}

/* ---- servers of ours ---- */

static bool is_redis(const struct bench *b)
{
    return REDIS & 1u << b->report.store;
}

static int begin_redis(struct bench *b)
{
    struct server_plan plan = {.is_redis = true, .cpu = SERVER_CPU_REST};
    if (b->report.store == STORE_REDIS_AOF) {
        if (data_make(b->data_under, b->redis_data) != 0)
            return -1;
        plan.data = b->redis_data;
    }
    if (server_start(&b->redis, &plan) != 0)
        return -1;
    snprintf(b->redis_url, sizeof b->redis_url, "redis://127.0.0.1:%u",
             ntohs(b->redis.at.sin_port));
    b->plan.store = b->redis_url;
    return 0;
}

int bench_begin(struct bench *b)
{
    b->plan.store = store_names[b->report.store];
    b->plan.data = NULL;
    if (b->report.store == STORE_EMBEDDED) {
        if (data_make(b->data_under, b->data) != 0)
            return -1;
        b->plan.data = b->data;
    }
    if (is_redis(b) && begin_redis(b) != 0)
        return -1;
    int failed = server_start(&b->server, &b->plan);
    b->swarm.to = b->server.at;
    return failed;
}

int bench_end(struct bench *b, uint64_t *instructions)
{
    b->swarm.also = (struct sockaddr_in){0};
    int failed = server_stop(&b->second, NULL);
    failed |= server_stop(&b->server, instructions);
    failed |= server_stop(&b->redis, NULL);
    if (*b->data)
        data_remove(b->data);
    if (*b->redis_data)
        data_remove(b->redis_data);
    b->data[0] = b->redis_data[0] = '\0';
    return failed;
}

void bench_stop(struct bench *b, bool by_kill)
{
    if (!b->server.ours)
        return;
    if (by_kill)
        server_kill(&b->server);
    else if (server_stop(&b->server, NULL) != 0)
        swarm_fail(&b->swarm, "the server did not end as it should");
}

void bench_start(struct bench *b)
{
    if (!b->server.ours || b->swarm.failed)
        return;
    if (server_start(&b->server, &b->plan) != 0)
        swarm_fail(&b->swarm, "the server did not start again");
    b->swarm.to = b->server.at;
}

void bench_renew(struct bench *b)
{
    if (!b->server.ours || b->swarm.failed)
        return;
    if (bench_end(b, NULL) != 0 || bench_begin(b) != 0)
        swarm_fail(&b->swarm, "the server did not end, or another did not start");
}

void bench_second(struct bench *b)
{
    if (!b->server.ours || b->swarm.failed)
        return;
    if (server_start(&b->second, &b->plan) != 0)
        swarm_fail(&b->swarm, "a second server did not start");
    b->swarm.also = b->second.at;
}

/* ---- settings ---- */

static void usage(FILE *to)
{
    fputs(
        "usage: bench --server PATH [--args \"...\"] [options]\n"
        "       bench --url http://ADDRESS:PORT [--pid PID] [options]\n\n"
        "  --server PATH   start this server for each phase, and stop it\n"
        "  --store NAME    memory, embedded, redis (that keeps no log) or redis-aof (that syncs);\n"
        "                  default: each phase with all that it is for, in turn\n"
        "  --data DIR      where the embedded store makes its folder; default: $TMPDIR, /var/tmp\n"
        "  --memory DIR    the same for phases that are to hear nothing of a disk; default "
        "/dev/shm\n"
        "  --args \"...\"    further arguments for the server\n"
        "  --url URL       measure a server that runs already\n"
        "  --pid PID       its process, to tell its CPU time and memory; --store: which aims hold\n"
        "  --only NAME     only this phase or group; may be given more than once\n"
        "  --seconds N     how long to measure each figure; default 4\n"
        "  --streams N     how many the phases of the group scale have; default 1000000\n"
        "  --baseline PATH another server, to compare the memory of streams with\n"
        "  --callgrind     count instructions per operation instead (needs valgrind)\n"
        "  --json          print the rows as JSON\n\n"
        "Phases, and their groups:\n",
        to);
    for (size_t i = 0; i < PHASES; i++)
        fprintf(to, "  %-14s  %-12s  %s\n", phases[i].name, phases[i].group, phases[i].help);
}

static bool has_word(const char *words, const char *word)
{
    struct str rest = str_of_cstr(words);
    while (rest.n > 0)
        if (str_eq(str_cut(&rest, ' '), str_of_cstr(word)))
            return true;
    return false;
}

static int choose(struct settings *s, const char *name)
{
    unsigned before = s->chosen;
    for (size_t i = 0; i < PHASES; i++)
        if (strcmp(phases[i].name, name) == 0 || has_word(phases[i].group, name))
            s->chosen |= 1u << i;
    if (s->chosen != before)
        return 0;
    fprintf(stderr, "bench: there is no phase `%s`, or it is chosen already; see --help\n", name);
    return -1;
}

static int choose_store(struct settings *s, const char *name)
{
    for (unsigned i = 0; i < STORES; i++)
        if (strcmp(store_names[i], name) == 0) {
            s->stores |= 1u << i;
            return 0;
        }
    fprintf(stderr, "bench: --store takes memory, embedded, redis or redis-aof\n");
    return -1;
}

static int take_seconds(struct settings *s, const char *text)
{
    char *end;
    s->seconds = strtod(text, &end);
    /* Servers end SSE answers after a while, usually a minute; a phase must be over by then. */
    if (*end == '\0' && s->seconds >= 0.1 && s->seconds <= 30)
        return 0;
    fprintf(stderr, "bench: --seconds takes a number from 0.1 to 30\n");
    return -1;
}

static int take_streams(struct settings *s, const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    s->streams = (unsigned)n;
    if (*end == '\0' && n >= 10000 && n <= 10000000)
        return 0;
    fprintf(stderr, "bench: --streams takes a number from 10000 to 10000000\n");
    return -1;
}

/* 0; -1: wrong arguments (said on stderr); 1: help was asked for and given. */
static int parse(struct settings *s, int argc, char **argv)
{
    static const struct option flags[] = {
        {"server", required_argument, NULL, 's'},
        {"store", required_argument, NULL, 't'},
        {"data", required_argument, NULL, 'd'},
        {"args", required_argument, NULL, 'a'},
        {"url", required_argument, NULL, 'u'},
        {"pid", required_argument, NULL, 'p'},
        {"only", required_argument, NULL, 'o'},
        {"seconds", required_argument, NULL, 'n'},
        {"callgrind", no_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {"memory", required_argument, NULL, 'y'},
        {"streams", required_argument, NULL, 'm'},
        {"baseline", required_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int bad = 0;
    for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        switch (flag) {
        case 's': s->plan.path = optarg; break;
        case 't': bad |= choose_store(s, optarg); break;
        case 'd': s->data = optarg; break;
        case 'a': s->plan.args = optarg; break;
        case 'u': s->url = optarg; break;
        case 'p': s->pid = (pid_t)atoi(optarg); break;
        case 'o': bad |= choose(s, optarg); break;
        case 'n': bad |= take_seconds(s, optarg); break;
        case 'y': s->memory = optarg; break;
        case 'm': bad |= take_streams(s, optarg); break;
        case 'b': s->baseline = optarg; break;
        case 'c': s->plan.callgrind = true; break;
        case 'j': s->json = true; break;
        case 'h': usage(stdout); return 1;
        default: return -1;
        }
    }
    if (bad)
        return -1;
    if (optind < argc || !s->url == !s->plan.path || (s->plan.callgrind && s->url)) {
        usage(stderr);
        return -1;
    }
    if (s->stores == 0 && s->url)
        s->stores = 1u << STORE_MEMORY;
    return 0;
}

/* Both processes need a descriptor per connection; the server inherits the limit. */
static size_t raise_file_limit(void)
{
    const rlim_t spare = 64;
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > spare ? (size_t)(limit.rlim_cur - spare) : 0;
}

/* A server that we start is new for each phase, so that none inherits another's memory. */
static int run_phase(struct bench *b, const struct settings *s, const struct phase *phase)
{
    int failed = s->url ? server_attach(&b->server, s->url, s->pid, b->plan.cpu) : bench_begin(b);
    unsigned rows = b->report.n;
    b->swarm.to = b->server.at;
    if (!failed)
        phase->run(b);
    failed |= bench_end(b, NULL);
    if (!failed && !b->swarm.failed)
        return 0;
    b->report.n = rows; /* what went wrong was not measured */
    return -1;
}

static bool has_redis(void)
{
    return system("command -v redis-server >/dev/null") == 0;
}

static int run_stores(struct bench *b, const struct settings *s, const struct phase *phase)
{
    unsigned stores = s->stores ? s->stores : phase ? phase->stores : LOCAL;
    for (unsigned i = 0; i < STORES; i++) {
        if (!(stores & 1u << i))
            continue;
        b->report.store = (enum store_kind)i;
        if (is_redis(b) && !has_redis()) {
            progress("there is no redis-server: nothing is measured with it");
            continue;
        }
        if (!s->url)
            progress("%s store:", store_names[i]);
        if ((phase ? run_phase(b, s, phase) : count_instructions(b)) != 0)
            return -1;
    }
    return 0;
}

static int run(struct bench *b, const struct settings *s)
{
    if (s->plan.callgrind)
        return run_stores(b, s, NULL);
    for (size_t i = 0; i < PHASES; i++) {
        if (s->chosen && !(s->chosen & 1u << i))
            continue;
        if (run_stores(b, s, &phases[i]) != 0)
            return -1;
    }
    return 0;
}

static const char *default_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/var/tmp";
}

static void say_where(const struct bench *b, FILE *to)
{
    bool memory;
    const char *name = data_file_system(b->data_under, &memory);
    fprintf(to, "what is on disk: in %s, on %s%s\n", b->data_under, name,
            memory ? ", which is memory and no disk: a sync costs nothing there" : "");
}

int main(int argc, char **argv)
{
    struct settings s = {
        .seconds = 4, .streams = 1000000, .data = default_folder(), .memory = "/dev/shm"};
    int wrong = parse(&s, argc, argv);
    if (wrong != 0)
        return wrong > 0 ? 0 : 2;

    struct bench b = {.plan = s.plan,
                      .seconds = s.seconds,
                      .sockets = raise_file_limit(),
                      .streams = s.streams,
                      .baseline = s.baseline,
                      .data_under = s.data,
                      .memory_under = s.memory};
    b.plan.cpu = server_split_cpus();
    if (b.plan.cpu < 0)
        progress("only one processor: server and load share it, so rates are not comparable");
    if (swarm_init(&b.swarm, (struct sockaddr_in){0}) != 0) {
        fprintf(stderr, "bench: cannot create an epoll\n");
        return 1;
    }
    int failed = run(&b, &s);
    if (!s.url && (s.stores == 0 || s.stores & (EMBEDDED | 1u << STORE_REDIS_AOF)))
        say_where(&b, s.json ? stderr : stdout);
    if (s.json)
        report_print_json(&b.report, stdout);
    else
        report_print(&b.report, stdout);
    if (b.swarm.failed)
        fprintf(stderr, "bench: %s\n", b.swarm.failure);
    swarm_deinit(&b.swarm);
    return failed ? 1 : 0;
}
