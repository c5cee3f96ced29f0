// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"
#include "base/err.h"
#include "base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

struct settings {
    struct option_list listen;
    char *data, *url;
    int form;
    uint64_t connections, body, pause_ms, pulse_ms;
    bool strict, local;
};

static int check_address(struct str value, char *reason, size_t size)
{
    if (str_eq(value, STR("moon:1"))) {
        snprintf(reason, size, "the moon is not in this build");
        return ERR_SYNTAX;
    }
    return memchr(value.p, ':', value.n) ? 0 : ERR_SYNTAX;
}

#define FIELD(f) .field = offsetof(struct settings, f)
static const struct option_row rows[] = {
    {.name = "listen",
     .type = OPTION_LIST,
     FIELD(listen),
     .fallback = "127.0.0.1:1,127.0.0.1:2",
     .value = "HOST:PORT|unix:PATH",
     .check = check_address,
     .heading = "Network",
     .help = "Where to listen. Given more than once, it listens at every address that is named, "
             "each of them on its own."},
    {.name = "data",
     .type = OPTION_TEXT,
     FIELD(data),
     .fallback = "./here",
     .value = "DIR",
     .help = "A folder."},
    {.name = "public-url", .type = OPTION_TEXT, FIELD(url), .value = "URL", .help = "An address."},
    {.name = "form",
     .type = OPTION_CHOICE,
     FIELD(form),
     .fallback = "human",
     .value = "human|json|none",
     .help = "How lines look.",
     .heading = "Other"},
    {.name = "max-connections",
     .type = OPTION_NUMBER,
     FIELD(connections),
     .fallback = "10",
     .min = 1,
     .max = 1000,
     .value = "N",
     .help = "How many."},
    {.name = "max-body",
     .type = OPTION_SIZE,
     FIELD(body),
     .fallback = "64m",
     .min = 1024,
     .value = "SIZE",
     .help = "How large."},
    {.name = "pause",
     .type = OPTION_DURATION,
     FIELD(pause_ms),
     .fallback = "1500ms",
     .max = 300000,
     .value = "TIME",
     .help = "How long."},
    {.name = "pulse",
     .type = OPTION_DURATION,
     FIELD(pulse_ms),
     .fallback = "10s",
     .min = 1000,
     .max = 60000,
     .zero_is_off = true,
     .value = "TIME",
     .help = "How often."},
    {.name = "strict", .type = OPTION_BOOL, FIELD(strict), .help = "Be strict."},
    {.name = "local", .type = OPTION_BOOL, FIELD(local), .fallback = "yes", .help = "Be local."},
};
static const struct options options = {rows, sizeof rows / sizeof *rows};

struct fixture {
    struct settings s;
    char why[256];
    int positional;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    return options_defaults(&options, &f->s, f->why, sizeof f->why);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    options_free(&options, &f->s);
    free(f);
    return 0;
}

/* argv ends with NULL; the strings are not written to. */
static int args(struct fixture *f, const char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return options_args(&options, &f->s, argc, (char **)argv, &f->positional, f->why,
                        sizeof f->why);
}
#define ARGS(f, ...) args((f), (const char *[]){__VA_ARGS__, NULL})

static int set(struct fixture *f, const char *key, const char *value)
{
    return options_set(&options, &f->s, str_of_cstr(key), str_of_cstr(value), f->why,
                       sizeof f->why);
}

static void defaults_are_taken_from_the_rows(void **state)
{
    struct settings *s = &((struct fixture *)*state)->s;
    assert_int_equal(s->listen.n, 2);
    assert_string_equal(s->listen.items[1], "127.0.0.1:2");
    assert_string_equal(s->data, "./here");
    assert_null(s->url);
    assert_int_equal(s->form, 0);
    assert_int_equal(s->connections, 10);
    assert_int_equal(s->body, 64 << 20);
    assert_int_equal(s->pause_ms, 1500);
    assert_false(s->strict);
    assert_true(s->local);
}

static void flags_take_their_value_either_way(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "--data", "a", "--max-body=2k", "--pause", "250ms", "--form=JSON"), 0);
    assert_string_equal(f->s.data, "a");
    assert_int_equal(f->s.body, 2048);
    assert_int_equal(f->s.pause_ms, 250);
    assert_int_equal(f->s.form, 1);
    assert_int_equal(f->positional, 0);
}

