// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool_makers_upstream.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "http/fetch.h"
#include "net/child.h"
#include "feature/tools/tool_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 512

struct configured {
    struct tool_makers *all;
    const struct tool_config *config;
    char **words; /* of its command */
};

struct tool_makers {
    struct tool_makers_setup setup;
    struct children *children;
    struct configured *tools;
    struct tool_spec *specs;
};

/* ---- commands ---- */

struct command_run {
    struct tool_run *run;
    struct child *child;
};

static bool tool_makers_on_output(void *ctx, struct str bytes)
{
    struct command_run *c = ctx;
    return tool_run_output(c->run, bytes);
}

/* The last line of what it wrote to standard error. */
static struct str last_line(struct str text)
{
    struct str line = STR_NONE;
    while (text.p != NULL) {
        struct str next = str_trim(str_cut(&text, '\n'));
        if (next.n > 0)
            line = next;
    }
    return line;
}

static void tool_makers_on_exit_of(void *ctx, const struct child_end *end)
{
    struct command_run *c = ctx;
    struct tool_run *run = c->run;
    char message[MESSAGE_MAX] = "";
    struct str said = last_line(end->errors);
    if (end->bound != NULL)
        snprintf(message, sizeof message, "the command was ended: %s", end->bound);
    else if (end->signal != 0)
        snprintf(message, sizeof message, "the command was ended by signal %d (%s)", end->signal,
                 strsignal(end->signal));
    else if (end->status != 0)
        snprintf(message, sizeof message, "the command exited with status %d%s%.*s", end->status,
                 said.n > 0 ? ": " : "", said.n < 300 ? (int)said.n : 300, said.p);
    free(c);
    tool_run_end(run, str_of_cstr(message), false);
}

static void tool_makers_command_start(void *ctx, struct tool_run *run)
{
    struct configured *t = ctx;
    struct command_run *c = mem_alloc(sizeof *c);
    char why[MESSAGE_MAX];
    *c = (struct command_run){.run = run};
    run->state = c;
    c->child = child_start(t->all->children,
                           &(struct child_setup){.argv = (const char *const *)t->words,
                                                 .input = run->args,
                                                 .max_memory = t->config->max_memory,
                                                 .max_processes = t->config->max_processes,
                                                 .max_cpu_ms = t->config->max_cpu_ms,
                                                 .output = tool_makers_on_output,
                                                 .done = tool_makers_on_exit_of,
                                                 .ctx = c},
                           why, sizeof why);
    if (c->child != NULL)
        return;
    free(c);
    tool_run_end(run, str_of_cstr(why), false);
}

static void tool_makers_command_stop(void *ctx, struct tool_run *run)
{
    struct command_run *c = run->state;
    child_cancel(c->child);
    free(c);
}

static void tool_makers_command_room(void *ctx, struct tool_run *run)
{
    struct command_run *c = run->state;
    child_resume(c->child);
}

static const struct tool_maker command_maker = {tool_makers_command_start, tool_makers_command_stop,
                                                tool_makers_command_room};

/* ---- URLs ---- */

static const struct header asked_headers[] = {
    {STR_INIT("Content-Type"), STR_INIT("application/json")},
    {STR_INIT("Accept"), STR_INIT("application/json, application/x-ndjson")},
};

struct asking {
    struct tool_run *run;
    struct fetch fetch;
    bool held; /* the run wants no more for now */
};

static bool is_success(const struct fetch *f)
{
    return f->status >= 200 && f->status < 300;
}

/* What is refused here comes again, so that nothing is taken while the run is held. */
static bool tool_makers_on_data(struct fetch *f, struct str data)
{
    struct asking *a = container_of(f, struct asking, fetch);
    if (!is_success(f))
        return true;
    if (a->held)
        return false;
    struct tool_run *run = a->run;
    a->held = true; /* before the run may be gone, and this with it */
    if (tool_run_output(run, data))
        a->held = false;
    return true;
}

