// SPDX-License-Identifier: Apache-2.0
/* The listing: GET /v1/stream/?prefix=&after=&limit= answers
 *
 *     {"streams":[{"name":"a","contentType":"text/plain","nextOffset":"..","closed":false}, ...],
 *      "next":"a"}
 *
 * in order of names; `next` is what to pass as `after` for the following page, null at the end. */
#include "client/client.h"
#include "client/request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 1000

struct listing {
    struct client *client;
    const char *prefix;
    uint64_t limit, given; /* limit 0: none */
    void *user;
    bool (*row)(void *user, const struct client_row *row);
    bool stopped;
};

static const char *text_in(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void give_row(struct listing *l, const json_t *stream)
{
    struct client_row row = {
        .name = text_in(stream, "name"),
        .content_type = text_in(stream, "contentType"),
        .next_offset = text_in(stream, "nextOffset"),
        .closed = json_is_true(json_object_get(stream, "closed")),
    };
    l->given++;
    l->stopped = !l->row(l->user, &row) || l->given == l->limit;
}

/* *after becomes where the next page begins, NULL at the end. */
static int take_page(struct listing *l, struct str body, char **after)
{
    json_t *page = json_loadb(body.p ? body.p : "", body.n, JSON_REJECT_DUPLICATES, NULL);
    json_t *streams = json_object_get(page, "streams");
    const char *next = json_string_value(json_object_get(page, "next"));
    /* A server that sent the same page again and again would keep us here for ever. */
    if (!json_is_array(streams) || (next && *after && strcmp(next, *after) <= 0)) {
        json_decref(page);
        return client_fail(l->client, ERR_SYNTAX, "%s does not list its streams as expected",
                           l->client->server);
    }
    for (size_t i = 0; i < json_array_size(streams) && !l->stopped; i++)
        give_row(l, json_array_get(streams, i));
    free(*after);
    *after = next ? client_copy(str_of_cstr(next)) : NULL;
    json_decref(page);
    return 0;
}

static int get_page(struct listing *l, char **after)
{
    struct client_request r;
    client_request_init(&r, l->client, "GET", NULL);
    uint64_t want = l->limit ? l->limit - l->given : PAGE_ROWS;
    char text[24];
    snprintf(text, sizeof text, "%u", (unsigned)(want < PAGE_ROWS ? want : PAGE_ROWS));
    if (l->prefix && *l->prefix)
        client_request_param(&r, "prefix", str_of_cstr(l->prefix));
    if (*after)
        client_request_param(&r, "after", str_of_cstr(*after));
    client_request_param(&r, "limit", str_of_cstr(text));
    int err = client_request_run(&r);
    if (err == 0)
        err = take_page(l, buf_str(&r.answer.body), after);
    client_request_deinit(&r);
    return err;
}

int client_list(struct client *c, const char *prefix, const char *after, uint64_t limit, void *user,
                bool (*row)(void *user, const struct client_row *row))
{
    struct listing l = {.client = c, .prefix = prefix, .limit = limit, .user = user, .row = row};
    char *at = after ? client_copy(str_of_cstr(after)) : NULL;
    int err;
    do
        err = get_page(&l, &at);
    while (err == 0 && at != NULL && !l.stopped);
    free(at);
    return err;
}
