// SPDX-License-Identifier: Apache-2.0
#include "base/sections.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

struct pier {
    char *name, *owner;
    uint64_t boats;
    bool finished;
};

struct harbour {
    struct section_list piers, light;
};

struct light {
    uint64_t period_ms;
};

static int check_pier(struct str name, char *reason, size_t size)
{
    if (name.p[0] >= 'A' && name.p[0] <= 'Z')
        return 0;
    snprintf(reason, size, "a pier begins with a capital");
    return ERR_SYNTAX;
}

static int finish_pier(void *section, char *reason, size_t size)
{
    struct pier *p = section;
    p->finished = true;
    if (p->boats != 13)
        return 0;
    snprintf(reason, size, "13 boats are bad luck");
    return ERR_SYNTAX;
}

static const struct option_row pier_rows[] = {
    {.name = "owner",
     .type = OPTION_TEXT,
     .field = offsetof(struct pier, owner),
     .required = true,
     .value = "PERSON",
     .help = "Whose it is."},
    {.name = "boats",
     .type = OPTION_NUMBER,
     .field = offsetof(struct pier, boats),
     .fallback = "2",
     .help = "How many."},
};
static const struct options pier_options = {pier_rows, 2};
static const struct option_row light_rows[] = {
    {.name = "period",
     .type = OPTION_DURATION,
     .field = offsetof(struct light, period_ms),
     .fallback = "5s",
     .help = "How slowly."},
};
static const struct options light_options = {light_rows, 1};

static const struct section_kind kind_rows[] = {
    {.word = "pier",
     .name = "NAME",
     .help = "A place for boats.",
     .options = &pier_options,
     .size = sizeof(struct pier),
     .name_field = offsetof(struct pier, name),
     .list_field = offsetof(struct harbour, piers),
     .check_name = check_pier,
     .finish = finish_pier},
    {.word = "light",
     .help = "The light.",
     .options = &light_options,
     .size = sizeof(struct light),
     .list_field = offsetof(struct harbour, light)},
};
static const struct section_kinds kinds = {.rows = kind_rows, .n = 2};

struct fixture {
    struct harbour h;
    struct section open;
    char why[256];
};

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sections_free(&kinds, &f->h);
    sections_free(&kinds, &f->h);
    free(f);
    return 0;
}

static int begin(struct fixture *f, const char *header)
{
    return sections_open(&kinds, &f->h, str_of_cstr(header), &f->open, f->why, sizeof f->why);
}

static int set(struct fixture *f, const char *key, const char *value)
{
    return options_set(f->open.kind->options, f->open.settings, str_of_cstr(key),
                       str_of_cstr(value), f->why, sizeof f->why);
}

static int finish(struct fixture *f)
{
    return section_finish(&f->open, f->why, sizeof f->why);
}

static void sections_become_structs_in_order(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(begin(f, "pier North"), 0);
    assert_int_equal(set(f, "owner", "Ann"), 0);
    assert_int_equal(finish(f), 0);
    assert_int_equal(begin(f, " \tpier   Old South "), 0);
    assert_int_equal(set(f, "owner", "Ben"), 0);
    assert_int_equal(set(f, "boats", "7"), 0);
    assert_int_equal(finish(f), 0);
    assert_int_equal(begin(f, "light"), 0);
    assert_int_equal(finish(f), 0);

    const struct pier *piers = f->h.piers.items;
    assert_int_equal(f->h.piers.n, 2);
    assert_string_equal(piers[0].name, "North");
    assert_string_equal(piers[0].owner, "Ann");
    assert_int_equal(piers[0].boats, 2);
    assert_string_equal(piers[1].name, "Old South");
    assert_int_equal(piers[1].boats, 7);
    assert_true(piers[1].finished);
    assert_int_equal(f->h.light.n, 1);
    assert_int_equal(((struct light *)f->h.light.items)->period_ms, 5000);
    assert_ptr_equal(sections_find(&kind_rows[0], &f->h, STR("North")), &piers[0]);
    assert_null(sections_find(&kind_rows[0], &f->h, STR("Nort")));
}

