package jwt

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// cacheKey is the hash of a token's whole text, the signature included.
type cacheKey [sha256.Size]byte

// cache remembers the verified tokens used most recently. It is safe for
// concurrent use.
type cache struct {
	size int // at most this many entries; negative or zero keeps none

	mu      sync.Mutex
	entries map[cacheKey]*list.Element // guarded by mu
	order   *list.List                 // of *cacheEntry, most recent first; guarded by mu
}

type cacheEntry struct {
	key   cacheKey
	token *Verified
}

func newCache(size int) *cache {
	return &cache{size: size, entries: make(map[cacheKey]*list.Element), order: list.New()}
}

func (c *cache) get(key cacheKey) (*Verified, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cacheEntry).token, true
}

// add remembers a token. Two goroutines may add the same one.
func (c *cache) add(key cacheKey, token *Verified) {
	if c.size <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return
	}
	c.entries[key] = c.order.PushFront(&cacheEntry{key, token})
	for len(c.entries) > c.size {
		oldest := c.order.Back()
		delete(c.entries, oldest.Value.(*cacheEntry).key)
		c.order.Remove(oldest)
	}
}
