// SPDX-License-Identifier: Apache-2.0
/* The tests of json.c again, against its code for machines without SSE2. */
#undef __SSE2__
#define json_check       portable_json_check
#define json_split       portable_json_split
#define json_put_string  portable_json_put_string
#define json_escape      portable_json_escape
#define json_scan_value  portable_json_scan_value
#define json_scan_end    portable_json_scan_end
#define json_put_strings portable_json_put_strings
#define json_put_problem portable_json_put_problem
#include "base/json_scan.c"
#include "base/json.c"

#include "unit/base/test_json.c"
