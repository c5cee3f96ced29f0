// SPDX-License-Identifier: Apache-2.0
/* subscription_pattern.h -- names of streams as subscriptions write them, and patterns over them.
 *
 * A pattern is a path whose segments match literally, but for `*`, which is any one segment, and
 * `**`, which is any number of them, none included. `%2A` in a literal segment stands for a star.
 */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_PATTERN_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_PATTERN_H

#include "base/str.h"

/* Without slashes at either end: the plain form. */
struct str subscription_path(struct str path);

/* A name that can be linked: in the plain form, 1 to STORE_NAME_MAX bytes of UTF-8 without control
 * characters, and not in the reserved `__ds`. */
bool subscription_path_valid(struct str path);

/* An id: the same characters, at most SUBSCRIPTION_ID_MAX bytes. */
bool subscription_id_valid(struct str id);

/* A pattern: the same characters, without empty segments, at most SUBSCRIPTION_PATTERN_MAX bytes.
 */
bool subscription_pattern_valid(struct str pattern);

/* Takes time in proportion to the product of both lengths at worst. */
bool subscription_pattern_match(struct str pattern, struct str path);

/* What a literal segment stands for; out has room for as many bytes as it has. */
struct str subscription_pattern_literal(struct str segment, char *out);

/* What every match begins with; n == 0 if nothing is sure. */
struct str subscription_pattern_prefix(struct str pattern);

/* Whether it may match a path that begins with `start`; false is sure. */
bool subscription_pattern_meets(struct str pattern, struct str start);

/* Of a tenant's name or id, which is stored with its root: as the tenant sees it. */
struct str subscription_unrooted(struct str root, struct str name);

#endif
