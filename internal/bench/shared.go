package bench

import (
	"bytes"
	"errors"
	"sync"
	"time"
)

// errTimeout means that no reply came in time.
var errTimeout = errors.New("no reply in 15s")

// A link is a connection over which a node asks.
type link interface {
	ask(subject string, payload []byte) ([]byte, error)
	close()
}

// A shared is a connection over which many nodes ask at the same time.
type shared struct {
	c       *conn
	pending chan struct{} // something is to be sent
	done    chan struct{} // closed when err is set

	mu      sync.Mutex
	slot    uint64                  // guarded by mu: of the last request
	waiting map[uint64]chan message // guarded by mu
	err     error                   // guarded by mu: why it ended
}

// newShared takes over c. It ends with close, or when c does.
func newShared(c *conn) *shared {
	s := &shared{
		c:       c,
		pending: make(chan struct{}, 1),
		done:    make(chan struct{}),
		waiting: make(map[uint64]chan message),
	}
	c.out = append(append(append(c.out[:0], "SUB "...), c.inbox...), "* 1\r\n"...)
	go s.write()
	go s.read()
	return s
}

// ask is [conn.ask] for many callers at a time.
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
	case s.pending <- struct{}{}:
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
		case <-s.pending:
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

// read hands replies to the requests that wait for them.
func (s *shared) read() {
	for {
		m, err := s.c.message()
		if err != nil {
			s.end(err)
			return
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
	_ = s.c.Close() // wakes the other goroutine
}

func (s *shared) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *shared) close() { s.end(errors.New("closed")) }

// A sharedLink is one of the shared connections, made anew when it ends.
type sharedLink struct {
	credentials *credentials

	mu   sync.Mutex
	link *shared // guarded by mu: nil if there is none
}

// take returns the connection, made by dial if there is none that works.
func (l *sharedLink) take(dial func(*credentials) (*conn, error)) (*shared, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil && l.link.reason() == nil {
		return l.link, nil
	}
	c, err := dial(l.credentials)
	if err != nil {
		return nil, err
	}
	l.link = newShared(c)
	return l.link, nil
}

// close closes the connection, if there is one.
func (l *sharedLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil {
		l.link.close()
	}
}
