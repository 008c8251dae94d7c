package helper_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/limit"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/provisioner/helper"
)

// script writes a shell script and returns the command that runs it.
func script(t testing.TB, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper.sh")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Not run by its own name: a file that was just written is busy while another test forks.
	return []string{"/bin/sh", path}
}

// newHelper returns a helper for a script.
func newHelper(t testing.TB, text string, edit func(*helper.Config)) *helper.Helper {
	t.Helper()
	cfg := helper.Config{Command: script(t, text), Timeout: 30 * time.Second}
	if edit != nil {
		edit(&cfg)
	}
	h, err := helper.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// csrDER is a certificate request.
var csrDER = func() []byte {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(nil, new(x509.CertificateRequest), key)
	if err != nil {
		panic(err)
	}
	return der
}()

var web1 = helper.Request{
	Identity: "web1.example.net", CSR: csrDER,
	Facts: json.RawMessage(`{"role": "web"}`),
	Claims: map[string]any{"chs": false, "chu": "prov1:4222", "cht": "toomanysecrets", "chpwd": "hunter2",
		"ou": "choria"},
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		want   *helper.Response // nil: an error
		err    error
	}{
		"configuration": {`echo '{"configuration": {"a": "1", "b": ""},
			"action_policies": {"rpcutil": "policy default deny"},
			"opa_policies": {"choria-x.y_z": "package x"}}'`,
			&helper.Response{Files: wire.Files{Configuration: map[string]string{"a": "1", "b": ""},
				ActionPolicies: map[string]string{"rpcutil": "policy default deny"},
				OPAPolicies:    map[string]string{"choria-x.y_z": "package x"}}}, nil},
		"defer": {`echo '{"defer": true, "msg": "not yet"}'`, &helper.Response{Defer: true, Msg: "not yet"},
			nil},
		"shutdown":       {`echo '{"shutdown": true, "msg": "no"}'`, &helper.Response{Shutdown: true, Msg: "no"}, nil},
		"nothing to say": {`echo '{}'`, &helper.Response{}, nil},
		"nulls": {`echo '{"defer": null, "shutdown": null, "msg": null, "configuration": null,
			"action_policies": null, "opa_policies": null}'`,
			&helper.Response{}, nil},
		"all that Choria's print": {
			`echo '{"defer": false, "shutdown": false, "msg": "", "key": "", "certificate": "", "ca": "", "ssldir": "",
			"server_claims": null, "upgrade": "", "configuration": {}, "action_policies": {}, "opa_policies": {}}'`,
			&helper.Response{Files: wire.Files{Configuration: map[string]string{}, ActionPolicies: map[string]string{},
				OPAPolicies: map[string]string{}}}, nil},
		"input not read":           {`echo '{}'; exit 0`, &helper.Response{}, nil},
		"input closed":             {`exec <&-; echo '{}'`, &helper.Response{}, nil},
		"talkative":                {`echo working >&2; echo '{}'`, &helper.Response{}, nil},
		"nothing printed":          {`exit 0`, nil, helper.ErrOutput},
		"blanks printed":           {`echo; echo ' '`, nil, helper.ErrOutput},
		"no JSON":                  {`echo done`, nil, helper.ErrOutput},
		"half of it":               {`printf '{"defer": tr'`, nil, helper.ErrOutput},
		"something after it":       {`echo '{}'; echo done`, nil, helper.ErrOutput},
		"two of it":                {`echo '{}{"defer": true}'`, nil, helper.ErrOutput},
		"array":                    {`echo '[]'`, nil, helper.ErrOutput},
		"null":                     {`echo 'null'`, nil, helper.ErrOutput},
		"misspelled":               {`echo '{"defered": true}'`, nil, helper.ErrOutput},
		"in upper case":            {`echo '{"Defer": true}'`, nil, helper.ErrOutput},
		"said twice":               {`echo '{"defer": true, "defer": false}'`, nil, helper.ErrOutput},
		"said twice, deeper":       {`echo '{"configuration": {"a": "1", "a": "2"}}'`, nil, helper.ErrOutput},
		"defer a string":           {`echo '{"defer": "true"}'`, nil, helper.ErrOutput},
		"configuration of numbers": {`echo '{"configuration": {"a": 1}}'`, nil, helper.ErrOutput},
		"configuration of null":    {`echo '{"configuration": {"a": null}}'`, nil, helper.ErrOutput},
		"configuration a string":   {`echo '{"configuration": "a=1"}'`, nil, helper.ErrOutput},
		"certificate of its own":   {`echo '{"certificate": "-----BEGIN"}'`, nil, helper.ErrOutput},
		"key of its own":           {`echo '{"key": "-----BEGIN"}'`, nil, helper.ErrOutput},
		"authority of its own":     {`echo '{"ca": "-----BEGIN"}'`, nil, helper.ErrOutput},
		"directory of its own":     {`echo '{"ssldir": "/etc"}'`, nil, helper.ErrOutput},
		"claims of its own":        {`echo '{"server_claims": {"exp": 1}}'`, nil, helper.ErrOutput},
		"upgrade":                  {`echo '{"upgrade": "0.99.0"}'`, nil, helper.ErrOutput},
		"bytes that are no text":   {`printf '{"msg": "\377"}'`, nil, helper.ErrOutput},
		"status 1":                 {`echo '{}'; echo broken >&2; exit 1`, nil, helper.ErrFailed},
		"killed by itself":         {`echo '{}'; kill -9 $$`, nil, helper.ErrFailed},
		"no such command in it":    {`set -e; no-such-command-anywhere; echo '{}'`, nil, helper.ErrFailed},
		"one byte too many":        {`printf '{"msg": "%01000d"}' 0; printf '%01048576d' 0`, nil, helper.ErrOutput},
		"without end": {`while :; do echo 0123456789012345678901234567890123456789; done`, nil,
			helper.ErrOutput},
		"without end, deaf": {`trap '' PIPE TERM INT; while :; do echo 0123456789012345678901234567890123456789; done`,
			nil, helper.ErrOutput},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newHelper(t, tt.script, nil).Configure(t.Context(), web1)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Configure error = %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Configure: -want +got\n%s", diff)
			}
		})
	}
}

