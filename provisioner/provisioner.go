package provisioner

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/facts"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// A Configurator makes the configuration of a node for which the policy gives none.
type Configurator interface {
	// Configure returns the files for the node. An error that is a *Refusal keeps its code; any other becomes
	// [wire.CodeConfigurationFailed].
	Configure(ctx context.Context, s Subject) (wire.Files, error)
}

// A Subject is the node that a configuration is for.
type Subject struct {
	*policies.Input
	Verified *jwt.Verified // nil in a [Preview]
	CSRDER   []byte        // verified; empty if the client has none
	Edge     *Edge         // nil for muster's own agents
}

// A Source is the origin of a request according to the broker.
type Source struct {
	Address string // host, without port; "" if unknown

	Protocol Protocol

	// Edge is nil for muster's own agents.
	Edge *Edge

	// Server is the name of the node's broker, or ""; it determines the site.
	Server string

	// Node is the identity of a connection admitted by [Gate.AdmitNode], else "".
	Node wire.Identity

	// Sealed means that the request was sealed to this provisioner; an enroll request also for its connection.
	Sealed bool

	// Proven, if not nil, refunds the charge once the token or signature is verified.
	Proven func()
}

// Key is the unit of rate limits: the address, or its /64 in IPv6.
func (s Source) Key() netip.Prefix { return limit.Source(s.Address) }

// Config configures [New]. Members are required unless they say what nil means.
type Config struct {
	Signers   *trust.Signers
	Policy    *policies.Engine
	Authority *ca.Authority
	Store     Store

	// Journal keeps revocations outside the store. Nil: a restored store forgets revocations since the backup.
	Journal trust.Journal

	// Kick starts another check of a node's connections. It must not block.
	Kick func(wire.Identity)

	CRL   CRLConfig
	Facts FactsConfig
	Self
	Reports

	// Nil: only the policy configures nodes.
	Configurator Configurator

	// If an approval is missing, Autosign decides; nil approves. csr is in DER. May be nil.
	Autosign func(ctx context.Context, id wire.Identity, source netip.Prefix, csr []byte) error

	// FaultOf returns the cause of the [Fault] on record as a list of nodes has it, which may be a little old.
	FaultOf func(wire.Identity) string

	// Reserved judges every host name and IP address that enters a record or a certificate: it returns why no node may
	// have it, or nil. The token may be nil. It may wait for DNS.
	Reserved func(name string, token *jwt.Verified) error

	// Nil: the clock is trusted.
	Clock *trust.Clock

	Quotas Quotas

	// Budget is shared with the broker's gate.
	Budget *Budget

	Now func() time.Time
}

// CRLConfig configures CRLs.
type CRLConfig struct {
	// Validity is the life of a CRL; it is renewed at half of that.
	Validity time.Duration

	// Listed gets all CRLs when one is new, first before CatchUp returns. If false, it is called again soon. May be
	// nil.
	Listed func(context.Context, []*trust.CRL) bool
}

// FactsConfig names the facts that are shown or kept.
type FactsConfig struct {
	// Shown are the facts of pending nodes, at most [facts.MaxShown].
	Shown []string

	// Kept are the facts on record; see [facts.CheckKept].
	Kept []string
}

// Self describes this provisioner.
type Self struct {
	// Installation is the audience of operators' tokens.
	Installation string

	Site    jwt.Site
	Version string
}

// Reports are the outputs of a provisioner.
type Reports struct {
	// Emit must not block.
	Emit func(events.Event)

	// Observe gets each decision, or the error; asked is the policy's digest. It must not block.
	Observe func(in *policies.Input, d *policies.Decision, err error, asked string)

	Meter Meter

	Alarms *events.Alarms

	Log *slog.Logger
}

// A Provisioner decides about enrollment. It is safe for concurrent use, and handles requests for one identity one at a
// time.
type Provisioner struct {
	Gate *Gate

	records *records
	watcher *watcher

	cfg    Config // read-only after New
	locks  locks
	quotas quotas
	uses   *trust.Uses
	noted  sync.Map // of jwt.TokenID to *trust.TokenInfo: see TokensInUse
	policy atomic.Pointer[policyFailure]
	recent *limit.Cache[wire.Identity, remembered]
	boots  boots
	shown  *facts.Finder
	kept   *facts.Finder

	pending     *waiting.List
	repeats     repeatLimits
	logs        *orders.Logs
	unread      *orders.Unread
	revocations *trust.Revocations
	enforcing   *enforcement
	crls        *trust.CRLs
	puppetCRLs  *trust.CRLs // nil without Puppet
}

