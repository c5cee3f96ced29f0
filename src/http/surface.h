// SPDX-License-Identifier: Apache-2.0
/* surface.h -- what is served under a path, and what each request of it needs.
 *
 * A handler can only be mounted with a surface, and a request that none of its rules fits is
 * refused once access is configured: what is not in the table is not served. `tidemark access
 * rules` prints all of them.
 *
 * Of the rules that fit a request (method, path, when), all have to be granted. */
#ifndef HTTP_SURFACE_H
#define HTTP_SURFACE_H

#include "access/verb.h"
#include "base/str.h"

struct exchange;

enum rule_how {
    /* The name is the path's `{name}`; of a route, what of the request's path is the route's. */
    RULE_NAMED = 0,
    RULE_PUBLIC = 1,  /* everybody may: nothing is decided */
    RULE_LATER = 2,   /* the handler decides, by names that it finds in the request: exchange_may */
    RULE_LINK = 4,    /* a credential in the URL will do: GET and HEAD of what can be read */
    RULE_ADMIN = 8,   /* served where admin-listen says, if it says */
    RULE_TICKET = 16, /* Authorization carries a ticket of the surface's own, which it judges */
};

/* Of those that fit a request all have to be granted. */
struct surface_rule {
    const char *id;      /* "stream.append"; NULL behind the last */
    const char *methods; /* "GET HEAD"; "*": all there are */
    /* Below the surface's path: literal segments, `{name}` for one, `{name...}` for all that
     * follow, at least a byte; "": nothing follows. */
    const char *path;
    enum access_verb verb;
    enum access_kind kind;
    unsigned how;                           /* of enum rule_how */
    bool (*when)(const struct exchange *x); /* NULL: always */
};

/* Whose Authorization is on the surface that is asked. */
enum credential_owner {
    CREDENTIAL_OURS,     /* the server's */
    CREDENTIAL_THEIRS,   /* the upstream's, or the surface's own: it passes unjudged */
    CREDENTIAL_PROVIDER, /* ours, and so is what SDKs call the provider's key */
};

/* Why a request is not let in. */
struct surface_refusal {
    int status; /* 400, 401, 403, 421, 429, 503, 507 */
    struct str code, message;
    struct str challenge; /* with 401 and 403: WWW-Authenticate; n == 0: none */
    uint64_t retry_after_s;
};

/* What pages of other origins may ask and read (CORS), if front.h lets them. */
struct surface_share {
    struct str exposed; /* headers of answers; n == 0: only those that every page may read */
    struct str methods;
    struct str headers; /* of requests; n == 0: those that the page asks for */
    struct str keep_s;  /* how long a browser may remember the answer to a preflight */
};
#define SURFACE_KEEP_S "7200" /* as long as any browser does */

struct surface {
    const char *path; /* where it is mounted; NULL: where settings say */
    const struct surface_rule *rules;
    const struct surface_share *share; /* NULL: nothing */
    /* It takes what is below its path and nobody else's: others may be mounted there. Names of a
     * route are whole paths of requests then, which are refused unless they are plain
     * (plain_path.h). */
    bool wide;
    bool strict;      /* it acts, or tells much: foreign pages may not even ask to read */
    bool has_tickets; /* some of its rules have RULE_TICKET */
    bool probe;       /* answers under any name and at every listener, and tells nothing */
    /* What stands in WWW-Authenticate besides, for its clients. NULL: nothing. */
    struct str (*challenge)(void *ctx, struct exchange *x);
    /* Answers a refusal in the words of its clients; headers are set. NULL: the common form. */
    void (*refuse)(void *ctx, struct exchange *x, const struct surface_refusal *why);
    bool unlimited; /* no rate holds for it: see limits.h */
};

#endif
