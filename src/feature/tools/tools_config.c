// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tools_config.h"
#include "base/err.h"
#include "feature/feature.h"
#include "feature/tools/pages_config.h"
#include "feature/tools/tool_config.h"
#include "net/addr.h"

#include <stdlib.h>

static int tools_config_check_socket(struct str value, char *reason, size_t size)
{
    if (value.n <= ADDR_PATH_MAX)
        return 0;
    snprintf(reason, size, "the path of a Unix socket has at most %d bytes", ADDR_PATH_MAX);
    return ERR_SYNTAX;
}

static const struct option_row rows[] = {
    {.name = "tools-socket",
     .type = OPTION_TEXT,
     .field = offsetof(struct tools_settings, socket),
     .heading = "Tools",
     .value = "PATH",
     .check = tools_config_check_socket,
     .help = "Let programs of the same user call tools over a Unix socket at this path. Without it "
             "the one that ATD_SOCK names, if it does."},
};
static const struct options options = {rows, sizeof rows / sizeof *rows};

enum { SECTION_TOOL, SECTION_PAGES };
static const struct section_kind sections[] = {
    [SECTION_TOOL] = {.word = "tool",
                      .name = "NAME",
                      .size = sizeof(struct tool_config),
                      .name_field = offsetof(struct tool_config, name),
                      .list_field = offsetof(struct tools_settings, tools),
                      .options = &tool_options,
                      .check_name = tool_check_name,
                      .finish = tool_finish,
                      .help = "A program or a URL whose result agents ask for, page by page."},
    [SECTION_PAGES] = {.word = "pages",
                       .size = sizeof(struct pages_config),
                       .list_field = offsetof(struct tools_settings, pages),
                       .options = &pages_options,
                       .finish = pages_config_finish,
                       .help = "Who may call tools, and how long the rest of a result can be asked "
                               "for."},
};

static const struct feature_secret secrets[] = {
    {.name = "ATD_CURSOR_SIGNING_KEY",
     .field = offsetof(struct tools_settings, cursor_key),
     .signs = "cursors of pages"},
};

/* Where other programs of this kind look, too. */
static int default_socket(struct tools_settings *s, char *why, size_t size)
{
    const char *path = getenv("ATD_SOCK");
    if (s->socket != NULL || path == NULL || path[0] == '\0')
        return 0;
    return options_set(&options, s, STR("tools-socket"), str_of_cstr(path), why, size);
}

/* There are tools without sections, too: with the defaults. */
static int tools_settings_finish(void *settings, char *why, size_t size)
{
    struct tools_settings *s = settings;
    struct section ignored;
    int err = 0;
    if (s->pages.n == 0)
        err = sections_add(&sections[SECTION_PAGES], s, STR_NONE, &ignored, why, size);
    return err == 0 ? default_socket(s, why, size) : err;
}

/* Programs that are started are of the same user, who might look for the secrets of others. */
static bool tools_settings_shield(const void *settings)
{
    const struct section_list *tools = &((const struct tools_settings *)settings)->tools;
    const struct tool_config *c = tools->items;
    for (size_t i = 0; i < tools->n; i++)
        if (c[i].command.n > 0)
            return true;
    return false;
}

const struct feature_settings tools_settings = {
    .size = sizeof(struct tools_settings),
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
    .secrets = secrets,
    .n_secrets = sizeof secrets / sizeof *secrets,
    .finish = tools_settings_finish,
    .shield = tools_settings_shield,
};