// New returns a Provisioner. It starts nothing.
func New(cfg Config) *Provisioner {
	if cfg.CRL.Listed == nil {
		cfg.CRL.Listed = func(context.Context, []*trust.CRL) bool { return true }
	}
	pending := waiting.NewList(cfg.Store, cfg.Log, cfg.Now)
	logs := cfg.Store.Logs()
	p := &Provisioner{
		cfg:     cfg,
		quotas:  newQuotas(cfg.Quotas, cfg.Now),
		uses:    trust.NewUses(cfg.Store, cfg.Log),
		shown:   facts.NewFinder(cfg.Facts.Shown),
		kept:    facts.NewFinder(cfg.Facts.Kept),
		repeats: newRepeatLimits(cfg.Now),
		recent:  limit.NewCache[wire.Identity, remembered](maxRecent),
		pending: pending,
		logs:    logs,
		unread:  orders.WatchUnread(logs),
	}
	p.records, p.watcher = &records{p}, &watcher{Provisioner: p}
	p.Gate, p.enforcing = &Gate{Provisioner: p}, newEnforcement(p)
	logs.Answers.WatchVerdicts(func(a *orders.Answer) {
		pending.Forget(waiting.Holder{
			Key:      a.KeyHash,
			Identity: a.Identity,
		})
	})
	p.revocations = trust.NewRevocations(trust.RevocationsConfig{
		Log:     logs.Revocations,
		Journal: cfg.Journal,
		Applied: p.enforcing.applied,
	})
	crls := trust.CRLConfig{
		Authority:   cfg.Authority,
		Revocations: p.revocations,
		Validity:    cfg.CRL.Validity,
		Publish:     cfg.CRL.Listed,
		Clock:       cfg.Clock.Check,
		Log:         cfg.Log,
		Now:         cfg.Now,
	}
	p.crls = trust.NewCRLs(crls)
	if crls.Authority = cfg.Authority.Branch(); crls.Authority != nil {
		crls.Validity, crls.Renewal, crls.Skew = trust.PuppetCRLValidity, trust.PuppetCRLRenewal, trust.PuppetCRLSkew
		crls.Publish = func(context.Context, []*trust.CRL) bool { return true }
		p.puppetCRLs = trust.NewCRLs(crls)
	}
	return p
}

// now is the time for records.
func (p *Provisioner) now() time.Time { return p.cfg.Now().UTC().Truncate(time.Second) }

// moment is finer than now, so that events of one second keep their order.
func (p *Provisioner) moment() time.Time { return p.cfg.Now().UTC().Truncate(time.Millisecond) }

// Reject reports and returns the refusal of a message that could not be decoded. Node is "" if it is not known.
func (p *Provisioner) Reject(ctx context.Context, node string, code wire.Code, err error, source Source) *Refusal {
	r := refuse(code, err)
	p.cfg.Meter.Rejected(code)
	e := RefusalEvent(node, r, p.moment(), source.Address)
	if source.Protocol == ProtocolPuppet { // anyone can send these
		e.Type = events.Attempt
	}
	p.reportRefusal(ctx, slog.LevelWarn, "request rejected", e, false)
	return r
}

func (s Source) proven() {
	if s.Proven != nil {
		s.Proven()
	}
}

// Config returns the configuration.
func (p *Provisioner) Config() Config { return p.cfg }

// A RequestKind is the purpose of a request.
type RequestKind int

// The kinds of requests.
const (
	RequestEnroll RequestKind = iota
	RequestRenew
	RequestConfirm
)

// RequestKinds has the names of the kinds in metrics.
var RequestKinds = [...]string{"enroll", "renew", "confirm"}

// A Meter measures requests. Its methods are called concurrently, must not block and should take less than 100 ns.
type Meter interface {
	// Done gets the code of the refusal, or "".
	Done(RequestKind, time.Duration, wire.Code)

	// Rejected counts a message that could not be decoded.
	Rejected(wire.Code)
}

func (p *Provisioner) done(k RequestKind, begun time.Time, err error) {
	p.cfg.Meter.Done(k, time.Since(begun), CodeOf(err))
}

// A Store keeps the durable state that provisioners share. Its methods are safe for concurrent use.
type Store interface {
	// Record returns the newest record of id with its revision, or nil and 0. If the record fails [Record.Check],
	// the error wraps [trust.ErrRecord].
	Record(ctx context.Context, id wire.Identity) (*Record, trust.Revision, error)

	// Put writes r if the newest revision is still the given one, and returns once r is on disk. After
	// [trust.ErrConflict] and [trust.ErrStoreFull] nothing was written. After other errors the write may still
	// happen: read before deciding.
	Put(ctx context.Context, r *Record, after trust.Revision) (trust.Revision, error)

	Logs() *orders.Logs

	trust.ClaimLog
	TokenNotes
	waiting.Store
}
