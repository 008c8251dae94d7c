package bench

import "sync"

// A link is where a node asks.
type link interface {
	ask(subject string, payload []byte) ([]byte, error)
	close()
}

// A sharedLink is one of the connections of all nodes, made anew when it ends.
type sharedLink struct {
	credentials *credentials

	mu   sync.Mutex
	link *shared // guarded by mu: nil if there is none
}

func (l *sharedLink) take(d *driver) (*shared, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link == nil {
		c, err := dial(d.address, l.credentials, d.secure)
		if err != nil {
			return nil, err
		}
		l.link = newShared(c)
	}
	return l.link, nil
}

// drop closes the connection if it still is the one that failed, or in any case
// if that is nil.
func (l *sharedLink) drop(failed *shared) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil && (failed == nil || l.link == failed) {
		l.link.close()
		l.link = nil
	}
}

// connect returns the node's link.
func (w *walker) connect(n *node) (link, error) {
	if w.link != nil {
		return w.link, nil
	}
	if n.conn == nil {
		l, err := w.links[n.link].take(w.driver)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	c, err := dial(w.address, n.conn, w.secure)
	if err != nil {
		return nil, err
	}
	w.link = c
	return c, nil
}

// disconnect ends what the node has of its own, or what failed under it.
func (w *walker) disconnect(n *node, failed link) {
	if w.link != nil {
		w.link.close()
		w.link = nil
		return
	}
	if s, ok := failed.(*shared); ok && s.reason() != nil {
		w.links[n.link].drop(s)
	}
}
