package puppet

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
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

// services is the status of the authority. Tools that read version sign with the newer calls.
var services = json.RawMessage(`{"ca":{"service_version":"` + version + `","service_status_version":1,` +
	`"detail_level":"info","state":"running","status":{},"active_alerts":[]}}`)

// statusRoutes are the calls for operators, and those below /status/v1.
func (s *Server) statusRoutes() []route {
	get, put, post := http.MethodGet, http.MethodPut, http.MethodPost
	running := s.call(func(*request) (any, error) { return "running", nil })
	return []route{
		{get, authority + "certificate_statuses/", viewers, 0, s.call(s.getStatuses)},
		{get, authority + "certificate_status/", viewers, 0, s.call(s.getStatus)},
		{put, authority + "certificate_status/", operators, maxOrderBody, s.call(s.putStatus)},
		{http.MethodDelete, authority + "certificate_status/", operators, 0, s.call(func(r *request) (any, error) {
			return nil, s.remove(r, r.name)
		})},
		{put, authority + "clean", operators, maxOrderBody, s.call(s.clean)},
		{post, authority + "sign", operators, maxOrderBody, s.call(s.signNamed)},
		{post, authority + "sign/all", operators, maxOrderBody, s.call(s.signAll)},
		{get, "/status/v1/simple", anyone, 0, running},
		{get, "/status/v1/simple/", anyone, 0, running},
		{get, "/status/v1/services", anyone, 0, s.call(func(*request) (any, error) { return services, nil })},
	}
}

func badRequest(text string) error { return newFault(http.StatusBadRequest, text) }

var (
	errNotFound = newFault(http.StatusNotFound, "Resource not found.")
	errSubject  = newFault(http.StatusNotFound, "Invalid certificate subject.")
)

