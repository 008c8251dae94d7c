package demo

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// sign makes the token of the fleet, and the facts of its nodes.
func (f *fleet) sign() error {
	key, err := signerKey(filepath.Join(f.cfg.Dir, "provisioner"))
	if err != nil {
		return err
	}
	if f.token, err = f.signWith(key); err != nil {
		return err
	}
	f.file = filepath.Join(f.cfg.Dir, "provisioning.jwt")
	if err := os.WriteFile(f.file, []byte(f.token+"\n"), 0o600); err != nil {
		return err
	}
	facts := `{"role": "web", "datacenter": "demo", "kernel": "linux", "cores": 2}` + "\n"
	return os.WriteFile(filepath.Join(f.cfg.Dir, "facts.json"), []byte(facts), 0o644)
}

func (f *fleet) signWith(key crypto.Signer) (string, error) {
	c, l := claims(f.daemon)
	return signed(key, c, l)
}

// refuse brings on the nodes that must not get in, one after the other, and
// notes why they did not.
func (f *fleet) refuse(ctx context.Context) error {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("foreign signer: %w", err)
	}
	foreign, err := f.signWith(stranger)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		node, what, token, csr, facts string
		want                          wire.Code
	}{
		{"tampered.demo.muster", "its token was altered", tamper(f.token), "", "", wire.CodeTokenInvalid},
		{"foreign.demo.muster", "its token was signed by somebody else", foreign, "", "", wire.CodeTokenInvalid},
		{"impostor.demo.muster", "its certificate request is for another name", f.token, identity(0), "", wire.CodeCSRIdentity},
		{"quarantined.demo.muster", "the policy denies it", f.token, "", `{"quarantine": true}`, wire.CodeDenied},
		{"localhost", "its name is the broker's", f.token, "", "", wire.CodeIdentityReserved},
		{identity(0), "another machine with the name of a node", f.token, "", "", wire.CodeIdentityTaken},
	} {
		n, err := simnode.New(c.node, c.token)
		if err != nil {
			return err
		}
		if c.csr != "" {
			if n.CSR, err = simnode.CSR(n.Key, c.csr); err != nil {
				return err
			}
		}
		if c.facts != "" {
			n.Facts = []byte(c.facts)
		}
		f.refusal(ctx, n, Refusal{Node: c.node, What: c.what, Expected: string(c.want)})
	}
	return nil
}

// refusal lets one node try and notes what happened.
func (f *fleet) refusal(ctx context.Context, n *simnode.Node, r Refusal) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	f.mu.Lock()
	before := len(f.events)
	f.mu.Unlock()
	nc, err := simnode.Dial(f.url(), n.Token)
	if err != nil {
		r.Told = strings.TrimPrefix(err.Error(), "nats: ")
	} else {
		defer nc.Close()
		reply, err := simnode.Enroll(ctx, nc, n.Request())
		switch {
		case err != nil:
			r.Told = err.Error()
		case reply.Refusal == nil:
			f.missing("%s was not refused although %s", r.Node, r.What)
			return
		default:
			r.Told = string(reply.Refusal.Code)
		}
	}
	f.mu.Lock()
	if len(f.events) > before {
		r.Code, r.Cause = string(f.events[before].Code), f.events[before].Cause
	}
	f.result.Refusals = append(f.result.Refusals, r)
	if r.Code != "" {
		f.result.Refused++
	}
	f.mu.Unlock()
	if r.Code != r.Expected {
		f.missing("%s was refused as %q, want %q", r.Node, r.Code, r.Expected)
	}
}

// tamper changes one character of a token's claims.
func tamper(token string) string {
	i := strings.IndexByte(token, '.') + 10
	c := byte('A')
	if token[i] == c {
		c = 'B'
	}
	return token[:i] + string(c) + token[i+1:]
}
