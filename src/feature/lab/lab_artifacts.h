// SPDX-License-Identifier: Apache-2.0
/* lab_artifacts.h -- what a run has left in its folder, and what that says of it. In a lane only.
 */
#ifndef FEATURE_LAB_LAB_ARTIFACTS_H
#define FEATURE_LAB_LAB_ARTIFACTS_H

#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

struct lab_roots;

/* Paths of files that are there; owned, NULL: none. */
struct lab_artifacts {
    char *video; /* video.mp4, or else the first .mp4 by name */
    char *script, *timestamps, *visuals, *score;
    char *sync_report, *caption_report;
};
void lab_artifacts_find(struct lab_artifacts *a, const char *folder);
void lab_artifacts_deinit(struct lab_artifacts *a);
bool lab_artifacts_any(const struct lab_artifacts *a);

/* A name that may be asked for. */
bool lab_artifact_allowed(struct str name);

/* Files outside of the roots, too large or no JSON count as missing. The caller's references. */
json_t *lab_artifacts_summary(const struct lab_artifacts *a, const struct lab_roots *roots);
json_t *lab_artifacts_topic(const struct lab_artifacts *a, const struct lab_roots *roots);
json_t *lab_artifacts_reports(const struct lab_artifacts *a); /* NULL: none */

/* Of a summary, what feedback keeps. */
json_t *lab_summary_snapshot(const json_t *summary);

/* Size and time of video and script; NULL: neither is there. */
json_t *lab_artifacts_fingerprint(const struct lab_artifacts *a);

/* The same files as far as one can tell without reading them: where they are does not count. Either
 * may be NULL. */
bool lab_fingerprint_same(const json_t *a, const json_t *b);

#endif
