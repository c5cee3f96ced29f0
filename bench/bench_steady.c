// SPDX-License-Identifier: Apache-2.0
#include "bench_steady.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS 64
#define AHEAD       16 /* requests of a connection that one send may carry */
#define BODY_SIZE   256
#define PATIENCE_S  300 /* for the last answers of a server that stood still */
#define NEVER       UINT64_MAX

struct steady_shared {
    _Atomic uint64_t from_ns, until_ns; /* requests that are due in between count */
    struct steady_figures figures;
    char failure[sizeof((struct swarm *)0)->failure];
};

/* ---- in the process of the load ---- */

struct line {
    struct peer peer;
    struct load *load;
    struct buf requests; /* AHEAD times the same one */
    unsigned number;
    uint64_t owed, sent, answered;
};

struct load {
    struct steady_shared *shared;
    const struct steady_plan *plan;
    struct swarm swarm;
    struct source clock;
    int clock_fd;
    uint64_t start_ns, interval_ns;
    uint64_t sent, answered;    /* sent: given to a connection, whatever the kernel took of it */
    size_t varied_at, varied_n; /* of each request: its number; 0: none has one */
    uint64_t number;            /* of the next */
    struct line lines[CONNECTIONS];
};

static uint64_t due_ns(const struct load *l, uint64_t request)
{
    return l->start_ns + request * l->interval_ns;
}

static bool counts(const struct load *l, uint64_t due)
{
    return due >= atomic_load(&l->shared->from_ns) && due < atomic_load(&l->shared->until_ns);
}

static void renumber(struct load *l, char *digits)
{
    uint64_t number = l->number++;
    for (size_t i = l->varied_n; i > 0; i--, number /= 10)
        digits[i - 1] = (char)('0' + number % 10);
}

static void line_send(struct line *line)
{
    if (line->owed == 0 || line->peer.out.n > 0)
        return;
    unsigned count = line->owed < AHEAD ? (unsigned)line->owed : AHEAD;
    size_t size = line->requests.n / AHEAD;
    for (unsigned i = 0; i < count && line->load->varied_n > 0; i++)
        renumber(line->load, line->requests.p + i * size + line->load->varied_at);
    line->owed -= count;
    peer_send(&line->peer, str_of(line->requests.p, size * count));
}

static bool is_as_planned(struct peer *p)
{
    const struct load *l = container_of(p, struct line, peer)->load;
    int status = p->answer.status;
    return l->plan->refused ? status == 401 || status == 429 || peer_expect(p, 401, "a bad token")
                            : peer_expect(p, 204, "a steady append");
}

static void steady_on_answer(struct peer *p)
{
    struct line *line = container_of(p, struct line, peer);
    struct load *l = line->load;
    if (!is_as_planned(p))
        return;
    uint64_t due = due_ns(l, line->answered++ * CONNECTIONS + line->number);
    uint64_t took = clock_mono_ns() - due;
    l->answered++;
    if (!counts(l, due))
        return;
    hist_add(&l->shared->figures.latency, took);
    if (took > l->shared->figures.max_ns)
        l->shared->figures.max_ns = took;
}

static void steady_after(struct peer *p)
{
    line_send(container_of(p, struct line, peer));
}

static const struct peer_ops line_ops = {.end = steady_on_answer, .after = steady_after};

static void send_due(struct load *l)
{
    uint64_t now = clock_mono_ns();
    for (; due_ns(l, l->sent) <= now; l->sent++) {
        struct line *line = &l->lines[l->sent % CONNECTIONS];
        uint64_t due = due_ns(l, l->sent), lag = now - due;
        if (due >= atomic_load(&l->shared->until_ns))
            return;
        line->owed++;
        line_send(line);
        if (!counts(l, due))
            continue;
        hist_add(&l->shared->figures.lag, lag);
        if (lag > l->shared->figures.lag_max)
            l->shared->figures.lag_max = lag;
    }
}

static void steady_on_clock(struct source *source, uint32_t events)
{
    struct load *l = container_of(source, struct load, clock);
    uint64_t ticks;
    if (read(l->clock_fd, &ticks, sizeof ticks) == sizeof ticks)
        send_due(l);
    for (unsigned i = 0; i < CONNECTIONS; i++) /* the kernel may have taken what was left */
        line_send(&l->lines[i]);
}

static void start_clock(struct load *l)
{
    struct itimerspec every = {.it_interval.tv_nsec = (long)l->interval_ns,
                               .it_value.tv_nsec = (long)l->interval_ns};
    l->clock.ready = steady_on_clock;
    l->clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (l->clock_fd < 0 || timerfd_settime(l->clock_fd, 0, &every, NULL) != 0) {
        swarm_fail(&l->swarm, "no timer: %s", strerror(errno));
        return;
    }
    swarm_watch(&l->swarm, l->clock_fd, EPOLLIN, &l->clock);
    l->start_ns = clock_mono_ns();
}

