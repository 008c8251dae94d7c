package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// TokenConnection is the longest connection with a token. A node that still waits reconnects.
const TokenConnection = 10 * time.Minute

const (
	commandResponses   = 1
	commandResponseTTL = 10 * time.Second
)

// Presented is what a client sends to connect. Only Certificates, Address and InProcess are verified.
type Presented struct {
	Name  string      // CONNECT name, part of the inbox
	Token wire.Secret // provisioning token, perhaps sealed

	Nkey      string // name of a sealed session or empty; see [seal.Session.Name]
	Signature string // the session's signature of Nonce
	Nonce     string // the broker's challenge

	// Certificates is the client's chain, leaf first; may be nil.
	Certificates []*x509.Certificate

	Address   string // of the client, host:port; for people
	InProcess bool
}

// LogValue omits secrets.
func (p Presented) LogValue() slog.Value {
	return slog.GroupValue(slog.String("address", p.Address), slog.String("name", events.Cut(p.Name, 200)),
		slog.Bool("token", p.Token != ""), slog.Int("certificates", len(p.Certificates)))
}

func (p Presented) withoutSecrets() Presented {
	p.Token, p.Signature, p.Nkey, p.Nonce = "", "", "", ""
	if !wire.ValidConnectionName(p.Name) {
		p.Name = ""
	}
	return p
}

// Admission is what a connection may do, and until when.
type Admission struct {
	Account string

	// User is an identity in FLEET, "provisioning", a provisioner's name, or "muster".
	User string

	// Publish and Subscribe are empty in [AccountMuster] and [AccountSystem], where all subjects are allowed.
	Publish   []string
	Subscribe []string

	// Responses is how many replies to a message are allowed, within ResponseTTL.
	Responses   int
	ResponseTTL time.Duration

	// Deadline is the end of the connection; zero means none.
	Deadline time.Time
}

// GateConfig configures [NewGate].
type GateConfig struct {
	// TrustDomain is the host of SPIFFE IDs. Required.
	TrustDomain string

	// VerifyToken returns when a token expires, zero for never. For a sealed token it must check the proof of Nkey
	// ([seal.Opener.OpenToken]), which the broker reports instead of [Admission.User]. An error that wraps no
	// *[Denied] refuses as [wire.CodeTokenInvalid]; it must not contain the token. Called concurrently. Required.
	VerifyToken func(p Presented) (expires time.Time, err error)

	// AdmitNode returns nil only for a node's current or next certificate on record. An error that wraps no
	// *[Denied] refuses as [wire.CodeDenied]. Called concurrently, with a deadline, also by Recheck. Required.
	AdmitNode func(ctx context.Context, id wire.Identity, c Certificate) error

	// AdmitReturning decides whether a node refused with [wire.CodeNotIssued] may request a renewal, only. Optional.
	AdmitReturning func(ctx context.Context, id wire.Identity, leaf *x509.Certificate) error

	// AdmitChoria admits a Choria server that presents its token, and returns a user that is unique to the connection
	// and when the token expires, zero for never. Its errors are those of VerifyToken. Nil: none are admitted.
	AdmitChoria func(ctx context.Context, id wire.Identity, p Presented) (user string, expires time.Time, err error)

	// Now defaults to [time.Now].
	Now func() time.Time
}

// A Gate decides about connections. It is safe for concurrent use.
type Gate struct {
	cfg GateConfig // read-only
}

// NewGate checks required fields.
func NewGate(cfg GateConfig) (*Gate, error) {
	if cfg.TrustDomain == "" || cfg.VerifyToken == nil || cfg.AdmitNode == nil {
		return nil, errors.New("gate: want TrustDomain, VerifyToken and AdmitNode")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Gate{cfg: cfg}, nil
}

// Authorize returns a *[Denied] as its error. With a certificate, the token is ignored: a refused node that fell
// back to its token could lose its identity unnoticed.
func (g *Gate) Authorize(ctx context.Context, p Presented) (*Admission, error) {
	switch {
	case p.InProcess && p.Name == systemClient:
		return &Admission{Account: AccountSystem, User: "muster"}, nil
	case p.InProcess:
		return &Admission{Account: AccountMuster, User: "muster"}, nil
	case len(p.Certificates) > 0:
		return g.certificate(ctx, p)
	}
	return g.token(ctx, p)
}

func (g *Gate) token(ctx context.Context, p Presented) (*Admission, error) {
	switch {
	case p.Token == "":
		return nil, &Denied{wire.CodeTokenInvalid, fmt.Errorf("%w: neither token nor certificate", ErrCredentials)}
	case len(p.Token) > maxToken(p):
		err := fmt.Errorf("%w: %d bytes, limit %d", ErrToken, len(p.Token), maxToken(p))
		return nil, &Denied{wire.CodeTokenInvalid, err}
	case !wire.ValidConnectionName(p.Name) && g.cfg.AdmitChoria != nil:
		return g.choria(ctx, p)
	case !wire.ValidConnectionName(p.Name):
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("%w: %d bytes", ErrName, len(p.Name))}
	case p.Nkey != "" && !sealed(p):
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("%w: sent with a token that is not sealed", ErrNkey)}
	case p.Nkey == "" && sealed(p):
		// Without an nkey, the token may have been recorded on another connection.
		err := fmt.Errorf("%w: sealed token without the name of its session", ErrNkey)
		return nil, &Denied{wire.CodeSealedInvalid, err}
	}
	expires, err := g.cfg.VerifyToken(p)
	if err != nil {
		return nil, deny(wire.CodeTokenInvalid, err)
	}
	deadline, err := g.deadline(expires, TokenConnection)
	if err != nil {
		return nil, &Denied{wire.CodeTokenExpired, err}
	}
	return &Admission{
		Account:   AccountProvisioning,
		User:      "provisioning",
		Publish:   []string{wire.SubjectEnroll, wire.SubjectApplied},
		Subscribe: []string{wire.InboxPrefix(p.Name) + ".>"},
		Deadline:  deadline,
	}, nil
}

// deadline returns the end of a connection with a token, which expires then or, if that is zero, never.
func (g *Gate) deadline(expires time.Time, longest time.Duration) (time.Time, error) {
	now := g.cfg.Now()
	deadline := now.Add(longest)
	if !expires.IsZero() && expires.Before(deadline) {
		deadline = expires
	}
	if !deadline.After(now) {
		return time.Time{}, fmt.Errorf("%w: expired at %s", ErrToken, expires.UTC().Format(time.RFC3339))
	}
	return deadline, nil
}

func sealed(p Presented) bool { return seal.IsSealedToken(string(p.Token)) }

func maxToken(p Presented) int {
	if sealed(p) {
		return seal.MaxSealedTokenBytes
	}
	return wire.MaxTokenBytes
}