static void booleans_have_three_spellings(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "--strict", "--no-local"), 0);
    assert_true(f->s.strict);
    assert_false(f->s.local);
    assert_int_equal(ARGS(f, "--strict=off", "--local=Yes"), 0);
    assert_false(f->s.strict);
    assert_true(f->s.local);
    assert_int_equal(ARGS(f, "--strict=maybe"), ERR_SYNTAX);
    assert_string_equal(f->why, "--strict: expected yes or no, got 'maybe'");
    assert_int_equal(ARGS(f, "--no-strict=yes"), ERR_SYNTAX);
    assert_string_equal(f->why, "--no-strict takes no value");
}

static void a_boolean_leaves_the_next_argument_alone(void **state)
{
    struct fixture *f = *state;
    const char *argv[] = {"--strict", "no", NULL};
    assert_int_equal(args(f, argv), 0);
    assert_true(f->s.strict);
    assert_int_equal(f->positional, 1);
    assert_string_equal(argv[0], "no");
}

static void other_arguments_move_to_the_front_in_order(void **state)
{
    struct fixture *f = *state;
    const char *argv[] = {"one", "--data", "d", "-", "--strict", "--", "--local", "two", NULL};
    assert_int_equal(args(f, argv), 0);
    const char *expected[] = {"one", "-", "--local", "two", "--data", "d", "--strict", "--"};
    assert_int_equal(f->positional, 4);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(argv[i], expected[i]);
    /* The flags can be read once more, as a loader that looks for its file first does. */
    assert_int_equal(args(f, argv + 4), 0);
    assert_int_equal(f->positional, 0);
}

static void failure_leaves_arguments_as_they_were(void **state)
{
    struct fixture *f = *state;
    const char *argv[] = {"--strict", "one", "--bogus", NULL};
    f->positional = 7;
    assert_int_equal(args(f, argv), ERR_SYNTAX);
    assert_string_equal(argv[0], "--strict");
    assert_string_equal(argv[1], "one");
    assert_int_equal(f->positional, 7);
}

static void help_is_asked_for_by_two_names(void **state)
{
    assert_int_equal(ARGS(*state, "x", "--help", "--bogus"), ERR_CANCELLED);
    assert_int_equal(ARGS(*state, "-h"), ERR_CANCELLED);
    assert_int_equal(ARGS(*state, "--", "--help"), 0);
}

static void errors_name_the_flag_and_what_is_expected(void **state)
{
    static const struct {
        const char *arg, *why;
    } cases[] = {
        {"--listen=nowhere", "--listen: expected HOST:PORT or unix:PATH, got 'nowhere'"},
        {"--listen=", "--listen: expected HOST:PORT or unix:PATH, got ''"},
        {"--listen=moon:1", "--listen 'moon:1': the moon is not in this build"},
        {"--data=", "--data: expected DIR, got ''"},
        {"--form=xml", "--form: expected human, json or none, got 'xml'"},
        {"--max-connections=0", "--max-connections: expected a number between 1 and 1000, got '0'"},
        {"--max-connections=1001",
         "--max-connections: expected a number between 1 and 1000, got '1001'"},
        {"--max-connections=-1",
         "--max-connections: expected a number between 1 and 1000, got '-1'"},
        {"--max-body=1023", "--max-body: expected a size of at least 1k, got '1023'"},
        {"--pause=6m", "--pause: expected a duration up to 5m, got '6m'"},
        {"--pulse=1ms", "--pulse: expected 0 or a duration between 1s and 1m, got '1ms'"},
        {"--data", "--data needs a value: --data DIR"},
        {"--lisen=a:1", "unknown flag --lisen; did you mean --listen?"},
        {"--no-stict", "unknown flag --no-stict"},
        {"--no-data", "unknown flag --no-data"},
        {"-x", "unknown flag -x"},
        {"--zzz", "unknown flag --zzz"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ARGS(f, cases[i].arg), ERR_SYNTAX);
        assert_string_equal(f->why, cases[i].why);
    }
    assert_int_equal(f->s.connections, 10);
    assert_string_equal(f->s.data, "./here");
}

static void a_flag_is_no_value(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "--data", "--strict"), ERR_SYNTAX);
    assert_string_equal(f->why, "--data needs a value: --data DIR");
    assert_int_equal(ARGS(f, "--data=--strict"), 0);
    assert_string_equal(f->s.data, "--strict");
}

