// SPDX-License-Identifier: Apache-2.0
/* mount.h -- serves something for a test, at any path, whoever asks. */
#ifndef TESTS_UNIT_HTTP_MOUNT_H
#define TESTS_UNIT_HTTP_MOUNT_H

#include "http/http.h"
#include "http/surface.h"

static inline void mount_for_test(struct http *http, const char *path,
                                  void (*handle)(void *ctx, struct exchange *x), void *ctx)
{
    static const struct surface_rule none[] = {{0}};
    static const struct surface surface = {.rules = none};
    http_mount_at(http, &surface, (struct http_place){.path = str_of_cstr(path)}, handle, ctx);
}

#endif
