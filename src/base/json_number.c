// SPDX-License-Identifier: Apache-2.0
#include "base/json_number.h"
#include "base/ascii.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_MAX       17   /* always enough to tell a double from all others */
#define DIGITS_SAFE      15   /* a decimal of so many digits is its double's shortest one */
#define DIGITS_TELLING   800  /* what lies halfway between two doubles has 768 at most */
#define POINT_SAFE_MOST  308  /* if it is below 1e308 */
#define POINT_SAFE_LEAST -306 /* and no less than 1e-307: a double with all its bits */
#define POINT_MOST       310  /* beyond all doubles */
#define POINT_LEAST      -330 /* below all of them */
#define EXPONENT_MOST    100000000
#define FRACTION_BITS    52
#define EXPONENT_DIGITS  12 /* an `e`, a sign and the digits */

/* 0.DIGITS times 10 to the power of `point`. The first and the last digit are not zero; without
 * digits it is zero. */
struct decimal {
    char digits[DIGITS_MAX];
    int n;
    int point;
};

/* ---- the text ---- */

/* A number's parts: its digits with the point among them, and what is to be known of them. */
struct spelled {
    struct str digits; /* as they came, point included */
    size_t n;          /* from the first to the last that is not zero; 0: it is zero */
    char first[DIGITS_SAFE];
    long point;
    bool negative;
};

static long take_exponent(const char **p, const char *end)
{
    long v = 0;
    bool negative = false;
    ++*p;
    if (**p == '+' || **p == '-')
        negative = *(*p)++ == '-';
    for (; *p < end && ascii_is_digit(**p); ++*p)
        if (v < EXPONENT_MOST)
            v = v * 10 + (**p - '0');
    return negative ? -v : v;
}

static void take_digits(struct spelled *s, const char **p, const char *end)
{
    const char *start = *p;
    size_t seen = 0; /* from the first that is not zero */
    bool fraction = false;
    for (; *p < end && (ascii_is_digit(**p) || **p == '.'); ++*p) {
        if (**p == '.') {
            fraction = true;
            continue;
        }
        bool counts = seen > 0 || **p != '0';
        s->point += counts ? !fraction : -(long)fraction;
        if (!counts)
            continue;
        if (seen < DIGITS_SAFE)
            s->first[seen] = **p;
        seen++;
        if (**p != '0')
            s->n = seen;
    }
    s->digits = str_of(start, (size_t)(*p - start));
}

static size_t json_take_number(struct str text, struct spelled *s)
{
    const char *p = text.p, *end = p + text.n;
    *s = (struct spelled){.negative = *p == '-'};
    p += s->negative;
    take_digits(s, &p, end);
    if (p < end && (*p == 'e' || *p == 'E'))
        s->point += take_exponent(&p, end);
    return (size_t)(p - text.p);
}

/* ---- doubles ---- */

/* Of n digits, with room for an exponent behind them, and no point, which is a comma elsewhere. */
static double json_number_value_of(char *digits, size_t n, long exponent)
{
    snprintf(digits + n, EXPONENT_DIGITS + 1, "e%ld", exponent);
    return strtod(digits, NULL);
}

/* Of very many digits the last ones only tell that there is something: a 1 stands for them. */
static double spelled_value(const struct spelled *s)
{
    char text[DIGITS_TELLING + 1 + EXPONENT_DIGITS + 1];
    size_t seen = 0;
    for (size_t i = 0; i < s->digits.n && seen < s->n && seen < DIGITS_TELLING; i++) {
        char c = s->digits.p[i];
        if (c == '.' || (c == '0' && seen == 0))
            continue;
        text[seen++] = c;
    }
    if (seen < s->n)
        text[seen++] = '1';
    return json_number_value_of(text, seen, s->point - (long)seen);
}

static bool means(const struct decimal *d, double v)
{
    char text[DIGITS_MAX + EXPONENT_DIGITS + 1];
    memcpy(text, d->digits, (size_t)d->n);
    return json_number_value_of(text, (size_t)d->n, d->point - d->n) == v;
}

static void strip(struct decimal *d)
{
    while (d->n > 0 && d->digits[d->n - 1] == '0')
        d->n--;
}

