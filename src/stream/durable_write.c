// SPDX-License-Identifier: Apache-2.0
/* durable_write.c -- PUT and POST: create, append, close, fork. */
#include "base/date.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/num.h"
#include "http/limits.h"
#include "stream/payload.h"
#include "store/content.h"
#include "store/names.h"
#include "stream/durable_core.h"
#include "stream/usage.h"

#define PRODUCER_ID_MAX 255

struct write_request {
    struct store_write write;
    struct stream_config config;
    struct payload payload;
    struct durable *durable;
    struct exchange *x;

    /* A large body, while it is prepared on the lane, to which all above belongs meanwhile. */
    struct job job;
    struct buf body;
    struct str type;
    bool empty_allowed;

    /* Of what the principal's root may hold, and whether a stream is there that it cannot have one
     * more of. */
    struct usage_claim claim;
    struct store_stat stat;
    struct str plain; /* the body meanwhile: the exchange's */
};

/* One row per request header that sets something; a table keeps PUT and POST alike. */
typedef int header_fn(struct write_request *r, struct str value);

struct header_row {
    struct str name;
    header_fn *set; /* 0, or an error: 400 */
    const char *expected;
};

static int durable_write_set_content_type(struct write_request *r, struct str value)
{
    if (!content_valid(value))
        return ERR_SYNTAX;
    r->write.content_type = value;
    return 0;
}

/* Of an append: it is compared with the stream's own and needs no other look. */
static int durable_write_set_append_type(struct write_request *r, struct str value)
{
    r->write.content_type = value;
    return 0;
}

static int durable_write_set_ttl(struct write_request *r, struct str value)
{
    uint64_t s;
    int err = num_parse_canonical(value, INT64_MAX / 1000000, &s);
    if (err == 0)
        r->config.ttl_s = (int64_t)s;
    return err;
}

static int durable_write_set_expires(struct write_request *r, struct str value)
{
    return r->config.ttl_s >= 0 ? ERR_SYNTAX : date_parse_rfc3339(value, &r->config.expires_ms);
}

static int durable_write_set_retain_events(struct write_request *r, struct str value)
{
    return num_parse_canonical(value, INT64_MAX, &r->config.retain.events);
}

static int durable_write_set_retain_bytes(struct write_request *r, struct str value)
{
    return num_parse_canonical(value, INT64_MAX, &r->config.retain.bytes);
}

static int durable_write_set_retain_age(struct write_request *r, struct str value)
{
    uint64_t s;
    int err = num_parse_canonical(value, INT64_MAX / 1000000, &s);
    if (err == 0)
        r->config.retain.age_ms = s * 1000;
    return err;
}

static int durable_write_set_forked_from(struct write_request *r, struct str value)
{
    r->config.fork_at_tail = true;
    int err = durable_name(r->x, value, &r->config.fork_of);
    if (err == 0 && (store_sealed(r->config.fork_of) ||
                     (store_reserved(r->config.fork_of) && !principal_works(r->x->principal))))
        err = ERR_SYNTAX;
    return err;
}

static int durable_write_set_fork_offset(struct write_request *r, struct str value)
{
    r->config.fork_at_tail = false;
    return r->config.fork_of.n == 0 ? ERR_SYNTAX : offset_parse(value, &r->config.fork_at);
}

static int durable_write_set_fork_sub(struct write_request *r, struct str value)
{
    return r->config.fork_of.n == 0 ? ERR_SYNTAX
                                    : num_parse_canonical(value, INT64_MAX, &r->config.fork_sub);
}

static int durable_write_set_seq(struct write_request *r, struct str value)
{
    r->write.seq = value;
    return value.n > STORE_SEQ_MAX ? ERR_SYNTAX : 0;
}

static int durable_write_set_if_match(struct write_request *r, struct str value)
{
    if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
        value = str_of(value.p + 1, value.n - 2);
    r->write.if_match = true;
    return offset_parse(value, &r->write.match);
}

static int durable_write_set_producer_id(struct write_request *r, struct str value)
{
    r->write.claim.id = value;
    return value.n == 0 || value.n > PRODUCER_ID_MAX ? ERR_SYNTAX : 0;
}

