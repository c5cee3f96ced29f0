// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "feature/cascade/cascade_models.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a server's answer, written field by field ---- */

static void put_varint(struct buf *out, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        buf_putc(out, (char)(v | 128));
    buf_putc(out, (char)v);
}

static void put_number(struct buf *out, uint32_t field, uint64_t v)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, v);
}

static void put_bytes(struct buf *out, uint32_t field, struct str s)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, s.n);
    buf_put(out, s);
}

struct entry {
    const char *label, *uid;
    int64_t number;
    bool is_new, disabled;
    const char *reason;
};

static void put_entry(struct buf *out, const struct entry *e)
{
    struct buf config = {0}, model = {0};
    if (e->label != NULL)
        put_bytes(&config, 1, str_of_cstr(e->label));
    if (e->number != 0) {
        put_number(&model, 1, (uint64_t)e->number);
        put_bytes(&config, 2, buf_str(&model));
    }
    put_bytes(&config, 3 + 100, STR("a field of the future"));
    if (e->disabled)
        put_number(&config, 4, 1);
    if (e->is_new)
        put_number(&config, 15, 1);
    if (e->uid != NULL)
        put_bytes(&config, 22, str_of_cstr(e->uid));
    if (e->reason != NULL)
        put_bytes(&config, 33, str_of_cstr(e->reason));
    put_bytes(out, 1, buf_str(&config));
    buf_deinit(&config);
    buf_deinit(&model);
}

/* data: a CascadeModelConfigData. */
static void wrap(struct buf *data)
{
    struct buf status = {0}, answer = {0};
    put_bytes(&status, 33, buf_str(data));
    put_bytes(&answer, 1, buf_str(&status));
    buf_deinit(&status);
    buf_deinit(data);
    *data = answer;
}

static int read_entries(struct arena *a, const struct entry *entries, size_t n,
                        const char *default_uid, struct cascade_models *out)
{
    struct buf data = {0}, preset = {0};
    for (size_t i = 0; i < n; i++)
        put_entry(&data, &entries[i]);
    if (default_uid != NULL) {
        put_bytes(&preset, 3, str_of_cstr(default_uid));
        put_bytes(&data, 3, buf_str(&preset));
    }
    wrap(&data);
    int err = cascade_models_read(a, buf_str(&data), out);
    buf_deinit(&data);
    buf_deinit(&preset);
    return err;
}

#define READ(a, entries, preset, out)                                                              \
    read_entries(a, entries, sizeof(entries) / sizeof *(entries), preset, out)

