// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "http/fetch_core.h"

#include <errno.h>

static const struct {
    int err;
    const char *name, *text;
} causes[] = {
#define X(name, word, err, text) {err, #word, text},
    FETCH_CAUSES(X)
#undef X
};

const char *fetch_cause_text(enum fetch_cause cause)
{
    return causes[cause].text;
}

const char *fetch_cause_name(enum fetch_cause cause)
{
    return causes[cause].name;
}

int fetch_text_err(struct str text)
{
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (str_eq(text, str_of_cstr(causes[i].text)))
            return causes[i].err;
    return 0;
}

int fetch_cause_err(enum fetch_cause cause)
{
    return causes[cause].err;
}

static enum fetch_cause connect_cause(const struct fetch_transfer *transfer)
{
    long os = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &os);
    switch (os) {
    case ECONNREFUSED: return FETCH_REFUSED;
    case ETIMEDOUT: return FETCH_CONNECT_TIMEOUT;
    default: return FETCH_UNREACHABLE;
    }
}

/* An answer to no request of ours: not HTTP at all, or the place a redirect named is no such URL.
 */
static enum fetch_cause odd_cause(const struct fetch_transfer *transfer)
{
    long redirects = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_REDIRECT_COUNT, &redirects);
    return redirects > 0 ? FETCH_REDIRECTS : FETCH_NOT_HTTP;
}

enum fetch_cause fetch_cause_of(const struct fetch_transfer *transfer, CURLcode code)
{
    switch (code) {
#if LIBCURL_VERSION_NUM >= 0x080600
    case CURLE_TOO_LARGE:
#endif
    case CURLE_OUT_OF_MEMORY: /* what an older libcurl says of too long a header line */
        return transfer->headed ? FETCH_CUT : FETCH_TOO_LARGE;
    case CURLE_COULDNT_RESOLVE_HOST: return FETCH_UNRESOLVED;
    case CURLE_COULDNT_CONNECT: return connect_cause(transfer);
    case CURLE_OPERATION_TIMEDOUT:
        return transfer->asked ? FETCH_TOTAL_TIMEOUT : FETCH_CONNECT_TIMEOUT;
    case CURLE_PEER_FAILED_VERIFICATION: return FETCH_CERTIFICATE;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER: return FETCH_TLS;
    case CURLE_TOO_MANY_REDIRECTS: return FETCH_REDIRECTS;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WEIRD_SERVER_REPLY: return odd_cause(transfer);
    default: return transfer->headed ? FETCH_CUT : FETCH_NO_ANSWER;
    }
}
