// SPDX-License-Identifier: Apache-2.0
#include "feature/poll/poll.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/lane.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/rand.h"
#include "base/units.h"
#include "feature/poll/poll_changes.h"
#include "stream/durable.h"
#include "stream/subscriber.h"
#include "stream/writer.h"
#include "http/fetch.h"
#include "http/url.h"
#include "feature/poll/poll_config.h"
#include "feature/poll/poll_trace.h"
#include "store/store.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

TRACE_TABLE_DEFINE(poll_traces, POLL_TRACES);

#define CONTENT_TYPE "application/json"
#define RETRY_MAX_MS DAY_MS
#define RETRY_FOR_MS (30 * SECOND_MS) /* with a store that does not answer */

/* IDLE    nobody asks; not before `due_ms` does it begin again
 * WAITING for the timer
 * LOADING what was reached before, then the stream is made
 * ASKING  the resource
 * TAKING  what is new from a large answer, on a lane
 * WRITING that
 * DEAD    the stream was closed, or is somebody else's */
enum state { IDLE, WAITING, LOADING, ASKING, TAKING, WRITING, DEAD };

struct poller {
    struct polls *all;
    const struct poll_config *config;
    struct poll_rules rules;
    struct poll_cursor cursor;
    struct buf name; /* of the stream, and of the document of its place */
    struct timer timer;
    enum state state;
    bool loaded, asked;
    uint64_t due_ms;
    struct poll_pace pace;
    struct poll_position position, next; /* stored; and what is being written */
    uint64_t version;                    /* of the document; 0: there is none */
    struct store_docs docs;
    struct writer writer;
    struct stream_config create;
    struct doc_put put;
    struct buf stored, events, ends, url, etag;
    struct header *headers;
    struct fetch fetch;
    uint64_t retry_ms;

    /* TAKING: `next`, `events` and `ends` belong to the lane, too. */
    struct job take;
    struct str body; /* of the answer */
    struct buf answer;
    int took; /* 0, or an error, and then `why` */
    char why[160];
};

struct polls {
    struct polls_setup setup;
    struct poller *pollers;
    struct map by_name;
    struct stream_hooks hooks;
    struct gate writing; /* jobs and operations of the store; shut when all is to stop */
};

static void poll_begin(struct poller *p);

/* ---- when ---- */

static bool wanted(const struct poller *p)
{
    return p->config->always || p->asked || feeds_has(p->all->setup.feeds, buf_str(&p->name));
}

static void wait_until_due(struct poller *p)
{
    uint64_t now = p->all->setup.sched->now_ms;
    p->state = WAITING;
    sched_start(p->all->setup.sched, &p->timer, p->due_ms > now ? p->due_ms - now : 0);
}

static void rest(struct poller *p, enum poll_outcome outcome)
{
    uint64_t pause = poll_pause_ms(&p->pace, outcome, p->retry_ms, rand_u64());
    p->due_ms = p->all->setup.sched->now_ms + pause;
    p->state = IDLE;
    if (!gate_is_shut(&p->all->writing))
        wait_until_due(p);
}

static void poll_on_timer(struct timer *t)
{
    struct poller *p = container_of(t, struct poller, timer);
    p->state = IDLE;
    if (wanted(p) || !p->loaded)
        poll_begin(p);
}

static void polls_on_asked(void *polls, struct str name)
{
    struct polls *all = polls;
    struct poller *p = map_get(&all->by_name, name);
    if (p == NULL || gate_is_shut(&all->writing))
        return;
    p->asked = true;
    if (p->state == IDLE)
        wait_until_due(p);
}

static bool polls_own(void *polls, struct str name)
{
    const struct polls *all = polls;
    return map_get(&all->by_name, name) != NULL;
}

static void poll_fail(struct poller *p, const char *why)
{
    rest(p, POLL_FAILED);
    trace(p->all->setup.trace, POLL_FAILED, TRACE_STR("poll", str_of_cstr(p->config->name)),
          TRACE_STR("error", str_of_cstr(why)),
          TRACE_INT("retry_ms", (int64_t)(p->due_ms - p->all->setup.sched->now_ms)));
}

