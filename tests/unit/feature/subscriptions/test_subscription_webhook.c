// SPDX-License-Identifier: Apache-2.0
/* Deliveries, with fetches that this file answers instead of the network. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "base/buf.h"
#include "http/fetch.h"
#include "feature/subscriptions/webhook_queue.h"
#include "feature/subscriptions/webhook_upstream.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"
#include "token/signer.h"

#include <jansson.h>

/* ---- the network ---- */

#define FETCHES_MAX 512
static struct fetch *fetches[FETCHES_MAX]; /* under way */
static size_t n_fetches;

void fetch_start(struct fetcher *f, struct fetch *fetch)
{
    assert_true(n_fetches < FETCHES_MAX);
    fetch->transfer = (struct fetch_transfer *)fetch;
    fetches[n_fetches++] = fetch;
}

static void forget_fetch(struct fetch *fetch)
{
    size_t i = 0;
    while (fetches[i] != fetch)
        i++;
    memmove(fetches + i, fetches + i + 1, (--n_fetches - i) * sizeof fetches[0]);
    fetch->transfer = NULL;
}

void fetch_cancel(struct fetch *fetch)
{
    if (fetch->transfer != NULL)
        forget_fetch(fetch);
}

static void answer(struct sched *sched, struct fetch *fetch, int err, int status, const char *body)
{
    struct buf text = {0};
    forget_fetch(fetch);
    buf_put(&text, str_of_cstr(body));
    fetch->status = status;
    fetch->answer = text;
    fetch->done(fetch, err);
    buf_deinit(&text);
    sched_drain(sched);
}

/* ---- a world with deliveries ---- */

struct hooks {
    struct world *w;
    struct webhooks *webhooks;
    struct webhook_policy policy;
    struct trace trace;
    struct metrics metrics;
    char *lines;
    size_t lines_n;
};

static void hooks_start(struct hooks *h)
{
    struct fetcher *network = NULL;
    metrics_deinit(&h->metrics);
    metrics_init(&h->metrics);
    h->webhooks =
        webhooks_new(&h->w->sched, h->w->subs, network, h->policy, &h->trace, &h->metrics);
    sched_drain(&h->w->sched);
}

