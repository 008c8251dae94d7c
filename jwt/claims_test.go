package jwt_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/jwt"
)

func TestPeek(t *testing.T) {
	t.Parallel()
	// This is not signed; Peek does not verify.
	text := craft(`{"alg":"RS256","typ":"JWT"}`,
		`{"cht":"s3cret","chs":true,"chu":" a:1 ,,b:2,","chpd":true,"sub":"choria_provisioning",`+
			`"exp":1,"extensions":{"muster":{"identities":["web*"],"site":"ams"}},"x":1}`, func(string) []byte {
			return []byte("sig")
		})
	u, err := jwt.Peek(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a:1", "b:2"}, u.URLs()); diff != "" {
		t.Errorf("URLs (-want +got):\n%s", diff)
	}
	if !u.Secure || !u.Default || u.Organization != "choria" || !u.Expiry().Equal(time.Unix(1, 0)) ||
		u.Algorithm != "RS256" {
		t.Errorf("Peek = %+v", u)
	}
	if diff := cmp.Diff(jwt.Limits{Identities: []wire.Pattern{"web*"}, Site: "ams"}, u.Limits); diff != "" {
		t.Errorf("Limits (-want +got):\n%s", diff)
	}
	if u, err := jwt.Peek("hello"); u != nil || !errors.Is(err, jwt.ErrMalformed) {
		t.Errorf("Peek of no token = %v, %v, want %v", u, err, jwt.ErrMalformed)
	}
}

func TestClaimsCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*jwt.Claims)
		want []string // nil: no error; else parts of it
	}{
		"good":        {func(*jwt.Claims) {}, nil},
		"2019":        {func(c *jwt.Claims) { c.Purpose = "" }, nil},
		"SRV":         {func(c *jwt.Claims) { c.Brokers, c.SRVDomain = "", "provision.example.net" }, nil},
		"SRV, rooted": {func(c *jwt.Claims) { c.Brokers, c.SRVDomain = "", "Provision.Example.net." }, nil},
		"both":        {func(c *jwt.Claims) { c.SRVDomain = "example.net" }, []string{"both"}},
		"neither":     {func(c *jwt.Claims) { c.Brokers = " , " }, []string{"neither"}},
		"SRV of a service": {func(c *jwt.Claims) {
			c.Brokers, c.SRVDomain = "", "_x._tcp.example.net"
		}, []string{"_x._tcp.example.net"}},
		"several at the time": {func(c *jwt.Claims) {
			*c = jwt.Claims{Brokers: "a,b:0"}
		}, []string{"purpose", "secret", `"a"`, `"b:0"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := goodClaims()
			tt.edit(&c)
			err := c.Check()
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("Check = %v, want %q", err, tt.want)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Check = %q, want it to mention %q", err, part)
				}
			}
		})
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"prov1.example.net:4222": true, "nats://prov1:4222": true, "tls://10.0.0.1:443": true,
		"[2001:db8::1]:4222": true,
		"ws://a:80":          true, "wss://a:443": true, "a:65535": true,
		"": false, "prov1": false, "prov1:": false, ":4222": false, "a:0": false, "a:65536": false, "a:-1": false,
		"a:x":         false,
		"http://a:80": false, "nats://u:p@a:4222": false, "nats://a:4222/x": false, "nats://a:4222?x": false,
		"a:1#f":            false,
		"2001:db8::1:4222": false, "a b:1": false, "a_b:1": false, "nats://": false, "a:1,b:2": false, "*:1": false,
		"a/b:1": false,
	} {
		if err := jwt.CheckURL(url); (err == nil) != good {
			t.Errorf("CheckURL(%q) = %v, want good = %t", url, err, good)
		}
	}
}

// The error must not show them: anybody may read it.
func TestUsersInURLsAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := goodClaims()
	c.Brokers = "nats://choria:hunter2@prov1.example.net:4222, prov3:4222"
	_, signed := jwt.Sign(key, c)
	for _, err := range []error{c.Check(), signed} {
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "chusr") {
			t.Errorf("%v, want that the URL has a user", err)
		}
	}
}

// Signing must not change the secret.
func TestASecretThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := goodClaims()
	c.Token = "\xff\xfe"
	if text, err := jwt.Sign(key, c); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("signed %q, %v", text, err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	seal := strings.Repeat("A", 43)
	ca := strings.Repeat("0f", 32)
	tests := map[string]struct {
		muster string
		want   error
	}{
		"all": {`{"uses":1,"identities":["web*","**.example.net"],"site":"ams-1","seal":"` + seal +
			`","ca":"` + ca + `"}`, nil},
		"none":                    {`{}`, nil},
		"null":                    {`null`, jwt.ErrMalformed},
		"a list":                  {`[]`, jwt.ErrMalformed},
		"unknown":                 {`{"uses":1,"hours":[1]}`, jwt.ErrLimit},
		"unknown and null":        {`{"hours":null}`, jwt.ErrLimit},
		"another case":            {`{"USES":1}`, jwt.ErrLimit},
		"uses 0":                  {`{"uses":0}`, jwt.ErrMalformed},
		"uses -0":                 {`{"uses":-0}`, jwt.ErrMalformed},
		"uses -1":                 {`{"uses":-1}`, jwt.ErrMalformed},
		"uses 1.5":                {`{"uses":1.5}`, jwt.ErrMalformed},
		"uses 1e0":                {`{"uses":1e0}`, jwt.ErrMalformed},
		"uses beyond int":         {`{"uses":99999999999999999999}`, jwt.ErrMalformed},
		"uses a string":           {`{"uses":"1"}`, jwt.ErrMalformed},
		"uses null":               {`{"uses":null}`, jwt.ErrMalformed},
		"identities empty":        {`{"identities":[]}`, jwt.ErrMalformed},
		"identities almost empty": {`{"identities":[ ]}`, jwt.ErrMalformed},
		"identities null":         {`{"identities":null}`, jwt.ErrMalformed},
		"identities of null":      {`{"identities":[null]}`, jwt.ErrMalformed},
		"identities a string":     {`{"identities":"web*"}`, jwt.ErrMalformed},
		"identities no pattern":   {`{"identities":["web*","**"]}`, jwt.ErrMalformed},
		"site empty":              {`{"site":""}`, jwt.ErrMalformed},
		"site with a blank":       {`{"site":"a b"}`, jwt.ErrMalformed},
		"site too long":           {`{"site":"` + strings.Repeat("a", 64) + `"}`, jwt.ErrMalformed},
		"site as long as allowed": {`{"site":"` + strings.Repeat("a", 63) + `"}`, nil},
		"seal too short":          {`{"seal":"AAAA"}`, jwt.ErrMalformed},
		"seal padded":             {`{"seal":"` + seal + `="}`, jwt.ErrMalformed},
		"seal of stray bits":      {`{"seal":"` + seal[1:] + `B"}`, jwt.ErrMalformed},
		"seal with a line end":    {`{"seal":"` + seal + `\n"}`, jwt.ErrMalformed},
		"ca in upper case":        {`{"ca":"` + strings.ToUpper(ca) + `"}`, jwt.ErrMalformed},
		"ca too short":            {`{"ca":"0f"}`, jwt.ErrMalformed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.TrimSuffix(goodBody, "}") + `,"jti":"t1","extensions":{"muster":` + tt.muster + `}}`
			text := craft(edHeader, body, withEd(edKey("signer")))
			v, verr := verifier(t, jwt.Signer{Key: edKey("signer").Public()}).Verify(text)
			u, perr := jwt.Peek(text)
			if !errors.Is(verr, tt.want) || !errors.Is(perr, tt.want) {
				t.Fatalf("Verify error = %v, Peek error = %v, want %v", verr, perr, tt.want)
			}
			if tt.want == nil {
				if diff := cmp.Diff(u.Limits, v.Limits); diff != "" {
					t.Errorf("Peek and Verify differ:\n%s", diff)
				}
			} else if sentinels(verr) != 1 {
				t.Errorf("Verify error %q wraps %d of the documented errors, want 1", verr, sentinels(verr))
			}
		})
	}
}

