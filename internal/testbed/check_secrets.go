package testbed

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Number of tokens whose parts are searched for; tokenShape finds all tokens.
const maxTokens = 16

// Every JWT begins with base64url of a JSON object and a dot. Standard base64, as in records, has no dots.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.`)

// The header of a JWT begins like this if alg, typ, kid or cty is first. "eyJ" alone would also match one of 12,000
// random ids.
var tokenBegin = regexp.MustCompile("eyJ(hbGci|0eXAi|raWQi|jdHki)")

func (c *checker) secrets() {
	f := c.f
	secrets := c.known()
	look := func(where, text string) {
		for what, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				c.bad("%s was %s: ...%s", what, where, excerpt(text, i))
			}
		}
		if at := tokenShape.FindStringIndex(text); at != nil {
			c.bad("a token was %s: ...%s", where, excerpt(text, at[0]))
		}
	}
	log := f.Log()
	look("logged", log)
	if at := tokenBegin.FindStringIndex(log); at != nil {
		c.bad("the beginning of a token was logged: ...%s", excerpt(log, at[0]))
	}
	for _, e := range f.Events() {
		b, err := json.Marshal(e)
		if err != nil {
			c.bad("event %s: %v", e.Type, err)
		}
		look("reported", string(b))
	}
	for _, m := range f.Stored() {
		look("stored on "+m.Subject, fmt.Sprint(m.Header)+string(m.Data))
	}
}

// known returns the secrets by name, each also in hex and in base64 at each of three offsets in other text.
func (c *checker) known() map[string]string {
	f := c.f
	secrets := map[string]string{"a private key": "PRIVATE KEY"}
	add := func(what, secret string) {
		secrets[what] = secret
		secrets[what+" in hex"] = hex.EncodeToString([]byte(secret))
		for shift := range 3 {
			// Only base64 groups that consist of the secret alone do not depend on the text around it.
			inner := secret[shift:]
			inner = inner[:len(inner)/3*3]
			secrets[fmt.Sprintf("%s in base64 (%d)", what, shift)] = base64.StdEncoding.EncodeToString([]byte(inner))
		}
	}
	add("the shared secret", Secret)
	add("a pushed value", Setting)
	add("a fact", Fact)
	key := func(path string) {
		if scalar := c.secretPart(path); scalar != nil {
			add("the key "+path, string(scalar))
		}
	}
	f.mu.Lock()
	agents := slices.Clone(f.agents)
	f.mu.Unlock()
	f.tokens.mu.Lock()
	tokens := slices.Clone(f.signed)
	f.tokens.mu.Unlock()
	for i, token := range tokens {
		if parts := strings.Split(token, "."); len(parts) == 3 {
			secrets[fmt.Sprintf("the signature of token %d", i)] = parts[2]
			secrets[fmt.Sprintf("the claims of token %d", i)] = parts[1]
		}
	}
	for _, path := range []string{"signer-key.pem", "ca/issuing-key.pem", "ca/root-key.pem", "seal-key.pem"} {
		key(filepath.Join(f.Dir, path))
	}
	for _, a := range agents {
		key(filepath.Join(a.Dir, "private.pem"))
	}
	return secrets
}

// secretPart returns the secret part of a private key file; nil if there is no file.
func (c *checker) secretPart(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		b, err = k.Bytes()
	case ed25519.PrivateKey:
		b = k.Seed()
	case *ecdh.PrivateKey:
		b = k.Bytes()
	default:
		c.bad("%s: key is %T", path, key)
	}
	if err != nil {
		c.bad("%s: %v", path, err)
	}
	return b
}

func excerpt(text string, i int) string { return text[max(0, i-200):min(len(text), i+100)] }
