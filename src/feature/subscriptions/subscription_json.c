// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription_json.h"
#include "base/date.h"
#include "base/json.h"
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "http/url.h"
#include "token/signer.h"

#include <inttypes.h>

static void subscription_json_put_key(struct buf *out, const char *key)
{
    if (out->p[out->n - 1] != '{')
        buf_putc(out, ',');
    buf_putc(out, '"');
    buf_put(out, str_of_cstr(key));
    buf_put(out, STR("\":"));
}

/* p == NULL: left out */
static void subscription_json_put_text(struct buf *out, const char *key, struct str value)
{
    if (value.p == NULL)
        return;
    subscription_json_put_key(out, key);
    json_put_string(out, value);
}

static void subscription_json_put_number(struct buf *out, const char *key, uint64_t value)
{
    subscription_json_put_key(out, key);
    buf_put_u64(out, value);
}

static void put_flag(struct buf *out, const char *key, bool value)
{
    subscription_json_put_key(out, key);
    buf_put(out, value ? STR("true") : STR("false"));
}

static void put_offset(struct buf *out, const char *key, struct offset o)
{
    char text[OFFSET_TEXT];
    offset_format(o, text);
    subscription_json_put_text(out, key, str_of(text, sizeof text));
}

static void subscription_json_put_stream(struct buf *out, const struct subscription_stream *s,
                                         struct str root, bool tails)
{
    buf_putc(out, '{');
    subscription_json_put_text(out, "path", subscription_unrooted(root, s->path));
    subscription_json_put_text(out, "link_type", s->is_explicit ? STR("explicit") : STR("glob"));
    put_offset(out, "acked_offset", s->acked);
    if (tails) {
        put_offset(out, "tail_offset", s->tail);
        put_flag(out, "has_pending", s->has_pending);
    }
    buf_putc(out, '}');
}

void subscription_json_link(struct buf *streams, const struct subscription_stream *s,
                            struct str root)
{
    if (streams->n > 0)
        buf_putc(streams, ',');
    subscription_json_put_stream(streams, s, root, false);
}

static void put_streams_end(struct buf *out, const struct subscription_view *v)
{
    buf_putc(out, ']');
    if (v->more)
        put_flag(out, "streams_truncated", true);
}

/* Those of a wake. */
static void subscription_json_put_streams(struct buf *out, const struct subscription_view *v,
                                          struct str root)
{
    subscription_json_put_key(out, "streams");
    buf_putc(out, '[');
    for (size_t i = 0; i < v->n_streams; i++) {
        if (i > 0)
            buf_putc(out, ',');
        subscription_json_put_stream(out, &v->streams[i], root, true);
    }
    put_streams_end(out, v);
}

/* Below the public URL; id.n == 0: none in it. */
static void put_url(struct buf *out, const char *key, struct str base, const char *path,
                    struct str id, const char *rest)
{
    struct buf url = {0};
    buf_put(&url, base);
    buf_put(&url, STR(SUBSCRIPTIONS_PREFIX));
    buf_put(&url, str_of_cstr(path));
    url_encode(&url, id, false);
    buf_put(&url, str_of_cstr(rest));
    subscription_json_put_text(out, key, buf_str(&url));
    buf_deinit(&url);
}

static void put_webhook(struct buf *out, const struct subscription_config *c,
                        const struct signer *signer)
{
    subscription_json_put_key(out, "webhook");
    buf_putc(out, '{');
    subscription_json_put_text(out, "url", c->webhook_url);
    subscription_json_put_key(out, "signing");
    buf_putc(out, '{');
    subscription_json_put_text(out, "alg", STR("ed25519"));
    subscription_json_put_text(out, "kid", signer_kid(signer));
    put_url(out, "jwks_url", c->public_url, "jwks.json", STR_NONE, "");
    buf_put(out, STR("}}"));
}

void subscription_json_put(struct buf *out, struct str id, const struct subscription_view *v,
                           struct str streams, struct str root, const struct signer *signer)
{
    const struct subscription_config *c = &v->config;
    char created[DATE_RFC3339_TEXT];
    date_format_rfc3339(v->created_ms, created);
    id = subscription_unrooted(root, id);
    buf_putc(out, '{');
    subscription_json_put_text(out, "id", id);
    subscription_json_put_text(out, "subscription_id", id);
    subscription_json_put_text(out, "type",
                               c->type == SUBSCRIPTION_PULL ? STR("pull-wake") : STR("webhook"));
    if (c->pattern.n > 0)
        subscription_json_put_text(out, "pattern", subscription_unrooted(root, c->pattern));
    subscription_json_put_key(out, "streams");
    buf_putc(out, '[');
    buf_put(out, streams);
    put_streams_end(out, v);
    if (c->type == SUBSCRIPTION_WEBHOOK)
        put_webhook(out, c, signer);
    subscription_json_put_text(out, "wake_stream", subscription_unrooted(root, c->wake_stream));
    subscription_json_put_number(out, "lease_ttl_ms", c->lease_ttl_ms);
    subscription_json_put_text(out, "created_at", str_of(created, sizeof created));
    subscription_json_put_text(out, "status", v->failing ? STR("failed") : STR("active"));
    subscription_json_put_text(out, "description", c->description);
    buf_put(out, STR("}\n"));
}

void subscription_json_claim(struct buf *out, const struct subscription_view *v, struct str root)
{
    buf_putc(out, '{');
    subscription_json_put_text(out, "wake_id", v->wake_id);
    subscription_json_put_number(out, "generation", v->generation);
    subscription_json_put_text(out, "token", v->token);
    subscription_json_put_streams(out, v, root);
    subscription_json_put_number(out, "lease_ttl_ms", v->config.lease_ttl_ms);
    buf_put(out, STR("}\n"));
}

void subscription_json_wake(struct buf *out, struct str id, const struct subscription_view *v)
{
    struct str root = v->config.root;
    id = subscription_unrooted(root, id);
    buf_putc(out, '{');
    subscription_json_put_text(out, "subscription_id", id);
    subscription_json_put_text(out, "wake_id", v->wake_id);
    subscription_json_put_number(out, "generation", v->generation);
    subscription_json_put_streams(out, v, root);
    put_url(out, "callback_url", v->config.public_url, "subscriptions/", id, "/callback");
    subscription_json_put_text(out, "callback_token", v->token);
    buf_putc(out, '}');
}
