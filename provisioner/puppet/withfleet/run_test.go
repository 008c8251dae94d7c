package puppet_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

const (
	web1 = "web1.example.net"
	web2 = "web2.example.net"

	jsonType = "application/json"
	richType = "application/vnd.puppet.rich+json"
)

// admitAll is a policy that admits each node, and configures it by its facts.
const admitAll = `package muster.enroll

default allow := true

configuration := {"role": object.get(input.facts, "role", "none"), "secret_setting": "` + testbed.Setting + `"}
`

// ask sends a request with an Accept header, if it is not empty, and further headers.
func (a *agent) ask(method, path, body, accept string, header ...string) answer {
	a.t.Helper()
	a.headers = map[string]string{"Accept-Encoding": "identity"}
	for i := 0; i+1 < len(header); i += 2 {
		a.headers[header[i]] = header[i+1]
	}
	if accept != "" {
		a.headers["Accept"] = accept
	}
	return a.do(method, path, []byte(body))
}

// want is ask with the wanted status.
func (a *agent) want(status int, method, path, body, accept string, header ...string) string {
	a.t.Helper()
	got := a.ask(method, path, body, accept, header...)
	if got.status != status {
		a.t.Fatalf("%s %s: %d, want %d: %s (%s)", method, path, got.status, status, got.body, a.f.Cause(a.name))
	}
	return got.body
}

// form is the body of a catalog request with facts, which are encoded twice.
func form(name string, facts any) string {
	document, _ := json.Marshal(map[string]any{"name": name, "values": facts,
		"timestamp": "2026-11-29T01:11:20.222457424+00:00", "expiration": "2026-11-29T01:41:20.222710981+00:00"})
	encoded := strings.ReplaceAll(url.QueryEscape(string(document)), "+", "%20")
	return url.Values{
		"facts_format": {jsonType}, "facts": {encoded}, "environment": {"production"},
		"configured_environment": {"production"}, "check_environment": {"true"},
		"transaction_uuid": {"809578bf-5747-4626-b77e-d2d56c8bc5eb"}, "job_uuid": {""}, "static_catalog": {"true"},
		"checksum_type": {"sha256.sha384.sha512.sha224.md5"},
	}.Encode()
}

type catalogDocument struct {
	Name, Version, Environment string
	Format                     int `json:"catalog_format"`
	Resources                  []struct {
		Type, Title, Kind string
		Parameters        map[string]any
		Sensitive         []string `json:"sensitive_parameters"`
	}
	Edges []map[string]string
}

// catalog asks for the catalog of a run with facts.
func (a *agent) catalog(facts any) *catalogDocument {
	a.t.Helper()
	b := a.want(http.StatusOK, http.MethodPost, "/puppet/v3/catalog/"+a.name+"?environment=production",
		form(a.name, facts), richType+", "+jsonType)
	c := new(catalogDocument)
	if err := json.Unmarshal([]byte(b), c); err != nil {
		a.t.Fatal(err)
	}
	return c
}

// report sends the report of a run with errors.
func (a *agent) report(status string, errors ...string) {
	a.t.Helper()
	logs := []map[string]any{{"level": "notice", "message": "Applied catalog in 0.03 seconds", "file": nil}}
	for _, e := range errors {
		source := "Puppet"
		if e == "Facter" {
			source = e
		}
		logs = append(logs, map[string]any{"level": "err", "message": e, "source": source, "line": nil})
	}
	b, _ := json.Marshal(map[string]any{
		"host": a.name, "time": "2026-11-30T08:55:52.109717475+00:00", "configuration_version": nil,
		"report_format": 12, "puppet_version": "8.11.0", "status": status, "environment": "production", "noop": false,
		"logs": logs, "metrics": map[string]any{"resources": map[string]any{"name": "resources",
			"values": [][]any{{"total", "Total", 9}, {"skipped", "Skipped", 1}, {"failed", "Failed", len(errors)},
				{"changed", "Changed", 2}, {"out_of_sync", "Out of sync", 3}}},
			"time": map[string]any{"values": [][]any{{"total", "Total", 0.0678792}}}},
		"resource_statuses": map[string]any{"File[/x]": map[string]any{"events": []any{}}},
	})
	got := a.ask(http.MethodPut, "/puppet/v3/report/"+a.name+"?environment=production", string(b), jsonType)
	if got.status != http.StatusOK || got.body != "[]" || got.header.Get("Content-Type") != jsonType {
		a.t.Errorf("answer to the report: %d %s %s", got.status, got.header.Get("Content-Type"), got.body)
	}
}

