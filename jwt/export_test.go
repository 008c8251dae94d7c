package jwt

// CacheLen returns how many tokens v remembers.
func CacheLen(v *Verifier) int {
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	return len(v.cache.entries)
}

// CacheSize is how many tokens a verifier remembers.
const CacheSize = cacheSize
