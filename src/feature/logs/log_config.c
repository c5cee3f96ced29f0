// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log_config.h"
#include "base/ascii.h"
#include "feature/feature.h"
#include "base/err.h"
#include "base/units.h"
#include "feature/logs/log.h"

#include <limits.h>

int log_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._"))
        return 0;
    snprintf(reason, size, "a log's name is made of letters, digits and -._");
    return ERR_SYNTAX;
}

/* A folder is no log, and neither is what no system can open. */
static int log_config_check_path(struct str value, char *reason, size_t size)
{
    return value.n > 0 && value.n < PATH_MAX && value.p[value.n - 1] != '/' ? 0 : ERR_SYNTAX;
}

#define ROW(...) OPTION_ROW(struct log_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("path", OPTION_TEXT, path), .value = "FILE", .required = true,
     .check = log_config_check_path,
     .help = "The file: JSON objects, one a line. It need not be there yet, and others may append "
             "to it at any time."},
    {ROW("read-only", OPTION_BOOL, read_only), .fallback = "no",
     .help = "Whether appends are refused, so that the file is only read."},
    {ROW("max-append", OPTION_SIZE, max_append_bytes), .fallback = "1m", .value = "SIZE",
     .min = KIB, .max = LOG_LINE_MAX,
     .help = "The largest body of one append; a larger one is answered 413."},
    {ROW("key-lifetime", OPTION_DURATION, key_lifetime_ms), .fallback = "24h", .value = "TIME",
     .min = SECOND_MS, .max = 365 * DAY_MS,
     .help = "How long an idempotency key stands for the append that it came with."},
};
const struct options log_options = {rows, sizeof rows / sizeof *rows};

/* ---- the feature's ---- */

static const struct section_kind sections[] = {
    {.word = "log",
     .name = "NAME",
     .size = sizeof(struct log_config),
     .name_field = offsetof(struct log_config, name),
     .list_field = offsetof(struct logs_settings, logs),
     .options = &log_options,
     .check_name = log_check_name,
     .help = "A file of JSON objects, one a line, that is read, followed and appended to at "
             "/v1/log/NAME."},
};

const struct feature_settings logs_settings = {
    .size = sizeof(struct logs_settings),
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
};