static int durable_write_set_producer_epoch(struct write_request *r, struct str value)
{
    return num_parse(value, NUM_SAFE_MAX, &r->write.claim.epoch);
}

static int durable_write_set_producer_seq(struct write_request *r, struct str value)
{
    return num_parse(value, NUM_SAFE_MAX, &r->write.claim.seq);
}

enum { PUT_FORKED_FROM = 6 };
static const struct header_row put_rows[] = {
    {STR_INIT("Content-Type"), durable_write_set_content_type,
     "a media type such as application/json"},
    {STR_INIT("Stream-TTL"), durable_write_set_ttl, "seconds as a plain decimal number"},
    {STR_INIT("Stream-Expires-At"), durable_write_set_expires,
     "an RFC 3339 time such as 2030-01-31T12:00:00Z, and not beside Stream-TTL"},
    {STR_INIT("Stream-Retain-Events"), durable_write_set_retain_events,
     "a plain decimal number; 0: no bound"},
    {STR_INIT("Stream-Retain-Bytes"), durable_write_set_retain_bytes,
     "a plain decimal number; 0: no bound"},
    {STR_INIT("Stream-Retain-Age"), durable_write_set_retain_age,
     "seconds as a plain decimal number; 0: no bound"},
    [PUT_FORKED_FROM] = {STR_INIT("Stream-Forked-From"), durable_write_set_forked_from,
                         "the path of a stream"},
    {STR_INIT("Stream-Fork-Offset"), durable_write_set_fork_offset,
     "an offset of the source, beside Stream-Forked-From"},
    {STR_INIT("Stream-Fork-Sub-Offset"), durable_write_set_fork_sub,
     "a plain decimal number, beside Stream-Forked-From"},
};

static const struct header_row post_rows[] = {
    {STR_INIT("Content-Type"), durable_write_set_append_type,
     "a media type such as application/json"},
    {STR_INIT("Stream-Seq"), durable_write_set_seq, "at most 255 bytes"},
    {STR_INIT("If-Match"), durable_write_set_if_match,
     "the offset that the stream's tail must be at"},
    {STR_INIT("Producer-Id"), durable_write_set_producer_id, "1 to 255 bytes"},
    {STR_INIT("Producer-Epoch"), durable_write_set_producer_epoch, "a decimal number up to 2^53-1"},
    {STR_INIT("Producer-Seq"), durable_write_set_producer_seq, "a decimal number up to 2^53-1"},
};
#define PRODUCER_BITS 0x38u /* the last three: they come together */
#define ROWS(table)   table, sizeof(table) / sizeof *(table)

static bool durable_write_refuse(struct exchange *x, const struct header_row *row)
{
    exchange_problem(x, 400, STR("BAD_HEADER"),
                     arena_printf(&x->arena, "%.*s: given once, expected %s", (int)row->name.n,
                                  row->name.p, row->expected));
    return false;
}

/* One pass over the request's headers. *found gets a bit for each row that was there. False: one
 * was wrong and has been answered. */
static bool take_headers(struct write_request *r, const struct header_row *rows, size_t n,
                         unsigned *found)
{
    const struct request *req = r->x->request;
    const struct str *values[16];
    *found = 0;
    for (int i = 0; i < req->n_headers; i++) {
        for (size_t k = 0; k < n; k++) {
            if (!str_eq_nocase(req->headers[i].name, rows[k].name))
                continue;
            if (*found & 1u << k)
                return durable_write_refuse(r->x, &rows[k]);
            *found |= 1u << k;
            values[k] = &req->headers[i].value;
        }
    }
    for (size_t k = 0; k < n; k++) /* in the rows' order: some depend on those before */
        if ((*found & 1u << k) && rows[k].set(r, *values[k]) != 0)
            return durable_write_refuse(r->x, &rows[k]);
    return true;
}

