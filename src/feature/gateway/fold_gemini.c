// SPDX-License-Identifier: Apache-2.0
/* fold_gemini.c -- chunks of streamGenerateContent as one GenerateContentResponse.
 *
 * Candidates are told apart by their index, 0 if they have none. Parts of text that follow one
 * another are joined, those of thoughts apart from the others; all other parts stay as they came.
 * Of everything else the last chunk counts. */
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/fold_draft.h"

#include <stdlib.h>

/* What the last part of a candidate is. */
enum tail { TAIL_OTHER, TAIL_TEXT, TAIL_THOUGHT };

struct gemini {
    struct draft response;
    uint8_t tails[DRAFT_INDEX_MAX + 1]; /* enum tail */
    bool finished[DRAFT_INDEX_MAX + 1]; /* with a reason */
    uint64_t n_candidates;
};

static void *fold_gemini_open(void)
{
    return mem_zalloc(sizeof(struct gemini));
}

static void fold_gemini_close(void *state)
{
    struct gemini *g = state;
    draft_deinit(&g->response);
    free(g);
}

/* ---- parts ---- */

/* Text, or a thought, and nothing besides: what can be joined. */
static enum tail kind_of(struct str part, struct str *text)
{
    struct str name, value;
    bool thought = false;
    *text = STR_NONE;
    if (view_type(part) != VIEW_OBJECT)
        return TAIL_OTHER;
    for (struct str rest = view_inside(part); view_member(&rest, &name, &value);) {
        if (str_eq(name, STR("text")) && view_type(value) == VIEW_STRING)
            *text = value;
        else if (str_eq(name, STR("thought")) && view_type(value) == VIEW_BOOL)
            thought = value.p[0] == 't';
        else
            return TAIL_OTHER;
    }
    if (text->n == 0)
        return TAIL_OTHER;
    return thought ? TAIL_THOUGHT : TAIL_TEXT;
}

static void join_part(struct fold *f, struct draft *parts, uint64_t index, struct str part)
{
    struct gemini *g = f->state;
    struct str text;
    enum tail kind = kind_of(part, &text);
    if (kind != TAIL_OTHER && kind == g->tails[index] && parts != NULL && parts->n > 0)
        draft_grow(f, draft_member(f, parts->entries[parts->n - 1].value, STR("text")), text);
    else
        draft_set(f, draft_push(f, parts), part);
    g->tails[index] = (uint8_t)kind;
}

static void join_content(struct fold *f, struct draft *candidate, uint64_t index,
                         struct str content)
{
    struct draft *to = draft_member(f, candidate, STR("content"));
    struct str name, value, part;
    for (struct str rest = view_inside(content); view_member(&rest, &name, &value);) {
        struct draft *member = draft_member(f, to, name);
        if (!str_eq(name, STR("parts")) || view_type(value) != VIEW_ARRAY) {
            draft_set(f, member, value);
            continue;
        }
        for (struct str parts = view_inside(value); view_element(&parts, &part);)
            join_part(f, member, index, part);
    }
}

/* ---- candidates ---- */

static bool index_of(struct str candidate, uint64_t *index)
{
    struct view_want want = {.name = STR_INIT("index")};
    *index = 0;
    if (view_type(candidate) != VIEW_OBJECT)
        return false;
    view_pick(candidate, &want, 1);
    return want.value.n == 0 || draft_index(want.value, index);
}

static void join_candidate(struct fold *f, struct draft *candidates, struct str candidate)
{
    struct gemini *g = f->state;
    struct str name, value;
    uint64_t index;
    index_of(candidate, &index);
    struct draft *to = draft_element(f, candidates, index);
    for (struct str rest = view_inside(candidate); view_member(&rest, &name, &value);) {
        if (str_eq(name, STR("content")) && view_type(value) == VIEW_OBJECT)
            join_content(f, to, index, value);
        else
            draft_set(f, draft_member(f, to, name), value);
        if (str_eq(name, STR("finishReason")) && view_type(value) == VIEW_STRING)
            g->finished[index] = true;
    }
    g->n_candidates = index >= g->n_candidates ? index + 1 : g->n_candidates;
}

static bool candidates_fit(struct str candidates)
{
    struct str value;
    uint64_t index;
    if (view_type(candidates) != VIEW_ARRAY)
        return false;
    for (struct str rest = view_inside(candidates); view_element(&rest, &value);)
        if (!index_of(value, &index))
            return false;
    return true;
}

/* ---- chunks ---- */

static void join_chunk(struct fold *f, struct str chunk)
{
    struct gemini *g = f->state;
    struct str name, value, candidate;
    for (struct str rest = view_inside(chunk); view_member(&rest, &name, &value);) {
        struct draft *member = draft_member(f, &g->response, name);
        if (!str_eq(name, STR("candidates")) || !candidates_fit(value)) {
            draft_set(f, member, value);
            continue;
        }
        for (struct str all = view_inside(value); view_element(&all, &candidate);)
            join_candidate(f, member, candidate);
    }
    f->folded = true;
}

static void fold_gemini_feed(struct fold *f, struct str type, struct str data)
{
    enum { CANDIDATES, ERROR, N };
    struct view_want wants[N] = {
        [CANDIDATES] = {.name = STR_INIT("candidates")}, [ERROR] = {.name = STR_INIT("error")}};
    view_pick(data, wants, N);
    if (view_type(wants[ERROR].value) == VIEW_OBJECT) {
        fold_set(f, &f->error, wants[ERROR].value);
        fold_ended(f, FOLD_FAILED);
    } else if (wants[CANDIDATES].value.n > 0 && !candidates_fit(wants[CANDIDATES].value)) {
        fold_skip(f);
    } else {
        join_chunk(f, data);
    }
}

static bool fold_gemini_is_complete(const struct fold *f)
{
    const struct gemini *g = f->state;
    for (uint64_t i = 0; i < g->n_candidates; i++)
        if (!g->finished[i])
            return false;
    return g->n_candidates > 0;
}

static void fold_gemini_put(const struct fold *f, struct buf *out)
{
    const struct gemini *g = f->state;
    draft_put(&g->response, out);
}

const struct fold_ops fold_gemini_ops = {
    .name = "gemini",
    .json = true,
    .open = fold_gemini_open,
    .close = fold_gemini_close,
    .feed = fold_gemini_feed,
    .put = fold_gemini_put,
    .is_complete = fold_gemini_is_complete,
};
