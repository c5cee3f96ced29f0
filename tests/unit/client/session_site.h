// SPDX-License-Identifier: Apache-2.0
/* session_site.h -- a server of sessions for tests: the real one, that echoes, on a Unix socket in
 * a folder of its own. It can be killed and comes back at the same place. */
#ifndef TESTS_SESSION_SITE_H
#define TESTS_SESSION_SITE_H

#include "tidemark.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SITE_PATIENCE_MS 20000

struct site {
    char folder[64];
    char url[96];
    char binary[512];
    pid_t pid;
};

static inline void site_write(const struct site *s, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
        abort();
}

/* The server that was built beside this test, unless TIDEMARK_BIN names another. */
static inline void site_find_binary(struct site *s)
{
    const char *named = getenv("TIDEMARK_BIN");
    char self[400];
    if (named != NULL) {
        snprintf(s->binary, sizeof s->binary, "%s", named);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        abort();
    self[n] = '\0';
    snprintf(s->binary, sizeof s->binary, "%s/../../../tidemark", dirname(self));
}

static inline int site_answers(const struct site *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/socket", s->folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int err = connect(fd, (struct sockaddr *)&to, sizeof to);
    close(fd);
    return err == 0;
}

static inline void site_start(struct site *s)
{
    char config[96], data[96], listen[96], trace[96];
    snprintf(config, sizeof config, "%s/tidemark.conf", s->folder);
    snprintf(data, sizeof data, "%s/data", s->folder);
    snprintf(listen, sizeof listen, "unix:%s/socket", s->folder);
    snprintf(trace, sizeof trace, "%s/trace", s->folder);
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
        int fd = open(trace, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execl(s->binary, s->binary, "serve", "--config", config, "--data", data, "--listen", listen,
              (char *)NULL);
        _exit(127);
    }
    for (int waited = 0; !site_answers(s); waited += 20) {
        if (waited > SITE_PATIENCE_MS || waitpid(s->pid, NULL, WNOHANG) != 0) {
            fprintf(stderr, "%s does not serve\n", s->binary);
            abort();
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
}

static inline void site_kill(struct site *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
}

static inline void site_init(struct site *s, const char *config)
{
    *s = (struct site){.folder = "/tmp/tidemark-session-XXXXXX"};
    if (mkdtemp(s->folder) == NULL)
        abort();
    snprintf(s->url, sizeof s->url, "unix:%s/socket", s->folder);
    site_find_binary(s);
    site_write(s, "tidemark.conf", config);
    site_start(s);
}

static inline void site_deinit(struct site *s)
{
    char command[128];
    site_kill(s);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    if (system(command) != 0)
        abort();
}

#endif
