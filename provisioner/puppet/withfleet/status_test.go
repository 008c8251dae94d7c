package puppet_test

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// colons writes a fingerprint as Puppet's tools do.
func colons(sum []byte) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf("% X", sum)), " ", ":")
}

// decoded returns a document as a generic value.
func decoded(t testing.TB, text string) any {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	must(t, d.Decode(&v))
	return v
}

// TestOperatorsHaveTheCallsOfPuppetserver goes through the calls, codes and texts that Puppet's tools know.
func TestOperatorsHaveTheCallsOfPuppetserver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	ops := newOperator(t, f, trust.RoleOperator)
	call := func(method, path, body string) answer { return ops.do(method, ca+path, []byte(body)) }
	expect := func(what string, got answer, status int, body string) {
		t.Helper()
		if got.status != status || got.body != body {
			t.Errorf("%s: %d %q, want %d %q", what, got.status, got.body, status, body)
		}
	}
	if code := f.Refused(f.Node("other.example.net")); code != wire.CodeApprovalPending { // a node of muster's waits
		t.Fatal(code)
	}
	const signed, revoked = `{"desired_state":"signed"}`, `{"desired_state":"revoked"}`

	expect("nothing", call("GET", "certificate_statuses/any_key", ""), 200, "[]")
	expect("an unknown name", call("GET", "certificate_status/"+web1, ""), 404, "Resource not found.")
	expect("sign an unknown name", call("PUT", "certificate_status/"+web1, signed), 404, "Invalid certificate subject.")
	expect("sign a node of muster's", call("PUT", "certificate_status/other.example.net", signed), 404,
		"Invalid certificate subject.")
	expect("sign no name", call("PUT", "certificate_status/..%2Fx", signed), 404, "Invalid certificate subject.")
	expect("delete an unknown name", call("DELETE", "certificate_status/"+web1, ""), 404, "Resource not found.")

	a := newAgent(t, f, web1)
	request := a.csr()
	block, _ := pem.Decode(request)
	sum := sha256.Sum256(block.Bytes)
	a.do(http.MethodPut, ca+"certificate_request/"+web1, request)
	waits := map[string]any{
		"name": web1, "state": "requested", "fingerprint": colons(sum[:]),
		"fingerprints":  map[string]any{"SHA256": colons(sum[:]), "default": colons(sum[:])},
		"dns_alt_names": []any{}, "subject_alt_names": []any{}, "authorization_extensions": map[string]any{},
	}
	if got := call("GET", "certificate_status/"+web1, ""); !reflect.DeepEqual(decoded(t, got.body), any(waits)) {
		t.Errorf("a request: %s", got.body)
	}
	if got := call("GET", "certificate_statuses/foreman?state=requested", ""); !reflect.DeepEqual(decoded(t, got.body), any([]any{waits})) {
		t.Errorf("the requests: %s", got.body)
	}
	expect("the signed ones", call("GET", "certificate_statuses/any_key?state=signed", ""), 200, "[]")
	expect("the CSR", call("GET", "certificate_request/"+web1, ""), 404, "Could not find certificate_request "+web1)
	expect("revoke a request", call("PUT", "certificate_status/"+web1, revoked), 409,
		"Cannot revoke certificate for host "+web1+" without a signed certificate")
	expect("another state", call("PUT", "certificate_status/"+web1, `{"desired_state":"x"}`), 400,
		"State x invalid; Must specify desired state of 'signed' or 'revoked' for host "+web1+".")
	expect("no state", call("PUT", "certificate_status/"+web1, `{}`), 400, `Missing required parameter "desired_state"`)
	expect("no body", call("PUT", "certificate_status/"+web1, ""), 400, "Empty request body.")
	expect("no JSON", call("PUT", "certificate_status/"+web1, "x"), 400, "Request body is not JSON.")
	if got := call("PUT", "certificate_status/"+web1, `{"desired_state":"signed","cert_ttl":3600}`); got.status != 400 {
		t.Errorf("a life that the policy decides: %+v", got)
	}

	if got := call("PUT", "certificate_status/"+web1, signed); got.status != 204 || got.body != "" {
		t.Fatalf("sign: %+v", got)
	}
	if got := a.do("PUT", ca+"certificate_request/"+web1, request); got.status != 200 {
		t.Fatalf("PUT: %+v", got)
	}
	a.take(a.get("certificate/" + web1).body)
	s256 := sha256.Sum256(a.leaf.Raw)
	const layout = "2006-01-02T15:04:05UTC"
	has := map[string]any{
		"name": web1, "state": "signed", "fingerprint": colons(s256[:]),
		"fingerprints":  map[string]any{"SHA256": colons(s256[:]), "default": colons(s256[:])},
		"dns_alt_names": []any{"DNS:" + web1}, "subject_alt_names": []any{"DNS:" + web1},
		"authorization_extensions": map[string]any{},
		"not_before":               a.leaf.NotBefore.UTC().Format(layout), "not_after": a.leaf.NotAfter.UTC().Format(layout),
		"serial_number": json.Number(a.leaf.SerialNumber.String()),
	}
	if got := call("GET", "certificate_status/"+web1, ""); !reflect.DeepEqual(decoded(t, got.body), any(has)) ||
		got.header.Get("Content-Type") != "application/json" {
		t.Errorf("a certificate: %+v, want %v", got, has)
	}
	if got := call("GET", "certificate_statuses/any_key", ""); !reflect.DeepEqual(decoded(t, got.body), any([]any{has})) {
		t.Errorf("all: %s", got.body)
	}
	expect("sign once more", call("PUT", "certificate_status/"+web1, signed), 409,
		"Cannot sign certificate for host "+web1+" without a certificate request")
	ops.headers["Accept"] = "text/plain"
	if got := call("GET", "certificate_status/"+web1, ""); got.status != http.StatusNotAcceptable {
		t.Errorf("as text: %+v", got)
	}
	ops.headers["Accept"] = "application/json"

	if got := call("PUT", "certificate_status/"+web1, revoked); got.status != 204 {
		t.Fatalf("revoke: %+v", got)
	}
	has["state"] = "revoked"
	if got := call("GET", "certificate_statuses/any_key?state=revoked", ""); !reflect.DeepEqual(decoded(t, got.body), any([]any{has})) {
		t.Errorf("the revoked ones: %s", got.body)
	}
	expect("the signed ones", call("GET", "certificate_statuses/any_key?state=signed", ""), 200, "[]")
	f.Eventually("the certificate is listed", a.listed)
	if got := call("DELETE", "certificate_status/"+web1, ""); got.status != 204 {
		t.Fatalf("delete: %+v", got)
	}
	expect("delete it again", call("DELETE", "certificate_status/"+web1, ""), 404, "Resource not found.")
	if r := f.Record(web1); r.State != provisioner.StateRetired || !r.Awaiting {
		t.Errorf("after a clean: %+v", r)
	}
	if got := newAgent(t, f, web1).enroll(); got.status != 404 {
		t.Errorf("a cleaned name is free: %+v", got)
	}
	expect("delete the request", call("DELETE", "certificate_status/"+web1, ""), 204, "")
	f.Check()
}