static struct write_request *new_request(struct durable *d, struct exchange *x, struct str name,
                                         void (*done)(struct store_write *w, int err))
{
    struct write_request *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct write_request){.durable = d, .x = x};
    r->write.name = name;
    r->write.done = done;
    r->write.close = durable_wants_close(x);
    r->write.end = r->write.close ? END_COMPLETED : END_NONE;
    r->config.ttl_s = r->config.expires_ms = STORE_TTL_NONE;
    x->state = r;
    return r;
}

static void durable_write_run(struct job *job)
{
    struct write_request *r = container_of(job, struct write_request, job);
    payload_prepare_large(&r->payload, &r->write, r->type, &r->body, r->empty_allowed);
}

static void durable_write_prepared(struct job *job)
{
    struct write_request *r = container_of(job, struct write_request, job);
    store_write(durable_home(r->durable, r->write.name).store, &r->write);
    gate_leave(&r->durable->preparing);
}

struct lane *durable_lane(struct durable *d, size_t n)
{
    bool huge = n > DURABLE_HUGE;
    struct lane **lane = huge ? &d->huge_lane : &d->lane;
    if (n <= PAYLOAD_LARGE)
        return NULL;
    if (*lane == NULL && d->make_lane != NULL)
        *lane = d->make_lane(d->ctx, huge);
    return *lane;
}

/* The body is that of the exchange, and of this type. */
static void durable_write_start(struct write_request *r, struct str type, struct str body,
                                bool empty_allowed)
{
    struct durable *d = r->durable;
    struct lane *lane = durable_lane(d, body.n);
    exchange_hold(r->x);
    if (lane == NULL || !exchange_take_body(r->x, &r->body)) {
        payload_prepare(&r->payload, &r->write, type, body, empty_allowed);
        store_write(durable_home(d, r->write.name).store, &r->write);
        return;
    }
    r->type = type;
    r->empty_allowed = empty_allowed;
    r->job = (struct job){.run = durable_write_run, .done = durable_write_prepared};
    gate_enter(&d->preparing);
    lane_submit(lane, &r->job);
}

static void durable_write_finish(struct write_request *r, bool done)
{
    const struct store_write *w = &r->write;
    uint64_t bytes = done && !w->duplicate ? w->data.n : 0;
    bool created = done && w->created && !w->duplicate;
    usage_settle(r->durable->usage, &r->claim, created, bytes);
    limits_count_bytes(r->x, bytes);
    if (w->create != NULL && !created)
        limits_give_back_create(r->x);
    payload_deinit(&r->payload);
    exchange_release(r->x);
}

/* ---- what there is room for ---- */

/* It has waited with the exchange held, and inside the gate. */
static void durable_write_go_on(struct write_request *r)
{
    durable_write_start(r, r->type, r->plain, r->empty_allowed);
    gate_leave(&r->durable->preparing);
    exchange_release(r->x);
}

static void durable_write_stop(struct write_request *r)
{
    limits_refuse_quota(r->x, STR("there is no room for this: as many streams, or as many bytes, "
                                  "are stored as the credential allows"));
    gate_leave(&r->durable->preparing);
    exchange_release(r->x);
}

static void durable_write_on_stat(struct store_stat *stat, int err)
{
    struct write_request *r = container_of(stat, struct write_request, stat);
    if (err == 0)
        durable_write_go_on(r);
    else
        durable_write_stop(r);
}

/* A PUT of a stream that is there changes nothing. */
static void durable_write_on_claim(struct usage_claim *claim, enum usage_answer answer)
{
    struct write_request *r = container_of(claim, struct write_request, claim);
    if (answer == USAGE_GRANTED) {
        durable_write_go_on(r);
    } else if (r->write.create != NULL) {
        r->stat = (struct store_stat){.name = r->write.name, .done = durable_write_on_stat};
        store_stat(durable_home(r->durable, r->write.name).store, &r->stat);
    } else {
        durable_write_stop(r);
    }
}

/* What the principal's root may hold, where that is bounded. */
static bool has_quota(struct write_request *r, const struct access_limits *limits)
{
    struct str root = r->x->principal->root;
    r->claim = (struct usage_claim){.root = root,
                                    .streams = r->write.create != NULL,
                                    .bytes = r->plain.n,
                                    .streams_max = limits->streams,
                                    .bytes_max = limits->stored,
                                    .done = durable_write_on_claim};
    return r->durable->usage != NULL && root.n > 0 && (limits->streams > 0 || limits->stored > 0);
}

