// SPDX-License-Identifier: Apache-2.0
/* date.h -- RFC 3339 and HTTP dates. */
#ifndef BASE_DATE_H
#define BASE_DATE_H

#include "base/str.h"

#include <stdint.h>

/* A full RFC 3339 date-time with `Z` or a numeric zone; fractions beyond milliseconds are dropped.
 * Impossible dates are refused. 0 or ERR_SYNTAX. */
int date_parse_rfc3339(struct str s, int64_t *unix_ms);

#define DATE_RFC3339_TEXT 24 /* 2026-01-31T23:59:59.000Z */
void date_format_rfc3339(int64_t unix_ms, char out[DATE_RFC3339_TEXT]);

#define DATE_HTTP_TEXT 29 /* Sat, 31 Jan 2026 23:59:59 GMT */
void date_format_http(int64_t unix_ms, char out[DATE_HTTP_TEXT]);

#endif
