// SPDX-License-Identifier: Apache-2.0
/* What the rows of features say fits together, and fits what stores know of names. */
#include "feature/feature.h"
#include "base/str.h"
#include "store/names.h"
#include "stream/instances.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- names ---- */

static const struct feature_names *streams_of(const struct feature *f)
{
    static const struct feature_names none[] = {{0}};
    return f->streams != NULL ? f->streams : none;
}

static const char *const *documents_of(const struct feature *f)
{
    static const char *const none[] = {NULL};
    return f->documents != NULL ? f->documents : none;
}

static int owners_of_stream(struct str prefix)
{
    int n = 0;
    for (size_t i = 0; features[i] != NULL; i++)
        for (const struct feature_names *s = streams_of(features[i]); s->prefix != NULL; s++)
            n += str_eq(str_of_cstr(s->prefix), prefix);
    return n;
}

static int owners_of_document(struct str key)
{
    int n = str_starts(key, STR(INSTANCE_DOCUMENTS));
    for (size_t i = 0; features[i] != NULL; i++)
        for (const char *const *d = documents_of(features[i]); *d != NULL; d++)
            n += str_starts(key, str_of_cstr(*d));
    return n;
}

static void test_hidden_streams_are_reserved_and_no_others(void **state)
{
    for (size_t i = 0; features[i] != NULL; i++)
        for (const struct feature_names *s = streams_of(features[i]); s->prefix != NULL; s++) {
            const struct store_names *reserved = store_names_of(str_of_cstr(s->prefix));
            if (s->hidden != (reserved != NULL) ||
                (reserved != NULL && !str_eq(reserved->prefix, str_of_cstr(s->prefix))))
                fail_msg("%s: %s is not in store/names.c as it says", features[i]->name, s->prefix);
            assert_int_equal(owners_of_stream(str_of_cstr(s->prefix)), 1);
        }
}

static void test_documents_have_one_owner(void **state)
{
    assert_int_equal(owners_of_document(STR(INSTANCE_DOCUMENTS)), 1);
    for (size_t i = 0; features[i] != NULL; i++)
        for (const char *const *d = documents_of(features[i]); *d != NULL; d++)
            if (owners_of_document(str_of_cstr(*d)) != 1)
                fail_msg("%s: documents of others begin as %s", features[i]->name, *d);
}

static void test_names_that_stores_know_have_owners(void **state)
{
    if (features_absent[0].name != NULL)
        skip();
    for (const struct store_names *n = store_names; n->prefix.n > 0; n++)
        assert_int_equal(owners_of_stream(n->prefix), 1);
    for (const struct store_doc_group *g = store_doc_groups; g->prefix.n > 0; g++)
        assert_int_equal(owners_of_document(g->prefix), 1);
}

/* ---- traces ---- */

static size_t count_kind(const struct trace_kind *const *table, const char *name)
{
    size_t n = 0;
    for (; table != NULL && *table != NULL; table++)
        n += strcmp((*table)->name, name) == 0;
    return n;
}

static void assert_unique(const struct trace_kind *const *table)
{
    for (; table != NULL && *table != NULL; table++) {
        size_t n = count_kind(server_traces, (*table)->name);
        for (size_t i = 0; features[i] != NULL; i++)
            n += count_kind(features[i]->traces, (*table)->name);
        if (n != 1)
            fail_msg("%zu traces are called %s", n, (*table)->name);
    }
}

static void test_kinds_of_traces_are_unique(void **state)
{
    assert_unique(server_traces);
    for (size_t i = 0; features[i] != NULL; i++)
        assert_unique(features[i]->traces);
}

static void test_troubles_are_told_by_a_number(void **state)
{
    for (size_t i = 0; features[i] != NULL; i++) {
        const struct feature_trouble *t = features[i]->troubles;
        for (; t != NULL && t->count != NULL; t++) {
            assert_int_equal(count_kind(features[i]->traces, t->told->name), 1);
            const char *value = strstr(t->told->text, "{}");
            assert_non_null(value);
            assert_null(strstr(value + 2, "{}"));
        }
    }
}

/* ---- order ---- */

static size_t row_of(const char *name)
{
    for (size_t i = 0; features[i] != NULL; i++)
        if (strcmp(features[i]->name, name) == 0)
            return i;
    fail_msg("there is no feature %s", name);
    return 0;
}

static void test_features_stand_behind_those_they_need(void **state)
{
    for (size_t i = 0; features[i] != NULL; i++)
        for (const char *const *n = features[i]->needs; n != NULL && *n != NULL; n++)
            assert_true(row_of(*n) < i);
}

/* Those are looked for when the tools open. */
static void test_features_that_offer_tools_stand_before_them(void **state)
{
    size_t tools = row_of("tools");
    for (size_t i = 0; features[i] != NULL; i++)
        if (features[i]->tools != NULL && i > tools)
            fail_msg("%s offers tools, and stands behind the feature tools", features[i]->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_streams_are_reserved_and_no_others),
        cmocka_unit_test(test_documents_have_one_owner),
        cmocka_unit_test(test_names_that_stores_know_have_owners),
        cmocka_unit_test(test_kinds_of_traces_are_unique),
        cmocka_unit_test(test_troubles_are_told_by_a_number),
        cmocka_unit_test(test_features_stand_behind_those_they_need),
        cmocka_unit_test(test_features_that_offer_tools_stand_before_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
