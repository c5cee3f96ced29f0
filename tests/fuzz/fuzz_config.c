// SPDX-License-Identifier: Apache-2.0
/* fuzz_config.c -- config files: whatever their bytes, they are taken or an error names a line of
 * theirs. What is taken is taken as well with other ends of lines and with comments between them.
 */
#include "base/buf.h"
#include "base/err.h"
#include "app/config.h"
#include "app/config_file.h"
#include "app/config_tables.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX 4096
#define NAME      "f"

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_config: %s\n", what);
    abort();
}

static size_t lines_of(struct str text)
{
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    return lines;
}

/* Whether it was taken. */
static bool parse(struct str text)
{
    struct config c = {.tables = config_tables()};
    const struct config_tables *t = c.tables;
    char why[512] = "";
    check(options_defaults(&t->options, &c, why, sizeof why) == 0, "the defaults");
    int err = config_file_parse(NAME, text, &t->options, &t->kinds, &c, why, sizeof why);
    unsigned long line = strncmp(why, NAME ":", 2) == 0 ? strtoul(why + 2, NULL, 10) : 0;
    check(err == 0 || err == ERR_SYNTAX, "an error of another kind");
    check(err == 0 || (line >= 1 && line <= lines_of(text)), "an error that names no line");
    config_deinit(&c);
    return err == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = str_of((const char *)data, n);
    if (n > INPUT_MAX || !parse(text))
        return 0;
    struct buf other = {0};
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_skip(text, 3);
    while (text.p != NULL) {
        struct str line = str_cut(&text, '\n');
        buf_put(&other, STR("; data = x\r\n \t"));
        buf_put(&other, line);
        buf_put(&other, STR(" \r\n"));
    }
    check(parse(buf_str(&other)), "blanks and comments change what is taken");
    buf_deinit(&other);
    return 0;
}
