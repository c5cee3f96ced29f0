// SPDX-License-Identifier: Apache-2.0
/* utf8.h -- is it UTF-8, and does it stop in the middle of a character? */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/str.h"

/* Strict: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool utf8_valid(struct str s);

/* How many bytes at the end begin a character that more bytes could complete: 0 to 3. */
size_t utf8_incomplete_tail(struct str s);

#endif
