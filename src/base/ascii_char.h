// SPDX-License-Identifier: Apache-2.0
/* ascii_char.h -- classes of characters, whatever the locale. Bytes from 0x80 up are of none. */
#ifndef BASE_ASCII_CHAR_H
#define BASE_ASCII_CHAR_H

#include <stdbool.h>

static inline bool ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ascii_is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool ascii_is_alnum(char c)
{
    return ascii_is_digit(c) || ascii_is_alpha(c);
}

/* JSON's white space. */
static inline bool ascii_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* isspace(): vertical tab and form feed, too. */
static inline bool ascii_is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

#endif
