// Package limit has rate limits ([Keyed]), fair shares ([Shares]), and times for refused callers to come back
// ([Backlog]).
package limit

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate configures a [Keyed]: buckets of Burst tokens that fill with PerSecond.
type Rate struct {
	PerSecond float64
	Burst     int

	// All is the multiple for all keys together. Zero means no limit.
	All float64

	// Keys bounds the remembered keys. Default 100,000, some 20 MB.
	Keys int

	// Now defaults to [time.Now].
	Now func() time.Time
}

// sweepFrom is the size from which full buckets are deleted.
const sweepFrom = 1024

// Keyed is a rate limit by key. It is safe for concurrent use; a nil one limits nothing.
type Keyed[K comparable] struct {
	rate Rate

	mu       sync.Mutex
	all      *rate.Limiter // guarded by mu; nil without a limit for all keys
	buckets  map[K]*bucket // guarded by mu; full ones may be missing
	overflow *bucket       // guarded by mu: of keys beyond the limit
	sweepAt  int           // guarded by mu: size at which to sweep
}

type bucket struct {
	*rate.Limiter
	leftOut int64 // refusals since it last allowed something
}

// NewKeyed returns a Keyed with full buckets.
func NewKeyed[K comparable](r Rate) *Keyed[K] {
	if r.Keys == 0 {
		r.Keys = 100_000
	}
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

// Allow reports whether the key may act once more, and counts that.
func (k *Keyed[K]) Allow(key K) bool {
	_, ok := k.Take(key)
	return ok
}

// Take is Allow that also returns the number of earlier refusals.
func (k *Keyed[K]) Take(key K) (leftOut int64, ok bool) {
	if k == nil {
		return 0, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.rate.Now()
	spent := k.all != nil && k.all.TokensAt(now) < 1
	if spent && k.buckets[key] == nil {
		return 0, false // a new key needs no bucket for a refusal
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

// Left is Allow without counting.
func (k *Keyed[K]) Left(key K) bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.rate.Now()
	b := k.buckets[key]
	return b == nil || b.TokensAt(now) >= 1
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

// Len returns the number of buckets that are not full.
func (k *Keyed[K]) Len() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep(k.rate.Now())
	return len(k.buckets)
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

// sweep deletes full buckets: new ones would be the same. The caller holds mu.
func (k *Keyed[K]) sweep(now time.Time) {
	maps.DeleteFunc(k.buckets, func(_ K, b *bucket) bool { return b.TokensAt(now) >= float64(k.rate.Burst) })
	k.sweepAt = max(sweepFrom, 2*len(k.buckets))
}

// Source returns the key of an address, with or without a port: the address, or its /64, since no site gets less (RFC
// 6177).
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
