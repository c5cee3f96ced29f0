// SPDX-License-Identifier: Apache-2.0
/* Whose process is at the other end. Those tests in which it is another user's need to be root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/socket_owner.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER 65534

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int port_of(int fd)
{
    struct sockaddr_in6 sa; /* the port stands where sockaddr_in has it, too */
    socklen_t n = sizeof sa;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    return ntohs(sa.sin6_port);
}

/* -1: it is taken. */
static int listen_at(int port)
{
    struct sockaddr_in sa = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    if (bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(fd, 1) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_to(int port)
{
    struct sockaddr_in sa = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

static int peer_uid(int fd, uid_t *uid)
{
    struct sockaddr_storage own, peer;
    socklen_t n_own = sizeof own, n_peer = sizeof peer;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &n_own), 0);
    assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &n_peer), 0);
    return socket_peer_uid((struct sockaddr *)&own, (struct sockaddr *)&peer, uid);
}

static void assert_peer(int fd, uid_t want)
{
    uid_t uid = 12345;
    assert_int_equal(peer_uid(fd, &uid), 0);
    assert_int_equal(uid, want);
}

static void our_own_peer(void **state)
{
    int listener = listen_at(0), fd = connect_to(port_of(listener));
    assert_peer(fd, getuid()); /* nobody has accepted it */
    int other = accept(listener, NULL, NULL);
    assert_peer(fd, getuid());
    assert_peer(other, getuid());
    close(listener);
    assert_peer(fd, getuid());
    close(other);
    close(fd);
}

static void a_listener_for_both_protocols(void **state)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&any, sizeof any) != 0)
        skip();
    assert_int_equal(listen(listener, 1), 0);
    int fd = connect_to(port_of(listener));
    assert_peer(fd, getuid());
    close(accept(listener, NULL, NULL));
    close(listener);
    close(fd);
}

/* There are no such ends here. */
static void another_machine(void **state)
{
    struct sockaddr_in own = loopback(4), peer = loopback(5);
    uid_t uid;
    peer.sin_addr.s_addr = inet_addr("192.0.2.1");
    assert_int_equal(socket_peer_uid((struct sockaddr *)&own, (struct sockaddr *)&peer, &uid),
                     ERR_NOT_FOUND);
}

/* A listener is no connection. */
static void a_connection_that_is_gone(void **state)
{
    int listener = listen_at(0);
    struct sockaddr_in own = loopback(1), peer = loopback(port_of(listener));
    uid_t uid;
    assert_int_equal(socket_peer_uid((struct sockaddr *)&own, (struct sockaddr *)&peer, &uid),
                     ERR_NOT_FOUND);
    close(listener);
}

/* ---- another user's process ---- */

/* Each byte of order is one thing to do: accept, close the listener, go. */
static void be_stranger(int told, int order)
{
    char byte;
    if (setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
        _exit(1);
    int listener = listen_at(0), port = port_of(listener);
    if (write(told, &port, sizeof port) != sizeof port || read(order, &byte, 1) != 1)
        _exit(1);
    if (accept(listener, NULL, NULL) < 0 || write(told, "", 1) != 1 || read(order, &byte, 1) != 1)
        _exit(1);
    close(listener);
    if (write(told, "", 1) != 1)
        _exit(1);
    _exit(read(order, &byte, 1) != 0); /* until we have seen enough */
}

static void a_stranger(void **state)
{
    int told[2], order[2], port = 0;
    char byte;
    if (getuid() != 0)
        skip();
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(order), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(order[1]);
        be_stranger(told[1], order[0]);
    }
    assert_int_equal(read(told[0], &port, sizeof port), sizeof port);
    int fd = connect_to(port);
    assert_peer(fd, STRANGER); /* nobody has accepted it */
    assert_int_equal(write(order[1], "", 1), 1);
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_peer(fd, STRANGER); /* accepted */
    assert_int_equal(write(order[1], "", 1), 1);
    assert_int_equal(read(told[0], &byte, 1), 1);
    int ours = listen_at(port); /* a listener of ours does not make it ours */
    assert_true(ours >= 0);
    assert_peer(fd, STRANGER);
    close(order[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(ours);
    close(fd);
    close(told[0]);
    close(told[1]);
    close(order[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_peer),    cmocka_unit_test(a_listener_for_both_protocols),
        cmocka_unit_test(another_machine), cmocka_unit_test(a_connection_that_is_gone),
        cmocka_unit_test(a_stranger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
