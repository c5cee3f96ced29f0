// SPDX-License-Identifier: Apache-2.0
/* bench -- measures a tidemark server and prints one table. See bench/README.md. */
#include "bench.h"

#include "base/clock.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct phase {
    const char *name;
    const char *group; /* `--only GROUP` takes all of it */
    void (*run)(struct bench *b);
    const char *help;
} phases[] = {
    {"append-64", "append", phase_append_64, "256-byte appends over 64 connections"},
    {"append-256", "append", phase_append_256, "the same over 256"},
    {"append-64x16", "append", phase_append_64x16, "the same over 64, pipelining 16"},
    {"json-64", "append-json", phase_json_64, "appends of a 256-byte JSON object, 64 connections"},
    {"json-256", "append-json", phase_json_256, "the same over 256"},
    {"json-64x16", "append-json", phase_json_64x16, "the same over 64, pipelining 16"},
    {"fanout", "live", phase_fanout, "one stream delivered to 500 SSE readers"},
    {"tokens", "live", phase_tokens, "64 chats, each one writer and one SSE reader"},
    {"replay", "read", phase_replay, "a million events read as SSE and by GET"},
    {"resume", "read", phase_resume, "2,000 clients come back at once, 100 events behind"},
    {"idle", "live", phase_idle, "memory and CPU of 5,000 readers to whom nothing happens"},
};
#define PHASES (sizeof phases / sizeof *phases)

struct settings {
    struct server_plan plan;
    const char *url;
    pid_t pid;
    unsigned chosen; /* bit i: phases[i] */
    double seconds;
    enum aims aims;
    bool callgrind, json;
};

void progress(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

struct spent spent_begin(const struct bench *b)
{
    return (struct spent){.start_ns = clock_mono_ns(),
                          .cpu_ns = server_cpu_ns(&b->server),
                          .others_ns = server_others_ns(&b->server),
                          .memory = server_memory(&b->server)};
}

void spent_end(const struct bench *b, struct spent *s)
{
    s->seconds = (double)(clock_mono_ns() - s->start_ns) / 1e9;
    s->cpu_seconds = (double)(server_cpu_ns(&b->server) - s->cpu_ns) / 1e9;
    double others = ((double)server_others_ns(&b->server) - (double)s->others_ns) / 1e9;
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
    row->others = s->others > 0 ? s->others : 0; /* the clocks differ in grain */
}

static void usage(FILE *to)
{
    fputs("usage: bench --server PATH [--args \"...\"] [options]\n"
          "       bench --url http://ADDRESS:PORT [--pid PID] [options]\n\n"
          "  --server PATH   start this server for each phase, and stop it\n"
          "  --args \"...\"    its arguments after `serve --listen ...`; default: --store memory\n"
          "  --url URL       measure a server that runs already\n"
          "  --pid PID       its process, to tell its CPU time and memory\n"
          "  --only NAME     only this phase or group; may be given more than once\n"
          "  --seconds N     how long to measure each figure; default 4\n"
          "  --fsync         compare with the aims of a store that syncs before it answers\n"
          "  --callgrind     count instructions per operation instead (needs valgrind)\n"
          "  --json          print the rows as JSON\n\n"
          "Phases, and their groups:\n",
          to);
    for (size_t i = 0; i < PHASES; i++)
        fprintf(to, "  %-14s  %-12s  %s\n", phases[i].name, phases[i].group, phases[i].help);
}

static int choose(struct settings *s, const char *name)
{
    unsigned before = s->chosen;
    for (size_t i = 0; i < PHASES; i++)
        if (strcmp(phases[i].name, name) == 0 || strcmp(phases[i].group, name) == 0)
            s->chosen |= 1u << i;
    if (s->chosen != before)
        return 0;
    fprintf(stderr, "bench: there is no phase `%s`, or it is chosen already; see --help\n", name);
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

/* 0; -1: wrong arguments (said on stderr); 1: help was asked for and given. */
static int parse(struct settings *s, int argc, char **argv)
{
    static const struct option flags[] = {
        {"server", required_argument, NULL, 's'},
        {"args", required_argument, NULL, 'a'},
        {"url", required_argument, NULL, 'u'},
        {"pid", required_argument, NULL, 'p'},
        {"only", required_argument, NULL, 'o'},
        {"seconds", required_argument, NULL, 'n'},
        {"fsync", no_argument, NULL, 'f'},
        {"callgrind", no_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int bad = 0;
    for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        switch (flag) {
        case 's': s->plan.path = optarg; break;
        case 'a': s->plan.args = optarg; break;
        case 'u': s->url = optarg; break;
        case 'p': s->pid = (pid_t)atoi(optarg); break;
        case 'o': bad |= choose(s, optarg); break;
        case 'n': bad |= take_seconds(s, optarg); break;
        case 'f': s->aims = AIMS_FSYNC; break;
        case 'c': s->callgrind = true; break;
        case 'j': s->json = true; break;
        case 'h': usage(stdout); return 1;
        default: return -1;
        }
    }
    if (bad)
        return -1;
    if (optind < argc || !s->url == !s->plan.path || (s->callgrind && s->url)) {
        usage(stderr);
        return -1;
    }
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
    int failed = s->url ? server_attach(&b->server, s->url, s->pid, s->plan.cpu)
                        : server_start(&b->server, &s->plan);
    if (failed)
        return -1;
    unsigned rows = b->report.n;
    b->swarm.to = b->server.at;
    phase->run(b);
    failed = server_stop(&b->server, NULL) != 0 || b->swarm.failed;
    if (failed)
        b->report.n = rows; /* what went wrong was not measured */
    return failed ? -1 : 0;
}

static int run(struct bench *b, const struct settings *s)
{
    if (s->callgrind)
        return count_instructions(b, &s->plan);
    for (size_t i = 0; i < PHASES; i++) {
        if (s->chosen && !(s->chosen & 1u << i))
            continue;
        if (run_phase(b, s, &phases[i]) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct settings s = {.plan.args = "--store memory", .seconds = 4};
    int wrong = parse(&s, argc, argv);
    if (wrong != 0)
        return wrong > 0 ? 0 : 2;

    struct bench b = {.seconds = s.seconds, .report.aims = s.aims, .sockets = raise_file_limit()};
    s.plan.cpu = server_split_cpus();
    if (s.plan.cpu < 0)
        progress("only one processor: server and load share it, so rates are not comparable");
    if (swarm_init(&b.swarm, (struct sockaddr_in){0}) != 0) {
        fprintf(stderr, "bench: cannot create an epoll\n");
        return 1;
    }
    int failed = run(&b, &s);
    if (s.json)
        report_print_json(&b.report, stdout);
    else
        report_print(&b.report, stdout);
    if (b.swarm.failed)
        fprintf(stderr, "bench: %s\n", b.swarm.failure);
    swarm_deinit(&b.swarm);
    return failed ? 1 : 0;
}
