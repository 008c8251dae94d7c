// Package conffile reads configuration files strictly: the daemons' YAML into
// a struct, and a node's server.conf of `key = value` lines.
//
// Strict means that whatever the reader does not understand is an error that
// names the line, all mistakes are reported together, and an error prints no
// value of server.conf, where values can be passwords. Files are bounded at
// [MaxFileBytes].
package conffile

import (
	"fmt"
	"io"
	"os"
)

// MaxFileBytes bounds a configuration file. The largest that a provisioner
// pushes is [muster/internal/wire.MaxFilesBytes]; chosen so that a file given
// by mistake, such as a log, is refused rather than read.
const MaxFileBytes = 1 << 20

// maxMistakes bounds the mistakes reported of one file: a file of another kind
// has one in every line.
const maxMistakes = 16

// readFile reads a file of at most [MaxFileBytes].
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the path already
	}
	defer func() { _ = f.Close() }() // nothing was written
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFileBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", path, MaxFileBytes)
	}
	return b, nil
}
