package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"strings"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// refuse has the nodes try that must not get in, one after the other, and notes why they did not.
func (d *run) refuse(ctx context.Context) error {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("foreign signer: %w", err)
	}
	foreign, err := d.sign(stranger, nil)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		node, what, token, csr, facts string
		want                          wire.Code
	}{
		{"tampered.demo.muster", "its token was altered", tamper(d.token), "", "", wire.CodeTokenInvalid},
		{"foreign.demo.muster", "its token was signed with another key", foreign, "", "", wire.CodeTokenInvalid},
		{"impostor.demo.muster", "its certificate request is for another name", d.token, identity(0), "", wire.CodeCSRIdentity},
		{"quarantined.demo.muster", "the policy denies it", d.token, "", `{"quarantine": true}`, wire.CodeDenied},
		{"localhost", "its name is the broker's", d.token, "", "", wire.CodeIdentityReserved},
		{identity(0), "another machine with the name of a node", d.token, "", "", wire.CodeIdentityTaken},
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
		d.refusal(ctx, n, Refusal{Node: c.node, What: c.what, Expected: string(c.want)})
	}
	return nil
}

// refusal lets one node try and notes what happened.
func (d *run) refusal(ctx context.Context, n *simnode.Node, r Refusal) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.timeout())
	defer cancel()
	d.mu.Lock()
	before := len(d.events)
	d.mu.Unlock()
	nc, err := simnode.Dial("nats://"+d.url, n.Token)
	if err != nil {
		r.Told = strings.TrimPrefix(err.Error(), "nats: ")
	} else {
		defer nc.Close()
		reply, err := simnode.Enroll(ctx, nc, n.Request())
		switch {
		case err != nil:
			r.Told = err.Error()
		case reply.Refusal == nil:
			d.missing("%s was not refused although %s", r.Node, r.What)
			return
		default:
			r.Told = string(reply.Refusal.Code)
		}
	}
	d.mu.Lock()
	if len(d.events) > before {
		r.Code, r.Cause = string(d.events[before].Code), d.events[before].Cause
	}
	d.result.Refusals = append(d.result.Refusals, r)
	if r.Code != "" {
		d.result.Refused++
	}
	d.mu.Unlock()
	if r.Code != r.Expected {
		d.missing("%s was refused as %q, want %q", r.Node, r.Code, r.Expected)
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
