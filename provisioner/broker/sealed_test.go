package broker_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// TestSealedTokensNeedAnNkey presents sealed tokens to the gate. It looks at
// their size and at the nkey; who opens them compares the nkey with the one in
// the seal.
func TestSealedTokensNeedAnNkey(t *testing.T) {
	t.Parallel()
	now := time.Now()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	sign := func(nonce string) string {
		b, err := key.Sign([]byte(nonce))
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	to, err := seal.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := seal.SealToken(to.Public(), wire.Secret(strings.Repeat("x", wire.MaxTokenBytes)), public)
	if err != nil {
		t.Fatal(err)
	}
	longest := wire.Secret(text)
	tests := map[string]struct {
		edit func(p *broker.Presented)
		code wire.Code // "" admits
		err  error
	}{
		"the longest that there is":     {func(*broker.Presented) {}, "", nil},
		"one byte more":                 {func(p *broker.Presented) { p.Token += "A" }, wire.CodeTokenInvalid, broker.ErrToken},
		"no nkey":                       {func(p *broker.Presented) { p.Nkey = "" }, wire.CodeSealedInvalid, broker.ErrNkey},
		"a signature over another":      {func(p *broker.Presented) { p.Signature = sign("another nonce") }, wire.CodeBadRequest, broker.ErrNkey},
		"no signature":                  {func(p *broker.Presented) { p.Signature = "" }, wire.CodeBadRequest, broker.ErrNkey},
		"a broker that asks for none":   {func(p *broker.Presented) { p.Nonce, p.Signature = "", sign("") }, wire.CodeBadRequest, broker.ErrNkey},
		"a plain token of that length":  {func(p *broker.Presented) { p.Token = wire.Secret(strings.Repeat("x", len(longest))) }, wire.CodeTokenInvalid, broker.ErrToken},
		"a token that the verifier has": {func(p *broker.Presented) { p.Token = "muster-sealed-v9.x" }, wire.CodeTokenInvalid, errToken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := gateAt(t, now, time.Time{}, func(cfg *broker.GateConfig) {
				cfg.VerifyToken = func(p broker.Presented) (time.Time, error) {
					if p.Token != longest || p.Nkey != public {
						return time.Time{}, errToken
					}
					return time.Time{}, nil
				}
			})
			p := broker.Presented{Name: wire.NewID(), Token: longest, Nkey: public, Nonce: "nonce", Signature: sign("nonce")}
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
