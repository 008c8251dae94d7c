package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/inputfile"
	"muster/internal/setup"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/server/trust"
)

// A Puppet says which Puppet authority is measured.
type Puppet struct {
	Enabled bool
	URL     string // of another authority, https://HOST:PORT; empty: [Run] starts a provisioner
	Login   string // file with that authority's certificates, and for lists with an operator's key and certificate
	Runs    bool   // false: agents only get certificates
}

// A PuppetResult has the figures that only a Puppet authority has.
type PuppetResult struct {
	Runs          int     `json:"runs"` // each over a new TLS connection, by an agent that had a run before
	RunsPerMinute float64 `json:"runs_per_minute"`
	RunP50        float64 `json:"run_p50_ms"`
	RunP99        float64 `json:"run_p99_ms"`
	RunCPU        float64 `json:"serving_cpu_us_per_run"` // 0: unknown
	Statuses      int     `json:"statuses"`               // certificates in the list
	ListP50       float64 `json:"list_p50_ms"`
	ListMin       float64 `json:"list_min_ms"`
	ListMax       float64 `json:"list_max_ms"`
}

const (
	puppetLists    = 5        // how often the list of statuses is fetched
	puppetFacts    = 10 << 10 // of a run
	puppetStatuses = "/puppet-ca/v1/certificate_statuses/any_key?state=signed"
)

// report is what an agent 7.23 reported after it wrote one file. It says HOST for its name.
//
//go:embed report.json
var report []byte

// A puppetAuthority is what agents know of the authority.
type puppetAuthority struct {
	credential *httpapi.Credential // the operator's
	url        string
	secure     *tls.Config
	issuing    *x509.CertPool
	bundle     []*x509.Certificate // agents send it after their own certificate
	kept       *http.Client        // with connections that agents use in turns
	report     string
}

// newPuppetAuthority fetches the authority's certificates.
func newPuppetAuthority(
	ctx context.Context, address, host string, credential *httpapi.Credential,
) (*puppetAuthority, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, report); err != nil {
		return nil, err
	}
	p := &puppetAuthority{
		credential: credential,
		url:        "https://" + address,
		issuing:    x509.NewCertPool(),
		report:     compact.String(),
	}
	p.secure = unverified(host)
	verifyOnce(p.secure, func(cs tls.ConnectionState) error {
		return verifyChain(cs.PeerCertificates, p.options(host))
	})
	p.kept = p.client(nil, sharedLinks)
	b, err := p.get(ctx, p.kept, "/puppet-ca/v1/certificate/ca")
	if err == nil {
		p.bundle, err = trust.ParseCertificates(string(b))
	}
	if err != nil {
		return nil, fmt.Errorf("the authority's certificates: %w", err)
	}
	p.issuing = poolOf(p.bundle...)
	return p, nil
}

func (p *puppetAuthority) options(name string) x509.VerifyOptions {
	return x509.VerifyOptions{DNSName: name, Roots: p.credential.Roots, Intermediates: p.issuing.Clone()}
}

// client returns a client with this many connections. A nil certificate: without one.
func (p *puppetAuthority) client(certificate *tls.Certificate, conns int) *http.Client {
	secure := p.secure.Clone()
	if certificate != nil {
		secure.Certificates = []tls.Certificate{*certificate}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: secure, MaxConnsPerHost: conns, MaxIdleConnsPerHost: conns},
		Timeout:   replyTimeout,
	}
}

func (p *puppetAuthority) get(ctx context.Context, c *http.Client, path string) ([]byte, error) {
	return p.do(ctx, c, http.MethodGet, path, "", "")
}

