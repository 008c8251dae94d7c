// Package conffile strictly reads configuration files: YAML into a struct, and a node's server.conf.
//
// Unknown input is an error with its line, and all mistakes are reported together. Errors contain no value of
// server.conf, because values can be passwords.
package conffile

import (
	"fmt"
	"io"
	"os"
)

// MaxFileBytes bounds files that an operator names, to refuse one given by mistake, such as a log. Pushed files
// have at most [muster/internal/wire.MaxFilesBytes].
const MaxFileBytes = 1 << 20

// maxMistakes bounds the mistakes reported per file.
const maxMistakes = 16

// ReadFile reads a file. More than [MaxFileBytes], as from an endless device, is an error. Errors name the path.
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