// TestOperatorsOrderManyNames signs and cleans lists of names.
func TestOperatorsOrderManyNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	ops := newOperator(t, f, trust.RoleOperator)
	call := func(method, path, body string) answer { return ops.do(method, ca+path, []byte(body)) }
	agents := map[string]*agent{}
	for _, name := range []string{"a.example.net", "b.example.net", "c.example.net"} {
		agents[name] = newAgent(t, f, name)
		agents[name].put()
	}
	second := newAgent(t, f, "c.example.net")
	second.put()
	got := call("POST", "sign", `{"certnames":["a.example.net","x.example.net"]}`)
	if want := map[string]any{"signed": []any{"a.example.net"}, "no-csr": []any{"x.example.net"}, "signing-errors": []any{}}; !reflect.DeepEqual(
		decoded(t, got.body), any(want)) {
		t.Errorf("sign two: %+v", got)
	}
	got = call("POST", "sign/all", "{}")
	if want := map[string]any{"signed": []any{"a.example.net", "b.example.net"}, "no-csr": []any{},
		"signing-errors": []any{"c.example.net"}}; !reflect.DeepEqual(decoded(t, got.body), any(want)) {
		t.Errorf("sign all: %+v", got)
	}
	for _, name := range []string{"a.example.net", "b.example.net"} {
		if got := agents[name].enroll(); got.status != 200 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := agents["c.example.net"].enroll(); got.status != 404 {
		t.Errorf("one of two keys was chosen: %+v", got)
	}
	if got := call("PUT", "certificate_status/c.example.net", `{"desired_state":"signed"}`); got.status != 409 ||
		!strings.Contains(got.body, "2 keys wait") {
		t.Errorf("sign one of two keys: %+v", got)
	}
	for body, want := range map[string]string{
		`{}`: "Missing required key: 'certnames'. Please supply the list of certs you want to clean.",
		`{"certnames":["a.example.net"],"async":true}`: "Async mode is not currently supported.",
		`x`: "Request body is not JSON.",
	} {
		if got := call("PUT", "clean", body); got.status != 400 || got.body != want {
			t.Errorf("clean %s: %+v", body, got)
		}
	}
	if got := call("PUT", "clean", `{"certnames":["a.example.net","x.example.net","y"],"async":false}`); got.status != 200 ||
		got.body != `The following certs do not exist and cannot be revoked: ["x.example.net" "y"]` {
		t.Errorf("clean: %+v", got)
	}
	if got := call("PUT", "clean", `{"certnames":["b.example.net"]}`); got.status != 200 || got.body != "Successfully cleaned all certs." {
		t.Errorf("clean: %+v", got)
	}
	f.Eventually("both are listed", func() bool { return agents["a.example.net"].listed() && agents["b.example.net"].listed() })
	f.Check()
}