static int setup(void **state)
{
    struct hooks *h = mem_zalloc(sizeof *h);
    world_setup((void **)&h->w);
    h->policy.allow_local = true;
    h->trace = (struct trace){.to = open_memstream(&h->lines, &h->lines_n), .level = TRACE_DEBUG};
    n_fetches = 0;
    metrics_init(&h->metrics);
    hooks_start(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    struct hooks *h = *state;
    webhooks_stop(h->webhooks);
    world_end(h->w);
    webhooks_free(h->webhooks);
    assert_int_equal(n_fetches, 0);
    world_start(h->w);
    world_teardown((void **)&h->w);
    metrics_deinit(&h->metrics);
    fclose(h->trace.to);
    free(h->lines);
    free(h);
    return 0;
}

static void restart(struct hooks *h)
{
    webhooks_stop(h->webhooks);
    world_end(h->w);
    webhooks_free(h->webhooks);
    h->w->subs = subscriptions_new(&h->w->sched, h->w->store);
    hooks_start(h);
}

static const char *said(struct hooks *h)
{
    fflush(h->trace.to);
    return h->lines;
}

/* ---- rules ---- */

static void test_urls(void **state)
{
    static const struct webhook_policy open = {.allow_local = true, .allow_private = true},
                                       local = {.allow_local = true}, strict = {0};
    static const struct {
        const char *url;
        bool strict, local, open;
    } cases[] = {
        {"https://example.com/hook", true, true, true},
        {"https://example.com:8443/hook?x=1", true, true, true},
        {"https://93.184.216.34/", true, true, true},
        {"https://[2606:4700::1111]/", true, true, true},
        {"http://example.com/", false, false, false},
        {"http://localhost:3000/hook", false, true, true},
        {"http://LOCALHOST/hook", false, true, true},
        {"http://127.0.0.1/", false, true, true},
        {"http://127.9.9.9:80/", false, true, true},
        {"http://[::1]:3000/", false, true, true},
        {"http://[::ffff:127.0.0.1]/", false, true, true},
        {"https://localhost/", false, true, true},
        {"http://localhost.example.com/", false, false, false},
        {"http://10.0.0.1/hook", false, false, false},
        {"https://10.0.0.1/hook", false, false, true},
        {"https://192.168.1.1/", false, false, true},
        {"https://169.254.169.254/latest", false, false, false},
        {"https://[fe80::1]/", false, false, false},
        {"https://168.63.129.16/", false, false, false},
        {"https://100.100.100.200/", false, false, false},
        {"https://100.64.0.1/", false, false, true},
        {"https://[fd00:ec2::254]/", false, false, false},
        {"https://[fd00::1]/", false, false, true},
        {"https://0.0.0.0/", false, false, false},
        {"http://0.0.0.0/", false, false, false},
        {"https://224.0.0.1/", false, false, false},
        {"ftp://example.com/", false, false, false},
        {"file:///etc/passwd", false, false, false},
        {"https://user:pass@example.com/", false, false, false},
        {"https://", false, false, false},
        {"//example.com/", false, false, false},
        {"example.com", false, false, false},
        {"", false, false, false},
        {"https://example.com/a b", false, false, false},
        {"https://example.com/\r\nX: y", false, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str url = str_of_cstr(cases[i].url), why = STR_NONE;
        bool ok[] = {webhook_url_check(url, strict, &why) == 0,
                     webhook_url_check(url, local, &why) == 0,
                     webhook_url_check(url, open, &why) == 0};
        if (ok[0] != cases[i].strict || ok[1] != cases[i].local || ok[2] != cases[i].open)
            fail_msg("%s: %d %d %d", cases[i].url, ok[0], ok[1], ok[2]);
        assert_true((ok[0] && ok[1] && ok[2]) || why.n > 0);
    }
}

static void test_retry_times(void **state)
{
    static const uint64_t want[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    for (uint32_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        uint64_t ms = want[i], fifth = ms / 5;
        assert_int_equal(webhook_retry_ms(i + 1, 0), ms - fifth);
        assert_int_equal(webhook_retry_ms(i + 1, 2 * fifth), ms + fifth);
        assert_in_range(webhook_retry_ms(i + 1, UINT64_MAX), ms - fifth, ms + fifth);
    }
    assert_in_range(webhook_retry_ms(UINT32_MAX, 7), 48000, 72000);
}

/* ---- deliveries ---- */

static void test_request(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "a b", &c), 201);
    struct offset tail = world_append(h->w, "events/a", "1");
    assert_int_equal(n_fetches, 1);
    struct fetch *f = fetches[0];
    assert_true(str_eq(f->url, c.webhook_url));
    assert_true(str_eq(f->method, STR("POST")));
    assert_int_equal(f->max_redirects, 0);
    assert_int_equal(f->total_timeout_ms, 30000);
    assert_true(f->policy.allow_loopback);
    assert_false(f->policy.allow_private);

    struct buf signature = {0};
    signer_put_header(subscriptions_signer(h->w->subs), h->w->sched.wall_ms / 1000, f->body,
                      &signature);
    assert_true(str_eq(f->headers[0].name, STR("Content-Type")));
    assert_true(str_eq(f->headers[1].name, STR("Webhook-Signature")));
    assert_true(str_eq(f->headers[1].value, buf_str(&signature)));
    buf_deinit(&signature);

    json_t *body = json_loadb(f->body.p, f->body.n, 0, NULL);
    const char *id, *wake, *url, *token, *path, *type, *acked, *end;
    int generation, pending;
    assert_int_equal(json_unpack(body, "{s:s,s:s,s:i,s:s,s:s,s:[{s:s,s:s,s:s,s:s,s:b}!]!}",
                                 "subscription_id", &id, "wake_id", &wake, "generation",
                                 &generation, "callback_url", &url, "callback_token", &token,
                                 "streams", "path", &path, "link_type", &type, "acked_offset",
                                 &acked, "tail_offset", &end, "has_pending", &pending),
                     0);
    assert_string_equal(id, "a b");
    assert_string_equal(url, "http://here/v1/stream/__ds/subscriptions/a%20b/callback");
    assert_string_equal(path, "events/a");
    assert_string_equal(type, "glob");
    char text[OFFSET_TEXT + 1] = {0};
    offset_format(tail, text);
    assert_string_equal(end, text);
    assert_true(pending);
    struct world_call sent = {.call = {.id = STR("a b")}}; /* what it says is good for a callback */
    sent.call.view.token = str_of_cstr(token);
    sent.call.view.wake_id = str_of_cstr(wake);
    sent.call.view.generation = (uint64_t)generation;
    assert_int_equal(world_ack_as(h->w, subscription_callback, &sent, "events/a", tail, true, NULL),
                     0);
    json_decref(body);
    answer(&h->w->sched, f, 0, 200, "{}");
    assert_int_equal(n_fetches, 0);
}

static void test_answers(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    static const struct {
        int err, status;
        const char *body;
        bool acked, taken; /* taken: not tried again, the lease runs */
    } cases[] = {
        {0, 200, "{\"done\":true}", true, false},
        {0, 202, " {\"done\": true, \"x\": [1]}\n", true, false},
        {0, 200, "{}", false, true},
        {0, 204, "", false, true},
        {0, 200, "{\"done\":\"true\"}", false, true},
        {0, 200, "done", false, true},
        {ERR_TOO_LARGE, 200, "", false, true},
        {0, 302, "{\"done\":true}", false, false},
        {0, 404, "{\"done\":true}", false, false},
        {0, 500, "", false, false},
        {ERR_TIMEOUT, 0, "", false, false},
        {ERR_IO, 200, "", false, false},
        {ERR_REFUSED, 0, "", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct offset tail = world_append(h->w, "events/a", "1");
        assert_int_equal(n_fetches, 1);
        answer(&h->w->sched, fetches[0], cases[i].err, cases[i].status, cases[i].body);
        assert_int_equal(n_fetches, 0);
        bool acked = world_linked(h->w, "s", "events/a").stream.acked.pos == tail.pos;
        if (acked != cases[i].acked)
            fail_msg("case %zu: acked %d", i, acked);
        if (acked)
            continue;
        world_pass(h->w, 1300);
        if (n_fetches != (cases[i].taken ? 0u : 1u))
            fail_msg("case %zu: %zu fetches", i, n_fetches);
        if (cases[i].taken)
            world_pass(h->w, 30000);
        assert_int_equal(n_fetches, 1);
        answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    }
}

static void test_retries(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    world_append(h->w, "events/a", "1");
    uint64_t least = 800;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(n_fetches, 1);
        answer(&h->w->sched, fetches[0], 0, 503, "");
        world_pass(h->w, least - 20);
        assert_int_equal(n_fetches, 0); /* not before */
        world_pass(h->w, least / 2 + 60);
        least = least * 2 > 48000 ? 48000 : least * 2;
    }
    assert_non_null(strstr(said(h), "webhook of subscription s failed"));
    assert_non_null(strstr(said(h), "503"));
    answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    world_append(h->w, "events/a", "2"); /* begins at the shortest delay again */
    answer(&h->w->sched, fetches[0], 0, 503, "");
    world_pass(h->w, 1250);
    assert_int_equal(n_fetches, 1);
}

static void test_next_wake_at_once(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    world_append(h->w, "events/a", "1");
    world_append(h->w, "events/a", "2");
    assert_int_equal(n_fetches, 1);
    answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    assert_int_equal(n_fetches, 1);
    answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    assert_int_equal(n_fetches, 0);
}

static void test_many_at_once(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    char id[16];
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(world_create(h->w, id, &c), 201);
    }
    world_append(h->w, "events/a", "1");
    int delivered = 0;
    for (; n_fetches > 0; delivered++) {
        assert_int_equal(n_fetches, delivered < 36 ? WEBHOOK_DELIVERIES_MAX : 100 - delivered);
        answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    }
    assert_int_equal(delivered, 100);
}

