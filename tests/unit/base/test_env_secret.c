// SPDX-License-Identifier: Apache-2.0
#include "base/env_secret.h"
#include "base/err.h"
#include "base/secret.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "ATD_CURSOR_SIGNING_KEY"

struct fixture {
    char path[40], why[512];
    char *secret;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->path, "/tmp/test_env_secret.XXXXXX");
    close(mkstemp(f->path));
    unsetenv(NAME);
    unsetenv(NAME "_FILE");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    env_secret_drop(&f->secret);
    unlink(f->path);
    free(f);
    secret_unshield(); /* a sanitizer wants to look into us */
    return 0;
}

static int get(struct fixture *f, struct str content)
{
    FILE *to = fopen(f->path, "w");
    fwrite(content.p, 1, content.n, to);
    fclose(to);
    setenv(NAME "_FILE", f->path, 1);
    env_secret_drop(&f->secret);
    return env_secret_get(NAME, &f->secret, f->why, sizeof f->why);
}

static void test_from_the_variable(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(env_secret_get(NAME, &f->secret, f->why, sizeof f->why), 0);
    assert_null(f->secret);
    setenv(NAME, "", 1);
    assert_int_equal(env_secret_get(NAME, &f->secret, f->why, sizeof f->why), 0);
    assert_null(f->secret);
    setenv(NAME, "value", 1);
    assert_int_equal(env_secret_get(NAME, &f->secret, f->why, sizeof f->why), 0);
    assert_string_equal(f->secret, "value");
}

static void test_from_the_file(void **state)
{
    struct fixture *f = *state;
    static char large[ENV_SECRET_MAX + 1];
    memset(large, 'x', sizeof large);
    assert_int_equal(get(f, STR("of the file\n")), 0);
    assert_string_equal(f->secret, "of the file");
    assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
    assert_int_equal(get(f, STR(" a\nb \r\n\n")), 0);
    assert_string_equal(f->secret, " a\nb ");
    assert_int_equal(get(f, str_of(large, ENV_SECRET_MAX)), 0);
    assert_int_equal(strlen(f->secret), ENV_SECRET_MAX);

    assert_int_equal(get(f, str_of(large, ENV_SECRET_MAX + 1)), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "has more than 64 KiB"));
    assert_int_equal(get(f, STR("\n")), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "is empty"));
    assert_int_equal(get(f, STR("a\0b")), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "NUL"));
    setenv(NAME, "value", 1);
    assert_int_equal(get(f, STR("both")), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "both"));
    unsetenv(NAME);
    setenv(NAME "_FILE", "/no/such/file", 1);
    assert_int_equal(env_secret_get(NAME, &f->secret, f->why, sizeof f->why), ERR_SYNTAX);
    assert_string_equal(f->why, NAME "_FILE: /no/such/file No such file or directory");
}

static void test_who_can_read_it(void **state)
{
    struct fixture *f = *state;
    assert_false(env_secret_is_open(NAME));
    assert_int_equal(get(f, STR("x")), 0);
    chmod(f->path, 0640);
    assert_false(env_secret_is_open(NAME));
    chmod(f->path, 0644);
    assert_true(env_secret_is_open(NAME));
}

/* What /proc shows is the memory that the process was started with. */
static void test_is_not_shown(void **state)
{
    extern char **environ;
    static char entry[] = NAME "=shown", again[] = NAME "=twice";
    char *before[] = {entry, again, NULL}, **environ_before = environ;
    environ = before;
    env_secrets_hide();
    assert_string_equal(getenv(NAME), "shown");
    assert_memory_equal(entry, NAME "=\0\0\0\0\0", sizeof entry);
    assert_memory_equal(again, NAME "=\0\0\0\0\0", sizeof again);
    assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
    env_secrets_forget();
    assert_string_equal(getenv(NAME), "");
    environ = environ_before;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_from_the_variable),
        TEST(test_from_the_file),
        TEST(test_who_can_read_it),
        TEST(test_is_not_shown),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
