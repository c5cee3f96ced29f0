// SPDX-License-Identifier: Apache-2.0
#include "store/offset.h"
#include "base/err.h"
#include "base/must.h"
#include "base/num.h"

#define PART_TEXT 16

int offset_parse(struct str s, struct offset *out)
{
    struct offset o;
    if (s.n != OFFSET_TEXT || s.p[PART_TEXT] != '_')
        return ERR_OFFSET;
    if (num_parse(str_of(s.p, PART_TEXT), OFFSET_PART_MAX, &o.life) != 0 ||
        num_parse(str_of(s.p + PART_TEXT + 1, PART_TEXT), OFFSET_PART_MAX, &o.pos) != 0)
        return ERR_OFFSET;
    if (o.life == 0 && o.pos != 0)
        return ERR_OFFSET;
    *out = o;
    return 0;
}

/* Most digits are leading zeros. */
static void offset_put_part(char *to, uint64_t v)
{
    memset(to, '0', PART_TEXT);
    for (int i = PART_TEXT - 1; v > 0; i--, v /= 10)
        to[i] = (char)('0' + v % 10);
}

void offset_format(struct offset o, char out[OFFSET_TEXT])
{
    must(o.life <= OFFSET_PART_MAX && o.pos <= OFFSET_PART_MAX);
    offset_put_part(out, o.life);
    out[PART_TEXT] = '_';
    offset_put_part(out + PART_TEXT + 1, o.pos);
}