// TestOrdersNeedTheirRole: the rules of the calls, for an operator that may only look, and for nodes of other protocols.
func TestOrdersNeedTheirRole(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	viewer, ops := newOperator(t, f, trust.RoleViewer), newOperator(t, f, trust.RoleOperator)
	limited := newOperator(t, f, trust.RoleOperator, "ams1")
	enrolled(t, f, web1)
	for _, path := range []string{"certificate_status/" + web1, "certificate_statuses/any_key"} {
		if got := limited.get(path); got.status != 403 {
			t.Errorf("an operator with a limit to sites: %s: %+v", path, got)
		}
	}
	for _, c := range [][3]string{
		{"PUT", "certificate_status/" + web1, `{"desired_state":"revoked"}`}, {"DELETE", "certificate_status/" + web1, ""},
		{"PUT", "clean", `{"certnames":["` + web1 + `"]}`}, {"POST", "sign", `{"certnames":["a"]}`}, {"POST", "sign/all", "{}"},
	} {
		if got := limited.do(c[0], ca+c[1], []byte(c[2])); got.status != 403 {
			t.Errorf("an operator with a limit to sites: %s %s: %+v", c[0], c[1], got)
		}
		if got := viewer.do(c[0], ca+c[1], []byte(c[2])); got.status != 403 {
			t.Errorf("a viewer: %s %s: %+v", c[0], c[1], got)
		}
	}
	if got := viewer.get("certificate_status/" + web1); got.status != 200 {
		t.Errorf("a viewer looks: %+v", got)
	}
	viewer.headers["X-Authentication"] += "x"
	if got := viewer.get("certificate_status/" + web1); got.status != 403 {
		t.Errorf("a forged token: %+v", got)
	}
	for _, c := range [][2]string{{"HEAD", "certificate/ca"}, {"POST", "certificate/ca"}, {"DELETE", "certificate_request/" + web1},
		{"PUT", "certificate_revocation_list"}, {"GET", "certificate"}, {"GET", "certificates"}, {"GET", "x"}} {
		if got := ops.do(c[0], ca+c[1], nil); got.status != 403 {
			t.Errorf("%s %s: %+v", c[0], c[1], got)
		}
	}

	node := f.Node("other.example.net")
	f.Enroll(node)
	for _, c := range [][3]string{
		{"PUT", "certificate_status/other.example.net", `{"desired_state":"revoked"}`}, {"DELETE", "certificate_status/other.example.net", ""},
		{"GET", "certificate_status/other.example.net", ""},
	} {
		if got := ops.do(c[0], ca+c[1], []byte(c[2])); got.status != 404 {
			t.Errorf("a node of muster's: %s: %+v", c[0], got)
		}
	}
	if got := ops.get("certificate_statuses/any_key"); strings.Contains(got.body, "other") {
		t.Errorf("the list has a node of muster's: %s", got.body)
	}
}

// TestStatusNeedsNoCredential: agents with server_list ask it first.
func TestStatusNeedsNoCredential(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{})
	a := newAgent(t, f, web1)
	for _, path := range []string{"simple", "simple/server", "simple/master", "simple/ca"} {
		if got := a.do("GET", "/status/v1/"+path, nil); got.status != 200 || got.body != "running" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	got := a.do("GET", "/status/v1/services", nil)
	service, _ := decoded(t, got.body).(map[string]any)["ca"].(map[string]any)
	if got.header.Get("Content-Type") != "application/json" || service["state"] != "running" || service["service_version"] != "8.7.0" {
		t.Errorf("services: %+v", got)
	}
}

// TestListOfManyCertificates: Foreman asks for the whole list.
func TestListOfManyCertificates(t *testing.T) {
	t.Parallel()
	const n = 300
	f := newFleet(t, testbed.Options{Policy: allowAll, Quiet: true})
	first := enrolled(t, f, web1)
	for i := range n - 1 {
		r := *f.Record(web1)
		r.Identity, r.Attempt = wire.Identity(fmt.Sprintf("n%d.example.net", i)), wire.NewID()
		_, err := f.Daemon().Store().Put(f.Context(), &r, 0)
		must(t, err)
	}
	viewer := newOperator(t, f, trust.RoleViewer)
	f.Eventually("all are listed", func() bool {
		all := viewer.get("certificate_statuses/any_key?state=signed").body
		return strings.Count(all, first.leaf.SerialNumber.String()) == n
	})
}

// TestOperatorGeneratesACertificate plays `puppetserver ca generate`, which writes requests of version 2 and asks again at
// once after the signature.
func TestOperatorGeneratesACertificate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{DefaultPolicy: true})
	ops := newOperator(t, f, trust.RoleOperator)
	node := newAgent(t, f, web1)
	node.csrVersion = 2
	if got := ops.do("PUT", ca+"certificate_request/"+web1, node.csr()); got.status != 200 {
		t.Fatalf("PUT: %+v", got)
	}
	if got := ops.get("certificate/" + web1); got.status != 404 {
		t.Fatalf("before the signature: %+v", got)
	}
	if got := ops.do("PUT", ca+"certificate_status/"+web1, []byte(`{"desired_state":"signed"}`)); got.status != 204 {
		t.Fatalf("sign: %+v", got)
	}
	got := ops.get("certificate/" + web1)
	if got.status != 200 {
		t.Fatalf("after the signature: %+v", got)
	}
	node.take(got.body)
}
