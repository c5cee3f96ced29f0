// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "app/config.h"
#include "app/server.h"
#include "telemetry/trace.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One allocation. */
static char **copy_args(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 0; i < argc; i++)
        n += strlen(argv[i]) + 1;
    char **copy = mem_alloc(((size_t)argc + 1) * sizeof *copy + n), *at = (char *)(copy + argc + 1);
    for (int i = 0; i < argc; i++) {
        copy[i] = strcpy(at, argv[i]);
        at += strlen(at) + 1;
    }
    copy[argc] = NULL;
    return copy;
}

/* A hangup asks for a reload. As long as nobody can hear it, at the start, which may take its time,
 * and at the end, it waits and does not kill. */
static void hold_hangups(int how)
{
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    sigprocmask(how, &hangup, NULL);
}

/* The allocator joins what was freed at once. Otherwise it keeps small pieces as they are, and some
 * allocation joins all of them: a long wait after a hundred thousand streams have expired.
 *
 * Large pieces have pages of their own, whatever was freed before: then a body that grows is not
 * copied, and goes back to the system at its end. */
static void set_up_malloc(void)
{
#ifdef __GLIBC__
    mallopt(M_MXFAST, 0);
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
#endif
}

static int cmd_serve_run(int argc, char **argv)
{
    struct trace t = {.to = stderr, .level = TRACE_INFO};
    struct config config;
    char why[512];
    set_up_malloc();
    int err = config_load(&config, argc, argv, &t, why, sizeof why);
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
        config_forget(&config);
        server.reload = (struct reload){.config = &config, .trace = &t, .argc = argc, .argv = argv};
        hold_hangups(SIG_UNBLOCK);
        server_run(&server);
        hold_hangups(SIG_BLOCK);
        common_block_ending();
        err = server_deinit(&server);
        /* It has ended in order: one more Ctrl-C does not change that. Threads that are still there
         * have their own masks, so that blocking alone does not do. */
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        trace_line(&t, &TRACE_KIND_STOPPED, NULL, 0);
    }
    config_deinit(&config);
    return err == 0 ? CMD_OK : err == ERR_EXISTS ? CMD_USAGE : CMD_FAILED;
}

int cmd_serve(int argc, char **argv)
{
    hold_hangups(SIG_BLOCK);
    char **args = copy_args(argc - 1, argv + 1);
    config_hide_args(argc - 1, argv + 1);
    int status = cmd_serve_run(argc - 1, args);
    free(args);
    return status;
}
