package puppet

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// lists returns the CRLs of the whole chain: an agent refuses a server if one is missing. If the issuing authority has
// signed none yet, changed is zero.
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
		_ = s.cfg.Provisioner.Reject(r.Context(), events.Cut(r.name, wire.MaxIdentityBytes), code, err, r.source())
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
		return nil, wire.CodeCSRIdentity, badRequest(fmt.Sprintf("Instance name %q does not match requested key %q",
			csr.CommonName, r.name))
	case err != nil && strings.ToLower(r.name) != r.name:
		return nil, wire.CodeIdentityInvalid, badRequest("Certificate names must be lower case.")
	case err != nil:
		return nil, wire.CodeIdentityInvalid, badRequest("Subject hostname format is invalid")
	}
	source := r.source()
	source.Edge = &provisioner.Edge{Key: csr, TTL: r.ttl()}
	return &verdict{
		identity: id,
		request: wire.EnrollRequest{
			Identity: r.name,
			Token:    wire.Secret(csr.Challenge),
			CSR:      block.Bytes,
			Agent:    r.agent(),
		},
		source: source,
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
	source := r.source()
	source.Edge = &provisioner.Edge{Key: key, Session: true, TTL: r.ttl()}
	enrolled, err := s.cfg.Provisioner.Renew(r.Context(),
		&wire.RenewRequest{ID: wire.NewID(), Identity: string(r.node.Identity), Agent: r.agent()}, source)
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

const (
	// maxVerdicts bounds the remembered requests: 16 KiB each at most.
	maxVerdicts = 2048

	// verdictKept is how long another connection of the agent's address gets the verdict.
	verdictKept = 10 * time.Minute

	// judgedAgain is the shortest time between two judgments of a request that was refused.
	judgedAgain = 2 * time.Second
)

// A verdict is the answer to a certificate request. Agents ask for it with a request of its own.
type verdict struct {
	identity wire.Identity
	request  wire.EnrollRequest
	source   provisioner.Source

	mu      sync.Mutex
	at      time.Time            // guarded by mu
	serial  string               // guarded by mu: empty if refused
	leaf    []byte               // guarded by mu: PEM
	refusal *provisioner.Refusal // guarded by mu: nil if not refused
}

// An asker is an agent's address and a name.
type asker struct {
	address string
	name    wire.Identity
}

type connectionKey struct{}

// withConnection lets a connection remember its last verdict, so that two agents behind one address do not see each
// other's.
func withConnection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, new(atomic.Pointer[verdict]))
}

func ofConnection(ctx context.Context) *atomic.Pointer[verdict] {
	return ctx.Value(connectionKey{}).(*atomic.Pointer[verdict]) //nolint:forcetypeassert // set for every connection
}

// remember keeps a verdict for the connection and for the address.
func (s *Server) remember(ctx context.Context, v *verdict) {
	ofConnection(ctx).Store(v)
	s.verdicts.Put(asker{v.source.Address, v.identity}, v)
}

// recall returns the verdict about the request of this connection, else of its address, else nil.
func (s *Server) recall(ctx context.Context, address string, name wire.Identity) *verdict {
	if last := ofConnection(ctx).Load(); last != nil && last.identity == name {
		return last
	}
	v, _ := s.verdicts.Get(asker{address, name})
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.cfg.Now().Sub(v.at).Abs() >= verdictKept {
		return nil
	}
	return v
}

// judge asks the provisioner. The caller holds v.mu or is the only one that knows v.
func (s *Server) judge(ctx context.Context, v *verdict) {
	v.request.ID = wire.NewID()
	enrolled, err := s.cfg.Provisioner.Enroll(ctx, &v.request, v.source)
	v.at, v.serial, v.leaf, v.refusal = s.cfg.Now(), "", nil, nil
	if err != nil {
		v.refusal = provisioner.RefusalOf(err, wire.CodeUnavailable)
		return
	}
	v.serial, v.leaf = enrolled.Serial, leafOf(enrolled.Certificate)
}

// current returns the certificate in PEM, or the refusal. A refused request is judged again, since its cause may have
// ended. A certificate is looked up, since it may have been revoked.
func (s *Server) current(ctx context.Context, v *verdict, atOnce bool) (leaf []byte, refusal *provisioner.Refusal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.refusal == nil {
		_, err := s.cfg.Provisioner.Gate.AdmitPeer(ctx, provisioner.ProtocolPuppet, v.identity, v.serial)
		if err == nil {
			return v.leaf, nil
		}
		v.serial, v.leaf, v.refusal = "", nil, provisioner.RefusalOf(err, wire.CodeUnavailable)
	}
	if atOnce || s.cfg.Now().Sub(v.at).Abs() >= judgedAgain {
		s.judge(ctx, v)
	}
	return v.leaf, v.refusal
}
