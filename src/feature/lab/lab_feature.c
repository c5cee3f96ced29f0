// SPDX-License-Identifier: Apache-2.0
/* lab_feature.c -- the Lab as a feature of a server. */
#include "base/mem.h"
#include "feature/feature.h"
#include "feature/lab/lab_commands.h"
#include "feature/lab/lab.h"
#include "feature/lab/lab_config.h"

#include <stdlib.h>

struct lab_state {
    struct lab_host lab;
    const struct feature_host *host;
};

const char *lab_feedback_path(const void *state)
{
    return ((const struct lab_state *)state)->lab.feedback;
}

static void lab_feature_finished(void *ctx)
{
    const struct feature_host *h = ((struct lab_state *)ctx)->host;
    h->finished(h->ctx, STR("the Lab's task is done"));
}

static int lab_feature_open(const struct feature_host *h, const void *settings, void **state,
                            char *why, size_t size)
{
    const struct section_list *lab = &((const struct lab_settings *)settings)->lab;
    if (lab->n == 0)
        return 0;
    struct lab_state *s = mem_zalloc(sizeof *s);
    s->host = h;
    struct lab_host_setup setup = {.config = lab->items,
                                   .loop = h->loop,
                                   .http = h->http,
                                   .finished = lab_feature_finished,
                                   .ctx = s};
    int err = lab_host_init(&s->lab, &setup, why, size);
    if (err == 0)
        *state = s;
    else
        free(s);
    return err;
}

static void lab_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    lab_host_stop(&((struct lab_state *)state)->lab, stopped, ctx);
}

static void lab_feature_free(void *state)
{
    free(state);
}

static const char *const needs[] = {"logs", NULL};
static const struct surface *const surfaces[] = {&lab_page_surface, &lab_api_surface, NULL};

static const struct command commands[] = {
    {"lab", cmd_lab, "look at runs in a browser, and collect feedback"},
    {"feedback", cmd_feedback, "add feedback from the command line"},
    {NULL, NULL, NULL},
};

const struct feature lab_feature = {
    .name = "lab",
    .title = "the Lab",
    .scope = FEATURE_OF_PROCESS,
    .needs = needs,
    .settings = &lab_settings,
    .surfaces = surfaces,
    .commands = commands,
    .tools = lab_tools,
    .open = lab_feature_open,
    .stop = lab_feature_stop,
    .free = lab_feature_free,
};
