package jwt

import (
	"container/list"
	"hash/maphash"
	"strings"
	"sync"
)

// cacheKey is the hash of a token's whole text, the signature included. Its seed
// is this process's secret, so that nobody can look for two texts of one hash,
// nor learn from the time that a comparison of texts takes: only texts of one
// hash are compared.
type cacheKey uint64

var cacheSeed = maphash.MakeSeed()

// keyOf takes a thirtieth of the time of a SHA-256.
func keyOf(text string) cacheKey { return cacheKey(maphash.String(cacheSeed, text)) }

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
	text  string
	token *Verified
}

func newCache(size int) *cache {
	return &cache{size: size, entries: make(map[cacheKey]*list.Element), order: list.New()}
}

func (c *cache) get(text string) (*Verified, bool) {
	key := keyOf(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok || e.Value.(*cacheEntry).text != text {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cacheEntry).token, true
}

// add remembers a token. Two goroutines may add the same one. Of two texts of
// one hash, which nobody will ever see, the first is remembered.
func (c *cache) add(text string, token *Verified) {
	if c.size <= 0 {
		return
	}
	key := keyOf(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return
	}
	// The text may be a part of a whole message, which must not stay.
	c.entries[key] = c.order.PushFront(&cacheEntry{key, strings.Clone(text), token})
	for len(c.entries) > c.size {
		oldest := c.order.Back()
		delete(c.entries, oldest.Value.(*cacheEntry).key)
		c.order.Remove(oldest)
	}
}