static void headers_are_checked(void **state)
{
    static const struct {
        const char *header, *why;
    } cases[] = {
        {"peir North", "unknown section [peir]; did you mean [pier NAME]?"},
        {"ligth", "unknown section [ligth]; did you mean [light]?"},
        {"server", "unknown section [server]; there are [pier NAME] and [light]"},
        {"", "unknown section []; there are [pier NAME] and [light]"},
        {"pier", "the section needs a name: [pier NAME]"},
        {"pier  ", "the section needs a name: [pier NAME]"},
        {"pier north", "[pier north]: a pier begins with a capital"},
        {"light red", "a section [light] takes no name"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(begin(f, cases[i].header), ERR_SYNTAX);
        assert_string_equal(f->why, cases[i].why);
    }
    assert_int_equal(f->h.piers.n + f->h.light.n, 0);
}

static void a_name_has_a_greatest_length(void **state)
{
    struct fixture *f = *state;
    char header[5 + SECTION_NAME_MAX + 2] = "pier ";
    memset(header + 5, 'N', SECTION_NAME_MAX + 1);
    assert_int_equal(begin(f, header), ERR_SYNTAX);
    assert_non_null(strstr(f->why, "NNN]: the name is longer than 128 bytes"));
    header[5 + SECTION_NAME_MAX] = '\0';
    assert_int_equal(begin(f, header), 0);
}

static void a_section_is_there_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(begin(f, "pier North"), 0);
    assert_int_equal(begin(f, "pier North"), ERR_SYNTAX);
    assert_string_equal(f->why, "there is a section [pier North] already");
    assert_int_equal(begin(f, "light"), 0);
    assert_int_equal(begin(f, "light"), ERR_SYNTAX);
    assert_string_equal(f->why, "there is a section [light] already");
    assert_int_equal(f->h.piers.n, 1);
}

static void an_unfinished_section_is_told_what_it_needs(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(begin(f, "pier North"), 0);
    assert_int_equal(finish(f), ERR_SYNTAX);
    assert_string_equal(f->why, "[pier North] needs a line `owner = PERSON`");
    assert_int_equal(set(f, "owner", "Ann"), 0);
    assert_int_equal(set(f, "boats", "13"), 0);
    assert_int_equal(finish(f), ERR_SYNTAX);
    assert_string_equal(f->why, "[pier North]: 13 boats are bad luck");
}

static void there_are_not_more_than_the_most(void **state)
{
    struct fixture *f = *state;
    char name[16];
    for (int i = 0; i < SECTIONS_MAX; i++) {
        snprintf(name, sizeof name, "P%d", i);
        assert_int_equal(
            sections_add(&kind_rows[0], &f->h, str_of_cstr(name), &f->open, f->why, sizeof f->why),
            0);
    }
    assert_int_equal(begin(f, "pier One-more"), ERR_SYNTAX);
    assert_string_equal(f->why, "there are more than 1000 sections [pier]");
    assert_int_equal(f->h.piers.n, SECTIONS_MAX);
    assert_int_equal(begin(f, "light"), 0);
}

static void help_names_kinds_and_settings(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    sections_help(&kinds, to);
    fclose(to);
    assert_string_equal(text, "  [pier NAME]\n"
                              "      A place for boats. Settings: owner, boats.\n"
                              "  [light]\n"
                              "      The light. Settings: period.\n");
    free(text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(sections_become_structs_in_order),
        TEST(headers_are_checked),
        TEST(a_name_has_a_greatest_length),
        TEST(a_section_is_there_once),
        TEST(an_unfinished_section_is_told_what_it_needs),
        TEST(there_are_not_more_than_the_most),
        TEST(help_names_kinds_and_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
