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

// Larger files were given by mistake.
const (
	maxKeyBytes  = 64 << 10
	maxLineBytes = 4 << 10
)

// ErrExposed means that other users may access a secret file. The error text has the command to fix it.
var ErrExposed = errors.New("lets other users in")

// ReadSecret reads at most 64 KiB. If group or world may access a regular file, the error wraps [ErrExposed]. Pipes
// such as /dev/fd/3 are not checked.
func ReadSecret(path string) ([]byte, error) { return read(path, 0, maxKeyBytes, exposed) }

// ReadFile is like [ReadSecret], but accepts only regular files and does not block on a pipe.
func ReadFile(path string) ([]byte, error) {
	return read(path, syscall.O_NONBLOCK, maxKeyBytes, func(path string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: not a file", path)
		}
		return exposed(path, info)
	})
}

// ReadKey is like [ReadSecret]. If an exposed file has no secret, only a public key for example, the error wraps
// [ErrKey].
func ReadKey(path string) ([]byte, error) {
	b, err := ReadSecret(path)
	if !errors.Is(err, ErrExposed) {
		return b, err
	}
	if b, failed := read(path, 0, maxKeyBytes, nil); failed == nil {
		defer clear(b)
		secret := bytes.Contains(b, []byte(typePlain+"-----")) // also in a damaged block
		if _, failed := privateBlock(b); failed != nil && !secret && bytes.Contains(b, []byte("-----BEGIN ")) {
			return nil, fmt.Errorf("%s: %w", path, failed)
		}
	}
	return nil, err
}

// ReadLine is like [ReadSecret], for a secret on one line of at most 4 KiB.
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

func read(path string, flag int, limit int64, check func(string, fs.FileInfo) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|flag, 0)
	if err != nil {
		return nil, err
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

// CheckPrivate returns [ErrExposed] for a file that other users may access.
func CheckPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return exposed(path, info)
}

func exposed(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); info.Mode().IsRegular() && mode&0o077 != 0 {
		return fmt.Errorf("%s: mode %04o %w: chmod 600 %s", path, mode, ErrExposed, shellWord(path))
	}
	return nil
}

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
