// SPDX-License-Identifier: Apache-2.0
#include "stream/durable.h"
#include "base/buf.h"
#include "base/date.h"
#include "base/err.h"
#include "base/must.h"
#include "base/rand.h"
#include "base/sched.h"
#include "base/utf8.h"
#include "http/surface.h"
#include "http/url.h"
#include "stream/durable_core.h"
#include "stream/usage.h"
#include "store/names.h"

#define CURSOR_EPOCH_MS 1728432000000 /* 2024-10-09T00:00:00Z */
#define CURSOR_MS       20000
#define CURSOR_JITTER_S 3600

/* ---- what the parts share ---- */

bool durable_wants_close(const struct exchange *x)
{
    return str_eq_nocase(request_header(x->request, STR("Stream-Closed")), STR("true"));
}

static bool is_text(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7f)
            return false;
    return utf8_valid(name);
}

/* Not the subscriptions' corner of the name space, however it was spelled. */
static bool name_allowed(struct str name)
{
    return name.n > 0 && name.n <= STORE_NAME_MAX && !str_eq(name, STR("__ds")) &&
           !str_starts(name, STR("__ds/"));
}

int durable_name(struct exchange *x, struct str path, struct str *name)
{
    struct url url;
    if (path.n > 0 && path.p[0] != '/' && url_parse(path, &url) == 0)
        path = url.path;
    if (str_starts(path, STR(DURABLE_PREFIX)))
        path = str_skip(path, sizeof DURABLE_PREFIX - 1);
    int err = url_decode(&x->arena, path, false, name);
    return err == 0 && !(name_allowed(*name) && is_text(*name)) ? ERR_SYNTAX : err;
}

/* Of the request. Transports take paths of visible ASCII alone: one that is not encoded is text. */
static int request_name(struct exchange *x, struct str path, struct str *name)
{
    if (!x->unescaped)
        return durable_name(x, path, name);
    *name = str_skip(path, sizeof DURABLE_PREFIX - 1);
    return name_allowed(*name) ? 0 : ERR_SYNTAX;
}

void durable_put_offset(struct exchange *x, struct str header, struct offset o)
{
    char *text = arena_alloc(&x->arena, OFFSET_TEXT);
    offset_format(o, text);
    exchange_header(x, header, str_of(text, OFFSET_TEXT));
}

void durable_put_end(struct exchange *x, enum end_reason end)
{
    if (end == END_NONE)
        return;
    exchange_header(x, STR("Stream-Closed"), STR("true"));
    exchange_header(x, STR("Stream-End-Reason"), end_reason_text(end));
}

void durable_gap_json(struct buf *out, const struct gap *gap)
{
    char requested[OFFSET_TEXT], earliest[OFFSET_TEXT];
    struct str reason = gap_reason_text(gap->reason);
    offset_format(gap->requested, requested);
    offset_format(gap->earliest, earliest);
    buf_printf(out,
               "{\"gap\":{\"requested\":\"%.*s\",\"earliest\":\"%.*s\",\"reason\":\"%.*s\","
               "\"snapshot\":null}}",
               OFFSET_TEXT, requested, OFFSET_TEXT, earliest, (int)reason.n, reason.p);
}

void durable_error(struct exchange *x, int err, const struct gap *gap)
{
    if (err == ERR_KEY_ABSENT) { /* workers know it by this very code */
        exchange_header(x, STR("Retry-After"), STR("1"));
        exchange_problem(x, err_http_status(err), STR("key-absent"), str_of_cstr(err_text(err)));
        return;
    }
    if (err != ERR_GAP) {
        exchange_error(x, err);
        return;
    }
    struct buf body = {0};
    durable_gap_json(&body, gap);
    exchange_send_json(x, 410, buf_str(&body));
    buf_deinit(&body);
}

uint64_t durable_cursor(const struct sched *sched, uint64_t client)
{
    int64_t since = sched->wall_ms - CURSOR_EPOCH_MS;
    uint64_t interval = since < 0 ? 0 : (uint64_t)since / CURSOR_MS;
    if (client < interval)
        return interval;
    /* A client ahead of the clock gets a later one still, at random, so that it cannot loop on a
     * cached answer. */
    uint64_t jitter_ms = (1 + rand_u64() % CURSOR_JITTER_S) * 1000;
    return client + (jitter_ms + CURSOR_MS - 1) / CURSOR_MS;
}

/* ---- HEAD, DELETE ---- */

struct stat_request {
    struct store_stat stat;
    struct exchange *x;
};

