//go:build unix

package keyfile_test

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
)

// rsaKey is slow to make.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func keys(t *testing.T) map[string]crypto.PrivateKey {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsaKey()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.PrivateKey{"P-256": ec, "Ed25519": ed, "X25519": x, "RSA": r}
}

func write(t *testing.T, dir, name string, b []byte, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // not left to the umask
		t.Fatal(err)
	}
	return path
}

func marshal(t *testing.T, key crypto.PrivateKey, passphrase string) []byte {
	t.Helper()
	b, err := keyfile.Marshal(key, []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openssl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func equal(a, b any) bool {
	k, ok := a.(interface{ Equal(crypto.PrivateKey) bool })
	return ok && k.Equal(b)
}

// TestKeysAreOpenSSLs checks that openssl and we read a key of each kind.
func TestKeysAreOpenSSLs(t *testing.T) {
	t.Parallel()
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := marshal(t, key, "")
			if keyfile.Encrypted(b) {
				t.Error("a plain key is taken for an encrypted one")
			}
			plain := openssl(t, "pkey", "-in", write(t, t.TempDir(), "key.pem", b, 0o600))
			for _, text := range [][]byte{b, []byte(plain)} {
				if got, err := keyfile.Parse(text, nil); err != nil || !equal(key, got) {
					t.Errorf("Parse = %T, %v, want the key", got, err)
				}
			}
		})
	}
}

// TestEncryptedKeysAreOpenSSLs checks that openssl and we decrypt a key with the documented parameters.
func TestEncryptedKeysAreOpenSSLs(t *testing.T) {
	t.Parallel()
	key := keys(t)["X25519"]
	b := marshal(t, key, "correct horse")
	if !keyfile.Encrypted(b) {
		t.Error("an encrypted key is taken for a plain one")
	}
	path := write(t, t.TempDir(), "key.pem", b, 0o600)
	plain := openssl(t, "pkey", "-in", path, "-passin", "pass:correct horse")
	if got, err := keyfile.Parse([]byte(plain), nil); err != nil || !equal(key, got) {
		t.Errorf("openssl decrypts another key: %v", err)
	}
	form := openssl(t, "asn1parse", "-in", path)
	for _, want := range []string{"PBKDF2", "hmacWithSHA256", "aes-256-cbc", "INTEGER           :0927C0"} { // 600,000
		if !strings.Contains(form, want) {
			t.Errorf("openssl asn1parse has no %s:\n%s", want, form)
		}
	}
	got, err := keyfile.Parse(b, func() ([]byte, error) { return []byte("correct horse"), nil })
	if err != nil || !equal(key, got) {
		t.Errorf("Parse of our own = %T, %v", got, err)
	}
}

func TestReadSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, ok := range map[fs.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o604: false, 0o644: false, 0o620: false, 0o602: false, 0o601: false,
	} {
		name := "file" + mode.String()
		path := write(t, dir, name, []byte("hush\n"), mode)
		got, err := keyfile.ReadSecret(path, inputfile.Configured)
		if ok && (err != nil || string(got) != "hush\n") {
			t.Errorf("mode %v: ReadSecret = %q, %v", mode, got, err)
		}
		if ok {
			continue
		}
		if !errors.Is(err, keyfile.ErrExposed) || got != nil {
			t.Errorf("mode %v: ReadSecret = %q, %v, want %v", mode, got, err, keyfile.ErrExposed)
			continue
		}
		for _, want := range []string{path, fmt.Sprintf("mode %04o", mode), "chmod 600 " + path} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write(t, dir, "open", []byte("hush"), 0o644), link); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.ReadSecret(link, inputfile.Configured); !errors.Is(err, keyfile.ErrExposed) {
		t.Errorf("through a link: %v, want %v", err, keyfile.ErrExposed)
	}
	odd := write(t, dir, "o'dd", nil, 0o644)
	if _, err := keyfile.ReadSecret(odd, inputfile.Configured); err == nil ||
		!strings.Contains(err.Error(), `chmod 600 '`+dir+`/o'\''dd'`) {
		t.Errorf("a name with a quote: %v", err)
	}
	large := write(t, dir, "large", bytes.Repeat([]byte("x"), 64<<10+1), 0o600)
	if _, err := keyfile.ReadSecret(large, inputfile.Configured); err == nil ||
		!strings.Contains(err.Error(), "65536") {
		t.Errorf("a large file: %v", err)
	}
	if _, err := keyfile.ReadSecret(filepath.Join(dir, "none"), inputfile.Configured); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// A configured secret is a regular file; a typed one may be a pipe.
func TestConfiguredSecretIsAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is a pipe", dir: "is a directory"} {
		if _, err := keyfile.ReadSecret(path, inputfile.Configured); err == nil ||
			err.Error() != path+": "+want+", want a regular file" {
			t.Errorf("%s: %v, want that it %s", path, err, want)
		}
	}
}

// For a public key or a certificate in the private key's place, the error is not its mode.
func TestReadKeyNamesPublicFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := keys(t)["Ed25519"]
	private := write(t, dir, "key.pem", marshal(t, key, ""), 0o600)
	public := write(t, dir, "pub.pem", []byte(openssl(t, "pkey", "-in", private, "-pubout")), 0o644)
	if b, err := keyfile.ReadKey(public, inputfile.Configured); b != nil || !errors.Is(err, keyfile.ErrKey) ||
		!strings.Contains(err.Error(), "public key only") {
		t.Errorf("ReadKey of a public key = %q, %v", b, err)
	}
	// A secret key is exposed, whatever else is wrong with it.
	cut := write(t, dir, "cut.pem", marshal(t, key, "")[:60], 0o644)
	both := write(t, dir, "both.pem", append([]byte(openssl(t, "pkey", "-in", private, "-pubout")),
		marshal(t, key, "")...), 0o644)
	seed := write(t, dir, "seed.hex", bytes.Repeat([]byte("a1"), 32), 0o644)
	for _, path := range []string{both, seed, cut} {
		if b, err := keyfile.ReadKey(path, inputfile.Configured); b != nil || !errors.Is(err, keyfile.ErrExposed) {
			t.Errorf("ReadKey of %s = %q, %v, want %v", path, b, err, keyfile.ErrExposed)
		}
	}
	if b, err := keyfile.ReadKey(private, inputfile.Configured); err != nil || !bytes.Equal(b, marshal(t, key, "")) {
		t.Errorf("ReadKey of a private key = %q, %v", b, err)
	}
}

func TestReadLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for content, want := range map[string]string{
		"hush": "hush", "hush\n": "hush", "hush\r\n": "hush", " in blanks \n": "in blanks", "": "", "\n": "", "a\nb": "",
		"\na\n\n":                    "a",
		strings.Repeat("x", 4<<10+1): "",
	} {
		got, err := keyfile.ReadLine(write(t, dir, "line", []byte(content), 0o600), inputfile.Typed)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("ReadLine of %.20q = %q, %v, want %q", content, got, err, want)
		}
	}
	open := write(t, dir, "open", []byte("hush"), 0o640)
	if _, err := keyfile.ReadLine(open, inputfile.Typed); !errors.Is(err, keyfile.ErrExposed) {
		t.Errorf("ReadLine of an open file: %v, want %v", err, keyfile.ErrExposed)
	}
	// The permissions of a pipe do not matter.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("hush\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer r.Close()
	got, err := keyfile.ReadLine(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), inputfile.Typed)
	if err != nil || string(got) != "hush" {
		t.Errorf("ReadLine of a pipe = %q, %v", got, err)
	}
}

// The next key in the file must not be taken instead.
func TestUnreadableBlockIsAnError(t *testing.T) {
	t.Parallel()
	all := keys(t)
	first, second := marshal(t, all["Ed25519"], ""), marshal(t, all["P-256"], "")
	for name, text := range map[string][]byte{
		"marked":   append([]byte("\ufeff"), first...),
		"indented": append([]byte("  "), first...),
		"altered":  bytes.Replace(first, []byte("\nM"), []byte("\n!M"), 1),
		"cut":      append(bytes.Clone(first[:60]), '\n'),
	} {
		for _, b := range [][]byte{text, append(bytes.Clone(text), second...)} {
			key, err := keyfile.Parse(b, nil)
			if key != nil || !errors.Is(err, keyfile.ErrKey) ||
				!strings.Contains(err.Error(), fmt.Sprintf("1 of %d PEM blocks cannot be read",
					bytes.Count(b, []byte("BEGIN")))) {
				t.Errorf("%s: Parse = %T, %v", name, key, err)
			}
		}
	}
}
