package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// tokenFiles are the paths that may hold the token, in order.
func (s *Server) tokenFiles() []string {
	switch {
	case s.cfg.TokenFile != "":
		return []string{s.cfg.TokenFile}
	case s.build.tokenFile != "":
		return []string{s.build.tokenFile}
	}
	return defaultTokenFiles
}

// pause waits for d, or until ctx is done, or until the fingerprints of the
// files that make another attempt worth while are no longer those given.
func (s *Server) pause(ctx context.Context, d time.Duration, files string) {
	end := time.NewTimer(d)
	defer end.Stop()
	watch := time.NewTicker(s.cfg.WatchInterval)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-watch.C:
			if s.fingerprints() != files {
				return
			}
		}
	}
}

// fingerprints tells one version of the node's files from another by what
// stat(2) says of them.
func (s *Server) fingerprints() string {
	var b strings.Builder
	for _, path := range append(s.tokenFiles(), s.at.conf) {
		if fi, err := os.Stat(path); err == nil {
			fmt.Fprint(&b, fi.Size(), fi.ModTime().UnixNano(), fi.Mode(), " ")
		}
		b.WriteByte('|')
	}
	return b.String()
}

// setFingerprints tells one version of everything that decides the mode from
// another.
func (s *Server) setFingerprints() string {
	var b strings.Builder
	b.WriteString(s.fingerprints())
	for _, name := range []string{keyFile, certificateFile, caFile} {
		if fi, err := os.Stat(s.at.in(name)); err == nil {
			fmt.Fprint(&b, fi.Size(), fi.ModTime().UnixNano(), fi.Mode(), " ")
		}
		b.WriteByte('|')
	}
	return b.String()
}
