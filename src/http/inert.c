// SPDX-License-Identifier: Apache-2.0
#include "http/inert.h"

/* What is harmless, not what is dangerous: a type that nobody thought of is saved. `*` stands for
 * any text. */
static const struct str harmless[] = {
    STR_INIT("text/plain"),
    STR_INIT("text/event-stream"),
    STR_INIT("application/json"),
    STR_INIT("*+json"),
    STR_INIT("application/octet-stream"),
    STR_INIT("application/proto"),
    STR_INIT("application/connect+proto"),
    STR_INIT("application/grpc*"),
    STR_INIT("image/png"),
    STR_INIT("image/jpeg"),
    STR_INIT("image/gif"),
    STR_INIT("image/webp"),
    STR_INIT("image/avif"),
    STR_INIT("audio/*"),
    STR_INIT("video/*"),
};

static bool inert_matches(struct str form, struct str type)
{
    struct str end = form, begin = str_cut(&end, '*');
    if (end.p == NULL)
        return str_eq_nocase(type, form);
    return type.n >= begin.n + end.n && str_eq_nocase(str_of(type.p, begin.n), begin) &&
           str_eq_nocase(str_skip(type, type.n - end.n), end);
}

bool inert_type(struct str content_type)
{
    /* Browsers take the last of several types. */
    if (content_type.n == 0 || memchr(content_type.p, ',', content_type.n) != NULL)
        return false;
    struct str type = str_trim(str_cut(&content_type, ';'));
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (inert_matches(harmless[i], type))
            return true;
    return false;
}