static void put_term(struct exchange *x, const struct stream_info *info)
{
    const struct retain *r = &info->retain;
    if (r->events > 0)
        exchange_header_u64(x, STR("Stream-Retain-Events"), r->events);
    if (r->bytes > 0)
        exchange_header_u64(x, STR("Stream-Retain-Bytes"), r->bytes);
    if (r->age_ms > 0)
        exchange_header_u64(x, STR("Stream-Retain-Age"), r->age_ms / 1000);
    if (info->ttl_s >= 0)
        exchange_header_u64(x, STR("Stream-TTL"), (uint64_t)info->ttl_s);
    if (info->expires_ms >= 0) {
        char *text = arena_alloc(&x->arena, DATE_RFC3339_TEXT);
        date_format_rfc3339(info->expires_ms, text);
        exchange_header(x, STR("Stream-Expires-At"), str_of(text, DATE_RFC3339_TEXT));
    }
}

static void durable_on_stat(struct store_stat *stat, int err)
{
    struct exchange *x = container_of(stat, struct stat_request, stat)->x;
    if (err != 0) {
        durable_error(x, err, NULL);
    } else {
        exchange_header(x, STR("Content-Type"), arena_dup(&x->arena, stat->info.content_type));
        durable_put_offset(x, STR("Stream-Next-Offset"),
                           (struct offset){stat->info.life, stat->info.tail});
        put_term(x, &stat->info);
        durable_put_end(x, stat->info.end);
        exchange_header(x, STR("Cache-Control"), STR("no-store"));
        exchange_send(x, STR_NONE);
    }
    exchange_release(x);
}

static void head(struct durable *d, struct exchange *x, struct str name)
{
    struct stat_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct stat_request){.stat = {.name = name, .done = durable_on_stat}, .x = x};
    exchange_hold(x);
    store_stat(durable_home(d, name).store, &r->stat);
}

struct remove_request {
    struct store_remove remove;
    struct usage *usage;
    struct exchange *x;
};

static void durable_on_removed(struct store_remove *remove, int err)
{
    struct exchange *x = container_of(remove, struct remove_request, remove)->x;
    if (err != 0) {
        durable_error(x, err, NULL);
    } else {
        usage_deleted(container_of(remove, struct remove_request, remove)->usage,
                      x->principal->root);
        exchange_status(x, 204);
        exchange_send(x, STR_NONE);
    }
    exchange_release(x);
}

static void delete (struct durable *d, struct exchange *x, struct str name)
{
    struct remove_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct remove_request){
        .remove = {.name = name, .done = durable_on_removed}, .usage = d->usage, .x = x};
    exchange_hold(x);
    store_remove(durable_home(d, name).store, &r->remove);
}

static void no_such_method(struct exchange *x)
{
    exchange_header(x, STR("Allow"), STR("GET, HEAD, POST, PUT, DELETE, OPTIONS"));
    exchange_problem(x, 405, STR("METHOD"), STR("streams take GET, HEAD, POST, PUT and DELETE"));
}

/* ---- spaces and hooks ---- */

void durable_add_space(struct durable *d, struct stream_space *space)
{
    must(store_reserved(space->prefix));
    space->next = d->spaces;
    d->spaces = space;
}

void durable_add_hooks(struct durable *d, struct stream_hooks *hooks)
{
    hooks->next = d->hooks;
    d->hooks = hooks;
}

const struct stream_space *durable_space(const struct durable *d, struct str name)
{
    const struct stream_space *space = store_reserved(name) ? d->spaces : NULL;
    while (space != NULL && !str_starts(name, space->prefix))
        space = space->next;
    return space;
}

struct stream_home durable_home(const struct durable *d, struct str name)
{
    const struct stream_space *space = durable_space(d, name);
    return space != NULL ? (struct stream_home){space->store, space->feeds}
                         : (struct stream_home){d->store, d->feeds};
}

bool durable_owned(const struct durable *d, struct str name)
{
    if (store_reserved(name) && durable_space(d, name) == NULL)
        return true;
    for (const struct stream_hooks *h = d->hooks; h != NULL; h = h->next)
        if (h->owns(h->ctx, name))
            return true;
    return false;
}

static void durable_tell_asked(const struct durable *d, struct str name)
{
    for (const struct stream_hooks *h = d->hooks; h != NULL; h = h->next)
        h->asked(h->ctx, name);
}

/* ---- what requests need ---- */

static bool rule_has_body(const struct exchange *x)
{
    return x->has_body;
}

/* To close and nothing else needs no right to append. */
static bool rule_appends(const struct exchange *x)
{
    return x->has_body || !durable_wants_close(x);
}

static bool rule_forks(const struct exchange *x)
{
    return request_header(x->request, STR("Stream-Forked-From")).p != NULL;
}

