// SPDX-License-Identifier: Apache-2.0
#include "http/forwarded.h"

bool forwarded_trusts(const struct forwarded_proxies *p, const uint8_t ip[ADDR_IP_N])
{
    for (size_t i = 0; i < p->n; i++)
        if (addr_net_has(&p->nets[i], ip))
            return true;
    return false;
}

static struct str unquoted(struct str s)
{
    bool quoted = s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"';
    return quoted ? str_of(s.p + 1, s.n - 2) : s;
}

/* `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. */
static bool parse_node(struct str node, uint8_t ip[ADDR_IP_N])
{
    struct sockaddr_storage sa;
    if (node.n > 0 && node.p[0] == '[') {
        node = str_skip(node, 1);
        node = str_cut(&node, ']');
    } else if (addr_parse_ip(node, &sa) != 0) {
        node = str_cut(&node, ':');
    }
    return addr_parse_ip(node, &sa) == 0 && addr_ip_of((struct sockaddr *)&sa, sizeof sa, ip);
}

/* The value of `for` in one element of Forwarded; nothing: there is none. */
static struct str node_of(struct str element)
{
    while (element.p != NULL) {
        struct str value = str_trim(str_cut(&element, ';'));
        struct str name = str_cut(&value, '=');
        if (str_eq_nocase(str_trim(name), STR("for")) && value.p != NULL)
            return unquoted(str_trim(value));
    }
    return STR_NONE;
}

/* Cuts off what stands behind the last comma. */
static struct str cut_last(struct str *list)
{
    const char *comma = list->n > 0 ? memrchr(list->p, ',', list->n) : NULL;
    struct str last = comma == NULL ? *list : str_skip(*list, (size_t)(comma + 1 - list->p));
    *list = comma == NULL ? STR_NONE : str_of(list->p, (size_t)(comma - list->p));
    return str_trim(last);
}

/* False: no need to look further. */
static bool walk(const struct forwarded_proxies *p, struct str list, bool elements,
                 uint8_t ip[ADDR_IP_N])
{
    while (list.p != NULL) {
        uint8_t next[ADDR_IP_N];
        struct str last = cut_last(&list);
        if (!parse_node(elements ? node_of(last) : last, next))
            return false;
        memcpy(ip, next, ADDR_IP_N);
        if (!forwarded_trusts(p, ip))
            return false;
    }
    return true;
}

void forwarded_client(const struct forwarded_proxies *p, const struct request *r,
                      uint8_t ip[ADDR_IP_N])
{
    static const struct str plain = STR_INIT("X-Forwarded-For"), standard = STR_INIT("Forwarded");
    bool elements = request_header(r, standard).p != NULL;
    if (elements && request_header(r, plain).p != NULL)
        return;
    for (int i = r->n_headers; i-- > 0;)
        if (str_eq_nocase(r->headers[i].name, elements ? standard : plain) &&
            !walk(p, r->headers[i].value, elements, ip))
            return;
}
