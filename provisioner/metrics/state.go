package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// State is what is looked up at a scrape. What is not known yet is nil, and not
// exported: an absent series is no zero.
type State struct {
	InHand        int64          // requests that are being worked on
	Sources       int            // of attempts, lately
	TopSource     int64          // failed attempts of the source with the most, since the start
	Alarms        []events.Alarm // that stand
	StoreUp       bool           // it can be written, as far as is known
	EventsDropped uint64         // since the start
	Paused        int            // pauses of enrollment that stand
	Frozen        bool           // a restore has frozen limited tokens
	AuthorityEnds time.Time      // when the issuing authority does; zero is unknown
	Stored        *Stored
	Certificates  *Certificates
	Webhooks      []events.Webhook
	CRLBytes      int // of the longest CRL; zero is unknown
}

// Stored is how full the embedded broker's store is, in bytes.
type Stored struct{ Used, Limit int64 }

// Certificates are those that nodes have confirmed and that are neither revoked nor
// retired.
type Certificates struct {
	Live    int // that have not ended
	Day     int // those of Live that end within it
	Week    int // those of Day among them
	Expired int // of nodes that are off, or cannot renew
}

// stateCollector exports what it returns.
type stateCollector func() State

// gauge describes one value that is looked up.
func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descInHand  = gauge("muster_requests_in_hand", "Requests that are being worked on.")
	descSources = gauge("muster_attempt_sources", "Addresses from which requests that prove nothing have come within the last seconds.")
	descTop     = gauge("muster_attempts_top_source", "Failed attempts of the source with the most, since the start; GET /v1/attempts says who it is.")
	descAlarm   = gauge("muster_alarm_standing", "1 while the alarm stands: somebody must act.", "code")
	descStoreUp = gauge("muster_store_up", "1 if the store can be written, as far as is known.")
	descDropped = gauge("muster_events_dropped_total", "Events that were lost since the broker did not take them.")
	descFrozen  = gauge("muster_tokens_frozen", "1 if a restore has frozen the limited tokens that were signed before it.")
	descPaused  = gauge("muster_enrollment_paused", "Pauses of enrollment that stand: of the installation, or of sites.")
	descEnds    = gauge("muster_authority_not_after_timestamp_seconds", "When the issuing certificate authority expires.")
	descUsed    = gauge("muster_store_used_bytes", "Size of the embedded broker's streams.")
	descLimit   = gauge("muster_store_limit_bytes", "Size at which the embedded broker takes no more.")
	descLive    = gauge("muster_certificates_live", "Certificates that nodes have confirmed and that have not ended.")
	descSoon    = gauge("muster_certificates_expiring", "Those of muster_certificates_live that end within the time; renewal is due at two thirds of their life.", "within")
	descWebhook = gauge("muster_webhook_deliveries_total", "Attempts to deliver events to a webhook: delivered or failed; given_up counts events that are not tried any more.", "webhook", "result")
	descWaiting = gauge("muster_webhook_waiting_events", "Events that a webhook's endpoint has not taken, of all provisioners; looked up every ten seconds.", "webhook")
	descLag     = gauge("muster_webhook_lag_seconds", "Age of the event whose delivery was tried last; 0 if none waits.", "webhook")
	descCRL     = gauge("muster_crl_bytes", "Size of the longest list of revoked certificates.")
	descCRLMost = gauge("muster_crl_limit_bytes", "Size above which none is signed.")
	descExpired = gauge("muster_certificates_expired", "Nodes on record, neither revoked nor retired, whose certificate has ended.")
)

// Describe implements [prometheus.Collector].
func (s stateCollector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descInHand, descSources, descTop, descAlarm, descStoreUp, descDropped, descFrozen, descPaused, descEnds, descUsed, descLimit,
		descLive, descSoon, descExpired, descWebhook, descWaiting, descLag, descCRL, descCRLMost} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (s stateCollector) Collect(c chan<- prometheus.Metric) {
	now := s()
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(descInHand, float64(now.InHand))
	set(descSources, float64(now.Sources))
	set(descTop, float64(now.TopSource))
	set(descStoreUp, truth(now.StoreUp))
	set(descFrozen, truth(now.Frozen))
	set(descPaused, float64(now.Paused))
	c <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(now.EventsDropped))
	for _, code := range events.AlarmCodes {
		set(descAlarm, truth(stands(now.Alarms, code)), string(code))
	}
	if !now.AuthorityEnds.IsZero() {
		set(descEnds, float64(now.AuthorityEnds.Unix()))
	}
	for i := range now.Webhooks {
		w := &now.Webhooks[i]
		for result, n := range map[string]uint64{"delivered": w.Delivered, "failed": w.Failed, "given_up": w.GivenUp} {
			c <- prometheus.MustNewConstMetric(descWebhook, prometheus.CounterValue, float64(n), w.Name, result)
		}
		set(descWaiting, float64(w.Waiting), w.Name)
		set(descLag, w.Lag.Seconds(), w.Name)
	}
	if u := now.Stored; u != nil {
		set(descUsed, float64(u.Used))
		set(descLimit, float64(u.Limit))
	}
	if now.CRLBytes > 0 {
		set(descCRL, float64(now.CRLBytes))
		set(descCRLMost, provisioner.MaxCRLBytes)
	}
	if k := now.Certificates; k != nil {
		set(descLive, float64(k.Live))
		set(descExpired, float64(k.Expired))
		set(descSoon, float64(k.Day), "1d")
		set(descSoon, float64(k.Week), "7d")
	}
}

func stands(alarms []events.Alarm, code wire.Code) bool {
	return slices.ContainsFunc(alarms, func(a events.Alarm) bool { return a.Code == code })
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
