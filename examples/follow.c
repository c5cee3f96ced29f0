// SPDX-License-Identifier: Apache-2.0
/* follow.c -- prints a stream and what is added to it, until it is closed.
 *
 *     cc follow.c -ltidemark -o follow
 *     ./follow http://127.0.0.1:4437 examples/lines
 *
 * The follower reconnects by itself, from where it was: nothing comes twice and nothing is left
 * out. This program blocks in tm_follower_wait; for programs with a loop of their own see main_loop
 * below, which does the same with poll. */
#include <tidemark.h>

#include <poll.h>
#include <stdio.h>
#include <string.h>

static void print(const struct tm_batch *batch)
{
    fwrite(batch->data, 1, batch->n, stdout);
    fflush(stdout);
    /* Whoever wants to go on here another time keeps batch->next_offset, together with what was
     * made of the data. */
}

/* The simple way. */
static int block(struct tm_follower *follower)
{
    struct tm_batch batch;
    int got;
    while ((got = tm_follower_wait(follower, &batch, TM_FOREVER)) > 0)
        print(&batch);
    return got; /* TM_E_CLOSED: the stream is, and all of it was printed */
}

/* The way for programs that wait for other things as well. */
static int main_loop(struct tm_client *client, struct tm_follower *follower)
{
    struct tm_descriptor wanted[16];
    struct pollfd fds[16];
    struct tm_batch batch;
    for (;;) {
        int got;
        while ((got = tm_follower_next(follower, &batch)) > 0)
            print(&batch);
        if (got < 0)
            return got;
        size_t n = tm_descriptors(client, wanted, 16); /* they change: ask each time */
        for (size_t i = 0; i < n && i < 16; i++) {
            fds[i].fd = wanted[i].fd;
            fds[i].events =
                (short)((wanted[i].readable ? POLLIN : 0) | (wanted[i].writable ? POLLOUT : 0));
        }
        /* Your own descriptors go here, too. */
        poll(fds, n < 16 ? n : 16, tm_deadline_ms(client));
        tm_turn(client);
    }
}

static void notice(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "follow: %s\n", text);
}

int main(int argc, char **argv)
{
    if (argc != 3 && !(argc == 4 && strcmp(argv[3], "--poll") == 0)) {
        fprintf(stderr, "usage: follow SERVER STREAM [--poll]\n");
        return 2;
    }
    struct tm_options options = TM_OPTIONS_INIT;
    options.server = argv[1];
    options.notice = notice; /* told when something is tried again */
    struct tm_client *client = NULL;
    int err = tm_open(&options, &client);
    if (err) {
        fprintf(stderr, "follow: %s: %s\n", argv[1], tm_error_text(err));
        return 1;
    }
    struct tm_follow_options following = TM_FOLLOW_INIT; /* from the start, live */
    struct tm_follower *follower = NULL;
    err = tm_follower_new(client, argv[2], &following, &follower);
    if (err == 0)
        err = argc == 4 ? main_loop(client, follower) : block(follower);
    if (err != TM_E_CLOSED)
        fprintf(stderr, "follow: %s: %s\n", argv[2], tm_error(client));
    tm_follower_free(follower);
    tm_close(client);
    return err == TM_E_CLOSED ? 0 : 1;
}
