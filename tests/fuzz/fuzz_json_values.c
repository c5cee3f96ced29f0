// SPDX-License-Identifier: Apache-2.0
/* fuzz_json_values.c -- the values of an array, piece by piece, against json_split of all of it.
 *
 * Both accept the same texts, save that json_split also takes what is no array and counts the
 * array's own bracket among the nesting; the values are the same but for white space; and how the
 * bytes were cut does not matter. The first byte says where. */
#include "base/buf.h"
#include "base/json.h"
#include "client/json_values.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_json_values: %s\n", what);
        abort();
    }
}

static int note(void *user, struct str value)
{
    buf_put(user, value);
    buf_putc(user, ',');
    return 0;
}

static int split(struct buf *log, struct str text, size_t cut)
{
    struct json_values v;
    json_values_init(&v, SIZE_MAX, log, note);
    json_values_feed(&v, str_of(text.p, cut));
    json_values_feed(&v, str_skip(text, cut));
    int err = json_values_end(&v);
    json_values_deinit(&v);
    return err;
}

static void drop_space(struct buf *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->n; i++)
        if (!memchr(" \t\r\n", b->p[i], 4))
            b->p[kept++] = b->p[i];
    b->n = kept;
}

static bool is_array(struct str text)
{
    while (text.n > 0 && memchr(" \t\r\n", text.p[0], 4))
        text = str_skip(text, 1);
    return text.n > 0 && text.p[0] == '[';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    struct str text = str_of((const char *)data + 1, n - 1);
    struct buf whole = {0}, cut = {0}, reference = {0}, ends = {0};
    int err = split(&whole, text, 0);
    int cut_err = split(&cut, text, data[0] % text.n);
    check(err == cut_err && str_eq(buf_str(&whole), buf_str(&cut)), "the cut matters");
    size_t at;
    int reference_err = json_split(text, &reference, &ends, &at);
    if (n <= JSON_DEPTH_MAX)
        check((err == 0) == (reference_err == 0 && is_array(text)), "another verdict");
    if (err == 0 && reference_err == 0) {
        drop_space(&whole);
        drop_space(&reference);
        check(str_eq(buf_str(&whole), buf_str(&reference)), "other values");
    }
    buf_deinit(&whole);
    buf_deinit(&cut);
    buf_deinit(&reference);
    buf_deinit(&ends);
    return 0;
}
