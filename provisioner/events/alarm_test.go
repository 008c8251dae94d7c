package events_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// listened returns alarms with their events and log.
func listened() (*events.Alarms, *[]events.Event, *bytes.Buffer) {
	var emitted []events.Event
	var log bytes.Buffer
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := events.NewAlarms(events.AlarmConfig{
		Name: "provisioner1.example.net", Emit: func(e events.Event) { emitted = append(emitted, e) },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Now: func() time.Time { now = now.Add(time.Second); return now },
	})
	return a, &emitted, &log
}

func TestAlarmIsRaisedOnce(t *testing.T) {
	t.Parallel()
	a, emitted, log := listened()
	ctx := t.Context()
	first, second := errors.New("first cause"), errors.New("second cause")
	a.Set(ctx, wire.CodeStorageLow, nil) // an alarm that is not active
	for range 3 {
		a.Set(ctx, wire.CodeStorageLow, first)
		a.Set(ctx, wire.CodeStorageLow, second)
	}
	a.Set(ctx, wire.CodeClockBehind, first)
	if got := a.Stands(wire.CodeStorageLow); !errors.Is(got, second) {
		t.Errorf("Stands = %v, want the newest cause", got)
	}
	var codes []wire.Code
	for _, s := range a.Standing() {
		codes = append(codes, s.Code)
	}
	if diff := cmp.Diff([]wire.Code{wire.CodeStorageLow, wire.CodeClockBehind}, codes); diff != "" {
		t.Errorf("Standing: -want +got\n%s", diff)
	}
	for range 3 {
		a.Set(ctx, wire.CodeStorageLow, nil)
	}
	if a.Stands(wire.CodeStorageLow) != nil || len(a.Standing()) != 1 {
		t.Errorf("Standing = %v, want the other alone", a.Standing())
	}
	var types []events.Type
	for _, e := range *emitted {
		types = append(types, e.Type)
		if e.Node != "provisioner1.example.net" || e.Code == "" || e.Cause == "" || e.Attempt == "" {
			t.Errorf("event %+v lacks something", e)
		}
	}
	if diff := cmp.Diff([]events.Type{events.AlarmRaised, events.AlarmRaised, events.AlarmCleared}, types); diff != "" {
		t.Errorf("events: -want +got\n%s", diff)
	}
	if last := (*emitted)[2]; last.Elapsed <= 0 || last.Cause != "second cause" {
		t.Errorf("cleared after %v because of %q", last.Elapsed, last.Cause)
	}
	if got := strings.Count(log.String(), "alarm raised"); got != 2 {
		t.Errorf("%d lines say that an alarm was raised, want 2:\n%s", got, log)
	}
}

// TestEveryAlarmHasARemedy of its own, not that of a denied node.
func TestEveryAlarmHasARemedy(t *testing.T) {
	t.Parallel()
	for _, code := range events.AlarmCodes {
		if got := events.AlarmRemedy(code); got == "" || got == wire.MeaningOf(wire.CodeDenied).Remedy {
			t.Errorf("%s: %q", code, got)
		}
	}
	if got := events.AlarmRemedy(wire.CodeTokenExpired); got != wire.MeaningOf(wire.CodeTokenExpired).Remedy {
		t.Errorf("of a refusal: %q", got)
	}
}

// TestEndedAlarmIsNotRaisedAgain ends a cause and clears its alarm after another goroutine has seen the cause and
// before that raises the alarm.
func TestEndedAlarmIsNotRaisedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := events.NewAlarms(events.AlarmConfig{})
		a.Keep(t.Context(), events.AlarmAllowsAll, func() error {
			go a.Keep(t.Context(), events.AlarmAllowsAll, func() error { return nil })
			synctest.Wait() // cleared, or waiting for us
			return errors.New("an entry that was removed just now")
		})
		synctest.Wait()
		if err := a.Stands(events.AlarmAllowsAll); err != nil {
			t.Errorf("the alarm stands by %v", err)
		}
	})
}
