// SPDX-License-Identifier: Apache-2.0
#include "cmd/pages.h"
#include "base/buf.h"
#include "cmd/cmd_common.h"
#include "http/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 1000

struct walk {
    struct tm_client *client;
    const struct pages *pages;
    uint64_t given;
    bool stopped;
    struct buf after; /* where the next page begins, NUL included */
    bool over;
    char *why;
};

const char *pages_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

uint64_t pages_number(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n < 0 ? 0 : (uint64_t)n;
}

bool pages_truth(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static int get_json(struct tm_client *c, struct buf *path, json_t **out)
{
    struct tm_call *call = NULL;
    buf_putc(path, '\0');
    int err = tm_get(c, path->p, &call);
    err = common_call(err, call);
    if (err == 0) {
        const struct tm_result *r = tm_call_result(call);
        *out = json_loadb(r->data, r->n, JSON_REJECT_DUPLICATES, NULL);
    }
    tm_call_free(call);
    return err;
}

int pages_get(struct tm_client *c, const char *path, const char *name, json_t **out)
{
    struct buf whole = {0};
    buf_put(&whole, str_of_cstr(path));
    url_encode(&whole, str_of_cstr(name), true);
    int err = get_json(c, &whole, out);
    buf_deinit(&whole);
    return err;
}

/* ---- listings ---- */

static void pages_give(struct walk *w, const json_t *item)
{
    w->given++;
    w->stopped = !w->pages->item(w->pages->user, item) || w->given == w->pages->limit;
}

/* Where a listing goes on behind a name that we may not know. No stream has such a name. */
static bool is_bookmark(const char *next)
{
    return strncmp(next, "__ds/", 5) == 0;
}

/* A server that sent the same page again and again would keep us here for ever. Bookmarks are in no
 * order; names behind one are. */
static bool goes_on(const struct walk *w, const char *next)
{
    if (w->after.n == 0)
        return true;
    bool named = !is_bookmark(next) && !is_bookmark(w->after.p);
    int order = strcmp(next, w->after.p);
    return named ? order > 0 : order != 0;
}

static bool is_page(const struct walk *w, const json_t *items, const char *next)
{
    return json_is_array(items) && (next == NULL || goes_on(w, next));
}

static int take_page(struct walk *w, const json_t *page)
{
    const json_t *items = json_object_get(page, w->pages->member);
    const char *next = json_string_value(json_object_get(page, "next"));
    if (!is_page(w, items, next)) {
        snprintf(w->why, PAGES_WHY, "does not list its %s as expected", w->pages->member);
        return TM_E_PROTOCOL;
    }
    for (size_t i = 0; i < json_array_size(items) && !w->stopped; i++)
        pages_give(w, json_array_get(items, i));
    w->over = next == NULL || w->stopped;
    w->after.n = 0;
    if (next)
        buf_put(&w->after, str_of(next, strlen(next) + 1));
    return 0;
}

static void put_param(struct buf *path, const char *key, const char *value)
{
    buf_printf(path, "&%s=", key);
    url_encode(path, str_of_cstr(value), false);
}

static int get_page(struct walk *w)
{
    const struct pages *p = w->pages;
    struct buf path = {0};
    uint64_t want = p->limit ? p->limit - w->given : PAGE_ROWS;
    json_t *page = NULL;
    buf_printf(&path, "%s?limit=%u", p->path, (unsigned)(want < PAGE_ROWS ? want : PAGE_ROWS));
    if (p->prefix && *p->prefix)
        put_param(&path, "prefix", p->prefix);
    if (w->after.n > 0)
        put_param(&path, "after", w->after.p);
    int err = get_json(w->client, &path, &page);
    if (err == 0)
        err = take_page(w, page);
    json_decref(page);
    buf_deinit(&path);
    return err;
}

int pages_walk(struct tm_client *c, const struct pages *pages, char why[PAGES_WHY])
{
    struct walk w = {.client = c, .pages = pages, .why = why};
    int err = 0;
    *why = '\0';
    while (err == 0 && !w.over)
        err = get_page(&w);
    buf_deinit(&w.after);
    return err;
}
