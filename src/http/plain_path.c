// SPDX-License-Identifier: Apache-2.0
#include "http/plain_path.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "http/url.h"

#define DECODED_MAX 4 /* times; nobody means a path that still changes then */

static bool is_dots(struct str segment)
{
    struct str rest = segment, word = str_cut(&rest, ';'); /* parameters of a segment, to some */
    return str_eq(word, STR(".")) || str_eq(word, STR(".."));
}

static bool has_odd_byte(struct str path)
{
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.p[i] < ' ' || path.p[i] == '\\' || path.p[i] == 0x7f)
            return true;
    return false;
}

static bool looks_plain(struct str path)
{
    if (has_odd_byte(path) || !utf8_valid(path))
        return false;
    for (struct str rest = path; rest.p != NULL;)
        if (is_dots(str_cut(&rest, '/')))
            return false;
    return true;
}

static bool is_escaped_slash(struct str path, size_t i)
{
    return i + 2 < path.n && path.p[i] == '%' && path.p[i + 1] == '2' &&
           (path.p[i + 2] | 32) == 'f';
}

bool plain_path_is_ambiguous(struct str path)
{
    for (size_t i = 0; i < path.n; i++)
        if (is_escaped_slash(path, i))
            return true;
    return false;
}

/* Of the escapes that are well formed; others stay. */
static struct str decode_once(struct arena *a, struct str path)
{
    char *to = arena_alloc(a, path.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < path.n; i++) {
        size_t one;
        if (i + 2 < path.n && percent_decode(str_of(path.p + i, 3), false, to + n, &one) &&
            one == 1)
            i += 2;
        else
            to[n] = path.p[i];
        n++;
    }
    return str_of(to, n);
}

/* As long as decoding makes another path of it, that one has to be plain, too. A slash that was
 * escaped twice is no name's. */
static bool is_plain(struct arena *a, struct str path)
{
    for (int i = 0; i <= DECODED_MAX; i++) {
        if (!looks_plain(path) || (i > 0 && plain_path_is_ambiguous(path)))
            return false;
        struct str next = decode_once(a, path);
        if (next.n == path.n)
            return true;
        path = next;
    }
    return false;
}

/* Decodes all but slashes. */
static struct str decode_segments(struct arena *a, struct str path)
{
    char *to = arena_alloc(a, path.n + 1);
    size_t n = 0, from = 0;
    for (size_t i = 0; i <= path.n; i++) {
        size_t part;
        if (i < path.n && !is_escaped_slash(path, i))
            continue;
        percent_decode(str_of(path.p + from, i - from), false, to + n, &part);
        n += part;
        if (i == path.n)
            break;
        memcpy(to + n, "%2F", 3);
        n += 3;
        i += 2;
        from = i + 1;
    }
    return str_of(to, n);
}

int plain_path_name(struct arena *a, struct str path, enum plain_slash slash, struct str *name)
{
    struct str decoded = path;
    bool escaped = memchr(path.p, '%', path.n) != NULL;
    if (escaped ? url_decode(a, path, false, &decoded) != 0 || !is_plain(a, path)
                : !looks_plain(path))
        return ERR_SYNTAX;
    path = escaped && slash == PLAIN_SLASH_STAYS ? decode_segments(a, path) : decoded;
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    *name = path;
    return 0;
}