static void die(struct poller *p, int err)
{
    p->state = DEAD;
    trace(p->all->setup.trace, POLL_ENDED, TRACE_STR("poll", str_of_cstr(p->config->name)),
          TRACE_STR("why", str_of_cstr(err_text(err))));
}

/* ---- the store ---- */

static void store_begin(struct poller *p)
{
    gate_enter(&p->all->writing);
}

/* False: it was the last thing that stopping waited for, and nothing may follow. */
static bool store_end(struct poller *p)
{
    gate_leave(&p->all->writing);
    return !gate_is_shut(&p->all->writing);
}

static bool is_final(int err)
{
    return err == ERR_CLOSED || err == ERR_EXISTS || err == ERR_TYPE_MISMATCH;
}

static void poll_on_written(struct writer *w, int err)
{
    struct poller *p = container_of(w, struct poller, writer);
    bool placed = w->write.n_docs > 0;
    if (err == 0 && placed) {
        poll_position_deinit(&p->position);
        p->position = p->next;
        p->next = (struct poll_position){0};
        p->version = DOC_NEXT(p->version);
    }
    poll_position_deinit(&p->next);
    if (!store_end(p))
        return;
    if (err == ERR_VERSION || (err == ERR_NOT_FOUND && placed)) {
        /* Another server was quicker, or somebody removed the stream: go on from what is there. */
        p->loaded = false;
        rest(p, POLL_CHANGED);
    } else if (is_final(err)) {
        die(p, err);
    } else if (err != 0) {
        poll_fail(p, err_text(err));
    } else if (placed) {
        rest(p, POLL_CHANGED);
    } else {
        p->loaded = true;
        p->state = IDLE;
        if (wanted(p))
            poll_begin(p);
    }
}

static void begin_write(struct poller *p)
{
    p->state = WRITING;
    p->writer.write.name = buf_str(&p->name);
    store_begin(p);
    writer_start(&p->writer, p->all->setup.store);
}

