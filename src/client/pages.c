// SPDX-License-Identifier: Apache-2.0
#include "client/pages.h"
#include "client/request.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_ROWS 1000

struct walk {
    struct client *client;
    const struct client_pages *pages;
    uint64_t given;
    bool stopped;
};

const char *client_text_in(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void give(struct walk *w, const json_t *item)
{
    w->given++;
    w->stopped = !w->pages->item(w->pages->user, item) || w->given == w->pages->limit;
}

/* *after becomes where the next page begins, NULL at the end. */
static int take_page(struct walk *w, struct str body, char **after)
{
    json_t *page = json_loadb(body.p ? body.p : "", body.n, JSON_REJECT_DUPLICATES, NULL);
    json_t *items = json_object_get(page, w->pages->member);
    const char *next = json_string_value(json_object_get(page, "next"));
    /* A server that sent the same page again and again would keep us here for ever. */
    if (!json_is_array(items) || (next && *after && strcmp(next, *after) <= 0)) {
        json_decref(page);
        return client_fail(w->client, ERR_SYNTAX, "%s does not list its %s as expected",
                           w->client->server, w->pages->member);
    }
    for (size_t i = 0; i < json_array_size(items) && !w->stopped; i++)
        give(w, json_array_get(items, i));
    free(*after);
    *after = next ? client_copy(str_of_cstr(next)) : NULL;
    json_decref(page);
    return 0;
}

static int get_page(struct walk *w, char **after)
{
    const struct client_pages *p = w->pages;
    struct client_request r;
    client_request_init_at(&r, w->client, "GET", p->path, NULL);
    uint64_t want = p->limit ? p->limit - w->given : PAGE_ROWS;
    char text[24];
    snprintf(text, sizeof text, "%u", (unsigned)(want < PAGE_ROWS ? want : PAGE_ROWS));
    if (p->prefix && *p->prefix)
        client_request_param(&r, "prefix", str_of_cstr(p->prefix));
    if (*after)
        client_request_param(&r, "after", str_of_cstr(*after));
    client_request_param(&r, "limit", str_of_cstr(text));
    int err = client_request_run(&r);
    if (err == 0)
        err = take_page(w, buf_str(&r.answer.body), after);
    client_request_deinit(&r);
    return err;
}

int client_pages_walk(struct client *c, const struct client_pages *pages, const char *after)
{
    struct walk w = {.client = c, .pages = pages};
    char *at = after ? client_copy(str_of_cstr(after)) : NULL;
    int err;
    do
        err = get_page(&w, &at);
    while (err == 0 && at != NULL && !w.stopped);
    free(at);
    return err;
}
