package puppet

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// maxOrderBody is enough for the names of a large fleet.
const maxOrderBody = 1 << 20

// statusRoutes are the calls for operators, and those below /status/v1.
func (s *Server) statusRoutes() []route {
	running := func(w http.ResponseWriter, _ *request) { text(w, http.StatusOK, "running") }
	return []route{
		{http.MethodGet, authority + "certificate_statuses/", viewers, 0, s.getStatuses},
		{http.MethodGet, authority + "certificate_status/", viewers, 0, s.getStatus},
		{http.MethodPut, authority + "certificate_status/", operators, maxOrderBody, s.putStatus},
		{http.MethodDelete, authority + "certificate_status/", operators, 0, s.deleteStatus},
		{http.MethodPut, authority + "clean", operators, maxOrderBody, s.clean},
		{http.MethodPost, authority + "sign", operators, maxOrderBody, s.signNamed},
		{http.MethodPost, authority + "sign/all", operators, maxOrderBody, s.signAll},
		{http.MethodGet, authority + "expirations", anyPeer, 0, s.getExpirations},
		{http.MethodGet, "/status/v1/simple", anyone, 0, running},
		{http.MethodGet, "/status/v1/simple/", anyone, 0, running},
		{http.MethodGet, "/status/v1/services", anyone, 0, getServices},
	}
}

func getServices(w http.ResponseWriter, _ *request) {
	writeJSON(w, map[string]any{"ca": map[string]any{
		"service_version":        version,
		"service_status_version": 1,
		"detail_level":           "info",
		"state":                  "running",
		"status":                 struct{}{},
		"active_alerts":          []string{},
	}})
}

// The states of a certificate in Puppet's API.
const (
	stateRequested = "requested"
	stateSigned    = "signed"
	stateRevoked   = "revoked"
)

// A certificateStatus describes a certificate, or a request, which has no dates and no serial.
type certificateStatus struct {
	Name                    string       `json:"name"`
	State                   string       `json:"state"`
	Fingerprint             string       `json:"fingerprint"`
	Fingerprints            fingerprints `json:"fingerprints"`
	DNSAltNames             []string     `json:"dns_alt_names"`
	SubjectAltNames         []string     `json:"subject_alt_names"`
	AuthorizationExtensions struct{}     `json:"authorization_extensions"`
	NotBefore               string       `json:"not_before,omitempty"`
	NotAfter                string       `json:"not_after,omitempty"`
	SerialNumber            *big.Int     `json:"serial_number,omitempty"`
}

type fingerprints struct {
	SHA1    string `json:"SHA1,omitempty"`
	SHA256  string `json:"SHA256"`
	SHA512  string `json:"SHA512,omitempty"`
	Default string `json:"default"`
}

// puppetTime is the layout of times in the API.
const puppetTime = "2006-01-02T15:04:05UTC"

func statusOf(id wire.Identity, state provisioner.State, leaf *provisioner.Leaf) certificateStatus {
	c := certificateStatus{
		Name:         string(id),
		State:        stateSigned,
		Fingerprint:  colons(leaf.SHA256[:]),
		DNSAltNames:  make([]string, 0, len(leaf.DNSNames)),
		NotBefore:    leaf.NotBefore.UTC().Format(puppetTime),
		NotAfter:     leaf.NotAfter.UTC().Format(puppetTime),
		SerialNumber: leaf.Serial,
	}
	c.Fingerprints = fingerprints{colons(leaf.SHA1[:]), c.Fingerprint, colons(leaf.SHA512[:]), c.Fingerprint}
	if state == provisioner.StateRevoked {
		c.State = stateRevoked
	}
	for _, name := range leaf.DNSNames {
		c.DNSAltNames = append(c.DNSAltNames, "DNS:"+name)
	}
	c.SubjectAltNames = c.DNSAltNames
	return c
}

func requestedStatus(w *waiting.Key) certificateStatus {
	sum, _ := hex.DecodeString(w.Fingerprint)
	shown := colons(sum)
	return certificateStatus{
		Name:            string(w.Identity),
		State:           stateRequested,
		Fingerprint:     shown,
		Fingerprints:    fingerprints{SHA256: shown, Default: shown},
		DNSAltNames:     []string{},
		SubjectAltNames: []string{},
	}
}

