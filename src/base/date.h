// SPDX-License-Identifier: Apache-2.0
/* date.h -- RFC 3339 and HTTP dates. */
#ifndef BASE_DATE_H
#define BASE_DATE_H

#include "base/str.h"

#include <stdint.h>

/* A full RFC 3339 date-time with `T` and a zone of `Z` or +hh:mm (letters in either case), from
 * 1970 to 9999; fractions beyond milliseconds are dropped. Impossible dates are refused, and so
 * are leap seconds, which Unix time cannot tell from the next one. 0 or ERR_SYNTAX. */
int date_parse_rfc3339(struct str s, int64_t *unix_ms);

/* No NUL is written. A time outside 1970 to 9999 is shown as the nearest within. */
#define DATE_RFC3339_TEXT 24 /* 2026-01-31T23:59:59.000Z */
void date_format_rfc3339(int64_t unix_ms, char out[DATE_RFC3339_TEXT]);

#define DATE_HTTP_TEXT 29 /* Sat, 31 Jan 2026 23:59:59 GMT */
void date_format_http(int64_t unix_ms, char out[DATE_HTTP_TEXT]);

#endif
