//go:build unix

package keyfile_test

import (
	"crypto/ecdh"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
)

// encrypt uses few rounds, so that tests are fast.
func encrypt(t *testing.T, key any, passphrase string) []byte {
	t.Helper()
	path := write(t, t.TempDir(), "plain.pem", marshal(t, key, ""), 0o600)
	return []byte(openssl(t, "pkcs8", "-topk8", "-in", path, "-passout", "pass:"+passphrase, "-iter", "100"))
}

var errAsk = errors.New("no answer")

// TestRingSources tries each source of the passphrase and combinations; only the first counts.
func TestRingSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := keys(t)["Ed25519"]
	encrypted := write(t, dir, "key.pem", encrypt(t, key, "right"), 0o600)
	plain := write(t, dir, "plain.pem", marshal(t, key, ""), 0o600)
	exposed := write(t, dir, "exposed.pem", marshal(t, key, ""), 0o640)
	right, wrong := write(t, dir, "right", []byte("right\n"), 0o600), write(t, dir, "wrong", []byte("hunter2\n"), 0o600)
	open := write(t, dir, "open", []byte("right\n"), 0o644)
	credentials := func(name, passphrase string) string {
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if passphrase != "" {
			write(t, d, keyfile.Credential, []byte(passphrase), 0o440) // as systemd's access lists look
		}
		return d
	}
	good, bad, empty := credentials("good", "right"), credentials("bad", "hunter2"), credentials("empty", "")

	tests := map[string]struct {
		ring    keyfile.Ring
		answers []string // of the person, if one is there
		path    string
		want    error
		asked   int
	}{
		"a key that is not encrypted":               {keyfile.Ring{}, nil, plain, nil, 0},
		"nor is anybody asked for it":               {keyfile.Ring{File: wrong, Credentials: bad}, []string{}, plain, nil, 0},
		"a key that other users may read":           {keyfile.Ring{}, nil, exposed, keyfile.ErrExposed, 0},
		"no source":                                 {keyfile.Ring{}, nil, encrypted, keyfile.ErrPassphrase, 0},
		"a file":                                    {keyfile.Ring{File: right}, nil, encrypted, nil, 0},
		"a file before other sources":               {keyfile.Ring{File: right, Credentials: bad}, []string{"hunter2"}, encrypted, nil, 0},
		"a wrong file is not made up for":           {keyfile.Ring{File: wrong, Credentials: good}, []string{"right"}, encrypted, keyfile.ErrPassphrase, 0},
		"a file that other users may read":          {keyfile.Ring{File: open}, nil, encrypted, keyfile.ErrExposed, 0},
		"systemd's credential":                      {keyfile.Ring{Credentials: good}, nil, encrypted, nil, 0},
		"a credential before the terminal":          {keyfile.Ring{Credentials: good}, []string{"hunter2"}, encrypted, nil, 0},
		"a wrong credential is not made up for":     {keyfile.Ring{Credentials: bad}, []string{"right"}, encrypted, keyfile.ErrPassphrase, 0},
		"the terminal, without the credential":      {keyfile.Ring{Credentials: empty}, []string{"right"}, encrypted, nil, 1},
		"the terminal, a wrong answer":              {keyfile.Ring{}, []string{"a", "right"}, encrypted, keyfile.ErrPassphrase, 1},
		"the terminal, an empty answer":             {keyfile.Ring{}, []string{"", "right"}, encrypted, keyfile.ErrPassphrase, 1},
		"the terminal without an answer":            {keyfile.Ring{}, []string{}, encrypted, errAsk, 1},
		"a file that is not there":                  {keyfile.Ring{File: filepath.Join(dir, "none")}, []string{"right"}, encrypted, os.ErrNotExist, 0},
		"a key that is not there":                   {keyfile.Ring{File: right}, nil, filepath.Join(dir, "none"), os.ErrNotExist, 0},
		"a passphrase where a key should have been": {keyfile.Ring{}, nil, right, keyfile.ErrKey, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			ring := tt.ring
			if tt.answers != nil {
				ring.Ask = func(prompt string) ([]byte, error) {
					if asked++; asked > len(tt.answers) {
						return nil, errAsk
					}
					if !strings.Contains(prompt, tt.path) {
						t.Errorf("prompt %q does not name the key", prompt)
					}
					return []byte(tt.answers[asked-1]), nil
				}
			}
			got, err := ring.Signer(tt.path)
			if !errors.Is(err, tt.want) || (got == nil) != (err != nil) {
				t.Fatalf("Signer = %T, %v, want error %v", got, err, tt.want)
			}
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
			if err == nil && !equal(key, got) {
				t.Error("Signer returns another key")
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %q: want one line without the passphrase", err)
			}
		})
	}
}

