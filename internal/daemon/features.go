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
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

// features returns what the parts of this provisioner do now, by name. It reads
// what is in memory, and whether programs that we run are there.
func (d *Daemon) features(ctx context.Context) []fleet.Feature {
	all := slices.Concat([]fleet.Feature{d.enrollmentFeature(ctx), d.sealedFeature(), d.storeFeature(), d.caFeature(), d.crlFeature()},
		d.brokerFeatures(), d.policyFeatures(), d.configurationFeatures(), d.reportFeatures(), []fleet.Feature{d.apiFeature(), d.allowFeature(), d.webhookFeature(), d.factsFeature()})
	slices.SortFunc(all, func(a, b fleet.Feature) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// disabled is a feature that the configuration does not ask for.
func disabled(name string) fleet.Feature {
	return fleet.Feature{Name: name, State: fleet.FeatureDisabled}
}

// enrollmentFeature is what all others are for: it has failed while nobody new
// could be let in.
func (d *Daemon) enrollmentFeature(ctx context.Context) fleet.Feature {
	const name = "enrollment"
	o := d.orders.Load()
	if o == nil {
		return fleet.Feature{Name: name, State: fleet.FeatureStarting}
	}
	found := d.ready(ctx)
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if err := found[what]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if out, _ := d.withdrawn.now(); out {
		errs = append(errs, errWithdrawn)
	}
	f := fleet.NewFeature(name, errors.Join(errs...))
	f.Settings = map[string]string{"site": string(d.parts.site), "trust_domain": d.cfg.TrustDomain}
	if pauses := o.Pauses.List(); len(pauses) > 0 && f.State == fleet.FeatureRunning {
		f.Reason = o.Pauses.Standing().Error()
		if pauses[0].Site == "" || pauses[0].Site == d.parts.site {
			f.State = fleet.FeatureDisabled
		}
	}
	return f
}

// errWithdrawn says that nodes are served all the same.
var errWithdrawn = errors.New("requests are left to other provisioners meanwhile")

func (d *Daemon) sealedFeature() fleet.Feature {
	if d.parts.opener == nil {
		return disabled("sealed")
	}
	f := fleet.NewFeature("sealed", nil)
	for _, k := range d.parts.sealKeys {
		f.Capabilities = append(f.Capabilities, "key:"+k.Public().ID())
	}
	return f
}

func (d *Daemon) storeFeature() fleet.Feature {
	f := fleet.NewFeature("store", d.alarms.Stands(wire.CodeStoreUnavailable))
	if s := d.Store(); s != nil {
		f.Settings = map[string]string{"replicas": strconv.Itoa(s.Replicas())}
	}
	if low := d.alarms.Stands(wire.CodeStorageLow); low != nil && f.State == fleet.FeatureRunning {
		f.Reason = low.Error() // new names wait, and the rest goes on
	}
	return f
}

func (d *Daemon) caFeature() fleet.Feature {
	f := fleet.NewFeature("ca", d.Usable())
	f.Settings = map[string]string{"fingerprint": d.CAFingerprint(), "trust_domain": d.cfg.TrustDomain}
	f.Capabilities = []string{"until:" + d.parts.authority.NotAfter().UTC().Format(time.RFC3339)}
	return f
}

// webhookFeature has failed while an endpoint takes nothing.
func (d *Daemon) webhookFeature() fleet.Feature {
	all := d.webhooks.List()
	if len(all) == 0 {
		return disabled("webhooks")
	}
	f := fleet.NewFeature("webhooks", d.alarms.Stands(events.AlarmWebhookFailed))
	for _, w := range all {
		f.Capabilities = append(f.Capabilities, "webhook:"+w.Name)
	}
	return f
}

// crlFeature has failed when the newest list of one issuer is over: whoever reads
// it has nothing to go by.
func (d *Daemon) crlFeature() fleet.Feature {
	all := d.CRLs()
	if len(all) == 0 {
		return fleet.Feature{Name: "crl", State: fleet.FeatureStarting}
	}
	var errs []error
	var has []string
	for _, c := range all {
		if d.opts.Now().After(c.NextUpdate) {
			errs = append(errs, fmt.Errorf("number %d of issuer %s ended at %s", c.Number, c.Issuer, c.NextUpdate.Format(time.RFC3339)))
		}
		has = append(has, fmt.Sprintf("issuer:%s", c.Issuer))
	}
	f := fleet.NewFeature("crl", errors.Join(errs...))
	f.Capabilities = has
	f.Settings = map[string]string{"validity": cmp.Or(d.cfg.CRL.Validity, trust.DefaultCRLValidity).String()}
	return f
}

// errNotConnected says that a connection of ours to the broker is not there.
var errNotConnected = errors.New("not connected to the broker")

func (d *Daemon) brokerFeatures() []fleet.Feature {
	var err error
	if !d.connected() {
		err = errNotConnected
	}
	f := fleet.NewFeature("broker", err)
	callout, websocket := disabled("callout"), disabled("websocket")
	if d.embedded != nil {
		f.Settings = map[string]string{"kind": "embedded", "listen": d.cfg.Broker.Listen}
		if d.cfg.Broker.WebSocket.Listen != "" {
			websocket = fleet.NewFeature("websocket", err)
			websocket.Settings = map[string]string{"listen": d.cfg.Broker.WebSocket.Listen}
		}
		return []fleet.Feature{f, callout, websocket}
	}
	f.Settings = map[string]string{"kind": "external"} // URLs of others may hold credentials
	callout = fleet.Feature{Name: "callout", State: fleet.FeatureStarting}
	select {
	case <-d.asked:
		callout.State = fleet.FeatureRunning
	default:
	}
	if cause := d.unasked.Load(); cause != nil {
		callout = fleet.NewFeature("callout", *cause)
	} else if err := d.external.Unread(); err != nil {
		callout = fleet.NewFeature("callout", err)
	}
	return []fleet.Feature{f, callout, websocket}
}

func (d *Daemon) policyFeatures() []fleet.Feature {
	decides := fleet.NewFeature("policy", cmp.Or(d.parts.policy.Refused(), d.alarms.Stands(wire.CodePolicyFailed)))
	decides.Capabilities = []string{"digest:" + d.parts.policy.Digest()}
	shadow := disabled("shadow_policy")
	if d.parts.shadow != nil {
		shadow = fleet.NewFeature("shadow_policy", d.parts.shadow.Refused())
		shadow.Capabilities = []string{"digest:" + d.parts.shadow.Digest()}
	}
	return []fleet.Feature{decides, shadow}
}

// configurationFeatures are the template, the helper, and the command that
// approves. What programs answer is each node's own matter; whether they are there
// is not.
func (d *Daemon) configurationFeatures() []fleet.Feature {
	template, helped, autosign := disabled("template"), disabled("helper"), disabled("autosign")
	if d.cfg.Configuration.Template != "" {
		template = fleet.NewFeature("template", nil)
	}
	if h := d.parts.helper; h != nil {
		helped = fleet.NewFeature("helper", h.Check())
		helped.Settings = map[string]string{"program": h.Program()} // arguments may hold secrets
	}
	if h := d.parts.autosign; h != nil {
		autosign = fleet.NewFeature("autosign", h.Check())
		autosign.Settings = map[string]string{"program": h.Program()}
	}
	return []fleet.Feature{template, helped, autosign}
}

func (d *Daemon) reportFeatures() []fleet.Feature {
	events, inputs := fleet.NewFeature("events", nil), disabled("inputs")
	if s := d.Store(); s != nil {
		if n := d.eventsLost.lately(s.Lost(), time.Now()); n > 0 {
			events = fleet.NewFeature("events", fmt.Errorf("%d events were lost within the last minute", n))
		}
	}
	if d.recorder != nil {
		_, dropped := d.recorder.Counts()
		inputs = fleet.NewFeature("inputs", nil)
		if n := d.inputsLost.lately(dropped, time.Now()); n > 0 {
			inputs = fleet.NewFeature("inputs", fmt.Errorf("%d decisions were not recorded within the last minute", n))
		}
		inputs.Settings = map[string]string{"max_bytes": d.cfg.Inputs.MaxBytes}
	}
	return []fleet.Feature{events, inputs}
}

func (d *Daemon) apiFeature() fleet.Feature {
	if d.parts.api == nil {
		return disabled("api") // the socket is there all the same, or nobody could ask
	}
	f := fleet.NewFeature("api", d.parts.api.usable(d.opts.Now()))
	f.Settings = map[string]string{"listen": d.cfg.API.Listen}
	if names := slices.Concat(d.cfg.API.Names, d.cfg.API.Addresses); len(names) > 0 {
		f.Settings["names"] = strings.Join(names, ", ")
	}
	return f
}

// factsFeature says which facts we keep.
func (d *Daemon) factsFeature() fleet.Feature {
	return fleet.NewFactsFeature(d.cfg.Fleet.Facts)
}

func (d *Daemon) allowFeature() fleet.Feature {
	if d.parts.allow.path == "" {
		return disabled("allow_list")
	}
	var err error
	if cause := d.parts.allow.unread.Load(); cause != nil {
		err = *cause
	}
	return fleet.NewFeature("allow_list", err)
}

// losses says of a count that only grows how much it has grown lately. It is for
// one goroutine.
type losses struct {
	before uint64
	since  time.Time // when it grew last, zero if it never has
	grown  uint64
}

// lossesFor is how long a loss keeps a feature failed; chosen, long enough to be seen.
const lossesFor = time.Minute

// lately takes the count as it is now.
func (l *losses) lately(count uint64, now time.Time) uint64 {
	if count > l.before {
		if now.Sub(l.since) > lossesFor {
			l.grown = 0
		}
		l.grown, l.before, l.since = l.grown+count-l.before, count, now
	}
	if l.since.IsZero() || now.Sub(l.since) > lossesFor {
		return 0
	}
	return l.grown
}
