package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"muster/internal/discover"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/certificates"
	"muster/server/link"
)

// A Status is the outcome of one check.
type Status string

// A warning is about something that works, but not safely, or perhaps not for long.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// A Finding is the outcome of one check of [Doctor], and an element of the list that `doctor -o json` prints.
type Finding struct {
	Status Status `json:"status"`
	What   string `json:"what"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Doctor checks everything that the agent needs, in the agent's order, and connects to the brokers. It changes nothing
// on disk and may run beside the agent. The error is about cfg, or it is ctx's.
func Doctor(ctx context.Context, cfg Config) ([]Finding, error) {
	a, err := newAgent(cfg)
	if err != nil {
		return nil, err
	}
	_ = a.orders.Load()
	d := &doctor{agent: a}
	d.checkMode()
	if c := d.disk.conf; c != nil && c.Faults != nil {
		d.say(StatusWarn, "settings", remedySettings, "%s: %v", d.sets.conf, link.OneLine(c.Faults))
	}
	d.checkToken()
	d.checkFacts()
	d.checkCertificate()
	list, err := d.services.Statuses()
	if err != nil {
		d.fail("services", err, "")
	}
	d.findings = append(d.findings, CheckCertificates(list, d.clock.now())...)
	for _, b := range d.checkBrokers(ctx) {
		d.checkConnection(ctx, b)
	}
	return d.findings, ctx.Err()
}

type doctor struct {
	*agent
	disk     *inspection
	findings []Finding
}

func (d *doctor) say(status Status, what, remedy, format string, args ...any) {
	detail := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	d.findings = append(d.findings, Finding{Status: status, What: what, Detail: detail, Remedy: remedy})
}

func (d *doctor) fail(what string, err error, remedy string) {
	d.say(StatusFail, what, cmp.Or(advice.Of(err), remedy), "%v", err)
}

func (d *doctor) checkMode() {
	v, err := d.state.inspect()
	if v == nil {
		d.disk = &inspection{}
		d.fail("identity", err, "give the machine a host name, or set identity in server.conf")
		return
	}
	d.disk = v
	d.say(StatusOK, "identity", "", "%s", v.identity)
	switch {
	case err != nil:
		d.fail("mode", err, "repair server.conf, token or certificate")
	case errors.Is(v.Conf, ErrUnusable):
		d.say(StatusWarn, "mode", "repair server.conf; otherwise provisioning replaces it, and keeps a copy",
			"%s: %v", v.mode, v.Conf)
	default:
		d.say(StatusOK, "mode", "", "%s: %s", v.mode, v.reason)
	}
	if err := v.unsafe(&d.cfg, d.sets.conf); err != nil {
		d.say(StatusWarn, "files", "run that command", "%v", err)
	}
	if err := d.sets.checkSafe(); err != nil {
		d.fail("files", err, "")
	}
	if v.mode != ModeProvisioning {
		return
	}
	if err := d.sets.dir.Check(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.fail("files", link.Explain(adviseOccupied(err), link.Peer{}), "")
	}
	d.say(StatusWarn, "enrollment", "start the agent and see its log; an operator can run `muster node explain "+
		string(v.identity)+"`", "not enrolled yet")
}

func (d *doctor) checkToken() {
	const what = "token"
	t, bad := d.disk.token, StatusFail
	if d.disk.mode == ModeNormal {
		bad = StatusWarn // the node needs no token until it enrolls again
	}
	switch {
	case t == nil && d.disk.mode == ModeNormal && errors.Is(d.disk.Token, ErrMissing):
		return
	case t == nil && d.disk.Token != nil:
		d.say(bad, what, tokenRemedy(d.disk.Token), "%v", d.disk.Token)
		return
	case t == nil:
		return
	}
	if err := t.usable(); err != nil {
		d.fail(what, err, "")
		return
	}
	if t.Limits.CA == "" && d.disk.mode != ModeNormal {
		d.say(StatusWarn, "authority", "sign the token with --ca",
			"the token pins no authority, so this node trusts the first one that answers")
	}
	fi, err := os.Stat(t.file)
	exposed := inputfile.ReadableByOthers(t.file)
	remedy := t.outOfDate(d.clock.now())
	switch {
	case remedy != "":
		d.say(bad, what, remedy, "%s is not valid by this machine's clock", t.file)
	case exposed != nil:
		d.say(StatusWarn, what, "run that command", "%v", exposed)
	case err == nil && fi.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows":
		d.say(StatusWarn, what, "chmod 0600 "+t.file, "%s can be read by every user of this machine (mode %04o)",
			t.file, fi.Mode().Perm())
	default:
		d.say(StatusOK, what, "", "%s, provisions by default: %v, TLS: %v, sealed: %v",
			t.file, t.Default, t.Secure, t.sealed())
	}
}

