package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"muster/internal/discover"
	"muster/internal/keyfile"
)

// A Status is the outcome of one check.
type Status string

// The outcomes. Warn is about what works and may not for long, or not as
// safely as it could.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// A Finding is the outcome of one check of [Doctor]. Its JSON form is what
// `doctor --json` prints, one object in a list each.
type Finding struct {
	Status Status `json:"status"`
	What   string `json:"what"`             // what was checked: one or two words
	Detail string `json:"detail"`           // what was found
	Remedy string `json:"remedy,omitempty"` // what to do; empty if nothing is to be done
}

// Doctor checks everything that an agent with the configuration cfg needs, in
// the order in which it needs it, and really connects. It leaves nothing on
// disk and may run beside the agent. Nothing is enrolled. The error is about
// cfg alone, or ctx's.
func Doctor(ctx context.Context, cfg Config) ([]Finding, error) {
	cfg, build, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	at, err := findPlaces(cfg.ConfFile, cfg.SSLDir)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	d := &doctor{Server: newServer(cfg, build, at)}
	d.saw(loadClock(at.clock))
	d.loadOrders(ctx)
	d.checkMode()
	d.checkEnrollment()
	d.checkToken()
	d.checkFacts(ctx)
	d.checkFiles()
	d.checkTried()
	d.checkOrder()
	d.checkWritable()
	d.checkCertificate()
	d.checkClock()
	for _, b := range d.checkDNS(ctx) {
		if d.checkTCP(ctx, b) {
			d.checkConnection(ctx, b)
		}
	}
	return d.findings, ctx.Err()
}

type doctor struct {
	*Server
	view     view
	token    *token // nil if there is none
	findings []Finding
}

func (d *doctor) say(status Status, what, remedy, format string, args ...any) {
	detail := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	d.findings = append(d.findings, Finding{Status: status, What: what, Detail: detail, Remedy: remedy})
}

// fail reports err with its remedy, or with the one given.
func (d *doctor) fail(what string, err error, remedy string) {
	d.say(StatusFail, what, cmp.Or(remedyOf(err), remedy), "%v", err)
}

func (d *doctor) checkMode() {
	v, err := d.look()
	if v != nil {
		d.view = *v
		d.say(StatusOK, "identity", "", "%s", v.identity)
	}
	switch {
	case v == nil:
		d.fail("identity", err, "give the machine a host name, or set identity in server.conf")
	case err != nil:
		d.fail("mode", err, "mend server.conf, token or certificate, see below")
	default:
		d.say(StatusOK, "mode", "", "%s: %s", v.mode, v.reason)
	}
	if v != nil && v.damaged && err == nil { // else that was the error
		_, _, damage := readConf(d.at.conf)
		d.say(StatusWarn, "configuration", "mend the file; provisioning puts another one in its place", "%v", oneLine(damage))
	}
}

func (d *doctor) checkToken() {
	const what = "token"
	t, err := readToken(d.tokenFiles(), d.build)
	normal := d.view.mode == ModeNormal
	switch {
	case errors.Is(err, ErrMissing) && normal:
		d.say(StatusOK, what, "", "none, and none is needed in normal mode")
		return
	case err != nil && normal:
		d.say(StatusWarn, what, tokenRemedy(err)+"; it is needed when the node has to enroll again", "%v", err)
		return
	case err != nil:
		d.fail(what, err, tokenRemedy(err))
		return
	}
	d.token = t
	if err := t.usable(); err != nil {
		d.fail(what, err, "")
		return
	}
	if t.limits.CA == "" && !normal {
		d.say(StatusWarn, "authority", "sign the token with --ca", "the token pins none, so this node takes the first that answers")
	}
	d.checkTerms(t)
}

