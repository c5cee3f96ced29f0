// SPDX-License-Identifier: Apache-2.0
#include "base/json_repair.h"
#include "base/json.h"
#include "base/json_view.h"

enum want { WANT_VALUE, WANT_VALUE_OR_END, WANT_NAME, WANT_NAME_OR_END, WANT_COLON, WANT_NEXT };

/* Everything up to `cut`, then `tail`, then the closing brackets, is the value. Brackets move the
 * cut whenever they open or close, so those open at the end are those open at the cut. */
struct repair {
    struct str text;
    size_t at, cut;
    struct str tail;
    enum want want;
    size_t depth;
    char close[REPAIR_DEPTH_MAX];
};

/* The value before r->at can be used as it is. */
static void cut_here(struct repair *r)
{
    r->cut = r->at;
    r->tail = STR_NONE;
}

/* Past a string, or to the end. Returns whether it is closed; *safe is where one that is not may
 * be cut, which is not within an escape. */
static bool json_repair_skip_string(struct repair *r, size_t *safe)
{
    const char *p = r->text.p;
    size_t end = r->text.n;
    *safe = ++r->at;
    while (r->at < end && p[r->at] != '"') {
        size_t n = p[r->at] != '\\' ? 1 : r->at + 1 < end && p[r->at + 1] == 'u' ? 6 : 2;
        if (n > end - r->at) {
            r->at = end;
            return false;
        }
        r->at += n;
        *safe = r->at;
    }
    if (r->at == end)
        return false;
    r->at++;
    return true;
}

static void take_string(struct repair *r)
{
    size_t safe;
    bool closed = json_repair_skip_string(r, &safe);
    cut_here(r);
    if (!closed) {
        r->cut = safe;
        r->tail = STR("\"");
    }
    r->want = WANT_NEXT;
}

static void json_repair_take_name(struct repair *r)
{
    size_t safe;
    json_repair_skip_string(r, &safe);
    r->want = WANT_COLON;
}

static bool in_set(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* Only at the end of the text may a number be unfinished; elsewhere the check at the end finds it.
 */
static void json_repair_take_number(struct repair *r)
{
    size_t start = r->at;
    while (r->at < r->text.n && in_set(r->text.p[r->at], "+-.0123456789eE"))
        r->at++;
    size_t end = r->at;
    if (r->at == r->text.n)
        while (end > start && !in_set(r->text.p[end - 1], "0123456789"))
            end--;
    if (end > start) {
        r->cut = end;
        r->tail = STR_NONE;
    }
    r->want = WANT_NEXT;
}

static bool json_repair_take_word(struct repair *r)
{
    static const struct str words[] = {STR_INIT("true"), STR_INIT("false"), STR_INIT("null")};
    struct str rest = str_skip(r->text, r->at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = rest.n < words[i].n ? rest.n : words[i].n;
        if (memcmp(rest.p, words[i].p, n) != 0)
            continue;
        r->at += n;
        cut_here(r);
        r->tail = str_skip(words[i], n);
        r->want = WANT_NEXT;
        return true;
    }
    return false;
}

static bool open_bracket(struct repair *r, char c)
{
    if (r->depth == REPAIR_DEPTH_MAX)
        return false;
    r->close[r->depth++] = c == '{' ? '}' : ']';
    r->at++;
    cut_here(r);
    r->want = c == '{' ? WANT_NAME_OR_END : WANT_VALUE_OR_END;
    return true;
}

static bool close_bracket(struct repair *r, char c)
{
    if (r->depth == 0 || r->close[r->depth - 1] != c)
        return false;
    r->depth--;
    r->at++;
    cut_here(r);
    r->want = WANT_NEXT;
    return true;
}

static bool json_repair_take_value(struct repair *r, char c)
{
    if (c == '{' || c == '[')
        return open_bracket(r, c);
    if (c == '"')
        take_string(r);
    else if (c == '-' || (c >= '0' && c <= '9'))
        json_repair_take_number(r);
    else
        return json_repair_take_word(r);
    return true;
}

static bool take_token(struct repair *r, char c)
{
    switch (r->want) {
    case WANT_VALUE_OR_END:
        if (c == ']')
            return close_bracket(r, c);
        return json_repair_take_value(r, c);
    case WANT_VALUE: return json_repair_take_value(r, c);
    case WANT_NAME_OR_END:
        if (c == '}')
            return close_bracket(r, c);
        break;
    case WANT_NAME: break;
    case WANT_COLON:
        r->at++;
        r->want = WANT_VALUE;
        return c == ':';
    case WANT_NEXT:
        if (c != ',')
            return close_bracket(r, c);
        r->at++;
        r->want = r->close[r->depth - 1] == '}' ? WANT_NAME : WANT_VALUE;
        return true;
    }
    if (c != '"')
        return false;
    json_repair_take_name(r);
    return true;
}

static bool scan(struct repair *r)
{
    while (r->at < r->text.n && !(r->want == WANT_NEXT && r->depth == 0)) {
        char c = r->text.p[r->at];
        if (in_set(c, " \t\n\r"))
            r->at++;
        else if (!take_token(r, c))
            return false;
    }
    return true;
}

bool json_repair(struct str text, struct buf *out)
{
    size_t at;
    struct repair r;
    r.text = text;
    r.at = r.cut = r.depth = 0;
    r.tail = STR_NONE;
    r.want = WANT_VALUE;
    if (!scan(&r))
        return false;
    struct buf value = {0};
    buf_put(&value, str_of(text.p, r.cut));
    buf_put(&value, r.tail);
    while (r.depth > 0)
        buf_putc(&value, r.close[--r.depth]);
    bool ok = json_check(buf_str(&value), &at) == 0;
    if (ok)
        view_put_unbroken(out, view_trim(buf_str(&value)));
    buf_deinit(&value);
    return ok;
}
