// SPDX-License-Identifier: Apache-2.0
#include "store/catalog/verdict.h"
#include "base/err.h"
#include "store/content.h"

static bool same_claim(const struct producer_claim *a, const struct producer_claim *b)
{
    return a->epoch == b->epoch && a->seq == b->seq && str_eq(a->id, b->id);
}

/* A closed stream takes nothing; but closing it again is no failure, and the request that closed
 * it may come again (its answer was lost). */
static int closed_verdict(const struct verdict_state *s, struct store_write *w)
{
    if (s->producer != NULL)
        w->producer = *s->producer;
    if (!w->close)
        return ERR_CLOSED;
    if (w->claim.id.n > 0) {
        if (s->closed_by.id.n == 0 || !same_claim(&s->closed_by, &w->claim))
            return ERR_CLOSED;
        w->producer = (struct producer_state){w->claim.epoch, w->claim.seq};
        return VERDICT_DUPLICATE;
    }
    return w->data.n == 0 && w->data_err == 0 ? VERDICT_DUPLICATE : ERR_CLOSED;
}

static int producer_verdict(const struct verdict_state *s, struct store_write *w)
{
    int v = producer_check(s->producer, &w->claim, &w->expected_seq);
    if (v == PRODUCER_ACCEPT)
        w->producer = (struct producer_state){w->claim.epoch, w->claim.seq};
    else if (s->producer != NULL)
        w->producer = *s->producer;
    return v == PRODUCER_DUPLICATE ? VERDICT_DUPLICATE : v;
}

int verdict_write(const struct verdict_state *s, struct store_write *w)
{
    if (s->closed)
        return closed_verdict(s, w);
    if (w->content_type.p != NULL && !content_same(s->content_type, w->content_type))
        return ERR_TYPE_MISMATCH;
    if (w->claim.id.n > 0) {
        int v = producer_verdict(s, w);
        if (v != VERDICT_APPLY)
            return v;
    }
    if (w->seq.p != NULL && s->last_seq.p != NULL && str_cmp(w->seq, s->last_seq) <= 0)
        return ERR_SEQ_ORDER;
    bool own_life = w->match.life == s->life || offset_is_zero(w->match);
    if (w->if_match && (!own_life || w->match.pos != s->tail))
        return ERR_TAIL_MOVED;
    return w->data_err;
}

bool verdict_same_config(const struct stream_config *kept, const struct stream_config *asked,
                         struct str content_type)
{
    bool same_type = asked->content_type.n == 0 ? asked->fork_of.n > 0
                                                : content_same(asked->content_type, content_type);
    bool same_fork = str_eq(kept->fork_of, asked->fork_of) &&
                     kept->fork_at_tail == asked->fork_at_tail &&
                     kept->fork_sub == asked->fork_sub && kept->fork_at.pos == asked->fork_at.pos;
    bool same_retain = kept->retain.events == asked->retain.events &&
                       kept->retain.bytes == asked->retain.bytes &&
                       kept->retain.age_ms == asked->retain.age_ms;
    return same_type && same_fork && same_retain && kept->ttl_s == asked->ttl_s &&
           kept->expires_ms == asked->expires_ms;
}
