package server

import (
	"fmt"
	"os"
	"strings"
)

type watched struct {
	paths []string
	seen  string
}

func watch(paths ...string) watched { return watched{paths, fingerprint(paths)} }

func (w watched) changed() bool { return fingerprint(w.paths) != w.seen }

// fingerprint identifies a version of a file. It includes the inode: programs that replace a file often keep its time,
// and a signer's tokens have the same length.
func fingerprint(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		if fi, err := os.Stat(path); err == nil {
			fmt.Fprint(&b, fi.Size(), fi.ModTime().UnixNano(), fi.Mode(), inode(fi))
		}
		b.WriteByte('|')
	}
	return b.String()
}
