package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// Config configures [New].
type Config struct {
	// Socket is the path of the Unix socket; one that an earlier process left
	// is replaced. Required.
	Socket string

	Provisioner *provisioner.Provisioner // required

	// Backup begins a backup in the name of who asks, and returns about how many
	// messages it will have. write then writes it, once. Nil: there are none.
	Backup func(ctx context.Context, by string) (messages uint64, write func(io.Writer) error, err error)

	// Inputs writes what decisions saw in the last age, a [policies.Recording] in
	// JSON a line and a blank line after each batch; started gets the number of
	// batches before that. Nil: none are kept.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Fleet *fleet.Index     // lists nodes; nil: none are listed
	Nodes *fleet.Inspector // answers about one node; nil with Fleet

	// Components are the provisioners of the installation and their features.
	// Nil: nobody is told of any.
	Components Components

	// Events is where events are read. Nil: there are none.
	Events provisioner.EventLog

	// Webhooks are those of this process. Nil: there are none.
	Webhooks provisioner.Webhooks

	// Attempts are those that have failed. Nil: there are none.
	Attempts *provisioner.Attempts

	// Metrics answers GET /metrics. Nil: there are none.
	Metrics http.Handler

	// Console answers what is no route, over HTTPS. Nil: nothing does.
	Console http.Handler

	// HTTPS is the listener for operators on other machines. Nil: there is the
	// socket only.
	HTTPS *HTTPSConfig

	// Ready returns what keeps this provisioner from serving, by name, nil where
	// nothing does. It is asked without authentication, and only the names are
	// told. Nil: nothing does.
	Ready func(context.Context) map[string]error

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is optional; defaults to [time.Now].
	Now func() time.Time
}

// New checks cfg and returns a Server. It opens nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Socket == "" || cfg.Provisioner == nil {
		return nil, errors.New("operators' edge: no socket or no provisioner given")
	}
	if cfg.HTTPS != nil {
		if err := cfg.HTTPS.check(); err != nil {
			return nil, fmt.Errorf("operators' edge: %w", err)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), served: make(map[string]exchange)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.tokenRoutes()
	s.signerRoutes()
	s.nodeRoutes()
	s.fleetRoutes()
	s.waitingRoutes()
	s.allowRoutes()
	s.settingRoutes()
	s.componentRoutes()
	s.statusRoutes()
	s.installationRoutes()
	s.operatorRoutes()
	s.backupRoute()
	s.inputsRoute()
	s.policyRoutes()
	s.eventRoute()
	s.webhookRoutes()
	s.attemptRoute()
	s.metricsRoute()
	s.healthRoutes()
	s.downloadRoutes()
	s.openAPIRoute()
	s.openAPI = sync.OnceValues(s.describe)
	for _, pattern := range Routes() {
		if _, ok := s.served[pattern]; !ok {
			return nil, fmt.Errorf("operators' edge: nothing serves %s", pattern)
		}
		if descriptions[pattern].does == "" {
			return nil, fmt.Errorf("operators' edge: nothing in descriptions.go describes %s", pattern)
		}
	}
	return s, nil
}

// A Reason goes with every change: why, for the history.
type Reason struct {
	Why string `json:"why,omitempty"`
}

// reason implements reasoned.
func (r Reason) reason() string { return r.Why }

// reason implements reasoned.
func (r Release) reason() string { return r.Why }

// reason implements reasoned.
func (a AddSigner) reason() string { return a.Why }

// reason implements reasoned.
func (g NewGrant) reason() string { return g.Why }

// cause returns who asks and why.
func cause(r *http.Request, why string) provisioner.Cause {
	return provisioner.Cause{By: by(r.Context()), Why: why}
}

// A Token is a token with its count, and what has become of it.
type Token struct {
	provisioner.TokenSummary
	Revoked *provisioner.Revocation `json:"revoked,omitempty"`
}

// A TokenReport is a token with who used it.
type TokenReport struct {
	provisioner.TokenReport
	Revoked *provisioner.Revocation `json:"revoked,omitempty"`
}

// newTokenReport adds what has become of a token. A list of nobody is a list.
func newTokenReport(of *provisioner.TokenReport, revoked *provisioner.Revocation) *TokenReport {
	report := &TokenReport{TokenReport: *of, Revoked: revoked}
	if report.UsedBy == nil {
		report.UsedBy = []provisioner.TokenUse{}
	}
	return report
}

