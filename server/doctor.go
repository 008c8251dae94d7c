package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
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
	a, err := newAgent(cfg)
	if err != nil {
		return nil, err
	}
	_ = a.orders.Load() // the mode follows from them
	d := &doctor{agent: a}
	d.checkMode()
	d.checkToken()
	d.checkFacts()
	d.checkWork()
	d.checkCertificate()
	for _, b := range d.checkBrokers(ctx) {
		d.checkConnection(ctx, b)
	}
	return d.findings, ctx.Err()
}

type doctor struct {
	*agent
	view     view
	findings []Finding
}

func (d *doctor) say(status Status, what, remedy, format string, args ...any) {
	detail := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	d.findings = append(d.findings, Finding{Status: status, What: what, Detail: detail, Remedy: remedy})
}

// fail reports err with its remedy, or with the one given.
func (d *doctor) fail(what string, err error, remedy string) {
	d.say(StatusFail, what, cmp.Or(advice.Of(err), remedy), "%v", err)
}

// enrollAgain is what to do where only another enrollment helps.
func (d *doctor) enrollAgain() string {
	switch {
	case d.view.blocked != nil:
		return advice.Of(d.view.blocked)
	case d.view.says.No:
		return remedyAllow
	}
	return remedyEnroll
}

func (d *doctor) checkMode() {
	v, err := d.state.look()
	if v != nil {
		d.view = *v
		d.say(StatusOK, "identity", "", "%s", v.identity)
	}
	switch {
	case v == nil:
		d.fail("identity", err, "give the machine a host name, or set identity in server.conf")
		return
	case err != nil:
		d.fail("mode", err, "mend server.conf, token or certificate, see below")
	default:
		d.say(StatusOK, "mode", "", "%s: %s", v.mode, v.reason)
	}
	if v.damaged && err == nil { // else that was the error
		_, _, damage := readConf(d.sets.conf)
		d.say(StatusWarn, "configuration", "mend the file; provisioning puts another one in its place", "%v", damage)
	}
}

func (d *doctor) checkToken() {
	const what = "token"
	bad := StatusFail
	if d.view.mode == ModeNormal {
		bad = StatusWarn // it is not needed until the node enrolls again
	}
	t, err := readToken(d.state.tokenFiles())
	switch {
	case errors.Is(err, ErrMissing) && d.view.mode == ModeNormal:
		d.say(StatusOK, what, "", "none, and none is needed in normal mode")
		return
	case err != nil:
		d.say(bad, what, tokenRemedy(err), "%v", err)
		return
	}
	d.view.token = t
	if err := t.usable(); err != nil {
		d.fail(what, err, "")
		return
	}
	if t.Limits.CA == "" && d.view.mode != ModeNormal {
		d.say(StatusWarn, "authority", "sign the token with --ca",
			"the token pins none, so this node takes the first that answers")
	}
	expiry := "never expires"
	if end := t.Expiry(); !end.IsZero() {
		expiry = "expires " + end.Format(time.RFC3339)
	}
	matches := func(p wire.Pattern) bool { return p.Match(d.view.identity) }
	covered := len(t.Limits.Identities) == 0 || slices.ContainsFunc(t.Limits.Identities, matches)
	fi, err := os.Stat(t.file)
	remedy := t.outOfDate(d.clock.now(), d.cfg.Now())
	switch {
	case remedy != "":
		d.say(bad, what, remedy, "%s is out of date, %s", t.file, expiry)
	case !covered:
		d.say(bad, what,
			"sign a token whose --identity covers the name and replace the file, or give this node a name that it covers",
			"%s is for %s, and this node is %s", t.file, t.Limits.Identities, d.view.identity)
	case err == nil && fi.Mode().Perm()&0o007 != 0:
		d.say(StatusWarn, what, "chmod 0600 "+t.file, "%s can be read by every user of this machine (mode %04o)",
			t.file, fi.Mode().Perm())
	default:
		d.say(StatusOK, what, "", "%s, %s, provisions by default: %v, TLS: %v, sealed: %v",
			t.file, expiry, t.Default, t.Secure, t.sealed())
	}
}

