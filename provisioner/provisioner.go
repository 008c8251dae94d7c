package provisioner

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// A Configurator makes the configuration of a node where the policy gives
// none.
type Configurator interface {
	// Configure returns the files for the node. An error that is a *Refusal
	// keeps its code; any other is [wire.CodeConfigurationFailed].
	Configure(ctx context.Context, s Subject) (wire.Files, error)
}

// A Subject is the node that a configuration is for. Its token and its key are
// proven, its facts are what it says.
type Subject struct {
	Identity wire.Identity
	Token    *jwt.Verified
	CSR      *ca.CSR
	CSRDER   []byte
	Facts    json.RawMessage
	Source   Source
}

// A Source is where a request came from, as the broker says: the node cannot
// forge it.
type Source struct {
	Address string // host, without port; "" if unknown

	// Server is what the broker that took the connection calls itself, "" if
	// unknown. It says at which site the sender is.
	Server string

	// Node is the identity in the certificate that the connection authenticated
	// with, admitted by [Gate.AdmitNode]. Empty for a connection that
	// presented anything else.
	Node wire.Identity

	// Sealed says that the request came sealed to this provisioner and, if it
	// is to enroll, from the connection that it was sealed for.
	Sealed bool

	// Proven, if not nil, is called once it is known that the request is of
	// somebody: its token is authentic, or its confirmation signed by whom it
	// names. What a transport charged for the request it gives back then.
	Proven func()
}

// Key is what the sender is counted under: its address, or in IPv6, where a machine has as many as it
// likes, the /64 of that. Whoever has no address has one in common, the zero value.
func (s Source) Key() netip.Prefix { return limit.Source(s.Address) }

// Config configures [New]. All is required but what may be nil.
type Config struct {
	Tokens    trust.TokenVerifier
	Policy    *policies.Engine
	Authority *ca.Authority
	Store     Store

	// Signers are those behind Tokens, if operators may change them: Run follows
	// the store's, and nobody is admitted while they are not known. Nil: the
	// verifier's signers are fixed.
	Signers *trust.Signers

	// Journal keeps revocations outside the store. Nil: a store that is restored from a
	// backup forgets what was revoked since.
	Journal trust.Journal

	// Kick has the connections of a node looked at, of which a certificate has ceased to be
	// live, or may have. It must not block, and being told twice is harmless.
	Kick func(wire.Identity)

	CRL   CRLConfig
	Facts FactsConfig
	Self
	Reports

	// Configurator makes what the policy leaves open. Nil: only the policy
	// configures nodes.
	Configurator Configurator

	// Autosign is asked where the policy wants an approval that nobody has given,
	// with the certificate request in DER. Nil is a yes, any error a no, which the
	// log has; the node waits for a person then. Nil asks nobody.
	Autosign func(ctx context.Context, id wire.Identity, csr []byte) error

	// Reserved says why an identity can never be a node's, or nil. It is given
	// the token since names in its URLs are brokers' names.
	Reserved func(wire.Identity, *jwt.Verified) error

	// Clock says whether the clock can be trusted. Nil trusts it.
	Clock *trust.Clock

	// Quotas bound how many identities that were never seen are let in.
	Quotas Quotas

	// Budget bounds what those who have proven nothing can have checked and
	// written down. Share it with the broker's gate.
	Budget *Budget

	// Now is the clock.
	Now func() time.Time
}

// CRLConfig is how CRLs are made.
type CRLConfig struct {
	// Validity is how long a CRL is valid: it is signed anew when half of that
	// has passed.
	Validity time.Duration

	// Listed takes all CRLs, as [trust.CRLs.All] returns them, whenever one of
	// them is new; first before CatchUp returns. Calls come one at a time; those
	// after the first hold up the next CRL while they last. False has it called again
	// soon. Nil for none.
	Listed func(context.Context, []*trust.CRL) bool
}

// FactsConfig is which facts are kept.
type FactsConfig struct {
	// Shown names the facts that are kept of nodes that wait, for operators
	// to see; see [facts.DefaultShown]. At most [facts.MaxShown]. Empty: none.
	Shown []string

	// Kept names the facts that are kept with a node's record, for operators to
	// find nodes by; see [facts.DefaultKept] and [facts.CheckKept]. Empty: none.
	Kept []string
}

// Self is what this provisioner is.
type Self struct {
	// Installation is the id of the installation, the audience of operators' tokens.
	Installation string

	// Site and Version describe this provisioner to tokens and policies.
	Site    jwt.Site
	Version string
}

