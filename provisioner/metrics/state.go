package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

// State has the values of one scrape. Nil members are unknown and not exported.
type State struct {
	InHand        int64          // requests in progress
	Alarms        []events.Alarm // active
	EventsDropped uint64         // since the start
	AuthorityEnds time.Time      // end of the issuing authority; zero is unknown
	Stored        *Stored
	Nodes         *fleet.Summary
	Services      *services.Counts
	Webhooks      []events.Webhook
}

// Stored is the size of the embedded broker's store in bytes.
type Stored struct{ Used, Limit int64 }

type stateCollector func() State

// Describe implements [prometheus.Collector]. It describes nothing, since the set of metrics depends on the state.
func (s stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s stateCollector) Collect(c chan<- prometheus.Metric) {
	now, out := s(), scrape{c}
	out.gauge("muster_requests_in_hand", "Requests in progress.", float64(now.InHand))
	out.counter("muster_events_dropped_total", "Events lost because the broker did not accept them.", now.EventsDropped)
	for _, code := range events.AlarmCodes {
		stands := 0.0
		if slices.ContainsFunc(now.Alarms, func(a events.Alarm) bool { return a.Code == code }) {
			stands = 1
		}
		out.gauge("muster_alarm_standing", "1 while the alarm is active: an operator must act.", stands,
			label{"code", string(code)})
	}
	if !now.AuthorityEnds.IsZero() {
		out.gauge("muster_authority_not_after_timestamp_seconds", "When the issuing certificate authority expires.",
			float64(now.AuthorityEnds.Unix()))
	}
	for i := range now.Webhooks {
		out.webhook(&now.Webhooks[i])
	}
	if u := now.Stored; u != nil {
		out.gauge("muster_store_used_bytes", "Size of the embedded broker's streams.", float64(u.Used))
		out.gauge("muster_store_limit_bytes", "Size limit of the embedded broker's streams.", float64(u.Limit))
	}
	if k := now.Nodes; k != nil {
		const soon = "Live certificates that expire within this time; renewal is due after two " +
			"thirds of their lifetime."
		out.gauge("muster_certificates_live", "Confirmed certificates that have not expired.", float64(k.Live))
		out.gauge("muster_certificates_expired",
			"Nodes on record, neither revoked nor retired, whose certificate has expired.", float64(k.Expired))
		out.gauge("muster_certificates_expiring", soon, float64(k.Day), label{"within", "1d"})
		out.gauge("muster_certificates_expiring", soon, float64(k.Week), label{"within", "7d"})
		for _, is := range []fleet.ConnectionState{fleet.Yes, fleet.No, fleet.Unknown} {
			out.gauge("muster_nodes_connected", "Nodes in the fleet with muster's agent, by whether they are "+
				"connected to a broker.", float64(k.Connected[is]), label{"connected", string(is)})
		}
	}
	if k := now.Services; k != nil {
		for _, state := range services.States {
			out.gauge("muster_service_certificates", "Service certificates of nodes, by state.",
				float64(k.States[state]), label{"state", string(state)})
		}
		out.gauge("muster_service_certificates_stuck", "Service certificates that are stuck, as their nodes report.",
			float64(k.Stuck))
	}
}

type scrape struct{ out chan<- prometheus.Metric }

type label struct{ name, value string }

func (l scrape) gauge(name, help string, v float64, labels ...label) {
	l.add(prometheus.GaugeValue, name, help, v, labels)
}

func (l scrape) counter(name, help string, n uint64, labels ...label) {
	l.add(prometheus.CounterValue, name, help, float64(n), labels)
}

func (l scrape) add(t prometheus.ValueType, name, help string, v float64, labels []label) {
	var names, values []string
	for _, one := range labels {
		names, values = append(names, one.name), append(values, one.value)
	}
	l.out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), t, v, values...)
}

func (l scrape) webhook(w *events.Webhook) {
	const deliveries = "Attempts to deliver events to a webhook, delivered or failed; given_up counts abandoned events."
	which := label{"webhook", w.Name}
	for result, n := range map[string]uint64{"delivered": w.Delivered, "failed": w.Failed, "given_up": w.GivenUp} {
		l.counter("muster_webhook_deliveries_total", deliveries, n, which, label{"result", result})
	}
	l.gauge("muster_webhook_waiting_events",
		"Events waiting for a webhook's endpoint, of all provisioners; updated every ten "+
			"seconds.", float64(w.Waiting), which)
	l.gauge("muster_webhook_lag_seconds", "Age of the event that was tried last; 0 if none waits.", w.Lag.Seconds(),
		which)
}
