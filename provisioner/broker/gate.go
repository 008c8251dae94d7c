package broker

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// serviceUser is the user name of connections from inside the process.
const serviceUser = "muster"

// Presented is what a connection presents in its CONNECT and in TLS. All of it
// is claimed, but for Certificates, Address and InProcess.
type Presented struct {
	Name     string      // CONNECT name, to which the inbox is bound
	Token    wire.Secret // provisioning token, perhaps sealed
	Username string
	Password wire.Secret

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
	p.Token, p.Password, p.Signature, p.Nonce = "", "", "", ""
	if !wire.ValidConnectionName(p.Name) {
		p.Name = ""
	}
	p.Username, p.Nkey = "", ""
	return p
}

// Admission is what a connection may do, and until when.
type Admission struct {
	// Account is one of [AccountProvisioning], [AccountFleet] and
	// [AccountMuster].
	Account string

	// User says who connected: an identity in FLEET, "provisioning", the
	// name of a provisioner, "muster". It is what the broker reports as the
	// user of each request.
	User string

	// Publish and Subscribe list the subjects allowed; nothing else is. An
	// empty list allows nothing.
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

	// ServicePassword admits connections from inside the process. Empty
	// admits none. [New] chooses its own.
	ServicePassword wire.Secret

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Gate decides who may connect as what. It is safe for concurrent use.
type Gate struct {
	cfg GateConfig // read-only
}

// NewGate returns a Gate, or an error naming every field of cfg that is missing.
func NewGate(cfg GateConfig) (*Gate, error) {
	var errs []error
	if cfg.TrustDomain == "" {
		errs = append(errs, errors.New("no trust domain"))
	}
	if cfg.VerifyToken == nil {
		errs = append(errs, errors.New("no token verifier"))
	}
	if cfg.AdmitNode == nil {
		errs = append(errs, errors.New("no allow-list of certificates"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("gate: %w", errors.Join(errs...))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Gate{cfg: cfg}, nil
}

// Authorize decides about one connection. The error is a *[Denied], and the
// admission is then nil.
//
// A certificate decides alone: where it admits nobody, a token beside it is not
// looked at, or a node could be had to give up its identity without noticing. A
// node whose certificate has expired comes back with its token and without the
// certificate.
func (g *Gate) Authorize(ctx context.Context, p Presented) (*Admission, error) {
	var a *Admission
	var d *Denied
	switch {
	case p.InProcess:
		a, d = g.service(p)
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

// service admits the provisioner of this process. Over the network the same
// password is worth nothing.
func (g *Gate) service(p Presented) (*Admission, *Denied) {
	want := []byte(g.cfg.ServicePassword)
	if len(want) == 0 || p.Username != serviceUser || p.Nkey != "" ||
		subtle.ConstantTimeCompare([]byte(p.Password), want) != 1 {
		return nil, &Denied{wire.CodeDenied, fmt.Errorf("%w: in-process connection", ErrCredentials)}
	}
	return &Admission{Account: AccountMuster, User: serviceUser, Publish: everything(), Subscribe: everything()}, nil
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

// everything is the list that allows every subject.
func everything() []string { return []string{">"} }

// bounded returns s cut to a length fit for a log line.
func bounded(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}

// isEverything reports whether list allows every subject.
func isEverything(list []string) bool { return slices.Contains(list, ">") }