static void test_restart_delivers_again(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    char id[16];
    for (int i = 0; i < 70; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(world_create(h->w, id, &c), 201);
    }
    world_append(h->w, "events/a", "1");
    assert_int_equal(n_fetches, WEBHOOK_DELIVERIES_MAX);
    restart(h);
    assert_int_equal(n_fetches, WEBHOOK_DELIVERIES_MAX);
    for (int i = 0; i < 70; i++)
        answer(&h->w->sched, fetches[0], 0, 200, "{\"done\":true}");
    assert_int_equal(n_fetches, 0);
}

/* Subscriptions n of a receiver. */
static void subscribe(struct hooks *h, const char *receiver, int n)
{
    char id[48], url[64];
    snprintf(url, sizeof url, "https://%s/hook", receiver);
    struct subscription_config c = world_hook("events/*");
    c.webhook_url = str_of_cstr(url);
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%.20s-%d", receiver, i);
        assert_int_equal(world_create(h->w, id, &c), 201);
    }
}

static struct fetch *fetch_to(const char *receiver)
{
    char url[64];
    snprintf(url, sizeof url, "https://%s/hook", receiver);
    for (size_t i = 0; i < n_fetches; i++)
        if (str_eq(fetches[i]->url, str_of_cstr(url)))
            return fetches[i];
    return NULL;
}

