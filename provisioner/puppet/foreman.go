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
	"log/slog"
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

// Foreman returns the handler of /puppet/ca and the paths below it on the HTTPS API: the part of Foreman's smart proxy
// for the authority of Puppet agents. It admits operators of role foreman by their certificate on record, and each only
// to nodes of its names.
func (s *Server) Foreman() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json") // also of texts and empty answers
		r.Body = http.MaxBytesReader(w, r.Body, maxForeman)
		ctx, end := provisioner.Finishing(r.Context())
		defer end()
		f := &foreman{Server: s, w: w, r: r, path: strings.TrimPrefix(r.URL.EscapedPath(), foremanBase)}
		by, level := "", slog.LevelDebug // strangers cause these
		err := f.admit(ctx)
		if err == nil {
			by, level = f.login.By(), slog.LevelInfo
			err = f.serve(ctx)
		}
		if err == nil {
			return
		}
		s.cfg.Log.Log(ctx, level, "request of Foreman failed", "subject", fmt.Sprintf("%.20s %.300s", r.Method, f.path),
			"by", by, "source", r.RemoteAddr, "err", err)
		status := http.StatusNotAcceptable
		if e, ok := errors.AsType[*fault](err); ok {
			status = e.status
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, err.Error())
	})
}

// A foreman is one request of Foreman. Errors of its calls are 406 unless they are a *fault.
type foreman struct {
	*Server

	w     http.ResponseWriter
	r     *http.Request
	path  string       // below foremanBase
	login *login.Login // set by admit
}

// admit identifies the caller by the record of its certificate. A token is no credential here.
func (f *foreman) admit(ctx context.Context) error {
	if f.r.TLS == nil || len(f.r.TLS.PeerCertificates) == 0 { // nil: over the control socket
		return newFault(http.StatusForbidden, "No client SSL certificate supplied")
	}
	shown := f.r.TLS.PeerCertificates
	l, err := f.cfg.Login.Certificate(ctx, shown[0], shown[1:], f.r.RemoteAddr)
	switch {
	case errors.Is(err, login.ErrLimited):
		return newFault(http.StatusTooManyRequests, err.Error())
	case err != nil && !errors.Is(err, login.ErrLogin):
		return newFault(http.StatusServiceUnavailable, "try again later")
	case err != nil, l.Role != trust.RoleForeman:
		return newFault(http.StatusForbidden, fmt.Sprintf("Untrusted client attempted to access %.200s. `muster "+
			"operator add --role foreman` makes a certificate that is trusted", f.path))
	}
	f.login = l
	return nil
}

func (f *foreman) serve(ctx context.Context) error {
	path := strings.TrimPrefix(f.path, "/")
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
	return newFault(http.StatusNotFound, "Requested url was not found")
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
		return newFault(http.StatusForbidden, fmt.Sprintf("%s may not manage %s: it is none of its --names",
			f.login.By(), id))
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

var errNotSigned = newFault(http.StatusNotFound, "the one-time token does not admit this certificate request")

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
	all := make(map[string]map[string]any, len(statuses)+1)
	add := func(state string, c *certificateStatus) {
		all[c.Name] = map[string]any{
			"state":       state,
			"fingerprint": c.Fingerprint,
			"serial":      c.SerialNumber,
			"not_before":  c.NotBefore,
			"not_after":   c.NotAfter,
		}
	}
	now := f.cfg.Now().UTC().Format(puppetTime)
	for i := range statuses {
		c := &statuses[i]
		switch _, certified := all[c.Name]; {
		case !f.may(wire.Identity(c.Name)):
		case c.State == stateRequested && !certified:
			add("pending", c)
			all[c.Name]["not_before"], all[c.Name]["not_after"] = nil, nil
		case c.State == stateSigned && now < c.NotAfter:
			add("valid", c)
		case c.State != stateRequested:
			add("revoked", c)
		}
	}
	sum := sha256.Sum256(authority.Raw)
	add("valid", &certificateStatus{
		Name:         authority.Subject.CommonName,
		Fingerprint:  colons(sum[:]),
		NotBefore:    authority.NotBefore.UTC().Format(puppetTime),
		NotAfter:     authority.NotAfter.UTC().Format(puppetTime),
		SerialNumber: authority.SerialNumber,
	})
	return f.json(all)
}

func (f *foreman) json(answer any) error {
	b, err := json.Marshal(answer)
	if err == nil {
		_, _ = f.w.Write(b)
	}
	return err
}
