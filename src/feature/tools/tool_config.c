// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool_config.h"
#include "base/ascii.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "access/principal.h"
#include "base/json_view.h"
#include "feature/tools/tool.h"
#include "http/url.h"

#include <errno.h>
#include <stdlib.h>

#define SCHEMA_MAX (256 * 1024) /* bytes of an input-schema */

int tool_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._:") && name.n <= TOOL_ID_MAX)
        return 0;
    snprintf(reason, size,
             "a tool's name is made of up to %d letters, digits and -._:", TOOL_ID_MAX);
    return ERR_SYNTAX;
}

/* ---- commands ---- */

static bool tool_config_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Cuts the next word off *rest and appends it to *out; false: there is none. *whole: all quotes
 * that were opened are closed. */
static bool tool_config_take_word(struct str *rest, struct buf *out, bool *whole)
{
    char quote = '\0';
    *rest = str_trim(*rest);
    if (rest->n == 0)
        return false;
    while (rest->n > 0 && (quote != '\0' || !tool_config_is_blank(rest->p[0]))) {
        char c = rest->p[0];
        bool turns = quote == '\0' ? c == '"' || c == '\'' : c == quote;
        if (turns)
            quote = quote == '\0' ? c : '\0';
        else
            buf_putc(out, c);
        *rest = str_skip(*rest, 1);
    }
    *whole = quote == '\0';
    return true;
}

static int tool_config_check_command(struct str value, char *reason, size_t size)
{
    struct buf word = {0};
    bool whole = true;
    while (whole && tool_config_take_word(&value, &word, &whole))
        continue;
    buf_deinit(&word);
    if (whole)
        return 0;
    snprintf(reason, size, "a quote is opened and not closed");
    return ERR_SYNTAX;
}

char **tool_command_words(const struct tool_config *c)
{
    struct buf words = {0};
    size_t n = 0;
    bool whole;
    for (size_t i = 0; i < c->command.n; i++)
        for (struct str rest = str_of_cstr(c->command.items[i]);
             tool_config_take_word(&rest, &words, &whole); n++)
            buf_putc(&words, '\0');
    char **all = mem_alloc((n + 1) * sizeof *all + words.n), *at = (char *)(all + n + 1);
    if (words.n > 0)
        memcpy(at, words.p, words.n);
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
        all[i] = at;
    all[n] = NULL;
    buf_deinit(&words);
    return all;
}

/* ---- input-schema ---- */

static char *read_schema(const char *path, char *reason, size_t size)
{
    FILE *f = fopen(path, "re");
    char *text = mem_alloc(SCHEMA_MAX + 1);
    size_t n = f != NULL ? fread(text, 1, SCHEMA_MAX + 1, f) : 0;
    bool failed = f == NULL || ferror(f) != 0;
    if (failed)
        snprintf(reason, size, "%.100s cannot be read: %s", path, strerror(errno));
    else if (n > SCHEMA_MAX)
        snprintf(reason, size, "%.100s has more than %d bytes", path, SCHEMA_MAX);
    if (f != NULL)
        fclose(f);
    if (failed || n > SCHEMA_MAX || memchr(text, '\0', n) != NULL)
        n = 0; /* which is no JSON */
    text[n] = '\0';
    return text;
}

/* A JSON Schema for arguments, which are an object: clients of MCP refuse the whole list of tools
 * if one says otherwise. */
static bool is_schema(const char *text)
{
    struct str schema = view_trim(str_of_cstr(text));
    struct view_want type = {.name = STR("type")};
    size_t at;
    if (json_check(schema, &at) != 0 || view_type(schema) != VIEW_OBJECT)
        return false;
    view_pick(schema, &type, 1);
    return type.value.n == 0 || view_text_is(type.value, STR("object"));
}

static int finish_schema(struct tool_config *c, char *reason, size_t size)
{
    if (c->input_schema == NULL)
        return 0;
    if (c->input_schema[0] == '@') {
        char *text = read_schema(c->input_schema + 1, reason, size);
        free(c->input_schema);
        c->input_schema = text;
    }
    if (is_schema(c->input_schema))
        return 0;
    if (reason[0] == '\0')
        snprintf(reason, size, "input-schema is not a JSON object, or its type is not object");
    return ERR_SYNTAX;
}

int tool_finish(void *tool, char *reason, size_t size)
{
    struct tool_config *c = tool;
    reason[0] = '\0';
    char **words = tool_command_words(c);
    bool runs = words[0] != NULL && words[0][0] != '\0';
    free(words);
    if (runs != (c->url != NULL))
        return finish_schema(c, reason, size);
    snprintf(reason, size,
             runs ? "command and url are both set; a tool has one of them"
                  : "a tool needs a command or a url");
    return ERR_SYNTAX;
}

static int tool_config_check_url(struct str value, char *reason, size_t size)
{
    struct url ignored;
    return url_parse(value, &ignored);
}

/* ---- the table ---- */

#define ROW(...) OPTION_ROW(struct tool_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("command", OPTION_LIST, command), .value = "WORDS", .check = tool_config_check_command,
     .help = "The program to run, looked for in PATH, and its arguments: words with blanks between "
             "them; what stands in '...' or \"...\" is one word. No shell sees them. Further lines "
             "add further words."},
    {ROW("url", OPTION_TEXT, url), .value = "http://HOST/PATH|https://HOST/PATH",
     .check = tool_config_check_url, .help = "What is asked instead, with a POST."},
    {ROW("description", OPTION_TEXT, description), .value = "TEXT",
     .help = "What the tool does, for those who choose among tools."},
    {ROW("input-schema", OPTION_TEXT, input_schema), .value = "JSON|@FILE",
     .help = "The JSON Schema of its arguments. It is shown to those who ask and not enforced: the "
             "tool checks its arguments itself."},
    {ROW("capability", OPTION_TEXT, capability), .value = "worker|tool|admin|NAME:NAME",
     .check = principal_check_capability,
     .help = "What a caller must be allowed to use it. Without it anybody may."},
    {ROW("timeout", OPTION_DURATION, timeout_ms), .fallback = "30s", BETWEEN(10, HOUR_MS),
     .help = "How long it may take for the whole result; then it is ended."},
    {ROW("max-output", OPTION_SIZE, max_output), .fallback = "16m", BETWEEN(KIB, GIB),
     .help = "The largest result; a tool that gives more has failed."},
    {ROW("page-rows", OPTION_NUMBER, page_rows), .fallback = "100", BETWEEN(1, 10000),
     .help = "Rows on a page."},
    {ROW("page-bytes", OPTION_SIZE, page_bytes), .fallback = "64k", BETWEEN(KIB, TOOL_ROW_MAX),
     .help = "Bytes on a page, unless its first row has more: no row is cut."},
    {ROW("parallel", OPTION_NUMBER, parallel), .fallback = "4", BETWEEN(1, 1000),
     .help = "How many results may be made at the same time; further calls are told to come back "
             "later."},
    {ROW("max-memory", OPTION_SIZE, max_memory), .fallback = "1g", BETWEEN(16 * MIB, 1024 * GIB),
     .help = "The address space that each process of a command may have."},
    {ROW("max-processes", OPTION_NUMBER, max_processes), .fallback = "64", BETWEEN(1, 100000),
     .help =
         "Processes that a command may have at the same time; a command that has more is ended."},
    {ROW("max-cpu", OPTION_DURATION, max_cpu_ms), .fallback = "60s", BETWEEN(SECOND_MS, DAY_MS),
     .help =
         "CPU time that all processes of a command may use together; then the command is ended."},
};
const struct options tool_options = {rows, sizeof rows / sizeof *rows};
