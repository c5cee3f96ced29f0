// SPDX-License-Identifier: Apache-2.0
#include "http/rpc_head.h"
#include "base/err.h"
#include "base/num.h"

#define CONNECT_DIGITS 10 /* of Connect-Timeout-Ms */
#define GRPC_DIGITS    8  /* of grpc-timeout, in front of its unit */

static const struct type {
    struct str text;
    enum rpc_protocol protocol;
} types[] = {
    {STR_INIT("application/proto"), RPC_CONNECT_UNARY},
    {STR_INIT("application/connect+proto"), RPC_CONNECT_STREAM},
    {STR_INIT("application/grpc"), RPC_GRPC},
    {STR_INIT("application/grpc+proto"), RPC_GRPC},
};

static const struct type *type_of(struct str value)
{
    struct str name = str_trim(str_cut(&value, ';'));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_eq_nocase(name, types[i].text))
            return &types[i];
    return NULL;
}

struct str rpc_head_types(enum rpc_kind kind)
{
    return kind == RPC_UNARY
               ? STR("application/proto, application/grpc, application/grpc+proto")
               : STR("application/connect+proto, application/grpc, application/grpc+proto");
}

int rpc_head_protocol(struct rpc_head *h, const struct request *req, enum rpc_kind kind)
{
    if (req->method != METHOD_POST)
        return 405;
    const struct type *t = type_of(request_header(req, STR("Content-Type")));
    enum rpc_protocol connect = kind == RPC_UNARY ? RPC_CONNECT_UNARY : RPC_CONNECT_STREAM;
    if (t == NULL || (t->protocol != RPC_GRPC && t->protocol != connect))
        return 415;
    if (req->version < 20 && (kind == RPC_BIDI || t->protocol == RPC_GRPC))
        return 505;
    *h = (struct rpc_head){.protocol = t->protocol, .content_type = t->text};
    return 0;
}

/* ---- timeouts ---- */

static int read_connect_timeout(struct rpc_head *h, struct str value)
{
    if (value.n > CONNECT_DIGITS)
        return ERR_SYNTAX;
    return num_parse(value, UINT64_MAX, &h->timeout_ms);
}

/* Digits and a unit; what is shorter than a millisecond is one. */
static int read_grpc_timeout(struct rpc_head *h, struct str value)
{
    static const struct {
        char unit;
        uint64_t times, by;
    } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
                 {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};
    uint64_t n;
    if (value.n < 2 || value.n > GRPC_DIGITS + 1 ||
        num_parse(str_of(value.p, value.n - 1), UINT64_MAX, &n) != 0)
        return ERR_SYNTAX;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].unit == value.p[value.n - 1]) {
            h->timeout_ms = (n * units[i].times + units[i].by - 1) / units[i].by;
            return 0;
        }
    return ERR_SYNTAX;
}

static int read_timeout(struct rpc_head *h, const struct request *req)
{
    bool grpc = h->protocol == RPC_GRPC;
    struct str value = request_header(req, grpc ? STR("grpc-timeout") : STR("Connect-Timeout-Ms"));
    h->has_timeout = value.p != NULL;
    if (!h->has_timeout)
        return 0;
    return grpc ? read_grpc_timeout(h, value) : read_connect_timeout(h, value);
}

/* ---- compression ---- */

static struct str encoding_header(enum rpc_protocol protocol)
{
    switch (protocol) {
    case RPC_CONNECT_UNARY: return STR("Content-Encoding");
    case RPC_CONNECT_STREAM: return STR("Connect-Content-Encoding");
    case RPC_GRPC: break;
    }
    return STR("grpc-encoding");
}

struct str rpc_head_accept_encoding(enum rpc_protocol protocol)
{
    switch (protocol) {
    case RPC_CONNECT_UNARY: return STR("Accept-Encoding");
    case RPC_CONNECT_STREAM: return STR("Connect-Accept-Encoding");
    case RPC_GRPC: break;
    }
    return STR("grpc-accept-encoding");
}

static int read_encoding(struct rpc_head *h, const struct request *req, struct str *unknown)
{
    struct str value = request_header(req, encoding_header(h->protocol));
    h->gzip = str_eq_nocase(value, STR("gzip"));
    if (h->gzip || value.n == 0 || str_eq_nocase(value, STR("identity")))
        return 0;
    *unknown = value;
    return ERR_SYNTAX;
}

/* ---- all of it ---- */

int rpc_head_read(struct rpc_head *h, const struct request *req, struct arena *a, struct str *why)
{
    struct str version = request_header(req, STR("Connect-Protocol-Version")), unknown;
    if (h->protocol != RPC_GRPC && version.p != NULL && !str_eq(version, STR("1"))) {
        *why = STR("Connect-Protocol-Version must be 1");
        return GRPC_INVALID_ARGUMENT;
    }
    if (read_timeout(h, req) != 0) {
        *why = h->protocol == RPC_GRPC
                   ? STR("grpc-timeout must be up to 8 digits and one of H, M, S, m, u, n")
                   : STR("Connect-Timeout-Ms must be a number of up to 10 digits");
        return GRPC_INVALID_ARGUMENT;
    }
    if (read_encoding(h, req, &unknown) != 0) {
        *why = arena_printf(a, "compression \"%.*s\" is not known here; send gzip or identity",
                            (int)unknown.n, unknown.p);
        return GRPC_UNIMPLEMENTED;
    }
    return 0;
}
