// SPDX-License-Identifier: Apache-2.0
#include "store/redis/client/redis_url.h"
#include "base/ascii.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/num.h"
#include "net/addr.h"

#include <stdio.h>
#include <stdlib.h>

#define URL_MAX       4096
#define PORT_REDIS    6379
#define PORT_SENTINEL 26379
#define DB_MAX        65535

struct scheme {
    struct str prefix;
    enum redis_kind kind;
    bool tls, is_path;
};
static const struct scheme schemes[] = {
    {STR_INIT("redis://"), REDIS_ONE, false, false},
    {STR_INIT("rediss://"), REDIS_ONE, true, false},
    {STR_INIT("redis+sentinel://"), REDIS_SENTINEL, false, false},
    {STR_INIT("rediss+sentinel://"), REDIS_SENTINEL, true, false},
    {STR_INIT("redis+cluster://"), REDIS_CLUSTER, false, false},
    {STR_INIT("rediss+cluster://"), REDIS_CLUSTER, true, false},
    {STR_INIT("redis+unix://"), REDIS_ONE, false, true},
    {STR_INIT("unix:"), REDIS_ONE, false, true},
};
static const struct str setting_names[] = {STR_INIT("ca"), STR_INIT("prefix"), STR_INIT("wait"),
                                           STR_INIT("db")};
#define N(table) (sizeof(table) / sizeof *(table))

/* What is being taken apart; the first failure has its sentence. */
struct reading {
    struct redis_url *url;
    const struct scheme *scheme;
    char *why;
    size_t size;
};

static int redis_url_refuse(const struct reading *r, const char *what)
{
    snprintf(r->why, r->size, "%s", what);
    return ERR_SYNTAX;
}

/* Without its %XX, none of which may be a NUL. */
static int redis_url_decode(struct reading *r, struct str s, struct str *out)
{
    char *into = arena_alloc(&r->url->memory, s.n + 1);
    size_t n;
    if (!percent_decode(s, false, into, &n) || memchr(into, '\0', n) != NULL)
        return redis_url_refuse(r, "a `%` in it is not followed by two hexadecimal digits");
    into[n] = '\0';
    *out = str_of(into, n);
    return 0;
}

/* ---- its parts ---- */

static int take_user(struct reading *r, struct str user_info)
{
    struct str password = user_info, user = str_cut(&password, ':');
    if (password.p == NULL)
        return redis_url_refuse(r, "a user name needs a password behind it: user:password@");
    if (user.n > 0 && redis_url_decode(r, user, &r->url->user) != 0)
        return ERR_SYNTAX;
    return redis_url_decode(r, password, &r->url->password);
}

static bool is_name(struct str host)
{
    return ascii_is_word(host, "-._");
}

/* host, host:port, [v6], [v6]:port */
static int redis_url_take_addr(struct reading *r, struct str text)
{
    struct redis_url *u = r->url;
    struct str host, port = STR_NONE;
    if (u->n_addrs == REDIS_ADDRS_MAX)
        return redis_url_refuse(r, "it names too many hosts");
    if (text.n > 0 && text.p[0] == '[') {
        struct sockaddr_storage sa;
        port = str_skip(text, 1);
        host = str_cut(&port, ']');
        if (port.p == NULL || addr_parse_ip(host, &sa) != 0 || sa.ss_family != AF_INET6)
            return redis_url_refuse(r, "what stands in brackets is not an IPv6 address");
        if (port.n > 0 && port.p[0] != ':')
            return redis_url_refuse(r, "only a port may follow an address in brackets");
        port = port.n > 0 ? str_skip(port, 1) : STR_NONE;
    } else {
        port = text;
        host = str_cut(&port, ':');
        if (!is_name(host))
            return redis_url_refuse(r, "a host is not a name or an address");
    }
    uint64_t number = u->kind == REDIS_SENTINEL ? PORT_SENTINEL : PORT_REDIS;
    if (port.p != NULL && (num_parse(port, UINT16_MAX, &number) != 0 || number == 0))
        return redis_url_refuse(r, "a port is not a number between 1 and 65535");
    if (host.n > REDIS_HOST_MAX)
        return redis_url_refuse(r, "the name of a host is too long");
    struct redis_addr *p = &u->addrs[u->n_addrs++];
    memcpy(p->host, host.p, host.n);
    p->host[host.n] = '\0';
    p->port = (uint16_t)number;
    return 0;
}

static int take_path(struct reading *r, struct str path)
{
    struct redis_url *u = r->url;
    struct str decoded;
    if (redis_url_decode(r, path, &decoded) != 0)
        return ERR_SYNTAX;
    if (decoded.n == 0 || decoded.n > ADDR_PATH_MAX)
        return redis_url_refuse(r, "the path of a Unix socket has between 1 and 107 bytes");
    memcpy(u->addrs[0].host, decoded.p, decoded.n + 1);
    u->n_addrs = 1;
    return 0;
}

static int take_db(struct reading *r, struct str text)
{
    uint64_t db;
    if (num_parse(text, DB_MAX, &db) != 0)
        return redis_url_refuse(r, "the database is not a number");
    r->url->db = (uint32_t)db;
    return 0;
}

