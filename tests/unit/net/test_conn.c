// SPDX-License-Identifier: Apache-2.0
/* Connections among others: what one does while the news of all of them are being told. TLS and
 * HTTP have tests of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/conn.h"
#include "net/loop.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS  20
#define IN_LINE 3

struct end {
    struct conn conn;
    struct end *other; /* what is done to it when this one can be read */
    void (*do_to)(struct conn *other);
    int peer; /* the test's side */
    unsigned n_readable, n_failed;
    bool *closed;
};

static struct end *end_of(struct conn *c)
{
    return container_of(c, struct end, conn);
}

static void on_readable(struct conn *c)
{
    struct end *e = end_of(c);
    char bytes[4096];
    assert_false(c->closing);
    conn_read(c, bytes, sizeof bytes);
    if (e->n_readable++ == 0)
        e->do_to(&e->other->conn);
}

static void on_nothing(struct conn *c)
{
}

static void on_failed(struct conn *c)
{
    end_of(c)->n_failed++;
    conn_close(c);
}

/* The memory goes at once: the sanitizer finds whoever comes back to it. */
static void on_closed(struct conn *c)
{
    struct end *e = end_of(c);
    assert_false(*e->closed);
    *e->closed = true;
    close(e->peer);
    free(e);
}

static const struct conn_ops ops = {.readable = on_readable,
                                    .drained = on_nothing,
                                    .stalled = on_nothing,
                                    .failed = on_failed,
                                    .closed = on_closed};

static struct end *end_new(struct loop *l, void (*do_to)(struct conn *other), bool *closed)
{
    struct end *e = calloc(1, sizeof *e);
    int fds[2];
    assert_non_null(e);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *closed = false;
    *e = (struct end){.do_to = do_to, .peer = fds[1], .closed = closed};
    assert_int_equal(conn_init(&e->conn, l, fds[0], &ops), 0);
    conn_want_read(&e->conn, true);
    return e;
}

/* Both have something to read in the same round, and whoever comes first acts on the other. */
struct pair {
    struct loop loop;
    struct end *ends[2];
    bool closed[2];
};

static void pair_init(struct pair *p, void (*do_to)(struct conn *other))
{
    assert_int_equal(loop_init(&p->loop), 0);
    for (int i = 0; i < 2; i++)
        p->ends[i] = end_new(&p->loop, do_to, &p->closed[i]);
    for (int i = 0; i < 2; i++) {
        p->ends[i]->other = p->ends[1 - i];
        assert_int_equal(write(p->ends[i]->peer, "x", 1), 1);
    }
}

static void run_rounds(struct loop *l)
{
    for (int i = 0; i < ROUNDS; i++)
        uv_run(&l->uv, UV_RUN_NOWAIT);
}

static void test_one_closes_another_that_has_news(void **state)
{
    struct pair p;
    pair_init(&p, conn_close);
    run_rounds(&p.loop);
    assert_int_equal(p.closed[0] + p.closed[1], 1);
    struct end *left = p.closed[0] ? p.ends[1] : p.ends[0];
    assert_int_equal(left->n_readable, 1);
    conn_close(&left->conn);
    conn_close(&left->conn);
    loop_run(&p.loop); /* ends when nothing is left */
    assert_true(p.closed[0] && p.closed[1]);
    loop_deinit(&p.loop);
}

static void want_nothing(struct conn *other)
{
    conn_want_read(other, false);
}

/* It is not told, and has it all when it wants it again. */
static void test_one_makes_another_wait(void **state)
{
    struct pair p;
    pair_init(&p, want_nothing);
    run_rounds(&p.loop);
    assert_int_equal(p.ends[0]->n_readable + p.ends[1]->n_readable, 1);
    struct end *waits = p.ends[0]->n_readable == 0 ? p.ends[0] : p.ends[1];
    assert_true(uv_loop_alive(&p.loop.uv)); /* a connection that wants nothing is one, too */
    waits->do_to = conn_close;
    conn_want_read(&waits->conn, true);
    run_rounds(&p.loop);
    assert_int_equal(waits->n_readable, 1);
    conn_close(&waits->conn);
    loop_run(&p.loop);
    assert_true(p.closed[0] && p.closed[1]);
    loop_deinit(&p.loop);
}

static void use_up_the_turn(struct conn *other)
{
    uint64_t until_ns = clock_mono_ns() + 2 * SCHED_IO_US * 1000;
    while (clock_mono_ns() < until_ns)
        ;
}

/* Each takes more than all of them may: one when it is told, one that was put off, and the last in
 * the next round. */
