package puppet

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

const (
	authority    = "/puppet-ca/v1/"
	certificates = authority + "certificate/"
)

const (
	maxCSRBody = 16 << 10

	// longTTL is for agents before 8, which never renew. The authority's default is for the rest.
	longTTL = 5 * 365 * 24 * time.Hour

	// clockSkew is how far an agent's clock may be ahead when it says since when it has a list.
	clockSkew = 24 * time.Hour
)

// authorityRoutes are the calls below /puppet-ca/v1.
func (s *Server) authorityRoutes() []route {
	return []route{
		{http.MethodGet, certificates, anyone, 0, s.getCertificate},
		{http.MethodGet, authority + "certificate_revocation_list/", anyone, 0, s.getCRLs},
		{http.MethodPut, authority + "certificate_request/", anyone, maxCSRBody, s.putRequest},
		{http.MethodGet, authority + "certificate_request/", anyone, 0, func(w http.ResponseWriter, r *request) {
			text(w, http.StatusNotFound, "Could not find certificate_request "+r.name)
		}},
		{http.MethodPost, authority + "certificate_renewal", anyNode, maxCSRBody, s.renew},
	}
}

// since answers with the text, or with 304 if the agent has it.
func since(w http.ResponseWriter, r *request, changed time.Time, body string) {
	if at, err := http.ParseTime(r.Header.Get("If-Modified-Since")); err == nil && at.After(changed.Add(clockSkew)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text(w, http.StatusOK, body)
}

// lists returns the CRLs of the whole chain: an agent refuses a server if one is missing. Changed is zero if none of the
// issuing authority is signed yet.
func (s *Server) lists() (text []byte, changed time.Time) {
	for _, l := range s.cfg.Provisioner.PuppetCRLs().All() {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: l.DER})...)
		if l.ThisUpdate.After(changed) {
			changed = l.ThisUpdate
		}
	}
	return append(text, s.cfg.RootCRL...), changed
}

func (s *Server) getCRLs(w http.ResponseWriter, r *request) {
	lists, changed := s.lists()
	if changed.IsZero() {
		busy(w)
		return
	}
	since(w, r, changed, string(lists))
}

