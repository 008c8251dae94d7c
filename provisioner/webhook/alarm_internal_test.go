package webhook

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"muster/provisioner/events"
)

// TestAlarmEndsIfAnotherProvisionerDelivers has an endpoint fail for an event that another provisioner delivers later.
func TestAlarmEndsIfAnotherProvisionerDelivers(t *testing.T) {
	t.Parallel()
	alarms := events.NewAlarms(events.AlarmConfig{Name: "prov1.fleet.test", Log: slog.New(slog.DiscardHandler)})
	s, err := New([]Config{{Name: "pager", URL: "https://pager.test/", AlarmAfter: time.Nanosecond}}, alarms)
	if err != nil {
		t.Fatal(err)
	}
	h := s.hooks[0]
	d := &events.Delivery{ID: "1", Tries: 1, Event: &events.Stored{Type: events.Refused, Time: time.Now()}}
	h.failed(t.Context(), d, "no answer within 15s", false)
	for alarms.Stands(events.AlarmWebhookFailed) == nil {
		h.failed(t.Context(), d, "no answer within 15s", false) // until a nanosecond has passed
	}
	h.setWaiting(t.Context(), 0) // by another provisioner
	if err := alarms.Stands(events.AlarmWebhookFailed); err != nil {
		t.Errorf("the alarm stands: %v", err)
	}
	if w := s.List()[0]; !w.FailingSince.IsZero() || w.Cause != "" {
		t.Errorf("failing since %v: %s", w.FailingSince, w.Cause)
	}
}

// duringLog is a log that calls meanwhile once, when an event is given up.
type duringLog struct {
	slog.Handler
	meanwhile func()
}

func (l *duringLog) Handle(_ context.Context, r slog.Record) error {
	if f := l.meanwhile; f != nil && r.Message == "event given up" {
		l.meanwhile = nil
		f()
	}
	return nil
}

func (l *duringLog) Enabled(context.Context, slog.Level) bool { return true }

// TestAlarmFollowsThePresentState has an event delivered between the giving up of another and the alarm about that: no
// alarm is raised, since no event may come for days that would clear it.
func TestAlarmFollowsThePresentState(t *testing.T) {
	t.Parallel()
	alarms := events.NewAlarms(events.AlarmConfig{Name: "prov1.fleet.test"})
	log := &duringLog{Handler: slog.DiscardHandler}
	s, err := New([]Config{{Name: "pager", URL: "https://pager.test/", Log: slog.New(log)}}, alarms)
	if err != nil {
		t.Fatal(err)
	}
	h := s.hooks[0]
	d := &events.Delivery{ID: "1", Tries: 1, Event: &events.Stored{Type: events.Refused, Time: time.Now()}}
	log.meanwhile = func() { h.delivered(t.Context(), d) }
	h.failed(t.Context(), d, "status 500", true)
	if log.meanwhile != nil {
		t.Fatal("nothing was given up")
	}
	h.setWaiting(t.Context(), 0)
	if err := alarms.Stands(events.AlarmWebhookFailed); err != nil {
		t.Errorf("the endpoint has taken the last event, and the alarm stands: %v", err)
	}
}