static void test_those_who_read_much_are_looked_at_one_by_one(void **state)
{
    struct loop l;
    struct end *ends[IN_LINE];
    bool closed[IN_LINE];
    char much[2048] = {0};
    unsigned n_readable = 0;
    assert_int_equal(loop_init(&l), 0);
    for (int i = 0; i < IN_LINE; i++)
        ends[i] = end_new(&l, use_up_the_turn, &closed[i]);
    for (int i = 0; i < IN_LINE; i++) {
        ends[i]->other = ends[i];
        assert_int_equal(write(ends[i]->peer, much, sizeof much), sizeof much);
    }
    uv_run(&l.uv, UV_RUN_NOWAIT);
    for (int i = 0; i < IN_LINE; i++)
        n_readable += ends[i]->n_readable;
    assert_int_equal(n_readable, IN_LINE - 1);
    run_rounds(&l);
    for (int i = 0; i < IN_LINE; i++) {
        assert_int_equal(ends[i]->n_readable, 1);
        conn_close(&ends[i]->conn);
    }
    loop_run(&l);
    loop_deinit(&l);
}

/* Whoever comes first uses up the turn, so that the others wait in line; the next one closes the
 * last. */
static void close_who_waits(struct conn *other)
{
    struct end *e = end_of(other);
    for (int i = 0; i < IN_LINE && e->conn.late_events == 0; i++)
        e = e->other;
    if (e->conn.late_events != 0) {
        conn_close(&e->conn);
        return;
    }
    use_up_the_turn(other);
    sched_work(&other->loop->sched, "test"); /* so that the clock is looked at */
}

static void test_one_closes_another_that_waits_in_line(void **state)
{
    struct loop l;
    struct end *ends[IN_LINE];
    bool closed[IN_LINE];
    int n_closed = 0;
    assert_int_equal(loop_init(&l), 0);
    for (int i = 0; i < IN_LINE; i++)
        ends[i] = end_new(&l, close_who_waits, &closed[i]);
    for (int i = 0; i < IN_LINE; i++) {
        ends[i]->other = ends[(i + 1) % IN_LINE];
        assert_int_equal(write(ends[i]->peer, "x", 1), 1);
    }
    run_rounds(&l);
    for (int i = 0; i < IN_LINE; i++) {
        n_closed += closed[i];
        if (closed[i])
            continue;
        assert_int_equal(ends[i]->n_readable, 1);
        conn_close(&ends[i]->conn);
    }
    assert_int_equal(n_closed, 1);
    loop_run(&l);
    loop_deinit(&l);
}

static bool set_is_ready(const struct loop *l)
{
    struct pollfd set = {.fd = l->sockets.fd, .events = POLLIN};
    return poll(&set, 1, 0) == 1;
}

/* A hangup cannot be left out of what the system tells: the loop must not turn for it for ever. */
static void test_hangup_that_nobody_waits_for(void **state)
{
    struct loop l;
    bool closed;
    assert_int_equal(loop_init(&l), 0);
    struct end *e = end_new(&l, NULL, &closed);
    conn_want_read(&e->conn, false);
    assert_int_equal(write(e->peer, "x", 1), 1);
    assert_int_equal(shutdown(e->peer, SHUT_RDWR), 0);
    run_rounds(&l);
    assert_int_equal(e->n_readable, 0);
    assert_int_equal(e->n_failed, 0);
    assert_false(set_is_ready(&l));
    conn_close(&e->conn);
    loop_run(&l);
    assert_true(closed);
    loop_deinit(&l);
}

/* Nor for a peer that is gone; whoever wants something of it again is told. */
static void test_failure_that_nobody_waits_for(void **state)
{
    struct loop l;
    bool closed;
    assert_int_equal(loop_init(&l), 0);
    struct end *e = end_new(&l, NULL, &closed);
    conn_want_read(&e->conn, false);
    assert_int_equal(write(e->peer, "x", 1), 1);
    run_rounds(&l); /* it is not polled any more */
    assert_int_equal(send(e->conn.fd, "y", 1, 0), 1);
    close(e->peer); /* with y unread: a reset */
    e->peer = -1;
    run_rounds(&l);
    assert_int_equal(e->n_failed, 0);
    assert_false(set_is_ready(&l));
    conn_want_read(&e->conn, true);
    run_rounds(&l);
    assert_true(closed);
    loop_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_closes_another_that_has_news),
        cmocka_unit_test(test_one_makes_another_wait),
        cmocka_unit_test(test_those_who_read_much_are_looked_at_one_by_one),
        cmocka_unit_test(test_one_closes_another_that_waits_in_line),
        cmocka_unit_test(test_hangup_that_nobody_waits_for),
        cmocka_unit_test(test_failure_that_nobody_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
