package jwt

import (
	"crypto/sha256"
	"sync"
)

// A hash, so that the time of a look-up tells nothing about stored texts.
type cacheKey [sha256.Size]byte

// A fleet shares one token; ten fleets with a token per rack stay below this.
const cacheSize = 1024

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
