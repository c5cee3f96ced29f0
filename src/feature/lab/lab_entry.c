// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_entry.h"
#include "base/ascii.h"
#include "feature/lab/lab_artifacts.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_path.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"

#include <math.h>

json_t *lab_ratings(const json_t *sent)
{
    json_t *out = json_object();
    const char *name;
    for (size_t i = 0; (name = lab_rating_name(i)) != NULL; i++) {
        double v = floor(lab_json_number(json_object_get(sent, name)) + 0.5);
        if (v >= 0 && v <= 100)
            json_object_set_new(out, name, json_integer((json_int_t)v));
    }
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *lab_entry_text_of(struct str s)
{
    return s.n > 0 ? lab_json_text(s) : NULL;
}

static json_t *notes_of(const json_t *sent)
{
    if (!json_is_string(sent))
        return NULL;
    return lab_entry_text_of(ascii_trim(str_of(json_string_value(sent), json_string_length(sent))));
}

static json_t *tags_of(const json_t *sent, bool keep_none)
{
    if (!json_is_array(sent))
        return NULL;
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(sent); i++) {
        json_t *tag = json_array_get(sent, i);
        struct str text = str_of(json_string_value(tag), json_string_length(tag));
        if (text.n > 0 && ascii_trim(text).n > 0)
            json_array_append(out, tag);
    }
    if (keep_none || json_array_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *object_of(const json_t *sent)
{
    return json_is_object(sent) ? json_incref((json_t *)(uintptr_t)sent) : NULL;
}

/* v may be NULL. */
static void lab_entry_put(json_t *entry, const char *key, json_t *v)
{
    if (v != NULL)
        json_object_set_new_nocheck(entry, key, v);
}

/* As the folder is now: it may have got reports since the import. The video that was imported stays
 * the one that is meant, whatever others there are. */
static void put_run(json_t *entry, const struct lab_said *said)
{
    struct lab_artifacts a;
    struct str folder = lab_json_get(said->record, "artifactsDir");
    struct lab_roots reach = *said->roots;
    reach.own = lab_json_get(said->record, "artifactsDirRealpath").p;
    lab_artifacts_find(&a, folder.p);
    json_t *video = json_object_get(said->record, "videoPath");
    json_t *summary = lab_artifacts_summary(&a, &reach);
    lab_entry_put(entry, "videoPath",
                  video == NULL && a.video != NULL ? json_string(a.video) : json_incref(video));
    lab_entry_put(entry, "artifactsDir", lab_json_text(folder));
    lab_entry_put(entry, "autoMetricsSnapshot", lab_summary_snapshot(summary));
    lab_entry_put(entry, "reports", lab_artifacts_reports(&a));
    json_decref(summary);
    lab_artifacts_deinit(&a);
}

json_t *lab_entry_new(const struct lab_said *said)
{
    json_t *entry = json_object();
    struct str topic = lab_json_get(said->record, "topic");
    lab_entry_put(entry, "id", lab_entry_text_of(said->id));
    lab_entry_put(entry, "createdAt", lab_now());
    lab_entry_put(entry, "sessionId", lab_entry_text_of(said->session));
    lab_entry_put(entry, "runId", lab_entry_text_of(said->run));
    lab_entry_put(entry, "experimentId", lab_entry_text_of(said->experiment));
    lab_entry_put(entry, "variantId", lab_entry_text_of(said->variant));
    lab_entry_put(entry, "topic", lab_entry_text_of(topic.n > 0 ? topic : said->topic));
    lab_entry_put(entry, "ratings", lab_ratings(said->ratings));
    lab_entry_put(entry, "notes", notes_of(said->notes));
    lab_entry_put(entry, "tags", tags_of(said->tags, said->keep_no_tags));
    lab_entry_put(entry, "answers", object_of(said->answers));
    if (said->record != NULL)
        put_run(entry, said);
    json_t *valid = lab_schema_apply(&lab_feedback_schema, entry);
    json_decref(entry);
    return valid;
}
