// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_config.h"
#include "base/ascii.h"
#include "base/err.h"
#include "feature/feature.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/route_config.h"
#include "feature/gateway/upstream_header.h"

#define PREFIX_MAX 64 /* bytes of telemetry-prefix */

static int gateway_config_check_route(struct str value, char *reason, size_t size)
{
    struct str path, url;
    return route_parse(value, &path, &url, reason, size);
}

static int gateway_config_check_prefix(struct str value, char *reason, size_t size)
{
    if (value.n <= PREFIX_MAX && ascii_is_word(value, "-._"))
        return 0;
    snprintf(reason, size, "expected up to %d letters, digits and -._", PREFIX_MAX);
    return ERR_SYNTAX;
}

/* ---- the tables ---- */

static const struct option_row rows[] = {
    {.name = "route",
     .type = OPTION_LIST,
     .field = offsetof(struct gateway_settings, route),
     .heading = "Routes",
     .value = "PATH=URL",
     .check = gateway_config_check_route,
     .help = "Send requests to this path on to this URL and make the answers resumable; may be "
             "given many times. [route PATH] in the file is the long form; where both name a path, "
             "the section's URL gives way."},
    {.name = "proxy",
     .type = OPTION_LIST,
     .field = offsetof(struct gateway_settings, proxy),
     .value = "PREFIX=URL",
     .check = gateway_config_check_route,
     .help = "The same for all paths below this one, whatever the method; streams of events that "
             "answer a POST are resumable. [route PREFIX] with `prefix = yes` is the long form."},
    {.name = "openai",
     .type = OPTION_TEXT,
     .field = offsetof(struct gateway_settings, openai),
     .value = "URL",
     .check = option_check_url,
     .help = "Stand in front of OpenAI's API, or one like it: --proxy /v1=URL. URL is "
             "https://api.openai.com, say; clients have http://THIS-SERVER/v1 as their base URL."},
    {.name = "anthropic",
     .type = OPTION_TEXT,
     .field = offsetof(struct gateway_settings, anthropic),
     .value = "URL",
     .check = option_check_url,
     .help = "The same for Anthropic's API. With both, requests to /v1/messages and /v1/complete, "
             "and those with the header anthropic-version, go to Anthropic's."},
    {.name = "telemetry-prefix",
     .type = OPTION_TEXT,
     .field = offsetof(struct gateway_settings, telemetry_prefix),
     .fallback = "assist.sse",
     .value = "PREFIX",
     .check = gateway_config_check_prefix,
     .help = "What the names of the routes' telemetry events begin with."},
};

static const struct section_kind sections[] = {
    {.word = "route",
     .name = "PATH",
     .size = sizeof(struct route_config),
     .name_field = offsetof(struct route_config, path),
     .list_field = offsetof(struct gateway_settings, routes),
     .options = &route_options,
     .check_name = route_check_path,
     .finish = route_finish,
     .help = "A path whose requests are sent on to an upstream, and whose answers are resumable."},
};

static const struct feature_secret secrets[] = {
    {.name = "SSE_RESUME_SECRET",
     .other = "HMAC_SECRET",
     .field = offsetof(struct gateway_settings, resume_secret),
     .signs = "resume tokens",
     .guards = true},
    {.name = "SSE_RESUME_SECRET_PREVIOUS",
     .field = offsetof(struct gateway_settings, resume_secret_previous),
     .guards = true},
};

/* ---- the short forms ---- */

#define MODELS_PATH "/v1" /* where SDKs of model providers expect their paths */

static struct str short_path(const char *text)
{
    struct str rest = str_of_cstr(text);
    return str_trim(str_cut(&rest, '='));
}

static bool is_given(const struct option_list *list, size_t n, struct str path)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(short_path(list->items[i]), path))
            return true;
    return false;
}

/* Sets an upstream of the section of this path, which is made if it is not there. */
static int apply(struct gateway_settings *s, struct str path, struct str setting, struct str url,
                 bool prefix, char *why, size_t size)
{
    const struct section_kind *kind = &sections[0];
    struct section section = {kind, sections_find(kind, s, path)};
    int err = section.settings ? 0 : sections_add(kind, s, path, &section, why, size);
    if (err == 0)
        err = options_set(&route_options, section.settings, setting, url, why, size);
    if (err == 0 && prefix)
        err = options_set(&route_options, section.settings, STR("prefix"), STR("yes"), why, size);
    return err == 0 ? section_finish(&section, why, size) : err;
}

