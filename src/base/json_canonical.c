// SPDX-License-Identifier: Apache-2.0
#include "base/json_canonical.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_number.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>

/* Two passes over a text that json_check has passed. The first finds every object's members and
 * sorts them; the second writes, and at an object goes from member to member in their order. So
 * each value is looked at twice, however deep it lies.
 *
 * Objects are numbered as they begin. Whoever begins to read at some place knows the number of the
 * next object there: a member keeps it beside its value, an object keeps that of the first behind
 * its end. Both passes call themselves for what is nested, at most JSON_DEPTH_MAX deep. */

struct member {
    struct str name;   /* as it is, without escapes: in the text, or in the arena */
    const char *value; /* where it begins, behind white space */
    uint32_t object;   /* the next that begins there */
};

struct object {
    const char *end;     /* behind its bracket */
    uint32_t members, n; /* the first of n in a row, sorted */
    uint32_t object;     /* the next behind it */
};

struct canon {
    const char *end;
    struct str without;
    struct buf *out;
    struct buf members, open, objects; /* of struct member, those of open objects, struct object */
    struct buf scratch;                /* a string that had escapes */
    struct arena names;
};

static void json_canonical_skip_space(const struct canon *c, const char **p)
{
    while (*p < c->end && (**p == ' ' || **p == '\t' || **p == '\n' || **p == '\r'))
        ++*p;
}

/* ---- strings ---- */

/* From the opening quote; what stands between the quotes. */
static struct str string_inside(const char *p)
{
    const char *start = ++p;
    for (; *p != '"'; p++)
        if (*p == '\\')
            p++;
    return str_of(start, (size_t)(p - start));
}

static unsigned json_canonical_hex_value(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

static unsigned unit_at(const char *p)
{
    return json_canonical_hex_value(p[0]) << 12 | json_canonical_hex_value(p[1]) << 8 |
           json_canonical_hex_value(p[2]) << 4 | json_canonical_hex_value(p[3]);
}

static void put_utf8(struct buf *out, unsigned c)
{
    if (c < 0x80) {
        buf_putc(out, (char)c);
        return;
    }
    if (c < 0x800) {
        buf_putc(out, (char)(0xc0 | c >> 6));
    } else if (c < 0x10000) {
        buf_putc(out, (char)(0xe0 | c >> 12));
        buf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
    } else {
        buf_putc(out, (char)(0xf0 | c >> 18));
        buf_putc(out, (char)(0x80 | (c >> 12 & 0x3f)));
        buf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
    }
    buf_putc(out, (char)(0x80 | (c & 0x3f)));
}

/* From behind `\u` to behind the character: one escape, or the two of a pair. NULL: half a pair. */
static const char *decode_unit(struct buf *out, const char *p, const char *end)
{
    unsigned c = unit_at(p);
    p += 4;
    if (c >= 0xd800 && c < 0xe000) {
        if (c >= 0xdc00 || end - p < 6 || p[0] != '\\' || p[1] != 'u')
            return NULL;
        unsigned low = unit_at(p + 2);
        if (low < 0xdc00 || low > 0xdfff)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    put_utf8(out, c);
    return p;
}

static char unescaped(char c)
{
    switch (c) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return c;
    }
}

/* The characters between a string's quotes. Without escapes they are what they are; otherwise they
 * are put into scratch, and stay until the next string. */
static int json_canonical_decode(struct canon *c, struct str inside, struct str *out)
{
    const char *p = inside.p, *end = p + inside.n;
    *out = inside;
    if (memchr(p, '\\', inside.n) == NULL)
        return 0;
    c->scratch.n = 0;
    buf_reserve(&c->scratch, inside.n);
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        buf_put(&c->scratch, str_of(p, (size_t)((slash != NULL ? slash : end) - p)));
        if (slash == NULL)
            break;
        p = slash + 2;
        if (slash[1] != 'u')
            buf_putc(&c->scratch, unescaped(slash[1]));
        else if ((p = decode_unit(&c->scratch, p, end)) == NULL)
            return ERR_JSON;
    }
    *out = buf_str(&c->scratch);
    return 0;
}

