// SPDX-License-Identifier: Apache-2.0
/* main.c -- finds the command that was asked for. */
#include "base/env_secret.h"
#include "base/secret.h"
#include "base/suggest.h"
#include "cmd/cmd.h"
#include "feature/feature.h"

#include <stdio.h>

static int cmd_version(int argc, char **argv);
static int cmd_help(int argc, char **argv);

/* Features' own stand between these. */
static const struct command first_commands[] = {
    {"serve", cmd_serve, "run a server"},
    {"append", cmd_append, "add events to a stream"},
    {"tail", cmd_tail, "print a stream and follow it as it grows"},
    {"ls", cmd_ls, "list streams"},
    {"rm", cmd_rm, "delete streams"},
    {NULL, NULL, NULL},
};
static const struct command last_commands[] = {
    {"access", cmd_access, "set up who may do what; hand out rights and take them back"},
    {"doctor", cmd_doctor, "verify and repair a data directory; look at a Redis"},
    {"demo-backend", cmd_demo_backend, "run a backend to try routes with"},
    {"version", cmd_version, "print the version; --features: what was built in"},
    {"help", cmd_help, "explain a command"},
    {NULL, NULL, NULL},
};

/* The next table; NULL: the first, or behind the last. */
static const struct command *main_next(const struct command *table)
{
    if (table == NULL)
        return first_commands;
    if (table == last_commands)
        return NULL;
    size_t i = 0;
    if (table != first_commands)
        while (features[i++]->commands != table)
            ;
    while (features[i] != NULL && features[i]->commands == NULL)
        i++;
    return features[i] != NULL ? features[i]->commands : last_commands;
}

#define each_command(c)                                                                            \
    for (const struct command *t = NULL; (t = main_next(t)) != NULL;)                              \
        for (const struct command *c = t; c->name != NULL; c++)

static void print_overview(FILE *to)
{
    fputs("tidemark makes AI streams survive: what is appended to a stream is kept, and\n"
          "every reader can drop off and resume where it was.\n"
          "\n"
          "Usage: tidemark COMMAND [flags] [arguments]\n"
          "\n"
          "Commands:\n",
          to);
    each_command (c)
        fprintf(to, "  %-12s %s\n", c->name, c->summary);
    fputs("\n"
          "Examples:\n"
          "  tidemark serve                          a server on 127.0.0.1:4437\n"
          "  echo hello | tidemark append greetings  one event, into the stream greetings\n"
          "  tidemark tail greetings                 all events so far, then new ones\n"
          "\n"
          "`tidemark help COMMAND` shows the flags of a command.\n",
          to);
}

static const struct command *main_find(const char *name)
{
    each_command (c)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int main_refuse(const char *name)
{
    struct suggest s = {.word = str_of_cstr(name)};
    const char *absent = feature_absent_command(s.word);
    each_command (c)
        suggest_offer(&s, c->name);
    if (name[0] == '-')
        fprintf(stderr, "tidemark: flags follow the command, as in `tidemark serve %s`\n", name);
    else if (absent != NULL)
        fprintf(stderr, "tidemark: %s needs the feature %s, which this program was built without\n",
                name, absent);
    else if (s.best)
        fprintf(stderr, "tidemark: unknown command %s; did you mean %s?\n", name, s.best);
    else
        fprintf(stderr, "tidemark: unknown command %s\n", name);
    fputs("`tidemark help` lists the commands.\n", stderr);
    return CMD_USAGE;
}

static int cmd_version(int argc, char **argv)
{
    if (argc == 1) {
        puts("tidemark " TIDEMARK_VERSION);
        return CMD_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return cmd_help(1, argv);
    if (argc != 2 || strcmp(argv[1], "--features") != 0) {
        fputs("tidemark version: the only flag is --features\n", stderr);
        return CMD_USAGE;
    }
    for (size_t i = 0; features[i] != NULL; i++)
        puts(features[i]->name);
    return CMD_OK;
}

/* A command explains itself. These two have nothing more to say than the overview does. */
static int cmd_help(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "version") == 0 ||
        argv[1][0] == '-') {
        print_overview(stdout);
        return CMD_OK;
    }
    const struct command *c = main_find(argv[1]);
    char flag[] = "--help";
    return c ? c->run(2, (char *[]){argv[1], flag, NULL}) : main_refuse(argv[1]);
}

static int main_run(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CMD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cmd_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(1, argv + 1);
    const struct command *c = main_find(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : main_refuse(argv[1]);
}

int main(int argc, char **argv)
{
    env_secrets_hide();
    int status = main_run(argc, argv);
    env_secrets_forget();
    secret_unshield(); /* a sanitizer that looks for leaks at the end has to look into us */
    return status;
}
