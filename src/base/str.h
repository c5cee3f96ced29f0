// SPDX-License-Identifier: Apache-2.0
/* str.h -- a borrowed run of bytes. Never NUL-terminated by contract, never owned. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

/* STR("literal") as an expression; STR_INIT("literal") in a static table. */
#define STR_INIT(lit)                                                                              \
    {                                                                                              \
        (lit), sizeof(lit) - 1                                                                     \
    }
#define STR(lit) ((struct str)STR_INIT(lit))
#define STR_NONE ((struct str){NULL, 0})

static inline struct str str_of(const char *p, size_t n)
{
    return (struct str){p, n};
}

static inline struct str str_of_cstr(const char *z)
{
    return (struct str){z, strlen(z)};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}
static inline bool str_ends(struct str s, struct str end)
{
    return s.n >= end.n && memcmp(s.p + s.n - end.n, end.p, end.n) == 0;
}

/* The rest of s after its first n bytes; n <= s.n. */
static inline struct str str_skip(struct str s, size_t n)
{
    return (struct str){n > 0 ? s.p + n : s.p, s.n - n};
}

/* Of n bytes each. ASCII only: HTTP names and media types. */
bool str_eq_nocase_n(const char *a, const char *b, size_t n);

/* Letters that differ in case alone differ in one bit: most texts are told apart by their first. */
static inline bool str_eq_nocase(struct str a, struct str b)
{
    return a.n == b.n &&
           (a.n == 0 || (((a.p[0] ^ b.p[0]) & ~0x20) == 0 && str_eq_nocase_n(a.p, b.p, a.n)));
}

/* Byte-wise order; a prefix sorts before what it begins. */
int str_cmp(struct str a, struct str b);

/* Without spaces and tabs at either end. */
struct str str_trim(struct str s);

/* Splits at the first `sep`: returns what stands before it and moves *rest behind it. Without a
 * `sep`, returns all of *rest and leaves it empty with p == NULL. */
struct str str_cut(struct str *rest, char sep);

#endif
