// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/webhook_upstream.h"
#include "base/backoff.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "base/sched.h"
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/webhook_queue.h"
#include "http/audit.h"
#include "http/fetch.h"
#include "http/url.h"
#include "net/addr.h"
#include "feature/subscriptions/subscription_json.h"
#include "feature/subscriptions/subscriptions_trace.h"
#include "telemetry/metrics.h"
#include "token/signer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

TRACE_TABLE_DEFINE(subscriptions_traces, SUBSCRIPTIONS_TRACES);

#define CONNECT_TIMEOUT_MS 10000
#define ANSWER_MAX         (64 * 1024)
#define RETRY_MIN_MS       1000
#define RETRY_MAX_MS       60000

/* ---- which URLs ---- */

/* What the host's spelling alone tells; a name tells nothing but for this one. */
static enum addr_class host_class(struct str host)
{
    struct sockaddr_storage ip;
    if (str_eq_nocase(host, STR("localhost")))
        return ADDR_LOOPBACK;
    if (addr_parse_ip(host, &ip) != 0)
        return ADDR_PUBLIC;
    return addr_classify((struct sockaddr *)&ip, sizeof ip);
}

/* The host is spelled as an address of this machine, and the port is ours. */
static bool is_own(const struct url *url, const struct addr_own *own)
{
    struct sockaddr_storage ip;
    struct str host = str_eq_nocase(url->host, STR("localhost")) ? STR("127.0.0.1") : url->host;
    return addr_parse_ip(host, &ip) == 0 &&
           addr_is_own(own, (struct sockaddr *)&ip, sizeof ip, url->port);
}

int webhook_url_check(struct str text, struct webhook_policy policy, struct str *why)
{
    struct url url;
    if (url_parse(text, &url) != 0) {
        *why = STR("webhook.url must be an absolute https URL");
        return ERR_SYNTAX;
    }
    enum addr_class class = host_class(url.host);
    if (class == ADDR_LOOPBACK && !policy.allow_local) {
        *why = STR("this server does not deliver webhooks to its own machine; "
                   "allow-loopback-targets lets it");
        return ERR_FORBIDDEN_ADDR;
    }
    if (is_own(&url, policy.own)) {
        *why = STR("this server does not deliver webhooks to itself");
        return ERR_FORBIDDEN_ADDR;
    }
    if (class != ADDR_LOOPBACK && str_eq_nocase(url.scheme, STR("http"))) {
        *why = STR("webhook.url must use https; http is for localhost, 127.x and [::1] only");
        return ERR_FORBIDDEN_ADDR;
    }
    if (!addr_allowed(class, (struct addr_policy){.allow_loopback = true,
                                                  .allow_private = policy.allow_private})) {
        *why = STR("webhook.url must not point into a private network");
        return ERR_FORBIDDEN_ADDR;
    }
    return 0;
}

uint64_t webhook_retry_ms(uint32_t failures, uint64_t random)
{
    return backoff_jitter(backoff_ms(RETRY_MIN_MS, RETRY_MAX_MS, failures), 5, random);
}

/* ---- deliveries ---- */

struct webhooks {
    struct sched *sched;
    struct subscriptions *subs;
    struct fetcher *fetcher;
    struct webhook_policy policy;
    const struct trace *trace;
    struct audit *audit;
    struct subscription_notifier notifier;
    struct map by_id; /* of struct delivery */
    struct webhook_queue queue;
    struct gauge waiting, running;
    bool stopping;
};

struct delivery {
    struct webhooks *webhooks;
    struct webhook_turn turn;
    bool again;           /* the subscription became due while we were at it */
    struct timer overdue; /* while the receiver is asked */
    uint64_t asked_ms, took_ms;
    struct str receiver;
    struct subscription_call attempt, report;
    struct fetch fetch;
    struct header headers[2];
    struct buf body, signature;
    size_t id_n;
    char id[];
};

static void next_deliveries(struct webhooks *w);

static struct str webhook_id_of(const struct delivery *d)
{
    return str_of(d->id, d->id_n);
}

static void clear_delivery(struct delivery *d)
{
    subscription_call_deinit(&d->attempt);
    subscription_call_deinit(&d->report);
    d->body.n = d->signature.n = 0;
}

static void free_delivery(struct delivery *d)
{
    clear_delivery(d);
    timer_stop(&d->overdue);
    map_remove(&d->webhooks->by_id, webhook_id_of(d));
    buf_deinit(&d->body);
    buf_deinit(&d->signature);
    free(d);
}

static void webhook_wait(struct delivery *d)
{
    d->again = false;
    d->took_ms = WEBHOOK_NOT_ASKED;
    webhook_queue_put(&d->webhooks->queue, &d->turn, d->receiver);
}

