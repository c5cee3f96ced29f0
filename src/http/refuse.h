// SPDX-License-Identifier: Apache-2.0
/* refuse.h -- answers who is not let in, in the words of what is served there. */
#ifndef HTTP_REFUSE_H
#define HTTP_REFUSE_H

struct exchange;
struct surface_refusal;

void refuse(struct exchange *x, const struct surface_refusal *why);

#endif
