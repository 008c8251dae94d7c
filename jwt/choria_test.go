package jwt_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"muster/jwt"
)

// client returns a client JWT of the organization for the key, with its claims changed, and its seed.
func client(t *testing.T, organization, key ed25519.PrivateKey, edit func(map[string]any)) (text, seed string) {
	t.Helper()
	public := hex.EncodeToString(key.Public().(ed25519.PublicKey))
	const id = "2aAbBcCdDeEfFgGhHiIjJkKlLmM"
	claims := map[string]any{
		"purpose": "choria_client_id", "callerid": "choria=gateway", "ou": "choria", "public_key": public, "jti": id,
		"iss": "I-" + hex.EncodeToString(organization.Public().(ed25519.PublicKey)),
		"tcs": hex.EncodeToString(ed25519.Sign(organization, []byte(id+"."+public))),
		"exp": time.Now().Add(time.Hour).Unix(), "permissions": map[string]bool{},
	}
	if edit != nil {
		edit(claims)
	}
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(b)
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(organization, []byte(input))), hex.EncodeToString(key.Seed())
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestServerJWTHasItsChainOfTrust verifies it as Choria's servers and brokers do.
func TestServerJWTHasItsChainOfTrust(t *testing.T) {
	t.Parallel()
	organization, key, server := newKey(t), newKey(t), newKey(t)
	c, err := jwt.ParseClient(client(t, organization, key, nil))
	if err == nil {
		err = c.CheckIssuer()
	}
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Unix(1_796_000_000, 0)
	text, err := c.SignServer(jwt.Server{
		Identity:    "web1.example.net",
		PublicKey:   server.Public().(ed25519.PublicKey),
		Collectives: []string{"choria"},
		Issued:      issued,
		Expires:     time.Now().Add(1000 * time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(text, ".")
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	if !ed25519.Verify(key.Public().(ed25519.PublicKey), []byte(parts[0]+"."+parts[1]), signature) {
		t.Error("the issuer did not sign it")
	}
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Issuer    string `json:"iss"`
		Chain     string `json:"tcs"`
		ID        string `json:"jti"`
		Purpose   string
		Identity  string
		PublicKey string `json:"public_key"`
		Expires   int64  `json:"exp"`
		IssuerEnd int64  `json:"issexp"`
		Issued    int64  `json:"iat"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(claims.Chain, ".")
	byOrganization, _ := hex.DecodeString(first)
	byIssuer, _ := hex.DecodeString(second)
	issuer := strings.Split(strings.TrimPrefix(claims.Issuer, "C-"), ".")
	if !ed25519.Verify(organization.Public().(ed25519.PublicKey), []byte(issuer[0]+"."+issuer[1]), byOrganization) {
		t.Error("the organization did not sign the issuer")
	}
	if !ed25519.Verify(key.Public().(ed25519.PublicKey), []byte(claims.ID+"."+first), byIssuer) {
		t.Error("the issuer did not sign the server's id")
	}
	if claims.Expires != claims.IssuerEnd || claims.Expires > c.Expires.Unix() {
		t.Errorf("it ends at %d, the issuer at %d", claims.Expires, claims.IssuerEnd)
	}
	if at := ksuidTime(t, claims.ID); !at.Equal(issued) || claims.Issued != issued.Unix() {
		t.Errorf("its id is of %v, issued at %v", at, issued)
	}
	if claims.Purpose != "choria_server" || claims.Identity != "web1.example.net" ||
		claims.PublicKey != hex.EncodeToString(server.Public().(ed25519.PublicKey)) {
		t.Errorf("claims %+v", claims)
	}
}

// ksuidTime decodes the time of an id as github.com/segmentio/ksuid does.
func ksuidTime(t *testing.T, id string) time.Time {
	t.Helper()
	if len(id) != 27 {
		t.Fatalf("id %q has %d characters, want 27", id, len(id))
	}
	n := new(big.Int)
	for _, r := range id {
		digit := strings.IndexRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", r)
		n.Add(n.Mul(n, big.NewInt(62)), big.NewInt(int64(digit)))
	}
	b := n.FillBytes(make([]byte, 20))
	return time.Unix(int64(binary.BigEndian.Uint32(b))+1_400_000_000, 0)
}

func TestUnusableIssuersAreRefused(t *testing.T) {
	t.Parallel()
	organization, key := newKey(t), newKey(t)
	for name, tt := range map[string]struct {
		edit func(map[string]any)
		want string
	}{
		"another purpose":       {func(c map[string]any) { c["purpose"] = "choria_server" }, "want choria_client_id"},
		"another key":           {func(c map[string]any) { c["public_key"] = strings.Repeat("00", 32) }, "another key"},
		"no issuer":             {func(c map[string]any) { delete(c, "tcs") }, "no chain issuer"},
		"a chain of another id": {func(c map[string]any) { c["jti"] = "x" }, "did not sign"},
		"may manage the fleet": {func(c map[string]any) {
			c["permissions"] = map[string]bool{"provisioner": true, "fleet_management": true}
		}, "may also manage the fleet"},
		"an organization's admin": {func(c map[string]any) {
			c["permissions"] = map[string]bool{"org_admin": true}
		}, "may also manage the fleet"},
	} {
		c, err := jwt.ParseClient(client(t, organization, key, tt.edit))
		if err == nil {
			err = c.CheckIssuer()
		}
		if !errors.Is(err, jwt.ErrClient) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	text, _ := client(t, organization, key, nil)
	for name, err := range map[string]error{
		"no JWT":          second(jwt.ParseClient("x", "y")),
		"seed of nothing": second(jwt.ParseClient(text, "00")),
	} {
		if !errors.Is(err, jwt.ErrClient) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ *jwt.Client, err error) error { return err }
