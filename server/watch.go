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

// pause waits for d, of which the machine may sleep through a part, or until ctx is
// done, or until the fingerprints of the files that make another attempt worth while are
// no longer those given, or the file that an attempt waits for has changed.
func (s *Server) pause(ctx context.Context, d time.Duration, files string) {
	due := s.in(d)
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
			if s.come(due) || s.fingerprints() != files || s.awaitedChanged(ctx) {
				return
			}
		}
	}
}

// awaitedChanged is whether the file that an attempt waits for has changed. It has not if
// nobody can tell.
func (s *Server) awaitedChanged(ctx context.Context) bool {
	if s.awaited == "" {
		return false
	}
	now, err := outside(ctx, s, "print", s.awaited, func(file string) (string, error) { return fileFingerprint(file), nil })
	return err == nil && now != s.awaitedPrint
}

// fingerprints tells one version of the node's files from another by what
// stat(2) says of them.
func (s *Server) fingerprints() string {
	var b strings.Builder
	for _, path := range append(s.tokenFiles(), s.at.conf) {
		b.WriteString(fileFingerprint(path))
	}
	return b.String()
}

// setFingerprints tells one version of everything that decides the mode from
// another.
func (s *Server) setFingerprints() string {
	var b strings.Builder
	b.WriteString(s.fingerprints())
	for _, name := range []string{keyFile, certificateFile, caFile} {
		b.WriteString(fileFingerprint(s.at.in(name)))
	}
	return b.String()
}

// fileFingerprint tells one version of a file from another, and from none. What puts
// files in place often gives them a time of its own, and tokens of one signer are of
// one length, so a file in the place of another is known by its inode.
func fileFingerprint(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return "|"
	}
	return fmt.Sprint(fi.Size(), fi.ModTime().UnixNano(), fi.Mode(), inode(fi), "|")
}