/* ---- the first pass ---- */

/* UTF-8 sorts as code points do, UTF-16 puts those that take two units before U+E000 to U+FFFF. The
 * first bytes that differ tell, since EE and EF only begin a character. */
static int unit_order(unsigned char c)
{
    return c == 0xee || c == 0xef ? c + 0x10 : c;
}

static int json_canonical_by_name(const void *one, const void *other)
{
    struct str a = ((const struct member *)one)->name, b = ((const struct member *)other)->name;
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.p[i] == b.p[i])
        i++;
    if (i < n)
        return unit_order((unsigned char)a.p[i]) - unit_order((unsigned char)b.p[i]);
    return (a.n > b.n) - (a.n < b.n);
}

static struct member *members_at(const struct buf *b, size_t i)
{
    return (struct member *)b->p + i;
}

static struct object *object_at(const struct canon *c, size_t i)
{
    return (struct object *)c->objects.p + i;
}

static uint32_t objects_now(const struct canon *c)
{
    return (uint32_t)(c->objects.n / sizeof(struct object));
}

/* The members that were opened from `first` on are all that this object has. */
static int close_object(struct canon *c, uint32_t number, size_t first)
{
    struct object *o = object_at(c, number);
    o->members = (uint32_t)(c->members.n / sizeof(struct member));
    o->n = (uint32_t)(c->open.n / sizeof(struct member) - first);
    o->object = objects_now(c);
    if (o->n == 0)
        return 0;
    struct member *all = members_at(&c->open, first);
    qsort(all, o->n, sizeof *all, json_canonical_by_name);
    for (size_t i = 1; i < o->n; i++)
        if (str_eq(all[i - 1].name, all[i].name))
            return ERR_JSON;
    buf_put(&c->members, str_of((const char *)all, o->n * sizeof *all));
    c->open.n = first * sizeof *all;
    return 0;
}

static int json_canonical_scan_value(struct canon *c, const char **p);

/* A member from its name's quote to behind its value. */
static int scan_member(struct canon *c, const char **p)
{
    struct member m;
    struct str inside = string_inside(*p);
    if (json_canonical_decode(c, inside, &m.name) != 0)
        return ERR_JSON;
    if (m.name.n > 0 && m.name.p == c->scratch.p)
        m.name = arena_dup(&c->names, m.name);
    *p = inside.p + inside.n + 1;
    json_canonical_skip_space(c, p);
    ++*p; /* the colon */
    json_canonical_skip_space(c, p);
    m.value = *p;
    m.object = objects_now(c);
    buf_put(&c->open, str_of((const char *)&m, sizeof m));
    return json_canonical_scan_value(c, p);
}

static int scan_object(struct canon *c, const char **p)
{
    uint32_t number = objects_now(c);
    size_t first = c->open.n / sizeof(struct member);
    struct object o = {0};
    buf_put(&c->objects, str_of((const char *)&o, sizeof o));
    for (++*p; **p != '}';) {
        if (**p == '"') {
            if (scan_member(c, p) != 0)
                return ERR_JSON;
        } else {
            ++*p; /* a comma, or white space */
        }
    }
    object_at(c, number)->end = ++*p;
    return close_object(c, number, first);
}

static int scan_array(struct canon *c, const char **p)
{
    ++*p;
    for (json_canonical_skip_space(c, p); **p != ']'; json_canonical_skip_space(c, p)) {
        if (**p == ',')
            ++*p;
        else if (json_canonical_scan_value(c, p) != 0)
            return ERR_JSON;
    }
    ++*p;
    return 0;
}

static int json_canonical_scan_value(struct canon *c, const char **p)
{
    switch (**p) {
    case '{': return scan_object(c, p);
    case '[': return scan_array(c, p);
    case '"': {
        struct str inside = string_inside(*p);
        *p = inside.p + inside.n + 1;
        return 0;
    }
    default:
        /* A number or a word goes on to what may stand behind a value. */
        while (*p < c->end && **p != ',' && **p != ']' && **p != '}' && (unsigned char)**p > ' ')
            ++*p;
        return 0;
    }
}

