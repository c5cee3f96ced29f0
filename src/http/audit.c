// SPDX-License-Identifier: Apache-2.0
#include "http/audit.h"
#include "base/ascii.h"
#include "base/buf.h"
#include "base/date.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/json.h"
#include "base/lane.h"
#include "base/mem.h"
#include "http/exchange.h"
#include "telemetry/trace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define REQUEST_ID_MAX 128
#define VALUE_MAX      512 /* bytes of one value */

/* One batch is written at a time; meanwhile the next one is collected. */
struct audit {
    struct audit_setup setup;
    struct buf lines;    /* that are collected */
    struct link waiting; /* for these to be on the disk */
    struct job job;      /* that writes those before */
    struct buf writing;  /* the job's */
    struct link awaited; /* by whom those are waited for */
    bool sync;           /* ... so that they have to be on the disk */
    bool busy;           /* a job is under way */
    int err;             /* of the job */
    struct task turn;    /* begins the next one */
    struct gate jobs;
    uint64_t second, n_told; /* of the rate: which second, how many in it */
    uint64_t n_left_out;
    bool failing; /* the last batch could not be written: has been told */
};

static const struct {
    struct str word;
    bool allowed, bounded;
} events[] = {
#define X(event, word, allowed, bounded) {STR_INIT(word), allowed, bounded},
    AUDIT_EVENTS(X)
#undef X
};

/* ---- the file ---- */

static int write_all(int fd, struct str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == ENOSPC || errno == EDQUOT ? ERR_FULL : ERR_IO;
        bytes = str_skip(bytes, (size_t)n);
    }
    return 0;
}

/* On the lane. */
static void audit_run_write(struct job *j)
{
    struct audit *a = container_of(j, struct audit, job);
    int fd = open(a->setup.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) {
        a->err = ERR_IO;
        return;
    }
    a->err = write_all(fd, buf_str(&a->writing));
    if (a->err == 0 && a->sync && fdatasync(fd) != 0 && errno != EINVAL) /* of a terminal */
        a->err = ERR_IO;
    close(fd);
}

static void tell_waiting(struct audit *a)
{
    while (!list_empty(&a->awaited)) {
        struct audit_wait *w = list_item(a->awaited.next, struct audit_wait, link);
        list_remove(&w->link);
        w->done(w, a->err);
    }
}

static void write_next(struct audit *a);

static void audit_on_written(struct job *j)
{
    struct audit *a = container_of(j, struct audit, job);
    if (a->err != 0 && !a->failing)
        trace(a->setup.trace, AUDIT_FAILED, TRACE_STR("file", str_of_cstr(a->setup.path)),
              TRACE_STR("error", str_of_cstr(err_text(a->err))));
    a->failing = a->err != 0;
    a->busy = false;
    buf_deinit(&a->writing);
    a->writing = (struct buf){0};
    tell_waiting(a);
    write_next(a);
    gate_leave(&a->jobs);
}

static void put_time(struct audit *a, struct buf *out)
{
    char time[DATE_RFC3339_TEXT];
    date_format_rfc3339(a->setup.sched->wall_ms, time);
    buf_printf(out, "{\"time\":\"%.*s\"", DATE_RFC3339_TEXT, time);
}

static void put_left_out(struct audit *a)
{
    if (a->n_left_out == 0)
        return;
    put_time(a, &a->lines);
    buf_printf(&a->lines, ",\"event\":\"left-out\",\"count\":%llu}\n",
               (unsigned long long)a->n_left_out);
    a->n_left_out = 0;
}

static void write_next(struct audit *a)
{
    put_left_out(a);
    if (a->busy || (a->lines.n == 0 && list_empty(&a->waiting)))
        return;
    a->busy = true;
    a->writing = a->lines;
    a->lines = (struct buf){0};
    list_splice(&a->awaited, &a->waiting);
    a->sync = !list_empty(&a->awaited);
    a->job = (struct job){.run = audit_run_write, .done = audit_on_written};
    gate_enter(&a->jobs);
    lane_submit(a->setup.lane, &a->job);
}

static void audit_run_turn(struct task *t)
{
    write_next(container_of(t, struct audit, turn));
}

static void begin(struct audit *a)
{
    if (!a->busy)
        sched_post(a->setup.sched, &a->turn);
}

