// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_config.h"
#include "base/ascii.h"
#include "feature/feature.h"
#include "feature/gateway/gateway.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/cascade/cascade_discovery.h"
#include "feature/cascade/cascade_keys.h"
#include "http/url.h"
#include "net/addr.h"

#include <stdlib.h>

/* ---- checks ---- */

/* Names are not looked up: what `localhost` leads to is not ours to trust. */
static bool is_this_machine(struct str host)
{
    struct sockaddr_storage sa;
    return str_eq_nocase(host, STR("localhost")) ||
           (addr_parse_ip(host, &sa) == 0 &&
            addr_classify((struct sockaddr *)&sa, sizeof sa) == ADDR_LOOPBACK);
}

static int cascade_config_check_target(struct str value, char *reason, size_t size)
{
    struct url url;
    if (str_eq(value, STR(CASCADE_DISCOVER)))
        return 0;
    if (url_parse(value, &url) != 0 || !str_eq_nocase(url.scheme, STR("http")) ||
        url.query.p != NULL || url.path.n > 1)
        return ERR_SYNTAX;
    if (is_this_machine(url.host))
        return 0;
    snprintf(reason, size, "a language server is spoken to on this machine only: 127.0.0.1 or ::1");
    return ERR_SYNTAX;
}

static bool is_visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~')
            return false;
    return s.n > 0;
}

/* It becomes a header. */
static int cascade_config_check_csrf(struct str value, char *reason, size_t size)
{
    return value.n <= CASCADE_CSRF_MAX && is_visible(value) ? 0 : ERR_SYNTAX;
}

static int cascade_config_check_key(struct str value, char *reason, size_t size)
{
    const char *refusal = cascade_key_refusal(cascade_key_kind(value));
    if (refusal == NULL)
        return 0;
    snprintf(reason, size, "%s", refusal);
    return ERR_SYNTAX;
}

static int cascade_config_check_version(struct str value, char *reason, size_t size)
{
    return value.n <= CASCADE_VERSION_MAX && ascii_is_word(value, ".-") ? 0 : ERR_SYNTAX;
}

/* ---- secrets ---- */

/* It may find secrets, whatever the settings hold. */
static bool cascade_shield(const void *settings)
{
    const struct cascade_settings *s = settings;
    return s->bridges.n > 0;
}

static void cascade_forget(void *settings)
{
    const struct cascade_settings *s = settings;
    struct cascade_config *bridges = s->bridges.items;
    for (size_t i = 0; i < s->bridges.n; i++) {
        env_secret_drop(&bridges[i].csrf_token);
        env_secret_drop(&bridges[i].api_key);
    }
}

static int take_variable(char **secret, const char *name,
                         int (*check)(struct str value, char *reason, size_t size), char *reason,
                         size_t size)
{
    char why[200] = "", *value;
    if (*secret != NULL)
        return 0;
    int err = env_secret_get(name, &value, reason, size);
    if (err != 0 || value == NULL)
        return err;
    err = check(str_of_cstr(value), why, sizeof why);
    if (err == 0) {
        *secret = value;
        return 0;
    }
    snprintf(reason, size, "%s cannot be used%s%s", name, *why ? ": " : "", why);
    env_secret_drop(&value);
    return err;
}

/* ---- together ---- */

static void spell_target(struct cascade_config *c)
{
    struct url url;
    if (url_parse(str_of_cstr(c->target), &url) != 0)
        return;
    bool name = str_eq_nocase(url.host, STR("localhost"));
    bool six = memchr(url.host.p, ':', url.host.n) != NULL;
    struct str host = name ? STR("127.0.0.1") : url.host;
    size_t room = host.n + sizeof "http://[]:65535";
    char *text = mem_alloc(room);
    snprintf(text, room, "http://%s%.*s%s:%u", six ? "[" : "", (int)host.n, host.p, six ? "]" : "",
             url.port);
    free(c->target);
    c->target = text;
}

int cascade_config_finish(void *cascade, char *reason, size_t size)
{
    struct cascade_config *c = cascade;
    bool discover = strcmp(c->target, CASCADE_DISCOVER) == 0;
    int err = take_variable(&c->csrf_token, "WINDSURF_CSRF_TOKEN", cascade_config_check_csrf,
                            reason, size);
    if (err == 0)
        err =
            take_variable(&c->api_key, "WINDSURF_API_KEY", cascade_config_check_key, reason, size);
    if (err == 0 && !discover && c->csrf_token == NULL) {
        snprintf(reason, size,
                 "csrf-token is missing; give it, or WINDSURF_CSRF_TOKEN in the environment, or "
                 "let it be found with target = " CASCADE_DISCOVER);
        err = ERR_SYNTAX;
    }
    if (err == 0 && !discover)
        spell_target(c);
    return err;
}

/* ---- the table ---- */

#define ROW(...) OPTION_ROW(struct cascade_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("target", OPTION_TEXT, target), .value = "http://127.0.0.1:PORT|discover",
     .required = true, .check = cascade_config_check_target,
     .help = "Where the editor's language server listens, on this machine. discover: it is found "
             "among this user's processes, with its token."},
    {ROW("csrf-token", OPTION_TEXT, csrf_token), .value = "TOKEN", .secret = true,
     .check = cascade_config_check_csrf,
     .help = "What the language server wants to be shown. Without it WINDSURF_CSRF_TOKEN of the "
             "environment, or with target = discover what is found."},
    {ROW("api-key", OPTION_TEXT, api_key), .value = "KEY", .secret = true,
     .check = cascade_config_check_key,
     .help = "The key of the account. Without it WINDSURF_API_KEY of the environment, or else the "
             "one in the editor's state file."},
    {ROW("version", OPTION_TEXT, version), .value = "VERSION",
     .check = cascade_config_check_version,
     .help = "The editor's version, as the language server is told. Without it what is found, "
             "or " CASCADE_VERSION_DEFAULT "."},
    {ROW("timeout", OPTION_DURATION, timeout_ms), .fallback = "5m", .value = "TIME",
     BETWEEN(SECOND_MS, DAY_MS), .help = "How long one answer may take in all."},
    {ROW("parallel", OPTION_NUMBER, parallel), .fallback = "0", .value = "N", BETWEEN(0, 1000000),
     .help = "Answers under way at the same time; further requests are answered 429. 0 sets no "
             "bound."},
    {ROW("tools", OPTION_CHOICE, tools), .fallback = "ignore", .value = "ignore|refuse",
     .help = "What to do with tools that a request offers: a Cascade cannot be given any. ignore: "
             "leave them out, and say so once in a trace. refuse: answer 400."},
};
const struct options cascade_options = {rows, sizeof rows / sizeof *rows};

/* ---- the feature's ---- */

static const struct section_kind sections[] = {
    {.word = "cascade",
     .size = sizeof(struct cascade_config),
     .list_field = offsetof(struct cascade_settings, bridges),
     .options = &cascade_options,
     .finish = cascade_config_finish,
     .help = "A bridge to the language server of an editor on this machine, at "
             "/v1/chat/completions and /v1/models."},
};

/* Its answers can be resumed as those of routes can. */
static void cascade_settings_warnings(const void *settings, const struct feature_configs *all,
                                      struct feature_warnings *out)
{
    if (((const struct cascade_settings *)settings)->bridges.n > 0)
        gateway_warn_secret(all, out);
}

const struct feature_settings cascade_settings = {
    .size = sizeof(struct cascade_settings),
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
    .warnings = cascade_settings_warnings,
    .shield = cascade_shield,
    .forget = cascade_forget,
};