func (d *doctor) checkFacts() {
	file := d.cfg.factsFile(d.disk.token, d.disk.conf)
	if file == "" {
		return
	}
	facts, err := readFacts(file)
	switch {
	case errors.Is(err, ErrMissing), errors.Is(err, errTooManyFacts), err != nil && d.disk.mode == ModeNormal:
		d.say(StatusWarn, "facts", advice.Of(err), "%v", err)
	case err != nil:
		d.fail("facts", fmt.Errorf("the node does not enroll without its facts: %w", err), "")
	default:
		d.say(StatusOK, "facts", "", "%s, %d bytes, limit %d", file, len(facts), wire.MaxFactsBytes)
	}
}

func (d *doctor) checkCertificate() {
	const what = "certificate"
	c := d.disk.creds
	if c == nil {
		if d.disk.mode == ModeProvisioning && !errors.Is(d.disk.Credentials, fs.ErrNotExist) {
			d.say(StatusWarn, what,
				"nothing if the name is still free: the node enrolls again; otherwise see its log",
				"%v", d.disk.Credentials)
		}
		return
	}
	start, end := c.Leaf().NotBefore, c.Leaf().NotAfter
	status, remedy := StatusOK, ""
	if end.Sub(d.clock.now()) < end.Sub(start)/5 {
		status, remedy = StatusWarn, "make sure that the agent runs and reaches a broker"
	}
	d.say(status, what, remedy, "%s of spiffe://%s/node/%s, expires %s", c.Serial, c.TrustDomain, d.disk.identity,
		end.UTC().Format(time.RFC3339))
}

// CheckCertificates judges service certificates at a time. A warning is about one that is not there yet, or that should
// have been renewed since less than a sixth of its life is left.
func CheckCertificates(list []certificates.Status, now time.Time) (findings []Finding) {
	for _, s := range list {
		f := Finding{Status: StatusOK, What: "service " + s.Name, Remedy: s.Advice, Detail: s.State}
		if why := cmp.Or(s.Reason, s.Error); why != "" {
			f.Detail += ": " + link.OneLine(errors.New(why)).Error()
		}
		if !s.NotAfter.IsZero() {
			f.Detail += ", expires " + s.NotAfter.UTC().Format(time.RFC3339)
		}
		switch left := s.NotAfter.Sub(now); {
		case s.Stuck, !s.NotAfter.IsZero() && left <= 0:
			f.Status = StatusFail
		case left < s.NotAfter.Sub(s.NotBefore)/6, s.NotAfter.IsZero():
			f.Status = StatusWarn
		}
		findings = append(findings, f)
	}
	return findings
}

func (d *doctor) checkBrokers(ctx context.Context) []discover.Broker {
	urls, srv := d.disk.fleetBrokers()
	secure := true
	if t := d.disk.token; d.disk.mode != ModeNormal && t != nil {
		urls, srv, secure = t.URLs(), t.SRVDomain, t.Secure
	}
	if len(urls) == 0 && srv == "" {
		d.say(StatusFail, "brokers", "name them in the token (--urls or --srv) or in server.conf (brokers)",
			"none known")
		return nil
	}
	brokers, err := d.dialer.Brokers(ctx, urls, srv, secure)
	if err != nil {
		d.fail("brokers", link.Explain(err, link.Peer{}), "")
		return nil
	}
	var list []string
	for _, b := range brokers {
		list = append(list, b.URL)
	}
	d.say(StatusOK, "brokers", "", "%s: %s", brokers[0].Source, strings.Join(list, ", "))
	return brokers
}

func (d *doctor) checkConnection(ctx context.Context, b discover.Broker) {
	how, peer := "with the certificate, by mutual TLS", fleetPeer
	var conn *link.Conn
	var err error
	t := d.disk.token
	switch {
	case d.disk.mode == ModeNormal:
		conn, err = d.connectWithCertificate(ctx, d.disk, b)
	case t == nil || t.usable() != nil:
		return
	default:
		how, peer = "with the token", d.tokenPeer(t, b)
		if t.sealed() {
			how = "with the sealed token"
		}
		conn, err = d.connectWithToken(ctx, d.disk, b)
	}
	if err != nil {
		d.fail("connection", link.Explain(err, peer), "see the broker's log")
		return
	}
	conn.End()
	d.say(StatusOK, "connection", "", "%s admits this node %s", b.URL, how)
}