/* What stands behind the hosts: /db, /NAME, /NAME/db, or nothing. */
static int take_tail(struct reading *r, struct str tail)
{
    if (r->url->kind == REDIS_SENTINEL) {
        struct str name = str_cut(&tail, '/');
        if (name.n == 0)
            return redis_url_refuse(r, "the name that Sentinels know the primary by is missing: "
                                       "redis+sentinel://host:port,.../NAME");
        if (redis_url_decode(r, name, &r->url->name) != 0)
            return ERR_SYNTAX;
    }
    if (tail.n == 0)
        return 0;
    if (r->url->kind == REDIS_CLUSTER)
        return redis_url_refuse(r, "a cluster has no databases to choose from");
    return take_db(r, tail);
}

static int take_authority(struct reading *r, struct str text)
{
    struct str tail = text, hosts = str_cut(&tail, '/');
    struct str addrs = hosts;
    do {
        if (redis_url_take_addr(r, str_cut(&addrs, ',')) != 0)
            return ERR_SYNTAX;
    } while (addrs.p != NULL);
    if (r->url->kind == REDIS_ONE && r->url->n_addrs > 1)
        return redis_url_refuse(r, "several hosts are for redis+sentinel:// and redis+cluster://");
    return take_tail(r, tail);
}

static int take_setting(struct reading *r, struct str setting)
{
    struct redis_url *u = r->url;
    struct str value = setting, name = str_cut(&value, '=');
    bool known = false;
    for (size_t i = 0; i < N(setting_names); i++)
        known = known || str_eq(name, setting_names[i]);
    if (!known)
        return redis_url_refuse(r, "behind `?` it takes ca=, prefix=, wait= and db=");
    if (redis_url_setting(u, name).p != NULL || u->n_settings == REDIS_SETTINGS_MAX)
        return redis_url_refuse(r, "a setting behind `?` is given twice");
    struct redis_setting *s = &u->settings[u->n_settings++];
    s->name = arena_dup(&u->memory, name);
    if (redis_url_decode(r, value, &s->value) != 0)
        return ERR_SYNTAX;
    if (str_eq(name, STR("ca")) && !u->tls)
        return redis_url_refuse(r, "ca= is for TLS: rediss://");
    if (!str_eq(name, STR("db")))
        return 0;
    if (u->kind == REDIS_CLUSTER)
        return redis_url_refuse(r, "a cluster has no databases to choose from");
    return take_db(r, s->value);
}

static int take_settings(struct reading *r, struct str query)
{
    while (query.p != NULL) {
        struct str setting = str_cut(&query, '&');
        if (setting.n > 0 && take_setting(r, setting) != 0)
            return ERR_SYNTAX;
    }
    return 0;
}

/* ---- the whole ---- */

static const struct scheme *scheme_of(struct str text)
{
    for (size_t i = 0; i < N(schemes); i++)
        if (str_starts(text, schemes[i].prefix))
            return &schemes[i];
    return NULL;
}

static bool redis_url_is_printable(struct str text)
{
    return ascii_is_visible(text) && memchr(text.p, '#', text.n) == NULL;
}

/* Moves *rest behind the user's name and password, which end with the last `@` before the path. */
static int cut_user(struct reading *r, struct str *rest)
{
    struct str path = *rest, authority = str_cut(&path, '/');
    size_t at = authority.n;
    while (at > 0 && authority.p[at - 1] != '@')
        at--;
    if (at == 0)
        return 0;
    struct str user_info = str_of(authority.p, at - 1);
    *rest = str_skip(*rest, at);
    return take_user(r, user_info);
}

static int take_apart(struct reading *r, struct str text)
{
    struct str query = str_skip(text, r->scheme->prefix.n), rest = str_cut(&query, '?');
    struct str whole = rest;
    if (cut_user(r, &rest) != 0)
        return ERR_SYNTAX;
    struct redis_url *u = r->url;
    u->shown = arena_printf(&u->memory, "%s%s%.*s", r->scheme->prefix.p,
                            whole.n != rest.n ? "***@" : "", (int)rest.n, rest.p);
    int err = r->scheme->is_path ? take_path(r, rest) : take_authority(r, rest);
    return err != 0 ? err : take_settings(r, query);
}

int redis_url_parse(struct str text, struct redis_url **out, char *why, size_t size)
{
    struct reading r = {.scheme = scheme_of(text), .why = why, .size = size};
    if (r.scheme == NULL)
        return redis_url_refuse(&r,
                                "it begins with redis://, rediss://, unix:, redis+sentinel:// or "
                                "redis+cluster://");
    if (text.n > URL_MAX || !redis_url_is_printable(text))
        return redis_url_refuse(&r, "it is too long, or holds characters that belong in no URL");
    r.url = mem_zalloc(sizeof *r.url);
    r.url->kind = r.scheme->kind;
    r.url->tls = r.scheme->tls;
    if (take_apart(&r, text) != 0) {
        redis_url_free(r.url);
        return ERR_SYNTAX;
    }
    *out = r.url;
    return 0;
}

void redis_url_free(struct redis_url *u)
{
    if (u == NULL)
        return;
    arena_deinit(&u->memory);
    free(u);
}

struct str redis_url_setting(const struct redis_url *u, struct str name)
{
    for (size_t i = 0; i < u->n_settings; i++)
        if (str_eq(u->settings[i].name, name))
            return u->settings[i].value;
    return STR_NONE;
}

bool redis_url_is_cluster(const struct redis_url *u)
{
    return u->kind == REDIS_CLUSTER;
}

struct str redis_url_shown(const struct redis_url *u)
{
    return u->shown;
}