/* The write begins if its rates and quota allow it. */
static void durable_write_admit(struct write_request *r, struct str type, struct str body,
                                bool empty_allowed)
{
    struct durable *d = r->durable;
    struct exchange *x = r->x;
    struct access_limits limits = limits_of(x->principal);
    r->plain = body;
    if (!limits_take_bytes(x, body.n) || (r->write.create != NULL && !limits_take_create(x)))
        return;
    if (!has_quota(r, &limits)) {
        durable_write_start(r, type, body, empty_allowed);
        return;
    }
    r->type = type;
    r->empty_allowed = empty_allowed;
    exchange_hold(x);
    gate_enter(&d->preparing);
    enum usage_answer answer = usage_take(d->usage, &r->claim);
    if (answer != USAGE_WAITS)
        durable_write_on_claim(&r->claim, answer);
}

static uint64_t most_of(const struct durable *d, const struct exchange *x)
{
    uint64_t own = x->principal->limits.max_append;
    return own > 0 && own < d->max_append ? own : d->max_append;
}

/* False: answered. */
static bool may_live(const struct write_request *r)
{
    struct exchange *x = r->x;
    uint64_t max_s = x->principal->limits.max_ttl;
    int64_t ends_ms = r->durable->sched->wall_ms + (int64_t)max_s * 1000;
    bool ttl = r->config.ttl_s >= 0 && (uint64_t)r->config.ttl_s <= max_s;
    if (max_s == 0 || ttl || (r->config.expires_ms >= 0 && r->config.expires_ms <= ends_ms))
        return true;
    exchange_problem(x, 422, STR("TTL"),
                     arena_printf(&x->arena, "the credential needs a Stream-TTL of at most %llu",
                                  (unsigned long long)max_s));
    return false;
}

static struct offset tail_of(const struct store_write *w)
{
    return (struct offset){w->info.life, w->info.tail};
}

/* ---- PUT ---- */

/* Where a browser or a client finds the stream, as an absolute URL. */
static struct str location(struct durable *d, struct exchange *x)
{
    struct str base = d->public_url, host = x->request->host, path = x->request->path;
    if (base.n > 0)
        return arena_printf(&x->arena, "%.*s%.*s", (int)base.n, base.p, (int)path.n, path.p);
    if (host.n == 0)
        return path;
    return arena_printf(&x->arena, "%s%.*s%.*s", exchange_scheme(x).p, (int)host.n, host.p,
                        (int)path.n, path.p);
}

static void durable_write_on_put(struct store_write *w, int err)
{
    struct write_request *r = container_of(w, struct write_request, write);
    struct exchange *x = r->x;
    if (err != 0) {
        durable_error(x, err, NULL);
    } else {
        exchange_status(x, w->created ? 201 : 200);
        if (w->created)
            exchange_header(x, STR("Location"), location(r->durable, x));
        exchange_header(x, STR("Content-Type"), arena_dup(&x->arena, w->info.content_type));
        durable_put_offset(x, STR("Stream-Next-Offset"), tail_of(w));
        durable_put_end(x, w->info.end);
        exchange_send(x, STR_NONE);
    }
    durable_write_finish(r, err == 0);
}

static void durable_write_on_put_body(struct exchange *x, struct str body, int err)
{
    struct write_request *r = x->state;
    if (err != 0) {
        exchange_error(x, err);
        return;
    }
    struct str type = r->config.content_type;
    /* Of a fork without a type of its own only the store knows whether it is JSON. */
    if (body.n > 0 && type.n == 0) {
        exchange_problem(x, 400, STR("BAD_HEADER"),
                         STR("a fork that is created with a body needs a Content-Type"));
        return;
    }
    durable_write_admit(r, type, body, true);
}

