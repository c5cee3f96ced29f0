// SPDX-License-Identifier: Apache-2.0
#include "app/issuer_keys.h"
#include "base/env_secret.h"
#include "base/err.h"
#include "base/http_url.h"
#include "base/mem.h"
#include "base/options.h"
#include "net/addr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PREVIOUS   "_PREVIOUS"
#define NAME_MAX_N 64 /* of a variable, that included */

/* ---- URLs ---- */

static bool is_url(struct str jwks)
{
    return str_starts(jwks, STR("https:")) || str_starts(jwks, STR("http:"));
}

static bool is_this_machine(struct str host)
{
    struct sockaddr_storage sa;
    return str_eq_nocase(host, STR("localhost")) ||
           (addr_parse_ip(host, &sa) == 0 &&
            addr_classify((const struct sockaddr *)&sa, sizeof sa) == ADDR_LOOPBACK);
}

int issuer_keys_check(struct str jwks, char *reason, size_t size)
{
    struct url url;
    if (!is_url(jwks))
        return jwks.n > 0 ? 0 : ERR_SYNTAX;
    if (url_parse(jwks, &url) != 0)
        return ERR_SYNTAX;
    if (url.tls || is_this_machine(url.host))
        return 0;
    snprintf(reason, size, "keys come by https, or else from this machine");
    return ERR_SYNTAX;
}

/* ---- files ---- */

struct jwk_policy issuer_keys_algs(const struct issuer_source *c)
{
    struct jwk_policy policy = {.rsa = JWK_RS256};
    for (size_t i = 0; i < c->alg->n; i++) {
        enum jwk_alg alg;
        if (jwk_alg_find(str_of_cstr(c->alg->items[i]), &alg))
            policy.allowed |= 1u << alg;
    }
    if (policy.allowed != 0 && (policy.allowed & 1u << JWK_RS256) == 0)
        policy.rsa = JWK_PS256;
    return policy;
}

/* The whole file, up to a byte more than there may be. It is read again while the server runs, and
 * a pipe could keep it from everything else. */
static int read_keys_file(const char *path, char *text, size_t *n, char *reason, size_t size)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        snprintf(reason, size, "%.200s is no regular file", path);
        return ERR_SYNTAX;
    }
    FILE *f = fopen(path, "re");
    bool failed = f == NULL;
    if (f != NULL) {
        *n = fread(text, 1, JWK_TEXT_MAX + 1, f);
        failed = ferror(f) != 0;
        fclose(f);
    }
    if (failed)
        snprintf(reason, size, "cannot read %.200s: %s", path, strerror(errno));
    return failed ? ERR_SYNTAX : 0;
}

static int load_file(const struct issuer_source *c, struct jwk_set **out, char *reason, size_t size)
{
    struct jwk_policy policy = issuer_keys_algs(c);
    char why[200] = "", *text = mem_alloc(JWK_TEXT_MAX + 1);
    size_t n = 0;
    int err = read_keys_file(c->jwks, text, &n, reason, size);
    struct str all = str_of(text, n);
    if (err == 0) {
        err = str_starts(all, STR("-----BEGIN"))
                  ? jwk_set_from_pem(all, STR(""), &policy, out, why, sizeof why)
                  : jwk_set_parse(all, &policy, out, why, sizeof why);
        if (err != 0)
            snprintf(reason, size, "%.120s: %s", c->jwks, why);
    }
    free(text);
    return err != 0 ? ERR_SYNTAX : 0;
}

/* ---- secrets ---- */

static void previous_name(const struct issuer_source *c, char name[NAME_MAX_N])
{
    snprintf(name, NAME_MAX_N, "%.48s%s", c->secret_env, PREVIOUS);
}

static struct jwk_secret secret_of(const char *text)
{
    return (struct jwk_secret){.bytes = text != NULL ? str_of_cstr(text) : STR_NONE};
}

static int load_secret(const struct issuer_source *c, struct jwk_set **out, char *reason,
                       size_t size)
{
    char *current = NULL, *previous = NULL, other[NAME_MAX_N];
    previous_name(c, other);
    if (env_secret_is_pipe(c->secret_env) || env_secret_is_pipe(other)) {
        snprintf(reason, size, "%s_FILE names no regular file", c->secret_env);
        return ERR_SYNTAX;
    }
    int err = env_secret_get(c->secret_env, &current, reason, size);
    if (err == 0)
        err = env_secret_get(other, &previous, reason, size);
    if (err == 0 && current == NULL) {
        snprintf(reason, size, "the variable %s is not set", c->secret_env);
        err = ERR_SYNTAX;
    }
    struct jwk_secret now = secret_of(current), before = secret_of(previous);
    if (err == 0)
        err = jwk_set_from_secret(&now, &before, out, reason, size);
    env_secret_drop(&current);
    env_secret_drop(&previous);
    return err;
}

void issuer_keys_hide(const struct issuer_source *c)
{
    char other[NAME_MAX_N];
    previous_name(c, other);
    env_secret_hide(c->secret_env);
    env_secret_hide(other);
}

/* ---- either ---- */

int issuer_keys_load(const struct issuer_source *c, struct jwk_set **out, char *reason, size_t size)
{
    *out = NULL;
    if (c->secret_env != NULL)
        return load_secret(c, out, reason, size);
    return is_url(str_of_cstr(c->jwks)) ? 0 : load_file(c, out, reason, size);
}