static bool may_be_retried(const struct fetch *f, int err)
{
    if (err == 0)
        return f->status >= 500 || f->status == 408 || f->status == 429;
    return err == ERR_UPSTREAM || err == ERR_UPSTREAM_TIMEOUT || err == ERR_BUSY;
}

static void tool_makers_on_answered(struct fetch *f, int err)
{
    struct asking *a = container_of(f, struct asking, fetch);
    struct tool_run *run = a->run;
    char message[MESSAGE_MAX] = "";
    bool again = may_be_retried(f, err);
    if (err != 0)
        snprintf(message, sizeof message, "%s", fetch_cause_text(f->cause));
    else if (!is_success(f))
        snprintf(message, sizeof message, "the upstream answered with status %d", f->status);
    else if (!f->end_marked)
        snprintf(message, sizeof message,
                 "the upstream's answer may have been cut off: it has neither a length nor chunks");
    free(a);
    tool_run_end(run, str_of_cstr(message), again);
}

/* tool_run.c bounds time and size; what the fetch has to bound is the wait for a head. */
static void tool_makers_asking_start(void *ctx, struct tool_run *run)
{
    struct configured *t = ctx;
    struct asking *a = mem_zalloc(sizeof *a);
    a->run = run;
    run->state = a;
    a->fetch = (struct fetch){.url = str_of_cstr(t->config->url),
                              .method = STR("POST"),
                              .headers = asked_headers,
                              .n_headers = sizeof asked_headers / sizeof *asked_headers,
                              .body = run->args,
                              .about = str_of_cstr(t->config->name),
                              .policy = t->all->setup.policy,
                              .on_data = tool_makers_on_data,
                              .done = tool_makers_on_answered};
    fetch_start(t->all->setup.fetcher, &a->fetch);
}

static void tool_makers_asking_stop(void *ctx, struct tool_run *run)
{
    struct asking *a = run->state;
    fetch_cancel(&a->fetch);
    free(a);
}

static void tool_makers_asking_room(void *ctx, struct tool_run *run)
{
    struct asking *a = run->state;
    a->held = false;
    fetch_resume(&a->fetch);
}

static const struct tool_maker url_maker = {tool_makers_asking_start, tool_makers_asking_stop,
                                            tool_makers_asking_room};

/* ---- all of them ---- */

static struct str or_none(const char *text)
{
    return text != NULL ? str_of_cstr(text) : STR_NONE;
}

static struct tool_spec spec_of(const struct tool_config *c, struct configured *t)
{
    return (struct tool_spec){.id = str_of_cstr(c->name),
                              .description = or_none(c->description),
                              .input_schema = c->input_schema != NULL ? str_of_cstr(c->input_schema)
                                                                      : STR("{}"),
                              .capability = or_none(c->capability),
                              .timeout_ms = c->timeout_ms,
                              .max_output = c->max_output,
                              .page_rows = c->page_rows,
                              .page_bytes = c->page_bytes,
                              .parallel = c->parallel,
                              .maker = c->url != NULL ? &url_maker : &command_maker,
                              .ctx = t};
}

struct tool_makers *tool_makers_new(const struct tool_makers_setup *setup)
{
    struct tool_makers *m = mem_zalloc(sizeof *m);
    size_t n = setup->n_configs;
    m->setup = *setup;
    m->tools = mem_zalloc((n + 1) * sizeof *m->tools);
    m->specs = mem_zalloc((n + 1) * sizeof *m->specs);
    for (size_t i = 0; i < n; i++) {
        const struct tool_config *c = &setup->configs[i];
        m->tools[i] = (struct configured){m, c, tool_command_words(c)};
        m->specs[i] = spec_of(c, &m->tools[i]);
        if (c->url == NULL && m->children == NULL)
            m->children = children_new(setup->loop);
    }
    return m;
}

const struct tool_spec *tool_makers_specs(const struct tool_makers *m)
{
    return m->specs;
}

void tool_makers_free(struct tool_makers *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->setup.n_configs; i++)
        free(m->tools[i].words);
    children_free(m->children);
    free(m->tools);
    free(m->specs);
    free(m);
}
