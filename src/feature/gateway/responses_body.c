// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/responses_body.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_edit.h"
#include "base/json_view.h"
#include "base/utf8.h"

#include <stdio.h>

#define ECHO_MAX    (16 * 1024) /* bytes of a member of the request that comes back */
#define SHOWN_MAX   128         /* of an id in an error */
#define ITEM_ID_MAX 128

/* ---- responses ---- */

void responses_put_queued(struct buf *out, const struct responses_request *r, struct str id,
                          int64_t created_s)
{
    static const char *const echoed[] = {"model",
                                         "instructions",
                                         "metadata",
                                         "previous_response_id",
                                         "temperature",
                                         "top_p",
                                         "tools",
                                         "tool_choice",
                                         "text",
                                         "reasoning",
                                         "max_output_tokens",
                                         "parallel_tool_calls",
                                         "truncation",
                                         "service_tier",
                                         "user"};
    enum { N = sizeof echoed / sizeof *echoed };
    struct view_want wants[N];
    for (size_t i = 0; i < N; i++)
        wants[i].name = str_of_cstr(echoed[i]);
    view_pick(r->body, wants, N);
    buf_put(out, STR("{\"id\":"));
    json_put_string(out, id);
    buf_printf(out,
               ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"queued\","
               "\"background\":%s,\"store\":%s,\"error\":null,\"incomplete_details\":null,"
               "\"output\":[],\"usage\":null",
               (long long)created_s, r->background ? "true" : "false",
               r->stored ? "true" : "false");
    for (size_t i = 0; i < N; i++) {
        if (wants[i].value.n == 0 || wants[i].value.n > ECHO_MAX)
            continue;
        buf_printf(out, ",\"%s\":", echoed[i]);
        view_put_unbroken(out, wants[i].value);
    }
    buf_putc(out, '}');
}

