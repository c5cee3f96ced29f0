// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"
#include "base/buf.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/http_url.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define ENV_PREFIX  "TIDEMARK_"
#define NAME_MAX_N  64                               /* bytes of a setting's name */
#define LABEL_MAX   (NAME_MAX_N + sizeof ENV_PREFIX) /* of a name with what goes before it */
#define REASON_MAX  256
#define SHOWN_MAX   60 /* bytes of a refused value that an error repeats */
#define HELP_WIDTH  80
#define HELP_INDENT 6

/* ---- names ---- */

static const struct option_row *options_find(const struct options *o, struct str name)
{
    for (size_t i = 0; i < o->n; i++)
        if (str_eq(str_of_cstr(o->rows[i].name), name))
            return &o->rows[i];
    return NULL;
}

bool options_has(const struct options *o, struct str name)
{
    return options_find(o, name) != NULL;
}

static const char *nearest(const struct options *o, struct str name)
{
    struct suggest s = {.word = name};
    for (size_t i = 0; i < o->n; i++)
        suggest_offer(&s, o->rows[i].name);
    return s.best;
}

static void env_name(const char *name, char out[LABEL_MAX])
{
    memcpy(out, ENV_PREFIX, sizeof ENV_PREFIX);
    size_t at = sizeof ENV_PREFIX - 1;
    for (size_t i = 0; name[i] != '\0' && i < NAME_MAX_N; i++) {
        char c = name[i];
        out[at++] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    }
    out[at] = '\0';
}

/* ---- what is expected, in words ---- */

