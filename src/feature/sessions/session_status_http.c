// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_status_http.h"
#include "base/date.h"
#include "base/err.h"
#include "base/json.h"
#include "base/num.h"
#include "feature/sessions/session.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"

#include <inttypes.h>

#define LIST_DEFAULT 100
#define LIST_MAX     1000

/* ---- JSON ---- */

static const char *session_status_truth(bool b)
{
    return b ? "true" : "false";
}

/* Without the brace that ends it. */
static void session_status_put_row(struct buf *out, const struct session_row *row)
{
    char created[DATE_RFC3339_TEXT];
    date_format_rfc3339(row->created_ms, created);
    buf_put(out, STR("{\"key\":"));
    json_put_string(out, row->key);
    buf_printf(out,
               ",\"service\":\"%s\",\"created\":\"%.*s\",\"connected\":%s,\"keyHeld\":%s,"
               "\"expired\":%s,\"answered\":%" PRIu64,
               row->service == SESSION_AISERVER ? "aiserver.v1" : "tidemark.v1", DATE_RFC3339_TEXT,
               created, session_status_truth(row->connected), session_status_truth(row->key_held),
               session_status_truth(row->expired), row->answered);
}

static void put_counts(struct buf *out, const struct stream_info *info)
{
    buf_printf(out, "{\"events\":%" PRIu64 ",\"bytes\":%" PRIu64, info->events, info->tail);
}

static void session_status_put_streams(struct buf *out, const struct session_row *row)
{
    if (row->expired) {
        buf_put(out, STR(",\"in\":null,\"out\":null"));
        return;
    }
    buf_put(out, STR(",\"in\":"));
    put_counts(out, &row->in);
    buf_printf(out, ",\"closed\":%s},\"out\":", session_status_truth(row->in.end != END_NONE));
    put_counts(out, &row->out);
    buf_put(out, STR(",\"end\":"));
    if (row->out.end == END_NONE)
        buf_put(out, STR("null"));
    else
        json_put_string(out, end_reason_text(row->out.end));
    buf_putc(out, '}');
}

/* ---- answers ---- */

static void no_such_session(struct exchange *x)
{
    exchange_problem(x, 404, str_of_cstr(err_name(ERR_NOT_FOUND)), STR("no such session"));
}

/* Gives the exchange back. */
static void session_status_answer(struct exchange *x, struct buf *body, int err)
{
    if (err == ERR_NOT_FOUND) {
        no_such_session(x);
    } else if (err != 0) {
        exchange_error(x, err);
    } else {
        exchange_send_json(x, 200, buf_str(body));
    }
    buf_deinit(body);
    exchange_release(x);
}

struct list_request {
    struct sessions_list list;
    struct exchange *x;
};

static void session_status_on_listed(struct sessions_list *l, int err)
{
    struct list_request *r = container_of(l, struct list_request, list);
    struct buf body = {0};
    buf_put(&body, STR("{\"sessions\":["));
    for (size_t i = 0; err == 0 && i < l->n_rows; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        l->rows[i].key = session_key_unrooted(r->x->principal, l->rows[i].key);
        session_status_put_row(&body, &l->rows[i]);
        buf_putc(&body, '}');
    }
    buf_put(&body, STR("],\"next\":"));
    if (err == 0 && l->more)
        json_put_string(&body, session_key_unrooted(r->x->principal, l->next));
    else
        buf_put(&body, STR("null"));
    buf_put(&body, STR("}\n"));
    session_status_answer(r->x, &body, err);
}

/* What begins a key, or stands before one in order, is as a key is, or empty. */
static bool read_part(struct exchange *x, struct str key, struct str *out)
{
    return url_query(&x->arena, x->request->query, key, out) >= 0 &&
           (out->n == 0 || session_key_valid(*out));
}

static bool read_limit(struct exchange *x, size_t *out)
{
    struct str text = STR_NONE;
    uint64_t n = LIST_DEFAULT;
    if (url_query(&x->arena, x->request->query, STR("limit"), &text) < 0 ||
        (text.p != NULL && num_parse(text, LIST_MAX, &n) != 0) || n == 0)
        return false;
    *out = n;
    return true;
}

