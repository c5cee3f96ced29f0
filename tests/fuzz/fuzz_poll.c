// SPDX-License-Identifier: Apache-2.0
/* fuzz_poll.c -- answers that a polled resource might give, two in a row, under rules that the
 * first byte chooses. What is taken must be whole events of valid JSON; what is refused leaves
 * everything as it was; an answer that comes again brings nothing new. */
#include "base/json.h"
#include "feature/poll/poll_changes.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_poll: %s\n", what);
    abort();
}

static void check_events(const struct buf *events, const struct buf *ends)
{
    const uint32_t *end = (const uint32_t *)(const void *)ends->p;
    size_t from = 0, ignored;
    for (size_t i = 0; i < ends->n / sizeof *end; i++) {
        check(end[i] > from && events->p[end[i] - 1] == ',', "an event without its comma");
        struct str event = str_of(events->p + from, end[i] - 1 - from);
        check(json_check(event, &ignored) == 0, "an event that is no JSON");
        check(memchr(event.p, '\n', event.n) == NULL, "an event with a line break");
        from = end[i];
    }
    check(from == events->n, "bytes behind the last event");
}

static void take(const struct poll_rules *rules, struct poll_position *p, struct str body)
{
    struct buf events = {0}, ends = {0}, before = {0}, after = {0};
    char why[160];
    poll_position_put(&before, p);
    int err = poll_take(rules, p, body, &events, &ends, why, sizeof why);
    check_events(&events, &ends);
    poll_position_put(&after, p);
    if (err != 0)
        check(events.n == 0 && str_eq(buf_str(&before), buf_str(&after)), "refused, yet it counts");
    else {
        struct poll_position stored;
        check(poll_position_take(buf_str(&after), &stored) == 0, "a place that cannot be read");
        events.n = ends.n = 0;
        check(poll_take(rules, &stored, body, &events, &ends, why, sizeof why) == 0 && ends.n == 0,
              "the same answer again is news");
        poll_position_deinit(&stored);
    }
    struct buf *all[] = {&events, &ends, &before, &after};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_deinit(all[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct str pointers[] = {
        {.p = NULL}, {.p = "/a", .n = 2}, {.p = "/0", .n = 2}, {.p = "/a/~1", .n = 5}};
    if (n < 2)
        return 0;
    struct poll_rules rules = {.mode = data[0] % 3,
                               .items = pointers[data[0] >> 2 & 3],
                               .key = pointers[data[0] >> 4 & 3],
                               .newest_first = data[1] & 1,
                               .cursor = pointers[data[1] >> 1 & 3],
                               .cursor_of_answer = data[1] >> 3 & 1};
    struct poll_position p = {0};
    struct str rest = str_of((const char *)data + 2, n - 2);
    struct str first = str_cut(&rest, '\0');
    take(&rules, &p, first);
    if (rest.p != NULL)
        take(&rules, &p, rest);
    poll_position_deinit(&p);
    if (poll_position_take(first, &p) == 0)
        poll_position_deinit(&p);
    return 0;
}
