// SPDX-License-Identifier: Apache-2.0
/* canonical -- what canonical.test.mjs asks: texts come in on stdin, each with a NUL behind it, and
 * for each goes out its canonical form, or `!` and the error's name, and a NUL. */
#include "base/err.h"
#include "base/json_canonical.h"

#include <stdio.h>

static void answer(struct str text)
{
    struct buf out = {0};
    int err = json_canonical(text, STR_NONE, &out);
    if (err != 0)
        buf_printf(&out, "!%s", err_name(err));
    buf_putc(&out, '\0');
    fwrite(out.p, 1, out.n, stdout);
    buf_deinit(&out);
}

int main(void)
{
    struct buf text = {0};
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\0') {
            buf_putc(&text, (char)c);
            continue;
        }
        answer(buf_str(&text));
        text.n = 0;
    }
    buf_deinit(&text);
    return fflush(stdout) != 0 || ferror(stdin);
}
