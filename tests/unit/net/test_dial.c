// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "net/dial.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct loop loop;
    uv_timer_t alive; /* a loop without active handles would not turn */
    int done, fd;
    char why[200];
};

static void on_done(void *ctx, int fd, const char *why)
{
    struct world *w = ctx;
    w->done++;
    w->fd = fd;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static void on_alive(uv_timer_t *t)
{
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    uv_timer_init(&w->loop.uv, &w->alive);
    uv_timer_start(&w->alive, on_alive, 1000, 1000);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    uv_close((uv_handle_t *)&w->alive, NULL);
    loop_deinit(&w->loop);
    free(w);
    return 0;
}

static void wait_done(struct world *w)
{
    uint64_t until = clock_mono_ms() + 10000;
    while (w->done == 0 && clock_mono_ms() < until) {
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
        usleep(500);
    }
    assert_int_equal(w->done, 1);
    for (int i = 0; i < 3; i++)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    assert_int_equal(w->done, 1);
    w->done = 0;
}

/* On IPv4 alone, so that of a name's addresses some refuse. */
static int listen_somewhere(uint16_t *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, n), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    *port = ntohs(sa.sin_port);
    return fd;
}

static void assert_connected(struct world *w, int listener)
{
    assert_true(w->fd >= 0);
    int peer = accept(listener, NULL, NULL);
    char c = 0;
    assert_int_equal(write(peer, "x", 1), 1);
    for (int i = 0; i < 1000 && read(w->fd, &c, 1) < 0; i++)
        usleep(1000);
    assert_int_equal(c, 'x');
    close(peer);
    close(w->fd);
}

static void test_addresses_and_names(void **state)
{
    struct world *w = *state;
    static const char *const hosts[] = {"127.0.0.1", "localhost"};
    uint16_t port;
    int listener = listen_somewhere(&port);
    for (size_t i = 0; i < 2; i++) {
        dial_new(&w->loop, hosts[i], port, 5000, on_done, w);
        assert_int_equal(w->done, 0);
        wait_done(w);
        assert_connected(w, listener);
    }
    close(listener);
}

static void test_unix_sockets(void **state)
{
    struct world *w = *state;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/test-dial-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/socket", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    dial_new(&w->loop, un.sun_path, 0, 5000, on_done, w);
    wait_done(w);
    assert_int_equal(w->fd, -1);
    assert_non_null(strstr(w->why, "No such file"));
    assert_int_equal(bind(listener, (struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(listener, 8), 0);
    dial_new(&w->loop, un.sun_path, 0, 5000, on_done, w);
    wait_done(w);
    assert_connected(w, listener);
    close(listener);
    unlink(un.sun_path);
    rmdir(folder);
    char path[200];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    dial_new(&w->loop, path, 0, 5000, on_done, w);
    wait_done(w);
    assert_int_equal(w->fd, -1);
}

static void test_refused(void **state)
{
    struct world *w = *state;
    uint16_t port;
    close(listen_somewhere(&port));
    dial_new(&w->loop, "localhost", port, 5000, on_done, w);
    wait_done(w);
    assert_int_equal(w->fd, -1);
    assert_non_null(strstr(w->why, "refused"));
    dial_new(&w->loop, "not a name", port, 5000, on_done, w);
    wait_done(w);
    assert_int_equal(w->fd, -1);
    assert_non_null(strstr(w->why, "cannot resolve"));
}

static void test_nobody_takes_it(void **state)
{
    /* A queue of length nothing that is full: what comes next is not answered. */
    struct world *w = *state;
    uint16_t port;
    int listener = listen_somewhere(&port), fillers[8];
    assert_int_equal(listen(listener, 0), 0);
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fillers[i], (struct sockaddr *)&sa, sizeof sa);
    }
    usleep(10000);
    dial_new(&w->loop, "127.0.0.1", port, 200, on_done, w);
    wait_done(w);
    assert_int_equal(w->fd, -1);
    assert_non_null(strstr(w->why, "timed out"));
    for (int i = 0; i < 8; i++)
        close(fillers[i]);
    close(listener);
}

static void test_cancelled_at_any_time(void **state)
{
    struct world *w = *state;
    uint16_t port;
    int listener = listen_somewhere(&port);
    for (int turns = 0; turns < 8; turns++) {
        struct dial *d = dial_new(&w->loop, "127.0.0.1", port, 5000, on_done, w);
        for (int i = 0; i < turns && w->done == 0; i++) {
            uv_run(&w->loop.uv, UV_RUN_NOWAIT);
            usleep(500);
        }
        if (w->done == 0) {
            dial_cancel(d);
            assert_int_equal(w->done, 0);
            wait_done(w);
            assert_int_equal(w->fd, -1);
        } else {
            assert_true(w->fd >= 0);
            close(w->fd);
            w->done = 0;
        }
    }
    close(listener);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_addresses_and_names), TEST(test_unix_sockets),          TEST(test_refused),
        TEST(test_nobody_takes_it),     TEST(test_cancelled_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