// The input has Choria's layout and no secrets.
func TestInput(t *testing.T) {
	t.Parallel()
	type csr struct {
		CSR       string `json:"csr"`
		PublicKey string `json:"public_key"`
		SSLDir    string `json:"ssldir"`
	}
	type document struct {
		Identity  string            `json:"identity"`
		CSR       *csr              `json:"csr"`
		Ed25519   map[string]string `json:"ed25519_pubkey"`
		Inventory string            `json:"inventory"`
		JWT       map[string]any    `json:"jwt"`
	}
	choria := web1
	choria.Directory = "/etc/choria/ssl"
	choria.Inventory = json.RawMessage(`{"facts":{"from":"the server"},"version":"0.30.2"}`)
	onlyKey := choria
	onlyKey.CSR, onlyKey.Key = nil, ed25519.PublicKey{0x0a, 0x1b}
	pemOf := func(label string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
	}
	parsed, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		t.Fatal(err)
	}
	request, key := pemOf("CERTIFICATE REQUEST", csrDER), pemOf("PUBLIC KEY", parsed.RawSubjectPublicKeyInfo)
	claims := map[string]any{"chs": false, "chu": "prov1:4222", "cht": "", "chpwd": "", "ou": "choria"}
	tests := map[string]struct {
		request helper.Request
		csr     *csr
		key     map[string]string
		version string
		facts   string
		jwt     map[string]any
	}{
		"full": {web1, &csr{request, key, ""}, nil, "", `{"role":"web"}`, claims},
		"minimal": {helper.Request{Identity: "web1.example.net", CSR: csrDER},
			&csr{request, key, ""}, nil, "", `{}`, map[string]any{"cht": "", "chpwd": ""}},
		"a Choria server": {choria, &csr{request, key, "/etc/choria/ssl"}, nil, "0.30.2",
			`{"from":"the server"}`, claims},
		"a Choria server without a CSR": {onlyKey, nil,
			map[string]string{"public_key": "0a1b", "directory": "/etc/choria/ssl", "signature": ""}, "0.30.2",
			`{"from":"the server"}`, claims},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "input")
			h := newHelper(t, `cat > "$1"; echo '{}'`, func(c *helper.Config) { c.Command = append(c.Command, file) })
			if _, err := h.Configure(t.Context(), tt.request); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"toomanysecrets", "hunter2"} {
				if bytes.Contains(b, []byte(secret)) {
					t.Errorf("the helper was told %q: %s", secret, b)
				}
			}
			var got document
			if err := wire.DecodeStrict(b, &got); err != nil {
				t.Fatal(err)
			}
			if got.Identity != "web1.example.net" {
				t.Errorf("input = %s", b)
			}
			if diff := cmp.Diff([]any{tt.csr, tt.key}, []any{got.CSR, got.Ed25519}); diff != "" {
				t.Errorf("keys: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.jwt, got.JWT); diff != "" {
				t.Errorf("jwt: -want +got\n%s", diff)
			}
			var inventory struct {
				Facts   json.RawMessage `json:"facts"`
				Version string          `json:"version"`
			}
			if err := json.Unmarshal([]byte(got.Inventory), &inventory); err != nil {
				t.Fatalf("inventory is no JSON: %v", err)
			}
			if string(inventory.Facts) != tt.facts || inventory.Version != tt.version {
				t.Errorf("inventory = %s, want version %q and facts %s", got.Inventory, tt.version, tt.facts)
			}
		})
	}
	if _, ok := web1.Claims["cht"].(string); !ok || web1.Claims["cht"] != "toomanysecrets" {
		t.Error("the caller's claims were changed")
	}
}

