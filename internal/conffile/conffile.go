// Package conffile reads configuration files strictly. It reports all mistakes together, with their lines. Errors
// contain no value of server.conf, because values can be passwords.
package conffile

import (
	"fmt"
	"io"
	"os"
)

// MaxFileBytes refuses files that were given by mistake, such as logs.
const MaxFileBytes = 1 << 20

// maxMistakes bounds the mistakes reported per file.
const maxMistakes = 16

// ReadFile returns an error for more than [MaxFileBytes]. Errors name the path.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return Read(f, path)
}

// Read is like [ReadFile], for an open file such as standard input.
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
