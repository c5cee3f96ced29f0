// SPDX-License-Identifier: Apache-2.0
#include "cmd/private_server.h"
#include "app/config.h"
#include "app/config_tables.h"
#include "app/server.h"
#include "base/err.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_SIZE 64
#define DRAIN_MS    1000 /* whoever ends us by a signal does not wait for long */

struct private_server {
    struct config config;
    struct trace trace;
    struct server server;
    pthread_t thread;
    char folder[FOLDER_SIZE]; /* only ours, with the socket in it */
    char address[FOLDER_SIZE + 16];
    int over[2];
};

static void *private_server_run(void *ctx)
{
    struct private_server *s = ctx;
    server_run(&s->server);
    close(s->over[1]);
    return NULL;
}

/* It ends with whoever started us: there may be many of these at once, anywhere, and none leaves
 * anything behind unless its file says where. */
static void make_private(struct config *c)
{
    char why[128];
    c->private = true;
    if (strcmp(c->data, CONFIG_DATA) == 0)
        options_set(&c->tables->options, c, STR("store"), STR("memory"), why, sizeof why);
    if (c->drain_timeout_ms > DRAIN_MS)
        c->drain_timeout_ms = DRAIN_MS;
}

static int private_server_load(struct private_server *s, char *file, char *why, size_t size)
{
    char flag_config[] = "--config", flag_listen[] = "--listen";
    char *argv[] = {flag_config, file, flag_listen, s->address, NULL};
    if (config_load(&s->config, 4, argv, &s->trace, why, size) != 0)
        return CMD_USAGE;
    make_private(&s->config);
    return CMD_OK;
}

/* CMD_OK, or CMD_FAILED or CMD_USAGE with nothing left of it but the settings. */
static int private_server_begin(struct private_server *s, char *why, size_t size)
{
    if (pipe(s->over) != 0) {
        snprintf(why, size, "%s", strerror(errno));
        return CMD_FAILED;
    }
    int err = server_init(&s->server, &s->config, &s->trace);
    if (err != 0) { /* a trace has said why */
        close(s->over[0]);
        close(s->over[1]);
        return err == ERR_EXISTS ? CMD_USAGE : CMD_FAILED;
    }
    config_forget(&s->config);
    int error = pthread_create(&s->thread, NULL, private_server_run, s);
    if (error == 0)
        return CMD_OK;
    snprintf(why, size, "%s", strerror(error));
    server_drain(&s->server, STR("no thread could be had"));
    private_server_run(s);
    close(s->over[0]);
    server_deinit(&s->server);
    return CMD_FAILED;
}

struct private_server *private_server_start(char *file, int *status, char *why, size_t size)
{
    struct private_server *s = mem_zalloc(sizeof *s);
    why[0] = '\0';
    s->trace = (struct trace){.to = stderr, .level = TRACE_INFO};
    snprintf(s->folder, sizeof s->folder, "/tmp/tidemark-private-XXXXXX");
    if (mkdtemp(s->folder) == NULL) {
        snprintf(why, size, "cannot make a folder in /tmp: %s", strerror(errno));
        *status = CMD_FAILED;
        free(s);
        return NULL;
    }
    snprintf(s->address, sizeof s->address, "unix:%s/s", s->folder);
    *status = private_server_load(s, file, why, size);
    if (*status == CMD_OK) {
        *status = private_server_begin(s, why, size);
        if (*status == CMD_OK)
            return s;
        config_deinit(&s->config);
    }
    rmdir(s->folder);
    free(s);
    return NULL;
}

const char *private_server_address(const struct private_server *s)
{
    return s->address;
}

int private_server_over(const struct private_server *s)
{
    return s->over[0];
}

int private_server_stop(struct private_server *s)
{
    kill(getpid(), SIGTERM); /* the way to end a server */
    pthread_join(s->thread, NULL);
    close(s->over[0]);
    common_block_ending();
    int err = server_deinit(&s->server);
    config_deinit(&s->config);
    rmdir(s->folder);
    free(s);
    return err;
}
