package jwt

import (
	"crypto/sha256"
	"sync"
)

// A hash: the time of a look-up must not reveal cached tokens.
type cacheKey [sha256.Size]byte

// Enough for ten fleets with a token per rack; most fleets share one token.
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
