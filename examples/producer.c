// SPDX-License-Identifier: Apache-2.0
/* producer.c -- adds each line of standard input to a stream, exactly once.
 *
 *     cc producer.c -ltidemark -o producer
 *     ls | ./producer http://127.0.0.1:4437 examples/lines
 *
 * A producer numbers what it sends. When a connection breaks, nobody knows whether the last batch
 * was stored; the producer sends it again under the same number, and the server recognises what it
 * has. So all you do is append, and look at what flush says at the end. */
#include <tidemark.h>

#include <stdio.h>
#include <string.h>

/* Every failure has a code, and a sentence that says more. */
static int fail(const struct tm_client *client, const char *what, int err)
{
    fprintf(stderr, "producer: %s: %s\n", what, client ? tm_error(client) : tm_error_text(err));
    return 1;
}

/* Makes the stream, or finds that it is there. A call is started, waited for, and freed. */
static int create(struct tm_client *client, const char *name)
{
    struct tm_create_options options = TM_CREATE_INIT;
    options.content_type = "text/plain";
    struct tm_call *call = NULL;
    int err = tm_create(client, name, &options, &call);
    if (err == 0)
        err = tm_call_wait(call, TM_FOREVER);
    tm_call_free(call);
    return err;
}

static int append_lines(struct tm_client *client, struct tm_producer *producer)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        int err;
        /* BUSY: more is waiting than the producer wants to hold. Let it work, and offer the line
         * again. */
        while ((err = tm_producer_append(producer, line, strlen(line))) == TM_E_BUSY)
            tm_wait(client, TM_FOREVER);
        if (err)
            return err;
        tm_turn(client); /* nothing is sent between our calls: there are no hidden threads */
    }
    return tm_producer_flush(producer, TM_FOREVER); /* 0: all of it is stored */
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: producer SERVER STREAM\n");
        return 2;
    }
    struct tm_options options = TM_OPTIONS_INIT;
    options.server = argv[1];
    struct tm_client *client = NULL;
    int err = tm_open(&options, &client);
    if (err)
        return fail(NULL, argv[1], err);

    int status = 0;
    struct tm_producer *producer = NULL;
    struct tm_producer_options producing = TM_PRODUCER_INIT;
    producing.content_type = "text/plain"; /* the stream's */
    err = create(client, argv[2]);
    if (err == 0)
        err = tm_producer_new(client, argv[2], &producing, &producer);
    if (err == 0)
        err = append_lines(client, producer);
    if (err)
        status = fail(client, argv[2], err);
    else
        printf("stored up to %s\n", tm_producer_offset(producer));

    tm_producer_free(producer);
    tm_close(client);
    return status;
}
