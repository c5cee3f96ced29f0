// SPDX-License-Identifier: Apache-2.0
#include "http/inert.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void is_harmless(void **state)
{
    static const char *const types[] = {
        "text/plain",
        "Text/Plain; charset=utf-8",
        "text/plain ;x=\"y\"",
        "text/event-stream",
        "application/json",
        "application/jwk-set+json",
        "application/octet-stream",
        "application/grpc",
        "application/grpc+proto",
        "application/connect+proto",
        "image/png",
        "IMAGE/JPEG",
        "audio/mpeg",
        "video/mp4",
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!inert_type(str_of_cstr(types[i])))
            fail_msg("%s", types[i]);
}

static void is_rendered_or_run(void **state)
{
    static const char *const types[] = {
        "text/html",
        "TEXT/HTML",
        "text/html;charset=utf-8",
        " text/html",
        "application/xhtml+xml",
        "image/svg+xml",
        "text/xml",
        "application/xml",
        "application/atom+xml",
        "application/pdf",
        "text/javascript",
        "application/javascript",
        "text/css",
        "multipart/related; boundary=x",
        "multipart/x-mixed-replace; boundary=x",
        "message/rfc822",
        "application/x-shockwave-flash",
        "text/x-unheard-of",
        "*/*",
        "text/*",
        "image/*",
        "audio",
        "+jso",
        "",
        /* browsers take the last of a list */
        "text/plain,text/html",
        "text/plain;,text/html",
        "text/plain;x=\",text/html",
        "text/plain\t,\ttext/html",
        "application/json, text/html",
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (inert_type(str_of_cstr(types[i])))
            fail_msg("%s", types[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_harmless),
                                       cmocka_unit_test(is_rendered_or_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
