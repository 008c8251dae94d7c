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

// notAdmitted is what a broker says to a node whose token it does not take.
const notAdmitted = "Authorization Violation"

// refuse has the nodes try that must not get in, one after the other, and notes what they are told.
func (d *run) refuse(ctx context.Context, token string) error {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("foreign signer: %w", err)
	}
	foreign, err := d.sign(stranger, nil)
	if err != nil {
		return err
	}
	code := func(c wire.Code) string { return string(c) }
	for _, c := range []struct{ node, what, token, csr, facts, want string }{
		{"tampered.demo.muster", "its token was altered", tamper(token), "", "", notAdmitted},
		{"foreign.demo.muster", "its token was signed with another key", foreign, "", "", notAdmitted},
		{"impostor.demo.muster", "its certificate request is for another name", token, identity(0), "", code(wire.CodeCSRIdentity)},
		{"quarantined.demo.muster", "the policy denies it", token, "", `{"quarantine": true}`, code(wire.CodeDenied)},
		{"localhost", "its name is the broker's", token, "", "", code(wire.CodeIdentityReserved)},
		// It is not told that the name is taken: an operator may let it in.
		{identity(0), "another machine with the name of a node", token, "", "", code(wire.CodeApprovalPending)},
	} {
		n, err := simnode.New(c.node, c.token)
		if err == nil && c.csr != "" {
			n.CSR, err = simnode.CSR(n.Key, c.csr)
		}
		if err != nil {
			return err
		}
		n.Facts = []byte(c.facts)
		told := d.try(ctx, n)
		d.result.Refusals = append(d.result.Refusals, Refusal{Node: c.node, What: c.what, Told: told})
		if told == c.want {
			d.result.Refused++
		} else {
			d.missing("%s was told %q, want %q", c.node, told, c.want)
		}
	}
	return nil
}

// try has a node ask once, and returns what it is told, empty if that is no refusal.
func (d *run) try(ctx context.Context, n *simnode.Node) string {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.timeout())
	defer cancel()
	nc, err := simnode.Dial("nats://"+d.url, n.Token)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "nats: ")
	}
	defer nc.Close()
	reply, err := simnode.Enroll(ctx, nc, n.Request())
	switch {
	case err != nil:
		return err.Error()
	case reply.Refusal == nil:
		return ""
	}
	return string(reply.Refusal.Code)
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
