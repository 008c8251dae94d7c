package webhook

import (
	"log/slog"
	"testing"
	"time"

	"muster/provisioner"
)

// TestWhatAnotherProvisionerHasDeliveredIsOver has an endpoint fail for an event that
// another provisioner delivers later: nothing waits any more.
func TestWhatAnotherProvisionerHasDeliveredIsOver(t *testing.T) {
	t.Parallel()
	alarms := provisioner.NewAlarms(provisioner.AlarmConfig{Name: "prov1.fleet.test", Log: slog.New(slog.DiscardHandler)})
	s, err := New([]Config{{Name: "pager", URL: "https://pager.test/", AlarmAfter: time.Nanosecond}}, alarms)
	if err != nil {
		t.Fatal(err)
	}
	h := s.hooks[0]
	d := &provisioner.Delivery{ID: "1", Tries: 1, Event: &provisioner.StoredEvent{Type: provisioner.EventRefused, Time: time.Now()}}
	h.failed(t.Context(), d, "no answer within 15s", false)
	for alarms.Stands(provisioner.AlarmWebhookFailed) == nil {
		h.failed(t.Context(), d, "no answer within 15s", false) // until a nanosecond has passed
	}
	h.waits(t.Context(), 0) // by another provisioner
	if err := alarms.Stands(provisioner.AlarmWebhookFailed); err != nil {
		t.Errorf("the alarm stands: %v", err)
	}
	if w := s.List()[0]; !w.FailingSince.IsZero() || w.Cause != "" {
		t.Errorf("failing since %v: %s", w.FailingSince, w.Cause)
	}
}
