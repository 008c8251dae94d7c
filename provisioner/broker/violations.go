package broker

import (
	"strings"
	"sync"
	"time"
)

// What a connection may say in vain that it is not permitted to say. nats-server answers with the
// subject, quoted, up to four times as long, keeps that for a client that does not read until it
// is 64 MiB or ten seconds old, and goes on: 20 connections had 400 MB kept within six
// seconds, and a core each did nothing else (measured). Our agents never do it.
const (
	// maxViolationBytes is how long the subject may be, quoted; chosen, four times the longest of ours.
	maxViolationBytes = 1600

	// maxViolations is how many a connection may have in violationTime. Chosen: together they fit into what the
	// system keeps for a connection, and a provisioner that tries what it is not permitted any more, every
	// ten seconds, has some 25; see [External.Watch].
	maxViolations = 64
	violationTime = time.Minute
)

// violations says which connections are to end for what they say in vain. It belongs to one server, but for
// what is a minute old. It is safe for concurrent use. The zero value is ready.
type violations struct {
	mu    sync.Mutex
	since time.Time      // guarded by mu
	count map[uint64]int // guarded by mu: by number of the connection
}

// isViolation reports whether a line of nats-server's about a client is of something that was not permitted.
func isViolation(text string) bool {
	return strings.HasPrefix(text, "Publish Violation - ") || strings.HasPrefix(text, "Subscription Violation")
}

// add notes what the server says of a connection, and reports whether that is to end.
func (v *violations) add(number uint64, text string) bool {
	if len(text) > maxViolationBytes {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); v.count == nil || now.Sub(v.since) > violationTime {
		v.since, v.count = now, make(map[uint64]int)
	}
	v.count[number]++
	return v.count[number] > maxViolations
}
