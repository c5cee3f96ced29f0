// SPDX-License-Identifier: Apache-2.0
#include "config_file.h"
#include "base/err.h"

#include <errno.h>
#include <ini.h>

#define BLANKS     " \t\r\n\v\f"
#define FORM       "expected `name = value`"
#define REASON_MAX 384

struct file_load {
    const char *path;
    const struct options *options;
    const struct section_kinds *kinds;
    void *target;
    FILE *from;
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

/* ---- lines ---- */

/* The next line without its end, in out. 1, 0 at the end of the file, ERR_SYNTAX when it is no line
 * that inih could be given. */
static int get_line(struct file_load *l, char *out, size_t size)
{
    char reason[REASON_MAX];
    size_t n = 0;
    int c = getc(l->from);
    if (c == EOF)
        return 0;
    for (l->line++; c != EOF && c != '\n'; c = getc(l->from)) {
        if (c == '\0') {
            fail_at_line(l, "the line holds a NUL byte");
            return ERR_SYNTAX;
        }
        if (n + 1 == size) {
            snprintf(reason, sizeof reason, "the line is longer than %zu bytes", size - 1);
            fail_at_line(l, reason);
            return ERR_SYNTAX;
        }
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return 1;
}

/* Moves the text to where its blanks, and the mark of UTF-8 that some editors put first, began. */
static void strip_left(char *line, bool first)
{
    size_t skip = first && strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    skip += strspn(line + skip, BLANKS);
    memmove(line, line + skip, strlen(line + skip) + 1);
}

/* ---- sections ---- */

static void finish_section(struct file_load *l)
{
    char reason[REASON_MAX];
    if (l->section.settings && section_finish(&l->section, reason, sizeof reason) != 0)
        fail_at(l, l->section_line, reason);
    l->section.settings = NULL;
}

/* header: the line from its `[` on. */
static void begin_section(struct file_load *l, const char *header)
{
    char reason[REASON_MAX];
    struct str rest = str_of_cstr(header + 1);
    struct str inside = str_cut(&rest, ']');
    finish_section(l);
    if (l->err != 0)
        return;
    size_t blank = rest.p ? strspn(rest.p, BLANKS) : 0;
    if (rest.p == NULL || (blank < rest.n && strchr("#;", rest.p[blank]) == NULL)) {
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
static void explain_unknown(struct file_load *l, const char *name, const char *reason)
{
    char label[SECTION_LABEL_MAX], text[REASON_MAX * 2];
    section_label(&l->section, label);
    if (options_has(l->options, str_of_cstr(name)))
        snprintf(text, sizeof text,
                 "%s is no setting of [%s] but of the server; it goes above the first section",
                 name, label);
    else
        snprintf(text, sizeof text, "[%s]: %s", label, reason);
    fail_at_line(l, text);
}

static int take_setting(void *user, const char *section, const char *name, const char *value)
{
    struct file_load *l = user;
    char reason[REASON_MAX];
    if (l->err != 0)
        return 1;
    if (name[0] == '\0') {
        fail_at_line(l, FORM);
        return 1;
    }
    bool inside = l->section.settings != NULL;
    int err = options_set(inside ? l->section.kind->options : l->options,
                          inside ? l->section.settings : l->target, str_of_cstr(name),
                          str_of_cstr(value), reason, sizeof reason);
    if (err == ERR_NOT_FOUND && inside)
        explain_unknown(l, name, reason);
    else if (err != 0)
        fail_at_line(l, reason);
    return 1;
}

/* fgets for inih, which would split a line that is longer than its buffer, take an indented one
 * for a continuation of the last value, cut the names of sections and not tell of empty ones. It
 * gets to see none: an empty line stands in for each. */
static char *read_line(char *out, int size, void *user)
{
    struct file_load *l = user;
    if (l->err != 0 || get_line(l, out, (size_t)size) <= 0)
        return NULL;
    strip_left(out, l->line == 1);
    if (out[0] == '[') {
        begin_section(l, out);
        out[0] = '\0';
    }
    return l->err == 0 ? out : NULL;
}

static int fail_unread(struct file_load *l)
{
    snprintf(l->why, l->size, "cannot read %s: %s", l->path, strerror(errno));
    return ERR_SYNTAX;
}

int config_file_read(const char *path, const struct options *o, const struct section_kinds *kinds,
                     void *target, char *why, size_t size)
{
    struct file_load l = {
        .path = path, .options = o, .kinds = kinds, .target = target, .why = why, .size = size};
    l.from = fopen(path, "re");
    if (l.from == NULL)
        return fail_unread(&l);
    int bad_line = ini_parse_stream(read_line, &l, take_setting, &l);
    if (l.err == 0 && ferror(l.from))
        l.err = fail_unread(&l);
    if (l.err == 0 && bad_line != 0)
        fail_at(&l, (unsigned)bad_line, FORM);
    if (l.err == 0)
        finish_section(&l);
    fclose(l.from);
    return l.err;
}
