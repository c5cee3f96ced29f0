// SPDX-License-Identifier: Apache-2.0
/* Clients in threads of their own, at the same time: sessions that save in one directory, producers
 * and followers. Built for ThreadSanitizer as well, which is what it is for. */
#include "unit/client/session_site.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#define THREADS 2
#define ROUNDS  8
#define CHUNKS  25
#define WAIT_MS 20000

struct worker {
    const char *server, *state_dir;
    unsigned number;
    pthread_barrier_t *together; /* the rounds begin at once */
    const char *failed;          /* what did, which the main thread tells: cmocka knows only one */
};

#define CHECK(w, right)                                                                            \
    do {                                                                                           \
        if (!(right) && (w)->failed == NULL)                                                       \
            (w)->failed = #right;                                                                  \
    } while (0)

/* ---- sessions ---- */

static void send_all(struct worker *w, struct tm_session *s)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%u says %u", w->number, i);
        CHECK(w, tm_session_send(s, text, (size_t)n, NULL) == 0);
    }
    CHECK(w, tm_session_finish(s) == 0);
}

static void take_all(struct worker *w, struct tm_session *s)
{
    struct tm_event e = {0};
    unsigned got = 0;
    while (e.kind != TM_EVENT_END && w->failed == NULL) {
        CHECK(w, tm_session_wait(s, &e, WAIT_MS) == 1);
        if (w->failed != NULL || e.kind != TM_EVENT_CHUNK)
            continue;
        char right[32];
        int n = snprintf(right, sizeof right, "%u says %u", w->number, got++);
        CHECK(w, e.verified && e.n == (size_t)n && memcmp(e.data, right, e.n) == 0);
    }
    CHECK(w, got == CHUNKS && e.err == 0);
}

/* In one directory with the other's. A key of its own, and then the one that both want: it is one
 * client's at a time, and whoever comes second is told so. */
static void talk(struct worker *w, struct tm_client *c, unsigned round)
{
    struct tm_session_options o = TM_SESSION_INIT;
    struct tm_session *s = NULL, *shared = NULL;
    char key[32];
    snprintf(key, sizeof key, "own-%u-%u", w->number, round);
    o.state_dir = w->state_dir;
    o.reconnect_ms = 50;
    o.key = key;
    CHECK(w, tm_session_new(c, &o, &s) == 0);
    o.key = "shared";
    int err = tm_session_new(c, &o, &shared);
    CHECK(w, err == 0 || err == TM_E_BUSY);
    if (err == 0) {
        struct tm_session *again = NULL;
        CHECK(w, tm_session_new(c, &o, &again) == TM_E_BUSY);
        tm_session_free(shared);
    }
    if (s != NULL) {
        send_all(w, s);
        take_all(w, s);
    }
    tm_session_free(s);
}

/* ---- streams ---- */

static void finish_call(struct worker *w, int err, struct tm_call *call)
{
    CHECK(w, err == 0);
    if (err == 0)
        CHECK(w, tm_call_wait(call, WAIT_MS) == 0);
    tm_call_free(call);
}

static void produce(struct worker *w, struct tm_client *c, const char *name)
{
    struct tm_producer_options o = TM_PRODUCER_INIT;
    struct tm_producer *p = NULL;
    o.content_type = "application/json";
    o.batch_bytes = 16;
    CHECK(w, tm_producer_new(c, name, &o, &p) == 0);
    for (unsigned i = 0; p != NULL && i < CHUNKS; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%u", i);
        CHECK(w, tm_producer_append(p, text, (size_t)n) == 0);
    }
    if (p != NULL)
        CHECK(w, tm_producer_close(p, NULL, 0, WAIT_MS) == 0);
    tm_producer_free(p);
}

static void follow(struct worker *w, struct tm_client *c, const char *name)
{
    struct tm_follow_options o = TM_FOLLOW_INIT;
    struct tm_follower *f = NULL;
    struct tm_batch b;
    unsigned got = 0;
    int more = 1;
    o.json_values = 1;
    CHECK(w, tm_follower_new(c, name, &o, &f) == 0);
    while (w->failed == NULL && (more = tm_follower_wait(f, &b, WAIT_MS)) == 1) {
        char right[32];
        int n = snprintf(right, sizeof right, "%u", got);
        CHECK(w, b.n == 0 || (b.n == (size_t)n && memcmp(b.data, right, b.n) == 0));
        got += b.n > 0;
    }
    CHECK(w, more == TM_E_CLOSED && got == CHUNKS);
    tm_follower_free(f);
}

static void stream(struct worker *w, struct tm_client *c, unsigned round)
{
    struct tm_create_options o = TM_CREATE_INIT;
    struct tm_call *call = NULL;
    char name[32];
    snprintf(name, sizeof name, "stream-%u-%u", w->number, round);
    o.content_type = "application/json";
    int err = tm_create(c, name, &o, &call);
    finish_call(w, err, call);
    produce(w, c, name);
    follow(w, c, name);
}

/* ---- threads ---- */

static void *work(void *arg)
{
    struct worker *w = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct tm_options o = TM_OPTIONS_INIT;
        struct tm_client *c = NULL;
        o.server = w->server;
        o.http = round % 2 == 0 ? TM_HTTP_AUTO : TM_HTTP_1;
        pthread_barrier_wait(w->together);
        CHECK(w, tm_open(&o, &c) == 0);
        if (w->failed != NULL)
            continue;
        talk(w, c, round);
        stream(w, c, round);
        tm_close(c);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct site site;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t together;
    char state_dir[96];
    site_init(&site, "sync = never\n[session]\nhandler = echo\n");
    snprintf(state_dir, sizeof state_dir, "%s/state", site.folder);
    pthread_barrier_init(&together, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){site.url, state_dir, i, &together, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        if (workers[i].failed != NULL)
            fail_msg("thread %u: not %s", i, workers[i].failed);
    pthread_barrier_destroy(&together);
    site_deinit(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
