// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

static const struct err_row {
    const char *name, *text;
    int http, grpc;
} rows[] = {{"OK", "ok", 200, 0},
#define X(name, code, http, grpc, text) [-(code)] = {#name, text, http, grpc},
            ERR_TABLE(X)
#undef X
};

static const struct err_row *err_row_of(int err)
{
    static const struct err_row unknown = {"INTERNAL", "internal error", 500, GRPC_INTERNAL};
    size_t i = (size_t)-err;
    return err <= 0 && i < sizeof rows / sizeof *rows && rows[i].name ? &rows[i] : &unknown;
}

const char *err_name(int err)
{
    return err_row_of(err)->name;
}

const char *err_text(int err)
{
    return err_row_of(err)->text;
}

int err_http_status(int err)
{
    return err_row_of(err)->http;
}

int err_grpc_status(int err)
{
    return err_row_of(err)->grpc;
}

static const struct grpc_row {
    const char *name;
    int http;
} grpc_rows[] = {
    [0] = {"ok", 200},
    [GRPC_CANCELLED] = {"canceled", 499},
    [GRPC_UNKNOWN] = {"unknown", 500},
    [GRPC_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [GRPC_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [GRPC_NOT_FOUND] = {"not_found", 404},
    [GRPC_ALREADY_EXISTS] = {"already_exists", 409},
    [GRPC_PERMISSION_DENIED] = {"permission_denied", 403},
    [GRPC_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [GRPC_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [GRPC_ABORTED] = {"aborted", 409},
    [GRPC_OUT_OF_RANGE] = {"out_of_range", 400},
    [GRPC_UNIMPLEMENTED] = {"unimplemented", 501},
    [GRPC_INTERNAL] = {"internal", 500},
    [GRPC_UNAVAILABLE] = {"unavailable", 503},
    [GRPC_DATA_LOSS] = {"data_loss", 500},
    [GRPC_UNAUTHENTICATED] = {"unauthenticated", 401},
};

static const struct grpc_row *grpc_row_of(int grpc_status)
{
    size_t i = (size_t)grpc_status;
    bool known = grpc_status >= 0 && i < sizeof grpc_rows / sizeof *grpc_rows;
    return &grpc_rows[known ? i : GRPC_UNKNOWN];
}

const char *err_grpc_name(int grpc_status)
{
    return grpc_row_of(grpc_status)->name;
}

int err_grpc_http(int grpc_status)
{
    return grpc_row_of(grpc_status)->http;
}
