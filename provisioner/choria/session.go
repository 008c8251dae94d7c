package choria

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

const (
	// startWait is for the event of a server that starts. After a reconnect there is none.
	startWait = time.Second

	// firstTimeout is for a server that is not subscribed yet, or has ended.
	firstTimeout = 5 * time.Second

	// restartTries: the answer may be lost.
	restartTries = 3
)

// A session is one connection of a server.
type session struct {
	*Gateway

	node    wire.Identity
	token   *jwt.Verified
	text    wire.Secret
	user    string
	source  provisioner.Source
	version Version
	until   time.Time
	started chan struct{} // capacity 1
	fresh   bool          // its process has started, and was not asked for a key
	server  string        // guarded by mu: name of the broker

	lease *provisioner.Lease
	at    trust.Revision
}

// run repeats the exchange until the server is provisioned or its connection ends.
func (s *session) run(ctx context.Context) {
	defer s.forget(s)
	ctx, cancel := context.WithTimeout(ctx, s.until.Sub(s.cfg.Now()))
	defer cancel()
	select {
	case <-s.started:
		s.fresh = true
	case <-time.After(startWait):
	case <-ctx.Done():
		return
	}
	for s.cfg.Provisioner.Reprovisioned(s.node) && !s.settled() {
		if !span.Sleep(ctx, time.Second) {
			return
		}
	}
	for {
		for !s.share.Acquire(s.source.Key(), 1) {
			if !span.Sleep(ctx, shareWait) {
				return
			}
		}
		again := s.attempt(ctx)
		s.share.Release(s.source.Key(), 1)
		if again == 0 || !span.Sleep(ctx, again) {
			return
		}
	}
}

// attempt returns when to try again on the same connection, or 0.
func (s *session) attempt(ctx context.Context) (again time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.ErrorContext(ctx, "exchange with a Choria server panicked", "node", s.node, "err", fmt.Sprint(r))
		}
	}()
	err := s.exchange(ctx)
	var refused *provisioner.Refusal
	switch {
	case err == nil || ctx.Err() != nil:
		return 0
	case errors.Is(err, trust.ErrConflict): // another connection has the name now
		return 0
	case errors.Is(err, errSilent) && s.ended(ctx):
		return 0
	case errors.As(err, &refused): // reported already
		if refused.Code == wire.CodeShutdown {
			if err := s.provision(ctx, "shutdown", object{}, nil); err != nil {
				_ = s.report(ctx, err)
			}
			return 0
		}
		return time.Duration(refused.Message().RetryAfter) * time.Millisecond
	}
	return time.Duration(s.report(ctx, err).Message().RetryAfter) * time.Millisecond
}

// ended reports whether the connection is known to be closed.
func (s *session) ended(ctx context.Context) bool {
	open, err := s.cfg.Connected(ctx, s.user)
	return err == nil && !open
}

// report makes what went wrong with the server an event of the node.
func (s *session) report(ctx context.Context, err error) *provisioner.Refusal {
	code := wire.CodeUnavailable
	switch {
	case errors.Is(err, errSilent):
		code = wire.CodeNodeSilent
	case errors.Is(err, errAction):
		code = wire.CodeNodeRefused
	case errors.Is(err, ca.ErrCSR), errors.Is(err, ca.ErrKey):
		code = wire.CodeCSRInvalid
	}
	return s.cfg.Provisioner.Reject(ctx, string(s.node), code, err, s.source)
}

// exchange provisions the server. Each step can be repeated: the key is asked for once and kept in the lease, the same
// key gets the same certificate, and the server takes the same configuration again.
func (s *session) exchange(ctx context.Context) error {
	inventory, err := s.inventory(ctx)
	if err != nil {
		return err
	}
	if finished, err := s.finish(ctx); finished || err != nil {
		return err
	}
	edge, err := s.ensureKey(ctx)
	if err != nil {
		return err
	}
	edge.Inventory = inventory.raw
	request, err := s.request(inventory)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.source.Server, s.source.Edge = s.server, edge
	s.mu.Unlock()
	enrolled, err := s.cfg.Provisioner.Enroll(ctx, request, s.source)
	if err != nil {
		return err
	}
	if err := s.configure(ctx, edge.Key.KeyHash, enrolled); err != nil {
		return err
	}
	if err := s.cfg.Provisioner.Applied(ctx, &wire.Applied{
		ID: request.ID, Identity: string(s.node), Serial: enrolled.Serial, Digest: enrolled.Digest,
	}, s.source); err != nil {
		return err
	}
	return s.restart(ctx, enrolled)
}