// putRequest answers every well-formed request alike: a stranger learns nothing. GET certificate has the verdict.
func (s *Server) putRequest(w http.ResponseWriter, r *request) {
	v, code, err := s.readRequest(r)
	if err != nil {
		s.cfg.Provisioner.Reject(r.Context(), events.Cut(r.name, wire.MaxIdentityBytes), code, err, r.source())
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	s.judge(r.Context(), v)
	s.remember(r.Context(), v)
	text(w, http.StatusOK, "")
}

// readRequest returns an error that the agent's user may see.
func (s *Server) readRequest(r *request) (*verdict, wire.Code, error) {
	block, rest := pem.Decode(r.body)
	if block == nil || !strings.HasSuffix(block.Type, "CERTIFICATE REQUEST") || strings.TrimSpace(string(rest)) != "" {
		return nil, wire.CodeCSRInvalid, fmt.Errorf("%w: want one in PEM, and nothing else", ca.ErrCSR)
	}
	csr, err := ca.ParseCSR(block.Bytes)
	if err != nil {
		return nil, wire.CodeCSRInvalid, err
	}
	id, err := wire.ParseIdentity(r.name)
	switch {
	case csr.CommonName != r.name:
		return nil, wire.CodeCSRIdentity, fmt.Errorf("Instance name %q does not match requested key %q",
			csr.CommonName, r.name)
	case err != nil && strings.ToLower(r.name) != r.name:
		return nil, wire.CodeIdentityInvalid, errors.New("Certificate names must be lower case.")
	case err != nil:
		return nil, wire.CodeIdentityInvalid, errors.New("Subject hostname format is invalid")
	}
	return &verdict{
		identity: id,
		request: wire.EnrollRequest{
			Identity: r.name,
			Token:    wire.Secret(csr.Challenge),
			CSR:      block.Bytes,
			Agent:    r.agent(),
		},
		edge:   &provisioner.Edge{Key: csr, TTL: r.ttl()},
		source: r.source(),
	}, "", nil
}

// getCertificate answers only 200 and 404: agents of 7.x do not survive another answer.
func (s *Server) getCertificate(w http.ResponseWriter, r *request) {
	if r.name == "ca" {
		since(w, r, s.started, string(s.cfg.Bundle))
		return
	}
	id, err := wire.ParseIdentity(r.name)
	if err != nil {
		notFound(w, r.name)
		return
	}
	if len(r.TLS.PeerCertificates) > 0 && s.admitNode(r) == nil && r.node.Identity == id {
		text(w, http.StatusOK, newest(r.node, ca.Serial(r.TLS.PeerCertificates[0])))
		return
	}
	v := s.recall(r.Context(), r.address, id)
	if v == nil {
		notFound(w, r.name)
		return
	}
	leaf, refusal := s.current(r.Context(), v, s.isOperator(r))
	switch {
	case leaf != nil:
		text(w, http.StatusOK, string(leaf))
	case refusal.Proven:
		text(w, http.StatusNotFound, reason(refusal))
	default:
		notFound(w, r.name)
	}
}

func notFound(w http.ResponseWriter, name string) {
	text(w, http.StatusNotFound, "Could not find certificate "+name)
}

// newest returns the newest certificate for the key of the one with this serial, in PEM.
func newest(r *provisioner.Record, serial string) string {
	shown := r.Current
	if shown == nil || shown.Serial != serial {
		shown = r.Next
	}
	if r.Next != nil && r.Next.KeyHash == shown.KeyHash {
		shown = r.Next
	}
	return string(encodeLeaf(shown.DER))
}

// renew issues the next certificate for the same key. The agent goes on with its run after any refusal.
func (s *Server) renew(w http.ResponseWriter, r *request) {
	key, err := ca.KeyRequest(r.TLS.PeerCertificates[0].PublicKey)
	if err != nil {
		text(w, http.StatusForbidden, err.Error())
		return
	}
	enrolled, err := s.cfg.Provisioner.RenewOver(r.Context(),
		&provisioner.Edge{Key: key, Session: true, TTL: r.ttl()},
		&wire.RenewRequest{ID: wire.NewID(), Identity: string(r.node.Identity), Agent: r.agent()}, r.source())
	if err != nil {
		refuse(w, err)
		return
	}
	text(w, http.StatusOK, string(leafOf(enrolled.Certificate)))
}

// leafOf returns the first certificate of a chain in PEM.
func leafOf(chain string) []byte {
	block, _ := pem.Decode([]byte(chain))
	if block == nil {
		return nil // never: the provisioner has made it
	}
	return encodeLeaf(block.Bytes)
}

func encodeLeaf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// version returns the version that the agent claims, or "".
func (r *request) version() string {
	v := r.Header.Get("X-Puppet-Version")
	if v == "" {
		program, _, _ := strings.Cut(r.UserAgent(), " ")
		v, _ = strings.CutPrefix(program, "Puppet/")
	}
	if len(v) > 32 || strings.Trim(v, "0123456789abcdefghijklmnopqrstuvwxyz.-") != "" {
		return ""
	}
	return v
}

func (r *request) agent() string { return strings.TrimSpace("puppet " + r.version()) }

// ttl returns the life of the agent's certificate, 0 for the authority's default.
func (r *request) ttl() time.Duration {
	major, _, _ := strings.Cut(r.version(), ".")
	if n, err := strconv.Atoi(major); err == nil && n > 0 && n < 8 {
		return longTTL
	}
	return 0
}

func (r *request) source() provisioner.Source {
	source := provisioner.Source{Address: r.address, Protocol: provisioner.ProtocolPuppet}
	if r.node != nil {
		source.Node = r.node.Identity
	}
	return source
}