static void long_values_are_shortened_in_errors(void **state)
{
    struct fixture *f = *state;
    char value[201];
    memset(value, 'x', 200);
    value[200] = '\0';
    assert_int_equal(ARGS(f, "--pause", value), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "xxx...'"));
    assert_true(strlen(f->why) < 150);
}

static void zero_turns_off_where_the_row_says_so(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "--pulse", "0", "--pause=0"), 0);
    assert_int_equal(f->s.pulse_ms, 0);
    assert_int_equal(f->s.pause_ms, 0);
    assert_int_equal(ARGS(f, "--max-body=0"), ERR_SYNTAX);
}

static void each_source_starts_a_list_over(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(set(f, "listen", "a:1"), 0);
    assert_int_equal(set(f, "listen", "b:2"), 0);
    assert_int_equal(f->s.listen.n, 2);
    assert_string_equal(f->s.listen.items[0], "a:1");

    setenv("TIDEMARK_LISTEN", "c:3, d:4,e:5", 1);
    assert_int_equal(options_env(&options, &f->s, f->why, sizeof f->why), 0);
    unsetenv("TIDEMARK_LISTEN");
    assert_int_equal(f->s.listen.n, 3);
    assert_string_equal(f->s.listen.items[1], "d:4");

    assert_int_equal(ARGS(f, "--listen", "f:6"), 0);
    assert_int_equal(f->s.listen.n, 1);
    assert_string_equal(f->s.listen.items[0], "f:6");
}

static void the_environment_is_read_and_empty_is_unset(void **state)
{
    struct fixture *f = *state;
    setenv("TIDEMARK_MAX_CONNECTIONS", "20", 1);
    setenv("TIDEMARK_DATA", "", 1);
    assert_int_equal(options_env(&options, &f->s, f->why, sizeof f->why), 0);
    assert_int_equal(f->s.connections, 20);
    assert_string_equal(f->s.data, "./here");

    setenv("TIDEMARK_MAX_CONNECTIONS", "many", 1);
    assert_int_equal(options_env(&options, &f->s, f->why, sizeof f->why), ERR_SYNTAX);
    assert_string_equal(
        f->why, "TIDEMARK_MAX_CONNECTIONS: expected a number between 1 and 1000, got 'many'");
    unsetenv("TIDEMARK_MAX_CONNECTIONS");
    unsetenv("TIDEMARK_DATA");
}

static void misspelt_variables_are_found(void **state)
{
    setenv("TIDEMARK_LISTNE", "a:1", 1);
    setenv("TIDEMARK_BIN", "somewhere", 1);
    size_t at = 0;
    struct str name = options_env_typo(&options, &at);
    assert_true(str_eq(name, STR("TIDEMARK_LISTNE")));
    assert_null(options_env_typo(&options, &at).p);
    unsetenv("TIDEMARK_LISTNE");
    unsetenv("TIDEMARK_BIN");
}

static void keys_of_a_file_are_set_and_unset(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(set(f, "public-url", "http://x"), 0);
    assert_string_equal(f->s.url, "http://x");
    assert_int_equal(set(f, "public-url", ""), 0);
    assert_null(f->s.url);
    assert_int_equal(set(f, "strict", "true"), 0);
    assert_true(f->s.strict);
    assert_int_equal(set(f, "pause", "soon"), ERR_SYNTAX);
    assert_int_equal(strncmp(f->why, "pause: expected", 15), 0);
    assert_int_equal(set(f, "max_body", "1m"), ERR_NOT_FOUND);
    assert_string_equal(f->why, "unknown setting max_body; did you mean max-body?");
}