// reprovisionWait is how long a server that is provisioned again must be the only one with its name.
const reprovisionWait = 30 * time.Second

func (s *session) settled() bool { return s.cfg.Now().Sub(s.lease.Since) >= reprovisionWait }

// finish restarts a server that was given its configuration before, and reports whether it did. A server that refuses
// has no configuration: it is another machine with this name, or enrolls again. What the lease holds is not for it.
func (s *session) finish(ctx context.Context) (bool, error) {
	if s.lease.Restarted.IsZero() {
		return false, nil
	}
	err := s.provision(ctx, "restart", object{"splay": 1}, nil)
	if !errors.Is(err, errAction) {
		return err == nil, err
	}
	next := *s.lease
	next.CSR, next.Key, next.Restarted, next.Settings = nil, nil, time.Time{}, nil
	return false, s.keep(ctx, next)
}

type inventory struct {
	Facts   json.RawMessage `json:"facts"`
	Version string          `json:"version"`

	raw json.RawMessage
}

func (s *session) inventory(ctx context.Context) (*inventory, error) {
	var raw json.RawMessage
	err := s.do(ctx, "rpcutil", "inventory", object{}, &raw, firstTimeout)
	if errors.Is(err, errSilent) {
		err = s.do(ctx, "rpcutil", "inventory", object{}, &raw, actionTimeout)
	}
	if err != nil {
		return nil, err
	}
	i := &inventory{raw: raw}
	if err := json.Unmarshal(raw, i); err != nil {
		return nil, fmt.Errorf("%w: inventory: %w", errAction, err)
	}
	return i, nil
}

// ensureKey asks the server for a key unless the present one may have a certificate. A key that waits for an approval
// is kept too, for connections from its address, until the server starts again.
func (s *session) ensureKey(ctx context.Context) (*provisioner.Edge, error) {
	edge := &provisioner.Edge{
		Complete: s.complete,
		Settled:  s.settled(),
	}
	if known, err := keyOf(s.lease, edge); err == nil && known != "" {
		live, err := s.cfg.Provisioner.HasKey(ctx, s.node, known)
		if err != nil || live || s.lease.Address == s.source.Address && !s.fresh {
			return edge, err
		}
	}
	next := *s.lease
	next.CSR, next.Key, next.Address = nil, nil, s.source.Address
	var err error
	if s.cfg.Issuer != nil && s.version == V2 {
		next.Key, next.Directory, err = s.newKey(ctx)
	} else {
		next.CSR, next.Directory, err = s.newCSR(ctx)
	}
	if err == nil {
		_, err = keyOf(&next, edge)
	}
	if err != nil {
		return nil, err
	}
	s.fresh = false
	return edge, s.keep(ctx, next)
}

// keep writes the lease. If it fails, another connection or provisioner has it.
func (s *session) keep(ctx context.Context, next provisioner.Lease) error {
	at, err := s.cfg.Leases.PutLease(ctx, &next, s.at)
	if err == nil {
		s.lease, s.at = &next, at
	}
	return err
}

// keyOf fills in the edge and returns the hash of the lease's key, or "".
func keyOf(l *provisioner.Lease, edge *provisioner.Edge) (hash string, err error) {
	edge.Directory = l.Directory
	switch {
	case len(l.Key) > 0:
		edge.Key, err = ca.KeyRequest(ed25519.PublicKey(l.Key))
	case len(l.CSR) > 0:
		edge.Key, err = ca.ParseCSR(l.CSR)
	}
	if err != nil || edge.Key == nil {
		return "", err
	}
	return edge.Key.KeyHash, nil
}

func (s *session) newCSR(ctx context.Context) (der []byte, directory string, err error) {
	var made struct {
		CSR    string `json:"csr"`
		SSLDir string `json:"ssldir"`
	}
	if err := s.provision(ctx, "gencsr", object{"cn": string(s.node)}, &made); err != nil {
		return nil, "", err
	}
	block, rest := pem.Decode([]byte(made.CSR))
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, "", fmt.Errorf("%w: the server sent no single block of PEM", ca.ErrCSR)
	}
	return block.Bytes, made.SSLDir, checkDirectory(made.SSLDir)
}

