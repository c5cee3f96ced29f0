// SPDX-License-Identifier: Apache-2.0
/* One pass: each member of an object is written as it comes, and where they did not come in their
 * order the object's text is put into it when it ends. So a byte is moved once for each object
 * around it, of which there are JSON_DEPTH_MAX at most. */
#include "client/client_canonical.h"
#include "base/json_number.h"
#include "client/codec.h"
#include "client/client_json.h"

#include <stdio.h>
#include <stdlib.h>

/* In the text that is written: "NAME":VALUE, with the comma. */
struct member {
    size_t at, n;
    const char *text; /* there, while an object is put in order */
};

struct canon {
    struct tm_client *c;
    struct json_read in;
    struct bytes *out;
    struct bytes members; /* of the objects that are open */
    struct bytes scratch; /* a string, or an object that is put in order */
};

static int client_canonical_put(struct canon *k, struct str s)
{
    return bytes_put(k->c, k->out, s);
}

/* ---- strings ---- */

static int put_escape(struct canon *k, unsigned char ch)
{
    static const char letters[] = "btn\0fr"; /* of 8 to 13 */
    if (ch == '"' || ch == '\\')
        return bytes_printf(k->c, k->out, "\\%c", ch);
    if (ch >= 8 && ch <= 13 && letters[ch - 8] != '\0')
        return bytes_printf(k->c, k->out, "\\%c", letters[ch - 8]);
    return bytes_printf(k->c, k->out, "\\u%04x", ch);
}

static int client_canonical_put_text(struct canon *k, struct str s)
{
    int err = client_canonical_put(k, STR("\""));
    while (s.n > 0 && err == 0) {
        size_t n = 0;
        while (n < s.n && (unsigned char)s.p[n] >= 0x20 && s.p[n] != '"' && s.p[n] != '\\')
            n++;
        err = client_canonical_put(k, str_of(s.p, n));
        if (err == 0 && n < s.n)
            err = put_escape(k, (unsigned char)s.p[n++]);
        s = str_skip(s, n);
    }
    return err ? err : client_canonical_put(k, STR("\""));
}

static int client_canonical_put_string(struct canon *k)
{
    k->scratch.n = 0;
    int err = json_read_string(k->c, &k->in, &k->scratch);
    return err ? err : client_canonical_put_text(k, bytes_str(&k->scratch));
}

/* ---- the order of members ---- */

/* The next byte of a name as it is written, escapes resolved; -1: that was the last. UTF-8 sorts as
 * code points do, but UTF-16 puts those of two units before U+E000 to U+FFFF (EE and EF). */
static int next_byte(const char **p)
{
    static const char letters[] = "btnfr", codes[] = "\b\t\n\f\r";
    unsigned char ch = (unsigned char)*(*p)++;
    if (ch == '"')
        return -1;
    if (ch != '\\')
        return ch == 0xee || ch == 0xef ? ch + 0x10 : ch;
    ch = (unsigned char)*(*p)++;
    if (ch == 'u') {
        int high = (*p)[2] - '0', low = (*p)[3] <= '9' ? (*p)[3] - '0' : (*p)[3] - 'a' + 10;
        *p += 4;
        return 16 * high + low;
    }
    const char *letter = strchr(letters, ch);
    return letter != NULL ? codes[letter - letters] : ch;
}

static int client_canonical_by_name(const void *one, const void *other)
{
    const char *a = ((const struct member *)one)->text + 1;
    const char *b = ((const struct member *)other)->text + 1;
    for (;;) {
        int left = next_byte(&a), right = next_byte(&b);
        if (left != right || left < 0)
            return left - right;
    }
}

static int rearrange(struct canon *k, const struct member *all, size_t n)
{
    size_t start = k->out->n;
    k->scratch.n = 0;
    for (size_t i = 0; i < n; i++) {
        start = all[i].at < start ? all[i].at : start;
        if (bytes_put(k->c, &k->scratch, str_of(all[i].text, all[i].n)) != 0)
            return TM_E_NOMEM;
    }
    memcpy(k->out->p + start, k->scratch.p, k->scratch.n);
    return 0;
}