/* ---- lines ---- */

static bool has_room(struct audit *a)
{
    uint64_t second = a->setup.sched->now_ms / 1000;
    if (second != a->second) {
        a->second = second;
        a->n_told = 0;
    }
    if (a->lines.n >= AUDIT_HELD_MAX || a->n_told >= AUDIT_RATE) {
        a->n_left_out++;
        return false;
    }
    a->n_told++;
    return true;
}

static void put_member(struct buf *out, const char *name, struct str value)
{
    if (value.n == 0)
        return;
    if (value.n > VALUE_MAX)
        value.n = VALUE_MAX;
    buf_printf(out, ",\"%s\":", name);
    json_put_string(out, value);
}

static void put_principal(struct buf *out, const struct principal *p, const struct audit_fact *f)
{
    put_member(out, "issuer", p->issuer);
    put_member(out, "sub", p->sub);
    put_member(out, "user", f->user.n > 0 ? f->user : p->user);
    put_member(out, "jti", f->jti.n > 0 ? f->jti : p->jti);
    if (f->jti.n > 0)
        put_member(out, "by", p->jti);
}

/* Of IPv4 as such. */
static void put_address(const struct audit *a, struct buf *out, const struct exchange *x)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t ip[ADDR_IP_N];
    char text[INET6_ADDRSTRLEN];
    if (a->setup.address == NULL || !a->setup.address(x, ip))
        return;
    bool v4 = memcmp(ip, mapped, sizeof mapped) == 0;
    if (inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + sizeof mapped : ip, text, sizeof text) != NULL)
        put_member(out, "ip", str_of_cstr(text));
}

static void put_request(struct buf *out, const struct request *req)
{
    if (req == NULL) /* forgotten */
        return;
    struct str id = request_header(req, STR("X-Request-Id"));
    put_member(out, "method", req->method_text);
    put_member(out, "path", req->path);
    if (id.n <= REQUEST_ID_MAX && ascii_is_word(id, "-._:/+="))
        put_member(out, "request", id);
}

/* Whose it is, as far as proxies are believed (front.h). */
void audit_tell(struct audit *a, const struct exchange *x, const struct audit_fact *f)
{
    if (a == NULL || (events[f->event].bounded && !has_room(a)))
        return;
    struct buf *out = &a->lines;
    put_time(a, out);
    put_member(out, "event", events[f->event].word);
    put_member(out, "cause", f->cause);
    if (x != NULL)
        put_principal(out, x->principal, f);
    put_member(out, "kid", f->kid.n > 0 || x == NULL ? f->kid : x->principal->kid);
    put_member(out, "ip", f->ip);
    if (x != NULL && f->ip.n == 0)
        put_address(a, out, x);
    if (x != NULL)
        put_request(out, x->request);
    put_member(out, "verb", f->verb);
    put_member(out, "kind", f->kind);
    put_member(out, "name", f->name);
    put_member(out, "decision", events[f->event].allowed ? STR("allow") : STR("deny"));
    buf_put(out, STR("}\n"));
    begin(a);
}

void audit_note(struct audit *a, enum audit_event what, const struct exchange *x, struct str detail)
{
    audit_tell(a, x, &(struct audit_fact){.event = what, .cause = detail});
}

void audit_put_line(struct audit *a, struct str line)
{
    buf_put(&a->lines, line);
    begin(a);
}

void audit_sync(struct audit *a, struct audit_wait *w)
{
    list_init(&w->link);
    list_push(&a->waiting, &w->link);
    begin(a);
}

/* ---- the whole ---- */

struct audit *audit_new(const struct audit_setup *setup)
{
    struct audit *a = mem_zalloc(sizeof *a);
    a->setup = *setup;
    list_init(&a->waiting);
    list_init(&a->awaited);
    task_init(&a->turn, audit_run_turn);
    gate_init(&a->jobs, setup->sched);
    return a;
}

void audit_stop(struct audit *a, void (*stopped)(void *ctx), void *ctx)
{
    write_next(a);
    gate_shut(&a->jobs, stopped, ctx);
}

void audit_free(struct audit *a)
{
    if (a == NULL)
        return;
    task_cancel(&a->turn);
    buf_deinit(&a->lines);
    buf_deinit(&a->writing);
    free(a);
}
