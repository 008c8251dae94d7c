package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"muster/internal/inputfile"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/choria"
	"muster/provisioner/events"
)

type gate struct {
	*base
	budget  *provisioner.Budget
	reports *reports
}

// verifyToken also refuses a plain-text token that must be sealed: the network has seen it, and the node may have been
// tricked.
func (g *gate) verifyToken(p broker.Presented) (expires time.Time, err error) {
	v, err := g.verified(p)
	if err != nil {
		return time.Time{}, err
	}
	return v.Expiry(), nil
}

func (g *gate) verified(p broker.Presented) (*jwt.Verified, error) {
	operator := g.live.provisioner.Load()
	if operator == nil {
		return nil, &broker.Denied{Code: wire.CodeRevocationsUnknown, Err: errNotOpen}
	}
	text, err := g.openToken(p)
	if err != nil {
		return nil, err
	}
	v, err := operator.Gate.AdmitToken(string(text), p.Address)
	if err == nil && seal.IsSealedToken(string(p.Token)) {
		g.budget.Refund(p.Address)
	}
	if err != nil {
		refused := asDenied(err)
		if behind := g.live.clock.Load().Check(); behind != nil && refused.Code == wire.CodeTokenNotYetValid {
			// The provisioner's clock is wrong, not the token.
			refused = &broker.Denied{Code: wire.CodeClockBehind, Err: fmt.Errorf("%w; %w", behind, refused.Err)}
		}
		return nil, refused
	}
	if v.Limits.Seal != "" && !seal.IsSealedToken(string(p.Token)) {
		return nil, &broker.Denied{Code: wire.CodeSealedInvalid,
			Err: fmt.Errorf("token %s requires sealing and came in plain text; if the network may have been read, "+
				"revoke it and sign another", v.ID)}
	}
	return v, nil
}

// admitChoria admits a Choria server to the gateway.
func (g *gate) admitChoria(ctx context.Context, id wire.Identity, p broker.Presented) (string, time.Time, error) {
	v, err := g.verified(p)
	if err != nil {
		return "", time.Time{}, err
	}
	gateway := g.live.choria.Load()
	if gateway == nil {
		return "", time.Time{}, &broker.Denied{Code: wire.CodeUnavailable, Err: errNotOpen}
	}
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		host = p.Address
	}
	user, err := gateway.Admit(ctx, choria.Candidate{
		Node:    id,
		Token:   v,
		Text:    p.Token,
		Address: host,
	})
	if err != nil {
		return "", time.Time{}, asDenied(err)
	}
	return user, v.Expiry(), nil
}

// openToken unseals a token. The broker's nonce proves that it was not replayed. Opening charges a check, since sealing
// garbage is easy; for a good token, the caller refunds it.
func (g *gate) openToken(p broker.Presented) (wire.Secret, error) {
	if !seal.IsSealedToken(string(p.Token)) {
		return p.Token, nil
	}
	if g.parts.opener == nil {
		return "", &broker.Denied{
			Code: wire.CodeSealedUnsupported,
			Err:  errors.New("the token is sealed, but the provisioner has no seal.keys"),
		}
	}
	if !g.budget.Charge(p.Address) {
		return "", &broker.Denied{
			Code: wire.CodeSourceLimited,
			Err:  errors.New("too many invalid tokens from this address"),
		}
	}
	text, err := g.parts.opener.OpenToken(seal.Presented{
		Token:     string(p.Token),
		Name:      p.Nkey,
		Signature: p.Signature,
		Nonce:     p.Nonce,
	})
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		err = fmt.Errorf("%w: sign tokens for the present seal.pub, or restore the former key to seal.keys", err)
	case errors.Is(err, seal.ErrProof):
		err = fmt.Errorf("%w: it was recorded and replayed", err)
	}
	if err != nil {
		return "", &broker.Denied{Code: wire.CodeSealedInvalid, Err: err}
	}
	return text, nil
}

func (g *gate) admitNode(ctx context.Context, id wire.Identity, c broker.Certificate) error {
	return g.ask(func(gate *provisioner.Gate) (err error) {
		if c.Serial == "" {
			if c.Serial, err = gate.SerialOf(ctx, id, c.SHA256); err != nil {
				return err
			}
		}
		return gate.AdmitNode(ctx, id, c.Serial)
	})
}

func (g *gate) admitReturning(ctx context.Context, id wire.Identity, leaf *x509.Certificate) error {
	return g.ask(func(gate *provisioner.Gate) error { return gate.AdmitReturning(ctx, id, leaf) })
}

func (g *gate) ask(about func(*provisioner.Gate) error) error {
	p := g.live.provisioner.Load()
	if p == nil {
		return &broker.Denied{Code: wire.CodeUnavailable, Err: errNotOpen}
	}
	if err := about(p.Gate); err != nil {
		return asDenied(err)
	}
	return nil
}

func (g *gate) connectionRefused(_ context.Context, p broker.Presented, denied *broker.Denied) {
	g.reports.metrics.ConnectionRefused(denied.Code)
	e := provisioner.RefusalEvent("", &provisioner.Refusal{
		Code: denied.Code,
		Err:  denied.Err,
	}, g.opts.Now().UTC(), p.Address)
	e.Type = events.Attempt
	if n := (*broker.NotAdmitted)(nil); errors.As(denied.Err, &n) {
		e.Node, e.Serial = string(n.Node), n.Serial // for the node's history
	}
	var ok bool
	if e.LeftOut, ok = g.budget.Report(p.Address); !ok {
		return // the broker limits its log in the same way
	}
	g.reports.report(e)
}

// asDenied drops the refusal's text of the code, which the broker adds.
func asDenied(err error) *broker.Denied {
	if r, ok := errors.AsType[*provisioner.Refusal](err); ok && r.Err != nil {
		return &broker.Denied{Code: r.Code, Err: r.Err}
	}
	return &broker.Denied{Code: provisioner.CodeOf(err), Err: err}
}

// owner returns the user whose installation this is. Root checks and repairs the installation of another user.
func (c *Config) owner() int { return inputfile.OwnerOf(c.DataDir) }

// judge returns [inputfile.ErrUnsafe] for a file that another user could change. A missing file is reported by its
// reader.
func (c *Config) judge(path string) error {
	err := inputfile.Safe(path, c.owner())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// judgeFiles judges all files but policies, which are judged whenever they are read.
func (c *Config) judgeFiles() []error {
	unsafe := make(map[string]error) // by text: a directory of several files is reported once
	for _, path := range append(c.files(), &c.path) {
		if *path == "" {
			continue
		}
		if err := c.judge(*path); err != nil {
			unsafe[err.Error()] = err
		}
	}
	return slices.Collect(maps.Values(unsafe))
}

// judgeCommand judges a program and the files among its arguments, such as the script of an interpreter.
func (c *Config) judgeCommand(command []string) error {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return nil // its first use reports it
	}
	for _, path := range append([]string{program}, command[1:]...) {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := c.judge(path); err != nil {
			return err
		}
	}
	return nil
}
