// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/transcript.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char folder[32], path[64];
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    snprintf(w->folder, sizeof w->folder, "/tmp/transcript-XXXXXX");
    if (w == NULL || mkdtemp(w->folder) == NULL)
        return -1;
    snprintf(w->path, sizeof w->path, "%s/file", w->folder);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    unlink(w->path);
    int err = rmdir(w->folder);
    free(w);
    return err;
}

static void write_file(const struct world *w, const char *text)
{
    FILE *f = fopen(w->path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void assert_file(const struct world *w, const char *text)
{
    char found[1024];
    FILE *f = fopen(w->path, "r");
    assert_non_null(f);
    size_t n = fread(found, 1, sizeof found - 1, f);
    found[n] = '\0';
    fclose(f);
    assert_string_equal(found, text);
}

static void test_put_and_find(void **state)
{
    struct world *w = *state;
    struct transcript t = TRANSCRIPT_NONE;
    struct stat st;
    assert_int_equal(transcript_open(&t, w->path, "k"), 0);
    assert_false(transcript_has(&t, "1"));
    assert_int_equal(transcript_put(&t, "1", STR("a \"b\"\n")), 0);
    assert_int_equal(transcript_put(&t, "2", str_of("\xff\0", 2)), 0);
    assert_true(transcript_has(&t, "2"));
    assert_false(transcript_has(&t, "3"));
    transcript_close(&t);
    assert_file(w, "{\"session\":\"k\",\"id\":\"1\",\"text\":\"a \\\"b\\\"\\n\"}\n"
                   "{\"session\":\"k\",\"id\":\"2\",\"data\":\"/wA=\"}\n");
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(transcript_open(&t, w->path, "k"), 0);
    assert_true(transcript_has(&t, "1"));
    assert_true(transcript_has(&t, "2"));
    assert_false(transcript_has(&t, "10"));
    transcript_close(&t);
}

static void test_sessions_are_told_apart(void **state)
{
    struct world *w = *state;
    struct transcript t;
    write_file(w, "{\"session\":\"a\",\"id\":\"9\",\"text\":\"\"}\n"
                  "{\"session\":\"b\",\"id\":\"2\",\"text\":\"\"}\n"
                  "{\"session\":\"b\",\"id\":\"x\",\"text\":\"\"}\n");
    assert_int_equal(transcript_open(&t, w->path, "b"), 0);
    assert_true(transcript_has(&t, "2"));
    assert_false(transcript_has(&t, "3"));
    assert_false(transcript_has(&t, "x")); /* what is no number is always new */
    transcript_close(&t);
}

/* However much of the last line is there, it was not written: its event comes again. */
static void test_half_a_line_is_cut_off(void **state)
{
    static const char first[] = "{\"session\":\"k\",\"id\":\"1\",\"text\":\"one\"}\n";
    static const char second[] = "{\"session\":\"k\",\"id\":\"2\",\"text\":\"two\"}";
    struct world *w = *state;
    for (size_t n = 0; n < sizeof second; n++) {
        char text[128];
        struct transcript t;
        snprintf(text, sizeof text, "%s%.*s", first, (int)n, second);
        write_file(w, text);
        assert_int_equal(transcript_open(&t, w->path, "k"), 0);
        assert_true(transcript_has(&t, "1"));
        assert_false(transcript_has(&t, "2"));
        assert_file(w, first);
        assert_int_equal(transcript_put(&t, "2", STR("two")), 0);
        transcript_close(&t);
        snprintf(text, sizeof text, "%s%s\n", first, second);
        assert_file(w, text);
    }
}

/* Another file is not ours to cut. */
static void test_other_files_are_left_alone(void **state)
{
    static const char *const texts[] = {"notes\nmore", "{}\n", "[1]\n{\"half", "\n",
                                        "{\"session\":\"k\",\"id\":1}\n"};
    struct world *w = *state;
    struct transcript t;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(w, texts[i]);
        assert_int_equal(transcript_open(&t, w->path, "k"), EINVAL);
        assert_int_equal(t.fd, -1);
        assert_file(w, texts[i]);
    }
    assert_int_equal(transcript_open(&t, w->folder, "k"), EISDIR);
}

static void test_none(void **state)
{
    struct transcript t = TRANSCRIPT_NONE;
    assert_int_equal(transcript_put(&t, "1", STR("x")), 0);
    assert_false(transcript_has(&t, "1"));
    transcript_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_and_find, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sessions_are_told_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_half_a_line_is_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_files_are_left_alone, set_up, tear_down),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