static const struct surface_rule durable_rules[] = {
    {"stream.list", "GET HEAD", "", ACCESS_VERB_LIST, ACCESS_STREAM, RULE_LATER, NULL},
    {"stream.read", "GET HEAD", "{name...}", ACCESS_VERB_READ, ACCESS_STREAM, RULE_LINK, NULL},
    {"stream.create", "PUT", "{name...}", ACCESS_VERB_CREATE, ACCESS_STREAM, 0, NULL},
    {"stream.create.append", "PUT", "{name...}", ACCESS_VERB_APPEND, ACCESS_STREAM, 0,
     rule_has_body},
    {"stream.create.close", "PUT", "{name...}", ACCESS_VERB_CLOSE, ACCESS_STREAM, 0,
     durable_wants_close},
    {"stream.fork", "PUT", "{name...}", ACCESS_VERB_FORK, ACCESS_STREAM, RULE_LATER, rule_forks},
    {"stream.append", "POST", "{name...}", ACCESS_VERB_APPEND, ACCESS_STREAM, 0, rule_appends},
    {"stream.close", "POST", "{name...}", ACCESS_VERB_CLOSE, ACCESS_STREAM, 0, durable_wants_close},
    {"stream.delete", "DELETE", "{name...}", ACCESS_VERB_DELETE, ACCESS_STREAM, 0, NULL},
    {0},
};
static const struct surface_share durable_share = {
    .exposed = STR_INIT("ETag, Location, Producer-Epoch, Producer-Expected-Seq, "
                        "Producer-Received-Seq, Producer-Seq, Retry-After, Stream-Closed, "
                        "Stream-Cursor, Stream-End-Reason, Stream-Expires-At, "
                        "Stream-Next-Offset, Stream-Retain-Age, Stream-Retain-Bytes, "
                        "Stream-Retain-Events, Stream-SSE-Data-Encoding, Stream-TTL, "
                        "Stream-Up-To-Date"),
    .methods = STR_INIT("GET, HEAD, POST, PUT, DELETE, OPTIONS"),
    .headers = STR_INIT("Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, "
                        "Producer-Epoch, Producer-Id, Producer-Seq, Stream-Closed, "
                        "Stream-Expires-At, Stream-Fork-Offset, Stream-Fork-Sub-Offset, "
                        "Stream-Forked-From, Stream-Retain-Age, Stream-Retain-Bytes, "
                        "Stream-Retain-Events, Stream-Seq, Stream-TTL"),
    .keep_s = STR_INIT(SURFACE_KEEP_S),
};

const struct surface durable_surface = {
    .path = DURABLE_PREFIX, .rules = durable_rules, .share = &durable_share};

/* ---- requests ---- */

static bool is_write(enum method m)
{
    return m == METHOD_PUT || m == METHOD_POST || m == METHOD_DELETE;
}

/* Reserved names are for workers, and those of a session for who may work on it. */
static bool is_shown(const struct durable *d, const struct exchange *x, struct str name)
{
    const struct store_names *reserved = store_names_of(name);
    if (reserved == NULL)
        return true;
    struct str rest = str_skip(name, reserved->prefix.n), key = str_cut(&rest, '/');
    if (!reserved->sealed)
        return principal_works(x->principal);
    return principal_works(x->principal) && durable_space(d, name) != NULL &&
           principal_may(x->principal, ACCESS_VERB_WORK, ACCESS_SESSION, key);
}

static void handle_stream(struct durable *d, struct exchange *x, struct str name)
{
    if (!is_shown(d, x, name)) {
        exchange_error(x, ERR_NOT_FOUND);
        return;
    }
    if (is_write(x->request->method) && durable_owned(d, name)) {
        exchange_problem(x, 403, STR("OWNED"),
                         STR("the server writes this stream by itself; it can be read and forked"));
        return;
    }
    switch (x->request->method) {
    case METHOD_PUT: durable_put(d, x, name); break;
    case METHOD_POST: durable_post(d, x, name); break;
    case METHOD_GET:
        durable_tell_asked(d, name);
        durable_get(d, x, name);
        break;
    case METHOD_HEAD: head(d, x, name); break;
    case METHOD_DELETE: delete (d, x, name); break;
    default: no_such_method(x);
    }
}

void durable_handle(void *durable, struct exchange *x)
{
    struct durable *d = durable;
    enum method method = x->request->method;
    struct str path = x->request->path, name;
    if (path.n == sizeof DURABLE_PREFIX - 1) {
        if (method == METHOD_GET || method == METHOD_HEAD)
            durable_list(d, x);
        else
            no_such_method(x);
    } else if (request_name(x, path, &name) != 0) {
        exchange_problem(x, 400, STR("BAD_NAME"),
                         STR("a stream's name is 1 to 480 bytes of UTF-8 without control "
                             "characters, percent-encoded in the path, and not under __ds/"));
    } else if ((name = exchange_rooted(x, name)).n > STORE_NAME_MAX) {
        exchange_problem(x, 400, STR("BAD_NAME"), STR("the name is too long"));
    } else {
        handle_stream(d, x, name);
    }
}