// do sends a request and returns the body of the answer. An answer other than 200 is an error, a [refusal] if the agent
// should try again.
func (p *puppetAuthority) do(
	ctx context.Context, c *http.Client, method, path, kind, body string,
) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "Puppet/8.11.0 Ruby/3.1.2-p20 (x86_64-linux)")
	r.Header.Set("X-Puppet-Version", "8.11.0")
	r.Header.Set("Accept", "application/json, text/plain")
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusServiceUnavailable, bytes.HasPrefix(got, []byte(wire.CodeBusy)):
		wait, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return nil, &refusal{Refusal: wire.Refusal{Code: wire.CodeBusy, RetryAfter: int64(wait) * 1000}}
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: %s %s: %s: %.200q", errWrong, method, path, answer.Status, got)
	}
	return got, nil
}

// newPuppetNode returns an agent with its certificate request.
func (f *fleet) newPuppetNode(i int) (*node, error) {
	n := &node{Node: &simnode.Node{Identity: identityOf(f.run, i), Key: f.keys[i%len(f.keys)]}}
	return n, n.makeCSR()
}

// requestCertificate does what an agent does after it has made its key.
func (f *fleet) requestCertificate(ctx context.Context, n *node) error {
	c := f.puppet.kept
	if !f.cfg.Connection.Shared {
		c = f.puppet.client(nil, 1)
		defer c.CloseIdleConnections()
	}
	_, err := f.puppet.do(ctx, c, http.MethodPut, "/puppet-ca/v1/certificate_request/"+n.Identity, "text/plain", n.csr)
	if err != nil && !errors.Is(err, errWrong) { // then too agents ask for the certificate
		return err
	}
	certificate, err := f.puppet.get(ctx, c, "/puppet-ca/v1/certificate/"+n.Identity)
	if err == nil {
		n.offer = &wire.Enrolled{Certificate: string(certificate)}
	}
	return err
}

// certificate checks what the agent got.
func (f *fleet) certificate(n *node) (*tls.Certificate, error) {
	o := f.puppet.options(n.Identity)
	o.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	chain, err := n.verify(o)
	c := &tls.Certificate{PrivateKey: n.Key}
	for _, one := range append(chain, f.puppet.bundle...) {
		c.Certificate = append(c.Certificate, one.Raw)
	}
	return c, err
}

// agentRun does a run, as agents do each half hour.
func (f *fleet) agentRun(ctx context.Context, n *node) error {
	certificate, err := f.certificate(n)
	if err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	c := f.puppet.client(certificate, 1)
	defer c.CloseIdleConnections()
	const list = "&ignore=.svn&ignore=CVS&ignore=.git&ignore=.hg&checksum_type=sha256&environment=production"
	for _, path := range []string{
		"plugins?recurse=false&links=manage&source_permissions=ignore" + list,
		"pluginfacts?recurse=true&max_files=-1&links=follow&source_permissions=use" + list,
		"plugins?recurse=true&max_files=-1&links=follow&source_permissions=ignore" + list,
	} {
		if _, err := f.puppet.get(ctx, c, "/puppet/v3/file_metadatas/"+path); err != nil {
			return err
		}
	}
	at := time.Now().UTC()
	facts := fmt.Sprintf(`{"name":%q,"values":%s,"timestamp":%q,"expiration":%q}`, n.Identity,
		factsOf(n.Identity, cmp.Or(f.cfg.FactsBytes, puppetFacts)), at.Format(time.RFC3339Nano),
		at.Add(30*time.Minute).Format(time.RFC3339Nano))
	catalog, err := f.puppet.do(ctx, c, http.MethodPost, "/puppet/v3/catalog/"+n.Identity+"?environment=production",
		"application/x-www-form-urlencoded",
		"facts_format=application%2Fjson&environment=production&configured_environment=production&"+
			"check_environment=true&job_uuid=&static_catalog=true&checksum_type=sha256.sha384.sha512.sha224.md5&"+
			"transaction_uuid="+wire.NewID()+"&facts="+url.QueryEscape(url.QueryEscape(facts)))
	if err != nil {
		return err
	}
	if !bytes.Contains(catalog, []byte(`"environment":"production"`)) {
		return fmt.Errorf("%w: catalog %.200q", errWrong, catalog)
	}
	_, err = f.puppet.do(ctx, c, http.MethodPut, "/puppet/v3/report/"+n.Identity+"?environment=production",
		"application/json", strings.ReplaceAll(f.puppet.report, "HOST", n.Identity))
	return err
}

