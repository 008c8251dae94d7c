package seal

import (
	"sync"
	"time"
)

// Bounds of what an [Opener] remembers. A node is through in seconds; who comes
// back later costs what everybody did. In the worst case 2 * 8192 sessions of 80
// bytes are remembered, about 3 MB as a map has it.
const (
	cacheEntries = 8192        // chosen: of one generation; more nodes than a busy provisioner has in hand
	cacheAge     = time.Minute // chosen: after which a generation ends, so that a session is forgotten within two
)

// sessionID is what names a session among those of all keys.
type sessionID [idChars + encapsulatedBytes]byte

func newSessionID(key string, enc []byte) (id sessionID) {
	copy(id[:idChars], key)
	copy(id[idChars:], enc)
	return id
}

// A cache remembers the secrets of sessions that were opened lately. It saves an
// agreement and decides nothing: whatever is not in it is computed again, by this
// process or by another, with the same result.
//
// Only sessions of which something has opened are put in, each of them costs
// whoever wants to crowd out others as much as it costs us to compute one again,
// and they are forgotten in the order in which they were last used, roughly: there
// are two generations, what is used in the old one moves to the young one, and the
// old one goes when the young one is full or has had its time.
type cache struct {
	now     func() time.Time
	entries int // of one generation

	mu         sync.Mutex
	young, old map[sessionID][secretBytes]byte // without pointers: the collector passes over them
	since      time.Time                       // of young
}

func newCache(now func() time.Time, entries int) *cache { return &cache{now: now, entries: entries} }

// get returns the secret of a session, if it is remembered.
func (c *cache) get(id sessionID) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(0)
	b, ok := c.young[id]
	if !ok {
		if b, ok = c.old[id]; ok {
			c.add(id, b)
		}
	}
	return b[:], ok
}

// put remembers the secret of a session.
func (c *cache) put(id sessionID, secret []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(0)
	c.add(id, [secretBytes]byte(secret))
}

func (c *cache) add(id sessionID, b [secretBytes]byte) {
	if _, ok := c.young[id]; !ok {
		c.turn(1)
	}
	if c.young == nil {
		c.young = make(map[sessionID][secretBytes]byte)
	}
	c.young[id] = b
}

// turn ends the young generation if it has had its time or has no room for more.
// Where nothing was used for as long, both have.
func (c *cache) turn(more int) {
	now := c.now()
	age := now.Sub(c.since)
	if len(c.young)+more <= c.entries && age < cacheAge {
		return
	}
	c.old, c.young, c.since = c.young, nil, now
	if age >= 2*cacheAge {
		c.old = nil
	}
}

// len returns how many sessions are remembered.
func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
