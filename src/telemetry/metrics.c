// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>

/* One line of numbers (several for a histogram). */
struct series {
    struct buf labels; /* `a="x",b="y"`, escaped; that is also how it is found */
    union {
        struct counter counter;
        struct gauge gauge;
        struct histogram histogram;
    } own;
};

struct metric_family {
    struct link link; /* among those of the registry */
    enum metric_type type;
    const struct metric_info *info;
    size_t n_labels;
    const void *embedded; /* without labels: its owner's struct */
    struct series **series;
    size_t n_series;
    struct series *other; /* NULL: not needed yet */
    size_t n_name;
    char name[METRIC_NAME_MAX];
};

static const char *const type_texts[] = {
    [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};

static const struct str histogram_ends[] = {STR_INIT("_bucket"), STR_INIT("_sum"),
                                            STR_INIT("_count")};
#define N_HISTOGRAM_ENDS (sizeof histogram_ends / sizeof *histogram_ends)

static struct str metrics_name_of(const struct metric_family *f)
{
    return str_of(f->name, f->n_name);
}

/* ---- names ---- */

static bool is_name(struct str s, bool colons)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool letter = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || (colons && c == ':');
        if (!letter && !(i > 0 && c >= '0' && c <= '9'))
            return false;
    }
    return s.n > 0;
}

static bool metrics_append(struct metric_family *f, struct str s)
{
    if (s.n > sizeof f->name - f->n_name)
        return false;
    for (size_t i = 0; i < s.n; i++)
        f->name[f->n_name++] = s.p[i] == '.' ? '_' : s.p[i];
    return true;
}

/* A dot at the prefix's end is the separator already. */
static int make_name(struct metric_family *f, struct str prefix)
{
    struct str name = str_of_cstr(f->info->name);
    bool separate = prefix.n > 0 && prefix.p[prefix.n - 1] != '.';
    bool total = f->type == METRIC_COUNTER && !str_ends(name, STR("_total"));
    if (!metrics_append(f, prefix) || (separate && !metrics_append(f, STR("_"))) ||
        !metrics_append(f, name) || (total && !metrics_append(f, STR("_total"))))
        return ERR_SYNTAX;
    return is_name(metrics_name_of(f), true) ? 0 : ERR_SYNTAX;
}

/* Do the lines of the histogram include one of this name? */
static bool histogram_takes(const struct metric_family *h, struct str name)
{
    if (h->type != METRIC_HISTOGRAM || !str_starts(name, metrics_name_of(h)))
        return false;
    for (size_t i = 0; i < N_HISTOGRAM_ENDS; i++)
        if (str_eq(str_skip(name, h->n_name), histogram_ends[i]))
            return true;
    return false;
}

static bool is_taken(const struct metrics *m, const struct metric_family *f)
{
    list_each (l, &m->families) {
        const struct metric_family *g = list_item(l, struct metric_family, link);
        if (str_eq(metrics_name_of(g), metrics_name_of(f)) ||
            histogram_takes(g, metrics_name_of(f)) || histogram_takes(f, metrics_name_of(g)))
            return true;
    }
    return false;
}

/* ---- adding ---- */

/* Tables are ours: a bad row is a bug, and found when the server starts. */
static void check_info(const struct metric_family *f)
{
    for (size_t i = 0; i < f->n_labels; i++) {
        struct str label = str_of_cstr(f->info->labels[i]);
        must(is_name(label, false) && !str_starts(label, STR("__")));
        must(f->type != METRIC_HISTOGRAM || !str_eq(label, STR("le")));
        for (size_t k = 0; k < i; k++)
            must(!str_eq(label, str_of_cstr(f->info->labels[k])));
    }
    if (f->type != METRIC_HISTOGRAM)
        return;
    const struct histogram_shape *s = f->info->shape;
    must(s->n >= 1 && s->n <= METRIC_BUCKETS_MAX && s->decimals <= 9);
    for (size_t i = 1; i < s->n; i++)
        must(s->bounds[i - 1] < s->bounds[i]);
}

static size_t count_labels(const struct metric_info *info)
{
    size_t n = 0;
    while (n < METRIC_LABELS_MAX && info->labels[n] != NULL)
        n++;
    return n;
}

static bool is_declared(const struct metrics *m, const struct metric_info *info)
{
    const struct metric_info *const *d = m->declared;
    while (d != NULL && *d != NULL && *d != info)
        d++;
    return d == NULL || *d == info;
}

