package fleet

// Texts returns how many texts have room in the index.
func (x *Index) Texts() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.texts)
}
