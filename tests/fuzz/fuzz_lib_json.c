// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_json.c -- how the library reads JSON: an array's values are values, and what a string
 * says can be said again. */
#include "fuzz/lib_client.h"
#include "base/json_view.h"
#include "base/utf8.h"
#include "client/codec.h"
#include "client/client_json.h"

static void check_array(struct str text)
{
    struct json_array a;
    struct str value;
    if (!json_array_begin(&a, text))
        return;
    check(json_valid(text), "an array that is not valid");
    while (json_array_next(&a, &value)) {
        check(value.p >= text.p && value.p + value.n <= text.p + text.n, "outside");
        check(json_valid(value), "a value that is not valid");
    }
    check(json_array_ended(&a), "not at its end");
}

static void check_member(struct str text)
{
    struct str value;
    char small[8];
    if (json_member(text, STR("a"), &value))
        check(json_valid(text) && json_valid(value), "a member that is not valid");
    bool fits = json_member_text(text, STR("a"), small, sizeof small);
    check(fits || small[0] == '\0', "half a text");
    check(strlen(small) < sizeof small, "too long");
    json_member_is_true(text, STR("a"));
}

/* A string, written and read again. */
static void check_string(struct tm_client *c, struct str text)
{
    struct bytes written = {0};
    if (!json_valid(text) || view_type(view_trim(text)) != VIEW_STRING)
        return;
    struct str inside = view_inside(view_trim(text));
    char *said = malloc(inside.n + 1), *again;
    size_t n, n_again;
    if (view_decode_to(inside, said, &n)) {
        check(utf8_valid(str_of(said, n)), "no text");
        check(codec_put_json(c, &written, str_of(said, n)) == 0, "not written");
        check(json_valid(bytes_str(&written)), "written as something else");
        inside = view_inside(bytes_str(&written));
        again = malloc(inside.n + 1);
        check(view_decode_to(inside, again, &n_again), "not read again");
        check(str_eq(str_of(said, n), str_of(again, n_again)), "another string");
        free(again);
    }
    free(said);
    bytes_free(c, &written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tm_client *c = fuzz_client();
    char *copy = malloc(n + 1);
    if (n > 0)
        memcpy(copy, data, n);
    copy = realloc(copy, n > 0 ? n : 1);
    struct str text = str_of(copy, n);
    check_array(text);
    check_member(text);
    check_string(c, text);
    free(copy);
    tm_close(c);
    return 0;
}
