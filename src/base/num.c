// SPDX-License-Identifier: Apache-2.0
#include "base/num.h"
#include "base/ascii.h"
#include "base/err.h"

/* The digits s begins with, as a number; returns how many, 0 when there is none or the number is
 * greater than max. */
static size_t take_digits(struct str s, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < s.n && ascii_is_digit(s.p[i]); i++) {
        uint64_t digit = (uint64_t)(s.p[i] - '0');
        if (digit > max || v > (max - digit) / 10)
            return 0;
        v = v * 10 + digit;
    }
    *out = v;
    return i;
}

int num_parse(struct str s, uint64_t max, uint64_t *out)
{
    uint64_t v;
    if (s.n == 0 || take_digits(s, max, &v) != s.n)
        return ERR_SYNTAX;
    *out = v;
    return 0;
}

int num_parse_canonical(struct str s, uint64_t max, uint64_t *out)
{
    if (s.n > 1 && s.p[0] == '0')
        return ERR_SYNTAX;
    return num_parse(s, max, out);
}

size_t num_format(uint64_t v, char *out)
{
    char digits[NUM_TEXT_MAX];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    memcpy(out, digits + at, sizeof digits - at);
    return sizeof digits - at;
}

struct unit {
    struct str name;
    uint64_t factor;
};

/* A number and one of the units behind it. */
static int parse_with_unit(struct str s, const struct unit *units, size_t n_units, uint64_t *out)
{
    uint64_t v;
    size_t digits = take_digits(s, UINT64_MAX, &v);
    if (digits == 0)
        return ERR_SYNTAX;
    struct str name = str_skip(s, digits);
    for (size_t i = 0; i < n_units; i++) {
        if (!str_eq(name, units[i].name))
            continue;
        if (v > UINT64_MAX / units[i].factor)
            return ERR_SYNTAX;
        *out = v * units[i].factor;
        return 0;
    }
    return ERR_SYNTAX;
}

int num_parse_size(struct str s, uint64_t *out)
{
    static const struct unit units[] = {
        {STR_INIT(""), 1},        {STR_INIT("k"), 1 << 10}, {STR_INIT("K"), 1 << 10},
        {STR_INIT("m"), 1 << 20}, {STR_INIT("M"), 1 << 20}, {STR_INIT("g"), 1 << 30},
        {STR_INIT("G"), 1 << 30},
    };
    return parse_with_unit(s, units, sizeof units / sizeof *units, out);
}

int num_parse_duration_ms(struct str s, uint64_t *out)
{
    static const struct unit units[] = {
        {STR_INIT("ms"), 1},      {STR_INIT("s"), 1000},     {STR_INIT("m"), 60000},
        {STR_INIT("h"), 3600000}, {STR_INIT("d"), 86400000},
    };
    if (str_eq(s, STR("0"))) {
        *out = 0;
        return 0;
    }
    return parse_with_unit(s, units, sizeof units / sizeof *units, out);
}
