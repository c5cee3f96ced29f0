// SPDX-License-Identifier: Apache-2.0
#include "bench_server.h"

#include "base/clock.h"
#include "base/num.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT_MS 60000 /* valgrind is slow to start */
#define STOP_LIMIT_MS  30000
#define ARGS_MAX       64

static void pin(pid_t tid, int cpu)
{
    if (cpu < 0)
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(tid, sizeof one, &one);
}

/* Where this process is not, unless it may be there too; if there is nothing else, it stays. */
static void pin_to_rest(bool here_too)
{
    cpu_set_t here, rest;
    CPU_ZERO(&rest);
    if (sched_getaffinity(0, sizeof here, &here) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (here_too || !CPU_ISSET(i, &here))
            CPU_SET(i, &rest);
    sched_setaffinity(0, sizeof rest, &rest);
}

int server_split_cpus(void)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
        return -1;
    int first = -1;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        if (first >= 0) {
            pin(0, i);
            break;
        }
        first = i;
    }
    return first;
}

static void pin_all_threads(pid_t pid, int cpu)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            pin((pid_t)atoi(e->d_name), cpu);
    closedir(dir);
}

static void know_pid(struct server *s, pid_t pid)
{
    s->pid = pid;
    s->timed = clock_getcpuclockid(pid, &s->cpu_clock) == 0;
}

/* A port nobody listens on now. Somebody may take it before the server does; then the server says
 * so and the run can be repeated. */
static int free_port(struct sockaddr_in *at)
{
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int bad = fd < 0 || bind(fd, (struct sockaddr *)at, n) != 0 ||
              getsockname(fd, (struct sockaddr *)at, &n) != 0;
    if (fd >= 0)
        close(fd);
    return bad ? -1 : 0;
}

static void show_output(FILE *output)
{
    char line[512];
    rewind(output);
    while (fgets(line, sizeof line, output))
        fprintf(stderr, "  server: %s", line);
}

static int put_redis(const char **argv, const char *port, const char *data)
{
    const char *const all[] = {"redis-server",
                               "--port",
                               port,
                               "--bind",
                               "127.0.0.1",
                               "--save",
                               "",
                               "--slowlog-log-slower-than",
                               "10000",
                               "--appendonly",
                               data ? "yes" : "no",
                               "--appendfsync",
                               "always",
                               "--dir",
                               data ? data : "/"};
    memcpy(argv, all, sizeof all);
    return sizeof all / sizeof *all;
}

static int put_tidemark(const char **argv, const char *listen, const struct server_plan *plan)
{
    int n = 0;
    if (plan->callgrind) {
        argv[n++] = "valgrind";
        argv[n++] = "--tool=callgrind";
        argv[n++] = "--callgrind-out-file=/dev/null";
    }
    argv[n++] = plan->path;
    argv[n++] = "serve";
    argv[n++] = "--listen";
    argv[n++] = listen;
    argv[n++] = "--store";
    argv[n++] = plan->store;
    if (plan->data) {
        argv[n++] = "--data";
        argv[n++] = plan->data;
    }
    return n;
}

static void limit_files(const struct server_plan *plan)
{
    struct rlimit limit;
    if (plan->files == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = plan->files;
    if (plan->files_hard)
        limit.rlim_max = plan->files;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* In the child; never returns. */
static void become_server(const struct server *s, const struct server_plan *plan)
{
    char listen[32], port[8];
    snprintf(port, sizeof port, "%u", ntohs(s->at.sin_port));
    snprintf(listen, sizeof listen, "127.0.0.1:%s", port);
    char *args = strdup(plan->args ? plan->args : "");
    const char *argv[ARGS_MAX];
    int n = plan->is_redis ? put_redis(argv, port, plan->data) : put_tidemark(argv, listen, plan);
    for (char *word = strtok(args, " "); word && n < ARGS_MAX - 1; word = strtok(NULL, " "))
        argv[n++] = word;
    argv[n] = NULL;

    prctl(PR_SET_PDEATHSIG, SIGTERM); /* an interrupted run must not leave a server behind */
    if (plan->cpu == SERVER_CPU_REST || plan->cpu == SERVER_CPU_ALL)
        pin_to_rest(plan->cpu == SERVER_CPU_ALL);
    else
        pin(0, plan->cpu);
    limit_files(plan);
    dup2(fileno(s->output), STDOUT_FILENO);
    dup2(fileno(s->output), STDERR_FILENO);
    execvp(argv[0], (char *const *)argv);
    fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static bool accepts(const struct server *s)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)&s->at, sizeof s->at) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

static void rest_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void forget(struct server *s)
{
    fclose(s->output);
    s->pid = 0;
    s->timed = false;
}

static int wait_until_up(struct server *s)
{
    uint64_t until = clock_mono_ms() + START_LIMIT_MS;
    while (!accepts(s)) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            fprintf(stderr, "bench: the server ended before it accepted connections\n");
            show_output(s->output);
            forget(s);
            return -1;
        }
        if (clock_mono_ms() > until) {
            fprintf(stderr, "bench: the server does not accept connections\n");
            server_stop(s, NULL);
            return -1;
        }
        rest_ms(1);
    }
    return 0;
}

int server_start(struct server *s, const struct server_plan *plan)
{
    *s = (struct server){.ours = true};
    s->output = tmpfile();
    if (!s->output || free_port(&s->at) != 0) {
        fprintf(stderr, "bench: no temporary file or no free port: %s\n", strerror(errno));
        goto failed;
    }
    s->started_ns = clock_mono_ns();
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "bench: cannot start a process: %s\n", strerror(errno));
        goto failed;
    }
    if (pid == 0)
        become_server(s, plan);
    know_pid(s, pid);
    return wait_until_up(s);

