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

const char *err_grpc_name(int grpc_status)
{
    static const char *const names[] = {
        [0] = "ok",
        [GRPC_CANCELLED] = "canceled",
        [GRPC_UNKNOWN] = "unknown",
        [GRPC_INVALID_ARGUMENT] = "invalid_argument",
        [GRPC_DEADLINE_EXCEEDED] = "deadline_exceeded",
        [GRPC_NOT_FOUND] = "not_found",
        [GRPC_ALREADY_EXISTS] = "already_exists",
        [GRPC_PERMISSION_DENIED] = "permission_denied",
        [GRPC_RESOURCE_EXHAUSTED] = "resource_exhausted",
        [GRPC_FAILED_PRECONDITION] = "failed_precondition",
        [GRPC_ABORTED] = "aborted",
        [GRPC_OUT_OF_RANGE] = "out_of_range",
        [GRPC_UNIMPLEMENTED] = "unimplemented",
        [GRPC_INTERNAL] = "internal",
        [GRPC_UNAVAILABLE] = "unavailable",
        [GRPC_DATA_LOSS] = "data_loss",
        [GRPC_UNAUTHENTICATED] = "unauthenticated",
    };
    size_t i = (size_t)grpc_status;
    return names[grpc_status >= 0 && i < sizeof names / sizeof *names ? i : GRPC_UNKNOWN];
}
