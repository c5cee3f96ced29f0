// SPDX-License-Identifier: Apache-2.0
/* lab_http_core.h -- what the files of the Lab's HTTP interface share. */
#ifndef FEATURE_LAB_LAB_HTTP_CORE_H
#define FEATURE_LAB_LAB_HTTP_CORE_H

#include "base/buf.h"
#include "base/gate.h"
#include "base/lane.h"
#include "base/sched.h"
#include "feature/lab/lab_problem.h"
#include "feature/lab/lab_token.h"
#include "http/message.h"
#include "feature/lab/lab_http.h"

#include <jansson.h>

struct exchange;

struct lab {
    struct lab_setup setup;
    struct lab_store *store; /* the lane's */
    struct lab_tokens tokens;
    uint64_t submissions;
    struct timer exit_soon;
    struct gate calls; /* under way */
};

/* A body that is made in the lane, piece by piece. */
struct lab_source {
    /* Puts some into out, about LAB_PIECE bytes. 1: there is more. 0: that was all. Or an error. */
    int (*next)(struct lab_source *s, struct lab_store *store, struct buf *out);
    void (*free)(struct lab_source *s);
};
#define LAB_PIECE (64 * 1024)

/* One request, from its head to its answer. The lane works on it in run(); everything else is done
 * on the loop, never at the same time. */
struct lab_call {
    struct lab *lab;
    struct exchange *x; /* held until the answer has begun */
    const struct lab_route *route;
    struct str ids[2];                      /* from the path, decoded */
    struct str body, request, range_wanted; /* of the request; the exchange's memory */
    struct str since, limit, session, run;  /* parameters; p == NULL: not given */
    char token[LAB_TOKEN_MAX];              /* for who asks to post with */
    /* what run() leaves */
    struct lab_problem problem;
    json_t *answer;
    struct lab_source *source; /* instead of an answer */
    int status;                /* of a source's answer; 0: 200 */
    const char *type;          /* NULL: JSON */
    int64_t length;            /* of it; < 0: not known */
    char range[80];            /* Content-Range; empty: none */
    bool ranges;               /* Accept-Ranges */
    bool again;                /* run() wants to be called once more */
    void *work;                /* of a run() that takes several calls */
    void (*free_work)(void *work);
    bool counts; /* a submission for the task */
    /* private to lab.c */
    struct job job;
    struct buf piece;
    int more; /* of the source's last next() */
    bool running, begun, gone;
};

struct lab_route {
    enum method method;
    struct str path; /* behind /api/; `*` stands for one part */
    void (*run)(struct lab_call *c, struct lab_store *store);
};

/* The request's body as an object; NULL: the problem is set. The caller's reference. */
json_t *lab_call_body(struct lab_call *c);

/* The request id of the header, or else of the body. */
struct str lab_call_request(const struct lab_call *c, const json_t *body);

/* `{"NAME":value}`; takes the value over. */
void lab_call_answer_one(struct lab_call *c, const char *name, json_t *value);

/* ---- run() of the routes ---- */

void lab_get_config(struct lab_call *c, struct lab_store *s);
void lab_get_feedback(struct lab_call *c, struct lab_store *s);
void lab_post_feedback(struct lab_call *c, struct lab_store *s);
void lab_get_runs(struct lab_call *c, struct lab_store *s);
void lab_get_run(struct lab_call *c, struct lab_store *s);
void lab_import_run(struct lab_call *c, struct lab_store *s);
void lab_get_video(struct lab_call *c, struct lab_store *s);
void lab_get_artifact(struct lab_call *c, struct lab_store *s);
void lab_get_experiments(struct lab_call *c, struct lab_store *s);
void lab_get_experiment(struct lab_call *c, struct lab_store *s);
void lab_create_experiment(struct lab_call *c, struct lab_store *s);
void lab_submit_decision(struct lab_call *c, struct lab_store *s);
void lab_post_export(struct lab_call *c, struct lab_store *s);

/* The page and what belongs to it; false: there is no such file. */
bool lab_page_serve(struct exchange *x);

/* {"items":[...],"nextCursor":null} of an index, newest first; view gives what is shown of a record
 * and takes it over. */
struct lab_index;
struct lab_source *lab_list_new(struct lab_index *index,
                                json_t *(*view)(struct lab_store *s, json_t *record));

#endif