static void end_delivery(struct delivery *d)
{
    struct webhooks *w = d->webhooks;
    webhook_queue_end(&w->queue, &d->turn, d->took_ms);
    if (d->again && !w->stopping) {
        clear_delivery(d);
        webhook_wait(d);
    } else {
        free_delivery(d);
    }
    next_deliveries(w);
}

/* ---- the answer ---- */

static void webhook_on_reported(struct subscription_call *c, int result)
{
    end_delivery(container_of(c, struct delivery, report));
}

static bool says_done(struct str answer)
{
    json_t *json = json_loadb(answer.p, answer.n, JSON_REJECT_DUPLICATES, NULL);
    bool done = json_is_true(json_object_get(json, "done"));
    json_decref(json);
    return done;
}

static void trace_failure(struct delivery *d, int err, uint64_t retry_ms)
{
    char text[160];
    if (err == 0)
        snprintf(text, sizeof text, "the receiver answered %d", d->fetch.status);
    else
        snprintf(text, sizeof text, "%s", d->fetch.error[0] ? d->fetch.error : err_text(err));
    trace(d->webhooks->trace, WEBHOOK_FAILED, TRACE_STR("subscription", webhook_id_of(d)),
          TRACE_STR("error", str_of_cstr(text)), TRACE_INT("retry_ms", (int64_t)retry_ms));
}

static void webhook_report(struct delivery *d, int err)
{
    const struct subscription_view *v = &d->attempt.view;
    /* A receiver that has taken it may talk as much as it likes. */
    bool answered = err == 0 || err == ERR_TOO_LARGE;
    bool delivered = answered && d->fetch.status >= 200 && d->fetch.status < 300;
    d->report = (struct subscription_call){
        .id = webhook_id_of(d),
        .wake_id = v->wake_id,
        .generation = v->generation,
        .delivered = delivered,
        .finished = delivered && err == 0 && says_done(buf_str(&d->fetch.answer)),
        .done = webhook_on_reported,
    };
    if (!delivered) {
        d->report.retry_ms = webhook_retry_ms(v->attempts + 1, rand_u64());
        trace_failure(d, err, d->report.retry_ms);
    }
    subscription_report(d->webhooks->subs, &d->report);
}

static void webhook_on_fetched(struct fetch *f, int err)
{
    struct delivery *d = container_of(f, struct delivery, fetch);
    timer_stop(&d->overdue);
    d->took_ms = d->webhooks->sched->now_ms - d->asked_ms;
    webhook_report(d, err);
}

static void webhook_on_overdue(struct timer *t)
{
    struct delivery *d = container_of(t, struct delivery, overdue);
    struct webhooks *w = d->webhooks;
    if (webhook_queue_overdue(&w->queue, &d->turn)) {
        if (d->turn.place != WEBHOOK_SLOW) /* nobody wants its place yet */
            sched_start(w->sched, t, WEBHOOK_QUICK_MS);
        next_deliveries(w); /* there may be one for somebody else */
        return;
    }
    fetch_cancel(&d->fetch);
    snprintf(d->fetch.error, sizeof d->fetch.error,
             "no answer yet, and too many other receivers are slow");
    d->took_ms = w->sched->now_ms - d->asked_ms;
    webhook_report(d, ERR_UPSTREAM_TIMEOUT);
}

/* ---- the request ---- */

static void send_wake(struct delivery *d)
{
    struct webhooks *w = d->webhooks;
    const struct subscription_view *v = &d->attempt.view;
    struct url url;
    subscription_json_wake(&d->body, webhook_id_of(d), v);
    signer_put_header(subscriptions_signer(w->subs), w->sched->wall_ms / 1000, buf_str(&d->body),
                      &d->signature);
    d->headers[0] = (struct header){STR("Content-Type"), STR("application/json")};
    d->headers[1] = (struct header){STR("Webhook-Signature"), buf_str(&d->signature)};
    url_parse(v->config.webhook_url, &url);
    d->fetch = (struct fetch){
        .url = v->config.webhook_url,
        .method = STR("POST"),
        .headers = d->headers,
        .n_headers = 2,
        .body = buf_str(&d->body),
        .about = webhook_id_of(d),
        /* only who names this machine may reach it, not who makes a name point here */
        .policy = {.allow_loopback = host_class(url.host) == ADDR_LOOPBACK,
                   .allow_private = w->policy.allow_private},
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .total_timeout_ms = (uint32_t)subscription_delivery_ms(v->config.lease_ttl_ms),
        .max_answer = ANSWER_MAX,
        .done = webhook_on_fetched,
    };
    d->asked_ms = w->sched->now_ms;
    sched_start(w->sched, &d->overdue, WEBHOOK_QUICK_MS);
    fetch_start(w->fetcher, &d->fetch);
}