struct unit {
    const char *suffix;
    uint64_t factor;
};
static const struct unit sizes[] = {{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"", 1}};
static const struct unit durations[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit plain[] = {{"", 1}};

/* In the largest unit that says it exactly. */
static void put_quantity(struct buf *out, enum option_type type, uint64_t v)
{
    const struct unit *u = type == OPTION_SIZE       ? sizes
                           : type == OPTION_DURATION ? durations
                                                     : plain;
    while (u->factor > 1 && (v < u->factor || v % u->factor != 0))
        u++;
    buf_put_u64(out, v / u->factor);
    buf_put(out, str_of_cstr(u->suffix));
}

/* "a|b|c" as "a, b or c" */
static void put_alternatives(struct buf *out, const char *value)
{
    struct str rest = str_of_cstr(value);
    while (rest.p) {
        bool first = rest.p == value;
        struct str word = str_cut(&rest, '|');
        buf_put(out, first ? STR("") : rest.p ? STR(", ") : STR(" or "));
        buf_put(out, word);
    }
}

static void put_expected_quantity(struct buf *out, const struct option_row *r)
{
    static const char *const nouns[] = {
        [OPTION_NUMBER] = "a number", [OPTION_SIZE] = "a size", [OPTION_DURATION] = "a duration"};
    buf_printf(out, "%s%s", r->zero_is_off ? "0 or " : "", nouns[r->type]);
    if (r->min > 0) {
        buf_put(out, r->max > 0 ? STR(" between ") : STR(" of at least "));
        put_quantity(out, r->type, r->min);
    }
    if (r->max > 0) {
        buf_put(out, r->min > 0 ? STR(" and ") : STR(" up to "));
        put_quantity(out, r->type, r->max);
    }
    /* Bounds show how it is written. */
    if (r->min == 0 && r->max == 0 && r->type != OPTION_NUMBER)
        buf_put(out,
                r->type == OPTION_SIZE ? STR(" such as 64k or 16m") : STR(" such as 250ms or 10s"));
}

void option_expected(const struct option_row *r, struct buf *out)
{
    if (r->type == OPTION_BOOL)
        buf_put(out, STR("yes or no"));
    else if (r->type == OPTION_TEXT || r->type == OPTION_LIST || r->type == OPTION_CHOICE)
        put_alternatives(out, r->value ? r->value : "a value");
    else
        put_expected_quantity(out, r);
}

/* ---- taking one value ---- */

static int parse_bool(struct str value, bool *out)
{
    static const char *const words[][2] = {
        {"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int which = 0; which < 2; which++)
            if (str_eq_nocase(value, str_of_cstr(words[i][which]))) {
                *out = which == 1;
                return 0;
            }
    return ERR_SYNTAX;
}

static int parse_choice(const char *words, struct str value, int *out)
{
    struct str rest = str_of_cstr(words);
    for (int i = 0; rest.p; i++)
        if (str_eq_nocase(str_cut(&rest, '|'), value)) {
            *out = i;
            return 0;
        }
    return ERR_SYNTAX;
}

static bool in_bounds(const struct option_row *r, uint64_t v)
{
    bool off = v == 0 && r->zero_is_off;
    return off || (v >= r->min && (r->max == 0 || v <= r->max));
}

static int parse_quantity(const struct option_row *r, struct str value, uint64_t *out)
{
    uint64_t v = 0;
    int err = r->type == OPTION_SIZE       ? num_parse_size(value, &v)
              : r->type == OPTION_DURATION ? num_parse_duration_ms(value, &v)
                                           : num_parse(value, UINT64_MAX, &v);
    /* A bare 0 means the same in every unit. */
    if ((err != 0 && num_parse(value, r->bare_ms ? UINT32_MAX : 0, &v) != 0) || !in_bounds(r, v))
        return ERR_SYNTAX;
    *out = v;
    return 0;
}

int option_check_url(struct str value, char *reason, size_t size)
{
    struct url url;
    return url_parse(value, &url);
}

static int check_text(const struct option_row *r, struct str value, char *reason)
{
    if (value.n == 0)
        return ERR_SYNTAX;
    return r->check ? r->check(value, reason, REASON_MAX) : 0;
}

static char *options_copy(struct str s)
{
    char *z = mem_alloc(s.n + 1);
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    return z;
}

static int options_set_text(const struct option_row *r, struct str value, char **field,
                            char *reason)
{
    bool unset = value.n == 0 && r->fallback == NULL;
    int err = unset ? 0 : check_text(r, value, reason);
    if (err != 0)
        return err;
    free(*field);
    *field = unset ? NULL : options_copy(value);
    return 0;
}

static void list_clear(struct option_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct option_list){0};
}

static int add_item(const struct option_row *r, enum option_source from, struct str value,
                    struct option_list *l, char *reason)
{
    int err = check_text(r, value, reason);
    if (err != 0)
        return err;
    if (l->source != from)
        list_clear(l);
    if (l->n == OPTION_ITEMS_MAX) {
        snprintf(reason, REASON_MAX, "more than %d are given", OPTION_ITEMS_MAX);
        return ERR_SYNTAX;
    }
    l->source = from;
    l->items = mem_realloc(l->items, (l->n + 1) * sizeof *l->items);
    l->items[l->n++] = options_copy(value);
    return 0;
}

static int assign(const struct option_row *r, void *target, enum option_source from,
                  struct str value, char *reason)
{
    void *field = (char *)target + r->field;
    switch (r->type) {
    case OPTION_BOOL: return parse_bool(value, field);
    case OPTION_TEXT: return options_set_text(r, value, field, reason);
    case OPTION_LIST: return add_item(r, from, value, field, reason);
    case OPTION_CHOICE: return parse_choice(r->value, value, field);
    default: return parse_quantity(r, value, field);
    }
}

/* name: the setting as the user wrote it, as a key, a variable or a flag. */
static void options_explain(const struct option_row *r, const char *name, struct str value,
                            const char *reason, char *why, size_t size)
{
    struct buf text = {0};
    int shown = value.n > SHOWN_MAX ? SHOWN_MAX : (int)value.n;
    buf_put(&text, str_of_cstr(name));
    if (reason[0] != '\0') {
        if (!r->secret)
            buf_printf(&text, " '%.*s'", shown, value.p);
        buf_printf(&text, ": %s", reason);
    } else {
        buf_put(&text, STR(": expected "));
        option_expected(r, &text);
        if (!r->secret)
            buf_printf(&text, ", got '%.*s%s'", shown, value.n > 0 ? value.p : "",
                       value.n > SHOWN_MAX ? "..." : "");
    }
    snprintf(why, size, "%.*s", (int)text.n, text.p);
    buf_deinit(&text);
}

static void name_at(const struct option_row *r, enum option_source from, char out[LABEL_MAX])
{
    if (from == OPTION_FROM_ENV)
        env_name(r->name, out);
    else
        snprintf(out, LABEL_MAX, "%s%s", from == OPTION_FROM_FLAG ? "--" : "", r->name);
}

static int take_one(const struct option_row *r, void *target, enum option_source from,
                    struct str value, char *why, size_t size)
{
    char reason[REASON_MAX] = "", name[LABEL_MAX];
    if (assign(r, target, from, value, reason) == 0)
        return 0;
    name_at(r, from, name);
    options_explain(r, name, value, reason, why, size);
    return ERR_SYNTAX;
}

static int options_take(const struct option_row *r, void *target, enum option_source from,
                        struct str value, char *why, size_t size)
{
    bool by_commas = r->commas || from == OPTION_FROM_DEFAULT || from == OPTION_FROM_ENV;
    if (r->type != OPTION_LIST || !by_commas)
        return take_one(r, target, from, value, why, size);
    int err = 0;
    while (err == 0 && value.p)
        err = take_one(r, target, from, str_trim(str_cut(&value, ',')), why, size);
    return err;
}

/* ---- defaults, environment, file ---- */

static void options_clear(const struct option_row *r, void *target)
{
    void *field = (char *)target + r->field;
    switch (r->type) {
    case OPTION_BOOL: *(bool *)field = false; break;
    case OPTION_TEXT: *(char **)field = NULL; break;
    case OPTION_LIST: *(struct option_list *)field = (struct option_list){0}; break;
    case OPTION_CHOICE: *(int *)field = -1; break;
    default: *(uint64_t *)field = 0;
    }
}

/* The number in the row's fallback_env, in its own unit; 0: there is none. */
static double number_in_env(const struct option_row *r)
{
    const char *text = r->fallback_env ? getenv(r->fallback_env) : NULL;
    if (text == NULL)
        return 0;
    char *end;
    double v = strtod(text, &end);
    bool whole = end != text && end[strspn(end, " \t\r\n")] == '\0';
    return whole && isfinite(v) && v > 0 ? v : 0;
}

static int take_fallback(const struct option_row *r, void *target, char *why, size_t size)
{
    double v = number_in_env(r) * (double)r->fallback_unit;
    if (v < 1)
        return r->fallback == NULL ? 0
                                   : options_take(r, target, OPTION_FROM_DEFAULT,
                                                  str_of_cstr(r->fallback), why, size);
    if (v > (double)NUM_SAFE_MAX || !in_bounds(r, (uint64_t)v)) {
        options_explain(r, r->fallback_env, str_of_cstr(getenv(r->fallback_env)), "", why, size);
        return ERR_SYNTAX;
    }
    *(uint64_t *)(void *)((char *)target + r->field) = (uint64_t)v;
    return 0;
}

int options_defaults(const struct options *o, void *target, char *why, size_t size)
{
    for (size_t i = 0; i < o->n; i++)
        options_clear(&o->rows[i], target);
    int err = 0;
    for (size_t i = 0; err == 0 && i < o->n; i++)
        err = take_fallback(&o->rows[i], target, why, size);
    return err;
}

bool options_is_default(const struct options *o, const void *target, struct str name)
{
    const struct option_row *r = options_find(o, name);
    const void *field = (const char *)target + r->field;
    if (r->type == OPTION_TEXT) {
        const char *text = *(char *const *)field;
        return text == NULL || (r->fallback != NULL && strcmp(text, r->fallback) == 0);
    }
    uint64_t fallback = 0;
    parse_quantity(r, str_of_cstr(r->fallback), &fallback);
    return *(const uint64_t *)field == fallback;
}

static int take_secret(const struct option_row *r, void *target, const char *variable, char *why,
                       size_t size)
{
    char *value;
    int err = env_secret_get(variable, &value, why, size);
    if (err == 0 && value != NULL)
        err = options_take(r, target, OPTION_FROM_ENV, str_of_cstr(value), why, size);
    env_secret_drop(&value);
    return err;
}

static bool text_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool list_same(const struct option_list *a, const struct option_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

bool option_same(const struct option_row *r, const void *a, const void *b)
{
    const void *x = (const char *)a + r->field, *y = (const char *)b + r->field;
    switch (r->type) {
    case OPTION_BOOL: return *(const bool *)x == *(const bool *)y;
    case OPTION_TEXT: return text_same(*(char *const *)x, *(char *const *)y);
    case OPTION_LIST: return list_same(x, y);
    case OPTION_CHOICE: return *(const int *)x == *(const int *)y;
    default: return *(const uint64_t *)x == *(const uint64_t *)y;
    }
}

void option_swap(const struct option_row *r, void *a, void *b)
{
    static const size_t sizes_of[] = {[OPTION_BOOL] = sizeof(bool),
                                      [OPTION_TEXT] = sizeof(char *),
                                      [OPTION_LIST] = sizeof(struct option_list),
                                      [OPTION_NUMBER] = sizeof(uint64_t),
                                      [OPTION_SIZE] = sizeof(uint64_t),
                                      [OPTION_DURATION] = sizeof(uint64_t),
                                      [OPTION_CHOICE] = sizeof(int)};
    char *x = (char *)a + r->field, *y = (char *)b + r->field, kept[sizeof(struct option_list)];
    size_t n = sizes_of[r->type];
    memcpy(kept, x, n);
    memcpy(x, y, n);
    memcpy(y, kept, n);
}

int options_env(const struct options *o, void *target, char *why, size_t size)
{
    for (size_t i = 0; i < o->n; i++) {
        char name[LABEL_MAX];
        env_name(o->rows[i].name, name);
        if (o->rows[i].secret) {
            int err = take_secret(&o->rows[i], target, name, why, size);
            if (err != 0)
                return err;
            continue;
        }
        const char *value = getenv(name);
        if (value == NULL || value[0] == '\0')
            continue;
        int err = options_take(&o->rows[i], target, OPTION_FROM_ENV, str_of_cstr(value), why, size);
        if (err != 0)
            return err;
    }
    return 0;
}

/* TIDEMARK_LONG_POLL as "long-poll"; false: not one of ours, or too long to be one. */
static bool setting_of_env(struct str variable, char out[NAME_MAX_N], struct str *name)
{
    if (!str_starts(variable, STR(ENV_PREFIX)))
        return false;
    struct str tail = str_skip(variable, sizeof ENV_PREFIX - 1);
    if (tail.n > NAME_MAX_N)
        return false;
    for (size_t i = 0; i < tail.n; i++) {
        char c = tail.p[i];
        out[i] = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    *name = str_of(out, tail.n);
    return true;
}

struct str options_env_typo(const struct options *o, size_t *at)
{
    while (environ[*at]) {
        struct str rest = str_of_cstr(environ[(*at)++]), name;
        struct str variable = str_cut(&rest, '=');
        char text[NAME_MAX_N];
        if (setting_of_env(variable, text, &name) && !options_find(o, name) && nearest(o, name))
            return variable;
    }
    return STR_NONE;
}

static void unknown(const struct options *o, const char *what, const char *dashes, struct str name,
                    char *why, size_t size)
{
    int shown = name.n > SHOWN_MAX ? SHOWN_MAX : (int)name.n;
    const char *guess = nearest(o, name);
    if (guess)
        snprintf(why, size, "unknown %s %s%.*s; did you mean %s%s?", what, dashes, shown, name.p,
                 dashes, guess);
    else
        snprintf(why, size, "unknown %s %s%.*s", what, dashes, shown, name.p);
}

int options_set(const struct options *o, void *target, struct str key, struct str value, char *why,
                size_t size)
{
    const struct option_row *r = options_find(o, key);
    if (r)
        return options_take(r, target, OPTION_FROM_FILE, value, why, size);
    unknown(o, "setting", "", key, why, size);
    return ERR_NOT_FOUND;
}

const struct option_row *options_missing(const struct options *o, const void *target)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct option_row *r = &o->rows[i];
        const void *field = (const char *)target + r->field;
        bool given = r->type == OPTION_TEXT
                         ? *(char *const *)field != NULL
                         : r->type != OPTION_LIST || ((const struct option_list *)field)->n > 0;
        if (r->required && !given)
            return r;
    }
    return NULL;
}

/* ---- flags ---- */

/* Finds the row of a flag's name; *negated: it was written as --no-name. */
static const struct option_row *find_flag(const struct options *o, struct str name, bool *negated)
{
    *negated = false;
    const struct option_row *r = options_find(o, name);
    if (r || !str_starts(name, STR("no-")))
        return r;
    r = options_find(o, str_skip(name, 3));
    *negated = true;
    return r && r->type == OPTION_BOOL ? r : NULL;
}

static bool is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

/* The flag at argv[0], argc > 0. *used: how many arguments it took. */
static int take_flag(const struct options *o, void *target, int argc, char **argv, int *used,
                     char *why, size_t size)
{
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)
        return ERR_CANCELLED;
    *used = 1;
    bool dashed = strncmp(argv[0], "--", 2) == 0, negated = false;
    struct str value = str_of_cstr(argv[0] + (dashed ? 2 : 1));
    struct str name = str_cut(&value, '=');
    const struct option_row *r = dashed ? find_flag(o, name, &negated) : NULL;
    if (r == NULL) {
        unknown(o, "flag", dashed ? "--" : "-", name, why, size);
        return ERR_SYNTAX;
    }
    if (r->type == OPTION_BOOL && value.p && negated) {
        snprintf(why, size, "--no-%s takes no value", r->name);
        return ERR_SYNTAX;
    }
    if (r->type == OPTION_BOOL && !value.p)
        value = negated ? STR("no") : STR("yes");
    if (!value.p) {
        /* A flag where a value should be is more often a value forgotten than one meant. */
        if (argc < 2 || strncmp(argv[1], "--", 2) == 0) {
            snprintf(why, size, "--%s needs a value: --%s %s", r->name, r->name,
                     r->value ? r->value : "VALUE");
            return ERR_SYNTAX;
        }
        value = str_of_cstr(argv[1]);
        *used = 2;
    }
    return options_take(r, target, OPTION_FROM_FLAG, value, why, size);
}

void options_hide_url(char *url)
{
    char *end = strrchr(url, '@'), *from = strstr(url, "//");
    if (end == NULL)
        return;
    from = from != NULL && from < end ? from + 2 : url;
    memset(from, '*', (size_t)(end - from));
}

void options_hide_args(const struct options *o, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        struct str value = str_of_cstr(argv[i]);
        struct str flag = str_cut(&value, '=');
        const struct option_row *r =
            str_starts(flag, STR("--")) ? options_find(o, str_skip(flag, 2)) : NULL;
        if (r == NULL || !r->secret)
            continue;
        if (value.p != NULL)
            options_hide_url(argv[i] + flag.n + 1);
        else if (i + 1 < argc)
            options_hide_url(argv[i + 1]);
    }
}

