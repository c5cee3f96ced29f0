// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/responses_request.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_edit.h"
#include "base/json_view.h"

static bool is_true(struct str value)
{
    return str_eq(value, STR("true"));
}

int responses_request_parse(struct responses_request *r, struct str body)
{
    enum { STREAM, BACKGROUND, STORE, MODEL, PREVIOUS, INPUT, N };
    struct view_want wants[N] = {
        [STREAM] = {.name = STR_INIT("stream")}, [BACKGROUND] = {.name = STR_INIT("background")},
        [STORE] = {.name = STR_INIT("store")},   [MODEL] = {.name = STR_INIT("model")},
        [INPUT] = {.name = STR_INIT("input")},   [PREVIOUS] = {.name = STR("previous_response_id")},
    };
    size_t at;
    body = view_trim(body);
    if (body.n == 0 || body.p[0] != '{' || json_check(body, &at) != 0)
        return ERR_JSON;
    view_pick(body, wants, N);
    *r = (struct responses_request){.body = body,
                                    .stream = is_true(wants[STREAM].value),
                                    .background = is_true(wants[BACKGROUND].value),
                                    .stored = !str_eq(wants[STORE].value, STR("false")),
                                    .model = wants[MODEL].value,
                                    .input = wants[INPUT].value};
    if (view_type(wants[PREVIOUS].value) == VIEW_STRING && wants[PREVIOUS].value.n > 2)
        r->previous = wants[PREVIOUS].value;
    return r->background && !r->stored ? ERR_SYNTAX : 0;
}

/* ---- items ---- */

static void put_comma(struct buf *out, size_t began)
{
    if (out->n > began)
        buf_putc(out, ',');
}

static void put_elements(struct buf *out, struct str array)
{
    struct str inside = view_type(array) == VIEW_ARRAY ? view_trim(view_inside(array)) : STR_NONE;
    buf_put(out, inside);
}

void responses_put_input(struct buf *out, struct str input)
{
    if (view_type(input) != VIEW_STRING) {
        put_elements(out, input);
        return;
    }
    buf_put(out, STR("{\"role\":\"user\",\"content\":"));
    buf_put(out, input);
    buf_putc(out, '}');
}

static void put_made_item(struct buf *out, size_t began, struct str item)
{
    struct view_want wants[] = {{.name = STR("type")}, {.name = STR("status")}};
    if (view_type(item) != VIEW_OBJECT)
        return;
    view_pick(item, wants, 2);
    bool cut = view_text_is(wants[1].value, STR("in_progress"));
    if (cut && !view_text_is(wants[0].value, STR("message")))
        return;
    struct json_edit status = {STR("status"), STR("\"incomplete\""), false};
    put_comma(out, began);
    json_edit_put(out, item, &status, cut ? 1 : 0);
}

void responses_put_context(struct buf *out, struct str input, struct str response)
{
    struct view_want output = {.name = STR("output")};
    struct str rest, item;
    size_t began = out->n;
    put_elements(out, input);
    view_pick(response, &output, 1);
    if (view_type(output.value) != VIEW_ARRAY)
        return;
    for (rest = view_inside(output.value); view_element(&rest, &item);)
        put_made_item(out, began, item);
}

/* ---- the request ---- */

int responses_request_put(struct buf *out, const struct responses_request *r, bool continues,
                          struct str items, size_t max)
{
    struct json_edit edits[4] = {{STR("stream"), STR("true"), false},
                                 {STR("background"), STR_NONE, false}};
    size_t n = 2;
    struct buf input = {0};
    if (continues && items.n + (r->body.n - r->input.n) > max)
        return ERR_TOO_LARGE;
    if (continues) {
        buf_putc(&input, '[');
        buf_put(&input, items);
        buf_putc(&input, ']');
        edits[n++] = (struct json_edit){STR("input"), buf_str(&input), false};
        edits[n++] = (struct json_edit){STR("previous_response_id"), STR_NONE, false};
    }
    json_edit_put(out, r->body, edits, n);
    buf_deinit(&input);
    return 0;
}
