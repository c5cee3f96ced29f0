// SPDX-License-Identifier: Apache-2.0
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

void must_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "tidemark: %s:%d: this must hold: %s\n", file, line, what);
    abort();
}
