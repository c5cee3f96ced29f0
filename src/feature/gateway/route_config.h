// SPDX-License-Identifier: Apache-2.0
/* route_config.h -- the settings of one gateway route: `[route PATH]` in the config file. */
#ifndef FEATURE_GATEWAY_ROUTE_CONFIG_H
#define FEATURE_GATEWAY_ROUTE_CONFIG_H

#include "base/options.h"

/* As the setting lists them. AUTO: not known yet, or of no kind that is known. */
enum route_dialect {
    ROUTE_DIALECT_AUTO,
    ROUTE_DIALECT_SSE,
    ROUTE_DIALECT_OPENAI,
    ROUTE_DIALECT_RESPONSES,
    ROUTE_DIALECT_ANTHROPIC,
    ROUTE_DIALECT_GEMINI,
    ROUTE_DIALECT_AG_UI,
    ROUTE_DIALECT_MCP,
    ROUTE_DIALECT_UI_MESSAGE,
    ROUTE_DIALECT_NDJSON,
    ROUTE_DIALECTS,
};

/* Event ids of the dialect sse: N, or GENERATION:N as in the others. */
enum route_ids { ROUTE_IDS_PLAIN, ROUTE_IDS_FULL };

/* What a late client gets of a generation that has ended. */
enum route_snapshot {
    ROUTE_SNAPSHOT_UNSET = -1, /* as the generation's dialect has it */
    ROUTE_SNAPSHOT_NONE,
    ROUTE_SNAPSHOT_LAST,
    ROUTE_SNAPSHOT_OPENAI,
    ROUTE_SNAPSHOT_UI_MESSAGE,
};

enum route_http { ROUTE_HTTP1, ROUTE_HTTP_AUTO, ROUTE_HTTP2 };

enum route_trim { ROUTE_TRIM_LENIENT, ROUTE_TRIM_STRICT };

/* What becomes of a generation that nobody reads any more. */
enum route_disconnect { ROUTE_DISCONNECT_CONTINUE, ROUTE_DISCONNECT_STOP };

struct route_config {
    char *path;     /* begins with `/`, does not end with one; has no escapes, maybe parameters */
    bool prefix;    /* all that is below it goes on, whatever the method */
    char *upstream; /* an http or https URL; see upstream_url.h */
    char *upstream_anthropic; /* the same for requests of Anthropic's API; NULL: there is one */
    int upstream_http;        /* enum route_http */
    int dialect;              /* enum route_dialect */
    int ids;                  /* enum route_ids */
    int snapshot;             /* enum route_snapshot */
    int trim;                 /* enum route_trim */
    /* Request headers that go to the upstream although pass_header.h says PASS_ASKED, and those
     * that do not although it says PASS_ALWAYS; spelt as in the file. */
    struct option_list forward, drop;
    struct option_list upstream_header; /* see upstream_header.h; n == 0: the client's Authorization
                                           is the upstream's */
    struct option_list identity;        /* request headers that tell callers apart */
    char *step; /* what resume tokens call a generation under way; no `:` in it */

    uint64_t requests_per_minute, parallel; /* 0: no limit */
    uint64_t anonymous_per_minute; /* of all callers together that are not known; 0: no limit */
    uint64_t max_body_bytes;
    uint64_t connect_timeout_ms, first_byte_timeout_ms, idle_timeout_ms;
    uint64_t total_timeout_ms; /* 0: none */
    char *on_disconnect;       /* as it was written; what follows says the same */
    enum route_disconnect disconnect;
    uint64_t disconnect_ms; /* before it stops */

    uint64_t key_lifetime_ms; /* of an idempotency key */
    uint64_t buffer_max_events, buffer_max_bytes;
    uint64_t state_ttl_ms, snapshot_ttl_ms, resume_ttl_ms;
};

extern const struct options route_options;

/* For the table of section kinds: see base/sections.h. */
int route_check_path(struct str path, char *reason, size_t size);
int route_finish(void *route, char *reason, size_t size);

/* Where requests of Anthropic's API have an upstream of their own: is this one? */
bool route_is_anthropic(const struct route_config *r, struct str path, bool has_version);

/* The short form, `PATH=URL`. Slices of text; 0, or ERR_SYNTAX with a reason. */
int route_parse(struct str text, struct str *path, struct str *url, char *reason, size_t size);

#endif
