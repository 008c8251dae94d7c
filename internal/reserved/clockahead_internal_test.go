package reserved

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

func TestSRVTargetsAreLookedUpAgainAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Now().AddDate(1, 0, 0)
	noServer := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server")
	}}
	r, err := New(nil, noServer, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
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
