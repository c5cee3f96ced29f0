// SPDX-License-Identifier: Apache-2.0
/* fuzz_fold.c -- events nobody would send, folded, and asked for their dialect.
 *
 * The first byte chooses the kind and the limit; the rest is the events, one a line, with a line
 * break inside an event written as \x01. It stops when a snapshot is not JSON, has line breaks,
 * nests deeper or is larger than promised; when more is held than the limit; when a skipped event
 * changed something; when another snapshot of the same fold differs; and when a UI message that
 * makes room for another one leaves anything behind. */
#include "base/err.h"
#include "base/json.h"
#include "feature/gateway/fold.h"
#include "feature/gateway/gateway_choice.h"
#include "base/json_view.h"

#include <stdio.h>
#include <stdlib.h>

#define DEPTH_ADDED 8 /* what the snapshot adds to an event's nesting, at most */
#define TEXT_ADDED  1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_fold: %s\n", what);
    abort();
}

/* The snapshot so far; empty if there is none. */
static struct buf snapshot(const struct fold *f)
{
    struct buf out = {0};
    size_t at;
    int err = fold_put(f, &out);
    check(err == 0 || out.n == 0, "a failed fold_put wrote something");
    if (err != 0)
        return out;
    struct str text = buf_str(&out);
    check(json_check(text, &at) == 0, "the snapshot is not JSON");
    check(memchr(text.p, '\n', text.n) == NULL && memchr(text.p, '\r', text.n) == NULL,
          "the snapshot has line breaks");
    return out;
}

static void check_snapshot(const struct fold *f, enum fold_kind kind)
{
    struct buf a = snapshot(f), b = snapshot(f);
    check(str_eq(buf_str(&a), buf_str(&b)), "two snapshots of one fold differ");
    /* input that is still coming stands there twice; text that is no JSON is escaped */
    size_t times = kind == FOLD_LAST ? 6 : 2;
    check(a.n <= times * fold_size(f) + TEXT_ADDED, "the snapshot is larger than what is held");
    if (a.n > 0 && kind != FOLD_LAST)
        check(view_depth(buf_str(&a)) <= FOLD_DEPTH_MAX + DEPTH_ADDED, "too deep");
    buf_deinit(&a);
    buf_deinit(&b);
}

/* Its own copy, so that ASan sees a read past the event. */
static int feed(struct fold *f, struct str event)
{
    char *copy = malloc(event.n + (event.n == 0));
    for (size_t i = 0; i < event.n; i++)
        copy[i] = event.p[i] == '\x01' ? '\n' : event.p[i];
    int err = fold_feed(f, STR_NONE, str_of(copy, event.n));
    choice_by_event(STR_NONE, str_of(copy, event.n));
    choice_by_body(STR("/api/chat"), str_of(copy, event.n));
    choice_by_stored(str_of(copy, event.n));
    free(copy);
    return err;
}

static void feed_checked(struct fold *f, enum fold_kind kind, struct str event)
{
    uint64_t skipped = fold_skipped(f);
    size_t size = fold_size(f);
    struct buf before = snapshot(f);
    feed(f, event);
    if (fold_skipped(f) > skipped && kind != FOLD_OPENAI) {
        struct buf after = snapshot(f);
        check(fold_size(f) == size && str_eq(buf_str(&before), buf_str(&after)),
              "a skipped event changed something");
        buf_deinit(&after);
    }
    buf_deinit(&before);
}

/* All that a message held is let go of when another begins. */
static void check_counts(struct fold *f)
{
    static const char other[] = "{\"type\":\"start\",\"messageId\":\"another\"}";
    uint64_t skipped = fold_skipped(f);
    if (fold_feed(f, STR_NONE, STR(other)) != 0 || fold_skipped(f) > skipped)
        return; /* given up, or done */
    check(fold_size(f) == strlen("\"another\"") + fold_error(f).n, "something was left behind");
}

/* Inputs are kept: the first three kinds stay where they were. */
#define N_NEWER (FOLD_KINDS - FOLD_RESPONSES)
static enum fold_kind kind_of(uint8_t choice)
{
    return (enum fold_kind)(choice < 128 ? choice % FOLD_RESPONSES
                                         : FOLD_RESPONSES + (choice - 128) % N_NEWER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    static const size_t limits[] = {100000, 3000, 700, 40};
    enum fold_kind kind = kind_of(data[0]);
    size_t max = limits[data[0] < 128 ? data[0] / 3 % 4 : (data[0] - 128) / N_NEWER % 4];
    struct fold *f = fold_new(kind, max);
    struct str rest = str_of((const char *)data + 1, n - 1);
    for (size_t i = 0; rest.n > 0; i++) {
        struct str event = str_cut(&rest, '\n');
        if (n < 2000 || i % 16 == 0)
            feed_checked(f, kind, event);
        else
            feed(f, event);
        check(fold_size(f) <= max, "more is held than the limit");
    }
    check_snapshot(f, kind);
    if (kind == FOLD_UI_MESSAGE)
        check_counts(f);
    fold_free(f);
    return 0;
}
