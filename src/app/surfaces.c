// SPDX-License-Identifier: Apache-2.0
#include "app/surfaces.h"
#include "app/config.h"
#include "app/config_tables.h"
#include "app/health.h"
#include "feature/feature.h"
#include "http/http.h"
#include "http/surface.h"
#include "stream/access_http.h"
#include "stream/durable.h"

#include <stdlib.h>

static const struct surface *const own[] = {&durable_surface, &access_surface,
                                            &health_metrics_surface, &health_live_surface,
                                            &health_ready_surface};
#define N_OWN (sizeof own / sizeof *own)

const struct surface *surfaces_next(size_t *at, const char **owner)
{
    size_t i = (*at)++;
    *owner = "server";
    if (i < N_OWN)
        return own[i];
    i -= N_OWN;
    for (size_t f = 0; features[f] != NULL; f++) {
        *owner = features[f]->name;
        for (const struct surface *const *s = features[f]->surfaces; s != NULL && *s != NULL; s++)
            if (i-- == 0)
                return *s;
    }
    return NULL;
}

/* ---- mounted ---- */

static void mount_section(struct http *http, const struct surface *surface, const struct feature *f,
                          const void *section, const char *path)
{
    if (path[0] != '/' || (f->surface_of != NULL && f->surface_of(section) != surface))
        return;
    struct http_place place = {.path = str_of_cstr(path), .configured = true};
    http_mount_at(http, surface, place, NULL, NULL);
}

/* Sections of a feature that are named by paths are where it serves that surface. */
static void mount_sections(struct http *http, const struct surface *surface, const char *owner,
                           const struct config *c)
{
    for (size_t f = 0; features[f] != NULL; f++) {
        const struct feature_settings *s = features[f]->settings;
        if (strcmp(features[f]->name, owner) != 0 || s == NULL)
            continue;
        for (size_t k = 0; k < s->n_sections; k++) {
            const struct section_kind *kind = &s->sections[k];
            const struct section_list *list =
                (const void *)((const char *)c->features.of[f] + kind->list_field);
            for (size_t i = 0; kind->name != NULL && i < list->n; i++) {
                const char *section = (const char *)list->items + i * kind->size;
                mount_section(http, surface, features[f], section,
                              *(char *const *)(section + kind->name_field));
            }
        }
    }
}

void surfaces_mount(struct http *http, const struct config *c)
{
    const struct surface *surface;
    const char *owner;
    for (size_t at = 0; (surface = surfaces_next(&at, &owner)) != NULL;) {
        if (surface->path != NULL)
            http_mount(http, surface, NULL, NULL);
        else
            mount_sections(http, surface, owner, c);
    }
}

void surfaces_unmount(struct http *http)
{
    free(http->routes);
    http->routes = NULL;
    http->n_routes = 0;
}
