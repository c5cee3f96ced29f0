# SPDX-License-Identifier: Apache-2.0
# What PyJWT makes of tokens. The first argument is a JSON file: now, aud, and keys by kid (alg, iss, pem or
# secret). `make N`: prints N good tokens. `judge`: reads tokens in base64, one a line; says ok or why not.
import base64, datetime, json, sys
import jwt, jwt.api_jwt

site = json.load(open(sys.argv[2]))
keys = site["keys"]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(site["now"], tz)


jwt.api_jwt.datetime = Clock


def make(n):
    for i in range(n):
        kid = list(keys)[i % len(keys)]
        key = keys[kid]
        claims = {"iss": key["iss"], "aud": site["aud"], "sub": f"py{i}", "iat": site["now"], "exp": site["now"] + 600}
        secret = key.get("private", key.get("secret"))
        print(jwt.encode(claims, secret, key["alg"], {"kid": kid, "typ": "at+jwt"}))


def judge(token):
    key = keys[jwt.get_unverified_header(token)["kid"]]
    jwt.decode(
        token,
        key.get("pem", key.get("secret")),
        algorithms=[key["alg"]],
        audience=site["aud"],
        issuer=key["iss"],
        leeway=30,
        options={"require": ["exp", "iat"]},
    )


if sys.argv[1] == "make":
    make(int(sys.argv[3]))
else:
    for line in sys.stdin:
        try:
            judge(base64.b64decode(line))
            print("ok")
        except Exception as error:
            print(type(error).__name__, str(error).replace("\n", " ").encode("ascii", "replace").decode())
