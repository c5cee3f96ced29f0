// SPDX-License-Identifier: Apache-2.0
/* shelf.h -- keeps the last few files open that many small things are read from.
 *
 * A vfs over another, for reading files that are never written again. One that is closed stays
 * open beneath, until as many others have been used since. What is read goes through a window,
 * which is small at first and larger for a file that is read on from where the last one ended:
 * blocks of a checkpoint stand in the order of their streams. One thread. */
#ifndef STORE_EMBEDDED_SHELF_H
#define STORE_EMBEDDED_SHELF_H

#include "store/embedded/vfs.h"

#define SHELF_FILES 16

struct shelf_file {
    struct file file;
    struct file *under; /* NULL: this place is free */
    char name[64];
    uint64_t size, used; /* when, as the shelf counts */
    char *window;
    uint64_t at; /* of the window in the file */
    size_t n, want;
};

struct shelf {
    struct vfs vfs;
    struct vfs *under;
    uint64_t clock;
    struct shelf_file files[SHELF_FILES];
};

void shelf_init(struct shelf *s, struct vfs *under);
void shelf_deinit(struct shelf *s);

#endif
