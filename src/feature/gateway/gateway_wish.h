// SPDX-License-Identifier: Apache-2.0
/* gateway_wish.h -- whether a POST to an API that is known asks for no events, so that its answer
 * need not be recorded and costs no write. Of what is not known nobody can tell. Pure. */
#ifndef FEATURE_GATEWAY_GATEWAY_WISH_H
#define FEATURE_GATEWAY_GATEWAY_WISH_H

#include "base/str.h"

enum wish {
    WISH_UNKNOWN, /* it may be for events */
    WISH_ANSWER,  /* a model's answer in one piece */
    WISH_LOOKUP,  /* something that is cheap to ask for again */
};

/* By the end of the path, and by the member `stream` of the body, which may be any bytes. */
enum wish wish_of(struct str path, struct str body);

#endif
