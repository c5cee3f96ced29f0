// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/common.h"
#include "config.h"
#include "server.h"
#include "telemetry/trace.h"

#include <stdio.h>

int cmd_serve(int argc, char **argv)
{
    struct trace t = {.to = stderr, .level = TRACE_INFO};
    struct config config;
    char why[512];
    int err = config_load(&config, argc - 1, argv + 1, &t, why, sizeof why);
    if (err == ERR_CANCELLED) {
        config_help(stdout);
        return CMD_OK;
    }
    if (err != 0) {
        fprintf(stderr, "tidemark serve: %s\n", why);
        return CMD_USAGE;
    }
    struct server server;
    err = server_init(&server, &config, &t);
    if (err == 0) {
        server.reload =
            (struct reload){.config = &config, .trace = &t, .argc = argc - 1, .argv = argv + 1};
        server_run(&server);
        common_block_ending();
        err = server_deinit(&server);
        trace_line(&t, TRACE_KIND_STOPPED, NULL, 0);
    }
    config_deinit(&config);
    return err == 0 ? CMD_OK : CMD_FAILED;
}
