// SPDX-License-Identifier: Apache-2.0
/* units.h -- sizes in bytes and times in milliseconds, for tables of settings. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdint.h>

#define KIB       ((uint64_t)1 << 10)
#define MIB       ((uint64_t)1 << 20)
#define GIB       ((uint64_t)1 << 30)

#define SECOND_MS ((uint64_t)1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

#endif
