// SPDX-License-Identifier: Apache-2.0
/* curl_loop.h -- one libcurl multi handle on our loop: its sockets and its timer.
 *
 * libcurl says which sockets and which time it waits for; ready() is called when one of them comes,
 * and its caller runs curl_multi_socket_action with what it is given. The owner embeds this. */
#ifndef HTTP_CURL_LOOP_H
#define HTTP_CURL_LOOP_H

#include <curl/curl.h>
#include <uv.h>

struct loop;
struct sched;

struct curl_loop {
    CURLM *multi;
    /* Set before curl_loop_init. Called from the loop, never from within a call of the owner's. */
    void (*ready)(struct curl_loop *c, curl_socket_t fd, int events);
    /* The kernel lets us watch no more sockets, so this transfer will hear nothing. Called from
     * within libcurl. */
    void (*stuck)(struct curl_loop *c, CURL *easy);
    void (*closed)(struct curl_loop *c); /* the memory may go */
    /* private */
    struct sched *sched;
    uv_timer_t timer;
    uv_idle_t wake;
    unsigned open_handles;
};

void curl_loop_init(struct curl_loop *c, struct loop *loop);

/* ready() is called in the loop's next round, once, however often this is asked for; the loop stays
 * alive until then. */
void curl_loop_wake(struct curl_loop *c);

/* Every transfer must have been removed. Handles close with the loop's next round: closed(). */
void curl_loop_close(struct curl_loop *c);

#endif
