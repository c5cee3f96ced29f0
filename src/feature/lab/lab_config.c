// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_config.h"
#include "base/ascii.h"
#include "feature/feature.h"
#include "base/err.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_path.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

static const struct option_row rows[] = {LAB_CONFIG_ROWS};
const struct options lab_options = {rows, sizeof rows / sizeof *rows};

int lab_config_finish(void *lab, char *reason, size_t size)
{
    const struct lab_config *c = lab;
    if (c->review == NULL || c->compare == NULL)
        return 0;
    snprintf(reason, size, "review and compare cannot both be given");
    return ERR_SYNTAX;
}

char *lab_config_folder(void)
{
    char *folder = getcwd(NULL, 0);
    return folder != NULL ? folder : lab_path_resolve("/", STR_NONE);
}

static const char *home(void)
{
    const char *folder = getenv("HOME");
    const struct passwd *user = folder == NULL || *folder == '\0' ? getpwuid(getuid()) : NULL;
    return user != NULL ? user->pw_dir : folder != NULL && *folder != '\0' ? folder : "/";
}

static char *path_of(const char *given, bool given_wins, const char *variable, const char *usual)
{
    const char *value = getenv(variable);
    struct str set = value != NULL ? ascii_trim(str_of_cstr(value)) : STR_NONE;
    if (given != NULL && (given_wins || set.n == 0))
        set = str_of_cstr(given);
    if (set.n == 0)
        return lab_path_resolve(home(), str_of_cstr(usual));
    char *folder = lab_config_folder(), *path = lab_path_resolve(folder, set);
    free(folder);
    return path;
}

char *lab_config_root(const char *given, bool given_wins)
{
    return path_of(given, given_wins, "CM_LAB_ROOT", ".cm/lab");
}

char *lab_config_feedback(const char *given, bool given_wins)
{
    return path_of(given, given_wins, "CM_FEEDBACK_STORE_PATH", ".cm/feedback/feedback.jsonl");
}

/* ---- the feature's ---- */

static const struct section_kind sections[] = {
    {.word = "lab",
     .size = sizeof(struct lab_config),
     .list_field = offsetof(struct lab_settings, lab),
     .options = &lab_options,
     .finish = lab_config_finish,
     .help = "A Lab under /lab and /api/, where people look at runs and say what they think of "
             "them."},
};

const struct feature_settings lab_settings = {
    .size = sizeof(struct lab_settings),
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
};
