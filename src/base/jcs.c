// SPDX-License-Identifier: Apache-2.0
#include "base/jcs.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_number.h"
#include "base/json_view.h"

#include <stdlib.h>

/* Two passes over a text that json_check has passed. The first finds every object's members and
 * sorts them; the second writes, and at an object goes from member to member in their order. So
 * each value is looked at twice, however deep it lies.
 *
 * Objects are numbered as they begin. Whoever begins to read at some place knows the number of the
 * next object there: a member keeps it beside its value, an object keeps that of the first behind
 * its end. Both passes call themselves for what is nested, at most JSON_DEPTH_MAX deep.
 *
 * The members of objects that are open lie at the front of their room, in the order they came;
 * those of objects that are closed lie at its back, sorted. A member is in one of the two, so the
 * two never meet. */

struct canon {
    const char *end;
    struct str without;
    struct jcs_object *objects;
    struct jcs_member *members;
    char *names, *out;
    uint32_t n_objects;
    size_t open, closed; /* members before `open` are of open objects, from `closed` on of others */
};

/* From the opening quote; what stands between the quotes. */
static struct str string_inside(const char *p)
{
    const char *start = ++p;
    for (; *p != '"'; p++)
        if (*p == '\\')
            p++;
    return str_of(start, (size_t)(p - start));
}

/* A number or a word goes on to what may stand behind a value. */
static const char *behind_word(const char *p, const char *end)
{
    while (p < end && *p != ',' && *p != ']' && *p != '}' && (unsigned char)*p > ' ')
        p++;
    return p;
}

static void jcs_skip_space(const struct canon *c, const char **p)
{
    while (*p < c->end && ascii_is_space(**p))
        ++*p;
}

/* ---- how much there is ---- */

/* How much longer a number may become. One without an exponent gets no digits that it did not have,
 * but for what rounding up may add: 99999999999999999 is 100000000000000000. */
static size_t number_growth(struct str s)
{
    bool scaled = memchr(s.p, 'e', s.n) != NULL || memchr(s.p, 'E', s.n) != NULL;
    return scaled ? JSON_NUMBER_MAX : 1;
}

int jcs_measure(struct str text, struct jcs_room *room)
{
    struct jcs_room all = {1, 1, 1, 1, NULL, NULL, NULL, NULL};
    size_t at;
    if (text.n > JCS_MAX)
        return ERR_TOO_LARGE;
    if (json_check(text, &at) != 0)
        return ERR_JSON;
    for (const char *p = text.p, *end = p + text.n; p < end;) {
        if (*p == '"') {
            struct str inside = string_inside(p);
            all.n_names += memchr(inside.p, '\\', inside.n) != NULL ? inside.n : 0;
            p = inside.p + inside.n + 1;
        } else if (*p == '-' || ascii_is_digit(*p)) {
            struct str number = str_of(p, (size_t)(behind_word(p, end) - p));
            all.n_out += number_growth(number);
            p += number.n;
        } else {
            all.n_objects += *p == '{';
            all.n_members += *p++ == ':';
        }
    }
    all.n_out += text.n; /* strings and words become no longer */
    *room = all;
    return 0;
}

/* ---- the first pass ---- */

/* UTF-8 sorts as code points do, UTF-16 puts those that take two units before U+E000 to U+FFFF. The
 * first bytes that differ tell, since EE and EF only begin a character. */
static int unit_order(unsigned char c)
{
    return c == 0xee || c == 0xef ? c + 0x10 : c;
}

static int jcs_by_name(const void *one, const void *other)
{
    struct str a = ((const struct jcs_member *)one)->name;
    struct str b = ((const struct jcs_member *)other)->name;
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.p[i] == b.p[i])
        i++;
    if (i < n)
        return unit_order((unsigned char)a.p[i]) - unit_order((unsigned char)b.p[i]);
    return (a.n > b.n) - (a.n < b.n);
}

/* The members that were opened from `first` on are all that this object has. */
static int close_object(struct canon *c, struct jcs_object *o, size_t first)
{
    struct jcs_member *all = c->members + first;
    o->n = (uint32_t)(c->open - first);
    o->object = c->n_objects;
    if (o->n > 0)
        qsort(all, o->n, sizeof *all, jcs_by_name);
    for (size_t i = 1; i < o->n; i++)
        if (str_eq(all[i - 1].name, all[i].name))
            return ERR_JSON;
    c->open = first;
    c->closed -= o->n;
    o->members = (uint32_t)c->closed;
    memmove(c->members + c->closed, all, o->n * sizeof *all);
    return 0;
}

static int jcs_scan_value(struct canon *c, const char **p);

/* A member from its name's quote to behind its value. */
static int scan_member(struct canon *c, const char **p)
{
    struct str inside = string_inside(*p);
    struct jcs_member *m = &c->members[c->open++];
    m->name = inside;
    if (memchr(inside.p, '\\', inside.n) != NULL) {
        if (!view_decode_to(inside, c->names, &m->name.n))
            return ERR_JSON;
        m->name.p = c->names;
        c->names += m->name.n;
    }
    *p = inside.p + inside.n + 1;
    jcs_skip_space(c, p);
    ++*p; /* the colon */
    jcs_skip_space(c, p);
    m->value = *p;
    m->object = c->n_objects;
    return jcs_scan_value(c, p);
}