static void test_slow_receivers_delay_themselves_alone(void **state)
{
    struct hooks *h = *state;
    subscribe(h, "tar.example", 130);
    subscribe(h, "good.example", 1);
    world_append(h->w, "events/a", "1");
    assert_int_equal(n_fetches, WEBHOOK_DELIVERIES_MAX + 1);
    for (int i = 0; i < 5; i++) {
        assert_non_null(fetch_to("good.example"));
        answer(&h->w->sched, fetch_to("good.example"), 0, 200, "{\"done\":true}");
        assert_null(fetch_to("good.example"));
        world_pass(h->w, WEBHOOK_QUICK_MS);
        world_append(h->w, "events/a", "2");
    }
    struct buf text = {0};
    metrics_put(&h->metrics, &text);
    buf_putc(&text, '\0');
    assert_non_null(strstr(text.p, "tidemark_webhooks_waiting 66"));
    assert_non_null(strstr(text.p, "tidemark_webhooks_running 65"));
    buf_deinit(&text);
}

static void test_the_overdue_give_way(void **state)
{
    struct hooks *h = *state;
    char name[32];
    for (int i = 0; i < 3 * (WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE); i++) {
        snprintf(name, sizeof name, "tar%d.example", i);
        subscribe(h, name, 1);
    }
    subscribe(h, "good.example", 1);
    world_append(h->w, "events/a", "1");
    assert_null(fetch_to("good.example"));
    for (int i = 0; i < 3 && fetch_to("good.example") == NULL; i++)
        world_pass(h->w, WEBHOOK_QUICK_MS + SCHED_TICK_MS);
    assert_non_null(fetch_to("good.example"));
    assert_non_null(strstr(said(h), "other receivers are slow"));
    answer(&h->w->sched, fetch_to("good.example"), 0, 200, "{\"done\":true}");
}

static void test_stop_while_the_engine_answers(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    world_append(h->w, "events/a", "1");
    struct fetch *f = fetches[0];
    forget_fetch(f);
    f->status = 500;
    f->done(f, 0); /* the report is on its way */
    restart(h);    /* it may have got lost: then the delivery is tried again */
    world_pass(h->w, 1300);
    assert_int_equal(n_fetches, 1);
}

static void test_policy_changes(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    h->policy.allow_local = false;
    restart(h);
    world_append(h->w, "events/a", "1");
    assert_int_equal(n_fetches, 0);
    assert_non_null(strstr(said(h), "its own machine"));
}

static void test_names_may_not_lead_home(void **state)
{
    struct hooks *h = *state;
    struct subscription_config c = world_hook("events/*");
    c.webhook_url = STR("https://rebind.example/");
    assert_int_equal(world_create(h->w, "s", &c), 201);
    world_append(h->w, "events/a", "1");
    assert_int_equal(n_fetches, 1);
    assert_false(fetches[0]->policy.allow_loopback);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_retry_times),
        T(test_request),
        T(test_answers),
        T(test_retries),
        T(test_next_wake_at_once),
        T(test_many_at_once),
        T(test_restart_delivers_again),
        T(test_slow_receivers_delay_themselves_alone),
        T(test_the_overdue_give_way),
        T(test_stop_while_the_engine_answers),
        T(test_policy_changes),
        T(test_names_may_not_lead_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
