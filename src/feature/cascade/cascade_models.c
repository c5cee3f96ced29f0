// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_models.h"

#include "base/err.h"
#include "base/map.h"
#include "base/utf8.h"
#include "feature/cascade/cascade_wire.pb-c.h"
#include "base/wire_message.h"

#define PRIVATE_PREFIX "MODEL_PRIVATE_"

/* Numbers of the slots, in runs of five: PRIVATE_1 is 219. */
#define SLOTS_PER_RUN  5
static const int64_t slot_runs[] = {219, 314, 347, 363, 372, 380};

/* From 1; 0: the number is no slot's. */
static size_t slot_of(int64_t number)
{
    for (size_t i = 0; i < sizeof slot_runs / sizeof *slot_runs; i++)
        if (number >= slot_runs[i] && number < slot_runs[i] + SLOTS_PER_RUN)
            return i * SLOTS_PER_RUN + (size_t)(number - slot_runs[i]) + 1;
    return 0;
}

static bool is_uid(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~')
            return false;
    return s.n > 0 && s.n <= CASCADE_MODEL_UID_MAX;
}

/* False: it cannot be asked for. */
static bool read_model(struct arena *a, const Cascade__ClientModelConfig *c,
                       struct cascade_model *out)
{
    struct cascade_model m = {
        .uid = wire_str(c->model_uid),
        .label = wire_str(c->label),
        .number = c->model_or_alias != NULL ? c->model_or_alias->model : 0,
        .is_new = c->is_new,
        .disabled = c->disabled,
        .disabled_reason = wire_str(c->disabled_reason),
    };
    size_t slot = slot_of(m.number);
    if (m.uid.n == 0 && slot > 0)
        m.uid = arena_printf(a, PRIVATE_PREFIX "%zu", slot);
    if (!is_uid(m.uid))
        return false;
    if (m.label.n == 0)
        m.label = m.uid;
    m.is_private = str_starts(m.uid, STR(PRIVATE_PREFIX));
    *out = m;
    return true;
}

static bool texts_valid(const Cascade__ClientModelConfig *c)
{
    return utf8_valid(wire_str(c->label)) && utf8_valid(wire_str(c->disabled_reason));
}

/* Slots behind all others, else as they came. */
static struct cascade_model *put_in_order(struct arena *a, const struct cascade_model *items,
                                          size_t n)
{
    struct cascade_model *ordered = arena_alloc(a, n * sizeof *ordered);
    size_t at = 0;
    for (int private = 0; private < 2; private ++)
        for (size_t i = 0; i < n; i++)
            if (items[i].is_private == (private == 1))
                ordered[at++] = items[i];
    return ordered;
}

static int read_models(struct arena *a, const Cascade__CascadeModelConfigData *data,
                       struct cascade_models *out)
{
    if (data->n_client_model_configs > CASCADE_MODELS_MAX)
        return ERR_TOO_LARGE;
    struct cascade_model *items = arena_alloc(a, data->n_client_model_configs * sizeof *items);
    size_t n = 0;
    int err = 0;
    struct map seen;
    map_init(&seen);
    for (size_t i = 0; i < data->n_client_model_configs && err == 0; i++) {
        const Cascade__ClientModelConfig *c = data->client_model_configs[i];
        if (!texts_valid(c))
            err = ERR_SYNTAX;
        else if (read_model(a, c, &items[n]) && map_get(&seen, items[n].uid) == NULL) {
            map_put(&seen, items[n].uid, &items[n]);
            n++;
        }
    }
    map_deinit(&seen);
    if (err == 0)
        *out = (struct cascade_models){.items = put_in_order(a, items, n), .n = n};
    return err;
}

static const struct cascade_model *find_uid(const struct cascade_models *m, struct str uid)
{
    for (size_t i = 0; i < m->n; i++)
        if (str_eq(m->items[i].uid, uid))
            return &m->items[i];
    return NULL;
}

int cascade_models_read(struct arena *a, struct str bytes, struct cascade_models *out)
{
    struct wire_reading r;
    Cascade__GetUserStatusResponse *status;
    struct cascade_models models = {0};
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &cascade__get_user_status_response__descriptor, bytes, &status);
    if (err != 0)
        return err;
    const Cascade__UserStatus *user = status->user_status;
    const Cascade__CascadeModelConfigData *data =
        user != NULL ? user->cascade_model_config_data : NULL;
    if (data != NULL)
        err = read_models(a, data, &models);
    if (err != 0)
        return err;
    if (data != NULL && data->default_override_model_config != NULL) {
        struct str uid = wire_str(data->default_override_model_config->model_uid);
        if (find_uid(&models, uid) != NULL)
            models.default_uid = uid;
    }
    *out = models;
    return 0;
}

const struct cascade_model *cascade_models_find(const struct cascade_models *m, struct str name)
{
    const struct cascade_model *found = find_uid(m, name);
    for (size_t i = 0; i < m->n && found == NULL; i++)
        if (str_eq_nocase(m->items[i].label, name))
            found = &m->items[i];
    for (size_t i = 0; i < m->n && found == NULL; i++)
        if (m->items[i].is_private && str_eq(str_skip(m->items[i].uid, strlen("MODEL_")), name))
            found = &m->items[i];
    return found;
}
