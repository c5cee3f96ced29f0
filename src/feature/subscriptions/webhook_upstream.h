// SPDX-License-Identifier: Apache-2.0
/* webhook_upstream.h -- brings the wakes of webhook subscriptions to their receivers.
 *
 * A wake is a signed POST. 2xx with `{"done":true}` acknowledges all that the wake spoke of; any
 * other 2xx means that the receiver has taken it and will call back; everything else is tried
 * again after 1, 2, 4, ... 60 seconds, give or take a fifth. When to try is kept by the
 * subscription, so that a restart loses nothing. Who is next: webhook_queue.h. */
#ifndef FEATURE_SUBSCRIPTIONS_WEBHOOK_UPSTREAM_H
#define FEATURE_SUBSCRIPTIONS_WEBHOOK_UPSTREAM_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct addr_own;
struct audit;
struct fetcher;
struct metric_info;
struct metrics;
struct sched;
struct subscriptions;
struct trace;
struct webhooks;

extern const struct metric_info *const webhook_metrics[]; /* for the row */

struct webhook_policy {
    bool allow_local;           /* receivers on this machine: http://localhost, 127.x, [::1] */
    bool allow_private;         /* receivers in private networks */
    const struct addr_own *own; /* what this process listens on, which is never one; may be NULL */
};

/* Whether a subscription may name this URL: https to a public host; http to this machine only, and
 * only where the policy allows it. 0, or ERR_FORBIDDEN_ADDR (ERR_SYNTAX: not a URL) with a reason
 * for people. What a name resolves to is checked when it is used. */
int webhook_url_check(struct str url, struct webhook_policy policy, struct str *why);

/* The delay after the given number of failures (from 1 on); random decides about the jitter. */
uint64_t webhook_retry_ms(uint32_t failures, uint64_t random);

/* Registers itself as the courier of subs. The trace is kept by reference. */
struct webhooks *webhooks_new(struct sched *sched, struct subscriptions *subs,
                              struct fetcher *fetcher, struct webhook_policy policy,
                              const struct trace *trace, struct metrics *metrics);

/* Notes down receivers that are refused; NULL: nobody does. */
void webhooks_set_audit(struct webhooks *w, struct audit *audit);

/* Before subscriptions_stop: cuts off what is being delivered (it is tried again after the next
 * start) and begins nothing more. */
void webhooks_stop(struct webhooks *w);

/* After subscriptions_stop has ended. NULL is allowed. */
void webhooks_free(struct webhooks *w);

#endif