/* ---- the second pass ---- */

static int json_canonical_put_value(struct canon *c, const char **p, uint32_t *object);

static int put_members(struct canon *c, const struct object *o, struct str without)
{
    size_t start = c->out->n;
    for (uint32_t i = 0; i < o->n; i++) {
        const struct member *m = members_at(&c->members, o->members + i);
        const char *value = m->value;
        uint32_t object = m->object;
        if (without.p != NULL && str_eq(m->name, without))
            continue;
        if (c->out->n > start)
            buf_putc(c->out, ',');
        json_put_string(c->out, m->name);
        buf_putc(c->out, ':');
        if (json_canonical_put_value(c, &value, &object) != 0)
            return ERR_JSON;
    }
    return 0;
}

static int put_object(struct canon *c, const char **p, uint32_t *object)
{
    const struct object *o = object_at(c, *object);
    buf_putc(c->out, '{');
    if (put_members(c, o, *object == 0 ? c->without : STR_NONE) != 0)
        return ERR_JSON;
    buf_putc(c->out, '}');
    *p = o->end;
    *object = o->object;
    return 0;
}

static int put_array(struct canon *c, const char **p, uint32_t *object)
{
    buf_putc(c->out, '[');
    ++*p;
    for (json_canonical_skip_space(c, p); **p != ']'; json_canonical_skip_space(c, p)) {
        if (**p != ',') {
            if (json_canonical_put_value(c, p, object) != 0)
                return ERR_JSON;
            continue;
        }
        buf_putc(c->out, ',');
        ++*p;
    }
    buf_putc(c->out, ']');
    ++*p;
    return 0;
}

static int json_canonical_put_string(struct canon *c, const char **p)
{
    struct str inside = string_inside(*p), text;
    if (json_canonical_decode(c, inside, &text) != 0)
        return ERR_JSON;
    json_put_string(c->out, text);
    *p = inside.p + inside.n + 1;
    return 0;
}

static int json_canonical_put_number(struct canon *c, const char **p)
{
    struct str rest = str_of(*p, (size_t)(c->end - *p));
    size_t taken;
    char number[JSON_NUMBER_MAX];
    size_t n = json_number_canonical(rest, &taken, number);
    *p += taken;
    buf_put(c->out, str_of(number, n));
    return n > 0 ? 0 : ERR_JSON;
}

static int json_canonical_put_word(struct canon *c, const char **p, struct str word)
{
    buf_put(c->out, word);
    *p += word.n;
    return 0;
}

static int json_canonical_put_value(struct canon *c, const char **p, uint32_t *object)
{
    switch (**p) {
    case '{': return put_object(c, p, object);
    case '[': return put_array(c, p, object);
    case '"': return json_canonical_put_string(c, p);
    case 't': return json_canonical_put_word(c, p, STR("true"));
    case 'f': return json_canonical_put_word(c, p, STR("false"));
    case 'n': return json_canonical_put_word(c, p, STR("null"));
    default: return json_canonical_put_number(c, p);
    }
}

static int json_canonical_run(struct canon *c, const char *start)
{
    uint32_t object = 0;
    json_canonical_skip_space(c, &start);
    const char *p = start;
    c->without = *start == '{' ? c->without : STR_NONE;
    if (json_canonical_scan_value(c, &p) != 0)
        return ERR_JSON;
    p = start;
    return json_canonical_put_value(c, &p, &object);
}

int json_canonical(struct str text, struct str without, struct buf *out)
{
    size_t at, before = out->n;
    if (text.n > JSON_CANONICAL_MAX)
        return ERR_TOO_LARGE;
    if (json_check(text, &at) != 0)
        return ERR_JSON;
    struct canon c = {.end = text.p + text.n, .without = without, .out = out};
    int err = json_canonical_run(&c, text.p);
    if (err != 0)
        out->n = before;
    buf_deinit(&c.members);
    buf_deinit(&c.open);
    buf_deinit(&c.objects);
    buf_deinit(&c.scratch);
    arena_deinit(&c.names);
    return err;
}
