// SPDX-License-Identifier: Apache-2.0
/* server.h -- everything of one server hangs here; a process may run several. */
#ifndef APP_SERVER_H
#define APP_SERVER_H

#include "base/gate.h"
#include "feature/feature.h"
#include "stream/subscriber.h"
#include "http/answers.h"
#include "http/http.h"
#include "net/addr.h"
#include "net/loop.h"
#include "app/storage.h"
#include "stream/durable.h"
#include "app/health.h"
#include "app/turns.h"
#include "app/watch.h"

#include <uv.h>

struct access_http;
struct audit;
struct config;
struct fetcher;
struct instances;
struct listener;
struct guard;
struct limits;
struct usage;
struct store;
struct tls;
struct trace;

/* What a server lives through; docs of server_run and server_drain say when.
 *
 *     serving --drain--> draining --all drained--> quiet --no connection left--> stopping
 *                           |                       ^                              ^
 *                           `--limit--> last words -+------no connection left------'
 *
 * Whoever asks to drain once more, or the limit in `quiet` and `last words`, ends connections. */
enum server_life {
    SERVER_SERVING,
    SERVER_DRAINING,   /* features finish what is under way; listeners stay open */
    SERVER_LAST_WORDS, /* what is under way was cut off; its readers are being told */
    SERVER_QUIET,      /* nothing is under way; connections end */
    SERVER_STOPPING,   /* no connection is left; features stop, then the rest */
};

/* What the server was started with; config == NULL: its settings are not read again. */
struct reload {
    struct config *config; /* the server's */
    struct trace *trace;   /* the server's */
    int argc;
    char **argv;
};

struct server {
    const struct config *config;
    const struct trace *trace;
    struct loop loop;
    uint64_t descriptors; /* that the process may have */
    struct metrics metrics;
    struct storage storage;
    struct store *store; /* storage.store */
    struct feeds feeds;
    struct instances *instances; /* NULL: the store is ours alone */
    struct http http;
    struct health status;
    struct turns turns;
    struct durable durable;
    struct fetcher *fetcher;
    struct guard *guard;   /* NULL: no access is configured */
    struct limits *limits; /* NULL: clients have none */
    struct usage *usage;   /* NULL: the same */
    struct answers answers;
    struct access_http *access;
    struct audit *audit; /* NULL: none */
    struct lane *audit_lane;
    struct feature_host host;
    struct feature_state features[FEATURES_MAX + 1]; /* in the order they were opened in */
    size_t n_features;
    struct gate working; /* features that are being drained */
    struct watch watch;
    struct reload reload; /* set by whoever wants it, once it is initialised */
    struct tls *tls;      /* for TCP listeners; NULL: plain */
    struct listener **listeners;
    size_t n_listeners;
    struct addr_own own; /* their ports */
    uv_signal_t on_term, on_int, on_hup;
    struct timer drain_limit;
    enum server_life life;
};

/* Opens the store, the features and the listeners. 0, or an error after a trace that says why; then
 * there is nothing to deinit. ERR_EXISTS: two claim one path, which is a fault of the settings.
 * config and trace are kept. */
int server_init(struct server *s, const struct config *config, const struct trace *trace);

/* Serves until SIGTERM or SIGINT, or server_drain. Then generations and appends finish, and readers
 * get a clean end, within the drain timeout. Asked again, it ends at once. */
void server_run(struct server *s);
void server_drain(struct server *s, struct str why);

/* 0, or why the store had stopped taking anything. */
int server_deinit(struct server *s);

#endif