// Reports are where a provisioner tells what happens.
type Reports struct {
	// Emit takes events. It must not block.
	Emit func(events.Event)

	// Observe takes each decision of the policy with what it was made on, or the
	// error in place of a decision with the digest of the policy that was asked.
	// It must not block, and nobody changes any of it afterwards. Nil for none.
	Observe func(in *policies.Input, d *policies.Decision, err error, asked string)

	// Meter takes how long requests and their steps took, and what became of them.
	Meter Meter

	// Alarms takes what an operator must act on, and says what is known to be
	// wrong.
	Alarms *events.Alarms

	// Log gets one line per decision.
	Log *slog.Logger
}

// A Provisioner decides over enrollment: it proves what a request claims, asks
// the policy, issues the certificate and keeps the record. It is safe for
// concurrent use; requests for one identity are taken one at a time.
type Provisioner struct {
	Gate *Gate

	records *records
	watcher *watcher

	cfg    Config // set by New, then read-only
	locks  locks
	quotas quotas
	uses   *trust.Uses
	noted  sync.Map // of jwt.TokenID: unlimited tokens that this process has noted; operators sign few of them
	policy policyHealth
	recent recent
	boots  boots
	shown  *facts.Finder // of FactsConfig
	kept   *facts.Finder // of FactsConfig

	waiters     *waiting.List
	said        said
	logs        *orders.Logs
	unread      *orders.Unread
	revocations *trust.Revocations
	enforcing   *enforcement
	crls        *trust.CRLs
}

// New returns a Provisioner. It starts nothing.
func New(cfg Config) *Provisioner {
	if cfg.Observe == nil {
		cfg.Observe = func(*policies.Input, *policies.Decision, error, string) {}
	}
	if cfg.CRL.Listed == nil {
		cfg.CRL.Listed = func(context.Context, []*trust.CRL) bool { return true }
	}
	waiters := waiting.NewList(cfg.Store, cfg.Log)
	logs := cfg.Store.Logs()
	p := &Provisioner{
		cfg:     cfg,
		quotas:  newQuotas(cfg.Quotas, cfg.Now),
		uses:    trust.NewUses(cfg.Store, cfg.Log),
		shown:   facts.NewFinder(cfg.Facts.Shown),
		kept:    facts.NewFinder(cfg.Facts.Kept),
		said:    newSaid(cfg.Now),
		waiters: waiters,
		logs:    logs,
		unread:  orders.WatchUnread(logs),
	}
	p.records, p.watcher = &records{p}, &watcher{Provisioner: p}
	p.Gate, p.enforcing = &Gate{Provisioner: p}, newEnforcement(p)
	logs.Answers.WatchVerdicts(func(a *orders.Answer) { waiters.Forget(waiting.Holder{Key: a.KeyHash, Identity: a.Identity}) })
	p.revocations = trust.NewRevocations(trust.RevocationsConfig{Log: logs.Revocations, Journal: cfg.Journal, Applied: p.enforcing.applied})
	p.crls = trust.NewCRLs(trust.CRLConfig{
		Authority:   cfg.Authority,
		Revocations: p.revocations,
		Validity:    cfg.CRL.Validity,
		Listed:      cfg.CRL.Listed,
		Clock:       cfg.Clock.Check,
		Log:         cfg.Log,
		Now:         cfg.Now,
	})
	return p
}

// now is the clock as it crosses boundaries: UTC, to the second.
func (p *Provisioner) now() time.Time { return p.cfg.Now().UTC().Truncate(time.Second) }

// moment is the time that events have: finer than that of records, since what
// happens to a node within a second is read in its order.
func (p *Provisioner) moment() time.Time { return p.cfg.Now().UTC().Truncate(time.Millisecond) }

// Reject logs and emits the refusal of something that is not even a request:
// a message that could not be decoded. It returns the refusal to send.
func (p *Provisioner) Reject(ctx context.Context, code wire.Code, err error, source Source) *Refusal {
	r := refuse("", code, err)
	p.cfg.Meter.Rejected(code)
	if e := RefusalEvent(r, p.moment(), source.Address); p.reported(ctx, &e) {
		p.cfg.Emit(e)
		p.cfg.Log.WarnContext(ctx, "request rejected", "code", code, "source", source.Address, "err", e.Cause)
	}
	return r
}

// proven tells whoever transported a request that it is not a stranger's.
func (s Source) proven() {
	if s.Proven != nil {
		s.Proven()
	}
}

// Config returns what the provisioner was made of.
func (p *Provisioner) Config() Config { return p.cfg }
