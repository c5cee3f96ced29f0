// SPDX-License-Identifier: Apache-2.0
/* fuzz_responses.c -- requests and events of the Responses API that nobody would send.
 *
 * The first byte chooses. Requests (even): the text is parsed, rewritten and listed. Events (odd):
 * one a line, mended and folded. It stops when what comes out is no JSON, or larger than promised;
 * when numbers do not count; when places or ids are missing that clients need; when mending what
 * was mended changes a byte; when the fold holds more than its limit. */
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/num.h"
#include "feature/gateway/fold.h"
#include "feature/gateway/responses_body.h"
#include "feature/gateway/responses_mend.h"
#include "feature/gateway/responses_request.h"

#include <stdio.h>
#include <stdlib.h>

#define FOLD_MAX 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_responses: %s\n", what);
    abort();
}

static bool is_json(struct str text)
{
    size_t at;
    return json_check(text, &at) == 0;
}

/* Its own copy, so that ASan sees a read past it. */
static char *copy_of(struct str s)
{
    char *copy = malloc(s.n + (s.n == 0));
    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    return copy;
}

/* ---- requests ---- */

static void check_list(struct str items, bool descending)
{
    struct responses_page page = {.id = STR("r"), .limit = 3, .descending = descending};
    struct buf out = {0}, after = {0};
    for (int pages = 0; pages < 100; pages++) {
        struct view_want wants[] = {{.name = STR("last_id")}, {.name = STR("has_more")}};
        out.n = 0;
        int err = responses_put_list(&out, items, &page);
        check(err == 0, "the last of a page is not found");
        check(is_json(buf_str(&out)), "a list is no JSON");
        view_pick(buf_str(&out), wants, 2);
        if (!str_eq(wants[1].value, STR("true")))
            break;
        after.n = 0;
        view_decode(view_inside(wants[0].value), &after);
        page.after = buf_str(&after);
    }
    buf_deinit(&out);
    buf_deinit(&after);
}

static void fuzz_request(struct str text)
{
    struct responses_request r;
    struct buf out = {0}, items = {0};
    if (responses_request_parse(&r, text) == ERR_JSON)
        return;
    check(responses_request_put(&out, &r, false, STR_NONE, 1 << 20) == 0 && is_json(buf_str(&out)),
          "what the upstream gets is no JSON");
    buf_putc(&items, '[');
    responses_put_input(&items, r.input);
    buf_putc(&items, ']');
    check(is_json(buf_str(&items)), "the items are no JSON");
    check_list(buf_str(&items), false);
    check_list(buf_str(&items), true);
    struct str stored = buf_str(&items);
    struct buf context = {0};
    responses_put_context(&context, stored, r.body);
    out.n = 0;
    check(responses_request_put(&out, &r, true, buf_str(&context), 1 << 20) == 0 &&
              is_json(buf_str(&out)),
          "what the upstream gets of two turns is no JSON");
    out.n = 0;
    responses_put_queued(&out, &r, STR("resp_1"), 1);
    check(is_json(buf_str(&out)), "a queued response is no JSON");
    for (int end = END_NONE; end <= END_EXPIRED; end++) {
        out.n = 0;
        responses_put_ended(&out, r.body, (enum end_reason)end, text);
        check(is_json(buf_str(&out)), "an ended response is no JSON");
    }
    buf_deinit(&context);
    buf_deinit(&items);
    buf_deinit(&out);
}

/* ---- events ---- */

struct stream {
    struct buf events; /* TYPE LF DATA LF */
    uint64_t n;
    struct fold *fold;
};

static void check_number(struct str data, uint64_t wanted)
{
    struct view_want seq = {.name = STR("sequence_number")};
    uint64_t n;
    view_pick(data, &seq, 1);
    check(num_parse_canonical(seq.value, UINT64_MAX, &n) == 0 && n == wanted, "a wrong number");
}

static int take(void *ctx, struct str type, struct str data)
{
    struct stream *s = ctx;
    struct str object = view_trim(data);
    if (object.n > 0 && object.p[0] == '{' && is_json(object))
        check_number(object, s->n);
    s->n++;
    buf_put(&s->events, type);
    buf_putc(&s->events, '\n');
    buf_put(&s->events, data); /* a line of the input, or made of one */
    buf_putc(&s->events, '\n');
    fold_feed(s->fold, type, data);
    check(fold_size(s->fold) <= FOLD_MAX, "more is held than the limit");
    return 1;
}

static void mend_line(struct responses_mend *m, struct stream *s, struct str type, struct str line)
{
    char *copy = copy_of(line);
    responses_mend_event(m, type, str_of(copy, line.n), take, s);
    free(copy);
}

static struct responses_mend *make_mend(bool background)
{
    return responses_mend_new(&(struct responses_mend_config){
        .response_id = STR("resp_0"), .model = STR("\"m\""), .background = background});
}

static void fuzz_events(struct str text, bool background)
{
    struct responses_mend *m = make_mend(background), *again = make_mend(background);
    struct stream first = {.fold = fold_new(FOLD_RESPONSES, FOLD_MAX)};
    struct stream second = {.fold = fold_new(FOLD_RESPONSES, FOLD_MAX)};
    struct buf out = {0};
    for (struct str rest = text; rest.n > 0;) {
        struct str line = str_cut(&rest, '\n'), type = STR("message");
        if (line.n > 0 && line.p[0] == 'r') /* TYPE SPACE DATA */
            type = str_cut(&line, ' ');
        mend_line(m, &first, type, line);
    }
    for (struct str rest = buf_str(&first.events); rest.n > 0;) {
        struct str type = str_cut(&rest, '\n');
        mend_line(again, &second, type, str_cut(&rest, '\n'));
    }
    check(str_eq(buf_str(&first.events), buf_str(&second.events)), "mended twice is not the same");
    if (fold_put(first.fold, &out) == 0) {
        check(is_json(buf_str(&out)), "the snapshot is no JSON");
        check(out.n <= 2 * fold_size(first.fold) + 1024, "the snapshot is larger than it may be");
    }
    buf_deinit(&out);
    buf_deinit(&first.events);
    buf_deinit(&second.events);
    fold_free(first.fold);
    fold_free(second.fold);
    responses_mend_free(m);
    responses_mend_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    struct str text = str_of((const char *)data + 1, n - 1);
    char *copy = copy_of(text);
    text.p = copy;
    if (data[0] % 2 == 0)
        fuzz_request(text);
    else
        fuzz_events(text, data[0] % 4 == 3);
    free(copy);
    return 0;
}
