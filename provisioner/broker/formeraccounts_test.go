package broker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"muster/provisioner/broker"
)

// asStreams makes of a server's configuration one from before what nodes say crossed
// between the accounts as services.
func asStreams(t *testing.T, text string) string {
	t.Helper()
	for _, subject := range []string{"muster.v1.event.*.*", "muster.v1.registration.*"} {
		for _, r := range []struct{ from, to string }{
			{`      {service: "` + subject + `", accounts: ["FLEET"], response_threshold: "100ms"}` + "\n", ""},
			{`      {service: {account: "MUSTER", subject: "` + subject + `"}}` + "\n", ""},
			{`      {service: {account: "FLEET", subject: "muster.v1.command.*"}}` + "\n", `      {service: {account: "FLEET", subject: "muster.v1.command.*"}}
      {stream: {account: "FLEET", subject: "` + subject + `"}}` + "\n"},
			{`      {service: "muster.v1.command.*", accounts: ["MUSTER"]}` + "\n", `      {service: "muster.v1.command.*", accounts: ["MUSTER"]}
      {stream: "` + subject + `", accounts: ["MUSTER"]}` + "\n"},
		} {
			bare := func(s string) string {
				for _, a := range []string{"FLEET", "MUSTER"} {
					s = strings.ReplaceAll(s, `"`+a+`"`, a)
				}
				return s
			}
			before := text
			if text = strings.Replace(text, bare(r.from), bare(r.to), 1); text == before {
				t.Fatalf("no %s in:\n%s", bare(r.from), text)
			}
		}
	}
	return text
}

// unasked takes the permission to ask for accounts out of a server's configuration.
func unasked(text string) string {
	return strings.Replace(text, `, "$SYS.REQ.SERVER.PING.ACCOUNTZ"`, "", 1)
}

// untagged makes of a server's configuration one that does not say how many places there are.
func untagged(t *testing.T, text string) string {
	t.Helper()
	bare := strings.ReplaceAll(text, "muster_places:", "rack:")
	if bare == text {
		t.Fatalf("no places in:\n%s", text)
	}
	return bare
}

// TestAccountsFromBeforeAreWarnedOf starts a provisioner at servers that were configured by
// several versions: it says which let nodes of the fleet write over records, or one token take all places, and what to do.
func TestAccountsFromBeforeAreWarnedOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(*testing.T, string) string
		want string // in the log; empty for no warning
	}{
		"of today":                    {func(_ *testing.T, text string) string { return text }, ""},
		"streams":                     {asStreams, "can write over records of others"},
		"streams, and not to be seen": {func(t *testing.T, text string) string { return unasked(asStreams(t, text)) }, "may be able to write over records of others"},
		"not to be seen":              {func(_ *testing.T, text string) string { return unasked(text) }, "may be able to write over records of others"},
		"without places":              {untagged, "any token can take all of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newServer(t, func(text string) string { return tt.edit(t, text) })
			var log bytes.Buffer
			e, err := broker.NewExternal(broker.ExternalConfig{
				URLs: o.url, Keys: o.keys, Gate: o.config(t).Gate, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := e.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if err := e.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			said := strings.Count(log.String(), "\n")
			switch {
			case tt.want == "" && said > 0, tt.want != "" && said != 1:
				t.Errorf("the log has %d lines:\n%s", said, log.String())
			case !strings.Contains(log.String(), tt.want), tt.want != "" && !strings.Contains(log.String(), "muster broker config"):
				t.Errorf("log = %s, want %q and what to do", log.String(), tt.want)
			}
		})
	}
}