// TestRingAsksOnce reads two keys with one passphrase and a third with another: two prompts.
func TestRingAsksOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := keys(t)
	first := write(t, dir, "first", encrypt(t, all["P-256"], "one"), 0o600)
	second := write(t, dir, "second", encrypt(t, all["X25519"], "one"), 0o600)
	third := write(t, dir, "third", encrypt(t, all["Ed25519"], "two"), 0o600)
	var asked []string
	ring := keyfile.Ring{Ask: func(prompt string) ([]byte, error) {
		asked = append(asked, prompt)
		return []byte([]string{"one", "two"}[len(asked)-1]), nil
	}}
	if _, err := ring.Signer(first); err != nil {
		t.Fatal(err)
	}
	x, err := ring.X25519(second)
	if err != nil || !equal(all["X25519"], x) {
		t.Fatalf("X25519 = %v, %v", x, err)
	}
	if _, got, err := ring.SignerAndPassphrase(first); err != nil || len(asked) != 1 || string(got) != "one" {
		t.Errorf("asked %q, passphrase %q, %v; want one question and %q", asked, got, err, "one")
	}
	if _, err := ring.Signer(third); err != nil || len(asked) != 2 {
		t.Errorf("the third key: %v after %q", err, asked)
	}
	ring.Forget()
	ring.Ask = nil
	if _, _, err := ring.SignerAndPassphrase(third); !errors.Is(err, keyfile.ErrPassphrase) {
		t.Errorf("a ring that has forgotten: %v, want %v", err, keyfile.ErrPassphrase)
	}
}

// A pipe can be read only once, and the returned passphrase is the key's.
func TestRingReadsPipesOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := keys(t)["P-256"]
	pipe := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		go func() { _ = os.WriteFile(path, text, 0) }() // one that is not read ends with the test
		return path
	}
	ring := keyfile.Ring{File: pipe("passphrase", []byte("one\n")), Keys: inputfile.Typed}
	got, passphrase, err := ring.SignerAndPassphrase(pipe("key", encrypt(t, key, "one")))
	if err != nil || !equal(key, got) || string(passphrase) != "one" {
		t.Errorf("SignerAndPassphrase = %T, %q, %v, want the key and its passphrase", got, passphrase, err)
	}
}

func TestRingKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := keys(t)
	var ring keyfile.Ring
	x := write(t, dir, "x", marshal(t, all["X25519"], ""), 0o600)
	ec := write(t, dir, "ec", marshal(t, all["P-256"], ""), 0o600)
	if got, err := ring.Signer(x); got != nil || !errors.Is(err, keyfile.ErrKey) {
		t.Errorf("Signer of X25519 = %T, %v", got, err)
	}
	if got, err := ring.X25519(ec); got != nil || !errors.Is(err, keyfile.ErrKey) {
		t.Errorf("X25519 of P-256 = %v, %v", got, err)
	}
	p256, err := ecdh.P256().GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	agreed := write(t, dir, "p256", marshal(t, p256, ""), 0o600)
	if got, err := ring.X25519(agreed); got != nil || !errors.Is(err, keyfile.ErrKey) {
		t.Errorf("X25519 of ECDH on P-256 = %v, %v", got, err)
	}
}
