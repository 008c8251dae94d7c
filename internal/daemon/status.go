package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
)

type status struct{ *Daemon }

func (st status) features(ctx context.Context) []fleet.Feature {
	p, cfg := st.parts, &st.cfg
	alarm := func(code wire.Code) func() error { return func() error { return st.alarms.Stands(code) } }
	never := func() error { return nil }
	all := []fleet.Feature{st.enrollmentFeature(ctx), st.calloutFeature()}
	for _, f := range []struct {
		name    string
		enabled bool
		fault   func() error // of an enabled one
	}{
		{"api", p.api != nil, func() error { return p.api.usable(st.opts.Now()) }},
		{"autosign", p.autosign != nil, p.autosign.Check},
		{"broker", true, st.connected},
		{"ca", true, st.Usable},
		{"crl", true, st.crlFault},
		{"facts", len(cfg.Fleet.Facts) > 0, never},
		{"helper", p.helper != nil, p.helper.Check},
		{"inputs", st.reports.recorder != nil, never},
		{"policy", true, func() error { return cmp.Or(p.policy.Refused(), st.alarms.Stands(wire.CodePolicyFailed)) }},
		{fleet.FeaturePuppetCA, p.puppet.listens(), st.puppetFault},
		{"sealed", p.opener != nil, never},
		{"shadow_policy", p.shadow != nil, p.shadow.Refused},
		{"store", true, alarm(wire.CodeStoreUnavailable)},
		{"template", cfg.Configuration.Template != "", never},
		{"webhooks", len(cfg.Webhooks) > 0, alarm(events.AlarmWebhookFailed)},
		{"websocket", cfg.Broker.WebSocket.Listen != "", st.connected},
	} {
		if f.enabled {
			all = append(all, fleet.NewFeature(f.name, f.fault()))
		} else {
			all = append(all, fleet.Feature{Name: f.name, State: fleet.FeatureDisabled})
		}
	}
	for i := range all {
		if all[i].Name == fleet.FeaturePuppetCA {
			all[i].Settings = cfg.Puppet.Features(st.PuppetURL())
		}
	}
	slices.SortFunc(all, func(a, b fleet.Feature) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (st status) enrollmentFeature(ctx context.Context) fleet.Feature {
	const name = "enrollment"
	o := st.Orders()
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
	if pauses := o.Pauses.List(); len(pauses) > 0 && f.State == fleet.FeatureRunning {
		f.Reason = o.Pauses.Standing().Error()
		if pauses[0].Site == "" || pauses[0].Site == st.parts.site {
			f.State = fleet.FeatureDisabled
		}
	}
	return f
}

func (st status) calloutFeature() fleet.Feature {
	const name = "callout"
	if st.broker.external == nil {
		return fleet.Feature{Name: name, State: fleet.FeatureDisabled}
	}
	if cause := st.broker.calloutError.Load(); cause != nil {
		return fleet.NewFeature(name, *cause)
	}
	select {
	case <-st.broker.ready:
		return fleet.NewFeature(name, st.broker.external.CalloutError())
	default:
		return fleet.Feature{Name: name, State: fleet.FeatureStarting}
	}
}

func (st status) crlFault() error {
	var errs []error
	for _, c := range st.CRLs() {
		if st.opts.Now().After(c.NextUpdate) {
			errs = append(errs, fmt.Errorf("CRL %d of issuer %s expired at %s", c.Number, c.Issuer,
				c.NextUpdate.Format(time.RFC3339)))
		}
	}
	return errors.Join(errs...)
}

func (st status) connected() error {
	for _, c := range []*nats.Conn{st.live.conn.Load(), st.live.requests.Load()} {
		if c == nil || !c.IsConnected() {
			return errors.New("not connected to the broker")
		}
	}
	return nil
}

func (st status) state() metrics.State {
	now := metrics.State{
		InHand:        st.inHand.Load(),
		Alarms:        st.alarms.Standing(),
		AuthorityEnds: st.parts.authority.NotAfter(),
		Webhooks:      st.webhooks.List(),
	}
	if x := st.live.nodes.Load(); x != nil {
		now.Nodes, _ = x.Summary(st.opts.Now(), nil) // nil until the records are read
	}
	if s := st.Services(); s != nil {
		now.Services = s.Index().Counts(nil)
	}
	if s := st.Store(); s != nil {
		now.EventsDropped = s.Lost()
	}
	if u := st.monitor.used.Load(); u != nil { // else external, or alarmed
		now.Stored = &metrics.Stored{Used: u.Stored, Limit: u.Limit}
	}
	return now
}

// ready returns what prevents enrollment, by name.
func (st status) ready(context.Context) map[string]error {
	return map[string]error{
		"store":       st.alarms.Stands(wire.CodeStoreUnavailable),
		"revocations": st.Operator().Fresh(),
		"clock":       st.live.clock.Load().Check(),
		"disk":        st.alarms.Stands(wire.CodeStorageLow),
		"authority":   st.Usable(),
	}
}
