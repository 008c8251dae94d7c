package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/metrics"
)

func TestActivityOfAClockThatWasAheadIsNotRecent(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(24 * time.Hour)
	a := newActivity(metrics.New("test", nil))
	a.now = func() time.Time { return now }
	a.Done(provisioner.RequestEnroll, time.Millisecond, "")
	a.Rejected("token_expired")
	now = now.Add(-23 * time.Hour)
	if got := a.recent(); got.Enrolled != 0 || len(got.Refused) != 0 {
		t.Errorf("recent = %+v", got)
	}
}

func TestSRVTargetsAreLookedUpAgainAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Now().AddDate(1, 0, 0)
	r, err := newReserved(DefaultConfig(), nil,
		Options{
			Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no name server")
			}},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Now: func() time.Time { return now },
		})
	if err != nil {
		t.Fatal(err)
	}
	r.hosts("fleet.test")
	now = now.AddDate(-1, 0, 1)
	r.hosts("fleet.test")
	if n := strings.Count(log.String(), "broker names are not reserved"); n != 2 {
		t.Errorf("%d look-ups, want 2: there is no other for a year", n)
	}
}
