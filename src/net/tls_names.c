// SPDX-License-Identifier: Apache-2.0
#include "net/tls_names.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <time.h>

/* 0: it cannot be told, and so is over. */
static int64_t end_of(X509 *certificate)
{
    struct tm end;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1)
        return 0;
    return (int64_t)timegm(&end);
}

/* A NUL inside would end it early for some, and not for others. */
static void take_name(struct tls_names *names, const GENERAL_NAME *name)
{
    bool uri = name->type == GEN_URI;
    if (!uri && name->type != GEN_DNS)
        return;
    const ASN1_IA5STRING *text = uri ? name->d.uniformResourceIdentifier : name->d.dNSName;
    struct str s =
        str_of((const char *)ASN1_STRING_get0_data(text), (size_t)ASN1_STRING_length(text));
    if (s.n == 0 || memchr(s.p, '\0', s.n) != NULL)
        return;
    names->items[names->n].text = arena_dup(&names->arena, s);
    names->items[names->n++].uri = uri;
}

struct tls_names *tls_names_of(X509 *certificate)
{
    struct tls_names *names = mem_zalloc(sizeof *names);
    GENERAL_NAMES *all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    names->expires_s = end_of(certificate);
    if (sk_GENERAL_NAME_num(all) <= TLS_NAMES_MAX)
        for (int i = 0; i < sk_GENERAL_NAME_num(all); i++)
            take_name(names, sk_GENERAL_NAME_value(all, i));
    GENERAL_NAMES_free(all);
    ERR_clear_error();
    return names;
}

void tls_names_free(struct tls_names *names)
{
    if (names == NULL)
        return;
    arena_deinit(&names->arena);
    free(names);
}
