// SPDX-License-Identifier: Apache-2.0
/* gateway_wish.h -- whether a POST to an API that is known asks for no events, so that its answer
 * need not be recorded and costs no write. Pure. */
#ifndef FEATURE_GATEWAY_GATEWAY_WISH_H
#define FEATURE_GATEWAY_GATEWAY_WISH_H

#include "base/str.h"

#include <stdbool.h>

enum wish {
    WISH_UNKNOWN,      /* events may come */
    WISH_NO_EVENTS,    /* not this time */
    WISH_NEVER_EVENTS, /* this path has none */
};

/* By the end of the path, and by the member `stream` of the body, which may be any bytes. */
enum wish wish_of(struct str path, struct str body);

#endif