// newKey has the server prove its new key with a nonce.
func (s *session) newKey(ctx context.Context) (key []byte, directory string, err error) {
	nonce := wire.NewID()
	var made struct {
		PublicKey string `json:"public_key"`
		Signature string `json:"signature"`
		Directory string `json:"directory"`
	}
	if err := s.provision(ctx, "gen25519", object{"nonce": nonce}, &made); err != nil {
		return nil, "", err
	}
	key, err = hex.DecodeString(made.PublicKey)
	signature, signatureErr := hex.DecodeString(made.Signature)
	if err != nil || signatureErr != nil || len(key) != ed25519.PublicKeySize ||
		!ed25519.Verify(key, []byte(nonce), signature) {
		return nil, "", fmt.Errorf("%w: no Ed25519 key with a signature of the nonce", ca.ErrKey)
	}
	return key, made.Directory, checkDirectory(made.Directory)
}

// checkDirectory refuses what cannot be part of a setting.
func checkDirectory(path string) error {
	if path == "" || len(path) > 500 || wire.CheckLine(path) != nil {
		return fmt.Errorf("%w: %.80q is no directory for its files", errAction, path)
	}
	return nil
}

// request is checked as a request of muster's agents is.
func (s *session) request(i *inventory) (*wire.EnrollRequest, error) {
	r := &wire.EnrollRequest{
		ID:       wire.NewID(),
		Identity: string(s.node),
		Token:    s.text,
		CSR:      s.lease.CSR,
		Facts:    i.Facts,
		Agent:    "choria " + i.Version,
		Boot:     s.user[strings.LastIndexByte(s.user, '/')+1:],
	}
	if len(r.Facts) > wire.MaxFactsBytes {
		r.FactsError = fmt.Sprintf("facts of %d bytes, limit %d", len(r.Facts), wire.MaxFactsBytes)
		r.Facts = nil
	}
	b, err := wire.Encode(r)
	if err == nil {
		r, err = wire.DecodeEnroll(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAction, err)
	}
	return r, nil
}

// configure sends the certificate and the configuration to the server with the key.
func (s *session) configure(ctx context.Context, keyHash string, e *wire.Enrolled) error {
	config, err := json.Marshal(e.Configuration)
	if err != nil {
		return err
	}
	data := object{
		"config":          string(config),
		"ssldir":          s.sslDirectory(),
		"action_policies": named(e.ActionPolicies, ".policy"),
		"opa_policies":    named(e.OPAPolicies, ".rego"),
	}
	leaf, issuing, err := split(e.Certificate)
	if err != nil {
		return err
	}
	if hash, err := ca.KeyHash(leaf.PublicKey); err != nil || hash != keyHash {
		return fmt.Errorf("certificate %s is for another key than the server's", e.Serial)
	}
	authorities := e.CA + issuing + s.cfg.BrokerCA
	data["ca"], data["certificate"] = authorities, e.Certificate
	if len(s.lease.Key) > 0 {
		data["certificate"] = authorities // there is no member for authorities alone
		data["server_jwt"], err = s.cfg.Issuer.SignServer(jwt.Server{
			Identity:    string(s.node),
			PublicKey:   s.lease.Key,
			Collectives: collectivesIn(e.Configuration),
			Issued:      s.cfg.Now(),
			Expires:     leaf.NotAfter,
		})
		if err != nil {
			return err
		}
	}
	return s.provision(ctx, "configure", data, nil)
}

// split returns the first certificate of a chain in PEM, and the rest as text.
func split(chain string) (*x509.Certificate, string, error) {
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		return nil, "", errors.New("the certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	return leaf, string(rest), err
}

func named(policies map[string]string, suffix string) map[string]string {
	files := make(map[string]string, len(policies))
	for name, text := range policies {
		files[name+suffix] = text
	}
	return files
}

// restart is written to the lease first: a server that does not come back is noticed even after a crash.
func (s *session) restart(ctx context.Context, e *wire.Enrolled) error {
	next := *s.lease
	next.Restarted, next.Settings = s.cfg.Now(), hashes(e.Configuration)
	if err := s.keep(ctx, next); err != nil {
		return err
	}
	var err error
	for range restartTries {
		if err = s.provision(ctx, "restart", object{"splay": 1}, nil); !errors.Is(err, errSilent) {
			break
		}
	}
	if errors.Is(err, errAction) { // as with settings that it cannot parse: the next attempt configures it again
		next.Restarted, next.Settings = time.Time{}, nil
		return errors.Join(err, s.keep(ctx, next))
	}
	return err
}
