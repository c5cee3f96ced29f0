// SPDX-License-Identifier: Apache-2.0
/* secret.h -- memory for what must not be found elsewhere: it is left out of core files and of
 * forked processes, kept from the swap where the system allows it, and wiped before it is given
 * back. Whole pages: for few and small things. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

/* Makes the process one that others cannot look into, whoever runs them but root: it leaves no
 * core, and /proc/PID/mem and environ are closed (PR_SET_DUMPABLE). For the time that it holds a
 * secret; secret_alloc calls it. */
void secret_shield(void);
void secret_unshield(void); /* none is held any more */

/* Zeroed, never NULL. */
void *secret_alloc(size_t n);
void secret_free(void *p, size_t n); /* n as it was asked for; NULL is fine */

#endif