static int scan_object(struct canon *c, const char **p)
{
    struct jcs_object *o = &c->objects[c->n_objects++];
    size_t first = c->open;
    for (++*p; **p != '}';) {
        if (**p != '"')
            ++*p; /* a comma, or white space */
        else if (scan_member(c, p) != 0)
            return ERR_JSON;
    }
    o->end = ++*p;
    return close_object(c, o, first);
}

static int scan_array(struct canon *c, const char **p)
{
    ++*p;
    for (jcs_skip_space(c, p); **p != ']'; jcs_skip_space(c, p)) {
        if (**p == ',')
            ++*p;
        else if (jcs_scan_value(c, p) != 0)
            return ERR_JSON;
    }
    ++*p;
    return 0;
}

static int jcs_scan_value(struct canon *c, const char **p)
{
    if (**p == '{')
        return scan_object(c, p);
    if (**p == '[')
        return scan_array(c, p);
    if (**p == '"') {
        struct str inside = string_inside(*p);
        *p = inside.p + inside.n + 1;
    } else {
        *p = behind_word(*p, c->end);
    }
    return 0;
}

/* ---- the second pass ---- */

static void jcs_put(struct canon *c, struct str s)
{
    memcpy(c->out, s.p, s.n);
    c->out += s.n;
}

static void jcs_put_char(struct canon *c, char ch)
{
    if ((unsigned char)ch < 0x20 || ch == '"' || ch == '\\')
        c->out += json_escape(ch, c->out);
    else
        *c->out++ = ch;
}

/* Characters without escapes. */
static void put_name(struct canon *c, struct str name)
{
    *c->out++ = '"';
    for (size_t i = 0; i < name.n; i++)
        jcs_put_char(c, name.p[i]);
    *c->out++ = '"';
}

static int jcs_put_string(struct canon *c, const char **p)
{
    struct str inside = string_inside(*p);
    *p = inside.p + inside.n + 1;
    *c->out++ = '"';
    while (inside.n > 0) {
        const char *slash = memchr(inside.p, '\\', inside.n);
        size_t run = slash != NULL ? (size_t)(slash - inside.p) : inside.n;
        jcs_put(c, str_of(inside.p, run));
        inside = str_skip(inside, run);
        if (inside.n == 0)
            break;
        char ch[4] = {0};
        size_t n = view_unescape(&inside, ch);
        if (view_is_half(ch))
            return ERR_JSON;
        for (size_t i = 0; i < n; i++)
            jcs_put_char(c, ch[i]);
    }
    *c->out++ = '"';
    return 0;
}

static int jcs_put_value(struct canon *c, const char **p, uint32_t *object);

static int put_members(struct canon *c, const struct jcs_object *o, struct str without)
{
    const struct jcs_member *all = c->members + o->members;
    const char *start = c->out;
    for (uint32_t i = 0; i < o->n; i++) {
        const char *value = all[i].value;
        uint32_t object = all[i].object;
        if (without.p != NULL && str_eq(all[i].name, without))
            continue;
        if (c->out > start)
            *c->out++ = ',';
        put_name(c, all[i].name);
        *c->out++ = ':';
        if (jcs_put_value(c, &value, &object) != 0)
            return ERR_JSON;
    }
    return 0;
}

static int put_object(struct canon *c, const char **p, uint32_t *object)
{
    const struct jcs_object *o = &c->objects[*object];
    *c->out++ = '{';
    if (put_members(c, o, *object == 0 ? c->without : STR_NONE) != 0)
        return ERR_JSON;
    *c->out++ = '}';
    *p = o->end;
    *object = o->object;
    return 0;
}

static int put_array(struct canon *c, const char **p, uint32_t *object)
{
    *c->out++ = *(*p)++;
    for (jcs_skip_space(c, p); **p != ']'; jcs_skip_space(c, p)) {
        if (**p == ',')
            *c->out++ = *(*p)++;
        else if (jcs_put_value(c, p, object) != 0)
            return ERR_JSON;
    }
    *c->out++ = *(*p)++;
    return 0;
}

static int jcs_put_number(struct canon *c, const char **p)
{
    char number[JSON_NUMBER_MAX];
    size_t taken, n = json_number_canonical(str_of(*p, (size_t)(c->end - *p)), &taken, number);
    *p += taken;
    jcs_put(c, str_of(number, n));
    return n > 0 ? 0 : ERR_JSON;
}

static int jcs_put_value(struct canon *c, const char **p, uint32_t *object)
{
    switch (**p) {
    case '{': return put_object(c, p, object);
    case '[': return put_array(c, p, object);
    case '"': return jcs_put_string(c, p);
    case 't':
    case 'f':
    case 'n': {
        const char *word = *p;
        *p = behind_word(word, c->end);
        jcs_put(c, str_of(word, (size_t)(*p - word)));
        return 0;
    }
    default: return jcs_put_number(c, p);
    }
}

int jcs_write(struct str text, struct str without, const struct jcs_room *room, size_t *n)
{
    struct canon c = {
        .end = text.p + text.n,
        .objects = room->objects,
        .members = room->members,
        .names = room->names,
        .out = room->out,
        .closed = room->n_members,
    };
    const char *start = text.p;
    uint32_t object = 0;
    jcs_skip_space(&c, &start);
    c.without = *start == '{' ? without : STR_NONE;
    const char *p = start;
    if (jcs_scan_value(&c, &p) != 0 || jcs_put_value(&c, &start, &object) != 0)
        return ERR_JSON;
    *n = (size_t)(c.out - room->out);
    return 0;
}
