package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Bounds of secret files, chosen far beyond what anybody has: a file that was
// given by mistake is refused rather than read.
const (
	maxKeyBytes  = 64 << 10
	maxLineBytes = 4 << 10
)

// ErrExposed means that others than its owner may read or write a secret file.
// The text around it has the command that mends that; nothing of it is used.
var ErrExposed = errors.New("lets others in")

// ReadSecret returns what a secret file holds, at most 64 KiB. A regular file
// with any permission of its group or of everybody is refused with
// [ErrExposed]: what was looked at is what is read, whatever happens to the
// path meanwhile. Links are followed. Of a pipe, such as /dev/fd/3, no
// permissions are asked.
func ReadSecret(path string) ([]byte, error) { return read(path, 0, maxKeyBytes, exposed) }

// ReadFile is [ReadSecret] for what has to be a regular file: everything else is an error.
// It does not wait for a writer of a pipe, which may be for ever.
func ReadFile(path string) ([]byte, error) {
	return read(path, syscall.O_NONBLOCK, maxKeyBytes, func(path string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: not a file", path)
		}
		return exposed(path, info)
	})
}

// ReadKey is [ReadSecret] for a private key. Of a file that is open to others
// because it is no secret, such as a public key given by mistake, it says so:
// that error wraps [ErrKey].
func ReadKey(path string) ([]byte, error) {
	b, err := ReadSecret(path)
	if !errors.Is(err, ErrExposed) {
		return b, err
	}
	if b, failed := read(path, 0, maxKeyBytes, nil); failed == nil {
		defer clear(b)
		secret := bytes.Contains(b, []byte(typePlain+"-----")) // perhaps in a block that cannot be read
		if _, failed := privateBlock(b); failed != nil && !secret && bytes.Contains(b, []byte("-----BEGIN ")) {
			return nil, fmt.Errorf("%s: %w", path, failed)
		}
	}
	return nil, err
}

// ReadLine returns the only line of a secret file, without its end, at most
// 4 KiB and not empty, under the conditions of [ReadSecret].
func ReadLine(path string) ([]byte, error) { return readLine(path, exposed) }

func readLine(path string, check func(string, fs.FileInfo) error) ([]byte, error) {
	b, err := read(path, 0, maxLineBytes, check)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("%s: empty, want a secret on one line", path)
	case bytes.ContainsAny(b, "\r\n"):
		return nil, fmt.Errorf("%s: several lines, want a secret on one line", path)
	}
	return b, nil
}

// read reads a file of at most limit bytes that passes check, unless that is nil.
func read(path string, flag int, limit int64, check func(string, fs.FileInfo) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|flag, 0)
	if err != nil {
		return nil, err // names the path already
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err == nil && check != nil {
		err = check(path, info)
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: secret of more than %d bytes", path, limit)
	}
	return b, err
}

// CheckPrivate returns [ErrExposed] if path is a regular file that is open to others: for what may
// hold a secret, which only who has read it knows.
func CheckPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return exposed(path, info)
}

// exposed reports whether a regular file is open to others.
func exposed(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); info.Mode().IsRegular() && mode&0o077 != 0 {
		return fmt.Errorf("%s: mode %04o %w: chmod 600 %s", path, mode, ErrExposed, shellWord(path))
	}
	return nil
}

// shellWord writes a path so that a shell takes it for one word and chmod for
// no option.
func shellWord(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:@%="
	if strings.Trim(path, safe) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