/* The source, if there is one. False: answered. */
static bool durable_write_may_fork(struct write_request *r)
{
    struct str *source = &r->config.fork_of;
    if (source->n == 0)
        return true;
    if (!exchange_may(r->x, ACCESS_VERB_FORK, ACCESS_STREAM, *source))
        return false;
    *source = exchange_rooted(r->x, *source);
    return source->n <= STORE_NAME_MAX || durable_write_refuse(r->x, &put_rows[PUT_FORKED_FROM]);
}

void durable_put(struct durable *d, struct exchange *x, struct str name)
{
    struct write_request *r = new_request(d, x, name, durable_write_on_put);
    unsigned found;
    if (!take_headers(r, ROWS(put_rows), &found) || !durable_write_may_fork(r) || !may_live(r))
        return;
    r->config.content_type = r->write.content_type;
    if (r->config.content_type.n == 0 && r->config.fork_of.n == 0)
        r->config.content_type = STR("application/octet-stream");
    r->write.content_type = STR_NONE;
    r->write.create = &r->config;
    exchange_collect(x, most_of(d, x), durable_write_on_put_body);
}

/* ---- POST ---- */

static void durable_write_put_producer(struct exchange *x, const struct store_write *w)
{
    exchange_header_u64(x, STR("Producer-Epoch"), w->producer.epoch);
    exchange_header_u64(x, STR("Producer-Seq"), w->producer.seq);
}

static void post_failed(struct exchange *x, const struct durable *d, const struct store_write *w,
                        int err)
{
    const struct stream_space *space = durable_space(d, w->name);
    if (err == ERR_FENCED)
        exchange_header_u64(x, STR("Producer-Epoch"), w->producer.epoch);
    if (err == ERR_SEQ_GAP) {
        exchange_header_u64(x, STR("Producer-Expected-Seq"), w->expected_seq);
        exchange_header_u64(x, STR("Producer-Received-Seq"), w->claim.seq);
    }
    if (err == ERR_CLOSED)
        durable_put_end(x, w->info.end);
    if (err == ERR_CLOSED || err == ERR_TAIL_MOVED)
        durable_put_offset(x, STR("Stream-Next-Offset"), tail_of(w));
    if (err == ERR_SYNTAX && space != NULL && space->takes.n > 0)
        exchange_problem(x, 400, STR("SYNTAX"), space->takes);
    else
        durable_error(x, err, NULL);
}

static void durable_write_on_post(struct store_write *w, int err)
{
    struct write_request *r = container_of(w, struct write_request, write);
    struct exchange *x = r->x;
    if (err != 0) {
        post_failed(x, r->durable, w, err);
    } else {
        bool fresh_by_producer = w->claim.id.n > 0 && !w->duplicate && w->data.n > 0;
        exchange_status(x, fresh_by_producer ? 200 : 204);
        durable_put_offset(x, STR("Stream-Next-Offset"), tail_of(w));
        if (w->claim.id.n > 0)
            durable_write_put_producer(x, w);
        durable_put_end(x, w->info.end);
        exchange_send(x, STR_NONE);
    }
    durable_write_finish(r, err == 0);
}

static void durable_write_on_post_body(struct exchange *x, struct str body, int err)
{
    struct write_request *r = x->state;
    if (err != 0) {
        exchange_error(x, err);
        return;
    }
    struct str type = r->write.content_type;
    if (body.n > 0 && type.p == NULL) {
        exchange_problem(x, 400, STR("BAD_HEADER"), STR("an append needs a Content-Type"));
        return;
    }
    bool close_only = body.n == 0 && r->write.close;
    if (close_only)
        r->write.content_type = STR_NONE;
    durable_write_admit(r, type, body, close_only);
}

void durable_post(struct durable *d, struct exchange *x, struct str name)
{
    struct write_request *r = new_request(d, x, name, durable_write_on_post);
    unsigned found;
    if (!take_headers(r, ROWS(post_rows), &found))
        return;
    if ((found & PRODUCER_BITS) != 0 && (found & PRODUCER_BITS) != PRODUCER_BITS) {
        exchange_problem(x, 400, STR("BAD_HEADER"),
                         STR("Producer-Id, Producer-Epoch and Producer-Seq come together"));
        return;
    }
    exchange_collect(x, most_of(d, x), durable_write_on_post_body);
}