// measurePuppet has the agents of a wave run twice, and measures the second time. Then it lists all certificates.
func (s *serving) measurePuppet(ctx context.Context, f *fleet, result *Result) error {
	f.puppet.kept.CloseIdleConnections()
	p := &PuppetResult{}
	result.Puppet = p
	if f.cfg.Puppet.Runs {
		f.act = f.agentRun
		f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool { return n.offer == nil })
		for range 2 {
			f.count = &counts{failures: &result.failures}
			if err := s.measure(ctx, f); err != nil {
				return err
			}
			result.Provisioned = cmp.Or(result.Provisioned, f.count.enrolled)
		}
		c := f.count
		p.Runs, p.RunsPerMinute = c.enrolled, f.rate(c.enrolled)
		p.RunP50, p.RunP99 = milliseconds(c.latencies, 0.50), milliseconds(c.latencies, 0.99)
		p.RunCPU = perNode(f.after.cpu-f.before.cpu, c.enrolled)
	}
	if f.puppet.credential.Certificate == nil {
		return nil
	}
	return p.list(ctx, f.puppet, result.Enrolled)
}

// list fetches the statuses of all certificates, each time over a new connection.
func (p *PuppetResult) list(ctx context.Context, a *puppetAuthority, agents int) error {
	took := make([]time.Duration, puppetLists)
	for i := range took {
		c := a.client(a.credential.Certificate, 1)
		start := time.Now()
		b, err := a.get(ctx, c, puppetStatuses)
		took[i] = time.Since(start)
		c.CloseIdleConnections()
		var listed []struct{ Name, State string }
		if err := errors.Join(err, json.Unmarshal(b, &listed)); err != nil {
			return fmt.Errorf("list statuses: %w", err)
		}
		if p.Statuses = len(listed); p.Statuses < agents {
			return fmt.Errorf("%d statuses of %d agents", p.Statuses, agents)
		}
	}
	slices.Sort(took)
	p.ListMin, p.ListP50, p.ListMax = milliseconds(took, 0), milliseconds(took, 0.50), milliseconds(took, 1)
	return nil
}

// preparePuppet does what newPuppetNode needs.
func (f *fleet) preparePuppet(ctx context.Context, login, host string) error {
	text, err := inputfile.ReadText(login, inputfile.Typed)
	if err != nil {
		return err
	}
	credential, err := httpapi.ParseCredential(text)
	if err != nil {
		return fmt.Errorf("%s: %w", login, err)
	}
	f.create, f.act = f.newPuppetNode, f.requestCertificate
	f.check = func(n *node) error { _, err := f.certificate(n); return err }
	if f.puppet, err = newPuppetAuthority(ctx, f.address, host, credential); err != nil {
		return err
	}
	return f.makeKeys(ctx)
}

// puppetSection makes the authority of agents, and returns the section of provisioner.yaml for it.
func (s *serving) puppetSection(cfg *Config) (string, error) {
	if !cfg.Puppet.Enabled {
		return "puppet:\n", nil
	}
	made, err := (&setup.Maker{Config: s.config(0)}).Puppet()
	if err != nil {
		return "", err
	}
	address, err := freePort()
	s.puppet = "https://" + address
	return strings.Replace(made.Lines, ":8140", strings.Replace(address, "localhost", "127.0.0.1", 1), 1), err
}

// addOperator makes the operator that lists certificates.
func (s *serving) addOperator(cfg *Config) error {
	s.login = filepath.Join(s.dir, "operator.pem")
	out, err := cfg.Program("operator", "add", "bench", "--role", "viewer", "--certificate", "--out", s.login,
		"--config", s.config(0)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("add an operator: %w: %s", err, out)
	}
	return nil
}
