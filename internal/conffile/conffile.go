// Package conffile reads configuration files strictly: the daemons' YAML into
// a struct, and a node's server.conf of `key = value` lines.
//
// Strict means that whatever the reader does not understand is an error that
// names the line, all mistakes are reported together, and an error prints no
// value of server.conf, where values can be passwords. Files are bounded at
// [MaxFileBytes], and so is every other that [ReadFile] reads: keys, certificates and
// tokens that a person has named.
package conffile

import (
	"fmt"
	"io"
	"os"
)

// MaxFileBytes bounds a configuration file, or another that is named. The largest that a provisioner
// pushes is [muster/internal/wire.MaxFilesBytes]; chosen so that a file given
// by mistake, such as a log, is refused rather than read.
const MaxFileBytes = 1 << 20

// maxMistakes bounds the mistakes reported of one file: a file of another kind
// has one in every line.
const maxMistakes = 16

// ReadFile reads a file that an operator has named, such as a key, a certificate or a
// token: one of at most [MaxFileBytes]. What has no end, like a device, is refused
// as well. Errors name the path.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the path already
	}
	defer func() { _ = f.Close() }() // nothing was written
	return Read(f, path)
}

// Read is [ReadFile] of what is open, such as standard input, by that name.
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