static int metrics_add(struct metrics *m, struct str prefix, const struct metric_info *info,
                       enum metric_type type, struct metric_family **out)
{
    must(is_declared(m, info));
    struct metric_family *f = mem_zalloc(sizeof *f);
    f->type = type;
    f->info = info;
    f->n_labels = count_labels(info);
    check_info(f);
    int err = make_name(f, prefix);
    if (err == 0 && is_taken(m, f))
        err = ERR_EXISTS;
    if (err != 0) {
        free(f);
        return err;
    }
    list_push(&m->families, &f->link);
    *out = f;
    return 0;
}

static int add_embedded(struct metrics *m, struct str prefix, const struct metric_info *info,
                        enum metric_type type, const void *embedded)
{
    struct metric_family *f;
    must(count_labels(info) == 0);
    int err = metrics_add(m, prefix, info, type, &f);
    if (err == 0)
        f->embedded = embedded;
    return err;
}

int metrics_add_counter(struct metrics *m, struct str prefix, const struct metric_info *info,
                        struct counter *c)
{
    int err = add_embedded(m, prefix, info, METRIC_COUNTER, c);
    if (err == 0)
        *c = (struct counter){0};
    return err;
}

int metrics_add_gauge(struct metrics *m, struct str prefix, const struct metric_info *info,
                      struct gauge *g)
{
    int err = add_embedded(m, prefix, info, METRIC_GAUGE, g);
    if (err == 0)
        *g = (struct gauge){0};
    return err;
}

int metrics_add_histogram(struct metrics *m, struct str prefix, const struct metric_info *info,
                          struct histogram *h)
{
    int err = add_embedded(m, prefix, info, METRIC_HISTOGRAM, h);
    if (err == 0)
        *h = (struct histogram){.shape = info->shape};
    return err;
}

int metrics_add_family(struct metrics *m, struct str prefix, const struct metric_info *info,
                       enum metric_type type, struct metric_family **out)
{
    must(count_labels(info) > 0);
    must(info->series_max >= 1 && info->series_max <= METRIC_SERIES_MAX);
    int err = metrics_add(m, prefix, info, type, out);
    if (err == 0)
        (*out)->series = mem_zalloc(info->series_max * sizeof *(*out)->series);
    return err;
}

void metrics_init(struct metrics *m)
{
    list_init(&m->families);
    m->declared = NULL;
}

static void series_free(struct series *s)
{
    if (s == NULL)
        return;
    buf_deinit(&s->labels);
    free(s);
}

void metrics_deinit(struct metrics *m)
{
    list_each_safe (l, &m->families) {
        struct metric_family *f = list_item(l, struct metric_family, link);
        for (size_t i = 0; i < f->n_series; i++)
            series_free(f->series[i]);
        series_free(f->other);
        free(f->series);
        free(f);
    }
    list_init(&m->families);
}

/* ---- series ---- */

/* What the format asks to escape; a quote only in the value of a label. */
static void metrics_put_escaped(struct buf *out, struct str s, bool quotes)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '\\' || c == '\n' || (quotes && c == '"'))
            buf_putc(out, '\\');
        buf_putc(out, c == '\n' ? 'n' : c);
    }
}

static void put_labels(const struct metric_family *f, const struct str *values, struct buf *out)
{
    for (size_t i = 0; i < f->n_labels; i++) {
        buf_printf(out, "%s%s=\"", i > 0 ? "," : "", f->info->labels[i]);
        metrics_put_escaped(out, values[i], true);
        buf_putc(out, '"');
    }
}

static struct series *series_new(const struct metric_family *f, const struct str *values)
{
    struct series *s = mem_zalloc(sizeof *s);
    put_labels(f, values, &s->labels);
    if (f->type == METRIC_HISTOGRAM)
        s->own.histogram.shape = f->info->shape;
    return s;
}

static bool values_fit(const struct metric_family *f, const struct str *values)
{
    for (size_t i = 0; i < f->n_labels; i++)
        if (values[i].n > METRIC_VALUE_MAX || !utf8_valid(values[i]))
            return false;
    return true;
}

static bool all_other(const struct metric_family *f, const struct str *values)
{
    for (size_t i = 0; i < f->n_labels; i++)
        if (!str_eq(values[i], STR("other")))
            return false;
    return true;
}

static struct series *find_other(struct metric_family *f)
{
    struct str values[METRIC_LABELS_MAX];
    for (size_t i = 0; i < f->n_labels; i++)
        values[i] = STR("other");
    if (f->other == NULL)
        f->other = series_new(f, values);
    return f->other;
}

