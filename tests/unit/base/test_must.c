// SPDX-License-Identifier: Apache-2.0
/* must() holds in a build without assertions, too. */
#ifndef NDEBUG
#define NDEBUG
#endif
#include "base/must.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void test_true_goes_on(void **state)
{
    int done = 0;
    must(++done == 1);
    assert_int_equal(done, 1);
}

static void test_false_says_what_and_aborts(void **state)
{
    int said[2];
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(said[1], STDERR_FILENO);
        must(child > 0);
        _exit(0);
    }
    close(said[1]);
    char text[500] = "";
    assert_true(read(said[0], text, sizeof text - 1) > 0);
    close(said[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_must.c:"));
    assert_non_null(strstr(text, "this must hold: child > 0\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_true_goes_on),
        cmocka_unit_test(test_false_says_what_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
