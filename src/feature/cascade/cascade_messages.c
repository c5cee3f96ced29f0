// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_messages.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/utf8.h"
#include "feature/cascade/cascade_transcript.h"
#include "feature/cascade/cascade_wire.pb-c.h"
#include "base/wire_message.h"

#define SOURCE_CASCADE_CLIENT   1
#define TRAJECTORY_TYPE_CASCADE 4

/* A field that is there, empty or not. */
#define SET(m, field, value)    ((m).has_##field = 1, (m).field = (value))
#define SET_TEXT(m, field, s)   SET(m, field, wire_bytes((s).n > 0 ? (s) : STR("")))

/* ---- what we send ---- */

uint64_t cascade_next_request_id(uint64_t *last, int64_t wall_ms)
{
    *last = *last == 0 && wall_ms > 0 ? (uint64_t)wall_ms : *last + 1;
    return *last;
}

/* A Metadata with what it points to. */
struct metadata {
    Cascade__Metadata message;
    Cascade__Timestamp time;
};

static void set_time(struct metadata *out, int64_t wall_ms)
{
    int64_t seconds = wall_ms / 1000, ms = wall_ms % 1000;
    if (ms < 0) {
        seconds--;
        ms += 1000;
    }
    cascade__timestamp__init(&out->time);
    SET(out->time, seconds, seconds);
    if (ms > 0)
        SET(out->time, nanos, (int32_t)(ms * 1000000));
    out->message.ls_timestamp = &out->time;
}

/* With fewer fields a server says that there is an error with the session, whatever the key. */
static Cascade__Metadata *fill_metadata(struct metadata *out, const struct cascade_metadata *m)
{
    Cascade__Metadata *w = &out->message;
    cascade__metadata__init(w);
    if (m == NULL)
        return w;
    SET_TEXT(*w, ide_name, STR("windsurf"));
    SET_TEXT(*w, extension_version, m->version);
    SET_TEXT(*w, api_key, m->api_key);
    SET_TEXT(*w, locale, STR("en"));
    SET_TEXT(*w, os, m->os);
    SET_TEXT(*w, ide_version, m->version);
    SET(*w, request_id, m->request_id);
    SET_TEXT(*w, session_id, m->session_id);
    SET_TEXT(*w, extension_name, STR("windsurf"));
    set_time(out, m->wall_ms);
    SET_TEXT(*w, extension_path, STR(""));
    SET_TEXT(*w, device_fingerprint, STR(""));
    SET_TEXT(*w, trigger_id, m->trigger_id);
    SET_TEXT(*w, plan_name, STR("Unset"));
    SET_TEXT(*w, ide_type, STR("windsurf"));
    return w;
}

static void put_metadata_request(struct buf *out, const struct cascade_metadata *m)
{
    struct metadata metadata;
    Cascade__MetadataRequest request;
    cascade__metadata_request__init(&request);
    request.metadata = fill_metadata(&metadata, m);
    wire_put(out, &request);
}

void cascade_put_initialize(struct buf *out, const struct cascade_metadata *m)
{
    put_metadata_request(out, m);
}

void cascade_put_user_status(struct buf *out, const struct cascade_metadata *m)
{
    put_metadata_request(out, m);
}

void cascade_put_start(struct buf *out, const struct cascade_metadata *m)
{
    struct metadata metadata;
    Cascade__StartCascadeRequest request;
    cascade__start_cascade_request__init(&request);
    request.metadata = fill_metadata(&metadata, m);
    SET(request, source, SOURCE_CASCADE_CLIENT);
    SET(request, trajectory_type, TRAJECTORY_TYPE_CASCADE);
    wire_put(out, &request);
}

/* `conversational` is there and empty: without it no planner ever looks at the message. */
void cascade_put_send(struct buf *out, struct str cascade_id, struct str text, struct str model_uid,
                      const struct cascade_metadata *m)
{
    struct metadata metadata;
    Cascade__TextOrScopeItem item, *items[] = {&item};
    Cascade__Conversational conversational;
    Cascade__PlannerConfig planner;
    Cascade__CascadeConfig config;
    Cascade__SendUserCascadeMessageRequest request;
    cascade__text_or_scope_item__init(&item);
    SET_TEXT(item, text, text);
    cascade__conversational__init(&conversational);
    cascade__planner_config__init(&planner);
    planner.conversational = &conversational;
    SET_TEXT(planner, requested_model_uid, model_uid);
    cascade__cascade_config__init(&config);
    config.planner_config = &planner;
    cascade__send_user_cascade_message_request__init(&request);
    SET_TEXT(request, cascade_id, cascade_id);
    request.items = items;
    request.n_items = 1;
    request.metadata = fill_metadata(&metadata, m);
    request.cascade_config = &config;
    SET(request, blocking, 0);
    wire_put(out, &request);
}

static void put_cascade_id(struct buf *out, struct str cascade_id)
{
    Cascade__CascadeIdRequest request;
    cascade__cascade_id_request__init(&request);
    SET_TEXT(request, cascade_id, cascade_id);
    wire_put(out, &request);
}

void cascade_put_transcript(struct buf *out, struct str cascade_id)
{
    put_cascade_id(out, cascade_id);
}

void cascade_put_archive(struct buf *out, struct str cascade_id)
{
    put_cascade_id(out, cascade_id);
}

/* ---- what servers answer ---- */

static bool is_cascade_id(struct str s)
{
    return (s.n == 0 || ascii_is_word(s, "-_.")) && s.n <= CASCADE_ID_MAX && !str_eq(s, STR(".")) &&
           !str_eq(s, STR(".."));
}

int cascade_started_read(struct arena *a, struct str bytes, struct str *cascade_id)
{
    struct wire_reading r;
    Cascade__StartCascadeResponse *m;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &cascade__start_cascade_response__descriptor, bytes, &m);
    if (err != 0)
        return err;
    struct str id = wire_str(m->cascade_id);
    if (id.n == 0)
        return ERR_EMPTY;
    if (!is_cascade_id(id))
        return ERR_SYNTAX;
    *cascade_id = id;
    return 0;
}

int cascade_transcript_answer_read(struct arena *a, struct str bytes,
                                   struct cascade_transcript_answer *out)
{
    struct wire_reading r;
    Cascade__TranscriptResponse *m;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &cascade__transcript_response__descriptor, bytes, &m);
    if (err != 0)
        return err;
    struct str text = wire_str(m->transcript);
    if (text.n > CASCADE_TRANSCRIPT_MAX)
        return ERR_TOO_LARGE;
    if (!utf8_valid(text))
        return ERR_SYNTAX;
    *out = (struct cascade_transcript_answer){text, m->num_total_steps};
    return 0;
}

int cascade_raw_message_read(struct arena *a, struct str bytes, struct cascade_raw_message *out)
{
    struct wire_reading r;
    Cascade__RawGetChatMessageResponse *m;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &cascade__raw_get_chat_message_response__descriptor, bytes, &m);
    if (err != 0)
        return err;
    struct cascade_raw_message message = {0};
    if (m->delta_message != NULL) {
        message.text = wire_str(m->delta_message->text);
        message.in_progress = m->delta_message->in_progress;
        message.is_error = m->delta_message->is_error;
    }
    if (!utf8_valid(message.text))
        return ERR_SYNTAX;
    *out = message;
    return 0;
}
