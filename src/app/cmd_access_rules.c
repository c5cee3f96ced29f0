// SPDX-License-Identifier: Apache-2.0
#include "access/verb.h"
#include "app/access_commands.h"
#include "app/surfaces.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "cmd/table.h"
#include "http/surface.h"

#define COLUMNS 6

struct rules_flags {
    bool json;
};

static const struct option_row rows[] = {
    {OPTION_ROW(struct rules_flags, "json", OPTION_BOOL, json),
     .help = "One JSON object a line: id, owner, surface, methods, path, verb, kind, how, "
             "sometimes."},
};

static const struct common_command command = {
    .name = "access rules",
    .arguments = "",
    .about = "Lists what each request needs: the rule's id, methods, path, the verb and the kind\n"
             "of thing that has to be granted, and how it is decided. A request can come under\n"
             "several rules; all of them have to be granted. A request without a rule is refused.\n"
             "\n"
             "  public   everybody may\n"
             "  later    by names that stand in the request's headers or body\n"
             "  link     a credential in the URL, ?grant=, will do\n"
             "  admin    served at admin-listen, if that is set\n"
             "  ticket   Authorization carries a ticket of that surface\n"
             "  if       only for some of these requests: those that have a body, close, or fork\n",
    .examples = "  tidemark access rules\n"
                "  tidemark access rules --json | jq -r .id\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

static const struct {
    unsigned how;
    const char *word;
} hows[] = {
    {RULE_PUBLIC, "public"}, {RULE_LATER, "later"},   {RULE_LINK, "link"},
    {RULE_ADMIN, "admin"},   {RULE_TICKET, "ticket"},
};

/* `/v1/stream/{name...}`; where settings say, `PATH`. */
static void put_path(struct buf *out, const struct surface *s, const struct surface_rule *r)
{
    const char *base = s->path != NULL ? s->path : "PATH";
    size_t n = strlen(base);
    buf_put(out, str_of_cstr(base));
    if (r->path[0] != '\0' && (n == 0 || base[n - 1] != '/'))
        buf_putc(out, '/');
    buf_put(out, str_of_cstr(r->path));
}

static bool is_decided(const struct surface_rule *r)
{
    return (r->how & RULE_PUBLIC) == 0;
}

/* ---- for people ---- */

static void take_cell(struct table *t, struct buf *text)
{
    buf_putc(text, '\0');
    table_cell(t, text->p);
    text->n = 0;
}

static void put_row(struct table *t, const struct surface *s, const struct surface_rule *r)
{
    struct buf text = {0};
    table_cell(t, r->id);
    table_cell(t, r->methods);
    put_path(&text, s, r);
    take_cell(t, &text);
    table_cell(t, is_decided(r) ? access_verb_text(r->verb).p : "-");
    table_cell(t, is_decided(r) ? access_kind_text(r->kind).p : "-");
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        if ((r->how & hows[i].how) != 0)
            buf_printf(&text, "%s%s", text.n > 0 ? " " : "", hows[i].word);
    if (r->when != NULL)
        buf_printf(&text, "%sif", text.n > 0 ? " " : "");
    take_cell(t, &text);
    buf_deinit(&text);
}

/* ---- for programs ---- */

static void put_member(struct buf *out, const char *name, struct str value)
{
    buf_printf(out, "%s\"%s\":", out->p[out->n - 1] == '{' ? "" : ",", name);
    json_put_string(out, value);
}

static void put_words(struct buf *out, const char *words)
{
    struct str rest = str_of_cstr(words);
    buf_put(out, STR(",\"methods\":["));
    while (rest.p != NULL) {
        json_put_string(out, str_cut(&rest, ' '));
        if (rest.p != NULL)
            buf_putc(out, ',');
    }
    buf_putc(out, ']');
}

static void put_hows(struct buf *out, unsigned how)
{
    const char *comma = "";
    buf_put(out, STR(",\"how\":["));
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        if ((how & hows[i].how) != 0) {
            buf_printf(out, "%s\"%s\"", comma, hows[i].word);
            comma = ",";
        }
    buf_putc(out, ']');
}

static void put_object(struct buf *out, const char *owner, const struct surface *s,
                       const struct surface_rule *r)
{
    struct buf path = {0};
    put_path(&path, s, r);
    buf_putc(out, '{');
    put_member(out, "id", str_of_cstr(r->id));
    put_member(out, "owner", str_of_cstr(owner));
    if (s->path != NULL)
        put_member(out, "surface", str_of_cstr(s->path));
    put_words(out, r->methods);
    put_member(out, "path", buf_str(&path));
    if (is_decided(r)) {
        put_member(out, "verb", access_verb_text(r->verb));
        put_member(out, "kind", access_kind_text(r->kind));
    }
    put_hows(out, r->how);
    buf_printf(out, ",\"sometimes\":%s}\n", r->when != NULL ? "true" : "false");
    buf_deinit(&path);
}

/* ---- the command ---- */

static int print_rules(bool json)
{
    struct table t = {.columns = COLUMNS};
    const struct surface *s;
    const char *owner;
    for (size_t at = 0; (s = surfaces_next(&at, &owner)) != NULL;)
        for (const struct surface_rule *r = s->rules; r->id != NULL; r++) {
            if (json)
                put_object(table_line(&t), owner, s, r);
            else
                put_row(&t, s, r);
        }
    table_end(&t);
    return common_written(&command, t.failed);
}

int access_rules(int argc, char **argv)
{
    struct rules_flags flags = {0};
    int status, n;
    if (!common_read(&command, &flags, argc, argv, &n, &status))
        return status;
    if (n == 0)
        return print_rules(flags.json);
    common_fail(&command, "unexpected argument '%.60s'", argv[1]);
    return CMD_USAGE;
}
