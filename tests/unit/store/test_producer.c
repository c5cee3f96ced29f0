// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "store/producer.h"

#include <inttypes.h>

#define UNTOUCHED 777
#define TOP       UINT64_MAX

struct row {
    bool known;
    struct producer_state state;
    uint64_t epoch, seq;
    int verdict;
    uint64_t expected; /* UNTOUCHED: nothing is said */
};

static const struct row rows[] = {
    /* never seen: any epoch, but from the start */
    {false, {0, 0}, 0, 0, PRODUCER_ACCEPT, UNTOUCHED},
    {false, {0, 0}, 7, 0, PRODUCER_ACCEPT, UNTOUCHED},
    {false, {0, 0}, TOP, 0, PRODUCER_ACCEPT, UNTOUCHED},
    {false, {0, 0}, 0, 1, ERR_SEQ_GAP, 0},
    {false, {0, 0}, 7, 5, ERR_SEQ_GAP, 0},
    {false, {0, 0}, 0, TOP, ERR_SEQ_GAP, 0},
    /* an epoch below the known one is fenced, whatever its seq */
    {true, {3, 4}, 2, 0, ERR_FENCED, UNTOUCHED},
    {true, {3, 4}, 2, 4, ERR_FENCED, UNTOUCHED},
    {true, {3, 4}, 2, 5, ERR_FENCED, UNTOUCHED},
    {true, {3, 4}, 2, 9, ERR_FENCED, UNTOUCHED},
    {true, {3, 4}, 0, 0, ERR_FENCED, UNTOUCHED},
    /* a higher one begins at zero, however far it is */
    {true, {3, 4}, 4, 0, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {3, 4}, 9, 0, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {3, 4}, 4, 1, ERR_EPOCH_START, UNTOUCHED},
    {true, {3, 4}, 4, 4, ERR_EPOCH_START, UNTOUCHED},
    {true, {3, 4}, 4, 5, ERR_EPOCH_START, UNTOUCHED},
    {true, {3, 4}, 4, 6, ERR_EPOCH_START, UNTOUCHED},
    {true, {0, 0}, TOP, TOP, ERR_EPOCH_START, UNTOUCHED},
    /* the same one goes on by one */
    {true, {3, 4}, 3, 0, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {3, 4}, 3, 3, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {3, 4}, 3, 4, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {3, 4}, 3, 5, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {3, 4}, 3, 6, ERR_SEQ_GAP, 5},
    {true, {3, 4}, 3, TOP, ERR_SEQ_GAP, 5},
    {true, {0, 0}, 0, 0, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {0, 0}, 0, 1, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {0, 0}, 0, 2, ERR_SEQ_GAP, 1},
    /* at the very top nothing wraps */
    {true, {3, TOP}, 3, 0, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {3, TOP}, 3, TOP, PRODUCER_DUPLICATE, UNTOUCHED},
    {true, {3, TOP - 1}, 3, TOP, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {TOP, 4}, TOP, 5, PRODUCER_ACCEPT, UNTOUCHED},
    {true, {TOP, 4}, TOP - 1, 0, ERR_FENCED, UNTOUCHED},
};

static void test_verdicts(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct producer_claim claim = {STR("p"), r->epoch, r->seq};
        uint64_t expected = UNTOUCHED;
        int v = producer_check(r->known ? &r->state : NULL, &claim, &expected);
        if (v != r->verdict || expected != r->expected)
            fail_msg("row %zu (%" PRIu64 ".%" PRIu64 "): %d, expected seq %" PRIu64, i, r->epoch,
                     r->seq, v, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests_name("unit/producer", tests, NULL, NULL);
}
