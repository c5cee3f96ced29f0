// SPDX-License-Identifier: Apache-2.0
/* What a server has: its streams, as
 *
 *     {"name":"a","contentType":"text/plain","nextOffset":"..","closed":false}
 *
 * and its sessions, as surface/session_status.h has them. */
#include "client/client.h"
#include "client/pages.h"
#include "client/request.h"

/* -- streams ---------------------------------------------------------------------------------- */

struct stream_listing {
    void *user;
    bool (*row)(void *user, const struct client_row *row);
};

static bool give_stream(void *user, const json_t *stream)
{
    struct stream_listing *l = user;
    struct client_row row = {
        .name = client_text_in(stream, "name"),
        .content_type = client_text_in(stream, "contentType"),
        .next_offset = client_text_in(stream, "nextOffset"),
        .closed = json_is_true(json_object_get(stream, "closed")),
    };
    return l->row(l->user, &row);
}

int client_list(struct client *c, const char *prefix, const char *after, uint64_t limit, void *user,
                bool (*row)(void *user, const struct client_row *row))
{
    struct stream_listing l = {.user = user, .row = row};
    struct client_pages pages = {.path = CLIENT_STREAMS,
                                 .member = "streams",
                                 .prefix = prefix,
                                 .limit = limit,
                                 .user = &l,
                                 .item = give_stream};
    return client_pages_walk(c, &pages, after);
}

/* -- sessions --------------------------------------------------------------------------------- */

struct session_listing {
    void *user;
    bool (*row)(void *user, const struct client_session *row);
};

static uint64_t number_in(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n < 0 ? 0 : (uint64_t)n;
}

static bool truth_in(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static struct client_session session_of(const json_t *session)
{
    const json_t *in = json_object_get(session, "in"), *out = json_object_get(session, "out");
    return (struct client_session){
        .key = client_text_in(session, "key"),
        .service = client_text_in(session, "service"),
        .created = client_text_in(session, "created"),
        .connected = truth_in(session, "connected"),
        .key_held = truth_in(session, "keyHeld"),
        .expired = truth_in(session, "expired"),
        .answered = number_in(session, "answered"),
        .in_events = number_in(in, "events"),
        .in_bytes = number_in(in, "bytes"),
        .in_closed = truth_in(in, "closed"),
        .out_events = number_in(out, "events"),
        .out_bytes = number_in(out, "bytes"),
        .end = client_text_in(out, "end"),
    };
}

static bool give_session(void *user, const json_t *session)
{
    struct session_listing *l = user;
    struct client_session row = session_of(session);
    return l->row(l->user, &row);
}

int client_session_list(struct client *c, const char *prefix, const char *after, uint64_t limit,
                        void *user, bool (*row)(void *user, const struct client_session *row))
{
    struct session_listing l = {.user = user, .row = row};
    struct client_pages pages = {.path = CLIENT_SESSIONS,
                                 .member = "sessions",
                                 .prefix = prefix,
                                 .limit = limit,
                                 .user = &l,
                                 .item = give_session};
    return client_pages_walk(c, &pages, after);
}

int client_session_show(struct client *c, const char *key, void *user,
                        void (*row)(void *user, const struct client_session *row))
{
    struct client_request r;
    client_request_init_at(&r, c, "GET", CLIENT_SESSIONS, key);
    int err = client_request_run(&r);
    struct str body = buf_str(&r.answer.body);
    json_t *session =
        err == 0 ? json_loadb(body.p ? body.p : "", body.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (err == 0 && *client_text_in(session, "key") == '\0') {
        err = client_fail(c, ERR_SYNTAX, "%s does not show a session as expected", c->server);
    } else if (err == 0) {
        struct client_session found = session_of(session);
        row(user, &found);
    }
    json_decref(session);
    client_request_deinit(&r);
    return err;
}
