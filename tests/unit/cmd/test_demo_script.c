// SPDX-License-Identifier: Apache-2.0
/* What the demo backend sends, read by those who read such streams: the SSE parser and the folds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "cmd/demo_script.h"
#include "feature/gateway/fold.h"
#include "http/sse_host.h"

#include <stdio.h>

static struct demo_script script(enum demo_dialect dialect, uint64_t tokens)
{
    return (struct demo_script){
        .dialect = dialect, .tokens = tokens, .number = 7, .created_s = 1762000000};
}

static void put_all(const struct demo_script *s, struct buf *out)
{
    for (uint64_t i = 0; i < demo_events(s); i++)
        demo_put_event(s, i, out);
}

/* ---- the text ---- */

static void test_tokens_make_the_text(void **state)
{
    static const uint64_t lengths[] = {1, 2, 200, 500};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        struct buf text = {0}, tokens = {0};
        demo_put_text(lengths[k], &text);
        for (uint64_t i = 0; i < lengths[k]; i++)
            demo_put_token(i, &tokens);
        assert_true(str_eq(buf_str(&text), buf_str(&tokens)));
        uint64_t blanks = 0;
        for (size_t i = 0; i < text.n; i++)
            blanks += text.p[i] == ' ';
        assert_int_equal(blanks, lengths[k] - 1);
        assert_true(str_starts(buf_str(&text), STR("The")));
        buf_deinit(&text);
        buf_deinit(&tokens);
    }
}

/* The recorder of a route takes events of up to a megabyte. */
static void test_the_longest_text_fits_in_an_event(void **state)
{
    struct demo_script s = script(DEMO_SSE, DEMO_TOKENS_MAX);
    struct buf last = {0};
    demo_put_event(&s, demo_events(&s) - 1, &last);
    assert_in_range(last.n, DEMO_TOKENS_MAX, 1 << 20);
    buf_deinit(&last);
}

static void test_tokens_are_counted(void **state)
{
    for (int d = DEMO_SSE; d <= DEMO_UI_MESSAGE; d++) {
        struct demo_script s = script((enum demo_dialect)d, 3);
        assert_int_equal(demo_tokens_upto(&s, 0), 0);
        assert_int_equal(demo_tokens_upto(&s, demo_events(&s) - 1), 3);
        uint64_t said = 0;
        for (uint64_t i = 0; i < demo_events(&s); i++) {
            struct buf event = {0}, token = {0};
            demo_put_event(&s, i, &event);
            if (demo_tokens_upto(&s, i) > said) {
                demo_put_token(said++, &token);
                buf_putc(&token, '\0');
                buf_putc(&event, '\0');
                assert_non_null(strstr(event.p, token.p));
            }
            buf_deinit(&event);
            buf_deinit(&token);
        }
        assert_int_equal(said, 3);
    }
}

/* ---- the dialects ---- */

static void test_sse_in_full(void **state)
{
    struct demo_script s = script(DEMO_SSE, 2);
    struct buf all = {0};
    put_all(&s, &all);
    buf_putc(&all, '\0');
    assert_string_equal(all.p, "event: stage\ndata: {\"stage\":\"DRAFTING\"}\n\n"
                               "event: token\ndata: {\"text\":\"The\"}\n\n"
                               "event: token\ndata: {\"text\":\" tide\"}\n\n"
                               "event: stage\ndata: {\"stage\":\"COMPLETE\",\"payload\":"
                               "{\"text\":\"The tide\",\"tokens\":2}}\n\n");
    buf_deinit(&all);
}

struct folding {
    struct fold *fold;
    uint64_t events;
};

static int on_event(void *user, const struct sse_event *event)
{
    struct folding *f = user;
    f->events++;
    return fold_feed(f->fold, event->type, event->data);
}

static void feed(struct folding *f, struct str bytes)
{
    struct sse_parser p;
    sse_parser_init(&p, &sse_server_host, NULL, 1 << 20, f, on_event);
    assert_int_equal(sse_parser_feed(&p, bytes), 0);
    sse_parser_deinit(&p);
}

/* All of it, folded: the snapshot as a NUL-terminated text. */
static void fold_all(enum demo_dialect dialect, enum fold_kind kind, uint64_t tokens,
                     struct buf *out)
{
    struct demo_script s = script(dialect, tokens);
    struct folding f = {.fold = fold_new(kind, 1 << 20)};
    struct buf all = {0};
    put_all(&s, &all);
    feed(&f, buf_str(&all));
    assert_int_equal(f.events, demo_events(&s));
    assert_int_equal(fold_skipped(f.fold), 0);
    assert_int_equal(fold_end(f.fold), FOLD_COMPLETE);
    assert_int_equal(fold_put(f.fold, out), 0);
    buf_putc(out, '\0');
    buf_deinit(&all);
    fold_free(f.fold);
}

static void check_text_in(enum demo_dialect dialect, enum fold_kind kind, const char *before)
{
    struct buf snapshot = {0}, expected = {0}, text = {0};
    fold_all(dialect, kind, 250, &snapshot);
    demo_put_text(250, &text);
    buf_put(&expected, str_of_cstr(before));
    json_put_string(&expected, buf_str(&text));
    buf_putc(&expected, '\0');
    if (strstr(snapshot.p, expected.p) == NULL)
        fail_msg("%s is not in %s", expected.p, snapshot.p);
    buf_deinit(&snapshot);
    buf_deinit(&expected);
    buf_deinit(&text);
}

static void test_every_dialect_folds_to_the_text(void **state)
{
    check_text_in(DEMO_SSE, FOLD_LAST, "{\"text\":");
    check_text_in(DEMO_OPENAI, FOLD_OPENAI, "\"content\":");
    check_text_in(DEMO_UI_MESSAGE, FOLD_UI_MESSAGE, "\"text\":");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_make_the_text),
        cmocka_unit_test(test_the_longest_text_fits_in_an_event),
        cmocka_unit_test(test_tokens_are_counted),
        cmocka_unit_test(test_sse_in_full),
        cmocka_unit_test(test_every_dialect_folds_to_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