// lastRun waits until the run that is kept of a node is as wanted.
func lastRun(f *testbed.Fleet, name, what string, good func(*fleet.Run) bool) (run *fleet.Run) {
	f.Eventually("the last run of "+name+": "+what, func() bool {
		var err error
		run, err = f.Daemon().Store().LastRun(f.Context(), wire.Identity(name))
		return err == nil && run != nil && good(run)
	})
	return run
}

func TestARunGetsTheConfigurationOfItsNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a := enrolled(t, f, web1)

	for path, want := range map[string]string{
		"node/" + web1 + "?environment=staging&configured_environment=staging": `{"environment":"staging","name":"` +
			web1 + `"}`,
		"file_metadatas/plugins?recurse=false&links=manage&environment=production": `[{"checksum":{"type":"ctime",` +
			`"value":"{ctime}2026-01-01 00:00:00 +0000"},"destination":null,"group":0,"links":"manage","mode":493,` +
			`"owner":0,"path":"/etc/puppetlabs/code/empty","relative_path":".","type":"directory"}]`,
		"file_metadatas/pluginfacts?recurse=true&links=follow&environment=production": `[{"checksum":{"type":"ctime",` +
			`"value":"{ctime}2026-01-01 00:00:00 +0000"},"destination":null,"group":0,"links":"follow","mode":493,` +
			`"owner":0,"path":"/etc/puppetlabs/code/empty","relative_path":".","type":"directory"}]`,
	} {
		got := a.ask(http.MethodGet, "/puppet/v3/"+path, "", jsonType+", text/pson")
		var document, wanted any
		if got.status != http.StatusOK || got.header.Get("Content-Type") != jsonType ||
			json.Unmarshal([]byte(got.body), &document) != nil || json.Unmarshal([]byte(want), &wanted) != nil ||
			fmt.Sprint(document) != fmt.Sprint(wanted) {
			t.Errorf("%s: %d, %s %s, want %s", path, got.status, got.header.Get("Content-Type"), got.body, want)
		}
	}
	before := f.Revisions(web1)
	c := a.catalog(map[string]any{"role": "a+b %41 &é", "os": map[string]any{"name": "Debian"}})
	if c.Name != web1 || c.Environment != "production" || c.Format != 2 || len(c.Resources) != 2 || len(c.Edges) != 1 ||
		c.Resources[0].Title != "/etc/muster" || c.Resources[1].Title != "/etc/muster/server.conf" ||
		c.Edges[0]["source"] != "File[/etc/muster]" || c.Edges[0]["target"] != "File[/etc/muster/server.conf]" {
		t.Fatalf("catalog %+v", c)
	}
	for _, r := range c.Resources {
		if r.Type != "File" || r.Kind != "compilable_type" {
			t.Errorf("resource %+v", r)
		}
	}
	file := c.Resources[1]
	content, _ := file.Parameters["content"].(string)
	sum := sha256.Sum256([]byte(content))
	if !strings.Contains(content, "role = a+b %41 &é\n") || !strings.Contains(content, testbed.Setting) ||
		file.Parameters["checksum_value"] != hex.EncodeToString(sum[:]) || file.Parameters["checksum"] != "sha256" ||
		file.Parameters["mode"] != "0640" || file.Parameters["owner"] != "root" ||
		!slices.Equal(file.Sensitive, []string{"content"}) {
		t.Errorf("resource %+v", file)
	}
	record := f.Record(web1)
	if got := fmt.Sprint(record.Facts); !strings.Contains(got, "Debian") {
		t.Errorf("facts on record: %s", got)
	}
	if again := a.catalog(map[string]any{"role": "a+b %41 &é", "os": map[string]any{"name": "Debian"}}); again.Version !=
		c.Version || again.Resources[1].Parameters["content"] != content {
		t.Errorf("catalog of the same facts: %s, want %s", again.Version, c.Version)
	}
	if other := a.catalog(map[string]any{"role": "db"}); other.Version == c.Version {
		t.Errorf("catalog of another configuration: version %s", other.Version)
	}
	if n := f.Revisions(web1); n <= before || n > before+6 {
		t.Errorf("%d revisions of the record, after %d", n, before)
	}
	if got := f.Record(web1); got.Current == nil || got.Current.Serial != record.Live(f.Clock.Now())[0] {
		t.Errorf("record: %+v", got)
	}
	f.Check()
}