static bool all_answered(void *arg)
{
    const struct load *l = arg;
    return clock_mono_ns() >= atomic_load(&l->shared->until_ns) && l->answered == l->sent;
}

static void open_lines(struct load *l)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        peer_open(&l->lines[i].peer, &l->swarm, &line_ops);
}

/* It shares a processor with what makes the other load, and must not wait for it. */
static void go_first(void)
{
    struct sched_param first = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0)
        setpriority(PRIO_PROCESS, 0, -20);
    prctl(PR_SET_TIMERSLACK, 1);
}

/* Never returns. */
static void become_load(struct load *l, struct sockaddr_in to)
{
    struct steady_shared *shared = l->shared;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!l->plan->last)
        go_first();
    if (swarm_init(&l->swarm, to) != 0)
        _exit(1);
    l->swarm.patience_s = PATIENCE_S;
    open_lines(l);
    start_clock(l);
    while (!l->swarm.failed && atomic_load(&shared->until_ns) == NEVER)
        swarm_run_for(&l->swarm, 0.01);
    swarm_run(&l->swarm, "the last appends of a steady load", all_answered, l);
    memcpy(shared->failure, l->swarm.failure, sizeof shared->failure);
    _exit(0);
}

/* ---- in the process that measures ---- */

/* Numbers go on from load to load. */
static void find_varied(struct load *l)
{
    const struct buf *requests = &l->lines[0].requests;
    const char *text = l->plan->varied;
    const char *at = text != NULL ? memmem(requests->p, requests->n, text, strlen(text)) : NULL;
    if (at == NULL)
        return;
    l->varied_at = (size_t)(at - requests->p);
    l->varied_n = strlen(text);
    l->number = clock_mono_ns();
}

/* A body that nobody wants may end the connection: what is to be refused has none. */
static void put_request(struct buf *out, const struct steady_plan *plan, struct name stream,
                        struct str body)
{
    if (plan->refused)
        buf_printf(out,
                   "GET /v1/stream/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                   "Accept: %s\r\n\r\n",
                   stream.text, plan->type);
    else
        request_append(out, stream, plan->type, body);
}

/* Streams that an earlier load on this server has left are used again. */
static struct load *load_new(struct bench *b, struct steady_shared *shared,
                             const struct steady_plan *plan)
{
    struct load *l = mem_zalloc(sizeof *l);
    struct buf body = {0};
    while (body.n < BODY_SIZE)
        buf_putc(&body, (char)(body.n * 37 + 128));
    l->shared = shared;
    l->plan = plan;
    l->interval_ns = 1000000000u / plan->per_second;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct line *line = &l->lines[i];
        struct name name = stream_name("steady", i);
        line->load = l;
        line->number = i;
        if (!plan->refused)
            ask_confirm(b, name, plan->type);
        for (unsigned k = 0; k < AHEAD; k++)
            put_request(&line->requests, plan, name, buf_str(&body));
    }
    find_varied(l);
    buf_deinit(&body);
    return l;
}

static void load_free(struct load *l)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        buf_deinit(&l->lines[i].requests);
    free(l);
}

void steady_begin(struct steady *s, struct bench *b, const struct steady_plan *plan)
{
    void *shared =
        mmap(NULL, sizeof *s->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *s = (struct steady){0};
    if (shared == MAP_FAILED) {
        swarm_fail(&b->swarm, "no memory to share: %s", strerror(errno));
        return;
    }
    s->shared = shared;
    atomic_store(&s->shared->from_ns, NEVER);
    atomic_store(&s->shared->until_ns, NEVER);
    struct load *l = load_new(b, s->shared, plan);
    if (!b->swarm.failed)
        s->pid = fork();
    if (s->pid == 0 && !b->swarm.failed)
        become_load(l, b->swarm.to);
    if (s->pid < 0)
        swarm_fail(&b->swarm, "cannot start a process: %s", strerror(errno));
    load_free(l);
    swarm_run_for(&b->swarm, STEADY_SETTLE_S);
    atomic_store(&s->shared->from_ns, clock_mono_ns());
}

void steady_end(struct steady *s, struct bench *b, struct steady_figures *out)
{
    if (!s->shared)
        return;
    atomic_store(&s->shared->until_ns, clock_mono_ns());
    int status = 0;
    if (s->pid > 0 && (waitpid(s->pid, &status, 0) != s->pid || status != 0))
        swarm_fail(&b->swarm, "the steady load ended by itself (wait status %d)", status);
    if (*s->shared->failure)
        swarm_fail(&b->swarm, "%s", s->shared->failure);
    *out = s->shared->figures;
    munmap(s->shared, sizeof *s->shared);
}
