package bench

import (
	"bytes"
	"errors"
	"sync"
	"time"
)

// errTimeout means that no reply came in time.
var errTimeout = errors.New("no reply in 15s")

// A shared is a connection over which many nodes ask at the same time: as a
// proxy's would be.
type shared struct {
	c    *conn
	kick chan struct{} // something is to be sent
	done chan struct{} // closed with err set

	mu      sync.Mutex
	slot    uint64                  // guarded by mu: the last one given out
	waiting map[uint64]chan message // guarded by mu
	err     error                   // guarded by mu: why it ended
}

// newShared takes over c. It ends with close, or when c does.
func newShared(c *conn) *shared {
	s := &shared{c: c, kick: make(chan struct{}, 1), done: make(chan struct{}), waiting: make(map[uint64]chan message)}
	c.out = c.out[:0]
	c.subscribe()
	go s.write()
	go s.read()
	return s
}

// ask is [conn.ask] for many at a time. The reply is the caller's.
func (s *shared) ask(subject string, payload []byte) ([]byte, error) {
	reply := make(chan message, 1)
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.slot++
	slot := s.slot
	s.waiting[slot] = reply
	s.c.publish(subject, slot, payload)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
	late := time.NewTimer(replyTimeout)
	defer late.Stop()
	select {
	case m := <-reply:
		return m.payload, m.err
	case <-s.done:
		return nil, s.reason()
	case <-late.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, slot)
		return nil, errTimeout
	}
}

// write sends what there is to be sent, as much at once as there is.
func (s *shared) write() {
	var spare []byte
	for {
		select {
		case <-s.kick:
		case <-s.done:
			return
		}
		s.mu.Lock()
		out := s.c.out
		s.c.out = spare[:0]
		s.mu.Unlock()
		if _, err := s.c.Write(out); err != nil {
			s.end(err)
			return
		}
		spare = out
	}
}

// read hands replies to those who wait for them.
func (s *shared) read() {
	for {
		m, err := s.c.message()
		if err != nil {
			s.end(err)
			return
		}
		if m.payload == nil {
			continue
		}
		s.mu.Lock()
		reply := s.waiting[m.slot]
		delete(s.waiting, m.slot)
		s.mu.Unlock()
		if reply != nil { // else it came too late
			m.payload = bytes.Clone(m.payload)
			reply <- m
		}
	}
}

func (s *shared) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	close(s.done)
	_ = s.c.Close() // wakes the other half; its reader is not given back, since that half may hold it
}

func (s *shared) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *shared) close() { s.end(errors.New("closed")) }