/* Those from `first` on are an object's. */
static int sort_members(struct canon *k, size_t first)
{
    size_t n = k->members.n / sizeof(struct member) - first;
    if (n < 2)
        return 0;
    struct member *all = (struct member *)k->members.p + first;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        all[i].text = k->out->p + all[i].at;
        sorted = sorted && (i == 0 || client_canonical_by_name(&all[i - 1], &all[i]) < 0);
    }
    if (sorted)
        return 0;
    qsort(all, n, sizeof *all, client_canonical_by_name);
    for (size_t i = 1; i < n; i++)
        if (client_canonical_by_name(&all[i - 1], &all[i]) == 0)
            return TM_E_INVALID;
    return rearrange(k, all, n);
}

/* ---- values ---- */

static int client_canonical_put_value(struct canon *k);

static int client_canonical_put_member(struct canon *k)
{
    struct member m = {.at = k->out->n};
    int err = client_canonical_put_string(k);
    if (err == 0)
        err = json_read_char(&k->in, ':');
    if (err == 0)
        err = client_canonical_put(k, STR(":"));
    if (err == 0)
        err = client_canonical_put_value(k);
    if (err == 0)
        err = client_canonical_put(k, STR(","));
    m.n = k->out->n - m.at;
    return err ? err : bytes_put(k->c, &k->members, str_of((const char *)&m, sizeof m));
}

static int client_canonical_put_item(struct canon *k)
{
    int err = client_canonical_put_value(k);
    return err ? err : client_canonical_put(k, STR(","));
}

/* An array or object; the last comma becomes its bracket. */
static int put_all(struct canon *k, char open, char close, int (*put_one)(struct canon *k))
{
    size_t n = 0, first = k->members.n / sizeof(struct member);
    int more = 0, err = json_read_char(&k->in, open);
    if (err == 0)
        err = client_canonical_put(k, str_of(&open, 1));
    while (err == 0 && (more = json_read_item(&k->in, close, &n)) > 0)
        err = put_one(k);
    if (err == 0)
        err = more;
    if (err == 0)
        err = sort_members(k, first);
    if (err != 0)
        return err;
    k->members.n = first * sizeof(struct member);
    k->out->n -= n > 0;
    return client_canonical_put(k, str_of(&close, 1));
}

static int client_canonical_put_word(struct canon *k, struct str word)
{
    k->in.rest = str_skip(k->in.rest, word.n);
    return client_canonical_put(k, word);
}

static int client_canonical_put_number(struct canon *k)
{
    char number[JSON_NUMBER_MAX];
    size_t taken, n = json_number_canonical(k->in.rest, &taken, number);
    k->in.rest = str_skip(k->in.rest, taken);
    return n == 0 ? TM_E_INVALID : client_canonical_put(k, str_of(number, n));
}

/* Calls itself for what is nested, which json_valid has bounded. */
static int client_canonical_put_value(struct canon *k)
{
    switch (json_read_peek(&k->in)) {
    case '{': return put_all(k, '{', '}', client_canonical_put_member);
    case '[': return put_all(k, '[', ']', client_canonical_put_item);
    case '"': return client_canonical_put_string(k);
    case 't': return client_canonical_put_word(k, STR("true"));
    case 'f': return client_canonical_put_word(k, STR("false"));
    case 'n': return client_canonical_put_word(k, STR("null"));
    default: return client_canonical_put_number(k);
    }
}

int canonical_put(struct tm_client *c, struct str text, struct bytes *out)
{
    struct canon k = {.c = c, .in = {text}, .out = out};
    size_t before = out->n;
    if (text.n > CANONICAL_MAX)
        return TM_E_TOO_LARGE;
    if (!json_valid(text))
        return TM_E_INVALID;
    int err = client_canonical_put_value(&k);
    if (err != 0)
        out->n = before;
    bytes_free(c, &k.members);
    bytes_free(c, &k.scratch);
    return err == TM_E_PROTOCOL ? TM_E_INVALID : err;
}
