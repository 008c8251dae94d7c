package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"muster/internal/inputfile"
)

// Larger files were given by mistake.
const (
	maxKeyBytes  = 64 << 10
	maxLineBytes = 4 << 10
)

// ErrExposed means that other users may access a secret file. The error text has the command to fix it.
var ErrExposed = errors.New("lets other users in")

// ReadSecret reads at most 64 KiB. If group or world may access a regular file, the error wraps [ErrExposed], unless
// the group may only read it and [inputfile.FromRoot]. The permissions of pipes are not judged.
func ReadSecret(path string, from inputfile.Source) ([]byte, error) {
	b, err := inputfile.Read(path, from, maxKeyBytes, exposed)
	if err != nil {
		return nil, err
	}
	return inputfile.Text(b, path)
}

// ReadKey is like [ReadSecret]. If an exposed file has no secret, only a public key for example, the error wraps
// [ErrKey].
func ReadKey(path string, from inputfile.Source) ([]byte, error) {
	b, err := ReadSecret(path, from)
	if !errors.Is(err, ErrExposed) {
		return b, err
	}
	if b, failed := inputfile.Read(path, from, maxKeyBytes); failed == nil {
		defer clear(b)
		secret := bytes.Contains(b, []byte(typePlain+"-----")) // also in a damaged block
		if _, failed := privateBlock(b); failed != nil && !secret && bytes.Contains(b, []byte("-----BEGIN ")) {
			return nil, fmt.Errorf("%s: %w", path, failed)
		}
	}
	return nil, err
}

// ReadLine is like [ReadSecret], for a secret on one line; see [inputfile.Line]. The file has at most 4 KiB.
func ReadLine(path string, from inputfile.Source) ([]byte, error) {
	return readLine(path, from, exposed)
}

func readLine(path string, from inputfile.Source, checks ...func(string, fs.FileInfo) error) ([]byte, error) {
	b, err := inputfile.Read(path, from, maxLineBytes, checks...)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	line, err := inputfile.Line(b, path, "a secret")
	return []byte(line), err
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
	if runtime.GOOS == "windows" { // modes are made up there
		if err := inputfile.ReadableByOthers(path); err != nil {
			return fmt.Errorf("%w: %w", ErrExposed, err)
		}
		return nil
	}
	mode, rule := info.Mode().Perm(), ""
	switch groupReads := mode&0o077 == 0o040; {
	case !info.Mode().IsRegular(), mode&0o077 == 0, groupReads && inputfile.FromRoot(info):
		return nil
	case groupReads && os.Geteuid() != 0:
		rule = "; only files of root may be open to a group, and this process must be in it"
	}
	return fmt.Errorf("%s: mode %04o %w: chmod 600 %s%s", path, mode, ErrExposed, inputfile.ShellWord(path), rule)
}
