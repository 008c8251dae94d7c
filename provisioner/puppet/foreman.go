package puppet

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

const (
	foremanBase = "/puppet/ca"
	maxForeman  = 16 << 10 // bytes of a body
)

// Texts of Foreman's smart proxy.
const (
	noCertificate = "No client SSL certificate supplied"
	noSuchURL     = "Requested url was not found"
)

// Foreman returns the handler of /puppet/ca and the paths below it on the HTTPS API: the part of Foreman's smart proxy
// for the authority of Puppet agents. It admits operators of role foreman by their certificate on record, and each only
// to nodes of its names. Names in paths are those of nodes; "autosign" and "validate" are never names.
func (s *Server) Foreman() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json") // also of texts and empty answers
		l, err := s.foreman(r)
		if err != nil {
			s.refuseForeman(w, r, err)
			return
		}
		finishing, end := provisioner.Finishing(r.Context())
		defer end()
		r.Body = http.MaxBytesReader(w, r.Body, maxForeman)
		f := &foreman{Server: s, login: l, w: w, r: r}
		path := strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), foremanBase), "/")
		if err = f.serve(finishing, path); err == nil {
			return
		}
		s.cfg.Log.InfoContext(finishing, "request of Foreman failed", "subject", fmt.Sprintf("%.20s %.300s", r.Method,
			r.URL.Path), "by", l.By(), "err", err)
		status := http.StatusNotAcceptable
		if e, ok := errors.AsType[*orderError](err); ok {
			status = e.status
		}
		foremanError(w, status, err.Error())
	})
}

func foremanError(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) //nolint:gosec // not HTML by its type, and browsers must not guess
}

var errNotForeman = errors.New("not an operator of role foreman")

// foreman returns the caller. A token is no credential here, and names in certificates count only by the record of the
// certificate.
func (s *Server) foreman(r *http.Request) (*login.Login, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errForbidden
	}
	shown := r.TLS.PeerCertificates
	l, err := s.cfg.Login.Certificate(r.Context(), shown[0], shown[1:], r.RemoteAddr)
	if err == nil && l.Role != trust.RoleForeman {
		err = fmt.Errorf("%w: %s has the role %s", errNotForeman, l.By(), l.Role)
	}
	return l, err
}

func (s *Server) refuseForeman(w http.ResponseWriter, r *http.Request, err error) {
	status, said := http.StatusServiceUnavailable, "try again later"
	switch {
	case errors.Is(err, errForbidden):
		status, said = http.StatusForbidden, noCertificate
	case errors.Is(err, login.ErrLimited):
		status, said = http.StatusTooManyRequests, login.ErrLimited.Error()
	case errors.Is(err, errNotForeman), errors.Is(err, login.ErrLogin):
		status = http.StatusForbidden
		said = fmt.Sprintf("Untrusted client attempted to access %.200s. `muster operator add --role foreman` makes "+
			"a certificate that is trusted", strings.TrimPrefix(r.URL.Path, foremanBase))
	}
	// At debug level: strangers cause these. The login reports its refusals.
	s.cfg.Log.DebugContext(r.Context(), "request of Foreman refused", "source", r.RemoteAddr, "status", status, "err",
		err)
	foremanError(w, status, said)
}

// A foreman is one request of Foreman.
type foreman struct {
	*Server

	login *login.Login
	w     http.ResponseWriter
	r     *http.Request
}

// serve answers. Errors are 406 unless they are an *orderError.
func (f *foreman) serve(ctx context.Context, path string) error {
	below, name, named := strings.Cut(path, "/")
	if !named && path != "autosign" && path != "validate" {
		below, name = "", path
	}
	switch call := f.r.Method + " " + below; {
	case strings.Contains(name, "/"):
	case call == "GET " && name == "":
		return f.list(ctx)
	case call == "GET autosign" && name == "":
		return f.entries(ctx)
	case call == "POST validate" && name == "":
		return f.validate(ctx)
	case name == "":
	case call == "POST autosign":
		return f.order(ctx, name, f.generate)
	case call == "DELETE autosign":
		return f.order(ctx, name, f.withdraw)
	case call == "POST ":
		return f.order(ctx, name, f.sign)
	case call == "DELETE ":
		return f.order(ctx, name, f.clean)
	}
	return &orderError{http.StatusNotFound, noSuchURL}
}

// order carries out an order about a node that the caller may manage.
func (f *foreman) order(
	ctx context.Context, escaped string, do func(context.Context, wire.Identity) error,
) error {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return err
	}
	id, err := wire.ParseName(name)
	if err == nil {
		err = wire.CheckReserved(id)
	}
	switch {
	case err != nil:
		return err
	case !f.may(id):
		return &orderError{http.StatusForbidden, fmt.Sprintf("%s may not manage %s: it is none of its --names",
			f.login.By(), id)}
	}
	return do(ctx, id)
}

func (f *foreman) may(id wire.Identity) bool {
	return slices.ContainsFunc(f.login.Names, func(p wire.Pattern) bool { return p.Match(id) })
}

func (f *foreman) cause(why string) trust.Cause {
	return trust.Cause{By: f.login.By(), Why: "Foreman: " + why}
}

