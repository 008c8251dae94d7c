// Package conffile strictly reads configuration files. All mistakes are reported together, with their lines. Errors
// contain no value of server.conf, which can be a password.
package conffile

import (
	"fmt"
	"io"
	"os"
)

// MaxFileBytes refuses a file given by mistake, such as a log.
const MaxFileBytes = 1 << 20

// maxMistakes bounds the mistakes reported per file.
const maxMistakes = 16

// ReadFile reads at most [MaxFileBytes]; more is an error. Errors name the path.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return Read(f, path)
}

// Read is [ReadFile] for an open file such as standard input.
func Read(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFileBytes {
		return nil, fmt.Errorf("%s: more than %d bytes, the limit: is it the right file?", name, MaxFileBytes)
	}
	return b, nil
}