// TokenText is the text of a token, a secret.
type TokenText struct {
	Token wire.Secret `json:"token"`
}

// An IssuedToken is a one-time token that is to be listed.
type IssuedToken struct {
	TokenText
	Why string `json:"why,omitempty"`
}

// reason implements reasoned.
func (t IssuedToken) reason() string { return t.Why }

// TokenID names a token.
type TokenID struct {
	ID jwt.TokenID `json:"tid"`
}

// A Release says whose use of a token is to be given back.
type Release struct {
	Of  string `json:"of"` // key hash or identity
	Why string `json:"why,omitempty"`
}

func (s *Server) tokenRoutes() {
	p := s.cfg.Provisioner
	route(s, "GET /v1/tokens", func(r *http.Request, _ *none) ([]Token, error) { return s.tokens(r.Context()) })
	route(s, "GET /v1/tokens/{tid}", func(r *http.Request, _ *none) (*TokenReport, error) {
		tid := jwt.TokenID(r.PathValue("tid"))
		report, err := p.Token(r.Context(), tid)
		revoked := p.Revocations().Token(tid)
		if errors.Is(err, provisioner.ErrUnknownToken) && revoked != nil {
			// Never used, and never will be.
			report, err = &provisioner.TokenReport{TokenSummary: provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: tid}}}, nil
		}
		if err != nil {
			return nil, err
		}
		return newTokenReport(report, revoked), nil
	})
	// The text goes nowhere but into the verifier.
	route(s, "POST /v1/tokens/identify", func(_ *http.Request, q *TokenText) (*TokenID, error) {
		v, err := p.IdentifyToken(string(q.Token))
		if err != nil {
			return nil, badRequest(err)
		}
		return &TokenID{ID: v}, nil
	})
	route(s, "POST /v1/tokens/issued", func(r *http.Request, q *IssuedToken) (*provisioner.TokenInfo, error) {
		return p.IssueToken(r.Context(), string(q.Token), cause(r, q.Why))
	})
	route(s, "POST /v1/tokens/{tid}/revoke", func(r *http.Request, q *Reason) (*TokenReport, error) {
		tid := jwt.TokenID(r.PathValue("tid"))
		if err := p.RevokeToken(r.Context(), tid, cause(r, q.Why)); err != nil {
			return nil, err
		}
		// Who came in with it before is what the operator has to look at next.
		report, err := p.Token(r.Context(), tid)
		if err != nil {
			report = &provisioner.TokenReport{TokenSummary: provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: tid}}}
		}
		return newTokenReport(report, p.Revocations().Token(tid)), nil
	})
	route(s, "POST /v1/tokens/{tid}/thaw", func(r *http.Request, q *Reason) (*none, error) {
		return &none{}, p.ThawToken(r.Context(), jwt.TokenID(r.PathValue("tid")), cause(r, q.Why))
	})
	route(s, "POST /v1/tokens/{tid}/release", func(r *http.Request, q *Release) ([]provisioner.TokenUse, error) {
		return p.ReleaseClaim(r.Context(), jwt.TokenID(r.PathValue("tid")), q.Of, cause(r, q.Why))
	})
}

// tokens lists the tokens that have been used here, and those that were
// revoked before anybody used them.
func (s *Server) tokens(ctx context.Context) ([]Token, error) {
	used, err := s.cfg.Provisioner.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	tokens, listed := make([]Token, 0, len(used)), make(map[jwt.TokenID]bool, len(used))
	for _, t := range used {
		tokens = append(tokens, Token{TokenSummary: t, Revoked: s.cfg.Provisioner.Revocations().Token(t.ID)})
		listed[t.ID] = true
	}
	for _, r := range s.cfg.Provisioner.Revocations().Tokens() {
		if !listed[r.Token] {
			tokens = append(tokens, Token{TokenSummary: provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: r.Token}}, Revoked: r})
		}
	}
	return tokens, nil
}

// An AddSigner is a signer that is to be added.
type AddSigner struct {
	provisioner.NewSigner
	Why string `json:"why,omitempty"`
}

// Removed says how many signers a removal has left.
type Removed struct {
	Left int `json:"left"`
}

