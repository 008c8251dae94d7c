package jwt

// CacheLen returns how many tokens v remembers.
func CacheLen(v *Verifier) int { return v.cache.Len() }

// CacheSize is how many tokens a verifier remembers.
const CacheSize = cacheSize
