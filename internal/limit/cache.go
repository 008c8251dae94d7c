package limit

import "sync"

// A Cache keeps a bounded number of values: beyond it, a new one takes the place of any other. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	most   int
	mu     sync.Mutex
	values map[K]V // guarded by mu
}

// NewCache returns an empty Cache for most values.
func NewCache[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, values: make(map[K]V)}
}

// Get returns the value of key and whether there is one.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.values[key]
	return v, ok
}

// Put sets the value of key.
func (c *Cache[K, V]) Put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.values[key]; !ok && len(c.values) >= c.most {
		for other := range c.values {
			delete(c.values, other)
			break
		}
	}
	c.values[key] = v
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.values)
}