func (d *doctor) checkFacts() {
	const what = "facts"
	file := d.cfg.factsFile(d.view.token, d.view.conf)
	if file == "" {
		return
	}
	facts, err := readFacts(file)
	switch {
	case errors.Is(err, ErrMissing), err != nil && d.view.mode == ModeNormal:
		d.say(StatusWarn, what, advice.Of(err), "%v", err)
	case err != nil:
		d.fail(what, fmt.Errorf("the node does not ask without them: %w", err), "")
	default:
		d.say(StatusOK, what, "", "%s, %d bytes, limit %d", file, len(facts), wire.MaxFactsBytes)
	}
}

// checkWork says what the agent has yet to do.
func (d *doctor) checkWork() {
	if d.view.mode == ModeProvisioning {
		if err := d.sets.dir.Check(); err != nil && !errors.Is(err, fs.ErrNotExist) { // the agent makes what is missing
			d.fail("files", link.Explain(adviseOccupied(err), link.Peer{}), "")
		}
		d.say(StatusWarn, "enrollment", "start the agent, and see its log; an operator sees why with `muster node explain "+
			string(d.view.identity)+"`", "not enrolled yet")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (d *doctor) checkCertificate() {
	const what = "certificate"
	if !exists(d.sets.dir.Path(certificateFile)) && d.view.mode != ModeNormal {
		d.say(StatusOK, what, "", "none yet")
		return
	}
	c, err := d.sets.credentials(d.view.identity, d.clock.at)
	status, remedy := StatusFail, cmp.Or(advice.Of(err), d.enrollAgain())
	if d.view.mode == ModeProvisioning { // which replaces it
		status = StatusWarn
		remedy = fmt.Sprintf("nothing, if the name is still free; else an operator lets the node's key in with `muster node grant %s`", d.view.identity)
	}
	if err != nil {
		d.say(status, what, remedy, "%v", err)
		return
	}
	end := c.Leaf().NotAfter
	if end.Sub(d.clock.now()) < end.Sub(c.Leaf().NotBefore)/5 {
		d.say(StatusWarn, what, "see that the agent runs and reaches a broker", "%s expires %s, soon", c.Serial,
			end.UTC().Format(time.RFC3339))
		return
	}
	d.say(StatusOK, what, "", "%s of spiffe://%s/node/%s, expires %s", c.Serial, c.TrustDomain, d.view.identity,
		end.UTC().Format(time.RFC3339))
}

// checkBrokers resolves the brokers of the mode that the agent would be in.
func (d *doctor) checkBrokers(ctx context.Context) []discover.Broker {
	urls, srv := d.view.fleetBrokers()
	secure := true
	if t := d.view.token; d.view.mode != ModeNormal && t != nil {
		urls, srv, secure = t.URLs(), t.SRVDomain, t.Secure
	}
	what := "brokers"
	if srv != "" {
		what = "dns"
	}
	if len(urls) == 0 && srv == "" {
		d.say(StatusFail, what, "name them in the token (--urls or --srv) or in server.conf (brokers)", "none known")
		return nil
	}
	brokers, err := d.dialer.Brokers(ctx, urls, srv, secure)
	if err != nil {
		d.fail(what, link.Explain(err, link.Peer{}), "")
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

// checkConnection connects to a broker as the agent would.
func (d *doctor) checkConnection(ctx context.Context, b discover.Broker) {
	how, peer := "with the certificate, by mutual TLS", fleetPeer
	var conn *link.Conn
	var err error
	t := d.view.token
	switch {
	case d.view.mode == ModeNormal:
		conn, err = d.connectFleet(ctx, &d.view, b)
	case t == nil || t.usable() != nil:
		return // said already
	default:
		how, peer = "with the token", d.tokenPeer(t, b)
		if t.sealed() {
			how = "with the sealed token"
		}
		conn, err = d.connectToken(ctx, &d.view, b)
	}
	if err != nil {
		d.fail("connection", link.Explain(err, peer), "see the broker's log")
		return
	}
	conn.End()
	d.say(StatusOK, "connection", "", "%s admits this node %s", b.URL, how)
}