func TestAConfigurationOfPuppetsOwnFile(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := true

configuration := {"puppet.file": "/etc/app/app.conf", "a": "b"} if input.facts.file == "good"

configuration := {"puppet.file": "../app.conf", "a": "b"} if input.facts.file == "bad"

configuration := {} if not input.facts.file
`})
	a := enrolled(t, f, web1)
	if c := a.catalog(map[string]any{}); len(c.Resources) != 0 || c.Environment != "production" {
		t.Errorf("catalog without a configuration: %+v", c)
	}
	c := a.catalog(map[string]any{"file": "good"})
	if len(c.Resources) != 1 || c.Resources[0].Title != "/etc/app/app.conf" ||
		strings.Contains(fmt.Sprint(c.Resources[0].Parameters["content"]), "puppet.file") {
		t.Errorf("catalog %+v", c)
	}
	b := a.want(http.StatusServiceUnavailable, http.MethodPost, "/puppet/v3/catalog/"+web1+"?environment=production",
		form(web1, map[string]any{"file": "bad"}), jsonType)
	if !strings.Contains(b, `"message":"configuration_failed: `) {
		t.Errorf("a file that Puppet cannot write: %s", b)
	}
	f.Check()
}

func TestARunIsOfItsOwnNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a, _ := enrolled(t, f, web1), enrolled(t, f, web2)
	nobody := newAgent(t, f, web1)
	const v3, in = "/puppet/v3/", "?environment=production"
	good := form(web1, map[string]any{"role": "x"})
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, v3 + "node/" + web1 + in, ""},
		{http.MethodPost, v3 + "catalog/" + web1 + in, good},
		{http.MethodPut, v3 + "facts/" + web1 + in, `{"name":"` + web1 + `","values":{}}`},
		{http.MethodPut, v3 + "report/" + web1 + in, `{}`},
		{http.MethodGet, v3 + "file_metadatas/plugins" + in, ""},
		{http.MethodGet, v3 + "file_content/plugins/x" + in, ""},
	} {
		got := nobody.ask(c.method, c.path, c.body, jsonType, "X-Client-Verify", "SUCCESS", "X-Client-DN",
			"CN="+web1)
		path, _, _ := strings.Cut(c.path, "?")
		want := fmt.Sprintf("Forbidden request: %s (method :%s). Please see the server logs for details.", path,
			strings.ToLower(c.method))
		if got.status != http.StatusForbidden || got.body != want ||
			!strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
			t.Errorf("without a certificate, %s %s: %d, %s", c.method, c.path, got.status, got.body)
		}
		for _, name := range []string{web2, strings.ToUpper(web1), web1 + ".", web1 + "%00", "..%2f" + web1, web1 + "/",
			"%20" + web1, web1 + "%2f..%2f" + web2} {
			if !strings.Contains(c.path, web1) {
				continue
			}
			a.want(http.StatusForbidden, c.method, strings.Replace(c.path, web1, name, 1),
				strings.ReplaceAll(c.body, web1, web2), jsonType)
		}
	}
	a.want(http.StatusOK, http.MethodGet, v3+"node/web1%2eexample.net"+in, "", jsonType)
	for _, path := range []string{"../node/" + web1, "environments", "catalog", "v4/catalog", "resource_types/x",
		"file_metadatas", "file_content/"} {
		a.want(http.StatusForbidden, http.MethodGet, v3+path+in, "", jsonType)
	}
	a.want(http.StatusForbidden, http.MethodPost, "/puppet/v4/catalog", "{}", jsonType)
	for _, path := range []string{"modules/m/f", "..%2f..%2fetc/passwd", "../../etc/passwd", "plugins/../../etc/passwd",
		"plugins/..%2f..%2f..%2fetc%2fshadow", "pluginfacts//etc/shadow", "puppet-ca/key.pem", "plugins%00"} {
		for _, call := range []string{"file_content/", "file_metadata/", "file_metadatas/", "static_file_content/",
			"file_bucket_file/sha256/"} {
			b := a.want(http.StatusNotFound, http.MethodGet, v3+call+path+in, "", "*/*")
			if !strings.Contains(b, `"issue_kind":"RESOURCE_NOT_FOUND"`) {
				t.Errorf("%s%s: %s", call, path, b)
			}
		}
	}
	a.want(http.StatusNotFound, http.MethodHead, v3+"file_bucket_file/sha256/abc//etc/motd"+in, "",
		"application/octet-stream")
	// The facts and the report are of the node, too.
	for _, c := range []struct{ method, path, body, says string }{
		{http.MethodPost, "catalog/", form(web2, map[string]any{}), "the facts are of"},
		{http.MethodPost, "catalog/", "facts=%25zz", "encoded twice"},
		{http.MethodPost, "catalog/", "facts_format=pson&facts=x", "want application/json"},
		{http.MethodPost, "catalog/", "facts=" + url.QueryEscape(`{"name":"`+web1+`","values":[1]}`), "not an object"},
		{http.MethodPost, "catalog/", "facts=" + url.QueryEscape(`{"name":"`+web1+`","values":{"a":1,"a":2}}`), "facts: "},
		{http.MethodPut, "facts/", "x", "facts: "},
		{http.MethodPut, "report/", `{"host":"` + web2 + `","status":"changed"}`, "the report is of"},
		{http.MethodPut, "report/", `{"host":"` + web1 + `","status":"fine"}`, "status"},
		{http.MethodPut, "report/", `{"host":`, "report: "},
	} {
		b := a.want(http.StatusBadRequest, c.method, v3+c.path+web1+in, c.body, jsonType)
		if !strings.Contains(b, c.says) || !strings.Contains(b, `"issue_kind":"RUNTIME_ERROR"`) {
			t.Errorf("%s of %.80s: %s, want %q", c.path, c.body, b, c.says)
		}
	}
	f.Check()
}