static void make_stream(struct poller *p)
{
    p->create = (struct stream_config){
        .content_type = STR(CONTENT_TYPE), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    p->writer.write = (struct store_write){.create = &p->create};
    begin_write(p);
}

/* The events and the place behind them. */
static void put_news(struct poller *p)
{
    p->put = (struct doc_put){
        .key = buf_str(&p->name), .value = buf_str(&p->stored), .expect_version = p->version};
    p->writer.write = (struct store_write){.data = buf_str(&p->events),
                                           .ends = (const uint32_t *)(const void *)p->ends.p,
                                           .n_events = (uint32_t)(p->ends.n / sizeof(uint32_t)),
                                           .docs = &p->put,
                                           .n_docs = 1};
    begin_write(p);
}

static void poll_on_docs(struct store_docs *d, int err)
{
    struct poller *p = container_of(d, struct poller, docs);
    const char *why = err != 0 ? err_text(err) : NULL;
    poll_position_deinit(&p->position);
    p->version = 0;
    if (err == 0 && d->n_rows > 0) {
        p->version = d->rows[0].version;
        if (poll_position_take(d->rows[0].value, &p->position) != 0)
            why =
                "the stored place cannot be read; remove the stream's document or rename the poll";
    }
    if (!store_end(p))
        return;
    if (why != NULL)
        poll_fail(p, why);
    else
        make_stream(p);
}

static void poll_load(struct poller *p)
{
    p->state = LOADING;
    p->docs = (struct store_docs){
        .prefix = buf_str(&p->name), .exact = true, .limit = 1, .done = poll_on_docs};
    store_begin(p);
    store_docs(p->all->setup.store, &p->docs);
}

/* ---- the resource ---- */

/* Seconds, or a date. */
static uint64_t retry_after_ms(const struct poller *p, struct str text)
{
    uint64_t ms = 0, seconds;
    char date[64];
    if (num_parse(str_trim(text), UINT32_MAX, &seconds) == 0)
        return seconds < RETRY_MAX_MS / SECOND_MS ? seconds * SECOND_MS : RETRY_MAX_MS;
    if (text.n == 0 || text.n >= sizeof date)
        return 0;
    memcpy(date, text.p, text.n);
    date[text.n] = '\0';
    int64_t then_ms = (int64_t)curl_getdate(date, NULL) * SECOND_MS;
    if (then_ms > p->all->setup.sched->wall_ms)
        ms = (uint64_t)(then_ms - p->all->setup.sched->wall_ms);
    return ms > RETRY_MAX_MS ? RETRY_MAX_MS : ms;
}

static void poll_on_head(struct fetch *f)
{
    struct poller *p = container_of(f, struct poller, fetch);
    struct str etag = fetch_header(f, "ETag");
    p->etag.n = 0;
    if (etag.n <= POLL_ETAG_MAX)
        buf_put(&p->etag, etag);
    p->retry_ms = retry_after_ms(p, fetch_header(f, "Retry-After"));
}

static void poll_run_take(struct job *j)
{
    struct poller *p = container_of(j, struct poller, take);
    p->took = poll_take(&p->rules, &p->next, p->body, &p->events, &p->ends, p->why, sizeof p->why);
}

static void put_taken(struct poller *p)
{
    buf_deinit(&p->answer);
    if (p->took != 0) {
        poll_fail(p, p->why);
        return;
    }
    p->next.etag.n = 0;
    buf_put(&p->next.etag, buf_str(&p->etag));
    if (p->ends.n == 0) { /* a newer tag of the same is worth no write */
        poll_position_deinit(&p->position);
        p->position = p->next;
        p->next = (struct poll_position){0};
        rest(p, POLL_SAME);
        return;
    }
    poll_position_put(&p->stored, &p->next);
    put_news(p);
}

static void poll_on_taken(struct job *j)
{
    struct poller *p = container_of(j, struct poller, take);
    if (store_end(p))
        put_taken(p);
}

static void take_answer(struct poller *p)
{
    struct lane *lane = durable_lane(p->all->setup.durable, p->fetch.answer.n);
    p->events.n = p->ends.n = p->stored.n = 0;
    poll_position_deinit(&p->next);
    poll_position_copy(&p->next, &p->position);
    p->body = buf_str(&p->fetch.answer);
    p->take = (struct job){.run = poll_run_take, .done = poll_on_taken};
    if (lane != NULL) {
        p->state = TAKING;
        buf_put(&p->answer, p->body); /* which is lent for this call */
        p->body = buf_str(&p->answer);
        store_begin(p);
        lane_submit(lane, &p->take);
        return;
    }
    poll_run_take(&p->take);
    put_taken(p);
}

static void poll_on_fetched(struct fetch *f, int err)
{
    struct poller *p = container_of(f, struct poller, fetch);
    char why[160];
    if (err != 0) {
        p->retry_ms = 0;
        poll_fail(p, f->error[0] != '\0' ? f->error : fetch_cause_text(f->cause));
    } else if (f->status == 304) {
        rest(p, POLL_SAME);
    } else if (f->status != 200) {
        snprintf(why, sizeof why, "the answer's status is %d", f->status);
        poll_fail(p, why);
    } else {
        take_answer(p);
    }
}

static void put_url(struct poller *p)
{
    struct str url = str_of_cstr(p->config->url);
    p->url.n = 0;
    buf_put(&p->url, url);
    if (p->rules.cursor.p == NULL || p->position.cursor.n == 0)
        return;
    buf_putc(&p->url, memchr(url.p, '?', url.n) != NULL ? '&' : '?');
    url_encode(&p->url, p->cursor.parameter, false);
    buf_putc(&p->url, '=');
    url_encode(&p->url, buf_str(&p->position.cursor), false);
}

/* Redirects are not followed: they would take the headers, and whoever reads the stream, to places
 * that nobody has configured. */
static void poll_ask(struct poller *p)
{
    size_t n = p->config->headers.n;
    p->state = ASKING;
    p->asked = false;
    p->retry_ms = 0;
    put_url(p);
    if (p->position.etag.n > 0)
        p->headers[n++] = (struct header){STR("If-None-Match"), buf_str(&p->position.etag)};
    p->fetch = (struct fetch){.url = buf_str(&p->url),
                              .method = STR("GET"),
                              .headers = p->headers,
                              .n_headers = n,
                              .policy = {.configured = true},
                              .version = FETCH_HTTP_AUTO,
                              .total_timeout_ms = (uint32_t)p->config->timeout_ms,
                              .max_answer = p->config->max_answer_bytes,
                              .on_head = poll_on_head,
                              .done = poll_on_fetched};
    fetch_start(p->all->setup.fetcher, &p->fetch);
}

static void poll_begin(struct poller *p)
{
    if (p->loaded)
        poll_ask(p);
    else
        poll_load(p);
}

/* ---- all of them ---- */

static void init_headers(struct poller *p)
{
    const struct option_list *lines = &p->config->headers;
    p->headers = mem_alloc((lines->n + 1) * sizeof *p->headers);
    for (size_t i = 0; i < lines->n; i++) {
        struct str value = str_of_cstr(lines->items[i]);
        struct str name = str_cut(&value, ':');
        p->headers[i] = (struct header){name, str_trim(value)};
    }
}

static struct str text_or_empty(const char *text)
{
    return str_of_cstr(text != NULL ? text : "");
}

static void init_poller(struct poller *p, struct polls *all, const struct poll_config *c)
{
    *p = (struct poller){.all = all,
                         .config = c,
                         .rules = {.mode = (enum poll_mode)c->mode,
                                   .items = text_or_empty(c->items),
                                   .key = text_or_empty(c->key),
                                   .newest_first = c->newest_first},
                         .pace = {.every_ms = c->every_ms, .slowest_ms = c->slowest_ms}};
    if (c->cursor != NULL) {
        p->cursor = poll_cursor_of(str_of_cstr(c->cursor));
        p->rules.cursor = p->cursor.pointer;
        p->rules.cursor_of_answer = p->cursor.of_answer;
    }
    buf_printf(&p->name, POLL_STREAMS "%s", c->name);
    timer_init(&p->timer, poll_on_timer);
    writer_init(&p->writer, RETRY_FOR_MS, poll_on_written);
    init_headers(p);
    map_put(&all->by_name, buf_str(&p->name), p);
}

struct polls *polls_new(const struct polls_setup *setup)
{
    struct polls *all = mem_zalloc(sizeof *all);
    all->setup = *setup;
    map_init(&all->by_name);
    gate_init(&all->writing, setup->sched);
    all->hooks = (struct stream_hooks){.asked = polls_on_asked, .owns = polls_own, .ctx = all};
    durable_add_hooks(setup->durable, &all->hooks);
    all->pollers = mem_zalloc((setup->n_configs + 1) * sizeof *all->pollers);
    for (size_t i = 0; i < setup->n_configs; i++) {
        init_poller(&all->pollers[i], all, &setup->configs[i]);
        poll_load(&all->pollers[i]); /* so that the streams are there for who wants to read them */
    }
    return all;
}

void polls_stop(struct polls *all, void (*stopped)(void *ctx), void *ctx)
{
    gate_shut(&all->writing, stopped, ctx);
    for (size_t i = 0; i < all->setup.n_configs; i++) {
        timer_stop(&all->pollers[i].timer);
        if (writer_stop(&all->pollers[i].writer))
            store_end(&all->pollers[i]);
        fetch_cancel(&all->pollers[i].fetch);
    }
}

static void deinit_poller(struct poller *p)
{
    struct buf *bufs[] = {&p->name, &p->stored, &p->events, &p->ends,
                          &p->url,  &p->etag,   &p->answer};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_deinit(bufs[i]);
    poll_position_deinit(&p->position);
    poll_position_deinit(&p->next);
    free(p->headers);
}

void polls_free(struct polls *all)
{
    if (all == NULL)
        return;
    map_deinit(&all->by_name);
    for (size_t i = 0; i < all->setup.n_configs; i++)
        deinit_poller(&all->pollers[i]);
    free(all->pollers);
    free(all);
}