static void help_shows_every_flag_within_80_columns(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    options_help(&options, to);
    fclose(to);
    for (size_t i = 0; i < options.n; i++)
        assert_non_null(strstr(text, rows[i].name));
    assert_non_null(strstr(text, "Network:\n  --listen HOST:PORT|unix:PATH\n      Where to"));
    assert_non_null(strstr(text, "\n\nOther:\n"));
    assert_non_null(strstr(text, "How large. (default: 64m)\n"));
    assert_non_null(strstr(text, "  --[no-]strict\n      Be strict. (default: no)\n"));
    assert_non_null(strstr(text, "      An address.\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 80);
    free(text);
}

/* A table with what sections of a file use besides. */
struct more {
    char *key, *secret;
    struct option_list words;
    int form;
    uint64_t count, size, ttl_ms;
};
#define MORE(f) .field = offsetof(struct more, f)
static int refuse(struct str value, char *reason, size_t size)
{
    snprintf(reason, size, "it is not right");
    return str_eq(value, STR("right")) ? 0 : ERR_SYNTAX;
}
static const struct option_row more_rows[] = {
    {.name = "key", .type = OPTION_TEXT, MORE(key), .required = true, .help = "A key."},
    {.name = "secret",
     .type = OPTION_TEXT,
     MORE(secret),
     .secret = true,
     .check = refuse,
     .help = "A secret."},
    {.name = "words",
     .type = OPTION_LIST,
     MORE(words),
     .commas = true,
     .required = true,
     .help = "Words."},
    {.name = "form", .type = OPTION_CHOICE, MORE(form), .value = "a|b", .help = "A form."},
    {.name = "count",
     .type = OPTION_NUMBER,
     MORE(count),
     .fallback = "256",
     .min = 1,
     .max = 1000,
     .fallback_env = "T_COUNT",
     .fallback_unit = 1,
     .help = "A count."},
    {.name = "size",
     .type = OPTION_SIZE,
     MORE(size),
     .fallback = "1536k",
     .max = 64 << 20,
     .fallback_env = "T_SIZE_MB",
     .fallback_unit = 1 << 20,
     .help = "A size."},
    {.name = "ttl",
     .type = OPTION_DURATION,
     MORE(ttl_ms),
     .fallback = "900s",
     .min = 1,
     .max = 86400000,
     .fallback_env = "T_TTL_SEC",
     .fallback_unit = 1000,
     .help = "A time."},
};
static const struct options more_options = {more_rows, sizeof more_rows / sizeof *more_rows};

static int set_more(struct more *m, const char *key, const char *value, char why[256])
{
    return options_set(&more_options, m, str_of_cstr(key), str_of_cstr(value), why, 256);
}

static void required_settings_are_missed(void **state)
{
    struct fixture *f = *state;
    struct more m;
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), 0);
    assert_int_equal(m.form, -1);
    assert_ptr_equal(options_missing(&more_options, &m), &more_rows[0]);
    assert_int_equal(set_more(&m, "key", "k", f->why), 0);
    assert_ptr_equal(options_missing(&more_options, &m), &more_rows[2]);
    assert_int_equal(set_more(&m, "words", "w", f->why), 0);
    assert_null(options_missing(&more_options, &m));
    assert_null(options_missing(&options, &f->s));
    assert_true(options_has(&more_options, STR("words")));
    assert_false(options_has(&more_options, STR("word")));
    options_free(&more_options, &m);
}

static void commas_separate_items_where_the_row_says_so(void **state)
{
    struct fixture *f = *state;
    struct more m;
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), 0);
    assert_int_equal(set_more(&m, "words", "a , b", f->why), 0);
    assert_int_equal(set_more(&m, "words", "c", f->why), 0);
    assert_int_equal(m.words.n, 3);
    assert_string_equal(m.words.items[0], "a");
    assert_string_equal(m.words.items[1], "b");
    assert_int_equal(set_more(&m, "words", "d,,e", f->why), ERR_SYNTAX);
    options_free(&more_options, &m);
    assert_int_equal(set(f, "listen", "a:1,b:2"), 0);
    assert_int_equal(f->s.listen.n, 1);
}

static void a_list_has_a_greatest_length(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < OPTION_ITEMS_MAX; i++)
        assert_int_equal(set(f, "listen", "a:1"), 0);
    assert_int_equal(set(f, "listen", "b:2"), ERR_SYNTAX);
    assert_string_equal(f->why, "listen 'b:2': more than 1000 are given");
    assert_int_equal(f->s.listen.n, OPTION_ITEMS_MAX);
}

static void errors_do_not_repeat_a_secret(void **state)
{
    struct fixture *f = *state;
    struct more m;
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), 0);
    assert_int_equal(set_more(&m, "secret", "hunter2", f->why), ERR_SYNTAX);
    assert_string_equal(f->why, "secret: it is not right");
    assert_int_equal(set_more(&m, "secret", "right", f->why), 0);
    options_free(&more_options, &m);
}