// colons writes bytes as AB:CD.
func colons(b []byte) string {
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, 3*len(b))
	for i, x := range b {
		if i > 0 {
			text = append(text, ':')
		}
		text = append(text, digits[x>>4], digits[x&15])
	}
	return string(text)
}

// statuses returns the certificates and requests of Puppet agents in one state, or with "" in any, by name.
func (s *Server) statuses(ctx context.Context, state string) ([]certificateStatus, error) {
	list := []certificateStatus{}
	if state != stateRequested {
		nodes := s.cfg.Nodes()
		if nodes == nil {
			return nil, fleet.ErrReading
		}
		if err := nodes.Leaves(ctx, func(id wire.Identity, at provisioner.State, leaf *provisioner.Leaf) {
			if c := statusOf(id, at, leaf); state == "" || state == c.State {
				list = append(list, c)
			}
		}); err != nil {
			return nil, err
		}
	}
	if state == "" || state == stateRequested {
		keys, err := s.waiting(ctx, "")
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			list = append(list, requestedStatus(k))
		}
	}
	slices.SortStableFunc(list, func(a, b certificateStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// waiting returns the keys of Puppet agents that wait for a name, or with "" for any.
func (s *Server) waiting(ctx context.Context, id wire.Identity) ([]*waiting.Key, error) {
	keys, err := s.cfg.Orders.Keys.Waiting(ctx, id)
	return slices.DeleteFunc(keys, func(k *waiting.Key) bool {
		return k.Protocol != string(provisioner.ProtocolPuppet)
	}), err
}

// record returns the record of a Puppet agent that is not retired, or nil.
func (s *Server) record(ctx context.Context, id wire.Identity) (*provisioner.Record, error) {
	r, _, err := s.cfg.Provisioner.Config().Store.Record(ctx, id)
	if r == nil || r.Protocol != provisioner.ProtocolPuppet || r.State == provisioner.StateRetired {
		return nil, err
	}
	return r, err
}

func (s *Server) getStatuses(w http.ResponseWriter, r *request) {
	state := r.URL.Query().Get("state")
	if !slices.Contains([]string{stateRequested, stateSigned, stateRevoked}, state) {
		state = ""
	}
	list, err := s.statuses(r.Context(), state)
	s.answer(w, r, list, err)
}

func (s *Server) getStatus(w http.ResponseWriter, r *request) {
	h, err := s.held(r, r.name, errNotFound)
	if err != nil {
		s.done(w, r, err)
		return
	}
	if h.node != nil {
		if b := h.node.Brief(); b.Leaf != nil {
			s.answer(w, r, statusOf(h.id, b.State, b.Leaf), nil)
			return
		}
	}
	s.answer(w, r, requestedStatus(cmp.Or(h.keys...)), nil)
}

// An orderError is an error with the status and text that clients of the API expect.
type orderError struct {
	status int
	text   string
}

func (e *orderError) Error() string { return e.text }

func badRequest(text string) error { return &orderError{http.StatusBadRequest, text} }

var (
	errNotFound = &orderError{http.StatusNotFound, "Resource not found."}
	errSubject  = &orderError{http.StatusNotFound, "Invalid certificate subject."}
)

// holding is what is known of a name: a record that is not retired, or nil, and keys that wait.
type holding struct {
	id   wire.Identity
	node *provisioner.Record
	keys []*waiting.Key
}

// held returns none as the error if a Puppet agent neither has nor wants the name.
func (s *Server) held(r *request, name string, none error) (h holding, err error) {
	if h.id, err = wire.ParseIdentity(name); err != nil {
		return h, none
	}
	if h.node, err = s.record(r.Context(), h.id); err != nil {
		return h, err
	}
	h.keys, err = s.waiting(r.Context(), h.id)
	if err == nil && h.node == nil && len(h.keys) == 0 {
		err = none
	}
	return h, err
}

// putStatus signs or revokes.
func (s *Server) putStatus(w http.ResponseWriter, r *request) {
	var order struct {
		State string          `json:"desired_state"`
		TTL   json.RawMessage `json:"cert_ttl"`
	}
	err := decode(r, &order)
	switch {
	case err != nil:
	case order.State == "":
		err = badRequest(`Missing required parameter "desired_state"`)
	case len(order.TTL) > 0:
		err = badRequest("cert_ttl: the policy decides how long a certificate is valid")
	case order.State == stateSigned:
		err = s.sign(r, r.name)
	case order.State == stateRevoked:
		err = s.revoke(r, r.name)
	default:
		err = badRequest(fmt.Sprintf("State %s invalid; Must specify desired state of 'signed' or 'revoked' for host "+
			"%s.", order.State, r.name))
	}
	s.done(w, r, err)
}

func (s *Server) deleteStatus(w http.ResponseWriter, r *request) { s.done(w, r, s.remove(r, r.name)) }

// sign approves the key that waits for the name. The agent's next request gets the certificate.
func (s *Server) sign(r *request, name string) error {
	h, err := s.held(r, name, errSubject)
	if err != nil {
		return err
	}
	if len(h.keys) == 0 {
		return &orderError{http.StatusConflict, "Cannot sign certificate for host " + name +
			" without a certificate request"}
	}
	return s.approve(r.Context(), h.keys, r.cause())
}

// approve lets the only one of keys enroll. Of several keys none is chosen.
func (s *Server) approve(ctx context.Context, keys []*waiting.Key, c trust.Cause) error {
	key := keys[0].KeyHash
	if len(keys) > 1 {
		key = ""
	}
	_, err := s.cfg.Orders.Keys.Approve(ctx, operate.Named(keys[0].Identity, key), 0, c)
	return err
}

func (s *Server) forget(ctx context.Context, keys []*waiting.Key, c trust.Cause) error {
	for _, k := range keys {
		_, err := s.cfg.Orders.Keys.Forget(ctx, operate.Named(k.Identity, k.KeyHash), c)
		if err != nil && !errors.Is(err, operate.ErrNotWaiting) {
			return err
		}
	}
	return nil
}

func (s *Server) revoke(r *request, name string) error {
	h, err := s.held(r, name, errSubject)
	switch {
	case err != nil:
		return err
	case h.node == nil:
		return &orderError{http.StatusConflict, "Cannot revoke certificate for host " + name +
			" without a signed certificate"}
	}
	return s.cfg.Orders.Nodes.Revoke(r.Context(), h.id, r.cause())
}

// remove revokes the certificate and forgets requests. The name stays taken until an operator gives it to a key.
func (s *Server) remove(r *request, name string) error {
	h, err := s.held(r, name, errNotFound)
	if err == nil && h.node != nil {
		err = s.cfg.Orders.Nodes.Clean(r.Context(), h.id, r.cause())
	}
	if err != nil {
		return err
	}
	return s.forget(r.Context(), h.keys, r.cause())
}

// names reads the certnames of an order.
func names(r *request, missing string) ([]string, error) {
	var order struct {
		Names []string `json:"certnames"`
		Async bool     `json:"async"`
	}
	err := decode(r, &order)
	switch {
	case err != nil:
	case order.Async:
		err = badRequest("Async mode is not currently supported.")
	case order.Names == nil:
		err = badRequest(missing)
	}
	return order.Names, err
}

func (s *Server) clean(w http.ResponseWriter, r *request) {
	list, err := names(r, "Missing required key: 'certnames'. Please supply the list of certs you want to clean.")
	var missing []string
	for _, name := range list {
		if err != nil {
			break
		}
		if err = s.remove(r, name); errors.Is(err, errNotFound) {
			missing, err = append(missing, fmt.Sprintf("%q", name)), nil
		}
	}
	switch {
	case err != nil:
		s.done(w, r, err)
	case missing != nil:
		text(w, http.StatusOK, fmt.Sprintf("The following certs do not exist and cannot be revoked: [%s]",
			strings.Join(missing, " ")))
	default:
		text(w, http.StatusOK, "Successfully cleaned all certs.")
	}
}

func (s *Server) signNamed(w http.ResponseWriter, r *request) {
	list, err := names(r, `Missing required parameter "certnames"`)
	s.signEach(w, r, list, err)
}

func (s *Server) signAll(w http.ResponseWriter, r *request) {
	keys, err := s.waiting(r.Context(), "")
	var list []string
	for _, k := range keys {
		list = append(list, string(k.Identity))
	}
	slices.Sort(list)
	s.signEach(w, r, slices.Compact(list), err)
}

func (s *Server) signEach(w http.ResponseWriter, r *request, list []string, err error) {
	result := map[string][]string{"signed": {}, "no-csr": {}, "signing-errors": {}}
	for _, name := range list {
		how := "signed"
		if err := s.sign(r, name); err != nil {
			if how = "signing-errors"; isOrderError(err) {
				how = "no-csr"
			}
			s.logFailed(r, err)
		}
		result[how] = append(result[how], name)
	}
	s.answer(w, r, result, err)
}

func isOrderError(err error) bool {
	_, ok := errors.AsType[*orderError](err)
	return ok
}

func (s *Server) logFailed(r *request, err error) {
	s.cfg.Log.InfoContext(r.Context(), "order over Puppet's API failed", "subject", r.subject(), "by", r.operator.By(),
		"err", err)
}

// getExpirations says when the certificates and the lists of the chain end.
func (s *Server) getExpirations(w http.ResponseWriter, r *request) {
	certs, crls := make(map[string]string), make(map[string]string)
	for block, rest := pem.Decode(s.cfg.Bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs[c.Subject.CommonName] = c.NotAfter.UTC().Format(puppetTime)
		}
	}
	ders := [][]byte{}
	for _, l := range s.cfg.Provisioner.PuppetCRLs().All() {
		ders = append(ders, l.DER)
	}
	if block, _ := pem.Decode(s.cfg.RootCRL); block != nil {
		ders = append(ders, block.Bytes)
	}
	for _, der := range ders {
		if l, err := x509.ParseRevocationList(der); err == nil {
			crls[l.Issuer.CommonName] = l.NextUpdate.UTC().Format(puppetTime)
		}
	}
	s.answer(w, r, map[string]any{"ca-certs": certs, "crls": crls}, nil)
}

func (r *request) cause() trust.Cause {
	return trust.Cause{By: r.operator.By(), Why: "over Puppet's API"}
}

// decode reads an order.
func decode(r *request, order any) error {
	if len(r.body) == 0 {
		return badRequest("Empty request body.")
	}
	if json.Unmarshal(r.body, order) != nil {
		return badRequest("Request body is not JSON.")
	}
	return nil
}

// answer answers in JSON, which the client must accept.
func (s *Server) answer(w http.ResponseWriter, r *request, a any, err error) {
	switch {
	case err != nil:
		s.done(w, r, err)
	case !accepts(r.Request, "application/json"):
		text(w, http.StatusNotAcceptable, "No acceptable resource available.")
	default:
		writeJSON(w, a)
	}
}

// done answers to an order.
func (s *Server) done(w http.ResponseWriter, r *request, err error) {
	status := http.StatusInternalServerError
	known, ok := errors.AsType[*orderError](err)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case ok:
		status = known.status
	case errors.Is(err, trust.ErrState):
		status = http.StatusConflict
	case errors.Is(err, operate.ErrNotWaiting), errors.Is(err, provisioner.ErrNoRecord):
		status = http.StatusNotFound
	case errors.Is(err, fleet.ErrReading):
		status = http.StatusServiceUnavailable
	}
	s.logFailed(r, err)
	text(w, status, err.Error())
}

func writeJSON(w http.ResponseWriter, a any) {
	b, err := json.Marshal(a)
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// accepts reports whether the client takes answers of the type.
func accepts(r *http.Request, want string) bool {
	header := strings.Join(r.Header.Values("Accept"), ",")
	return header == "" || slices.ContainsFunc(strings.Split(header, ","), func(one string) bool {
		one, _, _ = strings.Cut(one, ";")
		one = strings.TrimSpace(one)
		return one == want || one == "*/*" || one == "application/*"
	})
}
