package jwt_test

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/jwt"
)

func TestSignThenVerify(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]crypto.Signer{
		"Ed25519": edKey("signer"), "RSA": rsaKey(), "P-256": ecKey(), "P-384": mustEC(elliptic.P384()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := goodClaims()
			want.Password, want.Username, want.Facts, want.Registration = "pw", "user", "/etc/facts.json",
				"/etc/reg.json"
			want.Secure, want.ProtocolV2, want.AllowUpdate = true, true, true
			want.Audience = []string{"a", "b"}
			want.TrustChain, want.PublicKey, want.IssuerExpiresAt = "ab", "cd", noon.Add(time.Minute)
			want.Extensions = map[string]json.RawMessage{"rack": json.RawMessage(`"b4"`)}
			limits := jwt.Limits{
				Uses:       3,
				Identities: []wire.Pattern{"web*.example.net"},
				Site:       "ams",
				CA:         strings.Repeat("ab", 32),
			}
			if err := want.SetLimits(limits); err != nil {
				t.Fatal(err)
			}
			got, err := verifier(t, jwt.Signer{Name: "ops", Key: key.Public()}).Verify(sign(t, key, want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Claims); diff != "" {
				t.Errorf("claims changed (-signed +verified):\n%s", diff)
			}
			if diff := cmp.Diff(limits, got.Limits); diff != "" {
				t.Errorf("limits changed (-signed +verified):\n%s", diff)
			}
			if id, err := jwt.Fingerprint(key.Public()); err != nil || got.Signer != id || got.SignerName != "ops" {
				t.Errorf("signer = %q %q, want %q (%v)", got.SignerName, got.Signer, id, err)
			}
		})
	}
}