static struct series *find_series(struct metric_family *f, enum metric_type type,
                                  const struct str *values)
{
    must(f->type == type && f->embedded == NULL);
    if (!values_fit(f, values) || all_other(f, values))
        return find_other(f);
    struct buf labels = {0};
    struct series *found = NULL;
    put_labels(f, values, &labels);
    for (size_t i = 0; i < f->n_series && found == NULL; i++)
        if (str_eq(buf_str(&f->series[i]->labels), buf_str(&labels)))
            found = f->series[i];
    buf_deinit(&labels);
    if (found != NULL)
        return found;
    if (f->n_series == f->info->series_max)
        return find_other(f);
    return f->series[f->n_series++] = series_new(f, values);
}

struct counter *metric_family_counter(struct metric_family *f, const struct str *values)
{
    return &find_series(f, METRIC_COUNTER, values)->own.counter;
}

struct gauge *metric_family_gauge(struct metric_family *f, const struct str *values)
{
    return &find_series(f, METRIC_GAUGE, values)->own.gauge;
}

struct histogram *metric_family_histogram(struct metric_family *f, const struct str *values)
{
    return &find_series(f, METRIC_HISTOGRAM, values)->own.histogram;
}

/* ---- printing ---- */

static void put_line_start(struct buf *out, const struct metric_family *f, const char *end,
                           struct str labels)
{
    buf_put(out, metrics_name_of(f));
    buf_printf(out, "%s", end);
    if (labels.n > 0) {
        buf_putc(out, '{');
        buf_put(out, labels);
        buf_putc(out, '}');
    }
    buf_putc(out, ' ');
}

/* v / 10^decimals, exactly: no floating point, which has a locale and rounds. */
static void put_decimal(struct buf *out, uint64_t v, unsigned decimals)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    uint64_t rest = v % scale;
    buf_put_u64(out, v / scale);
    if (rest == 0)
        return;
    for (; rest % 10 == 0; decimals--)
        rest /= 10;
    buf_printf(out, ".%0*" PRIu64, (int)decimals, rest);
}

static void put_bucket(struct buf *out, const struct metric_family *f, struct str labels,
                       const uint64_t *bound, uint64_t n)
{
    struct buf all = {0};
    buf_put(&all, labels);
    buf_put(&all, labels.n > 0 ? STR(",le=\"") : STR("le=\""));
    if (bound != NULL)
        put_decimal(&all, *bound, f->info->shape->decimals);
    else
        buf_put(&all, STR("+Inf"));
    buf_putc(&all, '"');
    put_line_start(out, f, "_bucket", buf_str(&all));
    buf_printf(out, "%" PRIu64 "\n", n);
    buf_deinit(&all);
}

static void put_histogram(struct buf *out, const struct metric_family *f, struct str labels,
                          const struct histogram *h)
{
    const struct histogram_shape *s = h->shape;
    uint64_t n = 0;
    for (size_t i = 0; i <= s->n; i++) {
        n += h->buckets[i];
        put_bucket(out, f, labels, i < s->n ? &s->bounds[i] : NULL, n);
    }
    put_line_start(out, f, "_sum", labels);
    put_decimal(out, h->sum, s->decimals);
    buf_putc(out, '\n');
    put_line_start(out, f, "_count", labels);
    buf_printf(out, "%" PRIu64 "\n", n);
}

static void put_series(struct buf *out, const struct metric_family *f, struct str labels,
                       const void *metric)
{
    if (f->type == METRIC_HISTOGRAM) {
        put_histogram(out, f, labels, metric);
        return;
    }
    put_line_start(out, f, "", labels);
    if (f->type == METRIC_COUNTER)
        buf_printf(out, "%" PRIu64 "\n", ((const struct counter *)metric)->n);
    else
        buf_printf(out, "%" PRId64 "\n", ((const struct gauge *)metric)->n);
}

static void metrics_put_head(struct buf *out, const struct metric_family *f)
{
    buf_put(out, STR("# HELP "));
    buf_put(out, metrics_name_of(f));
    buf_putc(out, ' ');
    metrics_put_escaped(out, str_of_cstr(f->info->help), false);
    buf_put(out, STR("\n# TYPE "));
    buf_put(out, metrics_name_of(f));
    buf_printf(out, " %s\n", type_texts[f->type]);
}

static void put_family(struct buf *out, const struct metric_family *f)
{
    if (f->embedded == NULL && f->n_series == 0 && f->other == NULL)
        return;
    metrics_put_head(out, f);
    if (f->embedded != NULL)
        put_series(out, f, STR_NONE, f->embedded);
    for (size_t i = 0; i < f->n_series; i++)
        put_series(out, f, buf_str(&f->series[i]->labels), &f->series[i]->own);
    if (f->other != NULL)
        put_series(out, f, buf_str(&f->other->labels), &f->other->own);
}

void metrics_put(const struct metrics *m, struct buf *out)
{
    list_each (l, &m->families) {
        put_family(out, list_item(l, struct metric_family, link));
    }
}
