// SPDX-License-Identifier: Apache-2.0
#include "base/hex.h"
#include "base/ascii.h"

static const char lower_digits[] = "0123456789abcdef", upper_digits[] = "0123456789ABCDEF";

static char *hex_write(char *to, uint8_t byte, const char *digits)
{
    *to++ = digits[byte >> 4];
    *to++ = digits[byte & 15];
    return to;
}

void hex_encode(const void *bytes, size_t n, char *out)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        out = hex_write(out, p[i], lower_digits);
}

void hex_encode_u64(uint64_t v, char out[HEX_U64])
{
    for (int i = 0; i < HEX_U64; i++)
        out[i] = lower_digits[v >> (60 - 4 * i) & 15];
}

bool hex_decode(struct str text, void *out, size_t n)
{
    uint8_t *to = out;
    if (text.n % 2 != 0 || text.n / 2 != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = hex_value(text.p[2 * i]), low = hex_value(text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool hex_decode_lower(struct str text, void *out, size_t n)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] >= 'A' && text.p[i] <= 'F')
            return false;
    return hex_decode(text, out, n);
}

bool hex_decode_u64(struct str text, uint64_t *out)
{
    uint8_t bytes[HEX_U64 / 2];
    uint64_t v = 0;
    if (!hex_decode_lower(text, bytes, sizeof bytes))
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        v = v << 8 | bytes[i];
    *out = v;
    return true;
}

void hex_uuid(const uint8_t random[16], char out[HEX_UUID])
{
    for (int i = 0; i < 16; i++) {
        uint8_t b = random[i];
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        if (i == 6)
            b = (b & 0x0f) | 0x40; /* version 4 */
        if (i == 8)
            b = (b & 0x3f) | 0x80; /* variant 1 */
        out = hex_write(out, b, lower_digits);
    }
}

static bool is_unreserved(char c)
{
    return ascii_is_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

size_t percent_encode(struct str s, bool keep_slash, char *out)
{
    char *to = out;
    for (size_t i = 0; i < s.n; i++) {
        if (is_unreserved(s.p[i]) || (keep_slash && s.p[i] == '/')) {
            *to++ = s.p[i];
            continue;
        }
        *to++ = '%';
        to = hex_write(to, (uint8_t)s.p[i], upper_digits);
    }
    return (size_t)(to - out);
}

bool percent_decode(struct str s, bool form, char *out, size_t *n)
{
    char *to = out;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '%') {
            *to++ = form && s.p[i] == '+' ? ' ' : s.p[i];
            continue;
        }
        if (s.n - i < 3 || !hex_decode(str_of(s.p + i + 1, 2), to, 1))
            return false;
        to++;
        i += 2;
    }
    *n = (size_t)(to - out);
    return true;
}
