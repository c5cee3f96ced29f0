// SPDX-License-Identifier: Apache-2.0
/* json_core.h -- what json_scan.c lends json.c.
 *
 * A json_scan_ function takes the place where its token begins and returns the place behind it, or
 * NULL with s->bad set. Nothing is looked at twice but by memcpy. */
#ifndef BASE_JSON_CORE_H
#define BASE_JSON_CORE_H

#include "base/json.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct json_scan {
    const char *end, *bad;
    bool broken;   /* a CR or LF stood between two tokens */
    bool too_many; /* of an array that is split: it goes on behind JSON_EVENTS_MAX */
    unsigned depth, depth_max;
    char close[JSON_DEPTH_MAX]; /* what ends each open array or object */
};

static inline void json_scan_init(struct json_scan *s, struct str text)
{
    /* Field by field: clearing close[] would cost as much as scanning a small document. */
    s->end = text.p + text.n;
    s->bad = NULL;
    s->broken = s->too_many = false;
    s->depth = 0;
    s->depth_max = JSON_DEPTH_MAX;
}

static inline const char *json_scan_fail(struct json_scan *s, const char *at)
{
    s->bad = at;
    return NULL;
}

static inline const char *json_scan_space(struct json_scan *s, const char *p)
{
    for (; p < s->end; p++) {
        if (*p == '\n' || *p == '\r')
            s->broken = true;
        else if (*p != ' ' && *p != '\t')
            break;
    }
    return p;
}

/* One value with all it contains, behind any white space. */
const char *json_scan_value(struct json_scan *s, const char *p);

/* Nothing but white space may follow p: 0, or ERR_JSON with *at set. */
int json_scan_end(struct json_scan *s, const char *p, const char *start, size_t *at);

/* A plain byte of a string means itself and needs no check: ASCII but for control bytes, the quote
 * and the backslash. find_odd gives a mask with a bit set for bytes that are not plain, BITS apart;
 * exact for the first such byte of STEP. */
static inline bool json_is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

#ifdef __SSE2__
#define STEP 16
#define BITS 1

static inline uint64_t find_odd(const char *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    __m128i below = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)); /* signed: from 0x80 up as well */
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(below, _mm_or_si128(quote, slash)));
}

#else
#define STEP         8
#define BITS         8
#define EACH_BYTE(c) (0x0101010101010101u * (c))

/* A byte's top bit ends up set if it was set (not ASCII) or if a subtraction went below zero: 0x20
 * from a control byte, 1 from a quote or backslash that the XOR made zero. A borrow can only blame
 * bytes behind the first that is not plain. */
static inline uint64_t find_odd(const char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return (w | (w - EACH_BYTE(0x20)) | ((w ^ EACH_BYTE('"')) - EACH_BYTE(1)) |
            ((w ^ EACH_BYTE('\\')) - EACH_BYTE(1))) &
           EACH_BYTE(0x80);
}
#endif

static inline const char *skip_plain(const char *p, const char *end)
{
    for (; end - p >= STEP; p += STEP) {
        uint64_t odd = find_odd(p);
        if (odd != 0)
            return p + __builtin_ctzll(odd) / BITS;
    }
    while (p < end && json_is_plain(*p))
        p++;
    return p;
}

#endif