// call serves what a function returns: nothing, a text, or a document for JSON.
func (s *Server) call(do func(*request) (any, error)) func(http.ResponseWriter, *request) {
	return func(w http.ResponseWriter, r *request) {
		a, err := do(r)
		if err != nil {
			s.logFailed(r, err)
			text(w, statusOf(err), err.Error())
			return
		}
		if said, ok := a.(string); ok {
			text(w, http.StatusOK, said)
			return
		}
		if a == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		b, err := json.Marshal(a)
		if err != nil || !accepts(r.Request, typeJSON) {
			text(w, http.StatusNotAcceptable, "No acceptable resource available.")
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(b)
	}
}

func statusOf(err error) int {
	known, ok := errors.AsType[*fault](err)
	switch {
	case ok:
		return known.status
	case errors.Is(err, trust.ErrState):
		return http.StatusConflict
	case errors.Is(err, operate.ErrNotWaiting), errors.Is(err, provisioner.ErrNoRecord):
		return http.StatusNotFound
	case errors.Is(err, fleet.ErrReading):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (s *Server) logFailed(r *request, err error) {
	s.cfg.Log.InfoContext(r.Context(), "call of Puppet's API failed", "subject", r.subject(), "by", r.cause().By,
		"err", err)
}

func (r *request) cause() trust.Cause {
	c := trust.Cause{Why: "over Puppet's API"}
	if r.operator != nil {
		c.By = r.operator.By()
	}
	return c
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

// The states of a certificate in Puppet's API.
const (
	stateRequested = "requested"
	stateSigned    = "signed"
	stateRevoked   = "revoked"
)

// A certificateStatus describes a certificate, or a request, which has no dates and no serial.
type certificateStatus struct {
	Name                    string            `json:"name"`
	State                   string            `json:"state"`
	Fingerprint             string            `json:"fingerprint"`
	Fingerprints            map[string]string `json:"fingerprints"`
	DNSAltNames             []string          `json:"dns_alt_names"`
	SubjectAltNames         []string          `json:"subject_alt_names"`
	AuthorizationExtensions struct{}          `json:"authorization_extensions"`
	NotBefore               string            `json:"not_before,omitempty"`
	NotAfter                string            `json:"not_after,omitempty"`
	SerialNumber            *big.Int          `json:"serial_number,omitempty"`
}

// puppetTime is the layout of times in the API.
const puppetTime = "2006-01-02T15:04:05UTC"

func newStatus(id wire.Identity, state string, sha256 []byte, dns ...string) certificateStatus {
	shown, names := colons(sha256), make([]string, 0, len(dns))
	for _, name := range dns {
		names = append(names, "DNS:"+name)
	}
	return certificateStatus{
		Name:            string(id),
		State:           state,
		Fingerprint:     shown,
		Fingerprints:    map[string]string{"SHA256": shown, "default": shown},
		DNSAltNames:     names,
		SubjectAltNames: names,
	}
}

func certificateOf(id wire.Identity, state provisioner.State, leaf *provisioner.Leaf) certificateStatus {
	c := newStatus(id, stateSigned, leaf.SHA256[:], leaf.DNSNames...)
	if state == provisioner.StateRevoked {
		c.State = stateRevoked
	}
	c.NotBefore, c.NotAfter = leaf.NotBefore.UTC().Format(puppetTime), leaf.NotAfter.UTC().Format(puppetTime)
	c.SerialNumber = leaf.Serial
	return c
}

func requestOf(w *waiting.Key) certificateStatus {
	sum, _ := hex.DecodeString(w.Fingerprint)
	return newStatus(w.Identity, stateRequested, sum)
}

// colons writes bytes as AB:CD.
func colons(b []byte) string {
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, 3*len(b))
	for _, x := range b {
		text = append(text, digits[x>>4], digits[x&15], ':')
	}
	return string(text[:max(len(text), 1)-1])
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
			if state == "" || (state == stateRevoked) == (at == provisioner.StateRevoked) {
				list = append(list, certificateOf(id, at, leaf))
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
			list = append(list, requestOf(k))
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

func (s *Server) getStatuses(r *request) (any, error) {
	state := r.URL.Query().Get("state")
	if !slices.Contains([]string{stateRequested, stateSigned, stateRevoked}, state) {
		state = ""
	}
	return s.statuses(r.Context(), state)
}

func (s *Server) getStatus(r *request) (any, error) {
	h, err := s.held(r, r.name, errNotFound)
	if err != nil {
		return nil, err
	}
	if h.node != nil {
		if b := h.node.Brief(); b.Leaf != nil {
			return certificateOf(h.id, b.State, b.Leaf), nil
		}
	}
	return requestOf(cmp.Or(h.keys...)), nil
}

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
	if h.node, _, err = s.cfg.Provisioner.Config().Store.Record(r.Context(), h.id); err != nil {
		return h, err
	}
	if n := h.node; n != nil && (n.Protocol != provisioner.ProtocolPuppet || n.State == provisioner.StateRetired) {
		h.node = nil
	}
	h.keys, err = s.waiting(r.Context(), h.id)
	if err == nil && h.node == nil && len(h.keys) == 0 {
		err = none
	}
	return h, err
}

// putStatus signs or revokes.
func (s *Server) putStatus(r *request) (any, error) {
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
	return nil, err
}

// sign approves the key that waits for the name. The agent's next request gets the certificate.
func (s *Server) sign(r *request, name string) error {
	h, err := s.held(r, name, errSubject)
	if err != nil {
		return err
	}
	if len(h.keys) == 0 {
		return newFault(http.StatusConflict, "Cannot sign certificate for host "+name+
			" without a certificate request")
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
		return newFault(http.StatusConflict, "Cannot revoke certificate for host "+name+
			" without a signed certificate")
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

func (s *Server) clean(r *request) (any, error) {
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
	if missing != nil {
		return "The following certs do not exist and cannot be revoked: [" + strings.Join(missing, " ") + "]", err
	}
	return "Successfully cleaned all certs.", err
}

func (s *Server) signNamed(r *request) (any, error) {
	list, err := names(r, `Missing required parameter "certnames"`)
	return s.signEach(r, list), err
}

func (s *Server) signAll(r *request) (any, error) {
	keys, err := s.waiting(r.Context(), "")
	var list []string
	for _, k := range keys {
		list = append(list, string(k.Identity))
	}
	slices.Sort(list)
	return s.signEach(r, slices.Compact(list)), err
}

func (s *Server) signEach(r *request, list []string) map[string][]string {
	result := map[string][]string{"signed": {}, "no-csr": {}, "signing-errors": {}}
	for _, name := range list {
		how, err := "signed", s.sign(r, name)
		if err != nil {
			s.logFailed(r, err)
			if how = "signing-errors"; errors.As(err, new(*fault)) {
				how = "no-csr"
			}
		}
		result[how] = append(result[how], name)
	}
	return result
}
