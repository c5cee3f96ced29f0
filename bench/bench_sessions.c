// SPDX-License-Identifier: Apache-2.0
/* Sessions: chunks of 256 bytes over HTTP/2 that the server's echo answers, one connection for each
 * session as clients far apart have them. How long until a chunk is acknowledged (it is durable
 * then) and until its event is there (durable too, and what the client waits for); how many chunks
 * go through; and what a session costs to which nothing is said.
 *
 * Every acknowledgement and every event must be the next one of its session. */
#include "bench_duplex.h"
#include "bench_hist.h"
#include "bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PATH       "/tidemark.v1.SessionService/Stream"
#define SECRET     "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" /* 32 bytes */
#define CHUNK_SIZE 256
#define MANY       1000
#define FEW        50  /* opened before memory is first looked at */
#define PERIOD_MS  100 /* of a paced session: 10 chunks a second */
#define MANY_DEPTH 4
#define ONE_DEPTH  64
#define DEPTH_MAX  64
#define WARM_UP_S  0.5
#define REST_S     0.5
#define QUIET_S    1.0
#define KEY_MAX    40

struct run;

struct session {
    struct duplex duplex;
    struct run *run;
    bool welcome;
    uint64_t sent, acked, answered;
    uint64_t sent_ns[DEPTH_MAX]; /* a ring */
};

struct run {
    struct bench *bench;
    struct session *all;
    unsigned n;        /* open */
    unsigned welcomed; /* of them */
    unsigned depth;    /* chunks under way in each that are replaced at once; 0: the clock sends */
    uint64_t limit;    /* of chunks, in all */
    uint64_t sent, answered;
    struct buf message; /* a chunk */
    struct hist ack, event;

    struct source clock;
    int clock_fd;
    unsigned next;  /* whose turn it is */
    uint64_t turns; /* that came, and those that found the last chunk not answered */
    uint64_t missed;
};

/* ---- messages ---- */

struct field {
    unsigned number;
    uint64_t value;   /* of a varint */
    struct str bytes; /* of what has a length */
};

static bool take_varint(struct str *in, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < in->n && i < 9; i++) {
        unsigned char c = (unsigned char)in->p[i];
        v |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c < 0x80) {
            *in = str_skip(*in, i + 1);
            *out = v;
            return true;
        }
    }
    return false;
}

static bool take_field(struct str *in, struct field *f)
{
    uint64_t tag;
    if (!take_varint(in, &tag) || !take_varint(in, &f->value))
        return false;
    f->number = (unsigned)(tag >> 3);
    f->bytes = STR_NONE;
    if ((tag & 7) == 0)
        return true;
    if ((tag & 7) != 2 || f->value > in->n)
        return false;
    f->bytes = str_of(in->p, (size_t)f->value);
    *in = str_skip(*in, f->bytes.n);
    return true;
}

static void put_varint(struct buf *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(out, (char)(v | 0x80));
    buf_putc(out, (char)v);
}

/* client_chunk = 1, seqno = 5. */
static void make_chunk(struct buf *out, uint64_t seqno)
{
    out->n = 0;
    put_varint(out, 1 << 3 | 2);
    put_varint(out, CHUNK_SIZE);
    event_put_text(out, seqno, CHUNK_SIZE);
    put_varint(out, 5 << 3);
    put_varint(out, seqno);
}

/* payload = 1, event_id = 7, mac = 8: the chunk that was sent, under the next number. */
static bool is_answer(struct str event, uint64_t seqno)
{
    struct tally tally = {.next = seqno};
    struct field f;
    uint64_t id = 0;
    while (event.n > 0 && take_field(&event, &f)) {
        if (f.number == 1 && f.bytes.n == CHUNK_SIZE)
            tally_feed(&tally, f.bytes);
        if (f.number == 7 && num_parse(f.bytes, UINT64_MAX, &id) != 0)
            return false;
    }
    return event.n == 0 && tally_whole(&tally, seqno + 1) && id == seqno + 1;
}

