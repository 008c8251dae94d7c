package httpapi

import (
	"net/http"
	"slices"

	"muster/provisioner/operate"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
)

// A Reason is the body of a change that needs only a reason.
type Reason struct {
	Why string `json:"why,omitempty"`
}

// TokenText is the text of a token, a secret.
type TokenText struct {
	Token wire.Secret `json:"token"`
}

// TokenID names a token.
type TokenID struct {
	ID jwt.TokenID `json:"tid"`
}

// A Release names the holder of the use to release.
type Release struct {
	Of  string `json:"of"` // key hash or identity
	Why string `json:"why,omitempty"`
}

// maxTokenUses keeps an answer below 4 MB.
const maxTokenUses = 10_000

func tokenRoutes(s *Server) {
	t := s.cfg.Orders.Tokens
	tid := func(r *http.Request) jwt.TokenID { return jwt.TokenID(r.PathValue("tid")) }
	getList(s, viewer.on(inAnswer), "/v1/tokens", func(r *http.Request) ([]operate.TokenSummary, error) {
		all, err := t.List(r.Context())
		sites := sitesOf(r.Context())
		return slices.DeleteFunc(all, func(t operate.TokenSummary) bool { return !sites.Has(t.Site) }), err
	})
	get(s, viewer.on(ofToken), "/v1/tokens/{tid}", func(r *http.Request) (*operate.TokenReport, error) {
		return t.Get(r.Context(), tid(r), maxTokenUses)
	})
	post(s, viewer, "/v1/tokens/identify", func(
		_ *http.Request, q *TokenText, _ trust.Cause,
	) (*TokenID, error) {
		id, err := t.Identify(string(q.Token))
		if err != nil {
			return nil, badRequest(err)
		}
		return &TokenID{ID: id}, nil
	})
	change(s, operator.on(ofToken), "/v1/tokens/{tid}/revoke", func(
		r *http.Request, _ *Reason, c trust.Cause,
	) (*operate.TokenReport, error) {
		if err := t.Revoke(r.Context(), tid(r), c); err != nil {
			return nil, err
		}
		return t.Get(r.Context(), tid(r), maxTokenUses) // the operator's next question is which nodes used it
	})
	change(s, admin, "/v1/tokens/{tid}/unfreeze", func(r *http.Request, q *Unfreezing, c trust.Cause) (*none, error) {
		return &none{}, t.Unfreeze(r.Context(), tid(r), q.Left, c)
	})
	change(s, admin, "/v1/recovery/end", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, s.cfg.Orders.Recovery.End(r.Context(), c)
	})
	change(s, operator.on(ofToken), "/v1/tokens/{tid}/release", func(
		r *http.Request, q *Release, c trust.Cause,
	) (*Released, error) {
		uses, err := t.Release(r.Context(), tid(r), q.Of, c)
		return &Released{append([]trust.TokenUse{}, uses...)}, err
	})
}

// Released are the uses that were given back.
type Released struct {
	Released []trust.TokenUse `json:"released"`
}

// Unfreezing sets the uses that a frozen token has left.
type Unfreezing struct {
	Left int    `json:"left"` // beyond those on record
	Why  string `json:"why,omitempty"`
}

// An AddSigner is a signer to add.
type AddSigner struct {
	trust.NewSigner
	Why string `json:"why,omitempty"`
}

// Removed is the number of signers left.
type Removed struct {
	Left int `json:"left"`
}

func signerRoutes(s *Server) {
	signers := s.cfg.Orders.Signers
	getList(s, viewer, "/v1/signers", func(r *http.Request) ([]trust.SignerInfo, error) {
		return signers.List(r.Context())
	})
	change(s, admin, "/v1/signers", func(r *http.Request, q *AddSigner, c trust.Cause) (*trust.SignerInfo, error) {
		return signers.Add(r.Context(), q.NewSigner, c)
	})
	change(s, admin, "/v1/signers/{id}/remove", func(r *http.Request, _ *Reason, c trust.Cause) (*Removed, error) {
		left, err := signers.Remove(r.Context(), jwt.SignerID(r.PathValue("id")), c)
		return &Removed{Left: left}, err
	})
}
