// SPDX-License-Identifier: Apache-2.0
/* env_secret.h -- secrets that come by the environment: in NAME itself, or in a file that NAME_FILE
 * names, as orchestrators mount them.
 *
 * The environment that a process was started with stays readable in /proc/PID/environ for every
 * program of the same user, those that the process starts among them. So the values are moved away
 * from there at the start, and a process that holds a secret makes itself one that others cannot
 * look into. */
#ifndef BASE_ENV_SECRET_H
#define BASE_ENV_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#define ENV_SECRET_MAX (64 * 1024) /* bytes of one in a file */

/* All variables that hold a secret; NULL behind the last. */
#define ENV_SECRETS    8
extern const char *const env_secret_names[ENV_SECRETS + 1];

/* Moves the values to memory that neither /proc/PID/environ nor a core shows; getenv finds them as
 * before. Comes first in main, before there are threads. */
void env_secrets_hide(void);

/* The same of another variable, that a setting names. */
void env_secret_hide(const char *name);

/* Wipes them, at the end of main. */
void env_secrets_forget(void);

/* What NAME holds, or else the file in NAME_FILE without its last end of line. *out: allocated,
 * NULL if there is none, an empty one included. 0, or ERR_SYNTAX with a sentence in why: both are
 * set, or the file cannot be read, is empty, too large or holds a NUL. */
int env_secret_get(const char *name, char **out, char *why, size_t size);

/* What a file holds, without its last end of line; *out as above, and never NULL. */
int env_secret_read(const char *path, char **out, char *why, size_t size);

/* Wipes and frees; leaves NULL. */
void env_secret_drop(char **secret);

/* The file in NAME_FILE can be read by users that are neither its owner nor of its group. */
bool env_secret_is_open(const char *name);

/* The same of any file; false if it cannot be looked at. */
bool env_secret_file_is_open(const char *path);

/* The file in NAME_FILE cannot be read a second time, as a pipe cannot. */
bool env_secret_is_pipe(const char *name);

/* The first NAME of all of which that is true; NULL: there is none. */
const char *env_secret_in_pipe(void);

#endif