static void session_status_list(struct sessions *all, struct exchange *x)
{
    struct list_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct list_request){.list = {.all = all, .done = session_status_on_listed}, .x = x};
    if (!read_part(x, STR("prefix"), &r->list.prefix) ||
        !read_part(x, STR("after"), &r->list.after) || !read_limit(x, &r->list.limit)) {
        exchange_problem(x, 400, STR("BAD_QUERY"),
                         STR("use prefix=TEXT, after=KEY and limit=1..1000; a key is visible ASCII "
                             "without / and %"));
        return;
    }
    r->list.prefix = session_key_rooted(x->principal, &x->arena, r->list.prefix);
    if (r->list.after.n > 0)
        r->list.after = session_key_rooted(x->principal, &x->arena, r->list.after);
    exchange_hold(x);
    sessions_list(&r->list);
}

struct show_request {
    struct sessions_show show;
    struct exchange *x;
};

static void session_status_on_shown(struct sessions_show *s, int err)
{
    struct show_request *r = container_of(s, struct show_request, show);
    struct buf body = {0};
    if (err == 0) {
        s->row.key = session_key_unrooted(r->x->principal, s->row.key);
        session_status_put_row(&body, &s->row);
        session_status_put_streams(&body, &s->row);
        buf_put(&body, STR("}\n"));
    }
    session_status_answer(r->x, &body, err);
}

static void session_status_show(struct sessions *all, struct exchange *x, struct str key)
{
    struct show_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct show_request){.show = {.all = all, .done = session_status_on_shown}, .x = x};
    /* What cannot be a key names no session. */
    if (url_decode(&x->arena, key, false, &r->show.key) != 0 || !session_key_valid(r->show.key)) {
        no_such_session(x);
        return;
    }
    r->show.key = session_key_rooted(x->principal, &x->arena, r->show.key);
    exchange_hold(x);
    sessions_show(&r->show);
}

/* Those who administer, and workers: all sessions, or the one that they may work on. */
static bool may_see(const struct principal *p, struct str key)
{
    if (p->rights.n == 0)
        return principal_works(p);
    return principal_may(p, ACCESS_VERB_ADMIN, ACCESS_SERVER, STR_NONE) ||
           (key.n == 0 ? access_contains(&p->rights, ACCESS_VERB_WORK, ACCESS_SESSION, STR("**"))
                       : principal_may(p, ACCESS_VERB_WORK, ACCESS_SESSION, key));
}

void session_status_handle(void *sessions, struct exchange *x)
{
    struct str key = str_skip(x->request->path, sizeof SESSION_STATUS_PREFIX - 1), name = STR_NONE;
    const struct principal *p = x->principal;
    bool named = url_decode(&x->arena, key, false, &name) == 0;
    exchange_decided(x);
    if (p->rights.n == 0 ? !may_see(p, name) : !named) {
        no_such_session(x);
    } else if (!may_see(p, name)) {
        exchange_deny(x);
    } else if (x->request->method != METHOD_GET && x->request->method != METHOD_HEAD) {
        exchange_header(x, STR("Allow"), STR("GET, HEAD"));
        exchange_problem(x, 405, STR("METHOD"), STR("sessions can only be looked at here"));
    } else if (key.n == 0) {
        session_status_list(sessions, x);
    } else {
        session_status_show(sessions, x, key);
    }
}

static const struct surface_rule rules[] = {
    {"session.list", "GET HEAD", "", ACCESS_VERB_ADMIN, ACCESS_SERVER, RULE_LATER | RULE_ADMIN,
     NULL},
    {"session.show", "GET HEAD", "{key}", ACCESS_VERB_ADMIN, ACCESS_SERVER, RULE_LATER | RULE_ADMIN,
     NULL},
    {0},
};
const struct surface session_status_surface = {.path = SESSION_STATUS_PREFIX, .rules = rules};

void session_status_mount(struct sessions *all, struct http *http)
{
    http_mount(http, &session_status_surface, session_status_handle, all);
}