static void webhook_on_attempt(struct subscription_call *c, int result)
{
    struct delivery *d = container_of(c, struct delivery, attempt);
    struct str why;
    if (result != 0 ||
        d->webhooks->stopping) { /* nothing to do, or the subscription will ask again */
        end_delivery(d);
        return;
    }
    /* The policy may have changed since the subscription was made. */
    if (webhook_url_check(c->view.config.webhook_url, d->webhooks->policy, &why) != 0) {
        d->fetch = (struct fetch){0};
        snprintf(d->fetch.error, sizeof d->fetch.error, "%.*s", (int)why.n, why.p);
        audit_tell(d->webhooks->audit, NULL,
                   &(struct audit_fact){
                       .event = AUDIT_TARGET_REFUSED, .cause = why, .name = webhook_id_of(d)});
        webhook_report(d, ERR_FORBIDDEN_ADDR);
        return;
    }
    send_wake(d);
}

static void next_deliveries(struct webhooks *w)
{
    struct webhook_turn *t;
    while (!w->stopping && (t = webhook_queue_next(&w->queue)) != NULL) {
        struct delivery *d = container_of(t, struct delivery, turn);
        d->attempt = (struct subscription_call){.id = webhook_id_of(d), .done = webhook_on_attempt};
        subscription_attempt(w->subs, &d->attempt);
    }
    gauge_set(&w->waiting, (int64_t)w->queue.n_waiting);
    gauge_set(&w->running, (int64_t)w->queue.n_running);
}

static void webhook_on_due(struct subscription_notifier *c, struct str id, struct str receiver)
{
    struct webhooks *w = container_of(c, struct webhooks, notifier);
    struct delivery *d = map_get(&w->by_id, id);
    if (d != NULL) {
        d->again = list_empty(&d->turn.link);
        return;
    }
    d = mem_zalloc(sizeof *d + id.n + receiver.n);
    d->webhooks = w;
    d->id_n = id.n;
    memcpy(d->id, id.p, id.n);
    if (receiver.n > 0)
        memcpy(d->id + id.n, receiver.p, receiver.n);
    d->receiver = str_of(d->id + id.n, receiver.n);
    timer_init(&d->overdue, webhook_on_overdue);
    list_init(&d->turn.link);
    map_put(&w->by_id, webhook_id_of(d), d);
    webhook_wait(d);
    next_deliveries(w);
}

static const struct metric_info waiting_info = {
    .name = "webhooks_waiting", .help = "Webhooks that wait for a place to be delivered"};
static const struct metric_info running_info = {.name = "webhooks_running",
                                                .help = "Webhooks being delivered"};
const struct metric_info *const webhook_metrics[] = {&waiting_info, &running_info, NULL};

struct webhooks *webhooks_new(struct sched *sched, struct subscriptions *subs,
                              struct fetcher *fetcher, struct webhook_policy policy,
                              const struct trace *trace, struct metrics *metrics)
{
    struct webhooks *w = mem_zalloc(sizeof *w);
    *w = (struct webhooks){.sched = sched,
                           .subs = subs,
                           .fetcher = fetcher,
                           .policy = policy,
                           .trace = trace,
                           .notifier = {webhook_on_due}};
    map_init(&w->by_id);
    webhook_queue_init(&w->queue);
    (void)metrics_add_gauge(metrics, STR("tidemark"), &waiting_info, &w->waiting);
    (void)metrics_add_gauge(metrics, STR("tidemark"), &running_info, &w->running);
    subscriptions_set_notifier(subs, &w->notifier);
    return w;
}

/* What waits for the subscription ends when that has answered. */
void webhooks_set_audit(struct webhooks *w, struct audit *audit)
{
    w->audit = audit;
}

void webhooks_stop(struct webhooks *w)
{
    w->stopping = true;
    subscriptions_set_notifier(w->subs, NULL);
    struct link gone; /* by the links of their turns: freeing one changes the map */
    list_init(&gone);
    size_t at = 0;
    for (struct delivery *d; (d = map_next(&w->by_id, &at)) != NULL;) {
        if (!list_empty(&d->turn.link))
            webhook_queue_remove(&w->queue, &d->turn);
        else if (d->fetch.transfer != NULL)
            webhook_queue_end(&w->queue, &d->turn, WEBHOOK_NOT_ASKED);
        else
            continue;
        list_push(&gone, &d->turn.link);
    }
    list_each_safe (l, &gone) {
        struct delivery *d = list_item(l, struct delivery, turn.link);
        fetch_cancel(&d->fetch);
        free_delivery(d);
    }
}

void webhooks_free(struct webhooks *w)
{
    if (w == NULL)
        return;
    must(w->by_id.n == 0);
    map_deinit(&w->by_id);
    webhook_queue_deinit(&w->queue);
    free(w);
}