int options_args(const struct options *o, void *target, int argc, char **argv, int *positional,
                 char *why, size_t size)
{
    int err = 0, others = 0, flags = 0;
    bool ended = false;
    /* Flags collect in the front half, the others in the back half. */
    char **sorted = mem_alloc(((size_t)argc * 2 + 1) * sizeof *sorted);
    for (int i = 0; err == 0 && i < argc;) {
        int used = 1;
        if (ended || !is_flag(argv[i])) {
            sorted[argc + others++] = argv[i++];
            continue;
        }
        if (strcmp(argv[i], "--") == 0)
            ended = true;
        else
            err = take_flag(o, target, argc - i, argv + i, &used, why, size);
        for (; used > 0; used--)
            sorted[flags++] = argv[i++];
    }
    if (err == 0) {
        memcpy(argv, sorted + argc, (size_t)others * sizeof *argv);
        memcpy(argv + others, sorted, (size_t)flags * sizeof *argv);
        *positional = others;
    }
    free(sorted);
    return err;
}

/* ---- help ---- */

static void options_put_word(struct str word, size_t *column, FILE *to)
{
    if (*column > 0 && *column + 1 + word.n > HELP_WIDTH) {
        fputc('\n', to);
        *column = 0;
    }
    int space = *column == 0 ? HELP_INDENT : 1;
    fprintf(to, "%*s%.*s", space, "", (int)word.n, word.p);
    *column += (size_t)space + word.n;
}

