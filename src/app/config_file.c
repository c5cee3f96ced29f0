// SPDX-License-Identifier: Apache-2.0
#include "app/config_file.h"
#include "base/buf.h"
#include "base/err.h"

#include <errno.h>

#define BLANKS     " \t\r\v\f"
#define FORM       "expected `name = value`"
#define REASON_MAX 384
#define READ_STEP  (64 * 1024)

struct file_load {
    const char *path;
    const struct options *options;
    const struct section_kinds *kinds;
    void *target;
    unsigned line;
    struct section section; /* the one that is open; settings == NULL: none yet */
    unsigned section_line;
    int err; /* the first one; nothing is read after it */
    char *why;
    size_t size;
};

static void fail_at(struct file_load *l, unsigned line, const char *reason)
{
    snprintf(l->why, l->size, "%s:%u: %s", l->path, line, reason);
    l->err = ERR_SYNTAX;
}

static void fail_at_line(struct file_load *l, const char *reason)
{
    fail_at(l, l->line, reason);
}

/* ---- texts ---- */

static bool config_file_is_blank(char c)
{
    return c != '\0' && strchr(BLANKS, c) != NULL;
}

static struct str strip(struct str s)
{
    while (s.n > 0 && config_file_is_blank(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && config_file_is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

/* Without the comment that a blank and `;` begin. */
static struct str strip_comment(struct str s)
{
    for (size_t i = 1; i < s.n; i++)
        if (s.p[i] == ';' && config_file_is_blank(s.p[i - 1]))
            return str_of(s.p, i);
    return s;
}

/* ---- sections ---- */

static void finish_section(struct file_load *l)
{
    char reason[REASON_MAX];
    if (l->section.settings && section_finish(&l->section, reason, sizeof reason) != 0)
        fail_at(l, l->section_line, reason);
    l->section.settings = NULL;
}

/* rest: the line from behind its `[` on. */
static void begin_section(struct file_load *l, struct str rest)
{
    char reason[REASON_MAX];
    struct str inside = str_cut(&rest, ']');
    finish_section(l);
    if (l->err != 0)
        return;
    struct str behind = strip(rest);
    if (rest.p == NULL || (behind.n > 0 && behind.p[0] != '#' && behind.p[0] != ';')) {
        fail_at_line(l, "a section is written `[KIND NAME]` on a line of its own");
        return;
    }
    l->section_line = l->line;
    if (sections_open(l->kinds, l->target, inside, &l->section, reason, sizeof reason) != 0)
        fail_at_line(l, reason);
}

/* ---- settings ---- */

/* A word about settings that are known elsewhere, since an INI file does not show where a section
 * ends. */
static void explain_unknown(struct file_load *l, struct str name, const char *reason)
{
    char label[SECTION_LABEL_MAX], text[REASON_MAX * 2];
    section_label(&l->section, label);
    if (options_has(l->options, name))
        snprintf(text, sizeof text,
                 "%.*s is no setting of [%s] but of the server; it goes above the first section",
                 (int)name.n, name.p, label);
    else
        snprintf(text, sizeof text, "[%s]: %s", label, reason);
    fail_at_line(l, text);
}

static void take_setting(struct file_load *l, struct str name, struct str value)
{
    char reason[REASON_MAX];
    bool inside = l->section.settings != NULL;
    int err =
        options_set(inside ? l->section.kind->options : l->options,
                    inside ? l->section.settings : l->target, name, value, reason, sizeof reason);
    if (err == ERR_NOT_FOUND && inside)
        explain_unknown(l, name, reason);
    else if (err != 0)
        fail_at_line(l, reason);
}

/* `name = value` or `name: value`. */
static void read_setting(struct file_load *l, struct str line)
{
    struct str text = strip_comment(line);
    size_t n = 0;
    while (n < text.n && text.p[n] != '=' && text.p[n] != ':')
        n++;
    struct str name = strip(str_of(text.p, n));
    if (n == text.n || name.n == 0)
        fail_at_line(l, FORM);
    else
        take_setting(l, name, strip(str_skip(text, n + 1)));
}

/* ---- lines ---- */

static void read_line(struct file_load *l, struct str line)
{
    char reason[REASON_MAX];
    if (memchr(line.p, '\0', line.n) != NULL) {
        fail_at_line(l, "the line holds a NUL byte");
        return;
    }
    if (line.n > CONFIG_LINE_MAX) {
        snprintf(reason, sizeof reason, "the line is longer than %d bytes", CONFIG_LINE_MAX);
        fail_at_line(l, reason);
        return;
    }
    line = strip(line);
    if (line.n == 0 || line.p[0] == '#' || line.p[0] == ';')
        return;
    if (line.p[0] == '[')
        begin_section(l, str_skip(line, 1));
    else
        read_setting(l, line);
}

int config_file_parse(const char *path, struct str text, const struct options *o,
                      const struct section_kinds *kinds, void *target, char *why, size_t size)
{
    struct file_load l = {
        .path = path, .options = o, .kinds = kinds, .target = target, .why = why, .size = size};
    if (str_starts(text, STR("\xef\xbb\xbf"))) /* some editors put it first */
        text = str_skip(text, 3);
    while (l.err == 0 && text.n > 0) {
        l.line++;
        read_line(&l, str_cut(&text, '\n'));
    }
    if (l.err == 0)
        finish_section(&l);
    return l.err;
}

/* ---- the file ---- */

/* 0, or why not. */
static int config_file_read_all(const char *path, struct buf *out)
{
    FILE *from = fopen(path, "re");
    size_t n = 1;
    if (from == NULL)
        return errno;
    while (n > 0 && out->n <= CONFIG_FILE_MAX) {
        n = fread(buf_reserve(out, READ_STEP), 1, READ_STEP, from);
        out->n += n;
    }
    int failed = ferror(from) ? errno : 0;
    fclose(from);
    return failed;
}

int config_file_read(const char *path, const struct options *o, const struct section_kinds *kinds,
                     void *target, char *why, size_t size)
{
    struct buf text = {0};
    int failed = config_file_read_all(path, &text), err = ERR_SYNTAX;
    if (failed != 0)
        snprintf(why, size, "cannot read %s: %s", path, strerror(failed));
    else if (text.n > CONFIG_FILE_MAX)
        snprintf(why, size, "%s is larger than %d MiB", path, CONFIG_FILE_MAX >> 20);
    else
        err = config_file_parse(path, buf_str(&text), o, kinds, target, why, size);
    if (text.n > 0)
        explicit_bzero(text.p, text.n); /* there may be secrets in it */
    buf_deinit(&text);
    return err;
}
