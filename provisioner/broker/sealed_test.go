package broker_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// The gate checks a sealed token's size and that there is an nkey; the opener checks the proof.
func TestSealedTokensNameTheirSession(t *testing.T) {
	t.Parallel()
	now := time.Now()
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.NewPrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	opener, err := seal.NewOpener(to)
	if err != nil {
		t.Fatal(err)
	}
	token := wire.Secret(strings.Repeat("x", wire.MaxTokenBytes))
	session, err := seal.NewSession(to.Public(), token)
	if err != nil {
		t.Fatal(err)
	}
	prove := func(nonce string) string {
		b, err := session.Prove([]byte(nonce))
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := session.Token()
	longest := wire.Secret(text)
	tests := map[string]struct {
		edit func(p *broker.Presented)
		code wire.Code // "" admits
		err  error
	}{
		"the longest that there is":     {func(*broker.Presented) {}, "", nil},
		"one byte more":                 {func(p *broker.Presented) { p.Token += "A" }, wire.CodeTokenInvalid, broker.ErrToken},
		"no nkey":                       {func(p *broker.Presented) { p.Nkey = "" }, wire.CodeSealedInvalid, broker.ErrNkey},
		"a proof over another":          {func(p *broker.Presented) { p.Signature = prove("another nonce") }, wire.CodeTokenInvalid, seal.ErrProof},
		"no proof":                      {func(p *broker.Presented) { p.Signature = "" }, wire.CodeTokenInvalid, seal.ErrProof},
		"a broker that asks for none":   {func(p *broker.Presented) { p.Nonce, p.Signature = "", prove("") }, wire.CodeTokenInvalid, seal.ErrProof},
		"another nkey":                  {func(p *broker.Presented) { p.Nkey = "provisioning" }, wire.CodeTokenInvalid, seal.ErrProof},
		"an nkey beside a plain token":  {func(p *broker.Presented) { p.Token = goodToken }, wire.CodeBadRequest, broker.ErrNkey},
		"a plain token of that length":  {func(p *broker.Presented) { p.Token = wire.Secret(strings.Repeat("x", len(longest))) }, wire.CodeTokenInvalid, broker.ErrToken},
		"a token that the verifier has": {func(p *broker.Presented) { p.Token = "muster-sealed-v9.x" }, wire.CodeTokenInvalid, seal.ErrOpen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := gateAt(t, now, time.Time{}, func(cfg *broker.GateConfig) {
				cfg.VerifyToken = func(p broker.Presented) (time.Time, error) {
					got, err := opener.OpenToken(seal.Presented{Token: string(p.Token), Name: p.Nkey,
						Signature: p.Signature, Nonce: p.Nonce})
					if err == nil && got != token {
						err = errToken
					}
					return time.Time{}, err
				}
			})
			p := broker.Presented{Name: wire.NewID(), Token: longest, Nkey: session.Name(), Nonce: "nonce",
				Signature: prove("nonce")}
			tt.edit(&p)
			a, err := gate.Authorize(t.Context(), p)
			var denied *broker.Denied
			switch {
			case tt.code == "" && (err != nil || a.Account != broker.AccountProvisioning):
				t.Errorf("Authorize = %+v, %v", a, err)
			case tt.code != "" && (!errors.As(err, &denied) || denied.Code != tt.code || !errors.Is(err, tt.err)):
				t.Errorf("Authorize error = %v, want %s, %v", err, tt.code, tt.err)
			}
		})
	}
}