static void put_words(const char *text, size_t *column, FILE *to)
{
    for (struct str rest = str_of_cstr(text); rest.p;)
        options_put_word(str_cut(&rest, ' '), column, to);
}

void options_help_text(const char *text, FILE *to)
{
    size_t column = 0;
    put_words(text, &column, to);
    fputc('\n', to);
}

static void options_put_row(const struct option_row *r, FILE *to)
{
    if (r->type == OPTION_BOOL)
        fprintf(to, "  --[no-]%s\n", r->name);
    else
        fprintf(to, "  --%s %s\n", r->name, r->value ? r->value : "VALUE");
    size_t column = 0;
    put_words(r->help, &column, to);
    const char *fallback = r->fallback == NULL && r->type == OPTION_BOOL ? "no" : r->fallback;
    if (fallback) {
        struct buf text = {0};
        buf_printf(&text, "(default: %s)", fallback);
        options_put_word(buf_str(&text), &column, to);
        buf_deinit(&text);
    }
    fputc('\n', to);
}

void options_help(const struct options *o, FILE *to)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->rows[i].heading)
            fprintf(to, "%s%s:\n", i > 0 ? "\n" : "", o->rows[i].heading);
        options_put_row(&o->rows[i], to);
    }
}

void options_free(const struct options *o, void *target)
{
    for (size_t i = 0; i < o->n; i++) {
        void *field = (char *)target + o->rows[i].field;
        if (o->rows[i].type == OPTION_TEXT) {
            free(*(char **)field);
            *(char **)field = NULL;
        } else if (o->rows[i].type == OPTION_LIST) {
            list_clear(field);
        }
    }
}
