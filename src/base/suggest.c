// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.h"

#define WORD_MAX   40 /* longer words get no suggestion */
#define PREFIX_MIN 3  /* letters that make an abbreviation */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* How many letters to add, drop, change or swap with their neighbour to get from a to b. */
static size_t distance(struct str a, struct str b)
{
    size_t rows[3][WORD_MAX + 1]; /* of the usual table: this one and the two before it */
    for (size_t j = 0; j <= b.n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t change = up[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            row[j] = min3(up[j] + 1, row[j - 1] + 1, change);
            bool swapped = i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1];
            if (swapped && up2[j - 2] + 1 < row[j])
                row[j] = up2[j - 2] + 1;
        }
    }
    return rows[a.n % 3][b.n];
}

void suggest_offer(struct suggest *s, const char *name)
{
    struct str candidate = str_of_cstr(name);
    if (s->word.n > WORD_MAX || candidate.n > WORD_MAX)
        return;
    size_t edits = s->word.n >= PREFIX_MIN && str_starts(candidate, s->word)
                       ? 1
                       : distance(s->word, candidate);
    size_t allowed = s->word.n < 6 ? 1 + (s->word.n > 3) : s->word.n / 3;
    if (edits > allowed || edits >= candidate.n || (s->best && edits >= s->edits))
        return;
    s->best = name;
    s->edits = edits;
}