// A large input does not block, whether the helper reads it or not.
func TestLargeInput(t *testing.T) {
	t.Parallel()
	r := web1
	r.Facts = json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	for name, text := range map[string]string{
		"read to the end": `n=$(wc -c); echo "{\"msg\": \"$((n > 1048576))\"}"`,
		"not read at all": `echo '{"msg": "1"}'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newHelper(t, text, nil).Configure(t.Context(), r)
			if err != nil || got.Msg != "1" {
				t.Errorf("Configure = %+v, %v", got, err)
			}
		})
	}
}

// alive reports whether a process that is not a zombie has this number.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := string(b[bytes.LastIndexByte(b, ')')+1:])
	return !strings.HasPrefix(rest, " Z") && !strings.HasPrefix(rest, " X")
}

// eventually waits until ok is true, for half a minute at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		}
	}
}

// pidIn waits for a process number in a file.
func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	eventually(t, "a process number is in "+path, func() bool {
		b, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil
	})
	return pid
}

// gone waits until a process has ended.
func gone(t *testing.T, what string, pid int) {
	t.Helper()
	eventually(t, what+" is gone", func() bool { return !alive(pid) })
}

// Child processes end with the helper and do not delay its caller.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const child = `sleep 1000 & echo $! > "$1.tmp"; mv "$1.tmp" "$1"; `
	tests := map[string]struct {
		script  string
		timeout time.Duration
		want    error // nil: a response
	}{
		"sleeps for ever": {child + `wait`, 300 * time.Millisecond, helper.ErrTimeout},
		"sleeps for ever, deaf": {`trap '' TERM INT HUP; ` + child + `while :; do wait; done`,
			300 * time.Millisecond, helper.ErrTimeout},
		"ends, its child holds the output":  {child + `echo '{}'`, 30 * time.Second, helper.ErrFailed},
		"fails, its child holds the output": {child + `exit 3`, 30 * time.Second, helper.ErrFailed},
		"prints for ever, with a child": {child +
			`while :; do echo 0123456789012345678901234567890123456789; done`, 30 * time.Second, helper.ErrOutput},
		"ends, its grandchild holds the output": {`(` + child + `) ; echo '{}'`, 30 * time.Second, helper.ErrFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			h := newHelper(t, tt.script,
				func(c *helper.Config) { c.Command, c.Timeout = append(c.Command, file), tt.timeout })
			start := time.Now()
			got, err := h.Configure(t.Context(), web1)
			if !errors.Is(err, tt.want) || (got == nil) != (tt.want != nil) {
				t.Errorf("Configure = %v, %v, want %v", got, err, tt.want)
			}
			if elapsed := time.Since(start); elapsed > 15*time.Second {
				t.Errorf("Configure took %v", elapsed)
			}
			gone(t, "the helper's child", pidIn(t, file))
		})
	}
}

// A process that leaves the group is not killed, but does not delay the caller.
func TestEscapedProcess(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "setsid")
	for name, end := range map[string]string{"with an answer": `echo '{}'`, "without": `wait; sleep 1000`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			h := newHelper(t, `setsid sh -c 'echo $$ > "$0.tmp"; mv "$0.tmp" "$0"; exec sleep 1000' "$1" &
				while ! [ -e "$1" ]; do :; done; `+end,
				func(c *helper.Config) { c.Command, c.Timeout = append(c.Command, file), 2*time.Second })
			start := time.Now()
			got, err := h.Configure(t.Context(), web1)
			if err == nil || got != nil {
				t.Errorf("Configure = %+v, %v, want an error", got, err)
			}
			if elapsed := time.Since(start); elapsed > 15*time.Second {
				t.Errorf("Configure took %v", elapsed)
			}
			if err := syscall.Kill(pidIn(t, file), syscall.SIGKILL); err != nil {
				t.Errorf("kill what escaped: %v", err)
			}
		})
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	h := newHelper(t, `echo $$ > "$1.tmp"; mv "$1.tmp" "$1"; sleep 1000`, func(c *helper.Config) {
		c.Command, c.Concurrency = append(c.Command, file), 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.Configure(ctx, web1)
		done <- err
	}()
	pid := pidIn(t, file)

	// The slot is taken, so further callers wait until their deadlines.
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := h.Configure(short, web1); !errors.Is(err, helper.ErrTimeout) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Configure with no place free = %v, want %v", err, helper.ErrTimeout)
	}
	cancel()
	if err := <-done; !errors.Is(err, helper.ErrFailed) || !errors.Is(err, context.Canceled) {
		t.Errorf("Configure stopped = %v, want %v and %v", err, helper.ErrFailed, context.Canceled)
	}
	gone(t, "the helper", pid)
}

// The caller's own deadline is a time-out too.
func TestDeadline(t *testing.T) {
	t.Parallel()
	h := newHelper(t, `sleep 1000`, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Configure(ctx, web1); !errors.Is(err, helper.ErrTimeout) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Configure = %v, want %v", err, helper.ErrTimeout)
	}
}

// At most Concurrency run at once, and all get a slot. No address can take all places of those that wait.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Each creates a directory entry while it runs, and prints their number.
	h := newHelper(t, `mkdir "$1/$$"; n=$(ls "$1" | wc -l); sleep 0.05; rmdir "$1/$$"; echo "{\"msg\": \"$n\"}"`,
		func(c *helper.Config) { c.Command, c.Concurrency = append(c.Command, dir), 2 })
	var wg sync.WaitGroup
	var busy atomic.Int32
	for i := range 14 {
		wg.Go(func() {
			r := web1
			r.Source = limit.Source([]string{"192.0.2.1", "192.0.2.2"}[min(i/12, 1)]) // 12 and 2 calls
			got, err := h.Configure(t.Context(), r)
			if errors.Is(err, helper.ErrBusy) && i < 12 {
				busy.Add(1)
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := strconv.Atoi(strings.TrimSpace(got.Msg)); err != nil || n > 2 {
				t.Errorf("%q at once, want at most 2", got.Msg)
			}
		})
		if i == 11 { // the first address has half of the 8 places
			for deadline := time.Now().Add(time.Minute); busy.Load() < 4 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
		}
	}
	wg.Wait()
	if busy.Load() < 4 {
		t.Errorf("%d calls of the first address are told busy, want 4 or more", busy.Load())
	}
}

// Only the end of standard error goes to the log.
func TestLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	h := newHelper(t, `i=0; while [ $i -lt 2000 ]; do echo "line $i of many"; i=$((i+1)); done >&2
		echo '{"configuration": {"password": "swordfish"}'; exit 1`,
		func(c *helper.Config) { c.Log = slog.New(slog.NewTextHandler(&b, nil)) })
	_, err := h.Configure(t.Context(), web1)
	if !errors.Is(err, helper.ErrFailed) {
		t.Fatalf("Configure error = %v, want %v", err, helper.ErrFailed)
	}
	log := b.String()
	if !strings.Contains(log, "line 1999 of many") || strings.Contains(log, "line 1 of many") ||
		!strings.Contains(log, "node=web1.example.net") || len(log) > 8<<10 {
		t.Errorf("log of %d bytes: %s", len(log), log)
	}
	for _, secret := range []string{"toomanysecrets", "hunter2", "swordfish"} {
		if strings.Contains(log, secret) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q is in the log or in the error", secret)
		}
	}
	if strings.Contains(err.Error(), "of many") {
		t.Errorf("standard error is in the error: %v", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\necho '{}'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := []string{"/bin/sh"}
	tests := map[string]struct {
		cfg helper.Config
		ok  bool
	}{
		"absolute":        {helper.Config{Command: sh}, true},
		"in PATH":         {helper.Config{Command: []string{"sh", "-c", "echo {}"}}, true},
		"none":            {helper.Config{}, false},
		"missing":         {helper.Config{Command: []string{filepath.Join(dir, "missing")}}, false},
		"missing in PATH": {helper.Config{Command: []string{"no-such-command-anywhere"}}, false},
		"not executable":  {helper.Config{Command: []string{plain}}, false},
		"directory":       {helper.Config{Command: []string{dir}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := helper.New(tt.cfg)
			if (err == nil) != tt.ok || (h != nil) != tt.ok {
				t.Errorf("New = %v, %v, want ok=%v", h, err, tt.ok)
			}
		})
	}
}

// A program that is gone is a failure like any other.
func TestProgramGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helper")
	if err := os.Symlink("/bin/sh", path); err != nil {
		t.Fatal(err)
	}
	h, err := helper.New(helper.Config{Command: []string{path, "-c", "echo '{}'"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Configure(t.Context(), web1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Configure(t.Context(), web1); !errors.Is(err, helper.ErrFailed) || got != nil {
		t.Errorf("Configure = %v, %v, want nil, %v", got, err, helper.ErrFailed)
	}
}