/* ---- one session ---- */

static bool rests(const struct session *s)
{
    return s->acked == s->sent && s->answered == s->sent;
}

static void send_chunk(struct session *s)
{
    struct run *run = s->run;
    make_chunk(&run->message, s->sent);
    s->sent_ns[s->sent++ % DEPTH_MAX] = clock_mono_ns();
    run->sent++;
    duplex_put(&s->duplex, buf_str(&run->message));
}

static void fill(struct session *s)
{
    while (s->sent - s->answered < s->run->depth && s->sent - s->acked < s->run->depth &&
           s->run->sent < s->run->limit)
        send_chunk(s);
}

static bool on_ack(struct session *s, uint64_t seqno)
{
    if (seqno != s->acked || seqno >= s->sent)
        return false;
    hist_add(&s->run->ack, clock_mono_ns() - s->sent_ns[s->acked++ % DEPTH_MAX]);
    return true;
}

static bool on_event(struct session *s, struct str event)
{
    if (s->answered >= s->sent || !is_answer(event, s->answered))
        return false;
    hist_add(&s->run->event, clock_mono_ns() - s->sent_ns[s->answered++ % DEPTH_MAX]);
    s->run->answered++;
    return true;
}

static bool on_welcome(struct session *s)
{
    if (s->welcome)
        return false;
    s->welcome = true;
    s->run->welcomed++;
    return true;
}

static void on_message(struct duplex *d, struct str bytes)
{
    struct session *s = container_of(d, struct session, duplex);
    struct field f;
    bool right = take_field(&bytes, &f) && bytes.n == 0 && (f.number == 3 || s->welcome);
    if (right)
        right = f.number == 1   ? on_event(s, f.bytes)
                : f.number == 3 ? on_welcome(s)
                : f.number == 4 ? on_ack(s, f.value)
                                : false;
    if (!right)
        swarm_fail(d->swarm, "a session's message is malformed, out of order or came twice");
}

static void on_after(struct duplex *d)
{
    fill(container_of(d, struct session, duplex));
}

static void session_open(struct session *s, struct run *run, const char *phase, unsigned number)
{
    static const struct duplex_ops ops = {on_message, on_after};
    struct name key = stream_name(phase, number);
    const struct duplex_header headers[] = {
        {"x-idempotency-key", key.text},
        {"x-idempotent-encryption-key", SECRET},
        {"x-idempotency-event-id", "0"},
    };
    s->run = run;
    duplex_open(&s->duplex, &run->bench->swarm, &ops, PATH, headers,
                sizeof headers / sizeof *headers);
}

/* ---- all of them ---- */

static void run_init(struct run *run, struct bench *b, unsigned most)
{
    *run = (struct run){.bench = b, .limit = UINT64_MAX, .clock_fd = -1};
    run->all = mem_zalloc(most * sizeof *run->all);
}

static bool all_welcome(void *arg)
{
    const struct run *run = arg;
    return run->welcomed == run->n;
}

static void open_up_to(struct run *run, const char *phase, unsigned n)
{
    for (; run->n < n; run->n++)
        session_open(&run->all[run->n], run, phase, run->n);
    swarm_run(&run->bench->swarm, "all sessions to be welcomed", all_welcome, run);
}

static bool all_rest(void *arg)
{
    const struct run *run = arg;
    for (unsigned i = 0; i < run->n; i++)
        if (!rests(&run->all[i]))
            return false;
    return true;
}

static bool all_answered(void *arg)
{
    const struct run *run = arg;
    return run->sent == run->limit && all_rest(arg);
}

/* From now on each has so many under way, until run_rest. */
static void run_start(struct run *run, unsigned depth)
{
    run->depth = depth;
    for (unsigned i = 0; i < run->n && depth > 0 && !run->bench->swarm.failed; i++) {
        fill(&run->all[i]);
        duplex_flush(&run->all[i].duplex);
    }
}

