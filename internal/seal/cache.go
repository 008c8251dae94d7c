package seal

import "sync"

// cacheEntries bounds the sessions that an [Opener] remembers, about 1 MB: more nodes than a busy provisioner has in
// hand at a time. A node is through in seconds.
const cacheEntries = 8192

// sessionID is what names a session among those of all keys.
type sessionID [idChars + encapsulatedBytes]byte

func newSessionID(key string, enc []byte) (id sessionID) {
	copy(id[:idChars], key)
	copy(id[idChars:], enc)
	return id
}

// A cache remembers the secrets of sessions that were opened lately. It saves an agreement and decides nothing: what is
// not in it is computed again, by this process or by another, with the same result. Only sessions of which something
// has opened are put in, so that crowding one out costs as much as computing one again.
type cache struct {
	mu      sync.Mutex
	secrets map[sessionID][secretBytes]byte // guarded by mu; without pointers: the collector passes over them
}

// get returns the secret of a session, if it is remembered.
func (c *cache) get(id sessionID) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.secrets[id]
	return b[:], ok
}

// put remembers the secret of a session. Where there is no room, any other one gives way.
func (c *cache) put(id sessionID, secret []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.secrets[id]; !ok && len(c.secrets) >= cacheEntries {
		for other := range c.secrets {
			delete(c.secrets, other)
			break
		}
	}
	c.secrets[id] = [secretBytes]byte(secret)
}
