package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// short fails the test if an error is not short, or several lines.
func short(t *testing.T, of string, err error, lines int) {
	t.Helper()
	if n := len(err.Error()); n > 200+12*len(of) || strings.Count(err.Error(), "\n") >= lines {
		t.Fatalf("%.300q is refused in %d bytes: %.300q", of, n, err)
	}
}

// FuzzQueries checks that what is read of the query of a request is the same once it is written
// again: what selects nodes here selects these and no others elsewhere.
func FuzzQueries(f *testing.F) {
	for _, s := range []string{
		"state=enrolled&state=revoked&site=ams1&prefix=web&match=*.example.net&expires_before=2027-01-31T12:00:00Z&limit=10&sort=name&fact=role%3Dweb",
		"expires_before=2027-01-31T12:00:00%2B24:00", "seen_before=9999-12-31T23:59:59-01:00&cursor=e30", "limit=-1&limit=2", "token=0123456789abcdef0123456789abcdef&policy=a",
		"prefix=web&name=web*&name=db*&site=ams1&token=01234567&from=192.0.2.1/24&fact=rack%3Dr*", "from=::ffff:192.0.2.1/8&from=fe80::1%25eth0",
		"after=1-2&type=io.muster.node.&node=web1.example.net&code=denied&once=true", "since=2027-01-31T12:00:00Z&once=perhaps", "a=%zz;",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		names := len(v) + strings.Count(text, "&") + 2
		if q, err := httpapi.ParseNodeQuery(v); err != nil {
			short(t, text, err, names)
		} else if err := q.Check(); err != nil {
			short(t, text, err, 2*names)
		} else {
			again, err := httpapi.ParseNodeQuery(httpapi.NodeQuery(q))
			q.ExpiresBefore, q.SeenBefore = q.ExpiresBefore.UTC().Truncate(time.Second), q.SeenBefore.UTC().Truncate(time.Second)
			if err != nil && !beyond(q) || err == nil && !reflect.DeepEqual(again, filled(q)) {
				t.Fatalf("%q is %+v, and that is %+v, %v", text, q, again, err)
			}
		}
		w := httpapi.WaitingFilterOf(v)
		if _, err := w.Compile(); err != nil {
			short(t, text, err, names)
		}
		if again := httpapi.WaitingFilterOf(w.Query()); !reflect.DeepEqual(again, w) && fmt.Sprint(again) != fmt.Sprint(w) {
			t.Fatalf("%q is %+v, and that is %+v", text, w, again)
		}
		if _, err := httpapi.ParseEventQuery("", v); err != nil {
			short(t, text, err, names)
		}
	})
}

// beyond reports whether an instant of a query is of no year of RFC 3339 in UTC.
func beyond(q fleet.Query) bool {
	for _, at := range []time.Time{q.ExpiresBefore, q.SeenBefore} {
		if y := at.Year(); y < 0 || y > 9999 {
			return true
		}
	}
	return false
}

// filled is a query as it is written: what is empty is not.
func filled(q fleet.Query) fleet.Query {
	var facts []string
	for _, fact := range q.Facts {
		if fact != "" {
			facts = append(facts, fact)
		}
	}
	q.Facts = facts
	return q
}

// bodies are what requests of each kind have.
func bodies() []any {
	return []any{
		new(httpapi.Reason), new(httpapi.Release), new(httpapi.TokenText), new(httpapi.IssuedToken), new(httpapi.AddSigner), new(httpapi.NewGrant), new(httpapi.Change),
		new(httpapi.NodeCommand), new(httpapi.NewVerdict), new(httpapi.NewAllowance), new(httpapi.OldAllowance), new(httpapi.NewPause), new(httpapi.Resumption), new(httpapi.AddOperator),
	}
}

