// SPDX-License-Identifier: Apache-2.0

// What golang-jwt makes of tokens. See jwt_judge.py, which is called in the same way.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type key struct {
	Alg, Iss, Pem, Private, Secret string
}

type site struct {
	Now  int64
	Aud  string
	Keys map[string]key
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func public(k key) any {
	switch k.Alg {
	case "HS256":
		return []byte(k.Secret)
	case "ES256":
		return must(jwt.ParseECPublicKeyFromPEM([]byte(k.Pem)))
	case "EdDSA":
		return must(jwt.ParseEdPublicKeyFromPEM([]byte(k.Pem)))
	}
	return must(jwt.ParseRSAPublicKeyFromPEM([]byte(k.Pem)))
}

func private(k key) any {
	switch k.Alg {
	case "HS256":
		return []byte(k.Secret)
	case "ES256":
		return must(jwt.ParseECPrivateKeyFromPEM([]byte(k.Private)))
	case "EdDSA":
		return must(jwt.ParseEdPrivateKeyFromPEM([]byte(k.Private)))
	}
	return must(jwt.ParseRSAPrivateKeyFromPEM([]byte(k.Private)))
}

func makeTokens(s site, n int) {
	kids := []string{}
	for kid := range s.Keys {
		kids = append(kids, kid)
	}
	sort.Strings(kids)
	for i := 0; i < n; i++ {
		kid := kids[i%len(kids)]
		k := s.Keys[kid]
		claims := jwt.MapClaims{"iss": k.Iss, "aud": []string{s.Aud}, "sub": fmt.Sprint("go", i), "iat": s.Now, "exp": s.Now + 600}
		token := jwt.NewWithClaims(jwt.GetSigningMethod(k.Alg), claims)
		token.Header["kid"] = kid
		token.Header["typ"] = "at+jwt"
		fmt.Println(must(token.SignedString(private(k))))
	}
}

func judge(s site, keys map[string]any, token string) error {
	parts, _, err := jwt.NewParser().ParseUnverified(token, jwt.MapClaims{})
	if err != nil {
		return err
	}
	kid, _ := parts.Header["kid"].(string)
	k, ok := s.Keys[kid]
	if !ok {
		return errors.New("no such key")
	}
	_, err = jwt.Parse(token, func(*jwt.Token) (any, error) { return keys[kid], nil },
		jwt.WithValidMethods([]string{k.Alg}), jwt.WithAudience(s.Aud), jwt.WithIssuer(k.Iss),
		jwt.WithLeeway(30*time.Second), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return time.Unix(s.Now, 0) }))
	return err
}

func main() {
	var s site
	if err := json.Unmarshal(must(os.ReadFile(os.Args[2])), &s); err != nil {
		panic(err)
	}
	if os.Args[1] == "make" {
		makeTokens(s, must(strconv.Atoi(os.Args[3])))
		return
	}
	keys := map[string]any{}
	for kid, k := range s.Keys {
		keys[kid] = public(k)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := judge(s, keys, string(must(base64.StdEncoding.DecodeString(lines.Text())))); err != nil {
			fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}