/* The i-th `PATH=URL` of a list: another URL for a section of the file, or a route with defaults.
 */
static int apply_item(struct gateway_settings *s, const struct option_list *list, size_t i,
                      char *why, size_t size)
{
    struct str path, url;
    bool proxy = list == &s->proxy;
    route_parse(str_of_cstr(list->items[i]), &path, &url, why, size);
    bool in_file = list->source == OPTION_FROM_FILE && sections_find(&sections[0], s, path) != NULL;
    if (in_file || is_given(list, i, path) || (proxy && is_given(&s->route, s->route.n, path))) {
        snprintf(why, size, "the route %.*s is given twice", (int)path.n, path.p);
        return ERR_SYNTAX;
    }
    return apply(s, path, STR("upstream"), url, proxy, why, size);
}

/* Two providers share one path: who asks for which is told apart there. */
static int apply_providers(struct gateway_settings *s, char *why, size_t size)
{
    struct str path = STR(MODELS_PATH);
    const char *first = s->openai != NULL ? s->openai : s->anthropic;
    int err = 0;
    if (first == NULL)
        return 0;
    if (is_given(&s->route, s->route.n, path) || is_given(&s->proxy, s->proxy.n, path)) {
        snprintf(why, size, "the route " MODELS_PATH " is given twice");
        return ERR_SYNTAX;
    }
    err = apply(s, path, STR("upstream"), str_of_cstr(first), true, why, size);
    if (err == 0 && s->openai != NULL && s->anthropic != NULL)
        err = apply(s, path, STR("upstream-anthropic"), str_of_cstr(s->anthropic), true, why, size);
    return err;
}

static int gateway_settings_finish(void *settings, char *why, size_t size)
{
    struct gateway_settings *s = settings;
    const struct option_list *const lists[] = {&s->route, &s->proxy};
    int err = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; err == 0 && i < lists[l]->n; i++)
            err = apply_item(s, lists[l], i, why, size);
    return err == 0 ? apply_providers(s, why, size) : err;
}

/* ---- doubts ---- */

static bool bounds_a_buffer(const struct gateway_settings *s)
{
    const struct route_config *r = s->routes.items;
    for (size_t i = 0; i < s->routes.n; i++)
        if (r[i].trim == ROUTE_TRIM_LENIENT &&
            (!options_is_default(&route_options, &r[i], STR("buffer-max-events")) ||
             !options_is_default(&route_options, &r[i], STR("buffer-max-bytes"))))
            return true;
    return false;
}

/* Below a prefix clients come back by ids, which need no secret. */
static bool has_exact_route(const struct gateway_settings *s)
{
    const struct route_config *r = s->routes.items;
    for (size_t i = 0; i < s->routes.n; i++)
        if (!r[i].prefix)
            return true;
    return false;
}

static bool has_open_key(const struct gateway_settings *s)
{
    const struct route_config *r = s->routes.items;
    for (size_t i = 0; i < s->routes.n; i++)
        if (upstream_headers_are_open(&r[i].upstream_header))
            return true;
    return false;
}

void gateway_warn_secret(const struct feature_configs *all, struct feature_warnings *out)
{
    const struct gateway_settings *s = feature_config(all, "gateway");
    if (s->resume_secret == NULL)
        feature_warn(out, "SSE_RESUME_SECRET",
                     "is not set: answers carry no tokens to resume with");
}

static void gateway_settings_warnings(const void *settings, const struct feature_configs *all,
                                      struct feature_warnings *out)
{
    const struct gateway_settings *s = settings;
    if (has_exact_route(s))
        gateway_warn_secret(all, out);
    if (has_open_key(s))
        feature_warn(out, "upstream-header", "is in a file that other users can read: chmod o-r");
    if (all->embedded && bounds_a_buffer(s))
        feature_warn(out, "buffer-max-events",
                     "and buffer-max-bytes do not apply on disk: a route needs `trim = strict` "
                     "for them");
}

const struct feature_settings gateway_settings = {
    .size = sizeof(struct gateway_settings),
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
    .secrets = secrets,
    .n_secrets = sizeof secrets / sizeof *secrets,
    .example = "  [route /chat]\n"
               "  upstream = http://127.0.0.1:8000/v1/chat/completions\n"
               "  dialect = openai\n",
    .finish = gateway_settings_finish,
    .warnings = gateway_settings_warnings,
};
