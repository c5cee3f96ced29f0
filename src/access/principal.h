// SPDX-License-Identifier: Apache-2.0
/* principal.h -- who is asking, and what he may do.
 *
 * A principal is made once, of a configured caller, a client's certificate or a token that was
 * verified, and owns all its texts. Whoever needs it longer than a call holds it: exchanges do, so
 * that one that was withdrawn from the settings lives as long as what it has asked for. Loop thread
 * only. */
#ifndef ACCESS_PRINCIPAL_H
#define ACCESS_PRINCIPAL_H

#include "access/grant.h"
#include "base/arena.h"
#include "base/list.h"
#include "base/str.h"

struct principal {
    struct str name;   /* for people and traces: of a caller, or `SUB` of an issuer */
    struct str issuer; /* the [issuer]'s name; n == 0: configured here */
    struct str sub;    /* a caller's name, or the token's `sub`; n == 0: nobody in particular */
    struct str id;     /* tells it from all others, across issuers: belongings are kept under it */
    struct str user;   /* whom its token was minted for: one of the minter's; n == 0: nobody else */
    struct str minter; /* ... who had it minted: his id */
    struct str root;   /* before every name of its own; n == 0: none */
    struct str jti;    /* of its token; n == 0: none */
    struct str kid;    /* in its token's header; n == 0: none */
    uint64_t key;      /* print of the key that has signed its token: see jwk_set_holds */
    uint64_t section;  /* print of what its section says: another one makes others of it */
    struct str parent_jti; /* of those it was made from, with a NUL between them; n == 0: none */
    int64_t issued_s;      /* of its token; 0: not known */
    int64_t expires_ms;    /* wall clock; INT64_MAX: never */
    const struct str *capabilities;
    size_t n_capabilities;
    struct access_rights rights;
    struct access_limits limits;

    struct link answers; /* of exchanges under way that end with its right */
    struct link active;  /* of http/answers: it has some */
    void *account;       /* of http/limits: its own, while account_era is the accounts' */
    uint64_t account_era;
    struct arena arena;
    uint32_t refs;    /* 0: it is static, and nobody counts */
    bool known : 1;   /* it has shown a credential */
    bool by_link : 1; /* ... which was in the URL: for reading alone */
    bool minted : 1;  /* ... which we have signed: access/minted.h */
    bool apart : 1;   /* ... for a user who has limits of his own, not the minter's */
    bool gone : 1;    /* its key or section is no longer there: answers to it end */
};

/* Nobody in particular, who may do everything: where no access is configured. Static. */
extern const struct principal principal_anonymous;

/* Empty, with one reference. Its texts go to its arena. */
struct principal *principal_new(void);
/* Counting is no change that anybody sees. */
static inline const struct principal *principal_ref(const struct principal *p)
{
    if (p->refs > 0)
        ((struct principal *)p)->refs++;
    return p;
}
void principal_unref(const struct principal *p); /* NULL is allowed */

/* Whom it counts as, where something is limited. */
static inline struct str principal_counts_as(const struct principal *p)
{
    return p->user.n > 0 && !p->apart ? p->minter : p->id;
}

bool principal_can(const struct principal *p, struct str capability);

/* Is it a worker, who is shown some of what the server keeps for itself? By its capability, or by a
 * grant. */
bool principal_works(const struct principal *p);

/* Decides. A name is as the principal sees it, without its root. */
static inline bool principal_may(const struct principal *p, enum access_verb verb,
                                 enum access_kind kind, struct str name)
{
    return p->rights.n == 0 || access_allows(&p->rights, verb, kind, name);
}

/* Names on their way in and out. Of a name that is not below its root nothing is shown: n == 0. */
struct str principal_rooted(const struct principal *p, struct arena *a, struct str name);
struct str principal_unrooted(const struct principal *p, struct str name);

/* A capability as it is spelt in settings: see `check` in base/options.h. */
int principal_check_capability(struct str value, char *reason, size_t size);

#endif