func (f *foreman) generate(ctx context.Context, id wire.Identity) error {
	ttl := time.Duration(0)
	minutes := f.r.URL.Query().Get("token_ttl")
	if minutes == "" {
		minutes = f.r.PostFormValue("token_ttl")
	}
	if minutes != "" {
		n, err := strconv.Atoi(minutes)
		if err != nil || n < 1 || n > int(operate.MaxOneTimeTTL/time.Minute) {
			return fmt.Errorf("token_ttl: %.40q, want 1 to %d minutes", minutes, operate.MaxOneTimeTTL/time.Minute)
		}
		ttl = time.Duration(n) * time.Minute
	}
	secret, _, err := f.cfg.Orders.Nodes.OneTime(ctx, id, ttl, f.cause("autosign entry"))
	if err != nil {
		return err
	}
	return f.json(map[string]string{"generated_token": secret})
}

func (f *foreman) withdraw(ctx context.Context, id wire.Identity) error {
	return f.cfg.Orders.Nodes.Withdraw(ctx, id, f.cause("autosign entry deleted"))
}

func (f *foreman) sign(ctx context.Context, id wire.Identity) error {
	keys, err := f.waiting(ctx, id)
	if err == nil && len(keys) == 0 {
		err = errors.New("no certificate request is waiting")
	}
	if err == nil {
		err = f.approve(ctx, keys, f.cause("signed"))
	}
	if err != nil {
		return fmt.Errorf("Failed to sign certificate(s) for %s: %w", id, err) //nolint:staticcheck // Foreman's text
	}
	return nil
}

// clean also drops the keys that wait, as Foreman's list shows them.
func (f *foreman) clean(ctx context.Context, id wire.Identity) error {
	cause := f.cause("certificate cleaned")
	err := f.cfg.Orders.Nodes.Clean(ctx, id, cause)
	if err != nil && !errors.Is(err, provisioner.ErrNoRecord) {
		return err
	}
	keys, err := f.waiting(ctx, id)
	if err != nil {
		return err
	}
	return f.forget(ctx, keys, cause)
}

var errNotSigned = &orderError{http.StatusNotFound, "the one-time token does not admit this certificate request"}

// validate reads the body as it is: scripts send a certificate request as a form.
func (f *foreman) validate(ctx context.Context) error {
	body, err := io.ReadAll(f.r.Body)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(body)
	if block == nil {
		return errors.New("the body is no certificate request in PEM")
	}
	csr, err := ca.ParseCSR(block.Bytes)
	if err != nil {
		return err
	}
	id, err := wire.ParseIdentity(csr.CommonName)
	if err != nil || !f.may(id) || csr.Challenge == "" {
		return errNotSigned
	}
	valid, err := f.cfg.Orders.Nodes.Validate(ctx, id, wire.Secret(csr.Challenge), csr.KeyHash,
		f.cause("validated"))
	if err == nil && !valid {
		err = errNotSigned
	}
	return err
}

func (f *foreman) entries(ctx context.Context) error {
	ids, err := f.cfg.Orders.Nodes.OneTimes(ctx)
	if err != nil {
		return err
	}
	ids = append([]wire.Identity{}, ids...) // an empty list is no null
	return f.json(slices.DeleteFunc(ids, func(id wire.Identity) bool { return !f.may(id) }))
}

// A foremanCertificate is a certificate, or a request without dates and serial.
type foremanCertificate struct {
	State       string   `json:"state"`
	Fingerprint string   `json:"fingerprint"`
	Serial      *big.Int `json:"serial"`
	NotBefore   *string  `json:"not_before"`
	NotAfter    *string  `json:"not_after"`
}

// list has the authority too: Foreman shows the end of the oldest valid certificate as the end of the authority.
func (f *foreman) list(ctx context.Context) error {
	statuses, err := f.statuses(ctx, "")
	if err != nil {
		return err
	}
	block, _ := pem.Decode(f.cfg.Bundle)
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(authority.Raw)
	all := make(map[string]foremanCertificate, len(statuses)+1)
	begins, ends := authority.NotBefore.UTC().Format(puppetTime), authority.NotAfter.UTC().Format(puppetTime)
	all[authority.Subject.CommonName] = foremanCertificate{
		State:       "valid",
		Fingerprint: colons(sum[:]),
		Serial:      authority.SerialNumber,
		NotBefore:   &begins,
		NotAfter:    &ends,
	}
	for i := range statuses {
		c := &statuses[i]
		if !f.may(wire.Identity(c.Name)) {
			continue
		}
		shown := foremanCertificate{State: "pending", Fingerprint: c.Fingerprint}
		if c.State != stateRequested {
			shown.State, shown.Serial = "valid", c.SerialNumber
			shown.NotBefore, shown.NotAfter = &c.NotBefore, &c.NotAfter
			ends, err := time.Parse(puppetTime, c.NotAfter)
			if c.State == stateRevoked || err != nil || !f.cfg.Now().Before(ends) {
				shown.State = "revoked"
			}
		} else if _, found := all[c.Name]; found {
			continue // the certificate of the name
		}
		all[c.Name] = shown
	}
	return f.json(all)
}

func (f *foreman) json(answer any) error {
	b, err := json.Marshal(answer)
	if err == nil {
		_, _ = f.w.Write(b)
	}
	return err
}
