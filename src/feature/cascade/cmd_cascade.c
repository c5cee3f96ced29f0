// SPDX-License-Identifier: Apache-2.0
/* cmd_cascade.c -- `tidemark cascade models`: what may be asked. `cascade ask` is in
 * cmd_cascade_ask.c. */
#include "base/json.h"
#include "feature/cascade/cmd_cascade_ask.h"
#include "cmd/cmd.h"
#include "feature/cascade/cascade_commands.h"
#include "cmd/cmd_common.h"
#include "cmd/pages.h"
#include "cmd/table.h"

#define MODELS  "/v1/models"
#define COLUMNS 3

struct models_flags {
    char *server, *token_file;
    bool json;
};

#define ROW(...) OPTION_ROW(struct models_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct models_flags),
    {ROW("json", OPTION_BOOL, json), .help = "One JSON object a line, as GET /v1/models has them."},
};

static const struct common_command command = {
    .name = "cascade models",
    .arguments = "[WORD]",
    .max_args = 1,
    .about = "Lists the models that the editor's account may use, as its language server says, or\n"
             "those with WORD in a name: the name to ask for, what people call it, and what is\n"
             "special about it.\n",
    .examples = "  tidemark cascade models\n"
                "  tidemark cascade models --json | jq -r 'select(.is_new).id'\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

static void put_notes(struct buf *out, const json_t *model)
{
    static const struct {
        const char *member, *word;
    } notes[] = {
        {"is_default", "default"},
        {"is_new", "new"},
        {"is_private", "differs by account"},
        {"disabled", "disabled"},
    };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (pages_truth(model, notes[i].member))
            buf_printf(out, "%s%s", out->n > 0 ? ", " : "", notes[i].word);
    if (*pages_text(model, "disabled_reason"))
        buf_printf(out, ": %s", pages_text(model, "disabled_reason"));
    buf_putc(out, '\0');
}

static void put_model(struct table *t, const json_t *model, bool json)
{
    struct buf notes = {0};
    if (json) {
        char *text = json_dumps(model, JSON_COMPACT | JSON_PRESERVE_ORDER);
        buf_printf(table_line(t), "%s\n", text);
        free(text);
        return;
    }
    put_notes(&notes, model);
    table_cell(t, pages_text(model, "id"));
    table_cell(t, pages_text(model, "label"));
    table_cell(t, notes.p);
    buf_deinit(&notes);
}

static bool is_meant(const json_t *model, const char *word)
{
    return word == NULL || strcasestr(pages_text(model, "id"), word) != NULL ||
           strcasestr(pages_text(model, "label"), word) != NULL;
}

static int cmd_cascade_list(struct tm_client *client, const struct models_flags *flags,
                            const char *word)
{
    json_t *answer = NULL;
    struct table t = {.columns = COLUMNS};
    int err = pages_get(client, MODELS, "", &answer);
    if (err == TM_E_NOT_FOUND)
        return common_fail(&command, "%s has no Cascade bridge: [cascade] in its config file",
                           flags->server);
    if (err != 0)
        return common_client_failed(&command, flags->server, client, err);
    const json_t *models = json_object_get(answer, "data");
    for (size_t i = 0; i < json_array_size(models); i++)
        if (is_meant(json_array_get(models, i), word))
            put_model(&t, json_array_get(models, i), flags->json);
    table_end(&t);
    json_decref(answer);
    return common_written(&command, t.failed);
}

static int cascade_models(int argc, char **argv)
{
    struct models_flags flags = {0};
    struct tm_client *client = NULL;
    int status = CMD_USAGE, n;
    if (common_read(&command, &flags, argc, argv, &n, &status))
        status = common_connect(&command, flags.server, flags.token_file, false, &client);
    if (client != NULL)
        status = cmd_cascade_list(client, &flags, n > 0 ? argv[1] : NULL);
    tm_close(client);
    options_free(&command.flags, &flags);
    return status;
}

static const char usage[] =
    "Usage: tidemark cascade models [flags]\n"
    "       tidemark cascade ask [flags] [TEXT]\n"
    "\n"
    "Both use the Cascade bridge of a server, which is set up by [cascade] in its config file.\n"
    "`tidemark cascade models --help`, and so on, shows the flags.\n";

int cmd_cascade(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "models") == 0)
        return cascade_models(argc - 1, argv + 1);
    if (strcmp(what, "ask") == 0)
        return cascade_ask(argc - 1, argv + 1);
    return common_no_subcommand("cascade", "models or ask", usage, what);
}