func TestDocumentsAreOfATypeThatTheAgentAccepts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a := enrolled(t, f, web1)
	catalog, node := "/puppet/v3/catalog/"+web1+"?environment=production", "/puppet/v3/node/"+web1
	body := form(web1, map[string]any{"role": strings.Repeat("x", 20000)})
	for _, c := range []struct{ method, path, body, accept, want string }{
		{http.MethodPost, catalog, body, richType + ", " + jsonType + ", text/pson", richType},
		{http.MethodPost, catalog, body, jsonType + ";q=0.9", jsonType},
		{http.MethodPost, catalog, body, "", richType},
		{http.MethodPost, catalog, body, "text/pson", ""},
		{http.MethodPost, catalog, body, "text/plain, text/yaml", ""},
		{http.MethodGet, node + "?environment=e_1", "", "text/pson", ""},
		{http.MethodGet, node + "?environment=e_1", "", "*/*", jsonType},
		{http.MethodGet, node + "?environment=", "", jsonType, jsonType},
	} {
		got := a.ask(c.method, c.path, c.body, c.accept)
		if c.want == "" {
			if got.status != http.StatusNotAcceptable || !strings.Contains(got.body, "UNSUPPORTED_FORMAT") {
				t.Errorf("Accept %q: %d, %s", c.accept, got.status, got.body)
			}
		} else if got.status != http.StatusOK || got.header.Get("Content-Type") != c.want {
			t.Errorf("Accept %q: %d, %s", c.accept, got.status, got.header.Get("Content-Type"))
		}
	}
	for query, says := range map[string]string{
		"":                        "An environment parameter must be specified",
		"?environment=..%2f..%2f": "The environment must be purely alphanumeric, not '../../'",
	} {
		if b := a.want(http.StatusBadRequest, http.MethodGet, node+query, "", jsonType); b != says {
			t.Errorf("query %q: %s, want %s", query, b, says)
		}
	}
	f.Check()
}

func TestTheLastRunIsKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a := enrolled(t, f, web1)
	a.report("changed")
	lastRun(f, web1, "changed", func(r *fleet.Run) bool {
		return r.Status == "changed" && r.Resources == fleet.RunCounts{Total: 9, Changed: 2, Skipped: 1, OutOfSync: 3} &&
			r.Since.IsZero() && r.Agent == "8.11.0" && r.Environment == "production" && len(r.Errors) == 0
	})
	many := []string{"Facter", "Facter", "Could not set 'file' on ensure:\n no space", strings.Repeat("é", 1000)}
	for i := range 20 {
		many = append(many, fmt.Sprint("error ", i))
	}
	a.report(fleet.RunFailed, many...)
	first := lastRun(f, web1, "failed", func(r *fleet.Run) bool { return r.Status == fleet.RunFailed })
	if len(first.Errors) != 5 || first.Errors[0] != "Could not set 'file' on ensure: no space" ||
		len(first.Errors[1]) > 300 || first.LeftOut != 18 || first.Since != first.At || first.Resources.Failed != 24 {
		t.Errorf("run %+v", first)
	}
	f.Clock.Advance(time.Hour)
	a.report(fleet.RunFailed)
	lastRun(f, web1, "failed again", func(r *fleet.Run) bool { return r.At.After(first.At) && r.Since.Equal(first.Since) })
	a.report("unchanged")
	lastRun(f, web1, "unchanged", func(r *fleet.Run) bool { return r.Status == "unchanged" && r.Since.IsZero() })
	a.report("unchanged")
	var got []string
	for _, e := range f.Events() {
		if e.Node == web1 && (e.Type == events.RunFailed || e.Type == events.RunRecovered) {
			got = append(got, strings.TrimPrefix(string(e.Type), "io.muster.run.")+": "+e.Cause)
		}
	}
	if want := []string{"failed: " + first.Errors[0], "failed: the report has no error", "recovered: "}; !slices.Equal(
		got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	f.Check()
}

func TestBodiesOfARunAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a := enrolled(t, f, web1)
	const in = "?environment=production"
	report := func(size int) string {
		return `{"host":"` + web1 + `","status":"unchanged","resource_statuses":{"x":"` + strings.Repeat("x", size) + `"}}`
	}
	a.want(http.StatusOK, http.MethodPut, "/puppet/v3/report/"+web1+in, report(135000), jsonType)
	a.want(http.StatusOK, http.MethodPut, "/puppet/v3/report/"+web1+in, report(4<<20-200), jsonType)
	a.want(http.StatusRequestEntityTooLarge, http.MethodPut, "/puppet/v3/report/"+web1+in, report(4<<20), jsonType)
	a.want(http.StatusRequestEntityTooLarge, http.MethodPost, "/puppet/v3/catalog/"+web1+in,
		form(web1, map[string]any{"x": strings.Repeat("x", 2<<20)}), jsonType)
	a.want(http.StatusRequestEntityTooLarge, http.MethodGet, "/puppet/v3/node/"+web1+in, "x", jsonType)

	// Facts that are too large leave those on record.
	a.catalog(map[string]any{"role": "db", "os": map[string]any{"name": "Debian"}})
	a.catalog(map[string]any{"role": "db", "x": strings.Repeat("x", wire.MaxFactsBytes)})
	if got := fmt.Sprint(f.Record(web1).Facts); !strings.Contains(got, "Debian") {
		t.Errorf("facts on record: %s", got)
	}
	a.want(http.StatusOK, http.MethodPut, "/puppet/v3/facts/"+web1+in,
		`{"name":"`+web1+`","values":{"os":{"name":"Other"}}}`, jsonType)
	if got := fmt.Sprint(f.Record(web1).Facts); !strings.Contains(got, "Other") {
		t.Errorf("facts on record after their upload: %s", got)
	}
	f.Check()
}

func TestARefusedRunSaysWhy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := true

deny contains "secret reason" if input.facts.role == "bad"
`})
	a := enrolled(t, f, web1)
	b := a.want(http.StatusForbidden, http.MethodPost, "/puppet/v3/catalog/"+web1+"?environment=production",
		form(web1, map[string]any{"role": "bad"}), jsonType)
	if !strings.Contains(b, `"message":"denied: `) || strings.Contains(b, "secret reason") {
		t.Errorf("answer to a denied run: %s", b)
	}
	f.Revoke(web1)
	a.want(http.StatusForbidden, http.MethodPost, "/puppet/v3/catalog/"+web1+"?environment=production",
		form(web1, map[string]any{}), jsonType)
	f.Check()
}

// Slow bodies take the room of their address. Agents there wait, and those elsewhere have their runs.
func TestSlowReportsLeaveRoomForOtherAddresses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: admitAll})
	a, elsewhere := enrolled(t, f, web1), enrolled(t, f, web2)
	a.source, elsewhere.source = "127.0.0.1", "127.0.0.2"
	a.connect()
	elsewhere.connect()
	const in = "?environment=production"
	for range 8 {
		slow, w := io.Pipe()
		t.Cleanup(func() { _ = w.Close() })
		r, err := http.NewRequestWithContext(f.Context(), http.MethodPut, f.PuppetURL()+"/puppet/v3/report/"+web1+in, slow)
		must(t, err)
		r.ContentLength = 4 << 20
		go func() {
			if got, err := a.client.Do(r); err == nil {
				_ = got.Body.Close()
			}
		}()
	}
	report := `{"host":"` + web1 + `","status":"unchanged"}`
	f.Eventually("the address has no room", func() bool {
		got := a.ask(http.MethodPut, "/puppet/v3/report/"+web1+in, report, jsonType)
		return got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != ""
	})
	elsewhere.want(http.StatusOK, http.MethodPut, "/puppet/v3/report/"+web2+in, strings.Replace(report, web1, web2, 1),
		jsonType)
	f.Check()
}
