// SPDX-License-Identifier: Apache-2.0
/* json_view.h -- reading JSON where it lies.
 *
 * All of it is for text that json_check has passed. A value is the run of bytes it was written as,
 * without the white space around it; nothing is copied, and nothing decoded until somebody asks.
 * An empty run stands for a value that is not there. */
#ifndef BASE_JSON_VIEW_H
#define BASE_JSON_VIEW_H

#include "base/buf.h"
#include "base/str.h"

struct arena;

enum view_type {
    VIEW_NONE, /* not there */
    VIEW_NULL,
    VIEW_BOOL,
    VIEW_NUMBER,
    VIEW_STRING,
    VIEW_ARRAY,
    VIEW_OBJECT,
};

enum view_type view_type(struct str value);

/* Without JSON's white space at either end. */
struct str view_trim(struct str s);

/* How deep its brackets nest; 0 for a plain value. */
size_t view_depth(struct str value);

/* What stands between the brackets of an object or array, or the quotes of a string. */
struct str view_inside(struct str value);

/* Takes the first member or element off what view_inside gave. false: there is none left. The name
 * comes without its quotes, its escapes as they are. */
bool view_member(struct str *rest, struct str *name, struct str *value);
bool view_element(struct str *rest, struct str *value);

/* The members of these names, empty for those that are not there; of several the last. One pass. */
struct view_want {
    struct str name, value;
};
void view_pick(struct str object, struct view_want *wants, size_t n);

/* The string's characters, given between its quotes. Half a surrogate pair becomes the three bytes
 * that UTF-8 would have for it if it had any, so that different strings stay different. */
void view_decode(struct str inside, struct buf *out);

/* The same into room for inside.n bytes, which may be where they stand. False: there was half a
 * pair. */
bool view_decode_to(struct str inside, char *out, size_t *n);

/* The escape at the front: its character's bytes, and *inside moves behind it. */
size_t view_unescape(struct str *inside, char out[4]);

/* Is that character half a surrogate pair? In UTF-8 nothing else begins so. */
static inline bool view_is_half(const char c[4])
{
    return (unsigned char)c[0] == 0xed && (unsigned char)c[1] >= 0xa0;
}

/* The characters of a string, in the arena or, without any, static. */
struct str view_text(struct arena *a, struct str value);

/* Is the value the string `text`? And is that what a name says, as view_member gives it? */
bool view_text_is(struct str value, struct str text);
bool view_name_is(struct str name, struct str text);

/* The same value without raw CR and LF, which stand between tokens only. */
void view_put_unbroken(struct buf *out, struct str value);

#endif
