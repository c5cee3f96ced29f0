// SPDX-License-Identifier: Apache-2.0
/* cmd.h -- the commands of the `tidemark` program. app/main.c holds the table of those that belong
 * to no feature; a feature's row names its own.
 *
 * argv[0] is the command's own name, its arguments follow; the strings live as long as the
 * process, but a command may reorder argv. Each answers `--help` on standard output by itself.
 * What is returned becomes the exit status. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

enum {
    CMD_OK = 0,
    CMD_FAILED = 1, /* it was understood, but could not be done */
    CMD_USAGE = 2,  /* a wrong command, flag or argument */
};

/* A row of a table of commands. */
struct command {
    const char *name; /* NULL: the table ends here */
    int (*run)(int argc, char **argv);
    const char *summary;
};

int cmd_serve(int argc, char **argv);
int cmd_append(int argc, char **argv);
int cmd_tail(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_access(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_demo_backend(int argc, char **argv);

#endif