func (d *doctor) checkFiles() {
	const what = "files"
	if exists(d.at.in(markerFile)) {
		d.say(StatusWarn, what, "start the agent, which finishes the work", "%s has a switch that was not finished", d.at.live)
	}
	var missing []string
	for _, name := range []string{keyFile, certificateFile, caFile, confName} {
		if _, err := os.Stat(d.at.in(name)); err != nil {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 4 && d.view.mode != ModeNormal:
		d.say(StatusOK, what, "", "%s holds no set yet", d.at.live)
	case len(missing) > 0 && d.view.mode == ModeProvisioning:
		d.say(StatusOK, what, "", "%s lacks %s, which provisioning brings", d.at.live, strings.Join(missing, ", "))
	case len(missing) > 0 && (len(missing) > 1 || missing[0] != confName || d.view.conf == nil):
		d.say(StatusFail, what, d.enrollAgain(), "%s lacks %s", d.at.live, strings.Join(missing, ", "))
	default:
		d.say(StatusOK, what, "", "%s is complete", d.at.live)
	}
	if fi, err := os.Stat(d.at.in(keyFile)); err == nil && fi.Mode().Perm()&0o077 != 0 {
		d.say(StatusFail, "key", "chmod 0600 "+d.at.in(keyFile), "%s can be read by others (mode %04o)", d.at.in(keyFile), fi.Mode().Perm())
	}
	for _, err := range []error{d.checkMount(), d.checkConfMount()} {
		if err != nil {
			d.fail(what, err, "")
		}
	}
	switch p, err := d.readPending(); {
	case err != nil:
		d.fail("confirmation", err, "start the agent, which asks for its configuration once more")
	case p != nil:
		d.say(StatusWarn, "confirmation", "nothing; the agent sends it when it is connected", "certificate %s is not confirmed yet", p.Serial)
	}
}

// checkTried says where the agent goes besides while no broker of its configuration
// has taken it.
func (d *doctor) checkTried() {
	if d.view.mode == ModeNormal && d.token != nil && exists(d.at.in(untriedFile)) {
		d.say(StatusOK, "configuration", "", "no broker of it has taken this node yet: the agent tries those of its token as well, until one has")
	}
}

// checkOrder says what the node was told and is yet to do.
func (d *doctor) checkOrder() {
	if o := d.orders.Doing; o != nil {
		d.say(StatusWarn, "order", "nothing; the agent does it once it is connected", "the node was told to %s, and has not done it yet", o.Verb)
	}
}

func (d *doctor) checkCertificate() {
	const what = "certificate"
	if !exists(d.at.in(certificateFile)) && d.view.mode != ModeNormal {
		d.say(StatusOK, what, "", "none yet")
		return
	}
	c, err := readCredentials(d.at, d.view.identity, d.nowFor)
	if errors.Is(err, keyfile.ErrExposed) {
		d.say(StatusWarn, what, "close the key first, see above", "not looked at, since others may read the key")
		return
	}
	if err != nil {
		status, remedy := StatusFail, d.enrollAgain()
		switch {
		case errors.Is(err, fs.ErrPermission):
			remedy = "let the agent's user read it: check its owner and mode, or run this check as that user"
		case d.view.mode == ModeProvisioning:
			status = StatusWarn // provisioning replaces it
			if exists(d.at.in(keyFile)) {
				remedy = fmt.Sprintf("nothing, if the name is still free; else an operator lets the node's new key in with `muster node grant %s`", d.view.identity)
			}
		}
		d.say(status, what, remedy, "%v", err)
		return
	}
	end := c.leaf().NotAfter
	left := end.Sub(d.now())
	if left < end.Sub(c.leaf().NotBefore)/5 {
		d.say(StatusWarn, what, "see that the agent runs and reaches a broker", "%s expires %s, soon", c.serial, end.UTC().Format(time.RFC3339))
		return
	}
	d.say(StatusOK, what, "", "%s of spiffe://%s/node/%s, expires %s", c.serial, c.trustDomain, d.view.identity, end.UTC().Format(time.RFC3339))
}

// checkClock compares the clock with every time that this machine knows to
// have passed.
func (d *doctor) checkClock() {
	const what, remedy = "clock", "set the clock; run a time service"
	now := d.cfg.Now()
	passed, from := d.seen, "the last time the agent ran"
	later := func(t time.Time, what string) {
		if t.After(passed) {
			passed, from = t, what
		}
	}
	if d.token != nil {
		later(d.token.claims.IssuedAt, "when the token was signed")
	}
	if d.view.creds != nil {
		later(d.view.creds.leaf().NotBefore, "when the certificate was issued")
	}
	if behind := passed.Sub(now); behind > time.Minute {
		d.say(StatusWarn, what, remedy, "%s, which is %v before %s", now.UTC().Format(time.RFC3339), behind.Truncate(time.Second), from)
		return
	}
	d.say(StatusOK, what, "", "%s", now.UTC().Format(time.RFC3339))
}

func (d *doctor) checkDNS(ctx context.Context) []discover.Broker {
	urls, srv, secure := d.where()
	what := "brokers"
	if srv != "" {
		what = "dns"
	}
	if len(urls) == 0 && srv == "" {
		remedy := "name them in the token (--urls or --srv) or in server.conf (brokers)"
		if d.view.conf == nil && d.view.damaged {
			remedy = "see to server.conf first, which cannot be used"
		}
		d.say(StatusFail, what, remedy, "none known")
		return nil
	}
	brokers, err := d.brokers(ctx, urls, srv, secure)
	if err != nil {
		d.fail(what, explain(err, peer{}), "")
		return nil
	}
	var list []string
	for _, b := range brokers {
		list = append(list, b.URL)
	}
	source := "listed"
	if srv != "" {
		source = "SRV records " + brokers[0].Source
	}
	d.say(StatusOK, what, "", "%s: %s", source, strings.Join(list, ", "))
	return brokers
}

// where are the brokers of the mode that the agent would be in.
func (d *doctor) where() (urls []string, srv string, secure bool) {
	if d.view.mode != ModeNormal && d.token != nil {
		return d.token.urls, d.token.srv, d.token.secure
	}
	v := d.view
	v.token = d.token
	urls, srv = d.fleetBrokers(&v)
	return urls, srv, true
}

func (d *doctor) checkTCP(ctx context.Context, b discover.Broker) bool {
	const what = "tcp"
	proxy, err := d.proxyFor(d.view.conf, b)
	if err != nil {
		d.fail(what, explain(err, peer{broker: b.URL}), "")
		return false
	}
	address := net.JoinHostPort(b.Host, strconv.Itoa(b.Port))
	conn, stop, err := (&dialer{ctx: ctx, resolver: d.cfg.resolver, proxy: proxy}).dial(ctx, address)
	if err != nil {
		d.fail(what, explain(err, peer{broker: b.URL}), "check the network between here and the broker")
		return false
	}
	to := conn.RemoteAddr().String()
	stop()
	_ = conn.Close() // nothing was sent
	if proxy != nil {
		to = "through proxy " + proxy.Host
	}
	d.say(StatusOK, what, "", "%s answers (%s)", address, to)
	return true
}

func (d *doctor) checkConnection(ctx context.Context, b discover.Broker) {
	const what = "connection"
	p := peer{broker: b.URL}
	how := "with the certificate, by mutual TLS"
	var conn *connection
	var err error
	switch {
	case d.view.mode == ModeNormal:
		p.normal, p.secure = true, true
		conn, err = d.connect(ctx, d.view.conf, b, d.fleetOptions(&d.view, b)...)
	case d.token == nil || d.token.usable() != nil:
		return // said already
	default:
		p.file, p.secure, how = d.token.file, d.token.secure || hasTLSScheme(b.URL), "with the token"
		if p.sealed = d.token.sealed(); p.sealed {
			how = "with the sealed token"
		}
		p.dates = d.token.outOfDate(d.now(), d.cfg.Now())
		conn, err = d.connectToEnroll(ctx, d.token, d.view.conf, b)
	}
	if err != nil {
		d.fail(what, explain(err, p), "see the broker's log")
		return
	}
	conn.Close()
	<-conn.closed
	d.say(StatusOK, what, "", "%s admits this node %s", b.URL, how)
}