// Limits under a misspelled name must not count as a free extension, which would make the token unlimited.
func TestMisspelledLimitsAreRefused(t *testing.T) {
	t.Parallel()
	c := goodClaims()
	c.JTI, c.Extensions = "t1", map[string]json.RawMessage{"muster": json.RawMessage(`{"uses":2}`),
		"Muster": json.RawMessage(`{"uses":1}`)}
	if text, err := jwt.Sign(edKey("signer"), c); text != "" || !errors.Is(err, jwt.ErrMalformed) {
		t.Errorf("Sign = %q, %v, want %v", text, err, jwt.ErrMalformed)
	}
	text := craft(edHeader, strings.TrimSuffix(goodBody, "}")+`,"jti":"t1","extensions":{"MUSTER":{"uses":1}}}`,
		withEd(edKey("signer")))
	if v, err := verifier(t, jwt.Signer{Key: edKey("signer").Public()}).Verify(text); v != nil ||
		!errors.Is(err, jwt.ErrMalformed) || sentinels(err) != 1 {
		t.Errorf("Verify = %v, %v, want %v", v, err, jwt.ErrMalformed)
	}
}

func TestUsesNeedAnIDAndATime(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]func(*jwt.Claims){
		"no jti": func(c *jwt.Claims) { c.JTI = "" },
		"no iat": func(c *jwt.Claims) { c.IssuedAt = time.Time{} },
	} {
		c := goodClaims()
		without(&c)
		if err := c.SetLimits(jwt.Limits{Uses: 1}); err != nil {
			t.Fatal(err)
		}
		if text, err := jwt.Sign(edKey("signer"), c); text != "" || !errors.Is(err, jwt.ErrMalformed) {
			t.Errorf("%s: Sign = %q, %v, want %v", name, text, err, jwt.ErrMalformed)
		}
	}
}

func TestSignRefusesWhatItCouldNotRead(t *testing.T) {
	t.Parallel()
	key := edKey("signer")
	large := goodClaims()
	large.Facts = strings.Repeat("x", jwt.MaxTokenBytes)
	before := goodClaims()
	before.ExpiresAt = time.Unix(0, 0)
	for name, c := range map[string]jwt.Claims{"too large": large, "expired in 1970": before} {
		if text, err := jwt.Sign(key, c); err == nil || text != "" {
			t.Errorf("%s: Sign = %q, %v", name, text, err)
		}
	}
	if _, err := jwt.Sign(mustRSA("rsa-1024"), goodClaims()); !errors.Is(err, jwt.ErrKey) {
		t.Errorf("Sign with a key of 1024 bits: error = %v, want %v", err, jwt.ErrKey)
	}
	if _, err := jwt.Sign(nil, goodClaims()); !errors.Is(err, jwt.ErrKey) {
		t.Errorf("Sign without a key: error = %v, want %v", err, jwt.ErrKey)
	}
}
