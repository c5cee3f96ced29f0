// SPDX-License-Identifier: Apache-2.0
/* reserve.h -- bytes of the disk that are kept in a file, to be given up when it is full.
 *
 * A checkpoint takes space before it gives some back: without a reserve nothing could be removed
 * from a full disk. Blocking. */
#ifndef STORE_EMBEDDED_RESERVE_H
#define STORE_EMBEDDED_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct vfs;

/* Makes it as large as is wanted, if there is the space, and tells how large it is then. */
uint64_t reserve_acquire(struct vfs *v, uint64_t want);

/* false: there was none. */
bool reserve_release(struct vfs *v);

#endif