func TestTimesAreCheckedOnEveryUse(t *testing.T) {
	t.Parallel()
	key := edKey("signer")
	begin, end := noon.Add(-10*time.Hour), noon.Add(10*time.Hour)
	now := noon
	v, err := jwt.NewVerifier(jwt.VerifierConfig{
		Signers: []jwt.Signer{{Key: key.Public(), NotBefore: begin, NotAfter: end}},
		Now:     func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := goodClaims()
	c.NotBefore, c.ExpiresAt = noon.Add(-time.Hour), noon.Add(time.Hour)
	short := sign(t, key, c)
	c.NotBefore, c.ExpiresAt = time.Time{}, time.Time{}
	forever := sign(t, key, c)
	if err := c.SetLimits(jwt.Limits{Uses: 1}); err != nil {
		t.Fatal(err)
	}
	once := sign(t, key, c) // issued an hour before noon

	// In this order, so that the cache has the token after the first step.
	for _, step := range []struct {
		name string
		text string
		now  time.Time
		want error
	}{
		{"within", short, noon, nil},
		{"just before the end", short, noon.Add(time.Hour - 1), nil},
		{"at the end", short, noon.Add(time.Hour), jwt.ErrExpired},
		{"clock goes back", short, noon, nil},
		{"within the leeway before", short, noon.Add(-time.Hour - jwt.NotBeforeLeeway), nil},
		{"before", short, noon.Add(-time.Hour - jwt.NotBeforeLeeway - 1), jwt.ErrNotYetValid},
		{"no end", forever, noon, nil},
		{"one use, issued in five minutes", once, noon.Add(-time.Hour - 5*time.Minute), nil},
		{"one use, issued later", once, noon.Add(-time.Hour - 5*time.Minute - 1), jwt.ErrNotYetValid},
		{"signer's last instant", forever, end, nil},
		{"signer expired", forever, end.Add(1), jwt.ErrSignerExpired},
		{"signer's first instant", forever, begin, nil},
		{"signer not yet valid", forever, begin.Add(-1), jwt.ErrSignerExpired},
	} {
		now = step.now
		if _, err := v.Verify(step.text); !errors.Is(err, step.want) {
			t.Errorf("%s: Verify error = %v, want %v", step.name, err, step.want)
		}
	}
}

func TestSignersAreTriedByKey(t *testing.T) {
	t.Parallel()
	v := verifier(t,
		jwt.Signer{Name: "one", Key: edKey("one").Public(), Sites: []jwt.Site{"ams"}},
		jwt.Signer{Name: "rsa", Key: rsaKey().Public()},
		jwt.Signer{Name: "two", Key: edKey("two").Public(), Identities: []wire.Pattern{"db*.example.net"}},
		jwt.Signer{Key: edKey("three").Public()},
	)
	for _, name := range []string{"one", "two"} {
		got, err := v.Verify(sign(t, edKey(name), goodClaims()))
		if err != nil || got.SignerName != name {
			t.Errorf("token of %q: signer %v, error %v", name, got, err)
		}
	}
	got, err := v.Verify(sign(t, edKey("three"), goodClaims()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got.Signer), got.SignerName) || len(got.SignerName) != 16 {
		t.Errorf("signer without a name is called %q, want the start of %q", got.SignerName, got.Signer)
	}
}

func TestTokenID(t *testing.T) {
	t.Parallel()
	key := ecKey()
	v := verifier(t, jwt.Signer{Key: key.Public()}, jwt.Signer{Key: edKey("other").Public()})
	verify := func(text string) *jwt.Verified {
		t.Helper()
		got, err := v.Verify(text)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	text := sign(t, key, goodClaims())
	got := verify(text)

	// As documented.
	sum := sha256.Sum256([]byte("muster token id v1\n" + string(got.Signer) + "\njti\nt1"))
	if want := jwt.TokenID(hex.EncodeToString(sum[:])[:32]); got.ID != want {
		t.Errorf("ID = %q, want %q", got.ID, want)
	}

	// The same jti is the same token, whatever its other claims.
	longer := goodClaims()
	longer.ExpiresAt = noon.Add(time.Minute)
	if again := verify(sign(t, key, longer)); again.ID != got.ID {
		t.Errorf("ID of another token with the same jti = %q, want %q", again.ID, got.ID)
	}
	// Another signer's jti is another token.
	if other := verify(sign(t, edKey("other"), goodClaims())); other.ID == got.ID {
		t.Error("two signers share the ID of a jti")
	}

	// Without a jti, two tokens differ, but two signatures of one do not.
	c := goodClaims()
	c.JTI = ""
	text = sign(t, key, c)
	twin := malleate(t, text)
	if text == twin {
		t.Fatal("the twin is the same text")
	}
	if a, b := verify(text).ID, verify(twin).ID; a != b {
		t.Errorf("a second signature changes the ID from %q to %q", a, b)
	}
	c.ExpiresAt = noon.Add(time.Minute)
	if verify(sign(t, key, c)).ID == verify(text).ID {
		t.Error("two tokens without jti share an ID")
	}
}

// malleate turns the signature (r, s) of an ES256 token into (r, n-s), which anybody can compute and which verifies
// too.
func malleate(tb testing.TB, text string) string {
	tb.Helper()
	i := strings.LastIndex(text, ".") + 1
	sig, err := base64.RawURLEncoding.DecodeString(text[i:])
	if err != nil {
		tb.Fatal(err)
	}
	s := new(big.Int).SetBytes(sig[32:])
	s.Sub(ecKey().Params().N, s).FillBytes(sig[32:])
	return text[:i] + base64.RawURLEncoding.EncodeToString(sig)
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		token  jwt.Limits
		signer jwt.Signer
		id     wire.Identity
		site   jwt.Site
		want   error
	}{
		"no limits": {jwt.Limits{}, jwt.Signer{}, "web1.example.net", "", nil},
		"token's pattern": {jwt.Limits{Identities: []wire.Pattern{"web*.example.net"}}, jwt.Signer{},
			"web1.example.net", "", nil},
		"token's second pattern": {jwt.Limits{Identities: []wire.Pattern{"db1", "web1"}}, jwt.Signer{},
			"web1", "", nil},
		"not the token's pattern": {jwt.Limits{Identities: []wire.Pattern{"web*.example.net"}}, jwt.Signer{},
			"db1.example.net", "", jwt.ErrIdentity},
		"a longer name": {jwt.Limits{Identities: []wire.Pattern{"web*.example.net"}}, jwt.Signer{},
			"web1.evil.example.net", "", jwt.ErrIdentity},
		"token's site":                 {jwt.Limits{Site: "ams"}, jwt.Signer{}, "web1", "ams", nil},
		"another site":                 {jwt.Limits{Site: "ams"}, jwt.Signer{}, "web1", "fra", jwt.ErrSite},
		"a provisioner without a site": {jwt.Limits{Site: "ams"}, jwt.Signer{}, "web1", "", jwt.ErrSite},
		"signer's pattern": {jwt.Limits{}, jwt.Signer{Identities: []wire.Pattern{"web*"}}, "web1", "",
			nil},
		"not the signer's pattern": {jwt.Limits{}, jwt.Signer{Identities: []wire.Pattern{"web*"}}, "db1", "",
			jwt.ErrIdentity},
		"token's pattern, not signer's": {jwt.Limits{Identities: []wire.Pattern{"*"}},
			jwt.Signer{Identities: []wire.Pattern{"web*"}}, "db1", "", jwt.ErrIdentity},
		"signer's site": {jwt.Limits{}, jwt.Signer{Sites: []jwt.Site{"fra", "ams"}}, "web1", "ams",
			nil},
		"not the signer's site": {jwt.Limits{Site: "ams"}, jwt.Signer{Sites: []jwt.Site{"fra"}}, "web1",
			"ams", jwt.ErrSite},
		"signer's site, no site asked for": {jwt.Limits{}, jwt.Signer{Sites: []jwt.Site{"fra"}}, "web1", "",
			jwt.ErrSite},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.signer.Key = edKey("signer").Public()
			c := goodClaims()
			if err := c.SetLimits(tt.token); err != nil {
				t.Fatal(err)
			}
			got, err := verifier(t, tt.signer).Verify(sign(t, edKey("signer"), c))
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Admits(tt.id, tt.site); !errors.Is(err, tt.want) {
				t.Errorf("Admits(%q, %q) = %v, want %v", tt.id, tt.site, err, tt.want)
			}
		})
	}
}

