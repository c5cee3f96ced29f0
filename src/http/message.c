// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"
#include "base/err.h"

struct str request_header(const struct request *req, struct str name)
{
    for (int i = 0; i < req->n_headers; i++)
        if (str_eq_nocase(req->headers[i].name, name))
            return req->headers[i].value;
    return STR_NONE;
}

int request_header_once(const struct request *req, struct str name, struct str *value)
{
    struct str found = STR_NONE;
    for (int i = 0; i < req->n_headers; i++) {
        if (!str_eq_nocase(req->headers[i].name, name))
            continue;
        if (found.p != NULL)
            return ERR_SYNTAX;
        found = req->headers[i].value;
    }
    *value = found;
    return 0;
}
