// SPDX-License-Identifier: Apache-2.0
#include "store/names.h"

const struct store_names store_names[] = {
#define X(text, ...) {.prefix = STR_INIT(text), __VA_ARGS__},
    STORE_NAMES(X)
#undef X
        {.prefix = STR_INIT("")},
};

const struct store_doc_group store_doc_groups[] = {
    {STR_INIT("session/"), STR_INIT("sessions/")},
    {STR_INIT("sub/head/"), STR_INIT("sub/")},
    {STR_INIT("sub/link/"), STR_INIT("sub/")},
    {STR_INIT(""), STR_INIT("")},
};