failed:
    if (s->output)
        fclose(s->output);
    return -1;
}

int server_attach(struct server *s, const char *url, pid_t pid, int cpu)
{
    *s = (struct server){.at.sin_family = AF_INET};
    struct str rest = str_of_cstr(url), scheme = STR("http://");
    char address[INET_ADDRSTRLEN] = "";
    uint64_t port = 80;
    bool good = str_starts(rest, scheme);
    if (good) {
        rest = str_skip(rest, scheme.n);
        if (rest.n > 0 && rest.p[rest.n - 1] == '/')
            rest.n--;
        struct str host = str_cut(&rest, ':');
        good = host.n < sizeof address && (!rest.p || num_parse(rest, 65535, &port) == 0);
        if (good)
            memcpy(address, host.p, host.n);
    }
    if (!good || inet_pton(AF_INET, address, &s->at.sin_addr) != 1) {
        fprintf(stderr, "bench: %s: expected http://ADDRESS:PORT with an IPv4 address\n", url);
        return -1;
    }
    s->at.sin_port = htons((uint16_t)port);
    if (pid > 0) {
        know_pid(s, pid);
        pin_all_threads(pid, cpu);
    }
    return 0;
}

static uint64_t callgrind_total(FILE *output)
{
    char line[512];
    unsigned long long total = 0;
    rewind(output);
    while (fgets(line, sizeof line, output)) {
        const char *at = strstr(line, "Collected : ");
        if (at)
            sscanf(at, "Collected : %llu", &total);
    }
    return total;
}

static bool wait_for_end(pid_t pid, int *status)
{
    uint64_t until = clock_mono_ms() + STOP_LIMIT_MS;
    while (waitpid(pid, status, WNOHANG) != pid) {
        if (clock_mono_ms() > until)
            return false;
        rest_ms(5);
    }
    return true;
}

int server_stop(struct server *s, uint64_t *instructions)
{
    if (instructions)
        *instructions = 0;
    if (!s->ours || s->pid <= 0)
        return 0;
    int status = 0;
    kill(s->pid, SIGTERM);
    if (!wait_for_end(s->pid, &status)) {
        fprintf(stderr, "bench: the server ignores SIGTERM\n");
        kill(s->pid, SIGKILL);
        waitpid(s->pid, &status, 0);
    }
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!clean) {
        fprintf(stderr, "bench: the server did not end cleanly (wait status %d)\n", status);
        show_output(s->output);
    }
    if (instructions)
        *instructions = callgrind_total(s->output);
    forget(s);
    return clean ? 0 : -1;
}

void server_kill(struct server *s)
{
    if (!s->ours || s->pid <= 0)
        return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    forget(s);
}

uint64_t server_cpu_ns(const struct server *s)
{
    struct timespec t;
    if (!s->timed || clock_gettime(s->cpu_clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t server_others_ns(const struct server *s)
{
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal, sum = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f) {
        /* Interrupts too: a process's clock goes on while its sockets are served in one. */
        if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                   &iowait, &irq, &softirq, &steal) == 8)
            sum = user + nice + system + irq + softirq + steal;
        fclose(f);
    }
    struct timespec own = {0, 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t all = sum * tick_ns;
    uint64_t ours = (uint64_t)own.tv_sec * 1000000000u + (uint64_t)own.tv_nsec + server_cpu_ns(s);
    return all > ours ? all - ours : 0;
}

static FILE *open_proc(const struct server *s, const char *name)
{
    char path[64];
    if (s->pid <= 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)s->pid, name);
    return fopen(path, "re");
}

/* The number behind `field` in such a file; 0 if there is none. */
static uint64_t proc_field(const struct server *s, const char *name, const char *field)
{
    FILE *f = open_proc(s, name);
    if (!f)
        return 0;
    char line[256];
    unsigned long long value = 0;
    size_t n = strlen(field);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, n) == 0)
            value = strtoull(line + n, NULL, 10);
    fclose(f);
    return value;
}

uint64_t server_memory(const struct server *s)
{
    uint64_t exact = proc_field(s, "smaps_rollup", "Anonymous:");
    if (exact > 0)
        return exact * 1024;
    return proc_field(s, "status", "RssAnon:") * 1024; /* lags behind by some pages */
}

uint64_t server_mapped(const struct server *s, const char *file)
{
    FILE *f = open_proc(s, "smaps");
    if (!f)
        return 0;
    char line[4096];
    unsigned long long kib = 0, from, to, size;
    bool inside = false;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        size_t n = strlen(line), tail = strlen(file);
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            inside = n >= tail && strcmp(line + n - tail, file) == 0;
        else if (inside && sscanf(line, "Rss: %llu", &size) == 1)
            kib += size;
    }
    fclose(f);
    return kib * 1024;
}

static unsigned proc_entries(const struct server *s, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)s->pid, name);
    DIR *dir = s->pid > 0 ? opendir(path) : NULL;
    unsigned n = 0;
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

unsigned server_files(const struct server *s)
{
    return proc_entries(s, "fd");
}

unsigned server_threads(const struct server *s)
{
    return proc_entries(s, "task");
}

struct server_io server_written(const struct server *s)
{
    return (struct server_io){proc_field(s, "io", "write_bytes:"), proc_field(s, "io", "wchar:")};
}