func TestCacheIsBoundedAndSafe(t *testing.T) {
	t.Parallel()
	key := edKey("signer")
	v := verifier(t, jwt.Signer{Key: key.Public()})
	texts := make([]string, jwt.CacheSize+8)
	for i := range texts {
		c := goodClaims()
		c.JTI = fmt.Sprint(i)
		texts[i] = sign(t, key, c)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range texts {
				n := (g*100 + i) % len(texts)
				got, err := v.Verify(texts[n])
				if err != nil || got.JTI != fmt.Sprint(n) {
					t.Errorf("token %d came back as %v, %v", n, got, err)
				}
			}
		})
	}
	wg.Wait()
	if n := jwt.CacheLen(v); n != jwt.CacheSize {
		t.Errorf("%d tokens remembered, want %d", n, jwt.CacheSize)
	}
}

func TestRefusedTextsAreNotRemembered(t *testing.T) {
	t.Parallel()
	v := verifier(t, jwt.Signer{Key: edKey("signer").Public()})
	for i := range 20 {
		c := goodClaims()
		c.JTI = fmt.Sprint(i)
		if _, err := v.Verify(sign(t, edKey("foreign"), c)); !errors.Is(err, jwt.ErrSignature) {
			t.Fatalf("Verify error = %v, want %v", err, jwt.ErrSignature)
		}
	}
	if n := jwt.CacheLen(v); n != 0 {
		t.Errorf("%d refused tokens remembered", n)
	}
}

func TestNewVerifierNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{
		{Name: "ops", Key: edKey("a").Public()},
		{Name: "again", Key: edKey("a").Public()},
		{Name: "weak", Key: mustRSA("rsa-1024").Public()},
		{Name: "none"},
	}})
	if !errors.Is(err, jwt.ErrKey) {
		t.Fatalf("error = %v, want %v", err, jwt.ErrKey)
	}
	for _, want := range []string{`"again": has the same key as "ops"`, `"weak"`, "1024 bits", `"none"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %q:\n%v", want, err)
		}
	}
	if _, err := jwt.NewVerifier(jwt.VerifierConfig{}); err == nil {
		t.Error("a verifier without signers was made")
	}
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	t.Parallel()
	c := goodClaims()
	c.Password = "hunter2"
	text := sign(t, edKey("signer"), c)
	verified, err := verifier(t, jwt.Signer{Key: edKey("signer").Public()}).Verify(text)
	if err != nil {
		t.Fatal(err)
	}
	peeked, err := jwt.Peek(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		log := slog.New(handler(&b))
		for _, value := range []any{c, &c, *verified, verified, *peeked, peeked} {
			log.Info("token", "value", value)
		}
		fmt.Fprintf(&b, "%v %+v %#v", c, verified, peeked)
		if got := b.String(); strings.Contains(got, "s3cret") || strings.Contains(got, "hunter2") ||
			!strings.Contains(got, "muster") {
			t.Errorf("%s log = %s", name, got)
		}
	}
}