static void run_rest(struct run *run)
{
    run->depth = 0;
    swarm_run(&run->bench->swarm, "all chunks to be answered", all_rest, run);
}

static void run_close(struct run *run)
{
    for (unsigned i = 0; i < run->n; i++)
        duplex_close(&run->all[i].duplex);
    free(run->all);
    buf_deinit(&run->message);
}

/* ---- sending by the clock ---- */

/* One session after another, evenly over the period, so that none waits for a crowd that only the
 * measurement has brought together. */
static void on_clock(struct source *source, uint32_t events)
{
    struct run *run = container_of(source, struct run, clock);
    uint64_t due = 0;
    if (read(run->clock_fd, &due, sizeof due) != sizeof due)
        return;
    for (; due > 0 && !run->bench->swarm.failed; due--) {
        struct session *s = &run->all[run->next];
        run->next = (run->next + 1) % run->n;
        run->turns++;
        if (!rests(s)) {
            run->missed++;
            continue;
        }
        send_chunk(s);
        duplex_flush(&s->duplex);
    }
}

static void clock_start(struct run *run)
{
    long each_ns = PERIOD_MS * 1000000L / (long)run->n;
    struct itimerspec every = {.it_interval.tv_nsec = each_ns, .it_value.tv_nsec = each_ns};
    run->clock.ready = on_clock;
    run->clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (run->clock_fd < 0 || timerfd_settime(run->clock_fd, 0, &every, NULL) != 0) {
        swarm_fail(&run->bench->swarm, "no timer: %s", strerror(errno));
        return;
    }
    swarm_watch(&run->bench->swarm, run->clock_fd, EPOLLIN, &run->clock);
}

static void clock_stop(struct run *run)
{
    if (run->clock_fd >= 0)
        close(run->clock_fd);
    run->clock_fd = -1;
}

/* ---- what is measured ---- */

static void add(struct run *run, const char *key, const char *what, double value)
{
    char full[KEY_MAX];
    snprintf(full, sizeof full, "%s-%s", key, what);
    report_add(&run->bench->report, full, value);
}

static void add_latencies(struct run *run, const char *key)
{
    add(run, key, "ack-p50", (double)hist_at(&run->ack, 0.5) / 1e3);
    add(run, key, "ack-p99", (double)hist_at(&run->ack, 0.99) / 1e3);
    add(run, key, "event-p50", (double)hist_at(&run->event, 0.5) / 1e3);
    add(run, key, "event-p99", (double)hist_at(&run->event, 0.99) / 1e3);
}

/* The load has begun; NULL if the swarm has failed. */
static struct row *measure(struct run *run, const char *key, double seconds)
{
    struct bench *b = run->bench;
    swarm_run_for(&b->swarm, WARM_UP_S);
    memset(&run->ack, 0, sizeof run->ack);
    memset(&run->event, 0, sizeof run->event);
    run->turns = run->missed = 0;
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, seconds);
    spent_end(b, &spent);
    if (b->swarm.failed)
        return NULL;
    double answered = (double)run->event.n;
    struct row *row = report_add(&b->report, key, answered / spent.seconds);
    row_spent(row, b, &spent, answered);
    add_latencies(run, key);
    return row;
}

static void measure_filled(struct run *run, const char *key, unsigned depth, double seconds)
{
    progress("%s: %u open, %u under way in each", key, run->n, depth);
    run_start(run, depth);
    measure(run, key, seconds);
    run_rest(run);
}

static void measure_paced(struct run *run, const char *key, double seconds)
{
    progress("%s: %u open, each sends %d a second", key, run->n, 1000 / PERIOD_MS);
    clock_start(run);
    struct row *row = measure(run, key, seconds);
    if (row && run->missed > 0)
        row_note(row, "%.1f %% not sent, the last was not answered yet",
                 100.0 * (double)run->missed / (double)run->turns);
    clock_stop(run);
    run_rest(run);
}

