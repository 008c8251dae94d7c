package jwt

import (
	"crypto/sha256"
	"sync"
)

// cacheKey is the SHA-256 of a token's whole text, the signature included: no two texts share one, and the time of a
// look-up tells nothing of the texts that are there.
type cacheKey [sha256.Size]byte

// cacheSize is how many tokens are remembered: a fleet shares one token, and the operators of
// ten fleets with a token per rack stay below it.
const cacheSize = 1024

// cache remembers verified tokens. It is safe for concurrent use.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*Verified // guarded by mu
}

func newCache() *cache { return &cache{entries: make(map[cacheKey]*Verified)} }

func (c *cache) get(key cacheKey) (*Verified, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token, ok := c.entries[key]
	return token, ok
}

// add remembers a token. Where there is no room, any other one gives way.
func (c *cache) add(key cacheKey, token *Verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; !ok && len(c.entries) >= cacheSize {
		for other := range c.entries {
			delete(c.entries, other)
			break
		}
	}
	c.entries[key] = token
}