static void passwords_in_arguments_are_hidden(void **state)
{
    char flag[] = "--secret", apart[] = "redis://u:p@h", joined[] = "--secret=redis://:p@q@h/0";
    char plain[] = "--secret=right", other[] = "--count=a@b", end[] = "--",
         behind[] = "--secret=a@b";
    char *argv[] = {flag, apart, joined, plain, other, end, behind, NULL};
    options_hide_args(&more_options, 7, argv);
    assert_string_equal(apart, "redis://***@h");
    assert_string_equal(joined, "--secret=redis://****@h/0");
    assert_string_equal(plain, "--secret=right");
    assert_string_equal(other, "--count=a@b");
    assert_string_equal(behind, "--secret=a@b");
}

static void other_variables_may_give_a_default(void **state)
{
    static const struct {
        const char *value;
        uint64_t count;
    } cases[] = {
        {"7", 7},    {" 7 ", 7}, {"7.9", 7},  {"1e2", 100}, {"0", 256},   {"0.5", 256},
        {"-7", 256}, {"x", 256}, {"7x", 256}, {"", 256},    {"nan", 256}, {"inf", 256},
    };
    struct fixture *f = *state;
    struct more m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("T_COUNT", cases[i].value, 1);
        assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), 0);
        assert_int_equal(m.count, cases[i].count);
    }
    unsetenv("T_COUNT");
    assert_int_equal(m.size, 1536 << 10);
    assert_int_equal(m.ttl_ms, 900000);
    setenv("T_SIZE_MB", "2.25", 1);
    setenv("T_TTL_SEC", "0.25", 1);
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), 0);
    assert_int_equal(m.size, (2 << 20) + (256 << 10));
    assert_int_equal(m.ttl_ms, 250);
    setenv("T_SIZE_MB", "1e300", 1);
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), ERR_SYNTAX);
    assert_string_equal(f->why, "T_SIZE_MB: expected a size up to 64m, got '1e300'");
    setenv("T_SIZE_MB", "65", 1);
    assert_int_equal(options_defaults(&more_options, &m, f->why, sizeof f->why), ERR_SYNTAX);
    unsetenv("T_SIZE_MB");
    unsetenv("T_TTL_SEC");
}

static const char *guess(const char *word)
{
    static const char *const names[] = {"serve", "append", "tail", "ls", "rm", "version", "help"};
    struct suggest s = {.word = str_of_cstr(word)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        suggest_offer(&s, names[i]);
    return s.best ? s.best : "(none)";
}

static void the_nearest_name_is_suggested(void **state)
{
    assert_string_equal(guess("srve"), "serve");
    assert_string_equal(guess("sevre"), "serve");
    assert_string_equal(guess("server"), "serve");
    assert_string_equal(guess("apend"), "append");
    assert_string_equal(guess("tial"), "tail");
    assert_string_equal(guess("lss"), "ls");
    assert_string_equal(guess("vers"), "version");
    assert_string_equal(guess("xyzzy"), "(none)");
    assert_string_equal(guess("x"), "(none)");
    assert_string_equal(guess(""), "(none)");
    assert_string_equal(guess("a-word-that-is-much-too-long-to-be-any-of-the-names"), "(none)");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_taken_from_the_rows),
        TEST(flags_take_their_value_either_way),
        TEST(booleans_have_three_spellings),
        TEST(a_boolean_leaves_the_next_argument_alone),
        TEST(other_arguments_move_to_the_front_in_order),
        TEST(failure_leaves_arguments_as_they_were),
        TEST(help_is_asked_for_by_two_names),
        TEST(errors_name_the_flag_and_what_is_expected),
        TEST(a_flag_is_no_value),
        TEST(long_values_are_shortened_in_errors),
        TEST(zero_turns_off_where_the_row_says_so),
        TEST(each_source_starts_a_list_over),
        TEST(the_environment_is_read_and_empty_is_unset),
        TEST(misspelt_variables_are_found),
        TEST(keys_of_a_file_are_set_and_unset),
        TEST(required_settings_are_missed),
        TEST(commas_separate_items_where_the_row_says_so),
        TEST(a_list_has_a_greatest_length),
        TEST(errors_do_not_repeat_a_secret),
        TEST(passwords_in_arguments_are_hidden),
        TEST(other_variables_may_give_a_default),
        TEST(help_shows_every_flag_within_80_columns),
        TEST(the_nearest_name_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
