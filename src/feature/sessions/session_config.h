// SPDX-License-Identifier: Apache-2.0
/* session_config.h -- the settings of sessions: `[session]` in the config file. */
#ifndef FEATURE_SESSIONS_SESSION_CONFIG_H
#define FEATURE_SESSIONS_SESSION_CONFIG_H

#include "base/sections.h"

enum session_handler { SESSION_HANDLER_NONE = -1, SESSION_HANDLER_ECHO };

struct session_config {
    /* Who answers: one of them, or neither, which leaves it to workers. */
    char *upstream; /* an http or https URL */
    int handler;    /* enum session_handler */

    int upstream_http;  /* enum fetch_version: the choices are in its order */
    char *content_type; /* of what the upstream is sent; NULL: by the client's service */
    uint64_t connect_timeout_ms, first_byte_timeout_ms, idle_timeout_ms;
    uint64_t total_timeout_ms; /* of one request to the upstream; 0: none */

    uint64_t lifetime_ms; /* behind the last activity */
    uint64_t key_hold_ms; /* behind the client's last connection */
    uint64_t max_open;
    uint64_t max_message_bytes;
    uint64_t max_bytes; /* of each of a session's streams; at least max_message_bytes */
};

extern const struct options session_options;

/* For the table of section kinds: see base/sections.h. */
int session_finish(void *session, char *reason, size_t size);

/* What the server has of it. */
struct sessions_settings {
    struct section_list session; /* struct session_config; always one */
};

extern const struct feature_settings sessions_settings;

#endif
