package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
	"muster/provisioner/trust"
	"muster/provisioner/webhook"
)

// A status says what the parts of a provisioner do now: as features, as metrics, and whether it is ready.
type status struct {
	*base
	broker   *link
	reports  *reports
	webhooks *webhook.Set
	keeper   *keeper
	budget   *provisioner.Budget
	inHand   *atomic.Int64
}

// features returns what the parts of this provisioner do now, by name. It reads
// what is in memory, and whether programs that we run are there.
func (st *status) features(ctx context.Context) []fleet.Feature {
	all := slices.Concat([]fleet.Feature{st.enrollmentFeature(ctx), st.sealedFeature(), st.storeFeature(), st.caFeature(), st.crlFeature()},
		st.brokerFeatures(), st.policyFeatures(), st.configurationFeatures(), st.reportFeatures(), []fleet.Feature{st.apiFeature(), st.webhookFeature(), st.factsFeature()})
	slices.SortFunc(all, func(a, b fleet.Feature) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// disabled is a feature that the configuration does not ask for.
func disabled(name string) fleet.Feature {
	return fleet.Feature{Name: name, State: fleet.FeatureDisabled}
}

// enrollmentFeature is what all others are for: it has failed while nobody new
// could be let in.
func (st *status) enrollmentFeature(ctx context.Context) fleet.Feature {
	const name = "enrollment"
	o := st.live.orders.Load()
	if o == nil {
		return fleet.Feature{Name: name, State: fleet.FeatureStarting}
	}
	found := st.ready(ctx)
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if err := found[what]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	f := fleet.NewFeature(name, errors.Join(errs...))
	f.Settings = map[string]string{"site": string(st.parts.site), "trust_domain": st.cfg.TrustDomain}
	if pauses := o.Pauses.List(); len(pauses) > 0 && f.State == fleet.FeatureRunning {
		f.Reason = o.Pauses.Standing().Error()
		if pauses[0].Site == "" || pauses[0].Site == st.parts.site {
			f.State = fleet.FeatureDisabled
		}
	}
	return f
}

func (st *status) sealedFeature() fleet.Feature {
	if st.parts.opener == nil {
		return disabled("sealed")
	}
	f := fleet.NewFeature("sealed", nil)
	for _, k := range st.parts.sealKeys {
		f.Capabilities = append(f.Capabilities, "key:"+k.Public().ID())
	}
	return f
}

func (st *status) storeFeature() fleet.Feature {
	f := fleet.NewFeature("store", st.alarms.Stands(wire.CodeStoreUnavailable))
	if s := st.Store(); s != nil {
		f.Settings = map[string]string{"replicas": strconv.Itoa(s.Replicas())}
	}
	if low := st.alarms.Stands(wire.CodeStorageLow); low != nil && f.State == fleet.FeatureRunning {
		f.Reason = low.Error() // new names wait, and the rest goes on
	}
	return f
}

func (st *status) caFeature() fleet.Feature {
	f := fleet.NewFeature("ca", st.Usable())
	f.Settings = map[string]string{"fingerprint": st.CAFingerprint(), "trust_domain": st.cfg.TrustDomain}
	f.Capabilities = []string{"until:" + st.parts.authority.NotAfter().UTC().Format(time.RFC3339)}
	return f
}

// webhookFeature has failed while an endpoint takes nothing.
func (st *status) webhookFeature() fleet.Feature {
	all := st.webhooks.List()
	if len(all) == 0 {
		return disabled("webhooks")
	}
	f := fleet.NewFeature("webhooks", st.alarms.Stands(events.AlarmWebhookFailed))
	for _, w := range all {
		f.Capabilities = append(f.Capabilities, "webhook:"+w.Name)
	}
	return f
}

// crlFeature has failed when the newest list of one issuer is over: whoever reads
// it has nothing to go by.
func (st *status) crlFeature() fleet.Feature {
	all := st.CRLs()
	if len(all) == 0 {
		return fleet.Feature{Name: "crl", State: fleet.FeatureStarting}
	}
	var errs []error
	var has []string
	for _, c := range all {
		if st.opts.Now().After(c.NextUpdate) {
			errs = append(errs, fmt.Errorf("number %d of issuer %s ended at %s", c.Number, c.Issuer, c.NextUpdate.Format(time.RFC3339)))
		}
		has = append(has, fmt.Sprintf("issuer:%s", c.Issuer))
	}
	f := fleet.NewFeature("crl", errors.Join(errs...))
	f.Capabilities = has
	f.Settings = map[string]string{"validity": cmp.Or(st.cfg.CRL.Validity, trust.DefaultCRLValidity).String()}
	return f
}

// errNotConnected says that a connection of ours to the broker is not there.
var errNotConnected = errors.New("not connected to the broker")

func (st *status) brokerFeatures() []fleet.Feature {
	var err error
	if !st.connected() {
		err = errNotConnected
	}
	f := fleet.NewFeature("broker", err)
	callout, websocket := disabled("callout"), disabled("websocket")
	if st.broker.embedded != nil {
		f.Settings = map[string]string{"kind": "embedded", "listen": st.cfg.Broker.Listen}
		if st.cfg.Broker.WebSocket.Listen != "" {
			websocket = fleet.NewFeature("websocket", err)
			websocket.Settings = map[string]string{"listen": st.cfg.Broker.WebSocket.Listen}
		}
		return []fleet.Feature{f, callout, websocket}
	}
	f.Settings = map[string]string{"kind": "external"} // URLs of others may hold credentials
	callout = fleet.Feature{Name: "callout", State: fleet.FeatureStarting}
	select {
	case <-st.broker.asked:
		callout.State = fleet.FeatureRunning
	default:
	}
	if cause := st.broker.unasked.Load(); cause != nil {
		callout = fleet.NewFeature("callout", *cause)
	} else if err := st.broker.external.Unread(); err != nil {
		callout = fleet.NewFeature("callout", err)
	}
	return []fleet.Feature{f, callout, websocket}
}

func (st *status) policyFeatures() []fleet.Feature {
	decides := fleet.NewFeature("policy", cmp.Or(st.parts.policy.Refused(), st.alarms.Stands(wire.CodePolicyFailed)))
	decides.Capabilities = []string{"digest:" + st.parts.policy.Digest()}
	shadow := disabled("shadow_policy")
	if st.parts.shadow != nil {
		shadow = fleet.NewFeature("shadow_policy", st.parts.shadow.Refused())
		shadow.Capabilities = []string{"digest:" + st.parts.shadow.Digest()}
	}
	return []fleet.Feature{decides, shadow}
}

// configurationFeatures are the template, the helper, and the command that
// approves. What programs answer is each node's own matter; whether they are there
// is not.
func (st *status) configurationFeatures() []fleet.Feature {
	template, helped, autosign := disabled("template"), disabled("helper"), disabled("autosign")
	if st.cfg.Configuration.Template != "" {
		template = fleet.NewFeature("template", nil)
	}
	if h := st.parts.helper; h != nil {
		helped = fleet.NewFeature("helper", h.Check())
		helped.Settings = map[string]string{"program": h.Program()} // arguments may hold secrets
	}
	if h := st.parts.autosign; h != nil {
		autosign = fleet.NewFeature("autosign", h.Check())
		autosign.Settings = map[string]string{"program": h.Program()}
	}
	return []fleet.Feature{template, helped, autosign}
}

func (st *status) reportFeatures() []fleet.Feature {
	events, inputs := fleet.NewFeature("events", nil), disabled("inputs")
	if s := st.Store(); s != nil {
		if n := s.Lost(); n > 0 {
			events.Reason = fmt.Sprintf("%d events were lost since the start", n)
		}
	}
	if st.reports.recorder != nil {
		_, dropped := st.reports.recorder.Counts()
		inputs = fleet.NewFeature("inputs", nil)
		if dropped > 0 {
			inputs.Reason = fmt.Sprintf("%d decisions were not recorded since the start", dropped)
		}
		inputs.Settings = map[string]string{"max_bytes": st.cfg.Inputs.MaxBytes}
	}
	return []fleet.Feature{events, inputs}
}

func (st *status) apiFeature() fleet.Feature {
	if st.parts.api == nil {
		return disabled("api") // the socket is there all the same, or nobody could ask
	}
	f := fleet.NewFeature("api", st.parts.api.usable(st.opts.Now()))
	f.Settings = map[string]string{"listen": st.cfg.API.Listen}
	if names := slices.Concat(st.cfg.API.Names, st.cfg.API.Addresses); len(names) > 0 {
		f.Settings["names"] = strings.Join(names, ", ")
	}
	return f
}

// factsFeature says which facts we keep.
func (st *status) factsFeature() fleet.Feature {
	return fleet.NewFactsFeature(st.cfg.Fleet.Facts)
}

// state is what metrics look up at a scrape.
func (st *status) state() metrics.State {
	now := metrics.State{
		InHand: st.inHand.Load(), Sources: st.budget.Sources(), Alarms: st.alarms.Standing(), AuthorityEnds: st.parts.authority.NotAfter(),
		Webhooks: st.webhooks.List(),
		StoreUp:  st.Store() != nil && st.alarms.Stands(wire.CodeStoreUnavailable) == nil,
	}
	if x := st.live.nodes.Load(); x != nil {
		now.Certificates, _ = x.Summary(st.opts.Now()) // nil while the records are being read
	}
	if s := st.Store(); s != nil {
		now.EventsDropped = s.Lost()
	}
	if o := st.live.orders.Load(); o != nil {
		now.Frozen, now.Paused = o.Recovery.Frozen(), len(o.Pauses.List())
	}
	for _, c := range st.CRLs() {
		now.CRLBytes = max(now.CRLBytes, len(c.DER))
	}
	if u := st.keeper.used.Load(); u != nil { // else the broker is others', or the alarm says what ails it
		now.Stored = &metrics.Stored{Used: u.Stored, Limit: u.Limit}
	}
	return now
}

// ready returns what keeps the daemon from enrolling nodes, by name.
func (st *status) ready(context.Context) map[string]error {
	return map[string]error{
		"store":       st.alarms.Stands(wire.CodeStoreUnavailable),
		"revocations": st.Operator().Fresh(),
		"clock":       st.live.clock.Load().Check(),
		"disk":        st.alarms.Stands(wire.CodeStorageLow),
		"authority":   st.Usable(),
	}
}
