// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_transcript.h"

#include "base/ascii.h"
#include "base/num.h"

/* ---- lines ---- */

struct str cascade_transcript_lines(struct str text, struct buf *scratch)
{
    scratch->n = 0;
    if (text.n == 0 || memmem(text.p, text.n, "\r\n", 2) == NULL)
        return text;
    char *p = buf_reserve(scratch, text.n);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '\r' || i + 1 == text.n || text.p[i + 1] != '\n')
            p[scratch->n++] = text.p[i];
    return buf_str(scratch);
}

/* ---- headers ---- */

static bool cascade_transcript_is_word(char c)
{
    return ascii_is_alnum(c) || c == '_';
}

static struct str cut_while(struct str *rest, bool (*is)(char c))
{
    size_t n = 0;
    while (n < rest->n && is(rest->p[n]))
        n++;
    struct str run = str_of(rest->p, n);
    *rest = str_skip(*rest, n);
    return run;
}

static bool cut_literal(struct str *rest, struct str literal)
{
    if (!str_starts(*rest, literal))
        return false;
    *rest = str_skip(*rest, literal.n);
    return true;
}

static enum cascade_role role_of(struct str word)
{
    static const struct {
        struct str word;
        enum cascade_role role;
    } roles[] = {
        {STR_INIT("User"), CASCADE_ROLE_USER},
        {STR_INIT("Assistant"), CASCADE_ROLE_ASSISTANT},
        {STR_INIT("Tool"), CASCADE_ROLE_TOOL},
        {STR_INIT("System"), CASCADE_ROLE_SYSTEM},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (str_eq(word, roles[i].word))
            return roles[i].role;
    return CASCADE_ROLE_OTHER;
}

static bool parse_header(struct str line, struct cascade_message *out)
{
    if (!cut_literal(&line, STR(CASCADE_HEADER_START)))
        return false;
    struct str digits = cut_while(&line, ascii_is_digit);
    if (num_parse(digits, NUM_SAFE_MAX, &out->index) != 0 || !cut_literal(&line, STR(" - ")))
        return false;
    struct str word = cut_while(&line, cascade_transcript_is_word);
    out->role = role_of(word);
    return word.n > 0 && str_eq(line, STR(" ==="));
}

/* Moves *rest behind the next line that is a header. What stands before that line is in *before. */
static bool cut_header(struct str *rest, struct str *before, struct cascade_message *out)
{
    struct str text = *rest;
    const char *start = text.p;
    while (text.n > 0) {
        struct str line = str_cut(&text, '\n');
        if (parse_header(line, out)) {
            *before = str_of(start, (size_t)(line.p - start));
            *rest = text;
            return true;
        }
    }
    *before = *rest;
    *rest = STR_NONE;
    return false;
}

bool cascade_transcript_next(struct str *rest, struct cascade_message *out)
{
    struct cascade_message next;
    struct str before;
    if (!cut_header(rest, &before, out))
        return false;
    struct str behind = *rest, end = behind;
    bool another = cut_header(&end, &before, &next);
    out->body = ascii_trim(before);
    /* The next call begins at the next header. */
    *rest = another ? str_skip(behind, before.n) : STR_NONE;
    return true;
}
