package httpapi

import (
	"context"
	"errors"
	"net/http"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

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

func tokenRoutes(s *Server) {
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

func signerRoutes(s *Server) {
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
