package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// The lowest role that a route requires.
var (
	anyone   = access{} // no credential
	viewer   = access{role: trust.RoleViewer}
	operator = access{role: trust.RoleOperator}
	admin    = access{role: trust.RoleAdmin}
)

type access struct {
	role    trust.OperatorRole // at least
	at      scope              // nil: not for operators with a limit to sites
	changes bool               // a reason is required over HTTPS
	foreman bool               // also the role foreman, whose protocol has 403 for every caller without access
}

type caller struct {
	Self
	remote bool // over HTTPS
}

type loginKey struct{}

func withLogin(ctx context.Context, l caller) context.Context {
	return context.WithValue(ctx, loginKey{}, l)
}

func loginOf(ctx context.Context) (l caller, ok bool) {
	l, ok = ctx.Value(loginKey{}).(caller)
	return l, ok
}

// by returns the caller's name for events and history.
func by(ctx context.Context) string {
	l, _ := loginOf(ctx)
	return l.By
}

func (s *Server) handle(pattern string, need access, serve http.HandlerFunc) {
	s.routes[pattern] = need
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if need.role == "" {
			serve(w, r)
			return
		}
		l, known := loginOf(r.Context()) // set by the socket
		if !known {
			var err error
			if l, err = s.authenticate(r); err != nil {
				p := ProblemOf(err)
				switch {
				case p.Status == http.StatusUnauthorized && need.foreman:
					p.Status = http.StatusForbidden
				case p.Status == http.StatusUnauthorized:
					w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
				}
				p.write(w)
				return
			}
			r = r.WithContext(withLogin(r.Context(), l))
		}
		if !l.Role.Covers(need.role) && (!need.foreman || l.Role != trust.RoleForeman) {
			s.forbid(w, r, l, need.role)
			return
		}
		if name := r.PathValue("identity"); name != "" {
			id, err := wire.ParseName(name)
			if err != nil {
				s.fail(w, r, badRequest(err))
				return
			}
			r.SetPathValue("identity", string(id))
		}
		if err := s.within(need.at, r, l.Sites); err != nil {
			s.fail(w, r, err)
			return
		}
		serve(w, r)
	})
}

func (s *Server) forbid(w http.ResponseWriter, r *http.Request, l caller, needs trust.OperatorRole) {
	s.cfg.Log.WarnContext(r.Context(), "operator's request refused",
		"subject", subject(r), "by", l.By, "role", l.Role, "needs", needs)
	w.Header().Set("WWW-Authenticate",
		fmt.Sprintf(`Bearer realm="muster", error="insufficient_scope", scope=%q`, needs))
	p := &Problem{
		Detail: fmt.Sprintf("%s has the role %s, but this request needs %s", l.By, l.Role, needs),
		Status: http.StatusForbidden,
		Remedy: "ask an admin to change the role with `muster operator add`",
	}
	p.write(w)
}

// authenticate identifies the caller of an HTTPS request by its token, or without a token by the connection's
// certificate.
func (s *Server) authenticate(r *http.Request) (caller, error) {
	var l *login.Login
	var err error
	switch presented := r.Header.Values("Authorization"); {
	case len(presented) > 1:
		return caller{}, badRequest(errors.New("several Authorization headers"))
	case len(presented) == 1:
		scheme, token, _ := strings.Cut(presented[0], " ")
		if !strings.EqualFold(scheme, "Bearer") { // case-insensitive: RFC 9110 section 11.1
			return caller{}, fmt.Errorf("%w: scheme %.20q, want Bearer", login.ErrLogin, scheme)
		}
		l, err = s.cfg.Login.Token(r.Context(), strings.TrimLeft(token, " "), r.RemoteAddr)
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		shown := r.TLS.PeerCertificates
		l, err = s.cfg.Login.Certificate(r.Context(), shown[0], shown[1:], r.RemoteAddr)
	default:
		return caller{}, fmt.Errorf("%w: no credential was sent", login.ErrLogin)
	}
	if err != nil {
		return caller{}, err
	}
	return caller{Self{l.By(), l.Role, l.Sites, l.Expires}, true}, nil
}

var errNoReason = errors.New("why: missing: a change over HTTPS needs a reason, for the history")

// checkReason refuses a missing reason over HTTPS, and a reason that cannot be stored.
func checkReason(r *http.Request, c trust.Cause) error {
	if l, _ := loginOf(r.Context()); l.remote && strings.TrimSpace(c.Why) == "" {
		return badRequest(errNoReason)
	}
	if err := c.Check(); err != nil {
		return badRequest(err)
	}
	return nil
}

// An AddOperator is an operator to add.
type AddOperator struct {
	operate.NewOperator
	Why string `json:"why,omitempty"`
}

// A Self is the caller.
type Self struct {
	By    string             `json:"by"`
	Role  trust.OperatorRole `json:"role"`
	Sites trust.Sites        `json:"sites,omitempty"`

	// Expires is when the token or the session expires, absent without one.
	Expires time.Time `json:"expires,omitzero"`
}

func operatorRoutes(s *Server) {
	operators := s.cfg.Orders.Operators
	get(s, viewer.on(inAnswer), "/v1/self", func(r *http.Request) (*Self, error) {
		l, _ := loginOf(r.Context())
		return &l.Self, nil
	})
	getList(s, viewer, "/v1/operators", func(r *http.Request) ([]operate.OperatorInfo, error) {
		return operators.List(r.Context())
	})
	change(s, admin, "/v1/operators",
		func(r *http.Request, q *AddOperator, c trust.Cause) (*operate.AddedOperator, error) {
			return operators.Add(r.Context(), q.NewOperator, c)
		})
	change(s, admin, "/v1/operators/{name}/remove", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, operators.Remove(r.Context(), r.PathValue("name"), c)
	})
}