/* The decimal of so many digits that is nearest to v. */
static struct decimal nearest(double v, int digits)
{
    char text[64];
    struct decimal d = {.n = 0};
    snprintf(text, sizeof text, "%.*e", digits - 1, v);
    const char *p = text;
    for (; *p != 'e'; p++)
        if (ascii_is_digit(*p))
            d.digits[d.n++] = *p;
    d.point = (int)strtol(p + 1, NULL, 10) + 1;
    return d;
}

/* The next larger one of as many digits. */
static void step_up(struct decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
    } else {
        d->digits[0] = '1';
        d->point++;
    }
}

/* A double with b bits holds any decimal of (b - 1) * log10(2) digits apart from its neighbours: if
 * one so short means v, it is the nearest of that length to v, with zeros behind it. One or two
 * digits more tell v from all others. Below a power of two doubles lie closer than above it, so
 * there the nearest may mean another while the next larger means v. */
static struct decimal shortest(double v)
{
    uint64_t raw;
    memcpy(&raw, &v, sizeof raw);
    uint64_t fraction = raw & (((uint64_t)1 << FRACTION_BITS) - 1);
    bool normal = raw >> FRACTION_BITS != 0;
    int bits = normal ? FRACTION_BITS + 1 : 64 - __builtin_clzll(fraction);
    int digits = (bits - 1) * 30103 / 100000;
    for (digits = digits > 0 ? digits : 1;; digits++) {
        struct decimal d = nearest(v, digits);
        bool found = digits == DIGITS_MAX || means(&d, v);
        if (!found && normal && fraction == 0) {
            step_up(&d);
            found = means(&d, v);
        }
        if (found) {
            strip(&d);
            return d;
        }
    }
}

/* False: too large. */
static bool read_decimal(const struct spelled *s, struct decimal *d)
{
    *d = (struct decimal){.n = 0};
    if (s->n == 0 || s->point < POINT_LEAST)
        return true;
    if (s->point > POINT_MOST)
        return false;
    if (s->n <= DIGITS_SAFE && s->point >= POINT_SAFE_LEAST && s->point <= POINT_SAFE_MOST) {
        memcpy(d->digits, s->first, s->n);
        d->n = (int)s->n;
        d->point = (int)s->point;
        return true;
    }
    double v = spelled_value(s);
    if (isinf(v))
        return false;
    if (v > 0)
        *d = shortest(v);
    return true;
}

/* ---- as ECMAScript prints it (Number::toString) ---- */

static char *json_number_put(char *to, struct str s)
{
    memcpy(to, s.p, s.n);
    return to + s.n;
}

static char *put_zeros(char *to, int n)
{
    for (; n > 0; n--)
        *to++ = '0';
    return to;
}

static char *put_exponential(char *to, const struct decimal *d)
{
    int exponent = d->point - 1;
    *to++ = d->digits[0];
    if (d->n > 1) {
        *to++ = '.';
        to = json_number_put(to, str_of(d->digits + 1, (size_t)d->n - 1));
    }
    to = json_number_put(to, exponent < 0 ? STR("e-") : STR("e+"));
    return to + num_format((uint64_t)abs(exponent), to);
}

static char *put_decimal(char *to, const struct decimal *d)
{
    struct str digits = str_of(d->digits, (size_t)d->n);
    if (d->n == 0)
        return json_number_put(to, STR("0"));
    if (d->point > 21 || d->point <= -6)
        return put_exponential(to, d);
    if (d->point <= 0) {
        to = put_zeros(json_number_put(to, STR("0.")), -d->point);
        return json_number_put(to, digits);
    }
    if (d->point < d->n) {
        to = json_number_put(to, str_of(digits.p, (size_t)d->point));
        *to++ = '.';
        return json_number_put(to, str_skip(digits, (size_t)d->point));
    }
    return put_zeros(json_number_put(to, digits), d->point - d->n);
}

size_t json_number_canonical(struct str text, size_t *taken, char out[JSON_NUMBER_MAX])
{
    struct spelled s;
    struct decimal d;
    char *to = out;
    *taken = json_take_number(text, &s);
    if (!read_decimal(&s, &d))
        return 0;
    if (s.negative && d.n > 0) /* there is no negative zero */
        *to++ = '-';
    return (size_t)(put_decimal(to, &d) - out);
}
