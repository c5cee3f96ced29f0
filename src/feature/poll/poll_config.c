// SPDX-License-Identifier: Apache-2.0
#include "feature/poll/poll_config.h"
#include "base/ascii.h"
#include "feature/feature.h"
#include "base/err.h"
#include "base/units.h"
#include "feature/poll/poll_changes.h"

#define CURSOR_OF_ANSWER "answer:"

int poll_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._"))
        return 0;
    snprintf(reason, size, "the name of what is polled is made of letters, digits and -._");
    return ERR_SYNTAX;
}

struct poll_cursor poll_cursor_of(struct str text)
{
    struct poll_cursor c = {.parameter = str_cut(&text, '=')};
    c.of_answer = str_starts(text, STR(CURSOR_OF_ANSWER));
    c.pointer = c.of_answer ? str_skip(text, sizeof CURSOR_OF_ANSWER - 1) : text;
    return c;
}

static int poll_config_check_pointer(struct str value, char *reason, size_t size)
{
    return poll_pointer_ok(value) ? 0 : ERR_SYNTAX;
}

static int poll_config_check_cursor(struct str value, char *reason, size_t size)
{
    struct poll_cursor c = poll_cursor_of(value);
    bool ok =
        c.pointer.p != NULL && ascii_is_word(c.parameter, "-._[]") && poll_pointer_ok(c.pointer);
    return ok ? 0 : ERR_SYNTAX;
}

/* What would end the line, or the name, does not belong into either. */
static int poll_config_check_header(struct str value, char *reason, size_t size)
{
    struct str name = str_cut(&value, ':');
    if (value.p == NULL || !ascii_is_word(name, "-_"))
        return ERR_SYNTAX;
    for (size_t i = 0; i < value.n; i++)
        if ((unsigned char)value.p[i] < ' ' || value.p[i] == 0x7f)
            return ERR_SYNTAX;
    return 0;
}

int poll_config_finish(void *section, char *reason, size_t size)
{
    const struct poll_config *c = section;
    bool items = c->items != NULL || c->key != NULL || c->cursor != NULL || c->newest_first;
    if (!items || c->mode == POLL_JSONLINES)
        return 0;
    snprintf(reason, size, "items, key, cursor and newest-first need mode = jsonlines");
    return ERR_SYNTAX;
}

#define ROW(...) OPTION_ROW(struct poll_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("url", OPTION_TEXT, url), .value = "URL", .required = true, .check = option_check_url,
     .help = "What to ask for: an http or https URL."},
    {ROW("mode", OPTION_CHOICE, mode), .fallback = "append", .value = "append|replace|jsonlines",
     .help = "What a change is. append: text that was added at the end, or a rewrite of it. "
             "replace: every new version of the whole. jsonlines: new items of a JSON array or of "
             "lines of JSON."},
    {ROW("every", OPTION_DURATION, every_ms), .fallback = "2s", .value = "TIME", .min = 100,
     .max = DAY_MS, .help = "The pause between two requests while there is news."},
    {ROW("slowest", OPTION_DURATION, slowest_ms), .fallback = "30s", .value = "TIME", .min = 100,
     .max = DAY_MS, .help = "What the pause grows to while there is none."},
    {ROW("items", OPTION_TEXT, items), .value = "POINTER", .check = poll_config_check_pointer,
     .help = "jsonlines: where the array is in the answer, as a JSON pointer such as /data."},
    {ROW("key", OPTION_TEXT, key), .value = "POINTER", .check = poll_config_check_pointer,
     .help = "jsonlines: what tells an item from the others, such as /id. Without it, all of the "
             "item."},
    {ROW("newest-first", OPTION_BOOL, newest_first), .fallback = "no",
     .help = "jsonlines: whether the answer begins with the newest item; events come oldest first "
             "all the same."},
    {ROW("cursor", OPTION_TEXT, cursor), .value = "PARAMETER=POINTER",
     .check = poll_config_check_cursor,
     .help = "jsonlines: how to ask for what is new only. since=/id puts the id of the last new "
             "item into the query as since; since=answer:/next takes it from the answer."},
    {ROW("header", OPTION_LIST, headers), .value = "NAME: VALUE", .check = poll_config_check_header,
     .secret = true,
     .help = "A header of the requests, credentials for instance; may be repeated."},
    {ROW("always", OPTION_BOOL, always), .fallback = "no",
     .help = "Whether to poll although nobody reads the stream."},
    {ROW("timeout", OPTION_DURATION, timeout_ms), .fallback = "30s", .value = "TIME", .min = 100,
     .max = 10 * MINUTE_MS, .help = "How long one answer may take."},
    {ROW("max-answer", OPTION_SIZE, max_answer_bytes), .fallback = "8m", .value = "SIZE",
     .min = KIB, .max = 16 * MIB, .help = "The largest answer that is taken."},
};
const struct options poll_options = {rows, sizeof rows / sizeof *rows};

/* ---- the feature's ---- */

static const struct section_kind sections[] = {
    {.word = "poll",
     .name = "NAME",
     .size = sizeof(struct poll_config),
     .name_field = offsetof(struct poll_config, name),
     .list_field = offsetof(struct poll_settings, polls),
     .options = &poll_options,
     .check_name = poll_check_name,
     .finish = poll_config_finish,
     .help = "A resource that can only be polled, as the stream poll/NAME, read at "
             "/v1/stream/poll/NAME."},
};

/* Headers may hold secrets. */
static bool poll_settings_shield(const void *settings)
{
    const struct section_list *polls = &((const struct poll_settings *)settings)->polls;
    const struct poll_config *c = polls->items;
    for (size_t i = 0; i < polls->n; i++)
        if (c[i].headers.n > 0)
            return true;
    return false;
}

const struct feature_settings poll_settings = {
    .size = sizeof(struct poll_settings),
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
    .shield = poll_settings_shield,
};