/* How fast they open, and what they cost when they are. */
static void measure_idle(struct run *run, unsigned n)
{
    struct bench *b = run->bench;
    progress("session-open: %u at once, then nothing is said", n);
    open_up_to(run, "sessions", FEW);
    swarm_run_for(&b->swarm, REST_S);
    uint64_t before = server_memory(&b->server);

    struct spent opening = spent_begin(b);
    open_up_to(run, "sessions", n);
    spent_end(b, &opening);
    swarm_run_for(&b->swarm, REST_S);

    struct spent quiet = spent_begin(b);
    swarm_run_for(&b->swarm, QUIET_S);
    spent_end(b, &quiet);
    double grown = (double)server_memory(&b->server) - (double)before;
    if (b->swarm.failed)
        return;
    double opened = n - FEW;
    row_spent(report_add(&b->report, "session-open", opened / opening.seconds), b, &opening,
              opened);
    if (before == 0)
        return;
    report_add(&b->report, "session-memory", grown / opened);
    report_add(&b->report, "session-cpu", quiet.cpu_seconds / quiet.seconds * 100);
}

/* ---- a server that answers ---- */

/* The handler can be set in a file alone. This one has no name: the server inherits it open. */
static int config_fd(void)
{
    static const char text[] = "[session]\nhandler = echo\n";
    int fd = memfd_create("sessions.conf", 0);
    if (fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)(sizeof text - 1))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Runs work on a server that echoes, which is ours; it stays when this returns. */
static void with_echo(struct bench *b, void (*work)(struct bench *b, uint64_t count),
                      uint64_t count)
{
    struct buf args = {0};
    const char *given = b->plan.args;
    if (!b->server.ours) {
        progress("sessions: left out, only a server of ours is known to echo");
        return;
    }
    int fd = config_fd();
    if (fd < 0) {
        swarm_fail(&b->swarm, "cannot make a file for the server's settings");
        return;
    }
    buf_printf(&args, "%s --config /proc/self/fd/%d%c", given ? given : "", fd, '\0');
    b->plan.args = args.p;
    bench_renew(b);
    work(b, count);
    b->plan.args = given;
    close(fd);
    buf_deinit(&args);
}

/* ---- the phases ---- */

static void measure_one(struct bench *b, uint64_t ignored)
{
    struct run run;
    run_init(&run, b, 1);
    open_up_to(&run, "session", 1);
    measure_filled(&run, "session-1", 1, b->seconds / 2);
    measure_filled(&run, "session-1x64", ONE_DEPTH, b->seconds / 2);
    run_close(&run);
}

static void measure_many(struct bench *b, uint64_t ignored)
{
    struct run run;
    unsigned n = MANY < b->sockets ? MANY : (unsigned)b->sockets;
    if (n <= FEW) {
        swarm_fail(&b->swarm, "too few open files are allowed for sessions");
        return;
    }
    run_init(&run, b, n);
    measure_idle(&run, n);
    measure_paced(&run, "session-1k", b->seconds);
    measure_filled(&run, "session-1kx4", MANY_DEPTH, b->seconds);
    run_close(&run);
}

void phase_session_1(struct bench *b)
{
    with_echo(b, measure_one, 0);
}

void phase_session_1k(struct bench *b)
{
    with_echo(b, measure_many, 0);
}

static void send_chunks(struct bench *b, uint64_t count)
{
    struct run run;
    run_init(&run, b, 1);
    open_up_to(&run, "count", 1);
    run.limit = count;
    run_start(&run, 1);
    swarm_run(&b->swarm, "all chunks to be answered", all_answered, &run);
    run_close(&run);
}

void run_chunks(struct bench *b, uint64_t count)
{
    with_echo(b, send_chunks, count);
}
