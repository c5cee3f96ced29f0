// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/pages_config.h"
#include "base/err.h"
#include "base/units.h"
#include "access/principal.h"

static int pages_config_check_session(struct str value, char *reason, size_t size)
{
    uint8_t ignored[CURSOR_SESSION_SIZE];
    size_t got;
    return cursor_secret_take(value, ignored, sizeof ignored, &got);
}

int pages_config_finish(void *pages, char *reason, size_t size)
{
    struct pages_config *c = pages;
    size_t got;
    if (c->cursor_session == NULL)
        return 0;
    return cursor_secret_take(str_of_cstr(c->cursor_session), c->session, sizeof c->session, &got);
}

#define ROW(...) OPTION_ROW(struct pages_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("cursor-ttl", OPTION_DURATION, cursor_ttl_ms), .fallback = "5m", .value = "TIME",
     .min = SECOND_MS, .max = 7 * DAY_MS,
     .help = "How long after a page its cursor leads to the next one, and so how long the rows of "
             "a result are kept."},
    {ROW("keep", OPTION_SIZE, keep_bytes), .fallback = "256m", .value = "SIZE", .min = MIB,
     .max = 1024 * GIB,
     .help =
         "How much of results is kept for cursors, all together. Beyond it those that were used "
         "longest ago are removed, and their cursors have expired."},
    {ROW("cursor-format", OPTION_CHOICE, cursor_format), .fallback = "tidemark",
     .value = "tidemark|atd",
     .help = "What cursors look like: compact and signed with a key derived for them, or byte for "
             "byte as the ATD reference server has them, for those who must read or issue them "
             "as well. With atd names have less room: 64 bytes for a caller, 71 for a tool."},
    {ROW("cursor-session", OPTION_TEXT, cursor_session), .value = "8 bytes in base64",
     .check = pages_config_check_session,
     .help = "What servers behind one name have in common, so that each takes the cursors of the "
             "others; they need the same ATD_CURSOR_SIGNING_KEY, and a store in common for "
             "results that are kept. Without it cursors end with the server that gave them."},
    {ROW("require-bearer", OPTION_BOOL, require_bearer), .fallback = "no",
     .help = "Whether tools are for known callers only, over HTTP. Without it anybody may call "
             "those that ask for no capability."},
    {ROW("disable", OPTION_LIST, disable), .value = "TOOL", .commas = true,
     .help = "Built-in tools that are not offered, such as `stream:list`; one or several with "
             "commas between them."},
    {ROW("capabilities", OPTION_LIST, capabilities), .value = "worker|tool|admin|NAME:NAME",
     .commas = true, .check = principal_check_capability,
     .help = "What clients of tools-socket get when they ask for it, one word or several with "
             "commas between them. Without it they get nothing that a tool might ask for."},
};
const struct options pages_options = {rows, sizeof rows / sizeof *rows};
