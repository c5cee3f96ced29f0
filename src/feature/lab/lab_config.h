// SPDX-License-Identifier: Apache-2.0
/* lab_config.h -- the settings of the Lab: `[lab]` in the config file, flags of `tidemark lab`. */
#ifndef FEATURE_LAB_LAB_CONFIG_H
#define FEATURE_LAB_LAB_CONFIG_H

#include "base/sections.h"

struct lab_config {
    char *root, *feedback; /* NULL: as lab_config_root and lab_config_feedback say */
    struct option_list allow_root;
    bool new_session;
    char *review, *compare; /* at most one of them */
    uint64_t exit_after_submit;
};

extern const struct options lab_options;

/* For a table whose target begins with a struct lab_config. */
#define LAB_CONFIG_ROWS                                                                            \
    {.name = "root",                                                                               \
     .type = OPTION_TEXT,                                                                          \
     .field = offsetof(struct lab_config, root),                                                   \
     .value = "DIR",                                                                               \
     .help = "Where runs, experiments and exports are kept. Without it CM_LAB_ROOT, or else "      \
             "~/.cm/lab."},                                                                        \
        {.name = "feedback",                                                                       \
         .type = OPTION_TEXT,                                                                      \
         .field = offsetof(struct lab_config, feedback),                                           \
         .value = "FILE",                                                                          \
         .help = "The file that feedback is appended to. Without it CM_FEEDBACK_STORE_PATH, or "   \
                 "else ~/.cm/feedback/feedback.jsonl."},                                           \
        {.name = "allow-root",                                                                     \
         .type = OPTION_LIST,                                                                      \
         .field = offsetof(struct lab_config, allow_root),                                         \
         .value = "DIR",                                                                           \
         .help = "A folder from which runs may be imported, besides the one that the program was " \
                 "started in; may be given many times."},                                          \
        {.name = "new-session",                                                                    \
         .type = OPTION_BOOL,                                                                      \
         .field = offsetof(struct lab_config, new_session),                                        \
         .help = "Begin a new session. Without it the last one goes on, and what was submitted "   \
                 "in it is still recognised when it is sent again."},                              \
        {.name = "review",                                                                         \
         .type = OPTION_TEXT,                                                                      \
         .field = offsetof(struct lab_config, review),                                             \
         .value = "RUN|PATH",                                                                      \
         .help = "Be about one run: one that was imported, or a path to import."},                 \
        {.name = "compare",                                                                        \
         .type = OPTION_TEXT,                                                                      \
         .field = offsetof(struct lab_config, compare),                                            \
         .value = "EXPERIMENT",                                                                    \
         .help = "Be about one experiment."},                                                      \
    {                                                                                              \
        .name = "exit-after-submit", .type = OPTION_NUMBER,                                        \
        .field = offsetof(struct lab_config, exit_after_submit), .fallback = "0", .value = "N",    \
        .max = 1000000,                                                                            \
        .help = "End after so many submissions for review or compare. 0 means 1 with one of "      \
                "them, and else never.",                                                           \
    }

/* For the table of section kinds: see base/sections.h. */
int lab_config_finish(void *lab, char *reason, size_t size);

/* Absolute; the caller frees. given: the setting, or NULL. given_wins: it was a flag, which goes
 * before the variable; a setting of a file does not. */
char *lab_config_root(const char *given, bool given_wins);
char *lab_config_feedback(const char *given, bool given_wins);

/* Where the program was started; the caller frees. */
char *lab_config_folder(void);

/* What the server has of it. */
struct lab_settings {
    struct section_list lab; /* struct lab_config; at most one. None: there is no Lab */
};

extern const struct feature_settings lab_settings;

#endif
