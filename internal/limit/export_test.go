package limit

// Len returns the number of buckets that are not full.
func (k *Keyed[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep(k.rate.Now())
	return len(k.buckets)
}
