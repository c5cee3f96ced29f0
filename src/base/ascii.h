// SPDX-License-Identifier: Apache-2.0
/* ascii.h -- texts by the classes of their characters. */
#ifndef BASE_ASCII_H
#define BASE_ASCII_H

#include "base/ascii_char.h"
#include "base/str.h"

/* Without what ascii_is_white at either end. */
struct str ascii_trim(struct str s);

/* What follows is false of an empty text. */
bool ascii_is_word(struct str s, const char *others); /* letters, digits, and others */
bool ascii_is_visible(struct str s);                  /* `!` to `~` */
bool ascii_is_token(struct str s);                    /* of RFC 9110: names of headers, methods */

#endif
