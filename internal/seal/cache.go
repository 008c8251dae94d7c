package seal

import "sync"

// cacheEntries sessions take about 1 MB.
const cacheEntries = 8192

type sessionID [idChars + encapsulatedBytes]byte

func newSessionID(key string, enc []byte) (id sessionID) {
	copy(id[:idChars], key)
	copy(id[idChars:], enc)
	return id
}

// A cache saves key agreements. A session is added only after one of its messages was opened. So to evict a session,
// a sender must compute a key agreement.
type cache struct {
	mu      sync.Mutex
	secrets map[sessionID][secretBytes]byte // guarded by mu; no pointers for the garbage collector to scan
}

func (c *cache) get(id sessionID) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.secrets[id]
	return b[:], ok
}

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
