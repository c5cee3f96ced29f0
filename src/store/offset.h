// SPDX-License-Identifier: Apache-2.0
/* offset.h -- a position in a stream.
 *
 * As text `LLLLLLLLLLLLLLLL_PPPPPPPPPPPPPPPP`, each part 16 decimal digits: the stream's life (a
 * store-wide counter from 1 that a name gets anew whenever it is created, so that a position of an
 * earlier life is recognised) and the byte position. Byte order of the text is order of position.
 * All zeros is another name for the start of any life. */
#ifndef STORE_OFFSET_H
#define STORE_OFFSET_H

#include "base/str.h"

#include <stdint.h>

#define OFFSET_TEXT     33
#define OFFSET_PART_MAX 9999999999999999u

struct offset {
    uint64_t life, pos;
};

/* Exactly the text form. A life of zero is refused with any position but zero, as no stream has
 * it. `-1` and `now` are the protocol's words, not offsets. 0 or ERR_OFFSET. */
int offset_parse(struct str s, struct offset *out);

/* Both parts at most OFFSET_PART_MAX. No NUL is written. */
void offset_format(struct offset o, char out[OFFSET_TEXT]);

static inline bool offset_is_zero(struct offset o)
{
    return o.life == 0 && o.pos == 0;
}

#endif
