// SPDX-License-Identifier: Apache-2.0
/* must.h -- what has to be true for the process to go on, checked in every build.
 *
 * For conditions that keep memory or secrets safe: a size that was bounded before, a count of
 * holders, a library that did as it was told. Unlike assert, -DNDEBUG does not remove it, so the
 * expression may do work. It says on stderr what is false, and aborts: what was acknowledged is
 * safe in the store. What a peer or a user can cause is not our bug, and gets an error instead. */
#ifndef BASE_MUST_H
#define BASE_MUST_H

#define must(expr) ((expr) ? (void)0 : must_failed(#expr, __FILE__, __LINE__))

__attribute__((cold)) _Noreturn void must_failed(const char *what, const char *file, int line);

#endif
