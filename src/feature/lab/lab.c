// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab.h"
#include "base/err.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_config.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "feature/lab/lab_http.h"

#include <stdio.h>
#include <stdlib.h>

static struct lab_store *open_store(const struct lab_host_setup *setup, const char *feedback,
                                    char *why, size_t size)
{
    const struct lab_config *c = setup->config;
    struct lab_roots roots = {0};
    char *folder = lab_config_folder();
    char *root = lab_config_root(c->root, setup->alone);
    lab_roots_add(&roots, folder, STR_NONE);
    lab_roots_add(&roots, folder, STR("output"));
    for (size_t i = 0; i < c->allow_root.n; i++)
        lab_roots_add(&roots, folder, str_of_cstr(c->allow_root.items[i]));
    struct lab_store *s = lab_store_open(&(struct lab_store_setup){.root = root,
                                                                   .feedback = feedback,
                                                                   .folder = folder,
                                                                   .roots = roots,
                                                                   .new_session = c->new_session},
                                         why, size);
    free(folder);
    free(root);
    return s;
}

/* A run by its id, or else by the path that it is imported from. NULL: the problem is set. */
static char *find_run(struct lab_store *s, const char *named, struct lab_problem *p)
{
    json_t *run = NULL, *id = NULL;
    if (lab_store_run(s, str_of_cstr(named), &run, p) == LAB_FINE)
        id = json_incref(json_object_get(run, "runId"));
    json_decref(run);
    if (id == NULL) {
        lab_problem_deinit(p);
        lab_store_import(s, str_of_cstr(named), &id, p);
    }
    char *text = id != NULL ? strdup(json_string_value(id)) : NULL;
    json_decref(id);
    return text;
}

static int find_task(struct lab_host *h, const struct lab_config *c, struct lab_store *s, char *why,
                     size_t size)
{
    struct lab_problem p = {0};
    json_t *experiment = NULL;
    if (c->review != NULL)
        h->review = find_run(s, c->review, &p);
    else if (c->compare != NULL)
        lab_store_experiment(s, str_of_cstr(c->compare), &experiment, &p);
    json_decref(experiment);
    snprintf(why, size, "%s", p.message);
    int err = p.code == LAB_FINE ? 0 : ERR_SYNTAX;
    lab_problem_deinit(&p);
    return err;
}

static uint64_t exit_after(const struct lab_config *c)
{
    bool has_task = c->review != NULL || c->compare != NULL;
    return c->exit_after_submit > 0 ? c->exit_after_submit : has_task;
}

static void lab_host_deinit(struct lab_host *h)
{
    lane_free(h->lane);
    free(h->review);
    free(h->feedback);
}

int lab_host_init(struct lab_host *h, const struct lab_host_setup *setup, char *why, size_t size)
{
    const struct lab_config *c = setup->config;
    *h = (struct lab_host){.feedback = lab_config_feedback(c->feedback, setup->alone)};
    struct lab_store *store = open_store(setup, h->feedback, why, size);
    if (store == NULL) {
        lab_host_deinit(h);
        return ERR_IO;
    }
    int err = find_task(h, c, store, why, size);
    if (err == 0 && (h->lane = thread_lane_new(setup->loop, "lab")) == NULL) {
        snprintf(why, size, "no thread could be had");
        err = ERR_IO;
    }
    if (err != 0) {
        lab_store_close(store);
        lab_host_deinit(h);
        return err;
    }
    h->lab = lab_new(&(struct lab_setup){.sched = &setup->loop->sched,
                                         .lane = h->lane,
                                         .store = store,
                                         .review = h->review,
                                         .compare = c->compare,
                                         .exit_after = exit_after(c),
                                         .finished = setup->finished,
                                         .ctx = setup->ctx});
    lab_mount(h->lab, setup->http, setup->alone);
    return 0;
}

static void lab_on_stopped(void *ctx)
{
    struct lab_host *h = ctx;
    lab_free(h->lab);
    lab_host_deinit(h);
    h->stopped(h->ctx);
}

void lab_host_stop(struct lab_host *h, void (*stopped)(void *ctx), void *ctx)
{
    h->stopped = stopped;
    h->ctx = ctx;
    lab_stop(h->lab, lab_on_stopped, h);
}