static bool is_final(struct str response)
{
    static const struct str words[] = {STR_INIT("completed"), STR_INIT("failed"),
                                       STR_INIT("incomplete"), STR_INIT("cancelled")};
    struct view_want status = {.name = STR("status")};
    view_pick(response, &status, 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (view_text_is(status.value, words[i]))
            return true;
    return false;
}

void responses_put_ended(struct buf *out, struct str response, enum end_reason end,
                         struct str message)
{
    struct json_edit edits[2];
    struct buf error = {0};
    size_t n = 0;
    if (end == END_CANCELLED) {
        edits[n++] = (struct json_edit){STR("status"), STR("\"cancelled\""), false};
    } else if (end != END_NONE) {
        buf_put(&error, STR("{\"code\":\"server_error\",\"message\":"));
        json_put_string(&error, end == END_COMPLETED
                                    ? STR("the upstream's answer ended before it was "
                                          "complete")
                                    : message);
        buf_putc(&error, '}');
        edits[n++] = (struct json_edit){STR("status"), STR("\"failed\""), false};
        edits[n++] = (struct json_edit){STR("error"), buf_str(&error), false};
    }
    json_edit_put(out, response, edits, is_final(response) ? 0 : n);
    buf_deinit(&error);
}

void responses_put_deleted(struct buf *out, struct str id)
{
    buf_put(out, STR("{\"id\":"));
    json_put_string(out, id);
    buf_put(out, STR(",\"object\":\"response\",\"deleted\":true}"));
}

/* ---- errors ---- */

static void put_or_null(struct buf *out, struct str text)
{
    if (text.n > 0)
        json_put_string(out, text);
    else
        buf_put(out, STR("null"));
}

void responses_put_error(struct buf *out, struct str message, struct str param, struct str code)
{
    buf_put(out, STR("{\"error\":{\"message\":"));
    json_put_string(out, message);
    buf_put(out, STR(",\"type\":\"invalid_request_error\",\"param\":"));
    put_or_null(out, param);
    buf_put(out, STR(",\"code\":"));
    put_or_null(out, code);
    buf_put(out, STR("}}"));
}

void responses_put_missing(struct buf *out, struct str id)
{
    struct buf message = {0};
    if (id.n > SHOWN_MAX) {
        id.n = SHOWN_MAX;
        id.n -= utf8_incomplete_tail(id);
    }
    buf_put(&message, STR("Response with id '"));
    buf_put(&message, id);
    buf_put(&message, STR("' not found."));
    responses_put_error(out, buf_str(&message), STR_NONE, STR_NONE);
    buf_deinit(&message);
}

/* ---- lists ---- */

/* The id, as text, of an item that came without one. */
static struct str made_id(char text[ITEM_ID_MAX], struct str response_id, uint64_t index)
{
    int n = snprintf(text, ITEM_ID_MAX, "msg_%.*s_in%llu", (int)response_id.n, response_id.p,
                     (unsigned long long)index);
    return str_of(text, n < ITEM_ID_MAX ? (size_t)n : ITEM_ID_MAX - 1);
}

static bool item_is(struct str item, const struct responses_page *page, uint64_t index)
{
    struct view_want id = {.name = STR("id")};
    char text[ITEM_ID_MAX];
    view_pick(item, &id, 1);
    if (view_type(id.value) == VIEW_STRING)
        return view_text_is(id.value, page->after);
    return str_eq(made_id(text, page->id, index), page->after);
}

/* Takes the next item that is one. */
static bool responses_next_item(struct str *rest, struct str *item)
{
    while (view_element(rest, item))
        if (view_type(*item) == VIEW_OBJECT)
            return true;
    return false;
}

/* How many there are, and the place of the one that the page begins behind; *at == *n: of none. */
static void find_after(struct str items, const struct responses_page *page, uint64_t *n,
                       uint64_t *at)
{
    struct str rest = view_inside(items), item;
    bool found = false;
    *n = *at = 0;
    for (; responses_next_item(&rest, &item); (*n)++) {
        if (found || page->after.n == 0 || !item_is(item, page, *n))
            continue;
        found = true;
        *at = *n;
    }
    if (!found)
        *at = *n;
}

/* Content that came as a text, as the part that it stands for. */
static void put_content(struct buf *out, struct str text, bool by_assistant)
{
    buf_put(out, by_assistant ? STR("[{\"type\":\"output_text\",\"annotations\":[],\"text\":")
                              : STR("[{\"type\":\"input_text\",\"text\":"));
    buf_put(out, text);
    buf_put(out, STR("}]"));
}

static void put_listed(struct buf *out, struct str item, struct str id)
{
    struct view_want wants[] = {
        {.name = STR("type")}, {.name = STR("role")}, {.name = STR("content")}};
    struct json_edit edits[4];
    struct buf content = {0}, name = {0};
    size_t n = 0;
    view_pick(item, wants, 3);
    bool message = view_text_is(wants[0].value, STR("message")) ||
                   (wants[0].value.n == 0 && wants[1].value.n > 0);
    json_put_string(&name, id);
    edits[n++] = (struct json_edit){STR("id"), buf_str(&name), true};
    if (message) {
        edits[n++] = (struct json_edit){STR("type"), STR("\"message\""), true};
        edits[n++] = (struct json_edit){STR("status"), STR("\"completed\""), true};
    }
    if (message && view_type(wants[2].value) == VIEW_STRING) {
        put_content(&content, wants[2].value, view_text_is(wants[1].value, STR("assistant")));
        edits[n++] = (struct json_edit){STR("content"), buf_str(&content), false};
    }
    json_edit_put(out, item, edits, n);
    buf_deinit(&content);
    buf_deinit(&name);
}

/* The id that an item is listed under, as JSON. */
static void put_listed_id(struct buf *out, struct str item, struct str made)
{
    struct view_want id = {.name = STR("id")};
    view_pick(item, &id, 1);
    if (view_type(id.value) == VIEW_STRING)
        buf_put(out, id.value);
    else
        json_put_string(out, made);
}

/* Items `from` to `to`, in the order that they stand in; how many. */
static uint32_t find_items(struct str items, uint64_t from, uint64_t to,
                           struct str found[RESPONSES_LIMIT_MAX])
{
    struct str rest = view_inside(items), item;
    uint32_t n = 0;
    for (uint64_t i = 0; i < to && responses_next_item(&rest, &item); i++)
        if (i >= from)
            found[n++] = item;
    return n;
}

/* The places of the page's items, and whether there are more behind it. */
struct span {
    uint64_t from, to;
    bool more;
};

static struct span span_of(const struct responses_page *page, uint64_t all, uint64_t at)
{
    struct span s = {0};
    if (page->descending) {
        s.to = at; /* of none: all of them */
        s.from = s.to > page->limit ? s.to - page->limit : 0;
        s.more = s.from > 0;
    } else {
        s.from = page->after.n > 0 ? at + 1 : 0;
        s.to = all - s.from > page->limit ? s.from + page->limit : all;
        s.more = s.to < all;
    }
    return s;
}

int responses_put_list(struct buf *out, struct str items, const struct responses_page *page)
{
    struct str found[RESPONSES_LIMIT_MAX];
    char text[ITEM_ID_MAX];
    uint64_t all, at;
    struct buf first = {0}, last = {0};
    find_after(items, page, &all, &at);
    if (page->after.n > 0 && at == all)
        return ERR_NOT_FOUND;
    struct span span = span_of(page, all, at);
    uint32_t n = find_items(items, span.from, span.to, found);
    buf_put(out, STR("{\"object\":\"list\",\"data\":["));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = page->descending ? n - 1 - i : i;
        struct str made = made_id(text, page->id, span.from + place);
        if (i > 0)
            buf_putc(out, ',');
        put_listed(out, found[place], made);
        last.n = 0;
        put_listed_id(&last, found[place], made);
        if (i == 0)
            buf_put(&first, buf_str(&last));
    }
    buf_put(out, STR("],\"first_id\":"));
    buf_put(out, n > 0 ? buf_str(&first) : STR("null"));
    buf_put(out, STR(",\"last_id\":"));
    buf_put(out, n > 0 ? buf_str(&last) : STR("null"));
    buf_printf(out, ",\"has_more\":%s}", span.more ? "true" : "false");
    buf_deinit(&first);
    buf_deinit(&last);
    return 0;
}
