// SPDX-License-Identifier: Apache-2.0
/* fuzz_stored_answer.c -- an answer that is taken is put again as the same bytes, and whatever is
 * put is taken. An input is read as a stored answer, and as a status, headers and a body to store.
 */
#include "base/buf.h"
#include "feature/gateway/stored_answer.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define HEADERS_MAX 64

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_stored_answer: %s\n", what);
    abort();
}

static size_t list_headers(struct str rest, struct header *headers)
{
    size_t n = 0;
    while (n < HEADERS_MAX && stored_answer_next(&rest, &headers[n]))
        n++;
    return n;
}

static void fuzz_stored(struct str stored)
{
    struct header headers[HEADERS_MAX];
    struct stored_answer a;
    struct buf again = {0};
    if (stored_answer_take(stored, &a) != 0)
        return;
    check(stored_answer_is(stored), "what is taken is one");
    size_t n = list_headers(a.headers, headers);
    if (n == HEADERS_MAX)
        return;
    stored_answer_put_head(&again, a.status, headers, n);
    buf_put(&again, a.body);
    check(str_eq(buf_str(&again), stored), "put again, it is the same");
    buf_deinit(&again);
}

/* Names, values and the body are what stands between the bytes 0xff. */
static void fuzz_put(struct str input)
{
    struct header headers[HEADERS_MAX], back[HEADERS_MAX];
    struct stored_answer a;
    struct buf out = {0};
    size_t n = 0;
    int status = input.n > 0 ? 200 + (unsigned char)input.p[0] % 100 : 200;
    while (n < 8 && input.p != NULL) {
        headers[n].name = str_cut(&input, '\xff');
        headers[n++].value = input.p != NULL ? str_cut(&input, '\xff') : STR("");
    }
    stored_answer_put_head(&out, status, headers, n);
    buf_put(&out, input);
    check(stored_answer_take(buf_str(&out), &a) == 0, "what is put is taken");
    check(a.status == status && str_eq(a.body, input), "with its status and body");
    check(list_headers(a.headers, back) <= n, "and no more headers");
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str input = str_of((const char *)data, n);
    fuzz_stored(input);
    fuzz_put(input);
    return 0;
}
