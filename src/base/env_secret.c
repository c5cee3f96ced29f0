// SPDX-License-Identifier: Apache-2.0
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_N 64

const char *const env_secret_names[ENV_SECRETS + 1] = {
    "SSE_RESUME_SECRET",
    "SSE_RESUME_SECRET_PREVIOUS",
    "HMAC_SECRET",
    "ATD_CURSOR_SIGNING_KEY",
    "TIDEMARK_STORE",
    "TIDEMARK_TOKEN",
    "WINDSURF_CSRF_TOKEN",
    "WINDSURF_API_KEY",
    NULL,
};

/* ---- the environment ---- */

/* The value of that variable in an entry of the environment; NULL: it is another's, or empty. */
static char *value_in(char *entry, const char *name)
{
    size_t n = strlen(name);
    bool is = strncmp(entry, name, n) == 0 && entry[n] == '=' && entry[n + 1] != '\0';
    return is ? entry + n + 1 : NULL;
}

/* The same of those that always hold a secret. */
static char *secret_in(char *entry)
{
    char *value = NULL;
    for (const char *const *name = env_secret_names; *name != NULL && value == NULL; name++)
        value = value_in(entry, *name);
    return value;
}

/* The old text is what /proc shows: it loses its value, and keeps its length. A name may stand
 * there more than once. */
static void hide_entry(char **e, char *value)
{
    size_t n = strlen(*e) + 1;
    *e = memcpy(secret_alloc(n), *e, n);
    explicit_bzero(value, strlen(value));
}

void env_secrets_hide(void)
{
    for (char **e = environ; *e != NULL; e++) {
        char *value = secret_in(*e);
        if (value != NULL)
            hide_entry(e, value);
    }
}

void env_secret_hide(const char *name)
{
    for (char **e = environ; *e != NULL; e++) {
        char *value = value_in(*e, name);
        if (value != NULL && secret_in(*e) == NULL) /* or it is hidden */
            hide_entry(e, value);
    }
}

void env_secrets_forget(void)
{
    for (char **e = environ; *e != NULL; e++) {
        char *value = secret_in(*e);
        if (value != NULL)
            explicit_bzero(value, strlen(value));
    }
}

/* ---- files ---- */

static const char *env_secret_file_of(const char *name)
{
    char variable[NAME_MAX_N + 8];
    snprintf(variable, sizeof variable, "%.*s_FILE", NAME_MAX_N, name);
    const char *path = getenv(variable);
    return path != NULL && *path != '\0' ? path : NULL;
}

static int env_secret_fail(const char *path, const char *what, char *why, size_t size)
{
    snprintf(why, size, "%.200s %s", path, what);
    return ERR_SYNTAX;
}

int env_secret_read(const char *path, char **out, char *why, size_t size)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return env_secret_fail(path, strerror(errno), why, size);
    char *text = secret_alloc(ENV_SECRET_MAX + 1);
    setvbuf(f, NULL, _IONBF, 0); /* no copy of it stays behind */
    size_t n = fread(text, 1, ENV_SECRET_MAX + 1, f);
    const char *wrong = ferror(f) ? strerror(errno) : NULL;
    fclose(f);
    if (wrong == NULL && n > ENV_SECRET_MAX)
        wrong = "has more than 64 KiB";
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (wrong == NULL && n == 0)
        wrong = "is empty";
    if (wrong == NULL && memchr(text, '\0', n) != NULL)
        wrong = "holds a NUL byte";
    if (wrong == NULL) {
        *out = mem_zalloc(n + 1);
        memcpy(*out, text, n);
    }
    secret_free(text, ENV_SECRET_MAX + 1);
    return wrong == NULL ? 0 : env_secret_fail(path, wrong, why, size);
}

static int read_named_file(const char *name, const char *path, char **out, char *why, size_t size)
{
    int n = snprintf(why, size, "%s_FILE: ", name);
    size_t used = (size_t)n < size ? (size_t)n : size;
    return env_secret_read(path, out, why + used, size - used);
}

int env_secret_get(const char *name, char **out, char *why, size_t size)
{
    const char *value = getenv(name), *path = env_secret_file_of(name);
    *out = NULL;
    if (value != NULL && *value != '\0' && path != NULL) {
        snprintf(why, size, "%s and %s_FILE are both set; one of them is enough", name, name);
        return ERR_SYNTAX;
    }
    if (path != NULL)
        return read_named_file(name, path, out, why, size);
    if (value != NULL && *value != '\0') {
        size_t n = strlen(value) + 1;
        *out = memcpy(mem_alloc(n), value, n);
    }
    return 0;
}

void env_secret_drop(char **secret)
{
    if (*secret != NULL)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

bool env_secret_file_is_open(const char *path)
{
    struct stat st;
    return path != NULL && stat(path, &st) == 0 && (st.st_mode & S_IROTH) != 0;
}

bool env_secret_is_open(const char *name)
{
    return env_secret_file_is_open(env_secret_file_of(name));
}

bool env_secret_is_pipe(const char *name)
{
    struct stat st;
    const char *path = env_secret_file_of(name);
    return path != NULL && stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

const char *env_secret_in_pipe(void)
{
    for (const char *const *name = env_secret_names; *name != NULL; name++)
        if (env_secret_is_pipe(*name))
            return *name;
    return NULL;
}