static void assert_str(struct str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void assert_found(const struct cascade_models *m, const char *name, const char *uid)
{
    const struct cascade_model *found = cascade_models_find(m, str_of_cstr(name));
    assert_non_null(found);
    assert_str(found->uid, uid);
}

/* ---- tests ---- */

static void the_vector_is_read(void **state)
{
    static const char hex[] =
        "0a388a02350a330a16436c61756465204f70757320342e37204d656469756d7801b20116636c617564652d6f"
        "7075732d342d372d6d656469756d";
    struct arena a = {0};
    struct buf bytes = {0};
    struct cascade_models m;
    unsigned v;
    for (const char *p = hex; sscanf(p, "%2x", &v) == 1; p += 2)
        buf_putc(&bytes, (char)v);
    assert_int_equal(cascade_models_read(&a, buf_str(&bytes), &m), 0);
    buf_deinit(&bytes);
    assert_int_equal(m.n, 1);
    assert_str(m.items[0].label, "Claude Opus 4.7 Medium");
    assert_str(m.items[0].uid, "claude-opus-4-7-medium");
    assert_true(m.items[0].is_new && !m.items[0].disabled && !m.items[0].is_private);
    assert_int_equal(m.items[0].number, 0);
    assert_int_equal(m.default_uid.n, 0);
    arena_deinit(&a);
}

static const struct entry account[] = {
    {.label = "Claude Sonnet 4.5", .uid = "MODEL_PRIVATE_2", .number = 220},
    {.label = "Claude Opus 4.5", .uid = "MODEL_CLAUDE_4_5_OPUS", .number = 391},
    {.label = "Grok Code Fast 1", .number = 222}, /* a slot by its number alone */
    {.label = "Claude Sonnet 4.5", .uid = "claude-sonnet-4-5", .is_new = true},
    {.label = "Kimi K2.6", .uid = "kimi-k2-6", .disabled = true, .reason = "not in your plan"},
    {.label = "No way to ask for it", .number = 77},
    {.uid = "deepseek-v4"},
    {.label = "The same again", .uid = "deepseek-v4"},
    {.label = "With a space", .uid = "deep seek"},
};

static void slots_come_last(void **state)
{
    static const char *const uids[] = {
        "MODEL_CLAUDE_4_5_OPUS", "claude-sonnet-4-5", "kimi-k2-6",
        "deepseek-v4",           "MODEL_PRIVATE_2",   "MODEL_PRIVATE_4"};
    struct arena a = {0};
    struct cascade_models m;
    assert_int_equal(READ(&a, account, "kimi-k2-6", &m), 0);
    assert_int_equal(m.n, sizeof uids / sizeof *uids);
    for (size_t i = 0; i < m.n; i++)
        assert_str(m.items[i].uid, uids[i]);
    assert_int_equal(m.items[0].number, 391);
    assert_true(m.items[1].is_new);
    assert_true(m.items[2].disabled);
    assert_str(m.items[2].disabled_reason, "not in your plan");
    assert_str(m.items[3].label, "deepseek-v4");
    assert_true(m.items[4].is_private && m.items[5].is_private && !m.items[3].is_private);
    assert_str(m.default_uid, "kimi-k2-6");
    arena_deinit(&a);
}

static void names_are_resolved(void **state)
{
    struct arena a = {0};
    struct cascade_models m;
    assert_int_equal(READ(&a, account, "not-there", &m), 0);
    assert_int_equal(m.default_uid.n, 0);
    assert_found(&m, "claude-sonnet-4-5", "claude-sonnet-4-5");
    assert_found(&m, "Claude Sonnet 4.5", "claude-sonnet-4-5"); /* not the slot of that label */
    assert_found(&m, "claude OPUS 4.5", "MODEL_CLAUDE_4_5_OPUS");
    assert_found(&m, "MODEL_PRIVATE_2", "MODEL_PRIVATE_2");
    assert_found(&m, "PRIVATE_2", "MODEL_PRIVATE_2");
    assert_found(&m, "PRIVATE_4", "MODEL_PRIVATE_4");
    assert_found(&m, "grok code fast 1", "MODEL_PRIVATE_4");
    assert_null(cascade_models_find(&m, STR("PRIVATE_3")));
    assert_null(cascade_models_find(&m, STR("CLAUDE_4_5_OPUS")));
    assert_null(cascade_models_find(&m, STR("Claude-Sonnet-4-5"))); /* a UID is to the letter */
    assert_null(cascade_models_find(&m, STR("")));
    arena_deinit(&a);
}

static void slots_are_what_the_account_says(void **state)
{
    static const struct entry other[] = {
        {.label = "GPT-5 Low Thinking", .uid = "MODEL_PRIVATE_2", .number = 220}};
    struct arena a = {0};
    struct cascade_models m;
    assert_int_equal(READ(&a, other, NULL, &m), 0);
    assert_str(cascade_models_find(&m, STR("PRIVATE_2"))->label, "GPT-5 Low Thinking");
    arena_deinit(&a);
}

/* Thirty slots in six runs of numbers, and no others. */
static void slots_have_their_numbers(void **state)
{
    static const struct {
        int number, slot; /* 0: none */
    } cases[] = {{218, 0},  {219, 1},  {223, 5},  {224, 0},  {313, 0}, {314, 6},  {318, 10},
                 {319, 0},  {347, 11}, {348, 12}, {351, 15}, {352, 0}, {363, 16}, {367, 20},
                 {372, 21}, {376, 25}, {380, 26}, {384, 30}, {385, 0}, {-219, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = {0};
        struct cascade_models m;
        struct entry e[] = {{.label = "x", .number = cases[i].number}};
        char uid[32];
        assert_int_equal(READ(&a, e, NULL, &m), 0);
        assert_int_equal(m.n, cases[i].slot > 0);
        snprintf(uid, sizeof uid, "MODEL_PRIVATE_%d", cases[i].slot);
        if (m.n > 0)
            assert_str(m.items[0].uid, uid);
        arena_deinit(&a);
    }
}

static void answers_without_models_have_none(void **state)
{
    struct arena a = {0};
    struct cascade_models m = {.n = 7};
    assert_int_equal(cascade_models_read(&a, STR(""), &m), 0);
    assert_int_equal(m.n, 0);
    assert_int_equal(cascade_models_read(&a, STR("\x0a\x00"), &m), 0);
    assert_int_equal(m.n, 0);
    assert_null(cascade_models_find(&m, STR("x")));
    arena_deinit(&a);
}

static void what_is_malformed_is_refused(void **state)
{
    static const struct entry no_text[] = {{.label = "\xff", .uid = "a"}};
    static const struct entry no_reason[] = {{.label = "a", .uid = "a", .reason = "\xc3"}};
    struct arena a = {0};
    struct cascade_models m = {.n = 7};
    assert_int_equal(READ(&a, no_text, NULL, &m), ERR_SYNTAX);
    assert_int_equal(READ(&a, no_reason, NULL, &m), ERR_SYNTAX);
    assert_int_equal(cascade_models_read(&a, STR("\x0a\x05\x8a\x02"), &m), ERR_SYNTAX);
    assert_int_equal(m.n, 7);
    arena_deinit(&a);
}

static void models_are_counted(void **state)
{
    static struct entry many[CASCADE_MODELS_MAX + 1];
    static char uids[CASCADE_MODELS_MAX + 1][8];
    struct arena a = {0};
    struct cascade_models m;
    for (size_t i = 0; i < CASCADE_MODELS_MAX + 1; i++) {
        snprintf(uids[i], sizeof uids[i], "m%zu", i);
        many[i] = (struct entry){.uid = uids[i]};
    }
    assert_int_equal(read_entries(&a, many, CASCADE_MODELS_MAX, NULL, &m), 0);
    assert_int_equal(m.n, CASCADE_MODELS_MAX);
    assert_int_equal(read_entries(&a, many, CASCADE_MODELS_MAX + 1, NULL, &m), ERR_TOO_LARGE);
    arena_deinit(&a);
}

static void uids_have_an_end(void **state)
{
    char uid[CASCADE_MODEL_UID_MAX + 2];
    struct arena a = {0};
    struct cascade_models m;
    struct entry e[] = {{.label = "x", .uid = uid}};
    memset(uid, 'u', sizeof uid);
    uid[CASCADE_MODEL_UID_MAX + 1] = '\0';
    assert_int_equal(READ(&a, e, NULL, &m), 0);
    assert_int_equal(m.n, 0);
    uid[CASCADE_MODEL_UID_MAX] = '\0';
    assert_int_equal(READ(&a, e, NULL, &m), 0);
    assert_int_equal(m.n, 1);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vector_is_read),
        cmocka_unit_test(slots_come_last),
        cmocka_unit_test(names_are_resolved),
        cmocka_unit_test(slots_are_what_the_account_says),
        cmocka_unit_test(slots_have_their_numbers),
        cmocka_unit_test(answers_without_models_have_none),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(models_are_counted),
        cmocka_unit_test(uids_have_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
