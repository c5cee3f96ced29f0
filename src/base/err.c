// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <stddef.h>

static const struct err_row {
    const char *name, *text;
    int http, grpc;
} rows[] = {{"OK", "ok", 200, 0},
#define X(name, code, http, grpc, text) [-(code)] = {#name, text, http, grpc},
            ERR_TABLE(X)
#undef X
};

static const struct err_row *row_of(int err)
{
    static const struct err_row unknown = {"INTERNAL", "internal error", 500, GRPC_INTERNAL};
    size_t i = (size_t)-err;
    return err <= 0 && i < sizeof rows / sizeof *rows && rows[i].name ? &rows[i] : &unknown;
}

const char *err_name(int err)
{
    return row_of(err)->name;
}

const char *err_text(int err)
{
    return row_of(err)->text;
}

int err_http_status(int err)
{
    return row_of(err)->http;
}

int err_grpc_status(int err)
{
    return row_of(err)->grpc;
}
