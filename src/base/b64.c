// SPDX-License-Identifier: Apache-2.0
#include "base/b64.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Three bytes are four characters; one or two left over are two or three, and `pad` up to four. */
static size_t b64_encode_with(struct str bytes, char *to, const char *alphabet, bool pad)
{
    const unsigned char *p = (const unsigned char *)bytes.p;
    const char *start = to;
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t left = bytes.n - i;
        uint32_t v = (uint32_t)p[i] << 16;
        if (left > 1)
            v |= (uint32_t)p[i + 1] << 8;
        if (left > 2)
            v |= p[i + 2];
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        if (left > 1 || pad)
            *to++ = left > 1 ? alphabet[v >> 6 & 63] : '=';
        if (left > 2 || pad)
            *to++ = left > 2 ? alphabet[v & 63] : '=';
    }
    return (size_t)(to - start);
}

size_t b64_encode(struct str bytes, char *out)
{
    return b64_encode_with(bytes, out, standard, true);
}

size_t b64url_encode(struct str bytes, char *out)
{
    return b64_encode_with(bytes, out, url_safe, false);
}

/* 0 to 63, or -1. last: the two characters in which the alphabets differ. */
static int b64_value_of(char c, const char *last)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == last[0] ? 62 : c == last[1] ? 63 : -1;
}

static bool b64_decode_with(struct str text, char *to, size_t *n, const char *last)
{
    const char *start = to;
    uint32_t bits = 0;
    int n_bits = 0;
    if (text.n % 4 == 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int v = b64_value_of(text.p[i], last);
        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            *to++ = (char)(bits >> n_bits);
            bits &= (1u << n_bits) - 1;
        }
    }
    *n = (size_t)(to - start);
    return bits == 0;
}

bool b64_decode(struct str text, void *out, size_t *n)
{
    if (text.n % 4 != 0)
        return false;
    for (int pad = 0; pad < 2 && text.n > 0 && text.p[text.n - 1] == '='; pad++)
        text.n--;
    return b64_decode_with(text, out, n, standard + 62);
}

bool b64url_decode(struct str text, void *out, size_t *n)
{
    return b64_decode_with(text, out, n, url_safe + 62);
}