func (s *Server) signerRoutes() {
	p := s.cfg.Provisioner
	route(s, "GET /v1/signers", func(r *http.Request, _ *none) ([]provisioner.SignerInfo, error) { return p.ListSigners(r.Context()) })
	route(s, "POST /v1/signers", func(r *http.Request, q *AddSigner) (*provisioner.SignerInfo, error) {
		return p.AddSigner(r.Context(), q.NewSigner, cause(r, q.Why))
	})
	route(s, "POST /v1/signers/{id}/remove", func(r *http.Request, q *Reason) (*Removed, error) {
		left, err := p.RemoveSigner(r.Context(), jwt.SignerID(r.PathValue("id")), cause(r, q.Why))
		return &Removed{Left: left}, err
	})
}

// A NewGrant lets another key take an identity over, once.
type NewGrant struct {
	provisioner.Seen
	ID      string        `json:"id,omitempty"` // of the grant, when the order is repeated
	KeyHash string        `json:"key_hash,omitempty" httpapi:"limit"`
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	Why     string        `json:"why,omitempty"`
}

// reason implements reasoned.
func (c NodeCommand) reason() string { return c.Why }

// A Change revokes or retires a node. A node that is not as it was seen is left alone with [provisioner.ErrChanged],
// one that was heard of after SeenBefore with [fleet.ErrHeard].
type Change struct {
	provisioner.Seen
	Why        string    `json:"why,omitempty"`
	SeenBefore time.Time `json:"seen_before,omitzero"` // zero: whenever it was heard of
}

// reason implements reasoned.
func (c Change) reason() string { return c.Why }

// unheard returns an error if a node was heard of since it was chosen for its silence.
func (s *Server) unheard(ctx context.Context, id wire.Identity, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	if s.cfg.Nodes == nil {
		return errNoFleet
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	return s.cfg.Nodes.Unheard(ctx, id, before)
}

// A NodeCommand has a node do something.
type NodeCommand struct {
	provisioner.Seen
	ID    string      `json:"id,omitempty"`    // of the command, when it is repeated
	Token wire.Secret `json:"token,omitempty"` // text of the token that the node has, if not the one on record
	Why   string      `json:"why,omitempty"`
}

// identity returns the identity in the path.
func identity(r *http.Request) (wire.Identity, error) {
	id, err := wire.ParseIdentity(r.PathValue("identity"))
	if err != nil {
		return "", badRequest(err)
	}
	return id, nil
}

func (s *Server) nodeRoutes() {
	p := s.cfg.Provisioner
	change := func(what string, do func(context.Context, wire.Identity, provisioner.Cause, ...provisioner.Seen) error) {
		route(s, "POST /v1/nodes/{identity}/"+what, func(r *http.Request, q *Change) (*none, error) {
			id, err := identity(r)
			if err == nil {
				err = s.unheard(r.Context(), id, q.SeenBefore)
			}
			if err != nil {
				return nil, err
			}
			return &none{}, do(r.Context(), id, cause(r, q.Why), q.Seen)
		})
	}
	change("revoke", p.RevokeNode)
	change("retire", p.RetireNode)
	for _, verb := range wire.Verbs {
		route(s, "POST /v1/nodes/{identity}/"+string(verb), func(r *http.Request, q *NodeCommand) (*provisioner.Obeyed, error) {
			id, err := identity(r)
			if err != nil {
				return nil, err
			}
			return p.CommandNode(r.Context(), id, provisioner.Order{ID: q.ID, Verb: verb, Token: q.Token, Seen: q.Seen}, cause(r, q.Why))
		})
	}
	route(s, "POST /v1/nodes/{identity}/grant", func(r *http.Request, q *NewGrant) (*provisioner.Grant, error) {
		id, err := identity(r)
		if err != nil {
			return nil, err
		}
		return p.GrantNode(r.Context(), id, provisioner.GrantOrder{ID: q.ID, KeyHash: q.KeyHash, TTL: q.TTL, Seen: q.Seen}, cause(r, q.Why))
	})
}

// errNoCRL means that the provisioner has just started.
var errNoCRL = errors.New("no certificate revocation list has been signed yet")

func (s *Server) installationRoutes() {
	p := s.cfg.Provisioner
	route(s, "POST /v1/clock/accept", func(r *http.Request, q *Reason) (*none, error) {
		return &none{}, p.AcceptClock(r.Context(), cause(r, q.Why))
	})
}
