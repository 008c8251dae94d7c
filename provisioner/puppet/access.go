package puppet

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/login"
	"muster/provisioner/trust"
)

// access is what a route requires of the caller.
type access struct {
	node bool               // a Puppet agent's certificate
	own  bool               // and the path names its identity
	role trust.OperatorRole // an operator of at least this role
}

var (
	anyone    = access{}
	ownNode   = access{node: true, own: true}
	anyNode   = access{node: true}
	viewers   = access{role: trust.RoleViewer}
	operators = access{role: trust.RoleOperator}
)

// A request is one that its route's access rule admits.
type request struct {
	*http.Request

	// name is the percent-decoded rest of the path after the route's prefix. It is not checked.
	name string

	body []byte

	// address is the client's, without port.
	address string

	// At most one is not nil: the record of the node, or the operator.
	node     *provisioner.Record
	operator *login.Login
}

var (
	errForbidden     = errors.New("forbidden")
	errNoCertificate = fmt.Errorf("%w: no client certificate", errForbidden)
)

// admit identifies the caller. The node's certificate is looked up for each request, since it may have been revoked. No
// header says the name of the caller, except that an operator may show a token.
func (s *Server) admit(r *request, need access) (err error) {
	switch {
	case need.role != "":
		return s.admitOperator(r, need.role)
	case need.node:
		err = s.admitNode(r)
	}
	if err == nil && need.own && string(r.node.Identity) != r.name {
		return fmt.Errorf("%w: the certificate is of node %q", errForbidden, r.node.Identity)
	}
	return err
}

// admitNode confirms the newest certificate of the node if this is the first request with it.
func (s *Server) admitNode(r *request) error {
	role, name, err := s.peer(r)
	if err != nil {
		return err
	}
	if role != wire.RoleNode {
		return fmt.Errorf("%w: certificate of role %s, want node", errForbidden, role)
	}
	serial := ca.Serial(r.TLS.PeerCertificates[0])
	node, err := s.cfg.Provisioner.Gate.AdmitPeer(r.Context(), provisioner.ProtocolPuppet, wire.Identity(name), serial)
	if err != nil {
		return err
	}
	r.node = node
	if next := node.Next; next != nil && next.Serial == serial {
		err := s.cfg.Provisioner.Applied(r.Context(), &wire.Applied{
			ID:       wire.NewID(),
			Identity: name,
			Serial:   serial,
			Digest:   next.Digest,
		}, r.source())
		if err != nil { // the next request confirms it
			s.cfg.Log.WarnContext(r.Context(), "certificate not confirmed", "node", name, "err", err)
		}
	}
	return nil
}

// peer returns the role and the name in the caller's certificate.
func (s *Server) peer(r *request) (wire.Role, string, error) {
	shown := r.TLS.PeerCertificates
	if len(shown) == 0 {
		return "", "", errNoCertificate
	}
	return s.cfg.Provisioner.Config().Authority.Verify(shown[0], shown[1:], s.cfg.Now())
}

// isOperator reports whether the caller of a route for anyone is an operator. A node's certificate is no failed login.
func (s *Server) isOperator(r *request) bool {
	role, _, _ := s.peer(r)
	shown := role == wire.RoleOperator || r.Header.Get(tokenHeader) != ""
	return shown && s.admitOperator(r, trust.RoleViewer) == nil
}

func (s *Server) admitOperator(r *request, role trust.OperatorRole) error {
	shown := r.TLS.PeerCertificates
	var l *login.Login
	err := errNoCertificate
	if token := strings.TrimSpace(r.Header.Get(tokenHeader)); token != "" {
		l, err = s.cfg.Login.Token(r.Context(), token, r.RemoteAddr)
	} else if len(shown) > 0 {
		l, err = s.cfg.Login.Certificate(r.Context(), shown[0], shown[1:], r.RemoteAddr)
	}
	if err != nil {
		return err
	}
	if !l.Role.Covers(role) {
		return fmt.Errorf("%w: %s has the role %s, want %s", errForbidden, l.By(), l.Role, role)
	}
	if l.Sites != nil {
		return fmt.Errorf("%w: %s is limited to sites; use `muster`", errForbidden, l.By())
	}
	r.operator = l
	return nil
}

// tokenHeader has an operator's signed token, as `puppetserver ca` sends the text of its token file.
const tokenHeader = "X-Authentication"
