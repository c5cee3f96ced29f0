// SPDX-License-Identifier: Apache-2.0
/* issuers.h -- verifies tokens: whose they are, with which keys, and who that makes of whoever
 * shows them. The issuers are the policy's, and this server itself (access/minted.h).
 *
 * Cheap things come first: its form, a known `iss`, a known key; then the signature, as long as the
 * budget for bad ones lasts (tokens.h). Loop thread only. */
#ifndef HTTP_ISSUERS_H
#define HTTP_ISSUERS_H

#include "base/str.h"

#include <stdbool.h>

struct audit;
struct fetcher;
struct issuers;
struct jwk_set;
struct jwks;
struct policy;
struct principal;
struct sched;
struct tokens;
struct trace;

struct issuers_setup {
    struct sched *sched;
    struct fetcher *fetcher; /* NULL: no keys are fetched */
    struct tokens *tokens;   /* for its budget; forgets when keys change */
    const struct trace *trace;
    struct audit *audit; /* NULL: none */
    /* Keys came, or are gone: issuers_lost may answer otherwise. NULL: nobody asks. */
    void (*changed)(void *ctx);
    void *ctx;
};

struct issuers *issuers_new(const struct issuers_setup *setup);
void issuers_free(struct issuers *s); /* NULL is allowed */

/* No key is fetched any more: the fetcher is about to go. Whoever waits is told. */
void issuers_stop(struct issuers *s);

/* The settings have been read, or read again: keys at URLs that stay are kept, and asked for anew.
 * Takes a reference. */
void issuers_set_policy(struct issuers *s, struct policy *policy);

/* What tokens of our own are verified with; kept by the caller. NULL: there are none. */
void issuers_set_own(struct issuers *s, const struct jwk_set *keys);

/* Whoever was known by a token, or by his section: would he not be any more? His section is gone or
 * another one, or the key of his token is. While keys are being fetched, nobody is lost for them.
 */
bool issuers_lost(const struct issuers *s, const struct principal *p);

enum issuers_origin {
    ISSUERS_FOREIGN, /* nobody's here */
    ISSUERS_THEIRS,  /* of an issuer of the policy, for this server */
    ISSUERS_OURS,    /* signed by this server */
};

/* Whose a text says that it is. Nothing is verified: a token that has ended, or whose signature is
 * not good, is of the same origin. */
enum issuers_origin issuers_origin(const struct issuers *s, struct str token);

enum issuers_verdict {
    ISSUERS_GOOD,
    ISSUERS_BAD,     /* and stays so */
    ISSUERS_BAD_NOW, /* it might be good at another time, or with other keys */
    ISSUERS_NO_KEY,  /* the key is not there, but others of the issuer are */
    ISSUERS_NO_KEYS, /* none of the issuer's are */
    ISSUERS_BUSY,    /* too many were bad */
};

struct issuers_answer {
    struct principal *principal; /* ISSUERS_GOOD: one reference is the caller's */
    const char *why;             /* all others: for traces; static */
    bool ended;                  /* it was good, and its time is over: nobody made it up */
    struct jwks *jwks;           /* ISSUERS_NO_KEY and NO_KEYS: where to wait; NULL: nowhere */
};

/* link: it was found in a URL. */
enum issuers_verdict issuers_verify(struct issuers *s, struct str token, bool link,
                                    struct issuers_answer *out);

#endif