// addBodies adds bodies that requests have, and others.
func addBodies(f *testing.F) {
	at := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	for i, b := range []any{
		httpapi.Reason{Why: "a reason"}, httpapi.Release{Of: "web1.example.net"}, httpapi.Change{Why: "gone", SeenBefore: at, Seen: provisioner.Seen{Revision: 7, OwnedSince: at}}, httpapi.NewGrant{TTL: time.Hour, ID: "a"},
		httpapi.NewVerdict{Key: "01234567", TTL: time.Hour, Waiting: true}, httpapi.NewAllowance{Pattern: "web*.example.net", Uses: 2, Expires: time.Hour}, httpapi.NewPause{Site: "ams1", Renewals: true},
		httpapi.NodeCommand{ID: "a", Token: "x"}, map[string]any{"name": "anna", "role": "viewer", "public": []byte("x"), "ttl_ns": 1e300},
	} {
		text, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), text)
	}
	for _, s := range []string{`{"why":"a","why":"b"}`, `{"Why":"a"}`, `{"ttl_ns":1e999}`, `{"why":"\ud800"}`, `null`, `[]`, ``, `{"why":{}}`, `{} {}`} {
		f.Add(byte(4), []byte(s))
	}
}

// FuzzDecodeBodies checks that a body that is taken says the same once it is written again, and
// that one that is not is refused in a short line.
func FuzzDecodeBodies(f *testing.F) {
	addBodies(f)
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		q, again := bodies()[int(kind)%len(bodies())], bodies()[int(kind)%len(bodies())]
		if err := wire.DecodeStrict(b, q); err != nil {
			if n := len(err.Error()); n > 1000 || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%d bytes: %.200q", n, err)
			}
			return
		}
		once, err := json.Marshal(q)
		if err != nil {
			return // an instant that is read and not written
		}
		if err := wire.DecodeStrict(once, again); err != nil {
			t.Fatalf("%T: our own encoding is refused: %v", q, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%T: %s became %s, %v", q, once, twice, err)
		}
	})
}

// FuzzBodies sends bodies to every route of a whole provisioner, over its socket. Nobody can
// make it fail, what it refuses is refused in one short line, and then nothing has changed.
func FuzzBodies(f *testing.F) {
	addBodies(f)
	fl := testbed.New(f, testbed.Options{Quiet: true, DefaultPolicy: true, AllowList: "allow:\n  - pattern: web*.example.net\n"})
	n := fl.Node("web1.example.net")
	fl.Apply(n, fl.Enroll(n))
	fl.Refused(fl.Node("db1.example.net"))
	path := filepath.Join(fl.Dir, "data", httpapi.SocketName)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	var paths []string
	for _, pattern := range httpapi.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		// A backup and a message to a node take longer than all others together.
		if method == http.MethodPost && path != "/v1/backup" {
			path = strings.NewReplacer("{tid}", "0123456789abcdef0123456789abcdef", "{id}", strings.Repeat("0a", 32), "{name}", "anna").Replace(path)
			paths = append(paths, strings.ReplaceAll(path, "{identity}", "web1.example.net"), strings.ReplaceAll(path, "{identity}", "db1.example.net"))
		}
	}
	f.Fuzz(func(t *testing.T, route byte, b []byte) {
		before := counted(t, fl)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provisioner"+paths[int(route)%len(paths)], bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode < http.StatusBadRequest {
			return
		}
		var p httpapi.Problem
		switch err := json.Unmarshal(answer, &p); {
		case err != nil || p.Status != resp.StatusCode || p.Detail == "" || len(p.Detail) > 2100 || strings.Contains(p.Detail, "\n"):
			t.Fatalf("%s: %d %.300q, %v", r.URL.Path, resp.StatusCode, answer, err)
		case resp.StatusCode == http.StatusInternalServerError:
			t.Fatalf("%s: failed: %.300q", r.URL.Path, p.Detail)
		}
		if after := counted(t, fl); after != before {
			t.Fatalf("%s: refused with %d, and %s became %s", r.URL.Path, resp.StatusCode, before, after)
		}
	})
}

// counted is how much there is of all that a request could change.
func counted(t *testing.T, f *testbed.Fleet) string {
	t.Helper()
	p := f.Daemon().Operator()
	operators, err := p.ListOperators(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	signers, err := p.ListSigners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := p.Allowances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, revision, err := f.Daemon().Store().Record(t.Context(), "web1.example.net")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(len(operators), len(signers), len(allowed), len(p.Rejected()), len(p.Pauses()), len(p.Revocations().Tokens()), revision)
}
