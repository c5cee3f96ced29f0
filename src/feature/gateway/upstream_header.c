// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/upstream_header.h"
#include "base/ascii.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE_MAX 64 /* bytes of its name */

enum place { PLACE_HERE, PLACE_ENV, PLACE_FILE };

/* ---- names ---- */

/* Those that belong to one connection, or that the server writes itself. */
static const struct str own_headers[] = {
    STR_INIT("accept-encoding"),
    STR_INIT("connection"),
    STR_INIT("content-length"),
    STR_INIT("expect"),
    STR_INIT("host"),
    STR_INIT("keep-alive"),
    STR_INIT("proxy-connection"),
    STR_INIT("te"),
    STR_INIT("trailer"),
    STR_INIT("transfer-encoding"),
    STR_INIT("upgrade"),
};

int upstream_header_check_name(struct str value, char *reason, size_t size)
{
    for (size_t i = 0; i < sizeof own_headers / sizeof *own_headers; i++)
        if (str_eq_nocase(value, own_headers[i])) {
            snprintf(reason, size, "this header is never forwarded; the server sets it itself");
            return ERR_SYNTAX;
        }
    return ascii_is_word(value, "!#$%&'*+-.^_`|~") ? 0 : ERR_SYNTAX;
}

/* ---- settings ---- */

/* A setting, taken apart. */
struct parts {
    struct str name;
    struct str text; /* of the value: all of it, or what stands before the place */
    enum place place;
    struct str where; /* the variable, or the file */
};

/* A place is named at the end of the value: behind a blank, or alone. */
static bool cut_place(struct str value, struct str word, struct parts *p, enum place place)
{
    for (size_t i = 0; i + word.n <= value.n; i++) {
        bool begins = i == 0 || value.p[i - 1] == ' ';
        if (!begins || !str_starts(str_skip(value, i), word))
            continue;
        p->text = str_of(value.p, i);
        p->place = place;
        p->where = str_skip(value, i + word.n);
        return true;
    }
    return false;
}

static void split(struct str setting, struct parts *p)
{
    struct str value = setting;
    *p = (struct parts){.name = str_trim(str_cut(&value, ':'))};
    value = p->text = str_trim(value);
    if (!cut_place(value, STR("@ENV:"), p, PLACE_ENV))
        cut_place(value, STR("@FILE:"), p, PLACE_FILE);
}

/* What would end a header, or is none of its bytes. */
static bool can_be_sent(struct str value)
{
    for (size_t i = 0; i < value.n; i++)
        if (((unsigned char)value.p[i] < ' ' && value.p[i] != '\t') || value.p[i] == 0x7f)
            return false;
    return true;
}

int upstream_header_check(struct str text, char *reason, size_t size)
{
    struct parts p;
    split(text, &p);
    if (p.name.n == 0 || (p.text.n == 0 && p.place == PLACE_HERE))
        snprintf(reason, size, "expected NAME: VALUE");
    else if (upstream_header_check_name(p.name, reason, size) != 0)
        return ERR_SYNTAX;
    else if (!can_be_sent(p.text))
        snprintf(reason, size, "the value has a byte that no header can have");
    else if (p.place == PLACE_ENV && (p.where.n > VARIABLE_MAX || !ascii_is_word(p.where, "_")))
        snprintf(reason, size, "@ENV: takes the name of a variable, letters, digits and _");
    else if (p.place == PLACE_FILE && (p.where.n == 0 || p.where.n >= PATH_MAX))
        snprintf(reason, size, "@FILE: takes the path of a file");
    else
        return 0;
    return ERR_SYNTAX;
}

/* ---- values ---- */

static char *copy_text(struct str text)
{
    char *z = mem_zalloc(text.n + 1);
    if (text.n > 0)
        memcpy(z, text.p, text.n);
    return z;
}

static int read_variable(const char *name, char **out, char *why, size_t size)
{
    int err = env_secret_get(name, out, why, size);
    if (err == 0 && *out == NULL) {
        snprintf(why, size, "the variable %s is not set", name);
        return ERR_SYNTAX;
    }
    env_secret_hide(name);
    return err;
}

static int read_place(const struct parts *p, char **out, char *why, size_t size)
{
    *out = NULL;
    if (p->place == PLACE_HERE)
        return 0;
    char *where = copy_text(p->where);
    int err = p->place == PLACE_ENV ? read_variable(where, out, why, size)
                                    : env_secret_read(where, out, why, size);
    free(where);
    return err;
}

static int load_one(struct upstream_header *h, struct str setting, char *why, size_t size)
{
    struct parts p;
    char *secret;
    split(setting, &p);
    int err = read_place(&p, &secret, why, size);
    if (err == 0 && secret != NULL && !can_be_sent(str_of_cstr(secret))) {
        snprintf(why, size, "%.*s holds a byte that no header can have", (int)p.where.n, p.where.p);
        err = ERR_SYNTAX;
    }
    if (err == 0) {
        size_t n = secret != NULL ? strlen(secret) : 0;
        h->name = copy_text(p.name);
        h->value = mem_zalloc(p.text.n + n + 1);
        if (p.text.n > 0)
            memcpy(h->value, p.text.p, p.text.n);
        if (n > 0)
            memcpy(h->value + p.text.n, secret, n);
    }
    env_secret_drop(&secret);
    return err;
}

int upstream_headers_load(struct upstream_headers *h, const struct option_list *settings, char *why,
                          size_t size)
{
    int err = 0;
    *h = (struct upstream_headers){0};
    if (settings->n == 0)
        return 0;
    secret_shield();
    h->items = mem_zalloc(settings->n * sizeof *h->items);
    for (; err == 0 && h->n < settings->n; h->n++)
        err = load_one(&h->items[h->n], str_of_cstr(settings->items[h->n]), why, size);
    return err;
}

void upstream_headers_free(struct upstream_headers *h)
{
    for (size_t i = 0; i < h->n; i++) {
        free(h->items[i].name);
        env_secret_drop(&h->items[i].value);
    }
    free(h->items);
    *h = (struct upstream_headers){0};
}

bool upstream_headers_have(const struct upstream_headers *h, struct str name)
{
    for (size_t i = 0; i < h->n; i++)
        if (str_eq_nocase(str_of_cstr(h->items[i].name), name))
            return true;
    return false;
}

static bool is_open(struct str setting)
{
    struct parts p;
    split(setting, &p);
    if (p.place != PLACE_FILE)
        return false;
    char *path = copy_text(p.where);
    bool open = env_secret_file_is_open(path);
    free(path);
    return open;
}

bool upstream_headers_are_open(const struct option_list *settings)
{
    for (size_t i = 0; i < settings->n; i++)
        if (is_open(str_of_cstr(settings->items[i])))
            return true;
    return false;
}
