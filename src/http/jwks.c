// SPDX-License-Identifier: Apache-2.0
#include "http/jwks.h"
#include "base/backoff.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/sched.h"
#include "base/sha256.h"
#include "http/audit.h"
#include "http/fetch.h"
#include "telemetry/trace.h"

#include <stdio.h>
#include <stdlib.h>

struct jwks {
    struct jwks_setup setup;
    struct jwk_set *keys;        /* NULL: none yet, or none any more */
    uint8_t digest[SHA256_SIZE]; /* of the text that they were read from */
    uint64_t good_ms;            /* when they came, or were found to be the same */
    uint64_t begun_ms;           /* the last fetch; 0: none yet */
    uint64_t fresh_ms;           /* of the answer that is coming */
    uint32_t failures;           /* in a row */
    struct timer next;
    struct link waiters;
    struct fetch fetch;
    struct header accept;
};

/* ---- what an answer says ---- */

uint64_t jwks_fresh_ms(struct str cache_control)
{
    while (cache_control.p != NULL) {
        struct str value = str_cut(&cache_control, ','), name = str_cut(&value, '=');
        uint64_t s;
        if (!str_eq_nocase(str_trim(name), STR("max-age")) ||
            num_parse(str_trim(value), UINT64_MAX, &s) != 0)
            continue;
        if (s > JWKS_FRESH_MAX_MS / 1000)
            return JWKS_FRESH_MAX_MS;
        return s * 1000 < JWKS_FRESH_MIN_MS ? JWKS_FRESH_MIN_MS : s * 1000;
    }
    return JWKS_FRESH_MS;
}

static void tell(const struct jwks *j, const char *why)
{
    trace(j->setup.trace, JWKS_FAILED, TRACE_STR("issuer", j->setup.name),
          TRACE_STR("error", str_of_cstr(why)));
    audit_tell(j->setup.audit, NULL,
               &(struct audit_fact){
                   .event = AUDIT_KEYS_FAILED, .cause = str_of_cstr(why), .name = j->setup.name});
}

/* 0, and the keys are those of the text. */
static int take_keys(struct jwks *j, struct str text, char *why, size_t size)
{
    uint8_t digest[SHA256_SIZE];
    struct jwk_set *keys;
    sha256(text, digest);
    if (j->keys != NULL && memcmp(digest, j->digest, sizeof digest) == 0)
        return 0;
    int err = jwk_set_parse(text, &j->setup.policy, &keys, why, size);
    if (err != 0)
        return err;
    jwk_set_free(j->keys);
    j->keys = keys;
    memcpy(j->digest, digest, sizeof digest);
    struct jwk_counts n = jwk_set_counts(keys);
    trace(j->setup.trace, JWKS_KEYS, TRACE_STR("issuer", j->setup.name),
          TRACE_INT("keys", (int64_t)n.usable), TRACE_INT("malformed", (int64_t)n.malformed));
    audit_tell(j->setup.audit, NULL,
               &(struct audit_fact){.event = AUDIT_KEYS_CHANGED, .name = j->setup.name});
    j->setup.changed(j->setup.ctx);
    return 0;
}

/* ---- one fetch ---- */

static void tell_waiters(struct jwks *j)
{
    struct link told;
    list_init(&told);
    list_splice(&told, &j->waiters);
    while (!list_empty(&told)) {
        struct jwks_waiter *w = list_item(told.next, struct jwks_waiter, link);
        list_remove(&w->link);
        w->done(w);
    }
}

static void jwks_on_head(struct fetch *f)
{
    struct jwks *j = container_of(f, struct jwks, fetch);
    j->fresh_ms = jwks_fresh_ms(fetch_header(f, "Cache-Control"));
}

