// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"
#include "base/mem.h"
#include "client/request.h"
#include "http/url.h"

#include <stdio.h>
#include <stdlib.h>

static void set_default(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

static void take_token(struct client *c, const char *token)
{
    struct buf value = {0};
    buf_printf(&value, "Bearer %s", token);
    c->authorization = client_copy(buf_str(&value));
    buf_deinit(&value);
}

static void take_options(struct client *c, const struct client_options *options)
{
    struct client_options *o = &c->options;
    if (options)
        *o = *options;
    set_default(&o->connect_timeout_ms, 10 * 1000);
    set_default(&o->stall_timeout_s, 30);
    set_default(&o->live_timeout_s, 90);
    set_default(&o->retry_first_ms, 100);
    set_default(&o->retry_max_ms, 10 * 1000);
    if (o->value_max == 0)
        o->value_max = 64 * 1024 * 1024;
    if (o->token)
        take_token(c, o->token);
    o->token = NULL; /* it was lent */
}

static bool is_loopback(struct str host)
{
    return str_eq_nocase(host, STR("localhost")) || str_starts(host, STR("127.")) ||
           str_eq(host, STR("::1"));
}

static int take_server(struct client *c, struct str server)
{
    if (str_starts(server, STR("unix:"))) {
        struct str path = str_skip(server, 5);
        if (path.n == 0)
            return ERR_SYNTAX;
        c->socket_path = client_copy(path);
        c->base = client_copy(STR("http://localhost"));
        c->is_near = true;
        return 0;
    }
    struct url url;
    if (url_parse(server, &url) != 0 || url.query.p)
        return ERR_SYNTAX;
    while (server.n > 0 && server.p[server.n - 1] == '/')
        server.n--;
    c->base = client_copy(server);
    c->is_near = is_loopback(url.host);
    return 0;
}

int client_new(const char *server, const struct client_options *options, struct client **out)
{
    struct client *c = mem_zalloc(sizeof *c);
    c->watch_fd = -1;
    c->server = client_copy(str_of_cstr(server));
    take_options(c, options);
    int err = take_server(c, str_of_cstr(server));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort(); /* out of memory, as with mem_alloc */
    c->multi = curl_multi_init();
    c->easy = curl_easy_init();
    if (c->multi == NULL || c->easy == NULL)
        abort();
    if (err) {
        client_free(c);
        return err;
    }
    *out = c;
    return 0;
}

void client_free(struct client *c)
{
    if (c == NULL)
        return;
    curl_easy_cleanup(c->easy);
    curl_multi_cleanup(c->multi);
    curl_global_cleanup();
    free(c->server);
    free(c->base);
    free(c->socket_path);
    free(c->authorization);
    free(c);
}

const char *client_error(const struct client *c)
{
    return c->error;
}

void client_watch(struct client *c, int fd)
{
    c->watch_fd = fd;
}

int client_create(struct client *c, const char *name, const struct client_config *config,
                  bool *created)
{
    struct client_request r;
    client_request_init(&r, c, "PUT", name);
    if (config->content_type)
        client_request_header(&r, "Content-Type", config->content_type);
    if (config->ttl_s)
        client_request_header_u64(&r, "Stream-TTL", config->ttl_s);
    if (config->closed)
        client_request_header(&r, "Stream-Closed", "true");
    int err = client_request_run(&r);
    if (err == 0 && created)
        *created = r.answer.status == 201;
    client_request_deinit(&r);
    return err;
}

int client_head(struct client *c, const char *name, struct client_state *out)
{
    struct client_request r;
    client_request_init(&r, c, "HEAD", name);
    int err = client_request_run(&r);
    if (err == 0 && *r.answer.state.next_offset == '\0')
        err = client_fail(c, ERR_SYNTAX, "%s does not answer as a stream server does", c->server);
    if (err == 0)
        *out = r.answer.state;
    client_request_deinit(&r);
    return err;
}

int client_append(struct client *c, const char *name, const char *content_type, const void *data,
                  size_t n, char *next_offset)
{
    struct client_request r;
    client_request_init(&r, c, "POST", name);
    client_request_header(&r, "Content-Type", content_type);
    r.body = str_of(data, n);
    r.once = true;
    int err = client_request_run(&r);
    if (err == 0 && next_offset)
        memcpy(next_offset, r.answer.state.next_offset, CLIENT_OFFSET_SIZE);
    client_request_deinit(&r);
    return err;
}

int client_close(struct client *c, const char *name)
{
    struct client_request r;
    client_request_init(&r, c, "POST", name);
    client_request_header(&r, "Stream-Closed", "true");
    int err = client_request_run(&r);
    client_request_deinit(&r);
    return err;
}

int client_delete(struct client *c, const char *name)
{
    struct client_request r;
    client_request_init(&r, c, "DELETE", name);
    int err = client_request_run(&r);
    client_request_deinit(&r);
    return err;
}
