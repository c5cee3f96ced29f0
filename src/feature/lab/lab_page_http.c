// SPDX-License-Identifier: Apache-2.0
/* lab_page_http.c -- the page, from the files in lab_page/ as they were when this was built. */
#include "http/exchange.h"
#include "feature/lab/lab_http_core.h"

struct lab_file {
    struct str path; /* /lab is index.html */
    struct str type, bytes;
};
#include "lab_page.h" /* lab_files[] */

/* Nothing but what came from here, and in nobody's frame. */
static const struct header page_headers[] = {
    {STR_INIT("Cache-Control"), STR_INIT("no-store")},
    {STR_INIT("Content-Security-Policy"),
     STR_INIT("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
              "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
              "frame-ancestors 'none'")},
    {STR_INIT("X-Frame-Options"), STR_INIT("DENY")},
    {STR_INIT("Referrer-Policy"), STR_INIT("no-referrer")},
};

static const struct lab_file *lab_page_find(struct str path)
{
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    for (size_t i = 0; i < sizeof lab_files / sizeof *lab_files; i++)
        if (str_eq(lab_files[i].path, path))
            return &lab_files[i];
    return NULL;
}

bool lab_page_serve(struct exchange *x)
{
    const struct lab_file *f = lab_page_find(x->request->path);
    if (f == NULL)
        return false;
    exchange_header(x, STR("Content-Type"), f->type);
    for (size_t i = 0; i < sizeof page_headers / sizeof *page_headers; i++)
        exchange_header(x, page_headers[i].name, page_headers[i].value);
    struct slice s = slice_static(f->bytes);
    exchange_send_slices(x, &s, 1);
    return true;
}
