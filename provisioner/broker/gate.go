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
)

// TokenConnection is how long a connection that presented a token may last:
// enrolling takes seconds, and waiting for an approval is done by coming back.
const TokenConnection = 10 * time.Minute

// Answers to commands: one for each, within the time that a provisioner waits
// at most; chosen, a node answers at once and works afterwards.
const (
	commandResponses   = 1
	commandResponseTTL = 10 * time.Second
)

// Presented is what a connection presents in its CONNECT and in TLS. All of it
// is claimed, but for Certificates, Address and InProcess.
type Presented struct {
	Name  string      // CONNECT name, to which the inbox is bound
	Token wire.Secret // provisioning token, perhaps sealed

	Nkey      string // name of a sealed session, empty if none; see [seal.Session.Name]
	Signature string // the session's proof over Nonce
	Nonce     string // what the broker asked the client to sign

	// Certificates is the client's chain as TLS verified it for client
	// authentication, leaf first. Nil if the client sent none, or came
	// without TLS.
	Certificates []*x509.Certificate

	Address   string // of the client, host:port; for people
	InProcess bool   // the client is in the broker's process
}

// LogValue keeps secrets, and whatever else a stranger may have put into the
// wrong field, out of the log.
func (p Presented) LogValue() slog.Value {
	return slog.GroupValue(slog.String("address", p.Address), slog.String("name", bounded(p.Name)),
		slog.Bool("token", p.Token != ""), slog.Int("certificates", len(p.Certificates)))
}

// withoutSecrets returns p without what must not leave the gate.
func (p Presented) withoutSecrets() Presented {
	p.Token, p.Signature, p.Nkey, p.Nonce = "", "", "", ""
	if !wire.ValidConnectionName(p.Name) {
		p.Name = ""
	}
	return p
}

// Admission is what a connection may do, and until when.
type Admission struct {
	// Account is one of [AccountProvisioning], [AccountFleet] and
	// [AccountMuster].
	Account string

	// User is the connected client: an identity in FLEET, "provisioning", the
	// name of a provisioner, "muster". It is what the broker reports as the
	// user of each request.
	User string

	// Publish and Subscribe list the subjects allowed, at least one each. In
	// [AccountMuster] there are none, and every subject is allowed.
	Publish   []string
	Subscribe []string

	// Responses is how many messages may be published to the reply subject of
	// one received, within ResponseTTL of receiving it. Zero is none.
	Responses   int
	ResponseTTL time.Duration

	// Deadline is when the connection ends. Zero means never.
	Deadline time.Time
}

// GateConfig configures [NewGate].
type GateConfig struct {
	// TrustDomain is the trust domain of the installation's certificates.
	// Required.
	TrustDomain string

	// VerifyToken verifies the token of a connection, and returns when it ends, the zero time if never. Its size and the connection's name have been
	// checked. The token may be sealed (see [seal.IsSealedToken]); then there is a
	// Nkey, which the broker reports as the user of each request, in place of
	// [Admission.User]: it must not go unproven ([seal.Opener.OpenToken] sees to
	// that). Otherwise there is none. An error refuses the connection, as [wire.CodeTokenInvalid]
	// unless it wraps a *[Denied] with another code; it must not contain the
	// token. Called concurrently. Required.
	VerifyToken func(p Presented) (expires time.Time, err error)

	// AdmitNode says whether the certificate is the current or the next one on record for
	// the node. An error refuses the connection, as [wire.CodeDenied] unless
	// it wraps a *[Denied] with another code. It is asked when a node connects, and about
	// connections that there are ([Broker.Recheck], [External.Recheck]). Called concurrently, with a
	// deadline of a few seconds. Required: an allow-list, so that a
	// certificate that is on no record admits no node.
	AdmitNode func(ctx context.Context, id wire.Identity, c Certificate) error

	// AdmitReturning is asked about a node whose certificate AdmitNode refuses with [wire.CodeNotIssued]: nil admits it
	// to ask for a renewal, and to nothing else. Called as AdmitNode is. Optional; nil admits none.
	AdmitReturning func(ctx context.Context, id wire.Identity, leaf *x509.Certificate) error

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Gate decides about connections. It is safe for concurrent use.
type Gate struct {
	cfg GateConfig // read-only
}

// NewGate returns a Gate, or an error if a required field of cfg is missing.
func NewGate(cfg GateConfig) (*Gate, error) {
	if cfg.TrustDomain == "" || cfg.VerifyToken == nil || cfg.AdmitNode == nil {
		return nil, errors.New("gate: want a trust domain, a token verifier and an allow-list of certificates")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Gate{cfg: cfg}, nil
}

// Authorize decides about one connection. The error is a *[Denied], and the
// admission is then nil.
//
// A certificate decides alone: where it is not admitted, a token beside it is not
// looked at, or a node could be had to give up its identity without noticing. A
// node whose certificate has expired comes back with its token and without the
// certificate.
func (g *Gate) Authorize(ctx context.Context, p Presented) (*Admission, error) {
	var a *Admission
	var d *Denied
	switch {
	case p.InProcess:
		a = &Admission{Account: AccountMuster, User: "muster"}
	case len(p.Certificates) > 0:
		a, d = g.certificate(ctx, p)
	default:
		a, d = g.token(p)
	}
	if d != nil {
		return nil, d
	}
	return a, nil
}

// token admits a machine that has a token and nothing else.
func (g *Gate) token(p Presented) (*Admission, *Denied) {
	switch {
	case p.Token == "":
		return nil, &Denied{wire.CodeTokenInvalid, fmt.Errorf("%w: neither token nor certificate", ErrCredentials)}
	case len(p.Token) > maxToken(p):
		return nil, &Denied{wire.CodeTokenInvalid, fmt.Errorf("%w: %d bytes, limit %d", ErrToken, len(p.Token), maxToken(p))}
	case !wire.ValidConnectionName(p.Name):
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("%w: %d bytes", ErrName, len(p.Name))}
	}
	switch {
	case p.Nkey != "" && !sealed(p):
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("%w: beside a token that is not sealed", ErrNkey)}
	case p.Nkey == "" && sealed(p):
		// Nothing would tie it to this connection: it may be a recorded one.
		return nil, &Denied{wire.CodeSealedInvalid, fmt.Errorf("%w: sealed token without the name of its session", ErrNkey)}
	}
	expires, err := g.cfg.VerifyToken(p)
	if err != nil {
		return nil, deny(wire.CodeTokenInvalid, err)
	}
	now := g.cfg.Now()
	deadline := now.Add(TokenConnection)
	if !expires.IsZero() && expires.Before(deadline) {
		deadline = expires
	}
	if !deadline.After(now) {
		return nil, &Denied{wire.CodeTokenExpired, fmt.Errorf("%w: expired at %s", ErrToken, expires.UTC().Format(time.RFC3339))}
	}
	return &Admission{
		Account:   AccountProvisioning,
		User:      "provisioning",
		Publish:   []string{wire.SubjectEnroll, wire.SubjectApplied},
		Subscribe: []string{wire.InboxPrefix(p.Name) + ".>"},
		Deadline:  deadline,
	}, nil
}

// sealed reports whether a connection presents a sealed token.
func sealed(p Presented) bool { return seal.IsSealedToken(string(p.Token)) }

// maxToken is how long the token that a connection presents may be.
func maxToken(p Presented) int {
	if sealed(p) {
		return seal.MaxSealedTokenBytes
	}
	return wire.MaxTokenBytes
}

// bounded returns s cut to a length fit for a log line.
func bounded(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}