static void jwks_on_done(struct fetch *f, int err)
{
    struct jwks *j = container_of(f, struct jwks, fetch);
    struct sched *sched = j->setup.sched;
    char why[200];
    if (err != 0) {
        snprintf(why, sizeof why, "%s: %s", fetch_cause_text(f->cause), f->error);
    } else if (f->status != 200) {
        snprintf(why, sizeof why, "the answer's status is %d", f->status);
        err = ERR_UPSTREAM;
    } else {
        err = take_keys(j, buf_str(&f->answer), why, sizeof why);
    }
    uint64_t next_ms = j->fresh_ms;
    if (err == 0) {
        j->failures = 0;
        j->good_ms = sched_awake_ms(sched);
    } else {
        tell(j, why);
        next_ms = backoff_ms(JWKS_RETRY_MS, JWKS_RETRY_MAX_MS, ++j->failures);
    }
    sched_start(sched, &j->next, next_ms);
    tell_waiters(j);
}

static void jwks_begin(struct jwks *j)
{
    struct jwks_setup *setup = &j->setup;
    timer_stop(&j->next);
    j->begun_ms = sched_awake_ms(setup->sched);
    j->fresh_ms = JWKS_FRESH_MS;
    j->accept = (struct header){STR("Accept"), STR("application/json")};
    j->fetch = (struct fetch){.url = setup->url,
                              .method = STR("GET"),
                              .headers = &j->accept,
                              .n_headers = 1,
                              .policy = {.allow_loopback = true, .allow_private = true},
                              .total_timeout_ms = JWKS_TIMEOUT_MS,
                              .max_answer = JWK_TEXT_MAX,
                              .on_head = jwks_on_head,
                              .done = jwks_on_done};
    setup->start(setup->fetcher, &j->fetch);
}

/* ---- when ---- */

static bool is_fetching(const struct jwks *j)
{
    return !timer_running(&j->next);
}

static void jwks_on_next(struct timer *t)
{
    struct jwks *j = container_of(t, struct jwks, next);
    if (j->keys != NULL && jwks_keys(j) == NULL) { /* too old to go by */
        jwk_set_free(j->keys);
        j->keys = NULL;
        tell(j, "the keys are too old, and are not used any more");
        j->setup.changed(j->setup.ctx);
    }
    jwks_begin(j);
}

const struct jwk_set *jwks_keys(const struct jwks *j)
{
    return j->keys != NULL && sched_awake_ms(j->setup.sched) - j->good_ms < JWKS_STALE_MS ? j->keys
                                                                                          : NULL;
}

bool jwks_wait(struct jwks *j, struct jwks_waiter *w)
{
    if (!is_fetching(j)) {
        if (sched_awake_ms(j->setup.sched) - j->begun_ms < JWKS_APART_MS)
            return false;
        jwks_begin(j);
    }
    list_push(&j->waiters, &w->link);
    return true;
}

void jwks_refresh(struct jwks *j)
{
    if (!is_fetching(j))
        jwks_begin(j);
}

bool jwks_is(const struct jwks *j, struct str url, const struct jwk_policy *policy)
{
    const struct jwk_policy *mine = &j->setup.policy;
    return str_eq(j->setup.url, url) && mine->allowed == policy->allowed &&
           mine->rsa == policy->rsa;
}

/* ---- the whole ---- */

static struct str copy_str(struct str s)
{
    return str_of(memcpy(mem_alloc(s.n + 1), s.p, s.n), s.n);
}

struct jwks *jwks_new(const struct jwks_setup *setup)
{
    struct jwks *j = mem_zalloc(sizeof *j);
    j->setup = *setup;
    j->setup.name = copy_str(setup->name);
    j->setup.url = copy_str(setup->url);
    timer_init(&j->next, jwks_on_next);
    list_init(&j->waiters);
    jwks_begin(j);
    return j;
}

void jwks_free(struct jwks *j)
{
    if (j == NULL)
        return;
    fetch_cancel(&j->fetch);
    timer_stop(&j->next);
    tell_waiters(j);
    jwk_set_free(j->keys);
    free((char *)j->setup.name.p);
    free((char *)j->setup.url.p);
    free(j);
}
