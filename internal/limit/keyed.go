// Package limit has rate limits ([Keyed]), fair shares ([Shares]), and retry times for refused callers ([Backlog]).
package limit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate configures a [Keyed]: each key has a bucket of Burst tokens that refills at PerSecond.
type Rate struct {
	PerSecond float64
	Burst     int

	// All keys together get All times PerSecond and Burst. Zero means no limit.
	All float64

	// Keys bounds the number of buckets. Default 100,000, about 20 MB.
	Keys int

	// Now defaults to [time.Now].
	Now func() time.Time
}

// sweepFrom is the number of buckets from which full ones are deleted.
const sweepFrom = 1024

// Keyed is a rate limit by key. It is safe for concurrent use. A nil Keyed limits nothing.
type Keyed[K comparable] struct {
	rate Rate

	mu       sync.Mutex
	all      *rate.Limiter // guarded by mu; nil without a limit for all keys
	buckets  map[K]*bucket // guarded by mu; a missing bucket is full
	overflow *bucket       // guarded by mu; shared by all further keys
	sweepAt  int           // guarded by mu: number of buckets
}

type bucket struct {
	*rate.Limiter
	leftOut int64 // refusals since the last allowed action
}

// NewKeyed returns a Keyed with full buckets.
func NewKeyed[K comparable](r Rate) *Keyed[K] {
	r.Keys = cmp.Or(r.Keys, 100_000)
	if r.Now == nil {
		r.Now = time.Now
	}
	k := &Keyed[K]{rate: r, buckets: make(map[K]*bucket), sweepAt: sweepFrom}
	k.overflow = k.newBucket()
	if r.All > 0 {
		k.all = rate.NewLimiter(rate.Limit(r.PerSecond*r.All), int(float64(r.Burst)*r.All))
	}
	return k
}

func (k *Keyed[K]) newBucket() *bucket {
	return &bucket{Limiter: rate.NewLimiter(rate.Limit(k.rate.PerSecond), k.rate.Burst)}
}

// Allow takes a token from the bucket of key, and reports whether there was one.
func (k *Keyed[K]) Allow(key K) bool {
	_, ok := k.Take(key)
	return ok
}

// Take is [Keyed.Allow]. leftOut counts the refusals since the last success.
func (k *Keyed[K]) Take(key K) (leftOut int64, ok bool) {
	if k == nil {
		return 0, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.rate.Now()
	spent := k.all != nil && k.all.TokensAt(now) < 1
	if spent && k.buckets[key] == nil {
		return 0, false // a refused new key needs no bucket
	}
	b := k.bucket(key, now)
	if spent || b.TokensAt(now) < 1 {
		b.leftOut++
		return 0, false
	}
	b.AllowN(now, 1)
	if k.all != nil {
		k.all.AllowN(now, 1)
	}
	leftOut, b.leftOut = b.leftOut, 0
	return leftOut, true
}

// Refund undoes one Allow.
func (k *Keyed[K]) Refund(key K) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.rate.Now()
	if b := k.buckets[key]; b != nil {
		if b.AllowN(now, -1); b.TokensAt(now) >= float64(k.rate.Burst) {
			delete(k.buckets, key)
		}
	}
	if k.all != nil {
		k.all.AllowN(now, -1)
	}
}

// The caller holds mu.
func (k *Keyed[K]) bucket(key K, now time.Time) *bucket {
	if b := k.buckets[key]; b != nil {
		return b
	}
	if len(k.buckets) >= min(k.sweepAt, k.rate.Keys) {
		k.sweep(now)
	}
	if len(k.buckets) >= k.rate.Keys {
		return k.overflow
	}
	b := k.newBucket()
	k.buckets[key] = b
	return b
}

// sweep deletes full buckets, since new buckets are full, too. The caller holds mu.
func (k *Keyed[K]) sweep(now time.Time) {
	maps.DeleteFunc(k.buckets, func(_ K, b *bucket) bool { return b.TokensAt(now) >= float64(k.rate.Burst) })
	k.sweepAt = max(sweepFrom, 2*len(k.buckets))
}

// Source returns the key of an address with or without a port: the IPv4 address, or the IPv6 /64, since each site gets
// at least that (RFC 6177).
func Source(address string) netip.Prefix {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		port, err := netip.ParseAddrPort(address)
		if err != nil {
			return netip.Prefix{}
		}
		addr = port.Addr()
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	key, _ := addr.Prefix(bits) // never fails: bits fit
	return key
}

// SourceName returns a readable form of the key of address.
func SourceName(key netip.Prefix, address string) string {
	switch {
	case !key.IsValid():
		return fmt.Sprintf("%.60q", address)
	case key.IsSingleIP():
		return key.Addr().String()
	}
	return key.String()
}

// Shares divides a fixed amount among keys. A key may use as much as is free, so N greedy keys leave one part of N+1
// (dynamic thresholds, Choudhury and Hahne). It is safe for concurrent use.
type Shares[K comparable] struct {
	mu   sync.Mutex
	free int       // guarded by mu
	used map[K]int // guarded by mu; no entry is 0
}

// NewShares returns a Shares that divides all.
func NewShares[K comparable](all int) *Shares[K] {
	return &Shares[K]{free: all, used: make(map[K]int)}
}

// Acquire takes n for key until [Shares.Release]. If that is too much, it takes nothing and returns false.
func (s *Shares[K]) Acquire(key K, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key]+n > s.free {
		return false
	}
	s.used[key] += n
	s.free -= n
	return true
}

// Release undoes Acquire.
func (s *Shares[K]) Release(key K, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.used[key] -= n; s.used[key] <= 0 {
		delete(s.used, key)
	}
}

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
