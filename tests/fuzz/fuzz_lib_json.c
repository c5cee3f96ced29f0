// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_json.c -- the library's two readers of JSON: what the strict one takes the other passes
 * over whole; an array's values are values, and what a string says can be said again. */
#include "fuzz/lib_client.h"
#include "client/codec.h"
#include "client/client_json.h"

static unsigned depth_of(struct str s)
{
    unsigned depth = 0, most = 0;
    bool quoted = false;
    for (size_t i = 0; i < s.n; i++) {
        if (quoted && s.p[i] == '\\')
            i++;
        else if (s.p[i] == '"')
            quoted = !quoted;
        else if (!quoted && (s.p[i] == '[' || s.p[i] == '{'))
            most = ++depth > most ? depth : most;
        else if (!quoted && (s.p[i] == ']' || s.p[i] == '}'))
            depth--;
    }
    return most;
}

static void check_skip(struct str text)
{
    struct json_read r = {text};
    if (depth_of(text) <= JSON_READ_DEPTH)
        check(json_read_skip(&r) == 0 && json_read_end(&r) == 0, "valid, and not passed over");
}

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
    struct json_read r = {text};
    struct bytes said = {0}, again = {0}, written = {0};
    if (json_read_string(c, &r, &said) == 0) {
        check(codec_put_json(c, &written, bytes_str(&said)) == 0, "not written");
        check(json_valid(bytes_str(&written)), "written as something else");
        struct json_read r2 = {bytes_str(&written)};
        check(json_read_string(c, &r2, &again) == 0 && json_read_end(&r2) == 0, "not read again");
        check(str_eq(bytes_str(&said), bytes_str(&again)), "another string");
    }
    bytes_free(c, &said);
    bytes_free(c, &again);
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
    if (json_valid(text))
        check_skip(text);
    check_array(text);
    check_member(text);
    check_string(c, text);
    free(copy);
    tm_close(c);
    return 0;
}
