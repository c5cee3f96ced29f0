// SPDX-License-Identifier: Apache-2.0
/* cmd_feedback.c -- `tidemark feedback`: one entry into the file that the Lab appends to as well.
 */
#include "base/buf.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "feature/lab/lab_commands.h"
#include "cmd/cmd_common.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"
#include "feature/logs/logs.h"
#include "feature/lab/lab_config.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define INPUT_MAX (1024 * 1024)

struct settings {
    char *session, *run, *notes, *feedback;
    struct option_list ratings, tags;
};

/* KEY=N */
static int cmd_feedback_check_rating(struct str value, char *reason, size_t size)
{
    struct str number = value, name = str_cut(&number, '=');
    uint64_t n;
    const char *known = NULL;
    for (size_t i = 0; (known = lab_rating_name(i)) != NULL; i++)
        if (str_eq(str_of_cstr(known), name))
            break;
    if (known != NULL && num_parse(number, 100, &n) == 0)
        return 0;
    snprintf(
        reason, size,
        "expected KEY=N, where KEY is overall, hook, pacing, script, visuals, motion, captions "
        "or sync, and N a whole number from 0 to 100");
    return ERR_SYNTAX;
}

#define ROW(...) OPTION_ROW(struct settings, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("session", OPTION_TEXT, session), .value = "ID",
     .help = "The session that it belongs to."},
    {ROW("run", OPTION_TEXT, run), .value = "ID", .help = "The run that it is about."},
    {ROW("rating", OPTION_LIST, ratings), .value = "KEY=N", .check = cmd_feedback_check_rating,
     .help = "What it is rated, from 0 to 100, as in overall=80; may be given many times."},
    {ROW("tag", OPTION_LIST, tags), .value = "TEXT",
     .help = "A word for it; may be given many times."},
    {ROW("notes", OPTION_TEXT, notes), .value = "TEXT", .help = "What else there is to say."},
    {ROW("feedback", OPTION_TEXT, feedback), .value = "FILE",
     .help = "The file to append to. Without it CM_FEEDBACK_STORE_PATH, or else "
             "~/.cm/feedback/feedback.jsonl."},
};

static const struct common_command command = {
    .name = "feedback",
    .arguments = "",
    .about = "Appends one entry of feedback to the file of the Lab, and prints its id. Without\n"
             "flags that say something the entry is one JSON object on standard input; id and\n"
             "createdAt are made where it has none.\n",
    .examples =
        "  tidemark feedback --run run_1 --rating overall=80 --rating hook=60 --notes 'Too slow'\n"
        "  echo '{\"runId\":\"run_1\",\"notes\":\"good\"}' | tidemark feedback\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

/* ---- from flags ---- */

static void cmd_feedback_put_text(json_t *entry, const char *key, const char *text)
{
    struct str s = text != NULL ? ascii_trim(str_of_cstr(text)) : STR_NONE;
    if (s.n > 0)
        json_object_set_new(entry, key, json_stringn(s.p, s.n));
}

static void put_ratings(json_t *entry, const struct option_list *list)
{
    json_t *ratings = json_object();
    for (size_t i = 0; i < list->n; i++) {
        struct str number = str_of_cstr(list->items[i]), name = str_cut(&number, '=');
        uint64_t n = 0;
        num_parse(number, 100, &n);
        json_object_setn_new(ratings, name.p, name.n, json_integer((json_int_t)n));
    }
    json_object_set_new(entry, "ratings", ratings);
}

static json_t *entry_of_flags(const struct settings *s)
{
    json_t *entry = json_object();
    cmd_feedback_put_text(entry, "sessionId", s->session);
    cmd_feedback_put_text(entry, "runId", s->run);
    cmd_feedback_put_text(entry, "notes", s->notes);
    if (s->ratings.n > 0)
        put_ratings(entry, &s->ratings);
    if (s->tags.n > 0) {
        json_t *tags = json_array();
        for (size_t i = 0; i < s->tags.n; i++)
            json_array_append_new(tags, json_string(s->tags.items[i]));
        json_object_set_new(entry, "tags", tags);
    }
    return entry;
}

/* ---- from standard input ---- */

/* More than INPUT_MAX bytes: it was too much. */
static int cmd_feedback_read_input(struct buf *input)
{
    ssize_t n = 1;
    while (n != 0 && input->n <= INPUT_MAX) {
        n = read(STDIN_FILENO, buf_reserve(input, 65536), 65536);
        if (n > 0)
            input->n += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return errno;
    }
    return 0;
}

/* NULL: it was reported why. */
static json_t *entry_of_input(void)
{
    struct buf input = {0};
    json_t *entry = NULL;
    int error = cmd_feedback_read_input(&input);
    if (error != 0)
        common_fail(&command, "cannot read: %s", strerror(error));
    else if (input.n > INPUT_MAX)
        common_fail(&command, "the input is larger than 1 MB");
    else
        entry = lab_json_load(ascii_trim(buf_str(&input)));
    if (error == 0 && input.n <= INPUT_MAX && !json_is_object(entry)) {
        common_fail(&command, "expected flags, or one JSON object on standard input");
        json_decref(entry);
        entry = NULL;
    }
    buf_deinit(&input);
    return entry;
}

/* ---- the command ---- */

static int cmd_feedback_append(const char *path, const json_t *entry)
{
    struct buf line = {0};
    lab_json_put(&line, entry);
    if (!log_scan_takes(buf_str(&line))) {
        buf_deinit(&line);
        return common_fail(&command, "the entry is too large or nested too deep");
    }
    buf_putc(&line, '\n');
    int err = log_append_now(path, buf_str(&line), NULL);
    buf_deinit(&line);
    if (err != 0)
        return common_fail(&command, "cannot append to %s: %s", path, err_text(err));
    struct str id = lab_json_get(entry, "id");
    printf("%.*s\n", (int)id.n, id.p);
    return fflush(stdout) == 0 ? CMD_OK
                               : common_fail(&command, "cannot write: %s", strerror(errno));
}

static int cmd_feedback_run(const struct settings *s)
{
    bool said = s->session || s->run || s->notes || s->ratings.n > 0 || s->tags.n > 0;
    json_t *draft = said ? entry_of_flags(s) : entry_of_input();
    if (draft == NULL)
        return CMD_FAILED;
    if (json_object_get(draft, "id") == NULL)
        json_object_set_new(draft, "id", lab_new_id(""));
    if (json_object_get(draft, "createdAt") == NULL)
        json_object_set_new(draft, "createdAt", lab_now());
    json_t *entry = lab_schema_apply(&lab_feedback_schema, draft);
    json_decref(draft);
    if (entry == NULL)
        return common_fail(&command, "this is no valid entry: a member is unknown, empty or of the "
                                     "wrong type");
    char *path = lab_config_feedback(s->feedback, true);
    int status = cmd_feedback_append(path, entry);
    free(path);
    json_decref(entry);
    return status;
}

int cmd_feedback(int argc, char **argv)
{
    struct settings s = {0};
    int n_args = 0, status;
    if (common_read(&command, &s, argc, argv, &n_args, &status)) {
        if (n_args == 0) {
            status = cmd_feedback_run(&s);
        } else {
            common_fail(&command, "arguments are not taken; see --help");
            status = CMD_USAGE;
        }
    }
    options_free(&command.flags, &s);
    return status;
}
