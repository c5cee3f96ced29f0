// SPDX-License-Identifier: Apache-2.0
#include "app/access_commands.h"
#include "app/config.h"
#include "app/config_tables.h"
#include "base/must.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "cmd/table.h"

#define COLUMNS 4

static const struct common_command command = {
    .name = "access check",
    .arguments = "FILE",
    .min_args = 1,
    .max_args = 1,
    .about =
        "Reads a config file as `tidemark serve --config FILE` does, and says what it grants:\n"
        "who, which verbs, on which names, and below which root. Then it says what is wrong\n"
        "or doubtful, one sentence a line. The exit status is 2 if the server would not take\n"
        "the file.\n",
    .examples = "  tidemark access check /etc/tidemark.conf\n",
    .takes_no_environment = true,
};

/* ---- sections that grant something, whatever their kind ---- */

static const void *field_of(const struct section_kind *kind, const void *section, const char *name)
{
    for (size_t i = 0; i < kind->options->n; i++)
        if (strcmp(kind->options->rows[i].name, name) == 0)
            return (const char *)section + kind->options->rows[i].field;
    return NULL;
}

static const struct option_list *list_in(const struct section_kind *kind, const void *section,
                                         const char *name)
{
    static const struct option_list none;
    const struct option_list *list = field_of(kind, section, name);
    return list != NULL ? list : &none;
}

static const char *root_of(const struct section_kind *kind, const void *section)
{
    char *const *root = field_of(kind, section, "root");
    return root != NULL && *root != NULL ? *root : "-";
}

/* ---- the table ---- */

struct report {
    struct table table;
    struct arena arena;
    struct buf text;
};

static void put_cell(struct report *r)
{
    buf_putc(&r->text, '\0');
    table_cell(&r->table, r->text.p);
    r->text.n = 0;
}

static void put_who(struct report *r, const struct section_kind *kind, const void *section)
{
    char label[SECTION_LABEL_MAX];
    section_label(&(struct section){kind, (void *)section}, label);
    table_cell(&r->table, label);
}

static void put_grant(struct report *r, const struct section_kind *kind, const void *section,
                      const char *line)
{
    struct access_grants g = {0};
    char ignored[256];
    must(access_grants_add_line(&g, &r->arena, str_of_cstr(line), ignored, sizeof ignored) == 0);
    put_who(r, kind, section);
    access_put_verbs(&r->text, g.items[0].verbs);
    put_cell(r);
    for (size_t i = 0; i < g.n; i++) {
        if (i > 0)
            buf_putc(&r->text, ' ');
        access_put_pattern(&r->text, g.items[i].kind, g.items[i].pattern);
    }
    put_cell(r);
    table_cell(&r->table, root_of(kind, section));
}

static void put_capabilities(struct report *r, const struct section_kind *kind, const void *section)
{
    const struct option_list *words = list_in(kind, section, "capabilities");
    if (words->n == 0)
        return;
    put_who(r, kind, section);
    table_cell(&r->table, "capabilities");
    for (size_t i = 0; i < words->n; i++)
        buf_printf(&r->text, "%s%s", i > 0 ? ", " : "", words->items[i]);
    put_cell(r);
    table_cell(&r->table, root_of(kind, section));
}

static void put_section(struct report *r, const struct section_kind *kind, const void *section)
{
    const struct option_list *grants = list_in(kind, section, "grant");
    for (size_t i = 0; i < grants->n; i++)
        put_grant(r, kind, section, grants->items[i]);
    put_capabilities(r, kind, section);
    if (grants->n == 0 && list_in(kind, section, "capabilities")->n == 0) {
        put_who(r, kind, section);
        table_cell(&r->table, "nothing");
        table_cell(&r->table, "-");
        table_cell(&r->table, root_of(kind, section));
    }
}

static int put_table(const struct config *c)
{
    struct report r = {.table = {.columns = COLUMNS}};
    for (size_t k = 0; k < c->tables->kinds.n; k++) {
        const struct section_kind *kind = &c->tables->kinds.rows[k];
        const struct section_list *list = (const void *)((const char *)c + kind->list_field);
        for (size_t i = 0; options_has(kind->options, STR("grant")) && i < list->n; i++)
            put_section(&r, kind, (const char *)list->items + i * kind->size);
    }
    table_end(&r.table);
    buf_deinit(&r.text);
    arena_deinit(&r.arena);
    return common_written(&command, r.table.failed);
}

/* ---- what to say of it ---- */

static bool anybody_may(const struct config *c, uint32_t verbs)
{
    const struct anonymous_config *a = c->access.anonymous.items;
    struct arena arena = {0};
    struct access_grants g = {0};
    char ignored[256];
    bool may = false;
    for (size_t i = 0; c->access.anonymous.n > 0 && i < a->granted.grants.n; i++)
        must(access_grants_add_line(&g, &arena, str_of_cstr(a->granted.grants.items[i]), ignored,
                                    sizeof ignored) == 0);
    for (size_t i = 0; i < g.n; i++)
        may = may || (g.items[i].verbs & verbs) != 0;
    arena_deinit(&arena);
    return may;
}

static void say_who(const struct config *c)
{
    const uint32_t writes = ACCESS_EVERY_VERB & ~(ACCESS_MAY(READ) | ACCESS_MAY(LIST));
    if (!access_config_on(&c->access))
        puts(
            "Nothing is granted to anybody, so access is off: everybody who reaches the server may "
            "do everything.");
    else if (c->access.anonymous.n == 0)
        puts("A request without a credential is refused.");
    else if (anybody_may(c, writes))
        puts("Warning: [anonymous] may do more than read. Everybody who reaches the server can use "
             "that.");
}

static void say_warnings(const struct config *c)
{
    struct feature_warnings w = {0};
    config_warnings(c, &w);
    for (size_t i = 0; i < w.n; i++)
        printf("Warning: %s %s.\n", w.rows[i].setting, w.rows[i].why);
}

int access_check(int argc, char **argv)
{
    struct config c;
    int status, n;
    if (!common_read(&command, NULL, argc, argv, &n, &status))
        return status;
    status = access_load(&command, argv[1], &c);
    if (status != CMD_OK)
        return status;
    status = put_table(&c);
    say_who(&c);
    say_warnings(&c);
    config_deinit(&c);
    return status;
}
